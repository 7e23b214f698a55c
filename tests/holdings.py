"""Holdings: which consumer has which job of a limited queue and when, as consumers wrote it down, against the limits.

    GETJOB is sent    reply arrives            ACKJOB or NACK is sent
    asked_at          since ================== until              at the latest asked_at + the retry period

When a consumer acknowledges a job or gives it back it is over for one that had it before, too; and one that receives it
after another one has sent its acknowledgement has a job that is over, for that may be known at any moment.
The server delivers the job before `since`, and learns of its end after `until`, so consumers had each job for longer
than is counted here: what is found above a limit was above it.  Nothing is asked of a server.

    in flight     at no moment more jobs than the limit, and of each group
    rate          in no window more deliveries than BURST + rate * length of the window, and what may be under way for
                  `LATE_S`; a delivery is in a window if both GETJOB and its reply are
    delivered     once all is well, no job is with nobody for longer than its retry period and `STILL_S`, although the
                  limit has room: counted from the last delivery of the queue and from the last end of one

Where so many nodes crash at once that the others are no majority, nodes forget what consumers had.  So that does not
count after the crash.  It is counted apart, with what a consumer had of jobs that others were done with.

Times are seconds of one monotonic clock.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import attrs

from tests.limits import seconds

#: How long a delivery may be under way from the steward, which counts it, to the node of the consumer.
LATE_S = 1.0
#: How long a slot may last beyond the retry period (5 s), and what a slow machine adds.
STILL_S = 5 + seconds(5)
NEVER = float("-inf")


@attrs.frozen
class Limit:
    """The limits of a queue; 0 = none."""

    in_flight: int = 0
    group_in_flight: int = 0
    rate: int = 0  #: jobs a second
    burst: int = 0

    def words(self) -> tuple[object, ...]:
        """Make the words of QPOLICY SET."""
        words: list[object] = []
        if self.in_flight:
            words += ["INFLIGHT", self.in_flight]
        if self.group_in_flight:
            words += ["GROUPINFLIGHT", self.group_in_flight]
        if self.rate:
            words += ["RATE", self.rate, "PER", 1, "BURST", self.burst]
        return tuple(words)


@attrs.define(eq=False)
class Holding:
    """A job that a consumer has."""

    job_id: bytes
    group: bytes
    node: int
    asked_at: float
    since: float
    until: float
    retry_s: float
    free_since: float  #: when the job was added, or another consumer had it no more
    over_at: float  #: as `until`, or when another consumer was done with the job

    def line(self) -> str:
        """Tell it."""
        return (
            f"{self.job_id.decode()} of {self.group!r} from node {self.node}: asked {self.asked_at:.3f}, had"
            f" {self.since:.3f} to {self.until:.3f}, over {self.over_at:.3f}, retry {self.retry_s:g}"
        )


@attrs.define
class Peak:
    """The most jobs that consumers had at one moment."""

    in_flight: int = 0
    of_group: int = 0
    over: list[str] = attrs.field(factory=list)  #: deliveries above a limit


class Holdings:
    """The books on one queue."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.all: list[Holding] = []
        self._free_since: dict[bytes, float] = {}  #: by job
        self._of_job: dict[bytes, list[Holding]] = {}
        self._acknowledged: set[bytes] = set()
        self._crashes: list[tuple[float, float]] = []
        self._healed_at: float | None = None

    # Facts.

    def added(self, job_id: bytes, at: float) -> None:
        """Note that the producer knows that a job is there; its consumer may have been first."""
        self._free_since.setdefault(job_id, at)

    def taken(self, job_id: bytes, group: bytes, node: int, asked_at: float, at: float, retry_s: float) -> Holding:
        """Note that a consumer has a job that it asked a node for at a time."""
        before = self._of_job.setdefault(job_id, [])
        free_since = max((each.over_at for each in before), default=self._free_since.setdefault(job_id, at))
        until = asked_at + retry_s
        over_at = at if job_id in self._acknowledged else until
        holding = Holding(job_id, group, node, asked_at, at, until, retry_s, free_since, over_at)
        before.append(holding)
        self.all.append(holding)
        return holding

    def sent(self, holding: Holding, at: float, *, acknowledges: bool = True) -> None:
        """Note that a consumer is about to acknowledge a job, or to give it back."""
        if acknowledges:
            self._acknowledged.add(holding.job_id)
        holding.until = min(holding.until, at)
        for each in self._of_job[holding.job_id]:
            each.over_at = min(each.over_at, at)

    def crashed(self, begin: float, end: float) -> None:
        """Note a crash of so many nodes that the others are no majority; all of them have ended at `end`."""
        self._crashes.append((begin, end))

    def healed(self, at: float) -> None:
        """Note that from now on nothing fails, and consumers take what is left."""
        self._healed_at = at

    # What follows from them.

    def verdict(self) -> list[str]:
        """Say what is wrong; empty = nothing."""
        found = self.peak(forgets=True).over
        excess, limit = self.excess(), self.limit
        if limit.rate and excess > limit.burst + limit.rate * LATE_S:
            found.append(f"rate: a window has {excess:.1f} deliveries more than {limit.rate} a second make; {limit}")
        found += [
            f"delivered: {holding.job_id!r} was with nobody for {span:.1f} s; {limit}"
            for span, holding in self._stood_still()
            if span > holding.retry_s + STILL_S
        ]
        return found

    def peak(self, *, forgets: bool) -> Peak:
        """Find the most jobs that consumers had at once; `forgets`: as nodes have to know it."""
        events = []
        for number, holding in enumerate(self.all):
            until = self._known_until(holding) if forgets else holding.until
            if until > holding.since:
                events += [(holding.since, True, number), (until, False, number)]
        peak, limit = Peak(), self.limit
        jobs: Counter[bytes] = Counter()
        groups: Counter[bytes] = Counter()
        for at, begins, number in sorted(events):  # an end comes before a beginning of the same moment
            holding = self.all[number]
            jobs[holding.job_id] += 1 if begins else -1
            if jobs[holding.job_id] == int(begins):
                groups[holding.group] += 1 if begins else -1
                if not begins:
                    del jobs[holding.job_id]
                    continue
                count, of_group = len(jobs), groups[holding.group]
                peak.in_flight, peak.of_group = max(peak.in_flight, count), max(peak.of_group, of_group)
                if 0 < limit.in_flight < count:
                    peak.over.append(f"in flight: {count} jobs at {at:.3f}; {limit}{self._had(at)}")
                if 0 < limit.group_in_flight < of_group:
                    had = self._had(at, holding.group)
                    peak.over.append(f"in flight: {of_group} jobs of {holding.group!r} at {at:.3f}; {limit}{had}")
        return peak

    def _had(self, at: float, group: bytes | None = None) -> str:
        """Tell what consumers had at a moment, with all deliveries of these jobs."""
        jobs = {each.job_id for each in self.all if each.since <= at < each.until and group in {None, each.group}}
        return "".join(f"\n    {each.line()}" for each in self.all if each.job_id in jobs)

    def _known_until(self, holding: Holding) -> float:
        return min([holding.over_at, *(begin for begin, end in self._crashes if holding.asked_at < end)])

    def again(self) -> int:
        """Count deliveries of a job that another consumer still had."""
        return sum(holding.since < holding.free_since for holding in self.all)

    def excess(self) -> float:
        """Return the most by which deliveries in a window are more than the rate times its length.

        Windows end with a reply and begin with a GETJOB.  Beginnings are gone through from the last one to the first,
        and a tree has for each range of ends the sum, and the greatest sum of a beginning of it.
        """
        rate = self.limit.rate
        if not self.all:
            return 0.0
        ordered = sorted(self.all, key=lambda each: each.since)
        size = 1 << (len(ordered) - 1).bit_length()
        sums, best = [0.0] * (2 * size), [NEVER] * (2 * size)
        for number, (before, holding) in enumerate(pairwise([ordered[0], *ordered])):
            sums[size + number] = -rate * (holding.since - before.since)
        for at in range(size - 1, 0, -1):
            sums[at] = sums[2 * at] + sums[2 * at + 1]
        excess = 0.0
        for number, holding in sorted(enumerate(ordered), key=lambda each: -each[1].asked_at):
            at = size + number
            sums[at] += 1
            best[at] = sums[at]
            while at > 1:
                at //= 2
                sums[at] = sums[2 * at] + sums[2 * at + 1]
                best[at] = max(best[2 * at], sums[2 * at] + best[2 * at + 1])
            excess = max(excess, best[1] + rate * (holding.asked_at - ordered[0].since))
        return excess

    def pause(self, begin: float, end: float) -> float:
        """Return the longest time without a delivery that began between two moments."""
        times = [begin, *sorted(holding.since for holding in self.all if holding.since > begin)]
        return max((after - before for before, after in pairwise(times) if before <= end), default=0.0)

    def still(self) -> float:
        """Return the longest time for which a job was with nobody after the heal, although the limit had room."""
        return max((span for span, _ in self._stood_still()), default=0.0)

    def _stood_still(self) -> Iterable[tuple[float, Holding]]:
        """Go through deliveries after the heal, with the time in which nothing happened before."""
        if self._healed_at is None:
            return
        moments = [(holding.since, True, number) for number, holding in enumerate(self.all)]
        moments += [(holding.over_at, False, number) for number, holding in enumerate(self.all)]
        last = self._healed_at
        for at, begins, number in sorted(moments):
            holding = self.all[number]
            if begins and at > last:
                yield at - max(last, holding.free_since), holding
            last = max(last, at)
