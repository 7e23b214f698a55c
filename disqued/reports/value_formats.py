"""How values of reports are written for people: numbers, spans of microseconds, shares, moments."""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

NONE: Final = "\u2013"  #: where nothing is known
#: General categories that are shown as escapes: control, format (direction marks), surrogates, private, separators.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_MS: Final = 1_000
_S: Final = 1_000_000
_UNITS: Final = ((86_400 * _S, "d"), (3_600 * _S, "h"), (60 * _S, "min"))
#: Between lines of a grid of spans, from a second on.
SPAN_STEPS: Final[Sequence[float]] = tuple(
    number * unit
    for unit, numbers in (
        (_S, (1, 2, 5, 10, 15, 30)), (60 * _S, (1, 2, 5, 10, 15, 30)), (3_600 * _S, (1, 2, 3, 6, 12)),
        (86_400 * _S, (1, 2, 5, 10, 30, 90)),
    )
    for number in numbers
)  # fmt: skip


def count(number: float | None) -> str:
    """A whole number with thin spaces between thousands; a dash where it is not known."""
    return NONE if number is None else f"{round(number):,}".replace(",", "\u202f")


def short(number: float) -> str:
    """A number in a few letters: ``850``, ``12 k``, ``1.5 M``."""
    amount, unit = float(number), ""
    for unit in ("", "k", "M", "G", "T"):
        if abs(amount) < 1_000 or (not unit and abs(amount) < 10_000):
            break
        amount /= 1_000
    return f"{amount:.3g}{unit and ' '}{unit}" if abs(amount) < 1_000 else f"{amount:.0f}{unit and ' '}{unit}"


def span(us: float | None) -> str:
    """A span of microseconds: ``850 µs``, ``1.5 ms``, ``2.35 s``, ``4 min 10 s``, ``2 d 3 h``."""
    if us is None:
        return NONE
    whole = max(0, round(us))
    if whole < _MS:
        return f"{whole} µs" if whole else "0"
    if whole < 60 * _S:
        amount, unit = (whole / _MS, "ms") if whole < _S else (whole / _S, "s")
        return f"{amount:.3g} {unit}" if amount < 999.5 else f"{amount:.0f} {unit}"
    smaller = (*((size, unit) for size, unit in _UNITS), (_S, "s"))
    for (size, unit), (size_below, below) in pairwise(smaller):
        if whole >= size:
            rest = whole % size // size_below
            return f"{whole // size} {unit}{f' {rest} {below}' if rest else ''}"
    raise AssertionError("a span of a minute has a unit")


def share(part: float | None) -> str:
    """A share as a percentage: ``0 %``, ``0.03 %``, ``12 %``."""
    if part is None:
        return NONE
    percent = part * 100
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.2g} %"


def moment(text: str | None) -> str:
    """A moment of a table as it is read: ``2026-11-22 10:00:00``; a dash where there is none."""
    return NONE if not text else text.replace("T", " ").removesuffix("Z")


def moment_us(unix_us: int | None) -> str:
    """A moment in unix microseconds: ``2026-11-22 10:00:00.123``; a dash where there is none."""
    if unix_us is None:
        return NONE
    try:
        return datetime.fromtimestamp(unix_us / _S, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (OverflowError, ValueError, OSError):
        return "beyond the calendar"


def unix_s(text: str) -> int | None:
    """A moment or a day of a table in unix seconds; None for a text that is neither."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp())


def text(value: str | None, limit: int = 200) -> str:
    """A text in which everything can be seen; a long one is cut, which an ellipsis tells."""
    if value is None:
        return NONE
    seen = "".join(map(visible, value[:limit]))
    return f"{seen}…" if len(value) > limit else seen or "(empty)"


def visible(character: str) -> str:
    """A character as it can be seen.

    Control characters and marks that turn the direction of text would let a name pass for another.
    """
    return escaped(character) if unicodedata.category(character) in _HIDDEN else character


def escaped(character: str) -> str:
    """The escape that stands for a character."""
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


#: How a template calls them.
FILTERS: Final[Mapping[str, Callable[..., str]]] = {
    "count": count, "us": span, "share": share, "when": moment, "when_us": moment_us, "seen": text,
}  # fmt: skip
