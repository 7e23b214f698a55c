"""Histories of jobs, made at random, as nodes would write them down; and what became of the jobs, told by plain Python.

Nodes have clocks of their own, jobs are created about midnight, what one node tells may be missing altogether, and the
order of what happens to a job is any: what is computed is to be right for all of it.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from disqued.pipeline.jobs.lifecycle import DAY_US, HOUR_US, SKEW_US, day_of, start_us
from disqued.pipeline.tables import EVENTS, LIFECYCLE
from disqued.wire.eventlines import COLUMNS

Line = dict[str, Any]
Row = dict[str, Any]

NODES = ("12e45678", "aaaaaaaa", "0b0b0b0b")
FIRST_DAY = "2026-11-20"
MS = 1_000

#: What may happen to a job behind its `add`: event, reasons.
CHANCES = (
    ("replicate", (None,)), ("enqueue", (None, "asked")), ("deliver", (None, "once")), ("deliver", (None,)),
    ("working", (None,)), ("nack", (None,)), ("requeue", (None, "unseen")), ("ack", (None, "fast", "peer")),
    ("expire", (None,)), ("delete", (None,)), ("evict", (None,)), ("leave", (None,)), ("refuse", ("norepl",)),
    ("dead", (None, "peer")), ("redriven", (None, "peer")), ("cancelled", (None, "peer")),
)  # fmt: skip


class History:
    """Lines of the event logs of some nodes, numbered as each wrote them."""

    def __init__(self, seed: int) -> None:
        """Nothing has happened yet."""
        self.random = Random(seed)
        self.lines: list[Line] = []
        #: Clocks are apart by less than what is allowed.
        self._clocks = {node: self.random.randrange(-SKEW_US // 2, SKEW_US // 2, MS) for node in NODES}

    def tell(self, node: str, at_us: int, event: str, **members: Any) -> None:
        """Let a node write a line down, at a moment of a clock that is right."""
        ts_us = at_us + self._clocks[node]
        known = {name: value for name, value in members.items() if value is not None}
        self.lines.append({"v": 1, "boot": 7, "ts_us": ts_us, "event": event, **known, "node": node})

    def job(self, name: str, queue: str) -> None:
        """Let something happen to a job."""
        random = self.random
        created = start_us(FIRST_DAY) + DAY_US * random.randrange(1, 3) + random.randrange(-HOUR_US, HOUR_US, MS)
        scopes = [None, None, "1:readers", "1:writers"] if queue == "log" else [None]
        home = random.choice(NODES)
        group = None if queue == "log" else random.choice([None, "acme", "zebra"])
        schedule = None if queue == "log" else random.choice([None, "nightly", "hourly"])
        if random.random() < 0.8:
            self.tell(
                home, created, "add", job_id=name, queue=queue, ttl_s=random.choice([3600, 0.25]), repl=2,
                retry_s=random.choice([None, 5]), delay_s=random.choice([None, 1.5]), size=random.randrange(99),
                max_tries=random.choice([None, 3]), group=group, schedule=schedule,
            )  # fmt: skip
        for _ in range(random.randrange(1, 8)):
            event, reasons = random.choice(CHANCES)
            age = random.choice([0, random.randrange(0, 3 * HOUR_US, MS), random.randrange(0, 9_000, MS)])
            members: Line = {
                "age_us": age,
                "reason": random.choice(reasons),
                "scope": random.choice(scopes),
                "group": group,
                "schedule": schedule,
            }
            if event in ("deliver", "nack", "requeue", "ack"):
                members["attempt"] = random.choice([None, 1, 2])
            if event == "deliver":
                members["wait_us"] = random.randrange(0, 9_000, MS)
            if event == "ack":
                members["run_us"] = random.choice([None, random.randrange(0, 9_000, MS)])
                members["result_size"] = random.choice([None, random.randrange(99)])
            if event == "replicate":
                members["size"] = 5
            self.tell(random.choice(NODES), created + age, event, job_id=name, queue=queue, **members)

    def numbered(self) -> list[Line]:
        """The lines with their numbers, in the order in which each node wrote them."""
        numbers: dict[str, int] = defaultdict(int)
        told = []
        for line in sorted(self.lines, key=lambda line: line["ts_us"]):
            numbers[line["node"]] += 1
            told.append({**line, "seq": numbers[line["node"]], "date": day_of(line["ts_us"])})
        return told


def history(seed: int, jobs: int) -> list[Line]:
    """Make a history of so many jobs, with lines that are about none of them, too."""
    made = History(seed)
    for number in range(jobs):
        made.job(f"D-{number:04}", made.random.choice(["q", "mail", "log"]))
    for node in NODES:
        made.tell(node, start_us(FIRST_DAY), "start", reason="clean")
        made.tell(node, start_us(FIRST_DAY) + DAY_US, "ack", job_id="D-unknown", reason="unknown")
    return made.numbered()


def as_rows(lines: Iterable[Line], batch: str = "00000000") -> list[tuple[Any, ...]]:
    """Give lines as rows of the table of events."""
    return [
        (*(_typed(kind, line.get(name)) for name, kind in COLUMNS), line["date"], line["node"], batch) for line in lines
    ]


def _typed(kind: str, value: Any) -> Any:
    return float(value) if kind == "DOUBLE" and value is not None else value


def write(folder: Path, lines: Iterable[Line]) -> None:
    """Write lines as nodes publish them: a file for each day of a node, named by its first line."""
    files: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines:
        files[line["date"], line["node"]].append(line)
    for (day, node), some in files.items():
        place = folder / f"date={day}" / f"node={node}"
        place.mkdir(parents=True, exist_ok=True)
        inside = ({name: value for name, value in line.items() if name not in EVENTS.parts} for line in some)
        text = "".join(json.dumps(line) + "\n" for line in inside)
        (place / f"events-{some[0]['boot']}-{some[0]['seq']:016}.jsonl").write_text(text)


# What became of the jobs.


def became(lines: Iterable[Line]) -> list[Row]:
    """Tell what became of each job and scope, as rows of the table lifecycle; see docs/reference/tables.md."""
    jobs: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if line.get("job_id") and line.get("queue"):
            jobs[line["job_id"]].append(line)
    return sorted((row for some in jobs.values() for row in _rows_of(some)), key=key)


def key(row: Row) -> tuple[str, str]:
    return row["job_id"], row["scope"] or ""


def _rows_of(lines: list[Line]) -> Iterator[Row]:
    scopes: dict[str | None, list[Line]] = defaultdict(list)
    for line in lines:
        scopes[line.get("scope")].append(line)
    rows = {scope: _row(scope, some) for scope, some in scopes.items()}
    whole = rows.get(None)
    for scope, row in rows.items():
        if scope is not None and whole is not None:
            shared = "node", "size", "ttl_s", "retry_s", "delay_s", "repl", "created_us", "date"
            row.update({name: whole[name] for name in shared if whole[name] is not None})
            if row["end"] is None:
                row.update({name: whole[name] for name in ("end", "ended_us", "age_us")})
        yield {name: row[name] for name in LIFECYCLE.names}


def _row(scope: str | None, lines: list[Line]) -> Row:
    lines = sorted(lines, key=lambda line: (line["ts_us"], line["seq"]))
    adds = [line for line in lines if line["event"] == "add"]
    delivers = [line for line in lines if line["event"] == "deliver"]
    requeues = [line for line in lines if line["event"] == "requeue" and line.get("reason") != "unseen"]
    unseen = [line for line in lines if line["event"] == "requeue" and line.get("reason") == "unseen"]
    own = [line for line in lines if line["event"] == "ack" and line.get("reason") != "peer"]
    created = min(line["ts_us"] for line in adds) if adds else min(line["ts_us"] - line["age_us"] for line in lines)
    seen = len(delivers) > len(unseen)
    first = _first_seen(delivers, unseen) if seen else {}
    end = _end(own, lines)
    last = max(lines, key=_last)
    return {
        "job_id": lines[0]["job_id"], "scope": scope, "queue": lines[0]["queue"], "group": lines[0].get("group"),
        "schedule": lines[0].get("schedule"),
        "node": adds[0]["node"] if adds else None, "created_us": created, "date": day_of(created),
        "size": max((line["size"] for line in lines if "size" in line), default=None),
        **{name: adds[0].get(name) if adds else None for name in ("ttl_s", "retry_s", "delay_s", "repl")},
        "first_deliver_us": first.get("ts_us"), "wait_us": first.get("wait_us"),
        "last_deliver_us": delivers[-1]["ts_us"] if seen else None,
        "deliveries": max(0, len(delivers) - len(unseen)),
        "nacks": sum(line["event"] == "nack" for line in lines), "requeues": len(requeues), "acks": len(own),
        "end": end.get("event"), "ended_us": end.get("ts_us"), "age_us": end.get("age_us"),
        "run_us": own[0].get("run_us") if own else None,
        "nodes": len({line["node"] for line in lines}), "last_event": last["event"], "last_us": last["ts_us"],
        **{name: max((line[name] for line in lines if name in line), default=None)
           for name in ("max_tries", "result_size")},
        **{f"{name}_us": max((line["ts_us"] for line in lines if line["event"] == name), default=None)
           for name in ("dead", "redriven")},
    }  # fmt: skip


def _last(line: Line) -> tuple[int, int, int]:
    return line["ts_us"], line["seq"], LAST.index(line["event"])


#: What counts as later, if two nodes tell it of one moment and by one number.
LAST = (
    "add", "replicate", "enqueue", "deliver", "working", "nack", "requeue", "ack", "expire", "delete", "evict", "leave",
    "refuse", "dead", "redriven", "cancelled",
)  # fmt: skip


def _first_seen(delivers: list[Line], unseen: list[Line]) -> Line:
    """The first delivery; if the first attempt was taken back, the last that was made of it, or what came later."""
    if not any(line.get("attempt") in (None, 1) for line in unseen):
        return delivers[0]
    firsts = [line for line in delivers if line.get("attempt") in (None, 1)]
    if len(firsts) > sum(line.get("attempt") in (None, 1) for line in unseen):
        return firsts[-1]
    return next((line for line in delivers if line not in firsts), {})


def _end(own: list[Line], lines: list[Line]) -> Line:
    """What ended it: the first of the sort that counts most."""
    if own:
        return own[0]
    for event in ("cancelled", "ack", "delete", "refuse", "expire", "evict"):
        for line in lines:
            if line["event"] == event:
                return line
    return {}
