"""Commands on streams: entries with a time to live, which every group of consumers gets.

    QADD  QGET  QACK  QNOTIFY  QREGISTER  QFLUSH        (what groups made of it: `groups`)

Source: the README of bananaq, whose grammar and replies these are; options beyond it are ours.
"""

from collections.abc import Iterable
from typing import Any

import attrs

from disqued.commands import okq
from disqued.commands.durations import Duration, duration, read_duration
from disqued.commands.jobs import JOBS_AT_ONCE, MAXLEN, REPLICATE
from disqued.commands.okq import PATIENCE
from disqued.commands.shapes import OK, Shape, array, bulk, either, integer, null_or, status
from disqued.commands.table import BLOCKED, Flag, command, flag, option, positional, rest
from disqued.commands.values import BYTES, NAME, QUEUE, TAKER, Kind, read_job_id
from disqued.commands.values import integer as integer_kind
from disqued.core.model.groups import LOG_COST, Behind, EntryForm, cost_of_group
from disqued.core.model.job import KIND_LOG, RETRY_NEVER_MS, Unit
from disqued.core.model.messages import ACK
from disqued.core.model.outbox import Client
from disqued.core.model.queues import Queue
from disqued.core.model.unfinished import Parts
from disqued.core.model.waiters import Form
from disqued.core.node import Node
from disqued.errors import (
    BadJobId,
    Busy,
    CommandError,
    JournalFailed,
    NodeLeaving,
    NotReplicated,
    NoWorker,
    OutOfMemory,
    QueuePaused,
    QueueTooLong,
    SyntaxFault,
    WrongType,
)
from disqued.wire.replies import Handed, Status

DEFAULT_LEASE = Duration(30_000)
GROUP_NAME_MAX = 65_000  #: bytes

DONE = Status(b"OK")

_NAME_TOO_LONG = f"the name of a group has {GROUP_NAME_MAX} bytes at most"
_DELAY = "DELAY must be less than expireSeconds: the event would never be delivered"
_PAST = "expireSeconds names a moment that is over"
_STRICT = "STRICT goes with EX 0 alone: it says which events may be given away without an acknowledgement"
_TWO_DEADLINES = "EX and DEADLINE are the same: give one of them"


def _read_group(text: bytes) -> bytes:
    if len(text) > GROUP_NAME_MAX:
        raise CommandError(_NAME_TOO_LONG)
    return text


GROUP = Kind("string", _read_group, f"any bytes, {GROUP_NAME_MAX} at most", errors=(f"ERR {_NAME_TOO_LONG}",))
EXPIRE = duration("expireSeconds", zero=False)
EX = duration("EX", zero=True)
DEADLINE = duration("DEADLINE", zero=True)
BLOCK = duration("BLOCK", zero=True)
DELAY = duration("DELAY", zero=True)
TIMEOUT = duration("timeout", zero=True)
COUNT = integer_kind(1, JOBS_AT_ONCE, f"COUNT must be a whole number from 1 to {JOBS_AT_ONCE}", f"1 to {JOBS_AT_ONCE}")

# Adding.


