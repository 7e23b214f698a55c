"""How values are shown to people: names that may be any bytes, spans, sizes, moments, rates.

Spans are milliseconds, moments unix milliseconds.  A name that is no UTF-8 is shown with its bytes as ``\\xff``; so are
control characters and marks that turn the direction of text, which would let a name pass for another.
"""

import json
import re
from typing import Any, Final
from urllib.parse import quote_from_bytes

from disqued.core.model.glob import matches
from disqued.core.model.spans import seconds_text
from disqued.reports.value_formats import NONE, count, escaped, moment_us, visible

#: Names that cannot be a segment of a path: browsers take dots for something else, quoted or not.
NO_SEGMENTS: Final = frozenset({b"", b".", b".."})
CHARACTERS_KEPT: Final = 4_096  #: whose looks are remembered
INDENT: Final = 2  #: blanks for each level of JSON
GROWTH_MAX: Final = 8  #: times its length that indented JSON has at most, and this much more
GROWTH_FREE: Final = 1 << 10
_WORDS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
#: What no text has: control characters but line ends and tabs.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def name(raw: bytes, limit: int = 200) -> str:
    """A name as text in which everything can be seen; a long one is cut, which an ellipsis tells."""
    text = raw[: 4 * limit].decode("utf-8", "backslashreplace")
    seen = _with_edges("".join(map(visible, text[:limit])))
    return seen + "…" if len(text) > limit or len(raw) > 4 * limit else seen or "(empty)"


def _with_edges(seen: str) -> str:
    """Blanks before and behind as escapes: nobody would see them."""
    inner = seen.strip()
    if len(inner) == len(seen):
        return seen
    before, _, behind = seen.partition(inner) if inner else (seen, "", "")
    return "".join((*map(escaped, before), inner, *map(escaped, behind)))


class _Seen(dict[int, str]):
    """How each character is shown, found out when it is first met: a table for `str.translate`."""

    def __missing__(self, code: int) -> str:
        if len(self) >= CHARACTERS_KEPT:
            self.clear()
        character = chr(code)
        self[code] = seen = character if character in "\t\n\r" else visible(character)
        return seen


_IN_BODIES: Final = _Seen()


def last_failure(reason: bytes) -> str:
    """The reason of the last failure as a sentence with a blank in front; empty where none was given."""
    return f" The last failure: {name(reason)}." if reason else ""


def is_named(wanted: str, raw: bytes) -> bool:
    """Return whether a name has a text in it, or matches it as a glob where it is one, in any case."""
    if not any(mark in wanted for mark in "*?["):
        return wanted.casefold() in raw.decode("utf-8", "backslashreplace").casefold()
    return matches(wanted.casefold().encode("utf-8", "surrogateescape"), _folded(raw))


def _folded(raw: bytes) -> bytes:
    try:
        return raw.decode("utf-8").casefold().encode()
    except UnicodeDecodeError:
        return raw.lower()


def segment(raw: bytes) -> str:
    """Bytes as one segment of a path."""
    return quote_from_bytes(raw, safe="")


def queue_path(raw: bytes) -> str:
    """Where the page of a queue is."""
    return f"/queue?name={segment(raw)}" if raw in NO_SEGMENTS else f"/queues/{segment(raw)}"


def worker_path(raw: bytes) -> str:
    """Where the page of a worker is."""
    return f"/worker?id={segment(raw)}" if raw in NO_SEGMENTS else f"/workers/{segment(raw)}"


def client_path(node_id: bytes, number: int) -> str:
    """Where the jobs of a client of a node are listed."""
    return f"/client?node={segment(node_id)}&id={number}"


def schedule_path(raw: bytes) -> str:
    """Where the page of a schedule is."""
    return f"/schedule?name={segment(raw)}" if raw in NO_SEGMENTS else f"/schedules/{segment(raw)}"


def qstat_path(raw: bytes) -> str:
    """Where the API tells how a queue is."""
    return f"/api/qstat{'?queue=' if raw in NO_SEGMENTS else '/'}{segment(raw)}"


def history_path(raw: bytes) -> str:
    """Where the history of a queue is."""
    return f"/api/history?queue={segment(raw)}"


