"""How far long work has come: a bar on standard error, when that is a terminal, and nothing anywhere else.

    with meter("reading", total=size, unit="B") as advance:
        for chunk in chunks: advance(len(chunk))

The bar is rich's.  Without rich, which a plain installation need not have, the work goes on without one.  What is told
on standard error meanwhile stands above the bar; standard output waits until it is gone, or goes elsewhere.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Final, Literal, TypeAlias

#: Takes how much more is done, in the unit of its meter.
Advance: TypeAlias = Callable[[int], object]

#: A bar is told so often at most: what is counted may be many millions of records.
STEPS: Final = 500
UNTOLD: Final = 1 << 12  #: of what has no total


def ignore(amount: int) -> None:
    """Count nothing."""


@contextlib.contextmanager
def meter(what: str, total: int | None, unit: Literal["bytes", "records", "jobs", "files"]) -> Iterator[Advance]:
    """Show how far the work within is; `total` is None when nobody knows."""
    if not sys.stderr.isatty():
        yield ignore
        return
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            ProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
    except ImportError:
        yield ignore
        return
    amount: ProgressColumn
    if unit == "bytes":
        amount = DownloadColumn(binary_units=True)
    elif total is None:
        amount = TextColumn("{task.completed:,.0f}")
    else:
        amount = MofNCompleteColumn()
    columns = [TextColumn(what), BarColumn(), amount]
    if unit != "bytes":
        columns.append(TextColumn(unit))
    columns.append(TimeElapsedColumn() if total is None else TimeRemainingColumn())
    # Results are for whoever reads standard output, and never for the terminal of the bar.
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(what, total=total)
        every = UNTOLD if total is None else max(1, total // STEPS)
        waiting = 0

        def advance(amount: int) -> None:
            nonlocal waiting
            waiting += amount
            if waiting >= every:
                bar.advance(task, waiting)
                waiting = 0

        yield advance
        bar.advance(task, waiting)
