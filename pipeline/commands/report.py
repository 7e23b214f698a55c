"""`disqued-spark report`: a page of HTML that stands alone."""

import sys
import time
from pathlib import Path

import click

from disqued.pipeline.errors import Misused


@click.command(
    epilog="Reads the file of the reports; writes one file of HTML. Spark is not started, and no Java needed."
)
@click.option("--reports", required=True, envvar="DISQUED_REPORTS", metavar="FILE", type=click.Path(path_type=Path),
              help="SQLite file that the other verbs have filled.")  # fmt: skip
@click.option("--output", "-o", required=True, metavar="FILE", type=click.Path(path_type=Path, allow_dash=True),
              help="File of HTML to write; - for standard output.")  # fmt: skip
@click.option("--grain", type=click.Choice(["hour", "day"]), default="day", show_default=True,
              help="What charts of single queues are drawn by: hours of a week, or days of three months.")  # fmt: skip
@click.option("--queues", type=click.IntRange(0, 25), default=10, show_default=True, metavar="COUNT",
              help="How many queues, the busiest first, have charts of their own.")  # fmt: skip
def command(reports: Path, output: Path, grain: str, queues: int) -> None:
    """Draw what the reports hold as one file of HTML.

    It shows what the page of a daemon shows: jobs and latencies over time, targets, audits, findings and runs.  The
    file needs nothing beside it and no script, so it can be mailed, printed, or kept with the papers of a release:

    \b
        disqued-spark report --reports /srv/reports.sqlite --output report.html
    """
    from disqued.pipeline.reports.html import page
    from disqued.reports.reading import NoReports

    try:
        text = page(reports, time.time(), grain=grain, queues=queues)
    except NoReports as error:
        raise Misused(str(error)) from None
    if str(output) == "-":
        sys.stdout.write(text)
        return
    try:
        _write(output, text)
    except OSError as error:
        raise Misused(f"{output}: {error.strerror or error}; --output names a file that can be written") from None
    sys.stderr.write(f"report: {output} is written, {len(text) / 1_024:.0f} KiB\n")


def _write(output: Path, text: str) -> None:
    """Write the file: all of it is there at once, or what was there before stays."""
    aside = output.with_name(f"{output.name}.new")
    aside.write_text(text, encoding="utf-8")
    aside.replace(output)
