"""What became of a job: the answer to a caller who waits for it.

added = client.add("thumbnails", "cat.png", result_ttl=600)     an AddedJob, which is the id of the job
added.wait(30)         the result; raises JobFailed or WaitTimeout
added.wait(30, print)  the same, and the progress of the job meanwhile
added.outcome(30)      an Outcome, however the job ended or has not
"""

from collections.abc import Callable
from typing import Any, Final, Protocol, Self, TypeAlias

import attrs

from .errors import JobCancelled, JobDead, JobExpired, JobFailed, ResultUnknown, WaitTimeout
from .values import Span

#: Takes the progress of a job.
OnProgress: TypeAlias = Callable[[bytes], Any]

ACKED: Final = "acked"
PENDING: Final = "pending"
_FAILED: Final[dict[str, tuple[type[JobFailed], str]]] = {
    "dead": (JobDead, "is dead after {tries}"),
    "cancelled": (JobCancelled, "was cancelled"),
    "expired": (JobExpired, "has expired"),
}
_UNKNOWN: Final = (ResultUnknown, "is unknown")


@attrs.frozen
class Outcome:
    """What became of a job."""

    id: bytes
    #: acked, dead, cancelled, expired, unknown; pending = it has not ended.
    state: str
    #: Its result, if it is acknowledged and has one.
    value: bytes | None = None
    tries: int = 0
    #: Why its last try failed, or how it ended.
    reason: str = ""

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.state != PENDING

    @property
    def is_cancelled(self) -> bool:
        """Whether the job was cancelled; a consumer may still have it."""
        return self.state == "cancelled" or (self.state == PENDING and self.reason == "cancelling")

    def result(self) -> bytes | None:
        """Return the result.  Raises JobDead, JobCancelled, JobExpired, ResultUnknown, or WaitTimeout while pending."""
        name = self.id.decode()
        if self.state == ACKED:
            return self.value
        if self.state == PENDING:
            raise WaitTimeout(f"job {name} has not ended in time")
        kind, text = _FAILED.get(self.state, _UNKNOWN)
        because = f": {self.reason}" if self.reason and self.reason != self.state else ""
        tries = f"{self.tries} {'try' if self.tries == 1 else 'tries'}"
        error = kind(f"job {name} {text.format(tries=tries)}{because}")
        error.id, error.tries, error.reason = self.id, self.tries, self.reason
        raise error


class Waits(Protocol):
    """A client, as an added job uses it."""

    def wait(self, job: bytes, timeout: Span | None = None, progress: OnProgress | None = None) -> Any:
        """Wait for the result of a job."""

    def outcome(self, job: bytes, timeout: Span | None = None) -> Any:
        """Wait for the outcome of a job."""


class AddedJob(bytes):
    """The id of a job that was added, with its client to wait for the job.

    Copies, also by pickle, are the id alone.
    """

    _client: Waits

    def __new__(cls, id_: bytes, client: Waits) -> Self:
        """Take the id, and the client that added the job."""
        self = super().__new__(cls, id_)
        self._client = client
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return bytes, (bytes(self),)

    @property
    def id(self) -> bytes:
        """The id alone."""
        return bytes(self)

    def wait(self, timeout: Span | None = None, progress: OnProgress | None = None) -> Any:
        """Wait for the result; in asyncio a coroutine, in Twisted a Deferred.

        `progress` is called with the progress of the job whenever that changes.

        Raises JobDead, JobCancelled, JobExpired, ResultUnknown, WaitTimeout.
        """
        return self._client.wait(self, timeout, progress)

    def outcome(self, timeout: Span | None = None) -> Any:
        """Wait for the outcome, which is pending when `timeout` ends first; raises for no outcome."""
        return self._client.outcome(self, timeout)
