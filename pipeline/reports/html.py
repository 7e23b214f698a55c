"""A page of HTML that stands alone, drawn from reports.sqlite: to be sent, printed, or kept.

    page(path, now)  ->  text: style and charts are within it, and it asks for nothing from anywhere

It shows what the page of a daemon shows (`disqued.reports.blocks`), of all queues by hour and by day, and then of each
of the busiest queues.  Spark is not needed for it.
"""

import shlex
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

import attrs
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

import disqued
from disqued.reports import blocks
from disqued.reports.blocks import Block, Blocks, ReportQuery, all_blocks, command_line, is_over
from disqued.reports.layout import moment
from disqued.reports.reading import ReportReader, ask
from disqued.reports.value_formats import FILTERS

PATIENCE_S: Final = 60.0  #: for the whole page
QUEUES_DRAWN: Final = 10


@attrs.frozen
class QueueCharts:
    """What is drawn of one queue."""

    queue: str
    flow: Block
    latencies: Block


def page(path: Path, now: float, *, grain: str = "day", queues: int = QUEUES_DRAWN) -> str:
    """Draw the page; `queues` of them have charts of their own, by `grain`.  `now` is in unix seconds.

    Raises disqued.reports.reading.NoReports.
    """

    def read(reader: ReportReader) -> tuple[Blocks, Blocks, list[QueueCharts]]:
        hours, days = (all_blocks(reader, ReportQuery(grain=each)) for each in ("hour", "day"))
        main = hours if grain == "hour" else days
        return hours, days, [_charts(reader, row.queue, main) for row in main.queues.rows[:queues]]

    hours, days, drawn = ask(path, read, PATIENCE_S)
    main = hours if grain == "hour" else days
    return _environment().get_template("report.html").render(
        overviews=[each for each in (hours, days) if each.flow.plots], blocks=main, drawn=drawn,
        link=_links([each.queue for each in drawn]), command=lambda name: command_line(name, shlex.quote(str(path))),
        is_over=is_over, path=path.name, made_at=moment(now), version=disqued.__version__,
        style=(files("disqued.reports") / "static" / "reports.css").read_text("utf-8"))  # fmt: skip


def _charts(reader: ReportReader, queue: str, main: Blocks) -> QueueCharts:
    view = ReportQuery(queue, main.view.grain)
    return QueueCharts(queue, blocks.flow(reader, view, main.since), blocks.latencies(reader, view, main.since))


def _links(queues: Sequence[str]) -> Callable[[str], str]:
    """Where a queue stands on the page; nowhere, if it is not drawn."""
    places = {queue: f"#queue-{number}" for number, queue in enumerate(queues, 1)}
    return lambda queue: places.get(queue, "")


@cache
def _environment() -> Environment:
    made = Environment(
        loader=ChoiceLoader([PackageLoader("disqued.pipeline.reports"), PackageLoader("disqued.reports")]),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True)  # fmt: skip
    made.filters.update(FILTERS)
    return made
