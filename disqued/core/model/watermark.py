"""The watermark: up to when delayed jobs have been queued, as the journal knows it.

A start after a crash must know whether a delayed job may have been delivered.  A job whose stored time lies behind the
watermark has never been queued, so the start queues it as soon as its time has come.  A job before the watermark may
have been delivered: it waits for a retry period, and with RETRY 0 it is never queued again.

    a delay ends ---> the watermark is moved ahead of it, by a record of the same step
        retry > 0     queued in that step: a power cut that takes the record costs one more delivery
        retry 0       held until that record survives a power cut, whatever `appendfsync` says, and queued then

ENQUEUE of such a job before its time writes the job itself again, as queued, and holds it likewise.

One record covers `AHEAD_MS`, so that a stream of delayed jobs writes at most ten a second, and an idle node none.
Stored times are of the wall clock, which may be set back: `lead_ms` is the most that it was ahead of the monotonic
clock in this run, so that the watermark is never behind a time that was stored.

Times are integer milliseconds of the wall clock.
"""

from typing import Final

from disqued.core.model.job import Job

AHEAD_MS: Final = 100  #: how far the watermark is moved ahead of the time that needs it
MARGIN_MS: Final = 20  #: by which the clocks of a step and of the store's record of it may differ


class Watermark:
    """The watermark of one node, and the at-most-once jobs that wait for it."""

    __slots__ = ("held", "last", "lead_ms", "safe", "until")

    def __init__(self) -> None:
        self.until: int = 0  #: jobs whose stored time is later have not been queued; 0 = the journal does not say
        self.safe: int = 0  #: the same, of the records that survive a power cut
        self.lead_ms: int = 0  #: the most that the wall clock was ahead of the monotonic one in this run
        #: At-most-once jobs that are queued when the records before them are safe, with the number of each.
        self.held: dict[Job, int] = {}
        self.last: int = 0  #: the number of the last one

    def reach(self, now: int) -> bool:
        """Move behind all times that are over at this monotonic time; return whether it had to be moved."""
        at = now + self.lead_ms + MARGIN_MS
        if at <= self.until:
            return False
        self.until = at + AHEAD_MS
        return True

    def is_safe(self, now: int) -> bool:
        """Return whether a job whose time comes now may be delivered at once, though it is delivered at most once."""
        return now + self.lead_ms + MARGIN_MS <= self.safe

    def hold(self, job: Job) -> None:
        """Keep a job back until what was journaled so far is safe."""
        self.last += 1
        self.held[job] = self.last

    def release(self, last: int, limit: int) -> list[Job]:
        """Take out jobs up to that number, `limit` at most, in their order."""
        jobs: list[Job] = []
        for job, number in self.held.items():
            if number > last or len(jobs) == limit:
                break
            jobs.append(job)
        for job in jobs:
            del self.held[job]
        return jobs
