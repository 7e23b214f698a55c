"""The checker of streams: what groups of consumers saw of events, held against what was promised to them.

    asked, answered | refused      a producer and its QADD; too_long: refused by its MAXLEN
    delivered                      a consumer of a group and its event, done at once (EX 0) or until a deadline
    acking, acked                  its QACK and the answer, if there is one
    given_up, given_back           its QGROUP RETURN and the answer
    left                           the death of a worker, or what it does not know to be its own any more
    begins, began                  QGROUP START or FORGET and the answer
    nothing, figures               null for a QGET or QNOTIFY; a line of QSTATUS
    flushes                        QFLUSH
    lost_memory, healed            as in `checker`

What must be so, whatever fails:

    intact           what is delivered is what was added, under one id, from the queue that it was added to
    counted          total = inprogress + redo + done + available, in every group on every node
    at least once    every group gets an event whose QADD was answered, and again until a QACK is answered 1 or not
                     at all, before its time ends or a QFLUSH takes it, unless W of its holders have lost their memory
    no trace         the same, from the other side: an event that all were answered 0 for is not done
    at most once     a group that takes events with EX 0 STRICT never hears of one twice, while its origin forgets
                     nothing
    on time          nothing is delivered long after its time
    acks last        what was answered 1 is not delivered to the group after the heal
    flushed          nor is what the node that was told QFLUSH had made itself by then
    capped           QADD MAXLEN is refused only if there may be so many events, and then nobody gets the event; it is
                     answered only if its node has made fewer that are there

and where nothing fails (`exact`), in addition:

    one at a time    nobody else of the group gets an event before the deadline, or before it was given up, or its
                     worker may be dead
    exactly once     nobody gets an event that was acknowledged, or given with EX 0
    answers          a QACK in time is answered 1, a late one 0 unless another consumer has the event; none twice 1;
                     null means that there was nothing, nor anything of a worker that is dead; no command fails

A group that begins anew gets all events again that it wants and none of the others, from that moment on; the same is so
for what is said after the heal.  What is said while something fails may be outdone by what others said.

A group with EX 0 may lose an event with the answer that had it, so that such groups must get all of them only where
nothing fails.  Times are integer milliseconds of one clock, that of the observer.
"""

from collections.abc import Hashable, Iterable
from math import inf

from disqued.testing.checker import GRACE_MS, LATE_MS, Ledger, NodeName, Request, shown
from disqued.testing.groupstarts import GroupStart, GroupStartHistory
from disqued.testing.streamrecords import Ack, Flushes, Hold, Reading, StreamRules

FIGURES = (b"inprogress", b"redo", b"done", b"available")