@command(
    "QADD", group="logs", flags=Flag.WRITE | Flag.DENY_OOM | Flag.FAST,
    reply=status("the id of the event; OK with NOBLOCK"), cost="O(1) per group of the queue as a rule",
    errors=(_DELAY, _PAST, WrongType, NotReplicated, QueueTooLong, QueuePaused, Busy), is_large=True,
)  # fmt: skip
@attrs.define
class QAdd:
    """Add an event to a log, where it stays until its time is over.

    Every group of consumers gets it (QGET).  The reply comes when REPLICATE nodes hold the event, or NOREPL when they
    do not within qadd-timeout.  With NOBLOCK it comes at once, OK, and the copies are made in the background, for
    bg-qadd-pool-size events at a time; above that the answer is BUSY.  Events that came to nothing there are counted
    in INFO.
    """

    queue: bytes = positional("Queue to add to; it comes into being when it is first used.", QUEUE)
    expire_seconds: Duration = positional("Seconds from now until the event ends, done or not.", EXPIRE)
    contents: bytes = positional("The event itself; never looked at.", BYTES)
    noblock: bool = flag("NOBLOCK", "Reply OK at once and copy in the background.")
    replicate: int | None = option(
        "REPLICATE", "Nodes that shall hold the event; as many as reachable, up to 3.", REPLICATE
    )
    delay: Duration = option("DELAY", "Seconds before any group can have it.", DELAY, Duration(0))
    maxlen: int = option("MAXLEN", "Refuse when the log has this many events already.", MAXLEN, 0)

    def run(self, node: Node, client: Client) -> Any:
        """Add the event; returns its id, OK, or BLOCKED."""
        state, streams, background = node.state, node.streams, node.streams.background
        ttl_ms, delay_ms = self.expire_seconds.left_ms(state.wall), self.delay.left_ms(state.wall)
        if not ttl_ms:
            raise CommandError(_PAST)
        if delay_ms >= ttl_ms:
            raise CommandError(_DELAY)
        if self.noblock and background.is_full:
            raise Busy
        replicate = self.replicate or node.placement.default_copies
        event_id = node.additions.add(
            background if self.noblock else client, self.queue, self.contents,
            state.shared.options(ttl_ms, RETRY_NEVER_MS, delay_ms, replicate, KIND_LOG),
            maxlen=self.maxlen, timeout_ms=streams.add_timeout_ms, asynchronous=False,
            by_default=self.replicate is None,
        )  # fmt: skip
        if not self.noblock:
            return BLOCKED if event_id is None else event_id
        background.running += event_id is None
        return DONE


# Getting.


class OneEvent(EntryForm):
    """QGET without COUNT: the event itself."""

    __slots__ = ()

    def row(self, unit: Unit) -> Handed:
        """An event: id and body."""
        return Handed((unit.id, unit.body), b"%b:%b" % (unit.id, unit.scope))

    def answer(self, units: list[Unit]) -> Any:
        """Answer the one event."""
        return self.row(units[0])


class SomeEvents(OneEvent):
    """QGET with COUNT."""

    __slots__ = ()

    def answer(self, units: list[Unit]) -> Any:
        """Answer all of them."""
        return [self.row(unit) for unit in units]


def _is_event(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(part, bytes) for part in value)


_GET_ERRORS = (WrongType, NodeLeaving, JournalFailed, OutOfMemory, NoWorker)
_EVENT = Shape("array: [id, contents]", _is_event)
_EVENTS = either(_EVENT, array(_EVENT, "with COUNT, of [id, contents]"))


def _handed_events(value: Any) -> list[bytes]:
    """What the node needs to know to take back what was answered: ids of events, each with the scope of the group."""
    rows = [value] if isinstance(value, Handed) else value or ()
    return [row.job_id for row in rows]


