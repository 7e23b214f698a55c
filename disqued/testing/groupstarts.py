"""Where a group of a stream begins, as those know it who said so, and which events it wants then.

    QGROUP START FIRST, FORGET   all events
    QGROUP START NOW             those that are made later, on all nodes that can be reached
    QGROUP START id              that event, and those that were made later

An event that was on its way meanwhile is wanted or not.  When a beginning is firm (nothing fails, or all is well
again), what consumers have and did before means nothing to the group from then on; what they do while it is said means
nothing for sure.  Of beginnings while something fails the one that counts is not known: nodes merge them by maximum.

Times are integer milliseconds of one clock, that of the observer.
"""

from typing import Final

import attrs

from disqued.testing.checker import LATE_MS, Request

FIRST: Final = b"FIRST"
NOW: Final = b"NOW"
AT: Final = b"an event"
FORGET: Final = b"FORGET"


@attrs.define
class GroupStart:
    """A QGROUP START or FORGET."""

    queue: bytes
    group: bytes
    kind: bytes
    sent_at: int
    event: Request | None = None  #: where it begins, if it is AT
    answered_at: int | None = None

    def wants(self, request: Request) -> bool | None:
        """Tell whether the group gets an event; None = it may, or may not."""
        if self.kind in (FIRST, FORGET):
            return True
        if self.event is not None:
            return self._is_behind(request, self.event)
        if request.answered_at is not None and request.answered_at < self.sent_at:
            return False
        if self.answered_at is not None and request.asked_at > self.answered_at + LATE_MS:
            return True
        return None

    @staticmethod
    def _is_behind(request: Request, event: Request) -> bool | None:
        if request is event or (event.answered_at is not None and request.asked_at > event.answered_at + LATE_MS):
            return True
        if request.answered_at is not None and request.answered_at + LATE_MS < event.asked_at:
            return False
        return None


@attrs.define
class GroupStartHistory:
    """The beginnings of one group."""

    #: The last firm one, and those after it that are not.
    beginnings: list[GroupStart] = attrs.field(factory=list)
    firm: GroupStart | None = None  #: the last one that is, and was answered
    unsure_until: float = -1.0  #: up to when what consumers have and do may mean nothing

    def may_skip(self, request: Request) -> bool:
        """Tell whether the group may have begun behind an event."""
        return any(beginning.wants(request) is not True for beginning in self.beginnings)

    def is_unsure(self, at: int) -> bool:
        """Return whether what a consumer does at a time may mean nothing to the group."""
        return at <= self.unsure_until

    @property
    def is_loose(self) -> bool:
        """Tell whether the group may have begun anew, nobody knows when."""
        return any(beginning is not self.firm for beginning in self.beginnings)
