"""How an answer is written: its headers, and the beginning of one that streams.

reply(request, Reply(...))                        all at once
begin(request, "text/event-stream"), request.write(...), ...   in parts; the coroutine of the route ends when it ends
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from disqued.web.routes import Reply

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
    begin(request, answer.media, status=answer.status, headers=answer.headers)
    if answer.status == 204:
        request.responseHeaders.removeHeader(b"Content-Type")
    else:
        request.setHeader("Content-Length", str(len(answer.body)))
    return b"" if request.method == b"HEAD" else answer.body
