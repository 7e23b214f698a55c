"""The head of an HTTP/1.1 request, read strictly by RFC 9112 and RFC 9110.

    GET /api/info HTTP/1.1      --read-->  Head(method, target, version, fields, framing)
    Host: localhost                             |
                                           or Problem: 400, 413, 415, 417, 501, 505, with what is allowed

Proxies and servers that read the same bytes differently can be made to disagree about where a request ends (request
smuggling).  So everything that RFC 9112 lets a server repair is refused here: folded lines, spaces before a colon,
lines that end with LF alone, two framings of one body, repeated lengths.  Sizes are bytes.
"""

import re
from collections.abc import Sequence
from typing import Final

import attrs

from disqued.web.http.problems import Problem

LENGTH_DIGITS: Final = 18  #: of a Content-Length; more are too large for any limit

_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
#: A request target: visible ASCII; a fragment is never sent.
_TARGET: Final = re.compile(rb"[!\"$-~]+")
_PERCENT: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
#: A request target that names its host (RFC 9112, 3.2.2).
ABSOLUTE: Final = re.compile(rb"https?://(?P<host>[^/?#]*)(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_VERSION: Final = re.compile(rb"HTTP/[0-9]\.[0-9]")
_VALUE: Final = re.compile(rb"[\t -~\x80-\xff]*")
_BLANKS: Final = b" \t"
#: Headers whose repetition programs read differently: the first, the last or a list of both.
_SINGLE: Final = frozenset({
    b"authorization", b"content-length", b"content-type", b"cookie", b"expect", b"host", b"origin", b"sec-fetch-mode",
    b"sec-fetch-site", b"transfer-encoding",
})  # fmt: skip


@attrs.frozen
class RequestHead:
    """What stands before the body."""

    method: bytes
    target: bytes
    version: bytes  #: HTTP/1.1 or HTTP/1.0
    fields: list[tuple[bytes, bytes]]  #: names as they were sent, and values without blanks around them
    length: int | None  #: of the body; None = it comes in chunks
    closes: bool  #: the client wants no further answer on this connection


def read(lines: Sequence[bytes]) -> RequestHead:
    """Read the request line and the header lines, without their CR LF.  Raises Problem."""
    method, target, version = read_request_line(lines[0])
    fields = [read_field(line) for line in lines[1:]]
    found: dict[bytes, bytes] = {}
    for name, value in fields:
        lower = name.lower()
        if lower in _SINGLE and lower in found:
            raise _bad(f"{lower.decode()} is given twice; once is allowed")
        found[lower] = found[lower] + b"," + value if lower in found else value
    if b"host" not in found and version == b"HTTP/1.1":
        raise _bad("there is no Host header; it has to name the host that is asked")
    _check_encoding(found)
    _check_expect(found, version)
    return RequestHead(method, target, version, fields, _length(found, version),
                       version == b"HTTP/1.0" or b"close" in _list(found.get(b"connection", b"")))  # fmt: skip


def _bad(detail: str) -> Problem:
    return Problem(400, f"this is no request of HTTP/1.1: {detail}")


def shown(word: bytes) -> str:
    """Return a word of a request for an error text."""
    return repr(word[:60].decode("latin-1")) + ("..." if len(word) > 60 else "")


def check_line(line: bytes) -> None:
    """Refuse a line that ends with LF alone, or holds CR, LF or NUL.  Raises Problem 400."""
    if not line.endswith(b"\r"):
        raise _bad("a line ends with LF alone; CR LF is allowed")
    if b"\r" in line[:-1] or b"\0" in line:
        raise _bad("a line holds CR or NUL")


def read_request_line(line: bytes) -> tuple[bytes, bytes, bytes]:
    """Read method, target and version.  Raises Problem."""
    words = line.split(b" ")
    if len(words) != 3:
        raise _bad(f"{shown(line)}: method, target and version are needed, with one space between them")
    method, target, version = words
    if not _TOKEN.fullmatch(method):
        raise _bad(f"{shown(method)} is no method")
    if not _VERSION.fullmatch(version):
        raise _bad(f"{shown(version)} is no version; HTTP/1.1 is allowed")
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise Problem(505, f"{version.decode()} is not spoken here; allowed are HTTP/1.1 and HTTP/1.0")
    if method != method.upper():
        raise Problem(501, f"{shown(method)} is no method that is known here; methods are written in capitals")
    _check_target(method, target)
    return method, target, version


def _check_target(method: bytes, target: bytes) -> None:
    """Check the form of a target: a path, a URL with its host, or * with OPTIONS."""
    is_form = target.startswith(b"/") or ABSOLUTE.fullmatch(target) or (method, target) == (b"OPTIONS", b"*")
    if not is_form:
        raise _bad(f"{shown(target)} is no target; allowed are paths, which begin with /, and http:// URLs")
    if not _TARGET.fullmatch(target) or _PERCENT.search(target):
        raise _bad(f"{shown(target)} is no target; bytes other than visible ASCII have to be quoted as %XX")


def read_field(line: bytes) -> tuple[bytes, bytes]:
    """Return the name and the value of a header line."""
    if line[:1] in (b" ", b"\t"):
        raise _bad("a header goes on in a second line; each has to stand in one")
    name, colon, value = line.partition(b":")
    if not colon:
        raise _bad(f"{shown(line)} is no header: it has no colon")
    if not _TOKEN.fullmatch(name):
        raise _bad(f"{shown(name)} is no name of a header; no space may stand before the colon")
    value = value.strip(_BLANKS)
    if not _VALUE.fullmatch(value):
        raise _bad(f"the header {shown(name)} holds control characters")
    return name, value


def _list(value: bytes) -> list[bytes]:
    """Return the elements of a list, in lower case."""
    return [element.strip(_BLANKS).lower() for element in value.split(b",") if element.strip(_BLANKS)]


def _length(found: dict[bytes, bytes], version: bytes) -> int | None:
    """Return how long the body is: 0 without one, None where it comes in chunks."""
    coding, length = found.get(b"transfer-encoding"), found.get(b"content-length")
    if coding is None:
        return 0 if length is None else _content_length(length)
    if length is not None:
        raise _bad("Content-Length and Transfer-Encoding are both given; one is allowed")
    if version == b"HTTP/1.0":
        raise _bad("HTTP/1.0 has no Transfer-Encoding; Content-Length is allowed")
    codings = _list(coding)
    if codings.count(b"chunked") != 1 or codings[-1] != b"chunked":
        raise _bad(f"Transfer-Encoding is {shown(coding)}; chunked is allowed")
    if len(codings) > 1:
        raise Problem(501, f"Transfer-Encoding is {shown(coding)}; chunked alone is known here")
    return None


def _content_length(value: bytes) -> int:
    if not value.isdigit():
        raise _bad(f"Content-Length is {shown(value)}; one whole number is allowed")
    digits = value.lstrip(b"0") or b"0"
    if len(digits) > LENGTH_DIGITS:
        raise Problem(413, f"Content-Length has {len(digits)} digits; no body of that length is allowed")
    return int(digits)


def _check_expect(found: dict[bytes, bytes], version: bytes) -> None:
    value = found.get(b"expect", b"100-continue")
    if value.lower() != b"100-continue" and version != b"HTTP/1.0":
        raise Problem(417, f"Expect is {shown(value)}; 100-continue is allowed")


def _check_encoding(found: dict[bytes, bytes]) -> None:
    """Refuse a body that is compressed."""
    value = found.get(b"content-encoding", b"")
    if any(coding != b"identity" for coding in _list(value)):
        raise Problem(
            415, f"Content-Encoding is {shown(value)}; send the body as it is", headers={"Accept-Encoding": "identity"}
        )
