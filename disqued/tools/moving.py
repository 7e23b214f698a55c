"""Moving jobs from a queue to another one, on the same nodes or on others: none is lost, and none is there twice.

    here                                     there
    GETJOB COUNT batch ---- jobs ---->|
    SHOW each             options, key|
                                      |----> ADDJOB ... KEY move/<id>      answers when it has its copies
    ACKJOB <--- those that are there -|
    ENQUEUE <-- those that are not ---|

A job is acknowledged here when it has its copies there, so it is on one side at least; while it is moved nobody else is
given it.  When this ends in between, the job comes back here after its retry time, and the next run adds it with the
same key: as long as it is there, nothing is added.  A job with a key of its own has that in the place of `move/<id>`.

A job with RETRY 0 does not come back: who takes it has it, as every consumer.  When it cannot be added there it is
added here again, as a new job.

A moved job has a new id, what was left of its TTL, and the same body, RETRY and REPLICATE; how often it was tried
begins anew.  Times are seconds.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import attrs

from disqued.client.errors import DisquedError, ServerError, Uncertain, Unreachable
from disqued.client.replies import read_facts, read_jobs
from disqued.tools.connecting import Failed
from disqued.tools.members import Link, Words

KEY: Final = b"move/"  #: and the id that the job had
ADD_S: Final = 5.0  #: how long the copies of a job are waited for
PAUSE_S: Final = 0.2  #: between two attempts to reach the other side
ALLOWED: Final = 2**31 - 1  #: seconds that ADDJOB takes


@attrs.frozen
class Taken:
    """A job that was taken, and all that is to be known for adding it elsewhere."""

    id: bytes
    body: bytes
    ttl_s: int
    retry_s: int
    replicate: int
    key: bytes

    @property
    def is_given_once(self) -> bool:
        """Tell whether it does not come back by itself."""
        return self.retry_s == 0

    def words(self, queue: bytes, replicate: int | None) -> Words:
        """The ADDJOB that puts it into a queue, as often as it is said."""
        copies = 1 if self.is_given_once else replicate or self.replicate
        ttl, retry = max(1, min(self.ttl_s, ALLOWED)), min(self.retry_s, ALLOWED)
        return (
            b"ADDJOB", queue, self.body, int(ADD_S * 1_000), b"REPLICATE", copies, b"TTL", ttl, b"RETRY", retry,
            b"KEY", self.key,
        )  # fmt: skip


def read_taken(job_id: bytes, body: bytes, shown: Any) -> Taken | None:
    """Put what GETJOB and SHOW say of a job together; None for a job that is over."""
    facts: Any = None if isinstance(shown, ServerError) else read_facts(shown, b"")
    if facts is None or facts["state"] == b"acked":
        return None
    key = facts.get("key", KEY + job_id)
    return Taken(job_id, body, facts["ttl"], facts["retry"], facts["repl"], key)


class Mover:
    """Moves the jobs of one node."""

    def __init__(
        self, here: Link, there: Link, queue: bytes, to: bytes, *, replicate: int | None = None, patience: float = 30.0
    ) -> None:
        """`patience` is how long the other side may be away before this gives up."""
        self._here = here
        self._there = there
        self._queue = queue
        self._to = to
        self._replicate = replicate
        self._patience = patience

    def move(self, count: int) -> int:
        """Move so many jobs at most; returns how many, 0 when there are none.

        Raises Refused when some were refused there; those are here as before.  Raises Failed for at-most-once jobs
        that cannot be put back, and the errors of `disqued.client.errors`.
        """
        jobs = self._take(count)
        if not jobs:
            return 0
        try:
            replies = self._add(jobs)
        except (DisquedError, KeyboardInterrupt):
            self._give_back(jobs, is_known=False)
            raise
        added = [job for job, reply in zip(jobs, replies, strict=True) if not isinstance(reply, ServerError)]
        refused = [job for job, reply in zip(jobs, replies, strict=True) if isinstance(reply, ServerError)]
        if added:
            self._here.ask("ACKJOB", *(job.id for job in added))
        if refused:
            self._give_back(refused, is_known=True)
            (why, *_) = [reply for reply in replies if isinstance(reply, ServerError)]
            raise Refused(str(why), len(added))
        return len(jobs)

    def _take(self, count: int) -> list[Taken]:
        reply = self._here.ask("GETJOB", "NOHANG", "COUNT", count, "FROM", self._queue)
        jobs = read_jobs(reply, b"")
        shown = self._here.ask_all([("SHOW", job.id) for job in jobs])
        read = [read_taken(job.id, job.body, each) for job, each in zip(jobs, shown, strict=True)]
        found = [job for job in read if job is not None]
        return found if found or not jobs else self._take(count)  # those that were given are over

    def _add(self, jobs: Sequence[Taken]) -> list[Any]:
        """Add jobs there; what is not sure to be there is added again, which its key makes once while it is there.

        An at-most-once job might be done already, and its key be free: it is never added again.
        """
        end = time.monotonic() + self._patience
        commands = [job.words(self._to, self._replicate) for job in jobs]
        while True:
            try:
                return self._there.ask_all(commands, waits=ADD_S)
            except (Unreachable, Uncertain) as error:
                is_repeatable = isinstance(error, Unreachable) or not any(job.is_given_once for job in jobs)
                if not is_repeatable or time.monotonic() >= end:
                    raise
                time.sleep(PAUSE_S)

    def _give_back(self, jobs: Iterable[Taken], *, is_known: bool) -> None:
        """Put jobs back where they were; `is_known`: they are not there.

        Of an at-most-once job that may be there nothing can be done: a second one could be given to somebody, too.
        """
        again = [job.id for job in jobs if not job.is_given_once]
        if again:
            self._here.ask("ENQUEUE", *again)
        once = [job for job in jobs if job.is_given_once]
        if not once:
            return
        if not is_known:
            raise Failed(
                f"the other side went away while {len(once)} at-most-once jobs were added there; they may be there, and"
                f" cannot be given back: {b', '.join(job.id for job in once).decode()}"
            )
        self._here.ask("ACKJOB", *(job.id for job in once))  # first: a key of its own is to be free
        commands = [job.words(self._queue, None) for job in once]
        replies = self._here.ask_all(commands, waits=ADD_S)
        lost = [job.body for job, reply in zip(once, replies, strict=True) if isinstance(reply, ServerError)]
        if lost:
            raise Failed(f"at-most-once jobs can neither be added there nor put back; their bodies are {lost}")


class Refused(Exception):
    """Jobs were refused there, and given back; the text is the reason that the first one met."""

    def __init__(self, why: str, moved: int) -> None:
        super().__init__(why)
        self.moved = moved  #: of the same batch


class Pace:
    """Keeps to a rate."""

    def __init__(
        self, per_second: float | None, clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:  # fmt: skip
        self._per_second = per_second
        self._clock = clock
        self._sleep = sleep
        self._began_at = clock()

    def wait(self, done: int) -> None:
        """Wait until so many may have been done."""
        if self._per_second is not None:
            ahead = self._began_at + done / self._per_second - self._clock()
            if ahead > 0:
                self._sleep(ahead)
