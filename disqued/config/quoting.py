"""Words and quotes: how the text of a line becomes values, and values become text.

    port 7711                     two words
    requirepass "a \\"b\\" \\x07"   blanks, quotes and control characters between double quotes
    requirepass 'a "b"'           everything but \\' as it stands

Text holds whatever bytes it was made of: bytes that are not UTF-8 travel as surrogate escapes and come back as they
were.

Source: Disque 1.0-rc1, whose quoting this is.
"""

import re

_DOUBLE_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"(?=\s|\Z)', re.DOTALL)
_SINGLE_QUOTED = re.compile(rb"'((?:[^'\\]|\\'|\\(?!'))*)'(?=\s|\Z)")
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_UNESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}
_ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\a": "\\a"}
_BLANKS = b" \t\n\v\f\r"


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
    source = as_bytes(line)
    words: list[str] = []
    position = 0
    while True:
        while position < len(source) and source[position] in _BLANKS:
            position += 1
        if position == len(source):
            return words
        word, position = _word(source, position)
        words.append(as_text(word))


def _word(source: bytes, start: int) -> tuple[bytes, int]:
    """One word and the position after it; a quote ends the word that it stands in."""
    position = start
    while position < len(source) and source[position] not in _BLANKS:
        if source[position] in b"\"'":
            piece, end = _quoted_piece(source, position)
            return source[start:position] + piece, end
        position += 1
    return source[start:position], position


def _quoted_piece(source: bytes, start: int) -> tuple[bytes, int]:
    double = source[start] == ord('"')
    match = (_DOUBLE_QUOTED if double else _SINGLE_QUOTED).match(source, start)
    if match is None:
        raise ValueError("unbalanced quotes")
    inner = match[1]
    return (_ESCAPE.sub(_unescape, inner) if double else inner.replace(b"\\'", b"'")), match.end()


def _unescape(match: re.Match[bytes]) -> bytes:
    if match[1] is not None:
        return bytes((int(match[1], 16),))
    return _UNESCAPED.get(match[2], match[2])


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
