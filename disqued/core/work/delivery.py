"""Delivery: jobs go from their queues to consumers, at once or when they have waited.

    queue ---fetch (GETJOB)---> consumer ---ACKJOB---> done
      ^            |                |
      |         waiters,            +--- gone before it heard of the job: `give_back`
      |        first come           |
      +--- `requeueing` <-----------+

A job with retry 0 is delivered at most once: the journal says that it is done before the consumer hears of it, and
nothing queues it a second time.

A job whose time is over is never handed out.  Those at the front of a queue are dropped when they are met, a bounded
number in a millisecond; a queue with more of them is `behind`, and they are dropped bit by bit.  So is a long queue
whose jobs are being sorted into groups (`grouped`).  Until that is done it is not known whether there is a job to give,
so every consumer waits for it, NOHANG or not: some milliseconds later comes the job, or the word that there is none.

Source: Disque, src/queue.c.
"""

from collections.abc import Iterable
from typing import Final

from disqued.core.model.grouped import NOTHING_GIVEN
from disqued.core.model.job import (
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_DROPPED,
    FLAG_LEASED,
    INTO_ACTIVE,
    WORK_SCOPE,
    Job,
    Unit,
    attempt_of,
    forbidden,
)
from disqued.core.model.ordered import OrderedUnits
from disqued.core.model.outbox import GONE_EXPIRED, JOB_ADDED, UNIT_DONE, Client
from disqued.core.model.queues import HOLDS, HOLDS_ALL, LIMITED, Queue
from disqued.core.model.state import State
from disqued.core.model.trace import DELIVER, ONCE, REQUEUE, UNSEEN
from disqued.core.model.unfinished import AT_ONCE, QuietParts
from disqued.core.model.waiters import Awaited, Form, Waiter, Watcher
from disqued.core.work.blocking import SERVED_AT_ONCE, Blocking
from disqued.core.work.kinds import StreamDelivery
from disqued.core.work.queueing import Queueing
from disqued.errors import NodeLeaving

OVER_AT_ONCE: Final = (
    500  #: jobs whose time is over that consumers drop within a millisecond on their way to a good one
)
OVER_PER_PART: Final = (
    1_000  #: such jobs dropped per part of the work on a queue that is behind, some milliseconds' work
)
SORTED_PER_PART: Final = 500  #: jobs sorted into groups per part of the work on a queue that is behind
FETCHED_BYTES: Final = 1 << 20  #: names and bodies after which a fetch ends: only its last job makes a reply larger

_BITS_KNOWN: Final = 1_024
_BITS: Final = [number.bit_length() for number in range(_BITS_KNOWN)]  #: a method of an integer has to be looked for

Row = tuple[bytes | int | list[bytes], ...]


def counters_of(unit: Unit) -> Row:
    """What WITHCOUNTERS answers of a unit: names with their values."""
    return (b"nacks", unit.nacks, b"additional-deliveries", unit.redeliveries)


class PlainForm(Form):
    """GETJOB: (queue, id, body)."""

    __slots__ = ()

    def row(self, unit: Unit) -> Row:
        """A job as GETJOB answers it."""
        return (unit.queue, unit.id, unit.body)


class DetailedForm(Form):
    """GETJOB WITHCOUNTERS and WITHHEADERS: the same, and names with their values."""

    __slots__ = ("_with_counters", "_with_headers")

    def __init__(self, count: int = 1, *, with_counters: bool, with_headers: bool) -> None:
        super().__init__(count)
        self._with_counters: bool = with_counters
        self._with_headers: bool = with_headers

    def row(self, unit: Unit) -> Row:
        """A job with its counters, or with its headers and the number of this delivery, or with both."""
        row: Row = (unit.queue, unit.id, unit.body)
        if self._with_counters:
            row += counters_of(unit)
        if self._with_headers:
            words = [word for header in unit.options.terms.headers for word in header]
            row += (b"headers", words, b"attempt", attempt_of(unit))
        return row


