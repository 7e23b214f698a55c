"""Whether what the admin side has answered is HTTP, answer by answer, and says nothing that it must not.

bytes --> answer: status line, headers, body --> is it JSON? then it parses, and an error has a word that is known
      --> the next one, until the bytes are over
"""

import io
import json
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import Any, Final, NamedTuple, cast

from disqued.web.http.problems import HTTP_WORD, STATUS, TITLES

WORDS: Final = {*STATUS, HTTP_WORD}
#: What is answered besides problems; 101 and other ways out of HTTP are not among it.
FINE: Final = {200, 201, 202, 204, 206, 303, 304}
#: Media that go on until somebody hangs up.
ENDLESS: Final = ("text/event-stream", "application/x-ndjson")


class Answer(NamedTuple):
    """One answer."""

    status: int
    media: str
    body: bytes


class _Stream(io.BytesIO):
    """What one answer after the other is read from: the reader of one of them closes nothing."""

    def close(self) -> None:
        """Stay open."""


class _Received:
    """Bytes that `HTTPResponse` takes for a socket."""

    def __init__(self, stream: _Stream) -> None:
        self._stream = stream

    def makefile(self, *_: Any) -> _Stream:
        return self._stream


def read_all(received: bytes, methods: list[str]) -> list[Answer]:
    """Take answers apart; `methods` are those of the requests that came whole.  Raises AssertionError."""
    stream, found = _Stream(received), list[Answer]()
    while stream.tell() < len(received):
        method = methods[len(found)] if len(found) < len(methods) else "GET"
        response = HTTPResponse(cast(Any, _Received(stream)), method=method)
        begins = stream.tell()
        try:
            response.begin()
            body = response.read()
        except IncompleteRead as error:
            body = error.partial
            assert response.headers.get_content_type() in ENDLESS, received[begins : begins + 2_000]
        except HTTPException as error:
            raise AssertionError(f"no HTTP ({error!r}): {received[begins : begins + 2_000]!r}") from None
        found.append(Answer(response.status, response.headers.get_content_type(), body))
        # Else it would read on where the answer of HEAD, or an interim one, has no body.
        assert stream.tell() > begins
    return found


def check(answer: Answer, asked: bytes) -> None:
    """Raise AssertionError when an answer is none that the admin side may give; `asked` is all that was sent."""
    assert answer.status in FINE or answer.status in TITLES, answer
    assert answer.status != 500, answer
    assert b"Traceback (most recent call last)" not in answer.body or b"Traceback" in asked, answer
    if "json" in answer.media and answer.media not in ENDLESS and answer.body:
        try:
            document = json.loads(answer.body)
        except ValueError as error:
            raise AssertionError(f"no JSON ({error}): {answer}") from None
        if answer.status >= 400:
            _check_problem(document, answer, asked)


def _check_problem(document: Any, answer: Answer, asked: bytes) -> None:
    assert document["status"] == answer.status, answer
    assert document["detail"], answer
    # DEBUG ERROR says what it is told to say.
    assert document["code"] in WORDS or b"debug" in asked.lower(), answer
    assert STATUS.get(document["code"], answer.status) == answer.status or document["code"] == "ERR", answer
