"""The figures of a load: a table for people, JSON and CSV for programs.

A row for each command, and one for all of them, called `all`.  Times are milliseconds; errors are not among those
that were timed.
"""

import csv
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs

from disqued.tools.bench.crew import PERCENTILES, LoadResult
from disqued.tools.console_text import short

if TYPE_CHECKING:
    from rich.table import Table

ALL = "all"


@attrs.frozen
class ReportRow:
    """What came of a command; times are milliseconds."""

    command: str
    requests: int
    errors: int
    empty: int  #: GETJOBs that found no job
    passed_over: int  #: turns that another command had, as no job was known
    per_second: float
    mean_ms: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


def rows(figures: LoadResult) -> Iterator[ReportRow]:
    """A row for each command, and one for all when they are several."""
    for number, name in enumerate(figures.names):
        yield _row(name, figures, number)
    if len(figures.names) > 1:
        yield _row(ALL, figures, None)


def _row(name: str, figures: LoadResult, number: int | None) -> ReportRow:
    tallies = figures.tallies if number is None else [figures.tallies[number]]
    latencies = figures.latencies(number)
    errors = sum(tally.errors.total() for tally in tallies)
    requests = len(latencies) + errors
    per_second = requests / figures.seconds if figures.seconds > 0 else 0.0
    p50, p99, p999, most = latencies.percentiles(*PERCENTILES)
    return ReportRow(name, requests, errors, sum(tally.empty for tally in tallies),
                     sum(tally.passed_over for tally in tallies), round(per_second, 1), round(latencies.mean_ms, 3),
                     p50, p99, p999, most)  # fmt: skip


def as_object(figures: LoadResult, more: dict[str, Any]) -> dict[str, Any]:
    """The figures as one object; `more` is what the load was."""
    return {
        **more,
        "seconds": round(figures.seconds, 3),
        "interrupted": figures.was_interrupted,
        "commands": [attrs.asdict(row) for row in rows(figures)],
        "error_texts": {
            name: dict(tally.errors) for name, tally in zip(figures.names, figures.tallies, strict=True) if tally.errors
        },
    }


def as_csv(figures: LoadResult) -> str:
    """The rows as CSV, with a line of names."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow([field.name for field in attrs.fields(ReportRow)])
    writer.writerows(attrs.astuple(row) for row in rows(figures))
    return written.getvalue()


def as_table(figures: LoadResult) -> "Table":
    """The rows as a table."""
    from rich.table import Table

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    drawn.add_column("command", no_wrap=True)
    for name in ("requests", "errors", "requests/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms"):
        drawn.add_column(name, justify="right", no_wrap=True)
    for row in rows(figures):
        times = (row.p50_ms, row.p99_ms, row.p999_ms, row.max_ms)
        drawn.add_row(short(row.command), f"{row.requests:,}", f"{row.errors:,}", f"{row.per_second:,.0f}",
                      *(f"{each:,.3f}" for each in times))  # fmt: skip
    return drawn


def remarks(figures: LoadResult) -> Iterator[str]:
    """What else there is to be said of a load, a line each."""
    for row, tally in zip(rows(figures), figures.tallies, strict=False):
        name = short(row.command)
        if row.empty:
            yield f"{name}: {row.empty:,} of {row.requests:,} found no job"
        if row.passed_over:
            yield f"{name}: {row.passed_over:,} times no job was known yet, and another command had its turn"
        for text, count in tally.errors.most_common():
            yield f"{name}: {count:,} times {text}"
    if figures.was_interrupted:
        yield "interrupted: these are the requests until then"
