"""Faults planted into the event logs of simulated clusters, each with what an audit is to say of it.

    story = tell(profile, seed, folder)         a cluster in virtual time, and the logs that its nodes wrote
    plants = plant(story, rng, 5)               edits, each of which is one fault and nothing else
    story.write(folder, plants, copy=7)         the same logs with these faults; each copy is a cluster of its own

Lines are kept without their numbers, so that lines which are put in or left out leave no gap: a gap is a fault that is
planted by itself.  Logs and jobs do not both get faults in one copy of a story, as a log with a gap proves nothing
about jobs.

A fault is planted where the logs prove it: boots that go on until long after the end of the job's time, in which
nobody set the clock.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import attrs

from disqued.pipeline.jobs.verdicts import (
    ACKED_TWICE,
    DELIVERED_AFTER_ACK,
    DELIVERED_DEAD,
    DOUBLE,
    GAP,
    LOST,
    ORPHANED,
    TRIED_TOO_OFTEN,
    TWICE_ONCE,
)
from disqued.testing.profiles import named
from disqued.testing.world import Broken, World

Boot = tuple[str, int]
#: A node, a boot, and the number of a line there.
At = tuple[str, int, int]

SKIPPED = b""  #: in the place of a line: there is none, but its number is used up
AGAIN = b"="  #: before a line: it has the number of the line before it
SURE_US = 120_000_000  #: after the end of a job's time: who has not told of it by then does not
TTLS_S = (300, 600, 600, 20)
PATIENCE_US = 400_000_000  #: nodes of a story are never apart for so long
LATE_US = 450_000_000


@attrs.frozen
class Line:
    """A line of a story."""

    boot: Boot
    at: int  #: its place in its boot, from 0
    says: dict[str, Any]

    def is_end(self) -> bool:
        """Tell whether a job ends with it, on its node."""
        event, reason = self.says["event"], self.says.get("reason", "")
        return event in ("expire", "delete", "evict", "refuse", "cancelled") or (
            event == "ack" and "unknown" not in reason
        )

    def is_own_ack(self) -> bool:
        return self.says["event"] == "ack" and "reason" not in self.says

    @property
    def age_us(self) -> int:
        age_us: int = self.says.get("age_us", 0)
        return age_us


@attrs.frozen
class Plant:
    """A fault: what is to be found, and the edits that make it."""

    kind: str
    job_id: str | None
    place: At | None  #: of a log
    edits: dict[Boot, list[tuple[int, str, bytes]]]  #: by place: ("drop" | "skip" | "again" | "after", line)


@attrs.define
class Story:
    """The logs of a cluster."""

    name: str
    boots: dict[Boot, list[bytes]]  #: lines without what is before `"ts_us"`
    lines: dict[Boot, list[Line]]
    jobs: dict[str, list[Line]] = attrs.field(init=False)  #: work jobs; by node, boot and number
    nodes: list[str] = attrs.field(init=False)
    _texts: dict[Boot, bytes] = attrs.field(factory=dict, init=False)
    _next: dict[Boot, Boot] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.nodes = sorted({node for node, _ in self.boots})
        for boot, lines in self.lines.items():
            if "after_boot" in lines[0].says:
                self._next[boot[0], lines[0].says["after_boot"]] = boot
        self.jobs = {}
        for boot in sorted(self.lines):
            for line in self.lines[boot]:
                if "job_id" in line.says and "scope" not in line.says:
                    self.jobs.setdefault(line.says["job_id"], []).append(line)
        for boot in self.boots:
            self._texts[boot] = self._text(boot, self.boots[boot])

    @property
    def events(self) -> int:
        return sum(map(len, self.boots.values()))

    def is_steady(self, line: Line) -> bool:
        """Tell whether the boot of a line goes on until its job's time is long over, by a clock that nobody set."""
        lines = self.lines[line.boot]
        if any(other.says["event"] == "clock" for other in lines):
            return False
        ttl_us = self.ttl_us(line.says["job_id"]) + self._keep_dead_us(line.says["job_id"])
        return bool(line.says["ts_us"] + ttl_us - line.age_us + SURE_US <= lines[-1].says["ts_us"])

    def ttl_us(self, job_id: str) -> int:
        """How long a job lives."""
        adds = [line for line in self.jobs[job_id] if line.says["event"] == "add"]
        return int(adds[0].says["ttl_s"] * 1_000_000) if adds else (int(job_id[42:46], 16) + 1) * 60_000_000

    def _keep_dead_us(self, job_id: str) -> int:
        """How much longer a job lives if it dies."""
        return max(int(line.says.get("keep_dead_s") or 0) * 1_000_000 for line in self.jobs[job_id])

    def by_node(self, job_id: str) -> dict[str, list[Line]]:
        found: dict[str, list[Line]] = {}
        for line in self.jobs[job_id]:
            found.setdefault(line.boot[0], []).append(line)
        return found

    def next_of(self, boot: Boot) -> Boot | None:
        """The boot that says where this one ended."""
        return self._next.get(boot)

    def is_oldest(self, boot: Boot) -> bool:
        """Tell whether there is no boot of its node before it."""
        return boot == min(other for other in self.boots if other[0] == boot[0])

    # Writing.

    def write(self, folder: Path, plants: Iterable[Plant] = (), copy: int | None = None) -> None:
        """Write the logs with these faults, as nodes do; a copy has nodes of its own."""
        for (node, number), text in self.texts(plants, copy):
            path = folder / "date=2023-11-14" / f"node={node}" / f"events-{number}-{1:016}.jsonl"
            if text:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text)

    def texts(self, plants: Iterable[Plant] = (), copy: int | None = None) -> Iterator[tuple[Boot, bytes]]:
        """Give the lines of each boot with these faults; a copy has nodes of its own."""
        edits: dict[Boot, list[tuple[int, str, bytes]]] = {}
        for plant in plants:
            for boot, some in plant.edits.items():
                edits.setdefault(boot, []).extend(some)
        edited = {boot: _edited(self.boots[boot], some) for boot, some in edits.items()}
        for boot, tails in list(edited.items()):
            after = self.next_of(boot)
            if after is not None:
                ended, ends = b'"after_seq":%d,' % len(self.boots[boot]), b'"after_seq":%d,' % _numbers(tails)
                others = edited.get(after, self.boots[after])
                edited[after] = [tail.replace(ended, ends) if b'"start"' in tail else tail for tail in others]
        for boot in self.boots:
            text = self._text(boot, edited[boot]) if boot in edited else self._texts[boot]
            if copy is not None:
                for name in self.nodes:
                    text = text.replace(name.encode(), self.renamed(name, copy).encode())
            yield (self.renamed(boot[0], copy), boot[1]), text

    @staticmethod
    def _text(boot: Boot, tails: Sequence[bytes]) -> bytes:
        start = b'{"v":1,"boot":%d,"seq":' % boot[1]
        lines: list[bytes] = []
        number = 0
        for tail in tails:
            if tail == AGAIN:
                number -= 1
                continue
            number += 1
            if tail != SKIPPED:
                lines.append(start + b"%d," % number + tail)
        return b"".join(lines)

    @staticmethod
    def renamed(name: str, copy: int | None) -> str:
        """The name of a node, or the id of a job, in a copy."""
        if copy is None:
            return name
        start = 2 if name.startswith("DI") else 0
        turned = f"{(int(name[start : start + 8], 16) + copy * 0x9E3779B1) % (1 << 32):08x}"
        return name[:start] + turned + name[start + 8 :]


