"""`disqued-spark rollup`: counts and latencies by minute, hour and day."""

from typing import TYPE_CHECKING, Any

import click

from disqued.pipeline.run import PipelineRun, need_tables, place_of, place_options, running
from disqued.pipeline.tables import EVENTS

if TYPE_CHECKING:
    from disqued.pipeline.history import JobChange


@click.command(epilog="Reads the table events; writes the table rollup: docs/reference/tables.md has its columns.")
@click.option("--again", metavar="DAY", help="Compute all days from this one on again, such as 2026-11-01.")
@place_options
def command(again: str | None, **words: Any) -> None:
    """Count what happened, by minute, queue and event, with sketches of how long jobs waited, ran and lived.

    Hours and days are merged from the minutes.  Only days with new events are computed; with --reports their hours and
    days are put where the daemon shows them:

    \b
        disqued-spark rollup --tables /srv/tables --reports /srv/reports.sqlite
    """
    place = place_of(words)
    need_tables(place, are_there=True)
    with running("rollup", place) as run, run.tables.filled(EVENTS, "ingest").alone("rollup"):
        from disqued.pipeline.history import news
        from disqued.pipeline.jobs.rollup import days_told

        found = news(run)
        state = run.tables.state("rollup")
        todo = compute(run, found, found.days(run, again, found.dates, days_told))
        # What changes with each computing, for those who read the table.
        versions = state.get("days", {})
        versions |= {day: versions.get(day, 0) + 1 for day in todo}
        told = report(run, versions, state.get("reported", {}))
        run.tables.note("rollup", {**found.note(), "days": versions, "reported": told})


def compute(run: PipelineRun, found: "JobChange", days: set[str]) -> list[str]:
    """Compute these days in all grains, and let them take the place of what is there; returns those that were."""
    from disqued.pipeline.jobs.rollup import GRAINS, merged, minutes
    from disqued.pipeline.tables import ROLLUP

    if not (todo := found.to_compute(run, days)):
        return []
    rows = minutes(found.of_files_from(todo[0]), todo)
    for finer, grain in zip((None, *GRAINS), GRAINS, strict=False):
        if finer is not None:
            wanted = run.tables.read(ROLLUP)
            rows = merged(wanted.where((wanted.grain == finer) & wanted.date.isin(todo)), grain)
        parts = [(grain, day) for day in todo]
        run.tables.replace(ROLLUP, rows, parts)
        count = run.tables.count(ROLLUP, parts)
        run.count(count)
        run.say(f"{count} rows of grain {grain}")
    return todo


def report(
    run: PipelineRun, versions: dict[str, int], reported: dict[str, dict[str, int]]
) -> dict[str, dict[str, int]]:
    """Put hours and days into the reports that have them not yet, or as they were before."""
    from disqued.pipeline.jobs.rollup import by_queue
    from disqued.pipeline.jobs.slo import days_to_do
    from disqued.pipeline.tables import ROLLUP

    if run.reports is None or run.place.reports is None:
        return reported
    # A file that was taken away since has none of them.
    known = {} if run.reports.is_empty("queues") else reported.get(run.place.reports, {})
    days = days_to_do(versions, known)
    if days:
        rows = run.tables.read(ROLLUP)
        wanted = by_queue(rows.where(rows.grain.isin("hour", "day") & rows.date.isin(days)))
        told = [row.asDict() for row in wanted.collect()]
        run.reports.put_queues(told)
        run.say(f"{len(told)} rows of {len(days)} days are in {run.place.reports}")
    return {**reported, run.place.reports: versions}
