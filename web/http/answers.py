"""How an answer is written: its headers, and the beginning of one that streams.

reply(request, Reply(...))                        all at once, where it is known to be short
await send(store, request, Reply(...))            the same, or in pieces, as the client reads them; in gzip, or not at
                                                  all where the client has it already (If-None-Match)
begin(request, "text/event-stream"), request.write(...), ...   in parts; the coroutine of the route ends when it ends
"""

import hashlib
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import attrs

from disqued.web.http.bodies import LONG, Body, LongValues
from disqued.web.http.compression import LEAST, packed, takes_gzip
from disqued.web.http.exchange import STREAM, Reply

#: On every answer: nothing of it is kept, framed, or taken for something else.
HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # not no-referrer: with that a browser sends "Origin: null" with our own forms
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
TAGGED_MAX: Final = 1 << 20  #: bytes of an answer that has an ETag: a millisecond's work
_TAG: Final = re.compile(rb'"([!#-~\x80-\xff]*)"')
_TEXTS: Final = frozenset(
    {"application/json", "application/problem+json", "application/openmetrics-text", "image/svg+xml"}
)


def begin(request: Any, media: str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
    """Set status and headers of an answer; what is written to the request from now on is its body."""
    request.setResponseCode(status, HTTPStatus(status).phrase.encode("ascii"))
    for name, value in {**HEADERS, **(headers or {}), "Content-Type": media}.items():
        request.setHeader(name, value)


def reply(request: Any, answer: Reply) -> bytes:
    """Set status and headers; returns the body, which is still to be written."""
    assert isinstance(answer.body, bytes)
    _begin_with(request, answer, len(answer.body))
    return b"" if request.method == b"HEAD" else answer.body


def _begin_with(request: Any, answer: Reply, length: int | None) -> None:
    begin(request, answer.media, status=answer.status, headers=answer.headers)
    if answer.status in (204, 304):
        request.responseHeaders.removeHeader(b"Content-Type")
    elif length is not None:
        request.setHeader("Content-Length", str(length))


async def send(store: LongValues, request: Any, answer: Reply) -> bytes:
    """Write status, headers and body, a piece whenever the client has read the one before.

    Returns what is left to be written: the body, where it is short.  When it is cancelled, or when a piece cannot be
    made, nothing of the body is kept.
    """
    answer = _encoded(store, request, _checked(request, answer))
    if isinstance(answer.body, bytes) and len(answer.body) <= LONG:
        return reply(request, answer)
    body = Body(store, answer.body) if isinstance(answer.body, bytes) else answer.body
    try:
        _begin_with(request, answer, body.length)
        if request.method != b"HEAD":
            await request.channel.send(request, body)
    finally:
        body.close()
    return b""


def _checked(request: Any, answer: Reply) -> Reply:
    """Give an answer its ETag, or return 304 where the client has it already.

    The ETag is a weak one: it is the same in gzip and without.
    """
    body = answer.body
    is_read = answer.status == 200 and request.method in (b"GET", b"HEAD")
    if not is_read or not isinstance(body, bytes) or not 0 < len(body) <= TAGGED_MAX:
        return answer
    tag = hashlib.blake2b(body, digest_size=16).hexdigest()
    headers = {**answer.headers, "ETag": f'W/"{tag}"'}
    for field in request.requestHeaders.getRawHeaders(b"if-none-match", []):
        if field.strip() == b"*" or tag.encode() in _TAG.findall(field):
            return Reply(b"", answer.media, 304, headers)
    return attrs.evolve(answer, headers=headers)


def _encoded(store: LongValues, request: Any, answer: Reply) -> Reply:
    """Put an answer into gzip, where that is worth it and its client takes it; a long one while it is sent."""
    kind, body = answer.media.partition(";")[0], answer.body
    if kind not in _TEXTS and (not kind.startswith("text/") or kind == STREAM):
        return answer
    headers = {**answer.headers, "Vary": "Accept-Encoding"}
    if (isinstance(body, bytes) and len(body) < LEAST) or not takes_gzip(request):
        return attrs.evolve(answer, headers=headers)
    if answer.packed:
        body = answer.packed
    elif isinstance(body, bytes) and len(body) <= LONG:
        body = packed(body)
    else:
        body = Body(store, body) if isinstance(body, bytes) else body
        body.pack()
    return attrs.evolve(answer, body=body, headers={**headers, "Content-Encoding": "gzip"})