def _numbers(tails: Sequence[bytes]) -> int:
    """How many numbers these lines use up."""
    return sum(-1 if tail == AGAIN else 1 for tail in tails)


def _edited(tails: Sequence[bytes], edits: Iterable[tuple[int, str, bytes]]) -> list[bytes]:
    """The lines of a boot after edits, which name places before any of them."""
    at: dict[int, list[tuple[str, bytes]]] = {}
    for place, what, tail in edits:
        at.setdefault(place, []).append((what, tail))
    result: list[bytes] = []
    for place, tail in enumerate(tails):
        some = at.get(place, ())
        whats = [what for what, _ in some]
        if "skip" in whats:
            result.append(SKIPPED)
        elif "drop" not in whats:
            result.append(tail)
        for what, other in some:
            if what == "again":
                result += [AGAIN, tail]
            elif what == "after":
                result.append(other)
    return result


def tell(profile: str, seed: int, folder: Path, *, hours: float = 0.3, jobs: int | None = None) -> Story:
    """Tell a story whose jobs have short lives, and take the logs that it left in the folder."""
    kind = named(profile, hours=hours)
    if not kind.logs:
        # A node that is full hands what is added with ASYNC to another one, which may not take it: that is a loss.
        kind = attrs.evolve(kind, load=attrs.evolve(kind.load, ttls_s=TTLS_S, asynchronous=0.0))
    if jobs is not None:
        kind = attrs.evolve(kind, jobs=jobs)
    # To a node that starts with a clock that is hours ahead the time of such jobs is over, and who checks the story
    # misses them.  Here it is the logs that are looked at.
    with suppress(Broken):
        World(seed, kind, events=folder).run()
    return read(f"{profile} {seed}", folder)


