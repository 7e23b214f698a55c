r"""Words of a line as redis-cli splits them, and bytes as it quotes them.

    ADDJOB q "two words\x00\n" 0        escapes are within double quotes: \n \r \t \b \a \" \\ \xHH
    ADDJOB q 'as it is, but \' for it' 0

A closing quote ends the word.  Source: the behaviour of Redis's inline protocol.
"""

import re
from typing import Final

from disqued.wire.requests import unescaped

_ENDS: Final = b" \t\n\r\0"  #: of a word
#: A part of a line.  No byte can match in two ways.
_PIECE: Final = re.compile(
    rb"""
      (?P<blanks> [ \t\n\v\f\r\0]++ )
    | (?P<plain>  [^ \t\n\r\0"']++ )
    | "(?P<double> (?: [^"\\] | \\. )*+ )"
    | '(?P<single> (?: [^'\\] | \\'? )*+ )'
    """,
    re.VERBOSE | re.DOTALL,
)
_QUOTED: Final = {
    **{code: b"\\x%02x" % code for code in (*range(32), *range(127, 256))},
    ord("\n"): b"\\n", ord("\r"): b"\\r", ord("\t"): b"\\t", ord("\b"): b"\\b", ord("\a"): b"\\a",
    ord('"'): b'\\"', ord("\\"): b"\\\\",
}  # fmt: skip
_PLAIN: Final = re.compile(rb"[ !#-\[\]-~]*")


class BadLine(Exception):
    """Quotes that are not closed, or followed by something else than a space."""


def split(line: bytes) -> list[bytes]:
    """Split a line into words.  Raises BadLine."""
    words: list[bytes] = []
    at, is_inside = 0, False
    while at < len(line):
        match = _PIECE.match(line, at)
        if match is None:
            raise BadLine(f"a {chr(line[at])} is not closed")
        at, kind = match.end(), match.lastgroup
        if kind == "blanks":
            is_inside = False
            continue
        piece: bytes = match[kind or 0]
        if kind != "plain":
            if line[at : at + 1].strip(_ENDS):
                raise BadLine(f"behind a closing {chr(line[at - 1])} a space is needed")
            piece = unescaped(piece) if kind == "double" else piece.replace(b"\\'", b"'")
        if is_inside:
            words[-1] += piece
        else:
            words.append(piece)
        is_inside = True
    return words


def quoted(data: bytes) -> bytes:
    """Write bytes so that `split` reads them as they are."""
    if not _PLAIN.fullmatch(data):
        data = b"".join(_QUOTED.get(code) or bytes((code,)) for code in data)
    return b'"%b"' % data
