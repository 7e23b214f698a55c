r"""Words of a line as redis-cli splits them, and bytes as it quotes them.

    ADDJOB q "two words\x00\n" 0        escapes are within double quotes: \n \r \t \b \a \" \\ \xHH
    ADDJOB q 'as it is, but \' for it' 0

A closing quote ends the word.  Source: the behaviour of Redis's inline protocol.
"""

import re
from typing import Final

_SPACES: Final = b" \t\n\v\f\r\0"
_ENDS: Final = b" \t\n\r\0"  #: of a word
_ESCAPES: Final = {ord("n"): b"\n", ord("r"): b"\r", ord("t"): b"\t", ord("b"): b"\b", ord("a"): b"\a"}
_QUOTED: Final = {
    **{code: b"\\x%02x" % code for code in (*range(32), *range(127, 256))},
    **{byte[0]: b"\\" + bytes((letter,)) for letter, byte in _ESCAPES.items()},
    ord('"'): b'\\"', ord("\\"): b"\\\\",
}  # fmt: skip
_PLAIN: Final = re.compile(rb"[ !#-\[\]-~]*")


class BadLine(Exception):
    """Quotes that are not closed, or followed by something else than a space."""


def split(line: bytes) -> list[bytes]:
    """Split a line into words.  Raises BadLine."""
    words: list[bytes] = []
    at = 0
    while True:
        while at < len(line) and line[at] in _SPACES:
            at += 1
        if at >= len(line):
            return words
        word, at = _word(line, at)
        words.append(word)


def _word(line: bytes, at: int) -> tuple[bytes, int]:
    """The word that begins at a byte, and where it ends."""
    word = bytearray()
    while at < len(line) and line[at] not in _ENDS:
        sign = line[at : at + 1]
        if sign in (b'"', b"'"):
            part, at = (_double if sign == b'"' else _single)(line, at + 1)
            word += part
            if at < len(line) and line[at] not in _ENDS:
                raise BadLine(f"behind a closing {sign.decode()} a space is needed")
        else:
            word += sign
            at += 1
    return bytes(word), at


def _double(line: bytes, at: int) -> tuple[bytes, int]:
    part = bytearray()
    while at < len(line):
        sign = line[at : at + 1]
        if sign == b'"':
            return bytes(part), at + 1
        if sign == b"\\" and re.match(rb"x[0-9a-fA-F]{2}", line[at + 1 : at + 4]):
            part.append(int(line[at + 2 : at + 4], 16))
            at += 4
        elif sign == b"\\" and at + 1 < len(line):
            part += _ESCAPES.get(line[at + 1], line[at + 1 : at + 2])
            at += 2
        else:
            part += sign
            at += 1
    raise BadLine('a " is not closed')


def _single(line: bytes, at: int) -> tuple[bytes, int]:
    part = bytearray()
    while at < len(line):
        if line[at : at + 2] == b"\\'":
            part += b"'"
            at += 2
        elif line[at : at + 1] == b"'":
            return bytes(part), at + 1
        else:
            part.append(line[at])
            at += 1
    raise BadLine("a ' is not closed")


def quoted(data: bytes) -> bytes:
    """Write bytes so that `split` reads them as they are."""
    if not _PLAIN.fullmatch(data):
        data = b"".join(_QUOTED.get(code) or bytes((code,)) for code in data)
    return b'"%b"' % data