class StreamChecker(Ledger):
    """Takes facts about events, and says what is wrong with them."""

    def __init__(self, rules: StreamRules, *, acking: Iterable[bytes], once: Iterable[bytes], strict: bytes) -> None:
        """Take the groups: those that acknowledge, those that fetch with EX 0, and of these the one with STRICT."""
        super().__init__()
        self.rules = rules
        self.deliveries = 0
        self._acking = tuple(acking)
        self._once = tuple(once)
        self._strict = strict
        self._readings: dict[tuple[int, bytes], Reading] = {}
        #: Those of promised events that are not done, as far as anybody has heard.
        self._open: dict[tuple[bytes, bytes], dict[int, Reading]] = {}
        self.flushes = Flushes()
        self._begun: dict[tuple[bytes, bytes], GroupStartHistory] = {}
        self.caps: dict[int, int] = {}  #: MAXLEN of the requests that say so
        self._too_long: set[int] = set()  #: those that were refused for it

    # Facts.

    def answered(self, number: int, job_id: bytes, at: int, holders: frozenset[NodeName] | None) -> None:
        """A QADD was answered: the event is there, for every group."""
        super().answered(number, job_id, at, holders)
        request = self.requests[number]
        self._check_cap(request, at)
        for group in (*self._acking, *self._once):
            reading = self._reading(request, group)
            begun = self._begun_of(request.queue, group)
            if reading.done_at is None and (begun.firm is None or begun.firm.wants(request)):
                self._open.setdefault((request.queue, group), {})[number] = reading

    def too_long(self, request: Request, at: int) -> None:
        """A QADD was refused for its MAXLEN."""
        self._too_long.add(request.number)
        there = sum(
            other.queue == request.queue and other is not request and self._may_be_there(other, request.asked_at)
            for other in self.requests.values()
        )
        if there < self.caps[request.number]:
            self.blame(
                f"capped: refused at {at} for MAXLEN {self.caps[request.number]}, and there are {there} events at most:"
                f" {shown(request)}"
            )

    def delivered(self, event_id: bytes, queue: bytes, body: bytes, hold: Hold) -> None:
        """A consumer has heard of an event."""
        request = self._find(event_id, queue, body)
        if request is None:
            return
        self.deliveries += 1
        request.deliveries += 1
        reading = self._reading(request, hold.group)
        self._check_times(reading, hold)
        if not self._begun_of(reading.request.queue, reading.group).is_unsure(hold.at):
            self._check_beginning(reading, hold)
            self._check_again(reading, hold)
        elif hold.group in self._acking:
            hold.given_up_at = hold.at
        self._check_flushed(reading, hold)
        reading.holds.append(hold)
        if not hold.lease_ms:
            self._note_done(reading, hold.at)

    def acking(self, event_ids: list[bytes], group: bytes, consumer: Hashable, at: int) -> list[Ack]:
        """A consumer begins to say that its group is done with some events; returns what is to be answered."""
        acks: list[Ack] = []
        for event_id in event_ids:
            ack = Ack(consumer, at)
            acks.append(ack)
            self._reading(self._by_id[event_id], group).acks.append(ack)
        return acks

    def acked(
        self, event_ids: list[bytes], group: bytes, acks: list[Ack], count: int, at: int, *,
        orphans: Iterable[bytes] = (),
    ) -> None:  # fmt: skip
        """It was answered so many; which of several these are nobody says.

        `orphans`: those that the node acknowledged alone, as nobody could be asked who has them.
        """
        if 0 < count < len(acks):
            return
        for event_id, ack in zip(event_ids, acks, strict=True):
            reading = self._reading(self._by_id[event_id], group)
            if self._begun_of(reading.request.queue, reading.group).is_unsure(ack.sent_at):
                continue
            ack.answered_at, ack.accepted = at, count > 0
            if ack.accepted:
                self._note_done(reading, at, is_firm=event_id not in orphans or self.rules.all_acks_last)

    def given_up(self, event_ids: list[bytes], group: bytes, at: int) -> None:
        """A consumer begins to give events back, whoever of the group has them by now."""
        for event_id in event_ids:
            for hold in self._reading(self._by_id[event_id], group).holds:
                if hold.given_up_at is None:
                    hold.given_up_at = at

    def given_back(self, event_ids: list[bytes], group: bytes, at: int) -> None:
        """It was answered that all of these were."""
        for event_id in event_ids:
            for hold in self._reading(self._by_id[event_id], group).holds:
                if hold.given_up_at is not None and hold.free_at is None:
                    hold.free_at = at

    def left(self, event_ids: Iterable[bytes], group: bytes, consumer: Hashable, at: int, back_at: int | None) -> None:
        """A worker may be dead; others get what it had by a time at the latest, None = nobody knows when."""
        for event_id in event_ids:
            for hold in self._reading(self._by_id[event_id], group).holds:
                if hold.consumer == consumer and hold.given_up_at is None:
                    hold.given_up_at, hold.free_at = at, back_at

    def nothing(self, queue: bytes, group: bytes, asked_at: int, at: int, *, waited: bool) -> None:
        """Somebody of a group heard that there is nothing; `waited`: and was waiting since it had asked."""
        if not self.rules.exact:
            return
        begun = self._begun_of(queue, group)
        if begun.unsure_until == inf:
            return
        before = (at if waited else asked_at) - LATE_MS
        for reading in self._open.get((queue, group), {}).values():
            since = _available_since(reading, begun)
            if since is not None and since < before and not self._may_be_over(reading.request, at):
                reading.doubts.append(at)

    def figures(self, node: NodeName, queue: bytes, group: bytes, values: dict[bytes, int], at: int) -> None:
        """A node has counted."""
        if min(values.values()) < 0 or values[b"total"] != sum(values[name] for name in FIGURES):
            self.blame(f"counted: node {node} says at {at} of {queue.decode()} and {group.decode()}: {values}")

    def begins(self, beginning: GroupStart) -> GroupStart:
        """Somebody begins to let a group begin anew."""
        begun = self._begun.setdefault((beginning.queue, beginning.group), GroupStartHistory())
        begun.beginnings.append(beginning)
        if self._is_firm(beginning):
            begun.unsure_until = inf
        return beginning

    def begins_not(self, beginning: GroupStart) -> None:
        """It was answered that it does not."""
        begun = self._begun_of(beginning.queue, beginning.group)
        begun.beginnings.remove(beginning)
        begun.unsure_until = min(begun.unsure_until, beginning.sent_at + LATE_MS)

    def began(self, beginning: GroupStart, at: int) -> None:
        """It was answered that it does: what was done before means nothing any more, where that can be said."""
        beginning.answered_at = at
        if self._is_firm(beginning):
            begun = self._begun_of(beginning.queue, beginning.group)
            begun.beginnings, begun.firm = [beginning], beginning
            begun.unsure_until = at + LATE_MS
            for request in self.requests.values():
                if request.queue == beginning.queue:
                    self._begin_anew(self._reading(request, beginning.group), beginning)

    def failed(self, command: bytes, error: object, at: int) -> None:
        """A command was answered with an error."""
        if self.rules.exact:
            self.blame(f"answers: {command.decode()} fails at {at}: {error}")

    # Verdict.

    def missing(self) -> list[Reading]:
        """Events that groups should have got, or be done with, and have no excuse."""
        return [
            reading
            for open_ones in self._open.values()
            for reading in open_ones.values()
            if not self._is_settled(reading)
            and not self.may_be_lost(reading.request)
            and not self.flushes.may_cover(reading.request, self.rules.on_time_ms)
            and not self._begun_of(reading.request.queue, reading.group).may_skip(reading.request)
        ]

    def unpromised(self, queue: bytes) -> int:
        """Events of a queue that nobody was promised, and that may be there all the same."""
        return sum(request.queue == queue and not request.is_promised for request in self.requests.values())

    def verdict(self) -> list[str]:
        """Say what is wrong, at the end of a run in which every event has had its chance; empty = nothing."""
        wrong = [*self.violations, *(f"at least once: {reading}" for reading in self.missing())]
        if self.rules.exact:
            for reading in self._readings.values():
                wrong += self._false_answers(reading)
        return wrong

    def _is_settled(self, reading: Reading) -> bool:
        if reading.group in self._once and not self.rules.exact:
            return True
        return reading.done_at is not None or any(ack.accepted is None for ack in reading.acks)

    def _false_answers(self, reading: Reading) -> list[str]:
        """What consumers were told of an event that was not so."""
        wrong = [f"answers: null at {at}, although there was {reading}" for at in reading.doubts]
        first: Ack | None = None
        for ack in reading.acks:
            if ack.answered_at is None:
                continue
            if ack.accepted and first is not None and ack.sent_at > (first.answered_at or 0):
                wrong.append(f"answers: accepted twice, {reading}")
            if ack.accepted and not any(_could_be_held(hold, ack) for hold in reading.holds):
                wrong.append(f"answers: accepted too late, {reading}")
            if (
                not ack.accepted
                and not self._may_be_over(reading.request, ack.answered_at)
                and _is_in_time(reading, ack)
            ):
                wrong.append(f"answers: refused in time, {reading}")
            first = first or (ack if ack.accepted else None)
        return wrong

    def _reading(self, request: Request, group: bytes) -> Reading:
        key = (request.number, group)
        reading = self._readings.get(key)
        if reading is None:
            reading = self._readings[key] = Reading(request, group)
        return reading

    # Beginnings.

    def _begun_of(self, queue: bytes, group: bytes) -> GroupStartHistory:
        return self._begun.get((queue, group), _NEVER)

    def _is_firm(self, beginning: GroupStart) -> bool:
        return self.rules.exact or (self._healed_at is not None and beginning.sent_at >= self._healed_at + GRACE_MS)

    def _begin_anew(self, reading: Reading, beginning: GroupStart) -> None:
        """Forget what a group has made of an event, but for what may have been done since it began anew."""
        reading.holds = [hold for hold in reading.holds if hold.at >= beginning.sent_at]
        reading.acks = [ack for ack in reading.acks if ack.sent_at >= beginning.sent_at]
        reading.done_at = reading.firm_at = None
        reading.doubts.clear()
        request = reading.request
        open_ones = self._open.setdefault((request.queue, reading.group), {})
        if request.is_promised and beginning.wants(request):
            open_ones[request.number] = reading
        else:
            open_ones.pop(request.number, None)

    def _check_beginning(self, reading: Reading, hold: Hold) -> None:
        """Hold a delivery against where the group began."""
        firm = self._begun_of(reading.request.queue, reading.group).firm
        if firm is not None and firm.wants(reading.request) is False:
            self.blame(f"begins: {hold} comes, and the group began behind it ({firm.kind.decode()}): {reading}")

    # Lengths.

    def _check_cap(self, request: Request, at: int) -> None:
        """Hold an event that was taken against its MAXLEN, and what its node had made by then."""
        maxlen = self.caps.get(request.number)
        if maxlen is None:
            return
        there = sum(
            other.queue == request.queue and other.node == request.node and self._is_there(other, request.asked_at, at)
            for other in self.requests.values()
        )
        if there >= maxlen:
            self.blame(f"capped: taken at {at} for MAXLEN {maxlen}, and there are {there} events: {shown(request)}")

    def _is_there(self, request: Request, since: int, until: int) -> bool:
        """Tell whether an event must be in the stream of its node during some time."""
        ready_at = (request.answered_at if request.answered_at is not None else until) + request.delay_ms + LATE_MS
        return ready_at < since and not self._may_be_over(request, until) and not self._forgot(request)

    def _may_be_there(self, request: Request, at: int) -> bool:
        """Tell whether an event may be in a stream at a time."""
        return request.asked_at <= at <= request.asked_at + request.ttl_ms + self.rules.on_time_ms

    # Parts.

    def _note_done(self, reading: Reading, at: int, *, is_firm: bool = True) -> None:
        if is_firm and reading.firm_at is None:
            reading.firm_at = at
        if reading.done_at is None:
            reading.done_at = at
            reading.doubts = [doubt for doubt in reading.doubts if at > doubt + LATE_MS]
            self._open.get((reading.request.queue, reading.group), {}).pop(reading.request.number, None)

    def _check_times(self, reading: Reading, hold: Hold) -> None:
        """Hold a delivery against the time of the event and what others were told."""
        request = reading.request
        if request.number in self._too_long:
            self.blame(f"capped: {hold} comes, and was refused for its MAXLEN: {reading}")
        if request.answered_at is not None and hold.at > request.answered_at + request.ttl_ms + self.rules.on_time_ms:
            self.blame(f"on time: {hold} comes after the end of {reading}")
        reading.doubts = [doubt for doubt in reading.doubts if hold.at > doubt + LATE_MS]

    def _check_again(self, reading: Reading, hold: Hold) -> None:
        """Hold a delivery against those before it."""
        begun = self._begun_of(reading.request.queue, hold.group)
        if begun.is_loose:
            return
        if hold.group == self._strict and reading.holds and not self._forgot(reading.request):
            self.blame(f"at most once: {hold} comes again of {reading}")
        if reading.done_at is not None:
            if reading.firm_at is not None and self._is_late(hold.at, reading.firm_at):
                name = "exactly once" if self.rules.exact else "acks last"
                self.blame(f"{name}: {hold} comes after all was done of {reading}")
        elif self.rules.exact and reading.holds and _is_held(reading.holds[-1], hold.at):
            self.blame(f"one at a time: {hold} comes while another one has {reading}")

    def _is_late(self, at: int, known_at: int) -> bool:
        """Tell whether everybody must know by a time what somebody was told before."""
        if self.rules.exact:
            return at > known_at + LATE_MS
        return self.rules.acks_last and self._healed_at is not None and at > max(known_at, self._healed_at) + GRACE_MS

    def _forgot(self, request: Request) -> bool:
        """Tell whether the node that made an event has lost its memory since then."""
        return self._losses.get(request.node, -1) >= request.asked_at

    def _check_flushed(self, reading: Reading, hold: Hold) -> None:
        """Hold a delivery against the flushes of nodes that had made the event themselves."""
        request = reading.request
        if request.answered_at is None:
            return
        for flush in self.flushes.after(request, request.answered_at):
            if flush.answered_at is not None and self._is_late(hold.at, flush.answered_at):
                self.blame(f"flushed: {hold} comes after {flush} of {reading}")

    def _may_be_over(self, request: Request, at: int) -> bool:
        """Tell whether an event may have ended by a time."""
        return at + LATE_MS >= request.asked_at + request.ttl_ms or self.flushes.may_cover(
            request, self.rules.on_time_ms
        )


