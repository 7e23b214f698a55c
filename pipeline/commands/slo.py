"""`disqued-spark slo`: latencies by queue and day, beside what they should have been."""

from typing import Any

import click

from disqued.pipeline.run import PipelineRun, need_tables, place_of, place_options, running
from disqued.pipeline.tables import ROLLUP


@click.command(epilog="Reads the table rollup; writes the table slo: docs/reference/tables.md has its columns.")
@click.option("--target", "targets", multiple=True, metavar="[QUEUE:]MEASURE=SPAN",
              help="What wait, run or age should not be longer than; as many as there are.")  # fmt: skip
@click.option("--again", metavar="DAY", help="Compute all days from this one on again, such as 2026-11-01.")
@place_options
def command(targets: tuple[str, ...], again: str | None, **words: Any) -> None:
    """Tell how each queue was served on each day.

    That is p50, p95 and p99 of wait (in the queue), run (with the consumer) and age (when it was done), how many were
    over their target, and which share of the deliveries had to be done again.

    It is read off the rollup, not the events, so it takes seconds; targets that are others than last time are looked
    up for all days.

    \b
        disqued-spark slo --tables /srv/tables --target wait=1s --target 'mail:wait=500ms' --target age=10m
    """
    from disqued.pipeline.jobs.slo import target_of

    wanted = [target_of(word) for word in targets]
    place = place_of(words)
    need_tables(place, are_there=True)
    with running("slo", place) as run, run.tables.filled(ROLLUP, "rollup").alone("slo"):
        from disqued.pipeline.history import days_from
        from disqued.pipeline.jobs.slo import days_to_do, slo, texts
        from disqued.pipeline.tables import SLO

        tables, state = run.tables, run.tables.state("slo")
        versions = tables.state("rollup").get("days", {})
        same = state.get("targets") == texts(wanted)
        todo = sorted({*days_to_do(versions, state["days"] if same else {}), *days_from(again, versions)})
        if todo:
            run.say(f"computing {len(todo)} days, {todo[0]} to {todo[-1]}")
            parts = [(day,) for day in todo]
            rows = tables.read(ROLLUP)
            tables.replace(SLO, slo(rows.where((rows.grain == "day") & rows.date.isin(todo)), wanted), parts)
            run.count(tables.count(SLO, parts))
        told = report(run, versions, todo, state.get("reported", {}) if same else {})
        tables.note("slo", {"days": versions, "targets": texts(wanted), "reported": told})
        run.say(f"done: {run.rows} rows of {len(todo)} days" if todo else "nothing is new")


def report(
    run: PipelineRun, versions: dict[str, int], changed: list[str], reported: dict[str, dict[str, int]]
) -> dict[str, dict[str, int]]:
    """Put days into the reports that have them not yet, or as they were before."""
    from disqued.pipeline.jobs.slo import days_to_do
    from disqued.pipeline.tables import SLO

    if run.reports is None or run.place.reports is None:
        return {path: {day: known[day] for day in known if day not in changed} for path, known in reported.items()}
    # A file that was taken away since has none of them.
    known = {} if run.reports.is_empty("slo") else reported.get(run.place.reports, {})
    days = sorted({*changed, *days_to_do(versions, known)})
    rows = run.tables.read(SLO)
    told = [row.asDict() for row in rows.where(rows.date.isin(days)).collect()]
    run.reports.put_slo(told)
    run.say(f"{len(told)} rows of {len(days)} days are in {run.place.reports}")
    return {**reported, run.place.reports: versions}
