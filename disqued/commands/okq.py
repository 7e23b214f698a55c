"""Work queues as okq has them: events whose ids their producers choose, a side to push at, and a time for each fetch.

    QLPUSH --> left [event event event] right --QRPOP--> consumer --QACK--> gone
    QRPUSH ------------------------------^ ^               |
                                           +---------------+ its EX seconds are over: served next

What is pushed at the right is served next, the last one first.  An event whose time with a consumer is over goes there,
too, at that moment.  QNOTIFY names a queue that has something and keeps nothing for whom it tells.

Ids are unique among the events of a queue: a push asks the other nodes, and so does a QACK of an id that is not here.
On the two sides of a partition the same id may be taken, and QACK acknowledges both where it finds them.

Source: okq, as the bananaq README lists its commands.
"""

from functools import partial
from itertools import chain
from typing import Any

import attrs

from disqued.commands.jobs import REPLICATE
from disqued.commands.lists import PUSH_MS, list_options
from disqued.commands.names import EVENT, jobs_called, name_of
from disqued.commands.shapes import OK, bulk, handing_out_one, null_or, tuple_of
from disqued.commands.table import BLOCKED, Flag, command, flag, option, positional
from disqued.commands.taking import existing, note_taken, with_new, work_queue
from disqued.commands.values import (
    BYTES,
    NAME,
    QUEUE,
    SECOND,
    SECONDS_MAX,
    TAKER,
    read_span,
    readable,
    span,
)
from disqued.core.model.job import ALIAS_MAX, ALL_STATES
from disqued.core.model.messages import ACK_EVERY, HAS
from disqued.core.model.outbox import Client
from disqued.core.model.queues import LIMITED, Queue
from disqued.core.model.unfinished import Parts
from disqued.core.model.worker import Worker
from disqued.core.node import Node
from disqued.core.work.inquiries import AliasFindings
from disqued.core.work.replication import Batch
from disqued.errors import (
    CommandError,
    HasLimits,
    NodeLeaving,
    NotReplicated,
    NoWorker,
    OutOfMemory,
    QueuePaused,
    WrongType,
)
from disqued.wire.replies import AddedStatus, Handed, Status

HELD_MS = 30_000  #: how long a consumer has an event when it does not say
SHOWN_AT_ONCE = 2_000  #: queues that QSTATUS and QINFO show in one reply
PEEKED_AT = 1_000  #: events whose time is over that a peek passes over
GROUPLESS = b"-"  #: the one group of a work queue

_BUSY = "too busy to process NOBLOCK event"
_DUPLICATE = "duplicate event <id>"
DONE_AT_ONCE = "WORKER does not go with EX 0: what is done at once does not come back from anybody"
_LONG_ID = f"an event id has {ALIAS_MAX - 1} bytes at most"
BAD_PATIENCE = f"timeout must be a number of seconds, 0 to {SECONDS_MAX - 1}"
TOO_MANY = f"more than {SHOWN_AT_ONCE} queues are active; name those to show, or walk over all with QSCAN"


def _read_held(text: bytes) -> int:
    """Read how long a consumer wants to have an event; 0 = it is done at once."""
    shown = text[:32].decode("utf-8", "backslashreplace")
    try:
        held_ms = read_span(text, SECOND)
    except ValueError:
        raise CommandError(f"bad expires value: {shown!r} is not a number of seconds") from None
    if held_ms < 0:
        raise CommandError(f"bad expires value: {shown} < 0")
    if held_ms >= SECONDS_MAX * SECOND:
        raise CommandError(f"bad expires value: {shown} is not below {SECONDS_MAX}")
    return held_ms


#: How long to wait for word of an event; 0 = not at all.
PATIENCE = span(
    SECOND, 0, SECONDS_MAX * SECOND - 1, BAD_PATIENCE, f"0 to {SECONDS_MAX - 1} seconds, with fractions"
)  # fmt: skip
HELD = attrs.evolve(PATIENCE, read=_read_held, errors=("ERR bad expires value: …",))
EVENT_ROW = null_or(tuple_of("[event id, contents]", bulk("event id"), bulk("contents")))
_PUSH_ERRORS = (_DUPLICATE, _LONG_ID, _BUSY, NotReplicated, QueuePaused, OutOfMemory, WrongType)


