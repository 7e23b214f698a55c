"""Tables of jobs and fields; what is in them is data, and no style."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from disqued.tools.console_text import WIDE
from disqued.wire.texts import shown

COUNT_MAX: Final = 2_000  #: jobs that one call shows
GAP: Final = 2  #: blanks between columns
LAST_ROOM: Final = 20  #: characters that the last column has at least, where it breaks within itself


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: a line for the titles, and one for each row; what is no printable character is escaped.

    Only the last column breaks within itself, where there is room for that; else the terminal breaks the lines.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    texts = [[shown(cell) for cell in row] for row in rows]
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    fixed = 0
    for number, title in enumerate(titles):
        is_last = number == len(titles) - 1
        drawn.add_column(title, overflow="fold", no_wrap=not is_last)
        if not is_last:
            fixed += GAP + max(cell_len(cell) for cell in (title, *(row[number] for row in texts)))
    for row in texts:
        drawn.add_row(*map(Text, row))
    plain = Console()
    has_room = plain.is_terminal and plain.width >= fixed + LAST_ROOM
    (plain if has_room else Console(width=max(WIDE, fixed + LAST_ROOM))).print(drawn)


def moment(seconds: float) -> str:
    """Write a moment: 2026-11-22 10:15:02 UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def data_text(data: bytes) -> str:
    """Decode what clients have named or said; bytes that are no UTF-8 are escaped."""
    return data.decode("utf-8", "backslashreplace")
