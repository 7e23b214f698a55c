"""Problem documents (RFC 9457): how an error is told over HTTP.

    {"type": ".../errors#NOREPL", "title": "...", "status": 503, "detail": "...", "code": "NOREPL"}

`code` is the error word of the command, which never changes and which programs branch on; what HTTP itself finds wrong
has the word HTTP.  `detail` says what was wrong and what is allowed.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from disqued.errors import CommandError, InternalError
from disqued.web.http.exchange import Reply

MEDIA: Final = "application/problem+json"
TYPE: Final = "https://github.com/disqued/disqued/blob/main/docs/reference/http.md#errors"
HTTP_WORD: Final = "HTTP"

#: Status of each error word; DEBUG ERROR may make up others, which are 400.
STATUS: Final[Mapping[str, int]] = {
    "ERR": 400, "BADID": 400, "WRONGTYPE": 400, "NOPROTO": 400, "NOAUTH": 401, "WRONGPASS": 401,
    "NOPERM": 403,
    "NOJOB": 404, "NOQUEUE": 404, "EMPTYKEY": 404, "NOWORKER": 404, "NOREPORTS": 404,
    "CANCELLED": 409, "TOOLATE": 409, "PAUSED": 409, "MAXLEN": 409, "STALE": 409, "NOTWORKING": 409, "DUPLICATE": 409,
    "UNBLOCKED": 409,
    "NOREPL": 503, "BUSY": 503, "LEAVING": 503, "LOADING": 503, "MISCONF": 503, "TRYAGAIN": 503, "BADREPORTS": 503,
    "OOM": 507,
}  # fmt: skip
TITLES: Final[Mapping[int, str]] = {
    400: "Bad request", 401: "Who are you", 403: "Not allowed", 404: "Not found", 405: "Method not allowed",
    408: "Request timed out", 409: "Not possible now", 413: "Too large", 415: "Unsupported media type",
    417: "Expectation failed", 421: "Another host", 429: "Too many requests", 431: "Headers too large",
    500: "Internal error", 501: "Not implemented", 503: "Not available", 505: "Another version of HTTP",
    507: "Memory is full",
}  # fmt: skip


class Problem(Exception):
    """What is wrong with a request, as HTTP sees it."""

    def __init__(
        self, status: int, detail: str, *, code: str = HTTP_WORD, headers: Mapping[str, str] | None = None
    ) -> None:
        """`detail` says what was wrong and what is allowed."""
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.code = code
        self.headers = dict(headers or {})

    @classmethod
    def of(cls, error: CommandError) -> "Problem":
        """The problem that an error of a command is."""
        status = 500 if isinstance(error, InternalError) else STATUS.get(error.code, 400)
        return cls(status, error.text, code=error.code)

    @classmethod
    def no_queue(cls, name: bytes) -> "Problem":
        """404 NOQUEUE: this node has no such queue, and one comes into being when it is first used."""
        return cls(404, f"there is no queue {_shown(name)} on this node; ADDJOB makes one", code="NOQUEUE")

    @classmethod
    def no_job(cls, job_id: bytes) -> "Problem":
        """404 NOJOB: this node does not know such a job."""
        text = f"no job {_shown(job_id)} is known to this node: it is over, or held by other nodes alone"
        return cls(404, text, code="NOJOB")

    @classmethod
    def no_command(cls, name: str) -> "Problem":
        """404 ERR: this node has a command under another name, or not at all."""
        return cls(404, f"this node has no command {name}: rename-command removed or renamed it", code="ERR")

    @property
    def document(self) -> dict[str, Any]:
        title = TITLES.get(self.status, "Error")
        return {"type": TYPE, "title": title, "status": self.status, "detail": self.detail, "code": self.code}

    def reply(self) -> Reply:
        text = json.dumps(self.document, ensure_ascii=False).encode("utf-8", "replace")
        return Reply(text, MEDIA, self.status, self.headers)


def _shown(name: bytes) -> str:
    return repr(name[:100].decode("utf-8", "backslashreplace"))