@attrs.define
class _Push:
    """What the two commands that push share."""

    queue: bytes = positional("Queue to push to; it comes into being when it is first used.", QUEUE)
    event_id: bytes = positional("Id of the event, which no other one of the queue may have.", NAME)
    contents: bytes = positional("The event itself, any bytes.", BYTES)
    noblock: bool = flag("NOBLOCK", "Reply at once and go on in the background.")
    replicate: int = option("REPLICATE", "Nodes that shall hold the event.", REPLICATE, 0)

    def push(self, node: Node, client: Client, *, front: bool) -> Any:
        """Add the event; returns OK, or BLOCKED.  Raises CommandError."""
        if len(self.event_id) >= ALIAS_MAX:
            raise CommandError(_LONG_ID)
        lists, inquiries = node.lists, node.inquiries
        if self.noblock and lists.background >= lists.pool_size:
            raise CommandError(_BUSY)
        if not self.noblock:
            self._check_free(node)
        lists.background += self.noblock
        add = partial(self._push_in_background if self.noblock else self._push_and_wait, node, client, front)
        if inquiries.can_ask:
            inquiries.ask(None if self.noblock else client, HAS, self.queue, [EVENT + self.event_id], add)
            return Status(b"OK") if self.noblock else BLOCKED
        value = add({})
        return BLOCKED if value is inquiries.waits else value

    def _push_in_background(self, node: Node, client: Client, front: bool, found: dict[bytes, AliasFindings]) -> Any:
        lists = node.lists
        batch = Batch(None, lists.over_in_background)
        try:
            self._add(node, batch, found, front=front)
        except CommandError:
            # Who sends NOBLOCK does not want to hear of it; INFO counts it.
            batch.is_over = True
            lists.over_in_background(failed=True)
        else:
            if batch.is_over:
                lists.over_in_background(failed=False)
        return Status(b"OK")

    def _push_and_wait(self, node: Node, client: Client, front: bool, found: dict[bytes, AliasFindings]) -> Any:
        batch = Batch(client)
        job_id = self._add(node, batch, found, front=front)
        batch.value = AddedStatus(b"OK", (job_id,))
        return batch.value if batch.is_over else node.inquiries.waits

    def _check_free(self, node: Node) -> None:
        """Refuse an id that is taken on this node.  Raises CommandError."""
        alias = EVENT + self.event_id
        if node.state.aliases.by_name(self.queue, alias) or node.inquiries.is_claimed(self.queue, alias):
            raise self._duplicate

    @property
    def _duplicate(self) -> CommandError:
        return CommandError(f"duplicate event {readable(self.event_id)}")

    def _add(self, node: Node, batch: Batch, found: dict[bytes, AliasFindings], *, front: bool) -> bytes:
        """Add the event, as one of a batch, unless another node has it; returns its job id.  Raises CommandError."""
        alias = EVENT + self.event_id
        self._check_free(node)
        if found:
            raise self._duplicate
        [job] = node.additions.add_together(
            batch, self.queue, [self.contents], list_options(node, replicate=self.replicate), lambda _: alias,
            maxlen=0, timeout_ms=PUSH_MS, asynchronous=False,
            by_default=not self.replicate and not node.lists.replicate, front=front,
        )  # fmt: skip
        return job.id


@command(
    "QLPUSH", group="lists", flags=Flag.WRITE | Flag.DENY_OOM | Flag.FAST, reply=OK, cost="O(1)", errors=_PUSH_ERRORS,
    is_large=True,
)  # fmt: skip
@attrs.define
class QLPush(_Push):
    """Add an event at the left of a queue: it is served after all that are there.

    The reply comes when the event has its copies.  With NOBLOCK it comes at once, and what goes wrong then, a
    duplicate id too, is counted in INFO; refused when bg-push-pool-size pushes are under way in the background.
    """

    def run(self, node: Node, client: Client) -> Any:
        """Add it; returns OK, or BLOCKED."""
        return self.push(node, client, front=False)


@command(
    "QRPUSH", group="lists", flags=Flag.WRITE | Flag.DENY_OOM | Flag.FAST, reply=OK, cost="O(1)", errors=_PUSH_ERRORS,
    is_large=True,
)  # fmt: skip
@attrs.define
class QRPush(_Push):
    """Add an event at the right of a queue: it is served next, before all that are there."""

    def run(self, node: Node, client: Client) -> Any:
        """Add it; returns OK, or BLOCKED."""
        return self.push(node, client, front=True)


@attrs.define
class _Peek:
    """What the two commands that look share."""

    queue: bytes = positional("Queue to look into.", QUEUE)

    def peek(self, node: Node, *, newest: bool) -> tuple[bytes, bytes] | None:
        """The first event from that side whose time is not over."""
        queue = work_queue(node, self.queue)
        if queue is None:
            return None
        units = reversed(queue.units) if newest else iter(queue.units)
        for _, unit in zip(range(PEEKED_AT), units, strict=False):
            if unit.job.expires_at > node.state.now:
                return (name_of(unit.job, EVENT), unit.body)
        return None


@command(
    "QLPEEK", group="lists", flags=Flag.READ | Flag.FAST, reply=EVENT_ROW, cost="O(1)", errors=(WrongType,),
    shows_bodies=True,
)  # fmt: skip
@attrs.define
class QLPeek(_Peek):
    """Look at the left-most event that waits on this node: the one that is served last."""

    def run(self, node: Node, client: Client) -> tuple[bytes, bytes] | None:
        return self.peek(node, newest=True)