@command(
    "QGET", group="logs", flags=Flag.WRITE | Flag.FAST,
    # With EX 0 it says that the events are done, which must be written down.
    reply=attrs.evolve(null_or(_EVENTS), handed=_handed_events, promised=_handed_events), cost="O(log N) per event",
    errors=(_TWO_DEADLINES, _STRICT, okq.DONE_AT_ONCE, *_GET_ERRORS), shows_bodies=True,
)  # fmt: skip
@attrs.define
class QGet:
    """Take the next event that a group can have, oldest first; null when there is none.

    Within the group nobody else gets it until EX seconds have passed without a QACK: then it is available again, before
    what the group has not seen yet.  A new group begins at the oldest event.  With EX 0 the event is done for the group
    before it is sent, so that nobody of the group gets it a second time, whatever becomes of this consumer.

    Events of other nodes come, too: null means that no node that can be reached has one.  With BLOCK a consumer waits
    for an event if there is none, those of a group first come first served; the deadline counts from the delivery.
    BLOCK 0 does not wait but for the answers of other nodes.  With COUNT up to so many events are answered, each as
    [id, contents], and no more once they are a mebibyte together.

    With WORKER the events belong to a worker of this node (WORKER START): if it dies within the EX seconds they are
    available to the group again at once, before all others, on whatever node they were added.
    """

    queue: bytes = positional("Queue to take from.", QUEUE)
    group: bytes = positional("Group that the consumer belongs to; it comes into being by being named.", GROUP)
    ex: Duration | None = option("EX", "Seconds to acknowledge it in; 30 unless given, 0 = it is done at once.", EX)
    deadline: Duration | None = option("DEADLINE", "Another word for EX.", DEADLINE)
    strict: bool = flag("STRICT", "With EX 0: only events whose own node can be reached, which nobody else gives away.")
    block: Duration = option("BLOCK", "Seconds to wait when there is none.", BLOCK, Duration(0))
    count: int | None = option("COUNT", "Events to take at most; the reply is an array of events then.", COUNT)
    worker: bytes | None = option("WORKER", "Who takes them: if it dies the group can have them again.", TAKER)

    def run(self, node: Node, client: Client) -> Any:
        """Take events; returns one or several, None, or BLOCKED."""
        form = self._form(node)
        queue = node.state.queues.by_name.get(self.queue)
        if queue is not None:
            queue.check_kind(KIND_LOG)
            if queue.stream is not None:
                try:
                    units = _fetch(node, queue, self.group, form)
                except Behind:
                    node.in_parts(client, self._go_on(node, queue.name, form))
                    return BLOCKED
                if units:
                    return form.answer(units)
        return _wait(node, client, [self.queue], self.group, form, timeout_ms=self.block.left_ms(node.state.wall))

    def _form(self, node: Node) -> EntryForm:
        wall = node.state.wall
        if self.ex is not None and self.deadline is not None:
            raise CommandError(_TWO_DEADLINES)
        chosen = self.ex if self.ex is not None else self.deadline
        lease_ms = (chosen or DEFAULT_LEASE).left_ms(wall) if chosen != Duration(0) else 0
        if chosen is not None and chosen.is_moment:
            # A moment that is over is a deadline that was missed, and no wish to have it done at once.
            lease_ms = max(1, lease_ms)
        if self.strict and lease_ms:
            raise CommandError(_STRICT)
        worker = None if self.worker is None else okq.taker(node, self.worker, lease_ms)
        if self.count is None:
            return OneEvent(lease_ms, strict=self.strict, worker=worker)
        return SomeEvents(lease_ms, self.count, strict=self.strict, worker=worker)

    def _go_on(self, node: Node, name: bytes, form: EntryForm) -> Parts:
        """Look further, a part at a time, for an event behind very many that are not for the group."""
        while True:
            yield
            queue = node.state.queues.by_name.get(name)
            if queue is None or queue.stream is None:
                return None
            try:
                units = _fetch(node, queue, self.group, form)
            except Behind:
                continue
            return form.answer(units) if units else None


def _wait(node: Node, client: Client, names: list[bytes], group: bytes, form: Form, *, timeout_ms: int) -> Any:
    """Wait until a group can have something of one of these logs, on any node; returns BLOCKED, or None.

    Who does not want to wait, timeout 0, only waits to hear what other nodes have.
    """
    if not timeout_ms and not node.readers.can_ask:
        return None
    if node.state.leaving:
        raise NodeLeaving
    size = sum([cost_of_new_group(node, name, group) for name in names])
    if size:
        node.check_names(size)
    node.readers.wait(client, [node.state.queue(name) for name in names], group, timeout_ms, form)
    return BLOCKED


def cost_of_new_group(node: Node, name: bytes, group: bytes) -> int:
    """Bytes that a group of a queue takes, the queue and its log, as far as they are not there."""
    queue = node.state.queues.by_name.get(name)
    log = None if queue is None else queue.stream
    if log is not None and group in log.groups:
        return 0
    of_log = LOG_COST if log is None else 0
    return node.state.queues.cost_of_new([name]) + of_log + cost_of_group(group)


