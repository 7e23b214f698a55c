"""Tables of jobs and fields; what is in them is data, and no style."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from disqued.tools.console_text import console
from disqued.wire.texts import shown

COUNT_MAX: Final = 2_000  #: jobs that one call shows


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: a line for the titles, and one for each row; what is no printable character is escaped."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        drawn.add_column(title, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(shown(cell)) for cell in row))
    console().print(drawn)


def moment(seconds: float) -> str:
    """Write a moment: 2026-11-22 10:15:02 UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
