"""What the checker of streams keeps: data alone.

    StreamRules  what is to be so           Reading  what one group made of one event
    Flush        a QFLUSH                   Hold     a delivery of it        Ack   a QACK for it

Times are integer milliseconds of one clock, that of the observer.
"""

from collections.abc import Hashable

import attrs

from disqued.testing.checker import LATE_MS, NodeName, Request, shown

SHOWN = 6  #: deliveries and acknowledgements that a failure tells of, the last ones


@attrs.frozen
class StreamRules:
    """Which of the promises hold in the run that is checked."""

    exact: bool = False  #: nothing fails
    acks_last: bool = True  #: no node forgets what it has acknowledged
    #: Nor what it has acknowledged of events that it could ask nobody about: no process ends.
    all_acks_last: bool = False
    on_time_ms: int = LATE_MS  #: what a message may be under way


@attrs.define
class Hold:
    """An event as it was delivered to a consumer."""

    group: bytes
    consumer: Hashable
    node: NodeName  #: that answered
    at: int
    lease_ms: int  #: 0 = it was done at once
    given_up_at: int | None = None  #: when somebody began to say that it is given back
    free_at: int | None = None  #: when that was answered


@attrs.define
class Ack:
    """A QACK for one event."""

    consumer: Hashable
    sent_at: int
    answered_at: int | None = None
    accepted: bool | None = None  #: None = not known: no answer, an error, or a count of several


@attrs.define
class Reading:
    """What one group made of one event, as its consumers know it."""

    request: Request
    group: bytes
    holds: list[Hold] = attrs.field(factory=list)
    acks: list[Ack] = attrs.field(factory=list)
    done_at: int | None = None  #: when it was first heard that the group is done with it
    firm_at: int | None = None  #: when that was first heard of what outlasts the end of a process
    doubts: list[int] = attrs.field(factory=list)  #: when somebody heard null who should have had it

    def __str__(self) -> str:
        told = [f"{hold.consumer} at {hold.at} for {hold.lease_ms}" for hold in self.holds[-SHOWN:]]
        acks = [
            f"{ack.consumer} at {ack.sent_at}, {_ANSWERS[ack.accepted]} at {ack.answered_at}"
            for ack in self.acks[-SHOWN:]
        ]
        return (
            f"{shown(self.request)}, for {self.group.decode()}: given to {'; '.join(told) or 'nobody'};"
            f" acknowledged by {'; '.join(acks) or 'nobody'}"
        )


_ANSWERS = {True: "yes", False: "no", None: "not known"}


@attrs.define
class Flush:
    """A QFLUSH."""

    queue: bytes
    node: NodeName
    sent_at: int
    answered_at: int | None = None


class Flushes:
    """Every QFLUSH."""

    def __init__(self) -> None:
        self._of: dict[bytes, list[Flush]] = {}

    def begin(self, queue: bytes, node: NodeName, at: int) -> Flush:
        """Somebody begins to flush a queue; the answer sets `answered_at`."""
        flush = Flush(queue, node, at)
        self._of.setdefault(queue, []).append(flush)
        return flush

    def after(self, request: Request, at: int) -> list[Flush]:
        """Return those that began after a time, on the node that made an event."""
        return [flush for flush in self._of.get(request.queue, ()) if flush.node == request.node and at < flush.sent_at]

    def may_cover(self, request: Request, on_time_ms: int) -> bool:
        """Return whether an event was there when a node heard of a flush, which may be after that was answered."""
        latest = request.asked_at - on_time_ms
        return any(
            flush.answered_at is None or latest <= flush.answered_at for flush in self._of.get(request.queue, ())
        )