def check_new_group(node: Node, name: bytes, group: bytes) -> None:
    """Check that there is room for a group of a queue, if it is not there.  Raises OutOfMemory (OOM)."""
    size = cost_of_new_group(node, name, group)
    if size:
        node.check_names(size)


def _fetch(node: Node, queue: Queue, group_name: bytes, form: EntryForm) -> list[Any]:
    assert queue.stream is not None
    if form.worker is not None and not form.worker.is_alive:
        raise NoWorker
    check_new_group(node, queue.name, group_name)
    group = queue.stream.group(group_name)
    try:
        return node.entry_delivery.fetch(
            queue, group, form.lease_ms, form.count, strict=form.strict, worker=form.worker
        )
    finally:
        queue.stream.let_go(group)


@command(
    "QACK", group="logs", flags=Flag.WRITE | Flag.FAST,
    reply=integer("events that were acknowledged: of one id 1 or 0"), cost="O(1) per event",
    errors=(WrongType, BadJobId, _NAME_TOO_LONG),
)  # fmt: skip
@attrs.define
class QAck:
    """Acknowledge events as a member of a group: no consumer of the group gets them again.

    Any connection may say so, on any node, as long as some consumer of the group has the event and its deadline has
    not passed.  While the node that hands the event out cannot be reached, the answer waits until another one does.
    0 means that nothing was changed: the deadline passed, somebody else acknowledged it, or it is over.  Who hears 0
    may undo what it did.

    Without a group an event of okq is acknowledged (QLPUSH): it is done, wherever it is, also when it is back in its
    queue or was never taken out.  Of two nodes that are told of such an event within some milliseconds both may answer
    1; only an event of a log is decided by one node.
    """

    queue: bytes = positional("Queue of the events.", QUEUE)
    words: list[bytes] = rest("A group, and ids of events that it is done with; or the id of an event of okq.", NAME)

    def run(self, node: Node, client: Client) -> Any:
        """Acknowledge; returns how many there were to acknowledge, or BLOCKED while other nodes are asked."""
        if len(self.words) == 1:
            return okq.acknowledge(node, client, self.queue, self.words[0])
        group, ids = _read_group(self.words[0]), [read_job_id(word) for word in self.words[1:]]
        queue_of_log(node, self.queue)
        return settled(node, client, ACK, self.queue, group, ids=ids)


def settled(node: Node, client: Client, verb: int, name: bytes, group: bytes, *, ids: list[bytes]) -> Any:
    """Acknowledge events, or give them back; returns of how many that was so, or BLOCKED while others are asked."""
    count = node.reconciliation.settle(client, verb, name, group, ids=ids)
    return BLOCKED if count is None else count


def queue_of_log(node: Node, name: bytes) -> Queue | None:
    """The queue of a name, if there is one.  Raises WrongType (WRONGTYPE)."""
    queue = node.state.queues.by_name.get(name)
    if queue is not None:
        queue.check_kind(KIND_LOG)
    return queue


@command(
    "QNOTIFY", group="logs", flags=Flag.READ, reply=null_or(bulk("name of a queue")), cost="O(N) in the queues",
    errors=(
        WrongType,
        NodeLeaving,
        OutOfMemory,
        *(error.removeprefix("ERR ") for error in (*TIMEOUT.errors, *PATIENCE.errors)),
    ),
    is_of_connection=True,
)  # fmt: skip
@attrs.define
class QNotify:
    """Wait until a group can have an event of one of some queues, and answer the name of the queue.

    QNOTIFY group timeout [queue ...]: the group that asks, seconds to wait before null is answered (0 = do not wait),
    and the queues to watch; without queues those are meant that the connection is registered for (QREGISTER GROUP).
    QNOTIFY timeout: queues of work that the connection is registered for (QREGISTER).

    Nothing is reserved for who is told: the QGET or QRPOP that follows may find that another consumer was faster.  Of
    several queues that have something any is answered, so that a busy one does not hide the others.
    """

    words: list[bytes] = rest("A group, a time-out in seconds, and queues; or a time-out alone.", QUEUE)

    def queues_named(self) -> list[bytes]:
        """Those after the group and the time-out; what the connection is registered for was looked at then."""
        return self.words[2:]

    def run(self, node: Node, client: Client) -> Any:
        """Answer a name, None, or BLOCKED."""
        words = self.words
        if len(words) == 1:
            assert PATIENCE.read is not None
            patience_ms: int = PATIENCE.read(words[0])
            return okq.notify(node, client, list(node.consumers.queues_of(client)), patience_ms)
        group, timeout = _read_group(words[0]), read_duration(words[1], "timeout", zero=True)
        names = list(dict.fromkeys(words[2:] or _registered(node, client, group)))
        return _notify(node, client, group, names, timeout.left_ms(node.state.wall))