@command(
    "QRPEEK", group="lists", flags=Flag.READ | Flag.FAST, reply=EVENT_ROW, cost="O(1)", errors=(WrongType,),
    shows_bodies=True,
)  # fmt: skip
@attrs.define
class QRPeek(_Peek):
    """Look at the right-most event that waits on this node: the one that is served next."""

    def run(self, node: Node, client: Client) -> tuple[bytes, bytes] | None:
        return self.peek(node, newest=False)


@command(
    "QRPOP", group="lists", flags=Flag.WRITE | Flag.FAST, reply=handing_out_one(EVENT_ROW), cost="O(1)",
    errors=(DONE_AT_ONCE, NoWorker, WrongType, HasLimits), shows_bodies=True,
)  # fmt: skip
@attrs.define
class QRPop:
    """Take the next event of a queue, for EX seconds: without QACK it is then the next one again.

    A job that is delivered at most once is not given again.  Nothing is waited for: that is what QNOTIFY is for.

    With WORKER the event belongs to a worker (WORKER START): if it dies within the EX seconds the event is the next one
    again at once.

    A queue with limits (QPOLICY) is refused.
    """

    queue: bytes = positional("Queue to take from.", QUEUE)
    held: int = option("EX", "Seconds until it is given to somebody else; 0 = it is done at once.", HELD, HELD_MS)
    worker: bytes | None = option("WORKER", "Who takes it: if it dies the event is queued again, in front.", TAKER)

    def run(self, node: Node, client: Client) -> Handed | None:
        state = node.state
        worker = None if self.worker is None else taker(node, self.worker, self.held)
        queues = existing(node, [self.queue])
        if any(queue.holds & LIMITED for queue in queues):
            raise HasLimits
        units = node.delivery.drain(queues, 1, self.held)
        if not units:
            if state.peers.linked:
                node.federation.local_demand.need(with_new(node, [self.queue]))
            return None
        job = units[0].job
        note_taken(node, queues, units, worker)
        row = Handed((name_of(job, EVENT), job.body), job.id)
        if not self.held:
            node.acks.acknowledge(job.id)
        return row


def taker(node: Node, worker_id: bytes, held: int) -> Worker:
    """The worker that takes something for so long.  Raises NoWorker (NOWORKER), CommandError when it keeps nothing."""
    if not held:
        raise CommandError(DONE_AT_ONCE)
    return node.workers.named(worker_id)


def acknowledge(node: Node, client: Client, queue: bytes, event_id: bytes) -> Any:
    """Acknowledge every job of a queue that has this event id, or this job id; returns 1 or 0, or BLOCKED."""
    jobs = jobs_called(node.state, queue, EVENT, event_id)
    if jobs or not node.inquiries.can_ask or len(event_id) >= ALIAS_MAX:
        return int(sum(map(node.acks.acknowledge, [job.id for job in jobs])) > 0)
    node.inquiries.ask(client, ACK_EVERY, queue, [EVENT + event_id], _one_if_any)
    return BLOCKED


def _one_if_any(found: dict[bytes, AliasFindings]) -> int:
    return int(bool(found))


def notify(node: Node, client: Client, names: list[bytes], timeout_ms: int) -> Any:
    """Name one of these queues that has a job, or wait for one; returns a name, None, or BLOCKED."""
    state, delivery = node.state, node.delivery
    queues = existing(node, names)
    state.numbers.rng.shuffle(queues)
    for queue in queues:
        if delivery.has_some(queue):
            return queue.name
    if timeout_ms and state.leaving:
        raise NodeLeaving
    queues = with_new(node, names) if timeout_ms or state.peers.linked else queues
    if timeout_ms and len(queues) < len(names):
        raise OutOfMemory
    if timeout_ms:
        delivery.watch(client, queues, timeout_ms)
    if state.peers.linked:
        node.federation.local_demand.need(queues)
    return BLOCKED if timeout_ms else None


def flushed(node: Node, name: bytes) -> Parts:
    """Acknowledge every event of a queue, those that consumers have too, bit by bit; returns OK."""
    yield from node.purges.purge_here(name, ALL_STATES)
    return Status(b"OK")


STATISTICS = (b"total", b"inprogress", b"redo", b"done", b"available", b"consumers")


def statistics(node: Node, name: bytes) -> tuple[int, ...]:
    """The statistics of a queue on this node, in the order of STATISTICS.

    A work queue forgets what is done, and does not tell what came back from what is new.
    """
    queue = node.state.queues.by_name.get(name)
    waiting = inprogress = waiters = 0
    if queue is not None:
        waiting, inprogress = len(queue.units), len(queue.leased)
        has = node.consumers.has
        waiters = sum(not has(waiter.client, name) for waiter in chain(queue.waiters, queue.watchers))
    return (waiting + inprogress, inprogress, 0, 0, waiting, waiters + node.consumers.count(name))


def is_active(node: Node, queue: Queue) -> bool:
    """Tell whether a queue of work holds or awaits something."""
    return bool(len(queue.units) or queue.leased or queue.is_awaited or node.consumers.count(queue.name))
