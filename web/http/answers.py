"""How an answer is written: its headers, and the beginning of one that streams.

reply(request, Reply(...))                        all at once, where it is known to be short
await send(store, request, Reply(...))            the same, or in pieces, as the client reads them
begin(request, "text/event-stream"), request.write(...), ...   in parts; the coroutine of the route ends when it ends
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from disqued.web.http.bodies import LONG, Body, LongValues
from disqued.web.http.exchange import Reply

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
    if answer.status == 204:
        request.responseHeaders.removeHeader(b"Content-Type")
    elif length is not None:
        request.setHeader("Content-Length", str(length))


async def send(store: LongValues, request: Any, answer: Reply) -> bytes:
    """Write status, headers and body, a piece whenever the client has read the one before.

    Returns what is left to be written: the body, where it is short.  When it is cancelled, or when a piece cannot be
    made, nothing of the body is kept.
    """
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