class QueueNameForm(Form):
    """QNOTIFY: the name of the queue that has something."""

    __slots__ = ()

    def row(self, unit: Unit) -> bytes:
        """The queue of an entry."""
        return unit.queue


_QUEUE_NAME = QueueNameForm()


def _notify(node: Node, client: Client, group: bytes, names: list[bytes], timeout_ms: int) -> Any:
    """Name one of these logs that has something for a group, or wait for one; returns a name, None, or BLOCKED."""
    shuffled = list(names)
    node.state.numbers.rng.shuffle(shuffled)
    for name in shuffled:
        queue = queue_of_log(node, name)
        if queue is not None and node.entry_delivery.has_event(queue, group):
            return name
    return _wait(node, client, names, group, _QUEUE_NAME, timeout_ms=timeout_ms)


def _registered(node: Node, client: Client, group: bytes) -> Iterable[bytes]:
    registration = node.streams.members.by_client.get(client)
    return registration.queues if registration is not None and registration.group == group else ()


@command(
    "QREGISTER", group="logs", flags=Flag.WRITE | Flag.FAST, reply=OK, cost="O(N) in the queues", errors=(OutOfMemory,),
    is_of_connection=True,
)  # fmt: skip
@attrs.define
class QRegister:
    """Make this connection a consumer of some queues, and of no others, as a member of a group or of none.

    QREGISTER [GROUP group] [queue ...].  QNOTIFY without queues watches them, and QSTATUS counts the consumer.  It ends
    with the connection, or with a QREGISTER that names no queues.
    """

    words: list[bytes] = rest("GROUP and a group, then queues; no queues = a consumer no more.", QUEUE, minimum=0)

    def queues_named(self) -> list[bytes]:
        """Those after the group, if there is one."""
        return self.words[2:] if self.words and self.words[0].upper() == b"GROUP" else self.words

    def run(self, node: Node, client: Client) -> Status:
        """Note it.  Raises OutOfMemory (OOM) when too many names are registered."""
        words = list(self.words)
        if words and words[0].upper() == b"GROUP":
            if len(words) == 1:
                raise SyntaxFault("syntax error - GROUP without its value: expected GROUP group [queue ...]")
            node.streams.members.register(client, _read_group(words[1]), words[2:])
            node.consumers.forget(client)
        else:
            node.consumers.register(client, words)
            node.streams.members.forget(client)
        return DONE


@command("QFLUSH", group="logs", flags=Flag.WRITE, reply=OK, cost="O(N) in the jobs of the node, bit by bit")
@attrs.define
class QFlush:
    """Remove all events of a queue, and all that groups made of them, as if the queue had never been.

    That is so on all nodes that can be reached, and on others when they come back, but for what was added there
    meanwhile.  Consumers that have events may go on with them; their QACK is answered 0.  Of a queue of work each job
    is acknowledged.  Very many are dropped bit by bit.  Who waits goes on waiting.
    """

    queue: bytes = positional("Queue to empty.", QUEUE)

    def run(self, node: Node, client: Client) -> Any:
        """Flush it; returns OK when there is little to do, else BLOCKED."""
        node.group_starts.flush(self.queue)
        parts = okq.flushed(node, self.queue)
        node.purges.tell_flush(self.queue)
        try:
            next(parts)
        except StopIteration as end:
            return end.value
        node.in_parts(client, parts)
        return BLOCKED
