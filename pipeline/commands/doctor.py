"""`disqued-spark doctor`: what goes wrong with queues, and what to do about it."""

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from textwrap import wrap
from typing import Any, Final

import click

from disqued.pipeline.dayoptions import DAY
from disqued.pipeline.errors import Misused
from disqued.pipeline.run import DONE, FOUND, PipelineRun, need_tables, place_of, place_options, running
from disqued.tools.console_text import short
from disqued.tools.values import Number
from disqued.wire.texts import shown

SHOWN: Final = 10  #: queues that are named for each kind


@click.command(epilog="Reads the table lifecycle; writes the table findings: docs/reference/tables.md has its columns.")
@click.option("--stuck", type=Number(min=0), default=3_600.0, show_default=True, metavar="SECONDS",
              help="After which a delivered job that is not done is stuck.")  # fmt: skip
@click.option("--idle", type=Number(min=0), default=600.0, show_default=True, metavar="SECONDS",
              help="After which a queue with jobs from which nobody took any has no consumers.")  # fmt: skip
@click.option("--hot", type=click.IntRange(min=1), default=10, show_default=True, metavar="TIMES",
              help="That a job is queued again as nobody was done with it in time.")  # fmt: skip
@click.option("--poison", type=click.IntRange(min=1), default=5, show_default=True, metavar="TIMES",
              help="That a job is given back.")  # fmt: skip
@click.option("--since", type=DAY, metavar="DAY", help="Look at jobs that were created on this day (UTC) or later.")
@click.option("--fail", is_flag=True, help="End with exit status 1 if anything is found.")
@place_options
def command(**words: Any) -> None:
    """Look for jobs that are stuck or fail again and again, and for queues that nobody serves.

    Everything is told by kind and queue: how many jobs, since when, and one of them to look at; and for each kind what
    it comes from, and what to do.

    \b
        poison         given back (NACK) again and again
        hot            queued again and again, as nobody was done with them in time
        stuck          delivered long ago, and not done
        no_consumers   they wait, and nobody takes any from their queue
        unseen         expired before anybody had them

    Long ago is counted from the last event that the table lifecycle knows, so run ingest and lifecycle before.

    \b
        disqued-spark doctor --tables /srv/tables
        disqued-spark doctor --tables /srv/tables --stuck 600 --poison 3 --since 2026-11-15 --fail
    """
    place = place_of(words)
    need_tables(place, are_there=True)
    with running("doctor", place) as run, run.tables.alone("doctor"):
        rows = _look(run, words)
        click.echo(_told(rows))
    raise SystemExit(FOUND if rows and words["fail"] else DONE)


def _look(run: PipelineRun, words: dict[str, Any]) -> list[dict[str, Any]]:
    """Find what there is to find, and keep it in the table and in the reports.  Raises Misused."""
    from disqued.pipeline.jobs.doctor import ADVICE, SECOND_US, DoctorThresholds, diagnosed, until
    from disqued.pipeline.tables import FINDINGS, LIFECYCLE

    tables = run.tables
    if not tables.has(LIFECYCLE):
        raise Misused(
            f"there are no lifecycles in {tables.root}: the verb lifecycle makes them, of what ingest took in"
        )
    jobs = tables.read(LIFECYCLE)
    if words["since"] is not None:
        jobs = jobs.where(jobs.date >= words["since"])
    limits = DoctorThresholds(stuck_us=int(words["stuck"] * SECOND_US), idle_us=int(words["idle"] * SECOND_US),
                              hot=words["hot"], poison=words["poison"])  # fmt: skip
    day = datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%d")
    found = [row.asDict() | {"date": day} for row in diagnosed(jobs, until(jobs), limits).collect()]
    kinds = list(ADVICE)
    found.sort(key=lambda row: (kinds.index(row["kind"]), -row["count"], row["queue"] or ""))
    tables.replace(FINDINGS, run.spark.createDataFrame(found, FINDINGS.schema), [(day,)])
    if run.reports is not None:
        run.reports.put_findings(row | {"advice": ADVICE[row["kind"]]} for row in found)
    run.count(len(found))
    run.note = f"{len(found)} findings" if found else "nothing found"
    return found


def _told(rows: Iterable[dict[str, Any]]) -> str:
    """What was found, for people: each kind with its queues, and what to do about it."""
    from disqued.pipeline.jobs.doctor import ADVICE, SECOND_US

    text: list[str] = []
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_kind.setdefault(row["kind"], []).append(row)
    for kind, some in by_kind.items():
        text.append(f"{kind}: {sum(row['count'] for row in some)} jobs in {len(some)} queues")
        for row in some[:SHOWN]:
            since = datetime.fromtimestamp((row["since_us"] or 0) / SECOND_US, UTC).strftime("%Y-%m-%d %H:%M:%S")
            queue, job_id = short(str(row["queue"])), shown(str(row["job_id"]))
            text.append(f"  {queue}: {row['count']} jobs, the oldest of {since} UTC; {row['detail']}; {job_id}")
        if len(some) > SHOWN:
            text.append(f"  ... and {len(some) - SHOWN} more queues in the table findings")
        text += ["", *(f"  {line}" for line in wrap(ADVICE[kind], 100)), ""]
    return (
        "\n".join(text).rstrip() or "nothing found: no job is stuck or fails again and again, and no queue is deserted"
    )
