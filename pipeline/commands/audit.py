"""`disqued-spark audit`: the event logs of all nodes, held against what was promised."""

import time
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from disqued.pipeline.dayoptions import DAY, check_order, of_days
from disqued.pipeline.errors import Misused
from disqued.pipeline.events import NAMED
from disqued.pipeline.run import DONE, FOUND, PipelineRun, need_folder, need_tables, place_of, place_options, running
from disqued.tools.values import Number

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from disqued.pipeline.audited import Audited

SHOWN: Final = 20  #: findings that are printed
REPORTED: Final = 1_000  #: findings that the reports get


@click.command(
    epilog="Reads the table events, or event logs; writes the table audit: docs/reference/tables.md has its columns, "
    "docs/explanation/audit.md says what each kind means."
)
@click.option("--events", metavar="DIR",
              help="Event logs themselves, instead of the table: the folder with date=... in it.")  # fmt: skip
@click.option("--since", type=DAY, metavar="DAY",
              help="The first day (UTC, of the files) that is looked at, as 2026-11-22.")  # fmt: skip
@click.option("--until", type=DAY, metavar="DAY", help="The last day that is looked at.")
@click.option("--clock-skew", type=Number(min=0), default=5.0, show_default=True, metavar="SECONDS",
              help="By which nodes may differ in how old a job is: as long as messages are under way.")  # fmt: skip
@click.option("--patience", type=Number(min=0), default=900.0, show_default=True, metavar="SECONDS",
              help="For which a node may not have heard that a job is done: as long as nodes are apart.")  # fmt: skip
@click.option("--notes", is_flag=True, help="Print notes, too: what is legal, and yet worth a look.")
@place_options
def command(**words: Any) -> None:
    """Hold the event logs of all nodes together: what was lost, done twice, delivered when it was done, left behind.

    It prints a verdict and what it found, the worst first:

    \b
        clean    nothing is against what was promised
        faults   something is: a job that was not handled as it must be, or a log with a gap
        loss     a job is gone whose producer was told that it is there
        nothing  there was nothing to look at: no event of these days is there

    The exit status is 1 for faults and loss, and 2 for nothing, which is kept nowhere but in `runs`.  What logs that
    are not whole leave open is `not_known` and no fault; what is legal where jobs are delivered at least once, such as
    a second delivery by a node that was cut off, is a note.  Clocks of nodes may differ and may be set: nothing
    is ordered by them alone.

    \b
        disqued-spark audit --tables /srv/tables --reports /srv/reports.sqlite
        disqued-spark audit --events /var/lib/disqued/events --since 2026-11-01 --notes
    """
    check_order(words["since"], words["until"])
    place = place_of(words)
    if words["events"] is None:
        need_tables(place, are_there=True)
    else:
        need_folder(words["events"], NAMED, place.conf)
    with running("audit", place) as run, run.tables.alone("audit") if place.tables is not None else nullcontext():
        from disqued.pipeline.audited import CLEAN, NOTHING, audited
        from disqued.pipeline.jobs.verdicts import SECOND_US, AuditTolerance

        limits = AuditTolerance(skew_us=int(words["clock_skew"] * SECOND_US),
                                patience_us=int(words["patience"] * SECOND_US))  # fmt: skip
        result = audited(_events(run, words), limits, run.say)
        if result.verdict == NOTHING:
            click.echo(result.told(SHOWN))
            where = words["events"] or run.place.tables
            raise Misused(
                f"there is nothing to audit: no events in {where}{of_days(words['since'], words['until'])}; "
                "docs/explanation/audit.md says what an event is"
            )
        _keep(run, result)
        click.echo(result.told(SHOWN, notes=words["notes"]))
    raise SystemExit(DONE if result.verdict == CLEAN else FOUND)


def _events(run: PipelineRun, words: dict[str, Any]) -> "DataFrame":
    """The events that are to be looked at.  Raises Misused."""
    from disqued.pipeline.events import read_events
    from disqued.pipeline.tables import EVENTS

    if words["events"] is not None:
        rows = read_events(run.spark, words["events"])
    elif run.tables.has(EVENTS):
        rows = run.tables.read(EVENTS)
    else:
        raise Misused(f"there are no events in {run.place.tables}: the verb ingest takes them in, or name --events DIR")
    if words["since"] is not None:
        rows = rows.where(rows.date >= words["since"])
    if words["until"] is not None:
        rows = rows.where(rows.date <= words["until"])
    return rows


def _keep(run: PipelineRun, result: "Audited") -> None:
    """Write what was found into the table, and the first of it into the reports."""
    from pyspark.sql import functions as f

    from disqued.pipeline.tables import AUDIT

    checked_at = datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if run.place.tables is not None:
        day = checked_at[:10]
        run.tables.replace(AUDIT, result.findings.withColumn("date", f.lit(day)), [(day,)])
    run.count(sum(result.counts.values()))
    run.note = result.verdict
    if run.reports is not None:
        run.reports.put_audit({**result.summary(), "checked_at": checked_at}, result.worst(REPORTED))