def read(name: str, folder: Path) -> Story:
    """Read the logs of a folder."""
    texts: dict[Boot, list[tuple[int, dict[str, Any], bytes]]] = {}
    for path in folder.glob("date=*/node=*/events-*.jsonl"):
        node = path.parent.name.removeprefix("node=")
        for text in path.read_bytes().splitlines(keepends=True):
            says = json.loads(text)
            tail = text[text.index(b'"ts_us"') :]
            texts.setdefault((node, says["boot"]), []).append((says["seq"], says, tail))
    boots: dict[Boot, list[bytes]] = {}
    lines: dict[Boot, list[Line]] = {}
    for boot, some in sorted(texts.items()):
        some.sort(key=lambda line: line[0])
        assert [number for number, _, _ in some] == list(range(1, len(some) + 1))
        boots[boot] = [tail for _, _, tail in some]
        lines[boot] = [Line(boot, at, says) for at, (_, says, _) in enumerate(some)]
    return Story(name, boots, lines)


# Plants.


def _tail(says: dict[str, Any]) -> bytes:
    members = {name: value for name, value in says.items() if name not in ("v", "boot", "seq")}
    return json.dumps(members, separators=(",", ":"))[1:].encode() + b"\n"


def _drop(lines: Iterable[Line]) -> dict[Boot, list[tuple[int, str, bytes]]]:
    edits: dict[Boot, list[tuple[int, str, bytes]]] = {}
    for line in lines:
        edits.setdefault(line.boot, []).append((line.at, "drop", b""))
    return edits


def _until_its_end(lines: list[Line]) -> tuple[list[Line], list[Line]]:
    """Split the lines of a job on one node before its first end."""
    at = next((at for at, line in enumerate(lines) if line.is_end()), len(lines))
    return lines[:at], lines[at:]


def _lost(story: Story, rng: Random, job_id: str) -> Plant | None:
    """Let a job that was added have no end anywhere; sometimes nobody got it either."""
    kept: list[Line] = []
    dropped: list[Line] = []
    bare = rng.random() < 0.5
    for lines in story.by_node(job_id).values():
        before, _ = _until_its_end(lines)
        first = [line for line in before if line.says["event"] in ("add", "replicate") or not bare]
        if first and not story.is_steady(first[-1]):
            return None
        kept += first
        dropped += [line for line in lines if line not in first]
    says = [line.says["event"] for line in kept]
    is_over = any(line.is_end() for line in dropped) and not any(line.says["event"] == "refuse" for line in dropped)
    if "add" not in says or not is_over or any(line.says.get("reason") == "once" for line in kept):
        return None
    if all(line.says.get("reason") == "elsewhere" for line in kept):
        return None
    return Plant(LOST, job_id, None, _drop(dropped))


def _orphaned(story: Story, rng: Random, job_id: str) -> Plant | None:
    """Let a node that holds a copy never say what became of it, though others do."""
    by_node = story.by_node(job_id)
    for node in rng.sample(sorted(by_node), len(by_node)):
        before, after = _until_its_end(by_node[node])
        others = [line for other, lines in by_node.items() if other != node for line in lines]
        if not (before and after and any(line.is_end() for line in others) and story.is_steady(before[-1])):
            continue
        is_elsewhere = before[-1].says.get("reason") == "elsewhere"
        if not is_elsewhere and not any(line.says["event"] == "refuse" for line in others):
            return Plant(ORPHANED, job_id, None, _drop(after))
    return None


