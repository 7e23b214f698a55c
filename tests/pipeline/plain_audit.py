"""The audit without Spark: the same rules on lines in memory, and what must come out of it where faults are planted."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from disqued.pipeline.jobs.audit import PAGE, logs_of, to_open, to_time
from disqued.pipeline.jobs.verdicts import NOTE, SEVERITY, AuditTolerance, Finding, judge, line_of
from tests.pipeline.planted import At, Plant, Story

Row = dict[str, Any]


def rows_of(folder: Path) -> list[Row]:
    """Read all published lines, with their nodes."""
    return [
        {"node": path.parent.name.removeprefix("node="), **json.loads(text)}
        for path in sorted(folder.glob("date=*/node=*/events-*.jsonl"))
        for text in path.read_bytes().splitlines()
    ]


def audit(rows: Iterable[Row], limits: AuditTolerance | None = None) -> list[Finding]:
    """Audit lines."""
    pages: dict[tuple[str, int, int], list[Row]] = {}
    jobs: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        pages.setdefault((row["node"], row["boot"], (row["seq"] - 1) // PAGE), []).append(row)
        if "job_id" in row:
            jobs.setdefault((row["job_id"], row.get("scope", "")), []).append(row)
    page_rows = [_page(*key, lines) for key, lines in pages.items()]
    marks = [
        SimpleNamespace(**{"after_boot": None, "after_seq": None, **row})
        for lines in pages.values()
        for row in lines
        if row["event"] in ("start", "stop", "clock", "flush")
    ]
    opened = [line for key in to_open(page_rows) for line in _lines(*key, pages[key])]
    wanted = set(to_time(marks))
    timed = [
        SimpleNamespace(**row)
        for lines in pages.values()
        for row in lines
        if (row["node"], row["boot"], row["seq"]) in wanted
    ]
    logs, found = logs_of(page_rows, marks, opened, timed)
    for (job_id, scope), lines in sorted(jobs.items()):
        found += judge(job_id, scope, map(line_of, lines), logs, limits or AuditTolerance())
    return found


def _page(node: str, boot: int, page: int, lines: list[Row]) -> SimpleNamespace:
    first, last = min(lines, key=_number), max(lines, key=_number)
    return SimpleNamespace(
        node=node, boot=boot, page=page, lines=len(lines), first=first["seq"], last=last["seq"],
        total=sum(line["seq"] - page * PAGE for line in lines),
        squares=sum((line["seq"] - page * PAGE) ** 2 for line in lines), first_us=first["ts_us"], last_us=last["ts_us"],
    )  # fmt: skip


def _number(line: Row) -> int:
    number: int = line["seq"]
    return number


def _lines(node: str, boot: int, page: int, lines: list[Row]) -> list[SimpleNamespace]:
    counts: dict[int, list[int]] = {}
    for line in lines:
        counts.setdefault(line["seq"], []).append(line["ts_us"])
    return [
        SimpleNamespace(node=node, boot=boot, page=page, seq=seq, lines=len(times), ts_us=min(times))
        for seq, times in counts.items()
    ]


def missed(story: Story, plants: Sequence[Plant], found: Iterable[Any], copy: int | None = None) -> list[Plant]:
    """The planted faults that were not found, as what they are; `found` are findings, or rows of the table."""
    of_jobs = {(row.kind, row.job_id) for row in found}
    of_logs = {(row.kind, row.node, row.boot, row.seq) for row in found}
    left: list[Plant] = []
    for plant in plants:
        if plant.job_id is not None:
            is_found = (plant.kind, story.renamed(plant.job_id, copy)) in of_jobs
        else:
            is_found = (plant.kind, *_renamed(story, plant.place, copy)) in of_logs
        if not is_found:
            left.append(plant)
    return left


def invented(story: Story, plants: Sequence[Plant], found: Iterable[Any], copy: int | None = None) -> list[Any]:
    """The faults that were found where none was planted."""
    jobs = {story.renamed(plant.job_id, copy) for plant in plants if plant.job_id is not None}
    places = {_renamed(story, plant.place, copy) for plant in plants if plant.job_id is None}
    return [
        row
        for row in found
        if SEVERITY[row.kind] != NOTE and row.job_id not in jobs and (row.node, row.boot, row.seq) not in places
    ]


def _renamed(story: Story, place: At | None, copy: int | None) -> At:
    assert place is not None
    node, boot, seq = place
    return story.renamed(node, copy), boot, seq