PLAIN = PlainForm()
_COUNTED = DetailedForm(with_counters=True, with_headers=False)
_HEADED = DetailedForm(with_counters=False, with_headers=True)
_FULL = DetailedForm(with_counters=True, with_headers=True)


def form_with(*, counters: bool, headers: bool, count: int = 1) -> Form:
    """Return the form that answers what a consumer asks for, with up to `count` jobs once it has waited."""
    if count != 1:
        plain = not (counters or headers)
        return PlainForm(count) if plain else DetailedForm(count, with_counters=counters, with_headers=headers)
    if headers:
        return _FULL if counters else _HEADED
    return _COUNTED if counters else PLAIN


class Delivery:
    """The machine between the queues and the consumers of one node."""

    __slots__ = (
        "_catches_up", "_over", "_over_at", "_rest", "_served", "_state", "_streams", "blocking",
        "queueing",
    )  # fmt: skip

    def __init__(self, state: State, queueing: Queueing, blocking: Blocking, streams: StreamDelivery) -> None:
        self._state = state
        self._catches_up = False  #: `_catch_up` is under way
        self.queueing = queueing
        self.blocking = blocking
        self._streams = streams
        self._over_at = 0
        self._served = 0  #: consumers answered by `serve` in this part
        #: Queues with more consumers to be answered than one part answers; None = there are none.
        self._rest: dict[Queue, None] | None = None
        self._over = 0  #: jobs dropped by consumers in the millisecond `_over_at`

    def drain(self, queues: list[Queue], count: int, span_ms: int = 0) -> list[Unit]:
        """Take up to `count` jobs, each queue until it has no more before the next one; fewer of large ones.

        None as long as a queue is limited, and its steward has yet to say whether it comes first (`heard_steward`).
        With a span, consumers have them for so long, whatever their retry period is.
        """
        taken: list[Unit] = []
        size = 0
        for queue in queues:
            while len(taken) < count and size < FETCHED_BYTES:
                unit = self.take(queue, span_ms)
                if unit is None:
                    if not taken and self._is_asked(queue):
                        self._want_all(queues)
                        return taken
                    break
                taken.append(unit)
                size += len(unit.queue) + len(unit.body)
        return taken

    def fetch(self, queues: list[Queue], count: int) -> list[Unit]:
        """Take up to `count` jobs, one from each queue in turn, and round again; fewer of large ones.

        None as long as a queue is limited, and its steward has yet to say whether it comes first (`heard_steward`).
        """
        taken: list[Unit] = []
        size = 0
        while queues:
            giving: list[Queue] = []
            for queue in queues:
                unit = self.take(queue)
                if unit is not None:
                    taken.append(unit)
                    if len(taken) == count:
                        return taken
                    size += len(unit.queue) + len(unit.body)
                    if size >= FETCHED_BYTES:
                        return taken
                    giving.append(queue)
                elif not taken and self._is_asked(queue):
                    self._want_all(queues)
                    return taken
            # One that is empty now has nothing to give in the next round either.
            queues = giving
        return taken

    def take(self, queue: Queue, span_ms: int = 0) -> Unit | None:
        """Take the oldest job of a queue, if it has one to give, for its retry period or for that span."""
        state = self._state
        units = queue.units
        needs_slot = False
        if queue.holds & HOLDS:
            units = self._to_give(queue)
            needs_slot = queue.holds & LIMITED != 0
        while len(units):
            unit = units.pop_first()
            assert isinstance(unit, Job)  # the one unit of a job of work
            job = unit
            assert INTO_ACTIVE[unit.state], forbidden(unit.state, ACTIVE)
            unit.state = ACTIVE
            if job.expires_at <= state.now:
                if self._drop_instead(queue, units, job):
                    continue
                return None
            retry_ms = unit.options.retry_ms
            unit.flags |= FLAG_DELIVERED | FLAG_LEASED
            if retry_ms:
                actor = state.trace.actor
                try:
                    consumer = state.custody.consumers[actor]
                except KeyError:
                    consumer = state.custody.meet(actor)
                queue.leased[unit] = (state.now, consumer)
                requeued_by = unit.requeue_at
                unit.requeue_at = requeue_at = state.now + retry_ms
                waited_ms = requeue_at - requeued_by
                if unit.additional_deliveries or unit.nacks:
                    state.counters.redelivered += 1
                if span_ms or needs_slot or unit.options.notes_deliveries:
                    self.queueing.leases.announce(job, span_ms, has_slot=needs_slot)
                    self.queueing.reschedule(job)
                elif unit.awake_at > requeue_at or job.holders is not None:
                    self.queueing.reschedule(job)
            else:
                waited_ms = max(0, state.wall - job.ctime // 1_000_000 - job.options.delay_ms)
                self._delivered_once(job, has_slot=needs_slot)
            if state.trace.full is not None:
                if retry_ms and not unit.nacks and not unit.additional_deliveries and job.options.has_short_lines:
                    state.trace.full.deliver(job, waited_ms)
                else:
                    word = b"" if retry_ms else ONCE
                    state.note(DELIVER, unit, span_ms=waited_ms, who=state.trace.actor, word=word)
            counters = state.counters
            counters.waiting_buckets[_BITS[waited_ms] if 0 <= waited_ms < _BITS_KNOWN else waited_ms.bit_length()] += 1
            counters.waiting_ms += waited_ms
            queue.jobs_out += 1
            queue.accessed_at = state.now
            return unit
        return None

    def _drop_instead(self, queue: Queue, units: OrderedUnits, job: Job) -> bool:
        """Drop a job whose time is over, rather than hand it out; return whether the next one can be looked at."""
        self._state.forget(job, GONE_EXPIRED)
        if self.has_dropped_enough(queue):
            return False
        return units is not queue.grouped or queue.grouped.pass_over(job)

    def _to_give(self, queue: Queue) -> OrderedUnits:
        """Return the units to take from of a queue of which something holds jobs back; empty = it gives none now."""
        if queue.holds & HOLDS_ALL:
            return NOTHING_GIVEN
        if not queue.holds & LIMITED:
            return queue.units if queue.units.ready_count else NOTHING_GIVEN
        assert queue.grouped is not None
        if not len(queue.given) or self._state.now >= queue.grouped.given_until:
            self._want(queue)
            return NOTHING_GIVEN
        return queue.given

    def has_dropped_enough(self, queue: Queue) -> bool:
        """Count a job that was dropped because its time is over; say whether the others have to wait."""
        state = self._state
        if self._over_at != state.now:
            self._over_at, self._over = state.now, 0
        self._over += 1
        if self._over < OVER_AT_ONCE:
            return False
        if len(queue.units):
            self.fall_behind(queue)
        return True

    def fall_behind(self, queue: Queue) -> None:
        """Let consumers wait, NOHANG or not, until it is known which job a queue gives next, if it has one."""
        state = self._state
        state.waiting.behind[queue] = None
        if not self._catches_up:
            self._catches_up = True
            state.work(self._catch_up())

    def _want(self, queue: Queue) -> None:
        """Let the steward of a limited queue be asked; consumers wait for the answer, NOHANG or not."""
        state = self._state
        if queue.units.ready_count:
            state.waiting.behind[queue] = None
            state.waiting.asking[queue] = None
        wanted = state.waiting.wanted
        wanted.queues[queue] = None
        if not wanted.awake_at:
            state.schedule.add(wanted, AT_ONCE)

    def _is_asked(self, queue: Queue) -> bool:
        return queue.holds & LIMITED != 0 and queue in self._state.waiting.asking

    def _want_all(self, queues: list[Queue]) -> None:
        """Let the stewards of all these be asked at once, where they have some."""
        for queue in queues:
            if queue.holds & LIMITED:
                self._want(queue)

    def heard_steward(self, queue: Queue) -> None:
        """Let those take from other queues who named them behind this one, and those go who would not wait."""
        state = self._state
        if state.waiting.asking.pop(queue, self) is not None:
            return
        state.waiting.behind.pop(queue, None)
        for waiter in queue.waiters:
            if len(waiter.queues) > 1 and not self.is_behind(waiter.queues):
                free = [other for other in waiter.queues if isinstance(other, Queue) and not other.holds & LIMITED]
                state.ready.update({other: None for other in free if other.units.ready_count})
        if state.ready:
            self.serve()
        self._let_go(queue)

    def _catch_up(self) -> QuietParts:
        """Make the queues ready that are behind, and serve those who wait.

        Their jobs are sorted into groups, if they are to be, and those in front are dropped whose time is over.
        """
        state = self._state
        # A flush puts other dicts in the place of these.
        while len(state.waiting.behind) > len(state.waiting.asking):
            queue = next(queue for queue in state.waiting.behind if queue not in state.waiting.asking)
            is_sorted = queue.grouped is None or queue.grouped.go_on(SORTED_PER_PART)
            if self._drop_over(queue) and is_sorted:
                self._serve_behind(queue)
            elif not is_sorted:
                state.ready[queue] = None
            yield
        self._catches_up = False

    def _drop_over(self, queue: Queue) -> bool:
        """Drop jobs whose time is over from the front of a queue; say whether none is left there."""
        for _ in range(OVER_PER_PART):
            if not self._begins_with_over(queue):
                return True
            unit = queue.units.pop_first()
            assert INTO_ACTIVE[unit.state], forbidden(unit.state, ACTIVE)
            unit.state = ACTIVE
            self._state.forget(unit.job, GONE_EXPIRED)
        return False

    def _begins_with_over(self, queue: Queue) -> bool:
        return queue.units.ready_count > 0 and queue.units.head.job.expires_at <= self._state.now

    def _serve_behind(self, queue: Queue) -> None:
        """Serve those who wait for a queue whose first job is good; who would not wait hears if there is no more."""
        state = self._state
        state.ready[queue] = None
        self.serve()
        if self._begins_with_over(queue):
            return
        self._let_go(queue)

    def _let_go(self, queue: Queue) -> None:
        """Note that it is known what a queue has to give; who would not wait hears that it is nothing."""
        self._state.waiting.behind.pop(queue, None)
        for waiter in list(queue.waiters):
            if waiter.nohang and not self.is_behind(waiter.queues):
                self.blocking.timed_out(waiter)

    def is_behind(self, queues: Iterable[Awaited]) -> bool:
        """Tell whether one of these queues may have a job that nobody could look at yet."""
        return not self._state.waiting.behind.keys().isdisjoint(queues)

    def _delivered_once(self, job: Job, *, has_slot: bool) -> None:
        """Make sure that an at-most-once job is never handed out again, whatever happens from here on."""
        state = self._state
        state.custody.evictable[job] = None
        state.queues.counts[job.queue].once += 1
        if has_slot:
            # It is written down as leased until its slot ends, which forbids the same.
            self.queueing.leases.announce(job, has_slot=True)
        elif state.journaling:
            state.outbox.journal.append((UNIT_DONE, job.id, WORK_SCOPE))

    def give_back(self, units: list[Unit]) -> None:
        """Queue again what was taken for a consumer that turned out to be gone before it heard of it."""
        state = self._state
        for unit in units:
            # An event that another node gave is here as a unit alone, without its job.
            if unit.options.kind:
                self._streams.vanished(unit)
                continue
            job = unit.job
            if state.jobs.get(job.id) is not job or job.state != ACTIVE:
                continue
            if not job.options.retry_ms:
                job.flags &= ~FLAG_DELIVERED
                state.custody.evictable.pop(job, None)
                if state.journaling:
                    state.outbox.journal.append((JOB_ADDED, job))
            state.note(REQUEUE, job, word=UNSEEN)
            if job.flags & FLAG_DROPPED:
                # It ends in a moment.
                self.queueing.put_off(job, state.now)
                self.queueing.reschedule(job)
                continue
            queue = state.queue(job.queue)
            self.queueing.enqueue_new(job, queue)
            self.queueing.note_untried(job)
            queue.jobs_in -= 1
            queue.jobs_out -= 1
            state.counters.returned += 1

    def wait(
        self, client: Client, queues: list[Queue], timeout_ms: int, form: Form = PLAIN, *, nohang: bool = False
    ) -> None:
        """Block a consumer until one of the queues has a job, or for `timeout_ms`; 0 = for ever.

        With `nohang` only until none of them is behind.
        """
        waiter = Waiter(client, list(dict.fromkeys(queues)), form, nohang=nohang)
        self.blocking.block(waiter, timeout_ms)

    def watch(self, client: Client, queues: list[Queue], timeout_ms: int) -> None:
        """Block a client until it can hear the name of a queue that has a job, or for `timeout_ms`."""
        self.blocking.block(Watcher(client, queues, PLAIN), timeout_ms)

    def has_some(self, queue: Queue) -> bool:
        """Tell whether a queue has a job to give; jobs in front whose time is over are dropped."""
        while not queue.holds & HOLDS_ALL and queue.units.ready_count:
            if not self._begins_with_over(queue):
                return True
            unit = queue.units.pop_first()
            assert INTO_ACTIVE[unit.state], forbidden(unit.state, ACTIVE)
            unit.state = ACTIVE
            self._state.forget(unit.job, GONE_EXPIRED)
            if self.has_dropped_enough(queue):
                break
        return False

    def _tell_watchers(self, queue: Queue) -> None:
        """Let all who want to hear of it know that a queue has a job, if it has one: nothing is kept for them."""
        if self.has_some(queue):
            for watcher in list(queue.watchers):
                if self._served >= SERVED_AT_ONCE:
                    self._state.ready[queue] = None
                    return
                self._served += 1
                self.blocking.stop_waiting(watcher.client)
                self._state.outbox.replies.append((watcher.client, queue.name, []))

    def _serve_rest(self, rest: dict[Queue, None]) -> QuietParts:
        """Go on with queues that have very many consumers."""
        state = self._state
        while rest:
            yield
            queues = list(rest)
            rest.clear()
            for queue in queues:
                # A flush forgets them.
                if state.queues.by_name.get(queue.name) is queue:
                    state.ready[queue] = None
            self.serve()
        self._rest = None

    def _put_off(self, ready: dict[Queue, None]) -> None:
        """Serve these in the next part."""
        if self._rest is None:
            self._rest = {}
            self._state.work(self._serve_rest(self._rest))
        self._rest.update(ready)
        ready.clear()

    def serve(self) -> None:
        """Hand jobs to those who wait for the queues that became ready in this step; to very many bit by bit."""
        state = self._state
        ready, actor = state.ready, state.trace.actor
        self._served = 0
        while ready:
            if self._served >= SERVED_AT_ONCE:
                self._put_off(ready)
                break
            queue = next(iter(ready))
            del ready[queue]
            if queue.stream is not None:
                self._streams.serve(queue)
            while queue.waiters:
                if self._served >= SERVED_AT_ONCE:
                    ready[queue] = None
                    break
                self._served += 1
                waiter = next(iter(queue.waiters))
                state.act_for(waiter.client)
                unit = self.take(queue)
                if unit is None:
                    break
                self.blocking.stop_waiting(waiter.client)
                form = waiter.form
                units = [unit] if form.count == 1 else [unit, *self.drain([queue], form.count - 1)]
                state.outbox.replies.append((waiter.client, [form.row(unit) for unit in units], units))
            state.act_for(actor)
            if queue.watchers:
                self._tell_watchers(queue)

    def set_leaving(self, *, leaving: bool) -> None:
        """Start or stop leaving the cluster; consumers that wait are sent elsewhere."""
        self._state.leaving = leaving
        if leaving:
            self.blocking.refuse_waiters(NodeLeaving())