def _late(story: Story, rng: Random, job_id: str) -> Plant | None:
    """Let a node deliver a job long after a client told another one that it is done."""
    by_node = story.by_node(job_id)
    own = [line for line in story.jobs[job_id] if line.is_own_ack()]
    is_once = any(line.says.get("retry_s") == 0 for line in story.jobs[job_id])
    if len(own) != 1 or is_once or any(len({line.boot for line in lines}) > 1 for lines in by_node.values()):
        return None
    for node in rng.sample(sorted(by_node), len(by_node)):
        before, after = _until_its_end(by_node[node])
        if node == own[0].boot[0] or not before or not after or not story.is_steady(before[0]):
            continue
        age_us = own[0].age_us + LATE_US
        ttl_us = story.ttl_us(job_id)
        if before[0].says["event"] != "replicate" or age_us >= ttl_us:
            continue
        edits = _drop(after)
        for event, its_age_us in (("deliver", age_us), ("expire", ttl_us)):
            place, ts_us = _when(story, before[0], its_age_us)
            says = {"ts_us": ts_us, "event": event, "job_id": job_id, "queue": "a", "age_us": its_age_us}
            edits.setdefault(before[0].boot, []).append((place, "after", _tail(says)))
        return Plant(ORPHANED, job_id, None, edits)
    return None


def _when(story: Story, line: Line, age_us: int) -> tuple[int, int]:
    """The place in a line's boot where its job has this age, and the time then."""
    ts_us = line.says["ts_us"] + age_us - line.age_us
    times = [other.says["ts_us"] for other in story.lines[line.boot]]
    return max(0, bisect_left(times, ts_us) - 1), ts_us


def _after(story: Story, rng: Random, line: Line, says: dict[str, Any]) -> Plant | None:
    """Say something of a job a little later than a line."""
    lines = story.lines[line.boot]
    place = min(line.at + rng.randint(0, 300), len(lines) - 2)
    between = lines[line.at + 1 : place + 1]
    job_id = line.says["job_id"]
    comes_back = any(other.says.get("job_id") == job_id for other in between)
    if place <= line.at or comes_back or any(other.says["event"] == "clock" for other in between):
        return None
    passed_us = lines[place].says["ts_us"] - line.says["ts_us"]
    told = {"ts_us": lines[place].says["ts_us"], **says, "age_us": line.age_us + passed_us}
    return Plant("", job_id, None, {line.boot: [(place, "after", _tail(told))]})


def _acked_twice(story: Story, rng: Random, job_id: str) -> Plant | None:
    """Let a node that knows that a job is done take another acknowledgement of it."""
    return _after_an_ack(story, rng, job_id, ACKED_TWICE, "ack")


def _delivered_after_ack(story: Story, rng: Random, job_id: str) -> Plant | None:
    """Let a node that knows that a job is done deliver it."""
    return _after_an_ack(story, rng, job_id, DELIVERED_AFTER_ACK, "deliver")


def _after_an_ack(story: Story, rng: Random, job_id: str, kind: str, event: str) -> Plant | None:
    acks = [line for line in story.jobs[job_id] if line.is_end() and line.says["event"] == "ack"]
    if not acks:
        return None
    ack = rng.choice(acks)
    says = {"event": event, "job_id": job_id, "queue": ack.says["queue"], "attempt": 2, "age_us": 0}
    plant = _after(story, rng, ack, says)
    return None if plant is None else attrs.evolve(plant, kind=kind)


def _twice_once(story: Story, rng: Random, job_id: str) -> Plant | None:
    """Let somebody else get a job that is delivered once at most."""
    delivers = [line for line in story.jobs[job_id] if line.says["event"] == "deliver"]
    is_once = any(line.says.get("reason") == "once" for line in delivers)
    if not is_once or len(delivers) != 1 or not story.is_steady(delivers[0]):
        return None
    if any(line.says["event"] == "requeue" for line in story.jobs[job_id]):
        return None
    line = delivers[0]
    says = {"event": "deliver", "job_id": job_id, "queue": line.says["queue"], "attempt": 1, "reason": "once"}
    plant = _after(story, rng, line, says)
    return None if plant is None else attrs.evolve(plant, kind=TWICE_ONCE)


def _delivered_dead(story: Story, rng: Random, job_id: str) -> Plant | None:
    """Let a node deliver a job that it knows to be dead."""
    line = _first_delivery(story, job_id)
    if line is None:
        return None
    dead = {"ts_us": line.says["ts_us"], "event": "dead", "job_id": job_id, "queue": line.says["queue"],
            "attempt": 1, "nacks": 1, "age_us": line.age_us, "failure": "no such host"}  # fmt: skip
    again = {**dead, "event": "deliver", "attempt": 2}
    del again["failure"]
    edits = [(line.at, "after", _tail(dead)), (line.at, "after", _tail(again))]
    return Plant(DELIVERED_DEAD, job_id, None, {line.boot: edits})


