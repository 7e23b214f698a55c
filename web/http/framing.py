"""Where a request body ends: after so many bytes, or after its last chunk (RFC 9112, 6 and 7.1), read strictly.

    Content-Length: 5              hello                               --> take(b"hello"), end(what came after it)
    Transfer-Encoding: chunked     5 CR LF hello CR LF 0 CR LF CR LF   --> the same

Extensions of chunks and trailers are checked and ignored.  Sizes are bytes.
"""

import re
from collections.abc import Callable
from typing import Final

from disqued.web.http import heads
from disqued.web.http.problems import Problem

SIZE_LINE_MAX: Final = 256  #: of a line with the size of a chunk, its extensions included
TRAILERS_MAX: Final = 8 << 10  #: of all trailers
_SIZE: Final = re.compile(rb"(?P<size>[0-9A-Fa-f]{1,15})(?P<extensions>(?:[ \t]*;[\t -~\x80-\xff]*)?)")
_NOT_ALLOWED: Final = frozenset({b"content-length", b"host", b"transfer-encoding"})


class SizedBody:
    """Reads a body of a known length."""

    def __init__(self, length: int, take: Callable[[bytes], None], end: Callable[[bytes], None]) -> None:
        """`take` gets the parts of the body, and `end` what was sent after it."""
        self._left = length
        self._take = take
        self._end = end

    def dataReceived(self, data: bytes) -> None:
        part = data[: self._left]
        self._left -= len(part)
        self._take(part)
        if not self._left:
            self._end(data[len(part) :])


class ChunkedBody:
    """Reads a body that comes in chunks."""

    def __init__(self, take: Callable[[bytes], None], end: Callable[[bytes], None]) -> None:
        """`take` gets the parts of the body, and `end` what was sent after it."""
        self._take = take
        self._end = end
        self._line = b""  #: what has come of a line
        self._left = 0  #: of the chunk that is coming, and of its CR LF
        self._trailers: int | None = None  #: bytes of them so far; None = they have not begun

    def dataReceived(self, data: bytes) -> None:
        """Read what has come.  Raises Problem 400, after which nothing more may come."""
        at, size = 0, len(data)
        while at < size:
            if self._left > 2:
                stop = min(size, at + self._left - 2)
                self._left -= stop - at
                self._take(data[at:stop])
                at = stop
                continue
            stop = data.find(b"\n", at)
            most = TRAILERS_MAX if self._trailers is not None else SIZE_LINE_MAX
            if len(self._line) + (size if stop < 0 else stop) - at > most:
                raise Problem(400, f"a chunk is announced, or trailers are, with more than {most} bytes")
            if stop < 0:
                self._line += data[at:]
                return
            line, self._line = self._line + data[at : stop + 1], b""
            at = stop + 1
            if self._read_line(line[:-1]):
                self._end(data[at:])
                return

    def _read_line(self, line: bytes) -> bool:
        """Read a line without its LF; return whether it ends the body."""
        heads.check_line(line)
        line = line[:-1]
        if self._trailers is not None:
            return self._read_trailer(line)
        if self._left:
            if line:
                raise Problem(400, "a chunk is longer than was announced")
            self._left = 0
            return False
        match = _SIZE.fullmatch(line)
        if match is None:
            raise Problem(400, f"{heads.shown(line)} is no size of a chunk; 1 to 15 hexadecimal digits are allowed")
        length = int(match["size"], 16)
        self._left = length + 2 if length else 0
        self._trailers = None if length else 0
        return False

    def _read_trailer(self, line: bytes) -> bool:
        assert self._trailers is not None
        if not line:
            return True
        self._trailers += len(line)
        if self._trailers > TRAILERS_MAX:
            raise Problem(400, f"the trailers are longer than {TRAILERS_MAX} bytes")
        name = heads.read_field(line)[0].lower()
        if name in _NOT_ALLOWED:
            raise Problem(400, f"{name.decode()} is no trailer")
        return False
