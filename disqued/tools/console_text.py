"""What people read: bytes, counts and spans in a few characters, and tables.

A table that does not go to a terminal is as wide as it has to be: programs cut lines themselves.  A terminal that is
narrow breaks its lines, which is better than figures that are cut.
"""

from typing import TYPE_CHECKING, Final

from disqued.wire.texts import shown

if TYPE_CHECKING:
    from rich.console import Console

_UNITS: Final = ("B", "K", "M", "G", "T")
_COUNTS: Final = ("", "k", "M", "G")
WIDE: Final = 400  #: characters
NAME_SHOWN: Final = 64  #: characters of a name
TAIL_SHOWN: Final = 15  #: of them from its end, where it is cut
NARROW: Final = 100  #: a table is given so many, where it needs them
NARROWEST: Final = 80  #: and one that leaves out columns so many


def console() -> "Console":
    """Make the console of standard output."""
    from rich.console import Console

    plain = Console()
    if not plain.is_terminal:
        return Console(width=WIDE)
    return plain if plain.width >= NARROW else Console(width=NARROW)


def fitting_width() -> int:
    """Return how wide a table may be that leaves out columns where there is no room."""
    from rich.console import Console

    plain = Console()
    return max(NARROWEST, plain.width) if plain.is_terminal else WIDE


def short(name: str) -> str:
    """Write a name in one line of at most `NAME_SHOWN` characters: escaped, and cut in its middle."""
    head, tail = shown(name[:NAME_SHOWN]), shown(name[-TAIL_SHOWN:])
    if len(name) <= NAME_SHOWN and len(head) <= NAME_SHOWN:
        return head or '""'
    return f"{head[: NAME_SHOWN - TAIL_SHOWN - 1]}…{tail[-TAIL_SHOWN:]}"


def size(number: float) -> str:
    """Write bytes: 512B, 1.5K, 20M; a K is 1024."""
    return _scaled(number, 1024, _UNITS)


def count(number: float) -> str:
    """Write a number: 999, 1.2k, 35M."""
    return _scaled(number, 1000, _COUNTS)


def _scaled(number: float, step: int, units: tuple[str, ...]) -> str:
    for unit in units:
        if round(number) < step or unit == units[-1]:
            break
        number /= step
    figure = f"{number:.1f}" if number < 10 and unit != units[0] else f"{number:.0f}"
    return figure.removesuffix(".0") + unit


def span(seconds: float) -> str:
    """Write a span: 0.3s, 42s, 5m, 3h, 2d."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    for limit, unit, length in ((120, "s", 1), (7_200, "m", 60), (172_800, "h", 3_600)):
        if seconds < limit:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds / 86_400:.0f}d"
