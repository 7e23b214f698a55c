"""`disqued-spark lifecycle`: what became of each job."""

from typing import TYPE_CHECKING, Any

import click

from disqued.pipeline.dayoptions import DAY
from disqued.pipeline.run import PipelineRun, need_tables, place_of, place_options, running
from disqued.pipeline.tables import EVENTS
from disqued.tools.values import Number

if TYPE_CHECKING:
    from disqued.pipeline.history import JobChange


@click.command(epilog="Reads the table events; writes the table lifecycle: docs/reference/tables.md has its columns.")
@click.option("--again", type=DAY, metavar="DAY", help="Compute all days from this one on again, such as 2026-11-01.")
@click.option("--clock-skew", default=3600.0, show_default=True, type=Number(0, 12 * 3600), metavar="SECONDS",
              help="How far the clocks of two nodes may be apart.")  # fmt: skip
@place_options
def command(again: str | None, clock_skew: float, **words: Any) -> None:
    """Tell what became of each job, in one row: who added it, how often it was delivered, how and when it ended.

    Of an event of a log there is a row for each consumer group, too.

    Only days with jobs that new events tell of are computed, of all events of those jobs; run it after `ingest` as
    often as you like:

    \b
        disqued-spark ingest --events /mnt/events --tables /srv/tables
        disqued-spark lifecycle --tables /srv/tables

    An event that comes late, from a node that was away, changes the day on which its job was created.
    """
    place = place_of(words)
    need_tables(place, are_there=True)
    with running("lifecycle", place) as run, run.tables.filled(EVENTS, "ingest").alone("lifecycle"):
        from disqued.pipeline.history import news
        from disqued.pipeline.jobs.lifecycle import days_of
        from disqued.pipeline.tables import LIFECYCLE

        skew_us = round(clock_skew * 1_000_000)
        found = news(run)
        there = (*found.dates, *(day for (day,) in run.tables.parts(LIFECYCLE)))
        days = found.days(run, again, there, lambda new: days_of(new, skew_us))
        compute(run, found, days, skew_us)
        run.tables.note("lifecycle", found.note())


def compute(run: PipelineRun, found: "JobChange", days: set[str], skew_us: int) -> None:
    """Compute these days, and let them take the place of what is there."""
    from disqued.pipeline.jobs.lifecycle import lifecycle
    from disqued.pipeline.tables import LIFECYCLE

    if not (todo := found.to_compute(run, days)):
        return
    events = found.of_files_from(todo[0])
    flushes: dict[str, list[tuple[int, int]]] = {}
    for row in events.where("event = 'flush'").select("node", "ts_us", "seq").collect():
        flushes.setdefault(row.node, []).append((row.ts_us, row.seq))
    groups = not events.where("scope IS NOT NULL").select("scope").isEmpty()
    rows = lifecycle(events, found.nodes, days=todo, flushes=flushes, groups=groups, skew_us=skew_us)
    run.tables.replace(LIFECYCLE, rows, [(day,) for day in todo])
    count = run.tables.count(LIFECYCLE, [(day,) for day in todo])
    run.count(count)
    run.say(f"done: {count} rows of {len(todo)} days")
