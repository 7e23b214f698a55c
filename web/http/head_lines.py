"""The lines of a head that is coming, and their limits.  Sizes are bytes."""

from contextlib import suppress
from typing import Final

from twisted.web.http_headers import Headers

from disqued.web.http import heads
from disqued.web.http.problems import Problem

HEADER_BYTES: Final = 16 << 10  #: request line and headers
HEADERS_MAX: Final = 100


def too_long() -> Problem:
    """What is wrong with a head that is over its limit."""
    return Problem(431, f"request line and headers are longer than {HEADER_BYTES} bytes")


class HeadLines:
    """What has come of a head."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._size = 0

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, line: bytes) -> heads.RequestHead | None:
        """Take a line without its LF; the first one may be empty, and the empty one after others ends the head.

        Returns the head that has ended.  Raises Problem.
        """
        self._size += len(line)
        if self._size > HEADER_BYTES:
            raise too_long()
        heads.check_line(line)
        line = line[:-1]
        if line and len(self._lines) > HEADERS_MAX:
            raise Problem(431, f"there are more than {HEADERS_MAX} headers")
        if line:
            if not self._lines:
                # What speaks another protocol may wait for an answer to its first line.
                heads.read_request_line(line)
            self._lines.append(line)
        elif self._lines:
            head = heads.read(self._lines)
            self._lines, self._size = [], 0
            return head
        elif self._size > 1:
            raise Problem(400, "this is no request of HTTP/1.1: there are empty lines before it")
        return None

    def sketch(self, headers: Headers) -> bytes:
        """Add the headers that have come and make sense, and return the target, as far as it has come."""
        for line in self._lines[1:]:
            with suppress(Problem):
                headers.addRawHeader(*heads.read_field(line))
        words = self._lines[0].split(b" ") if self._lines else []
        return words[1] if len(words) > 1 else b""