_NEVER = GroupStartHistory()  #: of groups that never began anew


def _is_held(hold: Hold, at: int) -> bool:
    """Tell whether a consumer must have an event to itself at a time."""
    return hold.given_up_at is None and at + LATE_MS < hold.at + hold.lease_ms


def _is_in_time(reading: Reading, ack: Ack) -> bool:
    """Return whether the only acknowledgement of an event was answered while its consumer had it."""
    answered_at = ack.answered_at
    assert answered_at is not None
    return len(reading.acks) == 1 and any(
        hold.consumer == ack.consumer and hold.at <= ack.sent_at and _is_held(hold, answered_at)
        for hold in reading.holds
    )


def _could_be_held(hold: Hold, ack: Ack) -> bool:
    """Tell whether some consumer may have had an event when an acknowledgement came."""
    assert ack.answered_at is not None
    return hold.at - LATE_MS <= ack.answered_at and ack.sent_at <= hold.at + hold.lease_ms + LATE_MS


def _available_since(reading: Reading, begun: GroupStartHistory) -> int | None:
    """Since when a group that began so can have an event, as far as is known; None = that is not known."""
    request = reading.request
    if request.answered_at is None or reading.done_at is not None:
        return None
    if reading.acks and any(ack.accepted is None for ack in reading.acks):
        return None
    if reading.holds:
        last = reading.holds[-1]
        return last.at + last.lease_ms if last.given_up_at is None else last.free_at
    ready_at = request.answered_at + request.delay_ms
    return ready_at if begun.firm is None else max(ready_at, begun.firm.answered_at or 0)
