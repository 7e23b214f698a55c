"""Words and quotes: how the text of a line becomes values, and values become text.

    port 7711                     two words
    requirepass "a \\"b\\" \\x07"   blanks, quotes and control characters between double quotes
    requirepass 'a "b"'           everything but \\' as it stands

Text holds whatever bytes it was made of: bytes that are not UTF-8 travel as surrogate escapes and come back as they
were.

Source: Disque 1.0-rc1, whose quoting this is.
"""

from disqued.wire import requests
from disqued.wire.requests import ProtocolError

_ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\a": "\\a"}


def as_bytes(text: str) -> bytes:
    """The bytes that a text of the configuration was made of."""
    return text.encode("utf-8", "surrogateescape")


def as_text(source: bytes) -> str:
    """Bytes as text of the configuration; `as_bytes` gives them back."""
    return source.decode("utf-8", "surrogateescape")


def split_words(line: str) -> list[str]:
    """Split at blanks, heeding quotes: "..." knows \\n \\r \\t \\b \\a \\\\ \\" \\xHH, '...' knows \\'.

    Raises: ValueError when a quote is not closed, or is followed by something other than a blank.
    """
    try:
        return [as_text(word) for word in requests.split_words(as_bytes(line))]
    except ProtocolError:
        raise ValueError("unbalanced quotes") from None


def quoted(text: str) -> str:
    """Write a text so that `split_words` reads it as one word, on one line, readable in any editor."""
    return '"' + "".join(map(_escape, text)) + '"'


def _escape(character: str) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    if character.isprintable():
        return character
    # A surrogate that stands for no byte is in no file; it comes here only to be shown in an error.
    errors = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", errors))


def shown(value: str) -> str:
    """A value as an error shows it: quoted when it would not be seen whole otherwise, and never long."""
    short = value if len(value) <= 80 else value[:80] + "..."
    plain = short and short.isprintable() and not any(character in " \"'\\" for character in short)
    return short if plain else quoted(short)