def span(ms: int | None) -> str:
    """A span in its two largest units: ``3 min 20 s``; a dash for none."""
    if ms is None:
        return NONE
    if ms < 1_000:
        return f"{max(0, ms)} ms"
    for at, (size, unit) in enumerate(_UNITS):
        if ms >= size:
            rest = ms % size
            if at + 1 < len(_UNITS) and (smaller := rest // _UNITS[at + 1][0]):
                return f"{ms // size} {unit} {smaller} {_UNITS[at + 1][1]}"
            return f"{ms // size} {unit}"
    raise AssertionError("a span of a second has a unit")


def set_span(ms: float) -> str:
    """A span that somebody has set, with its fraction: ``500 ms``, ``1.5 s``, ``3 min 20 s``."""
    whole = round(ms)
    return span(whole) if whole < 1_000 or not whole % 1_000 else f"{seconds_text(whole).decode()} s"


def sentence(text: str) -> str:
    """A text with a full stop at its end."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def size(number: float) -> str:
    """Bytes: ``640 B``, ``1.2 MiB``."""
    amount = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1_024:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1_024
    return f"{amount:.1f} TiB"


def rate(per_second: float | None) -> str:
    """Events a second; a dash where it is not known yet."""
    if per_second is None:
        return NONE
    if per_second and per_second < 10:
        return f"{per_second:.1f}"
    return count(round(per_second))


def moment(unix_ms: int) -> str:
    """A moment in UTC: ``2026-11-21 20:00:00.123``."""
    return moment_us(unix_ms * 1_000)


def input_moment(unix_ms: int) -> str:
    """The same to a second, as browsers write it in a field: ``2026-11-21T20:00`` or ``2026-11-21T20:00:01``."""
    return moment(unix_ms)[:19].removesuffix(":00").replace(" ", "T") if unix_ms else ""


def body(raw: bytes, limit: int, *, indents: bool = False) -> dict[str, Any]:
    """The beginning of a body: {kind: text, json or hex, text, size, cut: there is more}.

    `indents`: JSON that is not cut is shown over several lines.
    """
    head = raw[:limit]
    text = _as_text(head, len(raw) > limit)
    if text is not None:
        lines = indented(text) if indents and len(raw) <= limit else None
        if lines is not None:
            return {"kind": "json", "text": lines.translate(_IN_BODIES), "size": len(raw), "cut": False}
        return {"kind": "text", "text": text.translate(_IN_BODIES), "size": len(raw), "cut": len(raw) > limit}
    head = raw[: limit // 4]
    return {"kind": "hex", "text": _hex(head), "size": len(raw), "cut": len(raw) > len(head)}


def _as_text(head: bytes, cut: bool) -> str | None:
    """UTF-8 without control characters but line ends and tabs; a character cut in two at the end does not count."""
    for drop in range(4 if cut else 1):
        try:
            text = head[: len(head) - drop].decode("utf-8")
        except UnicodeDecodeError:
            continue
        return None if _CONTROL.search(text) else text
    return None


def indented(text: str) -> str | None:
    """An object or a list of JSON over several lines; None for what is none, or grows too much.

    Only blanks between values change: numbers, escapes and names that are there twice stay as they are written.
    """
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        json.loads(text, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return None
    parts: list[str] = []
    line, size, before = "\n", 0, ""
    for word in _WORDS.findall(text):
        part = word
        if word in ("}", "]"):
            line = line[:-INDENT]
            part = word if before in ("{", "[") else line + word
        else:
            if word == ",":
                part = "," + line
            elif word == ":":
                part = ": "
            if before in ("{", "["):
                part = line + part
            if word in ("{", "["):
                line += " " * INDENT
        parts.append(part)
        size += len(part)
        if size > GROWTH_MAX * len(text) + GROWTH_FREE:
            return None
        before = word
    return "".join(parts)


def _no_json(word: str) -> None:
    """Refuse NaN and its like.  Raises ValueError."""
    raise ValueError(word)


def _hex(raw: bytes) -> str:
    """Rows of 16 bytes: offset, hexadecimal, ASCII."""
    rows = []
    for at in range(0, len(raw), 16):
        row = raw[at : at + 16]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{at:08x}  {row.hex(' '):<47}  {letters}")
    return "\n".join(rows)