def _tried_too_often(story: Story, rng: Random, job_id: str) -> Plant | None:
    """Let a node deliver a job more often than its terms say."""
    line = _first_delivery(story, job_id)
    add = next((line for line in story.jobs[job_id] if line.says["event"] == "add"), None)
    if line is None or add is None:
        return None
    tries = sum(each.says["event"] == "deliver" for each in story.by_node(job_id)[line.boot[0]])
    says = {"ts_us": line.says["ts_us"], "job_id": job_id, "queue": line.says["queue"], "age_us": line.age_us}
    more = [
        (line.at, "after", _tail({**says, "event": event, "attempt": attempt}))
        for attempt in range(1, tries + 2)
        for event in ("nack", "deliver")
    ]
    edits: dict[Boot, list[tuple[int, str, bytes]]] = {add.boot: [(add.at, "drop", b"")]}
    edits[add.boot].append((add.at, "after", _tail({**add.says, "max_tries": tries + 1})))
    edits.setdefault(line.boot, []).extend(more)
    return Plant(TRIED_TOO_OFTEN, job_id, None, edits)


def _first_delivery(story: Story, job_id: str) -> Line | None:
    """The first delivery of a job with RETRY on a node that delivers it before it hears of an end."""
    if any(line.says.get("retry_s") == 0 or line.says.get("reason") == "once" for line in story.jobs[job_id]):
        return None
    if any(line.says["event"] in ("dead", "redriven") or "max_tries" in line.says for line in story.jobs[job_id]):
        return None
    for lines in story.by_node(job_id).values():
        before, _ = _until_its_end(lines)
        line = next((line for line in before if line.says["event"] == "deliver"), None)
        if line is not None:
            return line
    return None


def _gap(story: Story, rng: Random) -> Plant | None:
    """Let lines be missing."""
    boot = rng.choice(sorted(story.boots))
    count = rng.randint(1, 5)
    size = len(story.boots[boot])
    if size < count + 3:
        return None
    first = rng.randint(1, size - count - 1)
    edits: list[tuple[int, str, bytes]] = [(first + at, "skip", b"") for at in range(count)]
    return Plant(GAP, None, (*boot, first + 1), {boot: edits})


def _tail_gap(story: Story, rng: Random) -> Plant | None:
    """Let the last lines of a boot be missing, as when its last file was not shipped; or all of them."""
    boot = rng.choice(sorted(story.boots))
    after = story.next_of(boot)
    size = len(story.boots[boot])
    count = size if rng.random() < 0.5 else rng.randint(1, size)
    if after is None or (count == size and story.is_oldest(boot)):
        return None
    edits: list[tuple[int, str, bytes]] = [(at, "skip", b"") for at in range(size - count, size)]
    # The boot behind it is to be there, as it says where this one ended.
    return Plant(GAP, None, (*boot, size - count + 1), {boot: edits, after: []})


def _double(story: Story, rng: Random) -> Plant | None:
    """Let a line be there twice."""
    boot = rng.choice(sorted(story.boots))
    at = rng.randrange(len(story.boots[boot]))
    return Plant(DOUBLE, None, (*boot, at + 1), {boot: [(at, "again", b"")]})


OF_JOBS: tuple[Callable[[Story, Random, str], Plant | None], ...] = (
    _lost, _orphaned, _late, _acked_twice, _delivered_after_ack, _twice_once,
    _delivered_dead, _tried_too_often,
)  # fmt: skip
OF_LOGS: tuple[Callable[[Story, Random], Plant | None], ...] = (_gap, _tail_gap, _double)
TRIES = 60


def plant(story: Story, rng: Random, count: int) -> list[Plant]:
    """Draw faults for a copy of a story, of jobs or of logs; fewer than `count` where there is no room for them."""
    plants: list[Plant] = []
    if rng.random() < 0.3:
        used: set[Boot] = set()
        for _ in range(count):
            fault = rng.choice(OF_LOGS)(story, rng)
            if fault is not None and not used & fault.edits.keys():
                used |= fault.edits.keys()
                plants.append(fault)
        return plants
    jobs = sorted(story.jobs)
    taken: set[str] = set()
    for _ in range(count if jobs else 0):
        make = rng.choice(OF_JOBS)
        for job_id in rng.sample(jobs, min(TRIES, len(jobs))):
            found = None if job_id in taken else make(story, rng, job_id)
            if found is not None:
                taken.add(job_id)
                plants.append(found)
                break
    return plants
