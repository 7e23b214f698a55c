"""Commands on logs: events with a time to live, which every group of consumers gets.

    QADD  QGET  QACK  QNOTIFY  QREGISTER  QFLUSH  QSTATUS  QINFO  QGROUP

Source: the README of bananaq, whose grammar and replies these are; options beyond it are ours.
"""

from collections.abc import Iterable
from typing import Any

import attrs

from disqued.commands import okq
from disqued.commands.jobs import JOBS_AT_ONCE, MAXLEN, REPLICATE
from disqued.commands.okq import PATIENCE
from disqued.commands.shapes import OK, Shape, array, bulk, either, integer, null_or, status, tuple_of
from disqued.commands.spans import Span, read_span, span
from disqued.commands.table import BLOCKED, Flag, command, container, flag, option, positional, rest
from disqued.commands.values import BYTES, JOB_ID, NAME, QUEUE, Kind, read_job_id
from disqued.commands.values import integer as integer_kind
from disqued.core.groups import Behind, EventForm, Group
from disqued.core.ids import is_job_id
from disqued.core.job import KIND_LOG, RETRY_NEVER_MS, Event, Unit
from disqued.core.node import Node
from disqued.core.queues import Client, Queue
from disqued.core.unfinished import Parts
from disqued.errors import (
    BadJobId,
    Busy,
    CommandError,
    JournalFailed,
    NodeLeaving,
    NotReplicated,
    OutOfMemory,
    QueuePaused,
    QueueTooLong,
    SyntaxFault,
    UnknownJob,
    WrongType,
)
from disqued.wire.replies import Handed, Status

DEFAULT_LEASE = Span(30_000)
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
EXPIRE = span("expireSeconds", zero=False)
EX = span("EX", zero=True)
DEADLINE = span("DEADLINE", zero=True)
BLOCK = span("BLOCK", zero=True)
DELAY = span("DELAY", zero=True)
TIMEOUT = span("timeout", zero=True)
COUNT = integer_kind(1, JOBS_AT_ONCE, f"COUNT must be between 1 and {JOBS_AT_ONCE}", f"1 to {JOBS_AT_ONCE}")

# Adding.


@command(
    "QADD",
    group="logs",
    flags=Flag.WRITE | Flag.DENY_OOM | Flag.FAST,
    reply=status("the id of the event; OK with NOBLOCK"),
    cost="O(1) per group of the queue as a rule",
    errors=(_DELAY, _PAST, WrongType, NotReplicated, QueueTooLong, QueuePaused, Busy),
    is_large=True,
)
@attrs.define
class QAdd:
    """Add an event to a log, where it stays until its time is over.

    Every group of consumers gets it (QGET).  The reply comes when REPLICATE nodes hold the event, or NOREPL when they
    do not within qadd-timeout.  With NOBLOCK it comes at once, OK, and the copies are made in the background, for
    bg-qadd-pool-size events at a time; above that the answer is BUSY.  Events that came to nothing there are counted
    in INFO.
    """

    queue: bytes = positional("Queue to add to; it comes into being when it is first used.", QUEUE)
    expire_seconds: Span = positional("Seconds from now until the event ends, done or not.", EXPIRE)
    contents: bytes = positional("The event itself; never looked at.", BYTES)
    noblock: bool = flag("NOBLOCK", "Reply OK at once and copy in the background.")
    replicate: int | None = option(
        "REPLICATE", "Nodes that shall hold the event; as many as reachable, up to 3.", REPLICATE
    )
    delay: Span = option("DELAY", "Seconds before any group can have it.", DELAY, Span(0))
    maxlen: int = option("MAXLEN", "Refuse when the log has this many events already.", MAXLEN, 0)

    def run(self, node: Node, client: Client) -> Any:
        """Add the event; returns its id, OK, or BLOCKED."""
        state, logs, background = node.state, node.logs, node.logs.background
        ttl_ms, delay_ms = self.expire_seconds.left_ms(state.wall), self.delay.left_ms(state.wall)
        if not ttl_ms:
            raise CommandError(_PAST)
        if delay_ms >= ttl_ms:
            raise CommandError(_DELAY)
        if self.noblock and background.is_full:
            raise Busy
        replicate = self.replicate or node.replication.default_copies
        event_id = logs.add(
            background if self.noblock else client, self.queue, self.contents,
            state.options(ttl_ms, RETRY_NEVER_MS, delay_ms, replicate, KIND_LOG), node.replication,
            maxlen=self.maxlen, timeout_ms=logs.add_timeout_ms, by_default=self.replicate is None,
        )  # fmt: skip
        if not self.noblock:
            return BLOCKED if event_id is None else event_id
        background.running += event_id is None
        return DONE


# Getting.


class OneEvent(EventForm):
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


_EVENT = Shape("array: [id, contents]", _is_event)


def _handed_events(value: Any) -> list[bytes]:
    """What the node needs to know to take back what was answered: ids of events, each with the scope of the group."""
    rows = [value] if isinstance(value, Handed) else value
    return [row.job_id for row in rows]


@command(
    "QGET",
    group="logs",
    flags=Flag.WRITE | Flag.FAST,
    reply=attrs.evolve(null_or(either(_EVENT, array(_EVENT, "with COUNT, of [id, contents]"))), handed=_handed_events),
    cost="O(log N) per event",
    errors=(_TWO_DEADLINES, _STRICT, WrongType, NodeLeaving, JournalFailed, OutOfMemory),
    shows_bodies=True,
)
@attrs.define
class QGet:
    """Take the next event that a group can have, oldest first; null when there is none.

    Within the group nobody else gets it until EX seconds have passed without a QACK: then it is available again, before
    what the group has not seen yet.  A new group begins at the oldest event.  With EX 0 the event is done for the group
    before it is sent, so that nobody of the group gets it a second time, whatever becomes of this consumer.

    With BLOCK a consumer waits for an event if there is none, those of a group first come first served; the deadline
    counts from the delivery.  BLOCK 0 does not wait.  With COUNT up to so many events are answered, each as [id,
    contents], and no more once they are a mebibyte together.
    """

    queue: bytes = positional("Queue to take from.", QUEUE)
    group: bytes = positional("Group that the consumer belongs to; it comes into being by being named.", GROUP)
    ex: Span | None = option("EX", "Seconds to acknowledge it in; 30 unless given, 0 = it is done at once.", EX)
    deadline: Span | None = option("DEADLINE", "Another word for EX.", DEADLINE)
    strict: bool = flag("STRICT", "With EX 0: only events whose own node can be reached, which nobody else gives away.")
    block: Span = option("BLOCK", "Seconds to wait when there is none.", BLOCK, Span(0))
    count: int | None = option("COUNT", "Events to take at most; the reply is an array of events then.", COUNT)

    def run(self, node: Node, client: Client) -> Any:
        """Take events; returns one or several, None, or BLOCKED."""
        form = self._form(node.state.wall)
        queue = node.state.queues.by_name.get(self.queue)
        if queue is not None:
            queue.check_kind(KIND_LOG)
            if queue.log is not None:
                try:
                    units = _fetch(node, queue, self.group, form)
                except Behind:
                    node.in_parts(client, self._go_on(node, queue.name, form))
                    return BLOCKED
                if units:
                    return form.answer(units)
        block_ms = self.block.left_ms(node.state.wall)
        if not block_ms:
            return None
        if node.state.leaving:
            raise NodeLeaving
        if queue is None and not node.has_room_for_queues():
            raise OutOfMemory
        node.logs.wait(client, [node.state.queue(self.queue)], self.group, block_ms, form)
        return BLOCKED

    def _form(self, wall: int) -> EventForm:
        if self.ex is not None and self.deadline is not None:
            raise CommandError(_TWO_DEADLINES)
        chosen = self.ex if self.ex is not None else self.deadline
        lease_ms = (chosen or DEFAULT_LEASE).left_ms(wall) if chosen != Span(0) else 0
        if chosen is not None and chosen.is_moment:
            # A moment that is over is a deadline that was missed, and no wish to have it done at once.
            lease_ms = max(1, lease_ms)
        if self.strict and lease_ms:
            raise CommandError(_STRICT)
        return OneEvent(lease_ms) if self.count is None else SomeEvents(lease_ms, self.count)

    def _go_on(self, node: Node, name: bytes, form: EventForm) -> Parts:
        """Look further, a part at a time, for an event behind very many that are not for the group."""
        while True:
            yield
            queue = node.state.queues.by_name.get(name)
            if queue is None or queue.log is None:
                return None
            try:
                units = _fetch(node, queue, self.group, form)
            except Behind:
                continue
            return form.answer(units) if units else None


def _fetch(node: Node, queue: Queue, group_name: bytes, form: EventForm) -> list[Any]:
    assert queue.log is not None
    group = queue.log.group(group_name)
    try:
        return node.logs.fetch(queue, group, form.lease_ms, form.count)
    finally:
        queue.log.let_go(group)


@command(
    "QACK",
    group="logs",
    flags=Flag.WRITE | Flag.FAST,
    reply=integer("events that were acknowledged: of one id 1 or 0"),
    cost="O(1) per event",
    errors=(WrongType, BadJobId, _NAME_TOO_LONG),
)
@attrs.define
class QAck:
    """Acknowledge events as a member of a group: no consumer of the group gets them again.

    Any connection may say so, as long as some consumer of the group has the event and its deadline has not passed.
    0 means that nothing was changed: the deadline passed, somebody else acknowledged it, or it is over.  Who hears 0
    may undo what it did.

    Without a group an event of okq is acknowledged (QLPUSH): it is done, wherever it is, also when it is back in its
    queue or was never taken out.
    """

    queue: bytes = positional("Queue of the events.", QUEUE)
    words: list[bytes] = rest("A group, and ids of events that it is done with; or the id of an event of okq.", NAME)

    def run(self, node: Node, client: Client) -> int:
        """Acknowledge; returns how many there were to acknowledge."""
        if len(self.words) == 1:
            return okq.acknowledge(node, self.queue, self.words[0])
        group, ids = _read_group(self.words[0]), [read_job_id(word) for word in self.words[1:]]
        _queue_of_log(node, self.queue)
        return sum(node.logs.acknowledge(self.queue, group, event_id) for event_id in ids)


def _queue_of_log(node: Node, name: bytes) -> Queue | None:
    """The queue of a name, if there is one.  Raises WrongType (WRONGTYPE)."""
    queue = node.state.queues.by_name.get(name)
    if queue is not None:
        queue.check_kind(KIND_LOG)
    return queue


@command(
    "QNOTIFY",
    group="logs",
    flags=Flag.READ,
    reply=null_or(bulk("name of a queue")),
    cost="O(N) in the queues",
    errors=(WrongType, NodeLeaving, OutOfMemory, *TIMEOUT.errors, *(PATIENCE.errors)),
    is_of_connection=True,
)
@attrs.define
class QNotify:
    """Wait until a group can have an event of one of some queues, and answer the name of the queue.

    QNOTIFY group timeout [queue ...]: the group that asks, seconds to wait before null is answered (0 = do not wait),
    and the queues to watch; without queues those are meant that the connection is registered for (QREGISTER GROUP).
    QNOTIFY timeout: queues of work that the connection is registered for (QREGISTER).

    Nothing is reserved for who is told: the QGET or QRPOP that follows may find that another consumer was faster.  Of
    several queues that have something any is answered, so that a busy one does not hide the others.
    """

    words: list[bytes] = rest("A group, a time-out in seconds, and queues; or a time-out in whole seconds.", QUEUE)

    def run(self, node: Node, client: Client) -> Any:
        """Answer a name, None, or BLOCKED."""
        words = self.words
        if len(words) == 1:
            patience_s: int = okq.read_patience(words[0])
            return okq.notify(node, client, list(node.consumers.queues_of(client)), patience_s * 1_000)
        group, timeout = _read_group(words[0]), read_span(words[1], "timeout", zero=True)
        names = list(dict.fromkeys(words[2:] or _registered(node, client, group)))
        return _notify(node, client, group, names, timeout.left_ms(node.state.wall))


def _notify(node: Node, client: Client, group: bytes, names: list[bytes], timeout_ms: int) -> Any:
    """Name one of these logs that has something for a group, or wait for one; returns a name, None, or BLOCKED."""
    shuffled = list(names)
    node.state.rng.shuffle(shuffled)
    for name in shuffled:
        queue = _queue_of_log(node, name)
        if queue is not None and node.logs.has_event(queue, group):
            return name
    if not timeout_ms:
        return None
    if node.state.leaving:
        raise NodeLeaving
    if any(name not in node.state.queues.by_name for name in names) and not node.has_room_for_queues():
        raise OutOfMemory
    node.logs.notice(client, [node.state.queue(name) for name in names], group, timeout_ms)
    return BLOCKED


def _registered(node: Node, client: Client, group: bytes) -> Iterable[bytes]:
    registration = node.logs.members.by_client.get(client)
    return registration.queues if registration is not None and registration.group == group else ()


@command(
    "QREGISTER",
    group="logs",
    flags=Flag.WRITE | Flag.FAST,
    reply=OK,
    cost="O(N) in the queues",
    errors=(OutOfMemory,),
    is_of_connection=True,
)
@attrs.define
class QRegister:
    """Make this connection a consumer of some queues, and of no others, as a member of a group or of none.

    QREGISTER [GROUP group] [queue ...].  QNOTIFY without queues watches them, and QSTATUS counts the consumer.  It ends
    with the connection, or with a QREGISTER that names no queues.
    """

    words: list[bytes] = rest("GROUP and a group, then queues; no queues = a consumer no more.", QUEUE, minimum=0)

    def run(self, node: Node, client: Client) -> Status:
        """Note it.  Raises OutOfMemory (OOM) when too many names are registered."""
        words = list(self.words)
        if words and words[0].upper() == b"GROUP":
            if len(words) == 1:
                raise SyntaxFault
            node.logs.members.register(client, _read_group(words[1]), words[2:])
            node.consumers.forget(client)
        else:
            node.consumers.register(client, words)
            node.logs.members.forget(client)
        return DONE


@command("QFLUSH", group="logs", flags=Flag.WRITE, reply=OK, cost="O(N) in the jobs of the node, bit by bit")
@attrs.define
class QFlush:
    """Remove all events of a queue, and all that groups made of them, as if the queue had never been.

    Consumers that have events may go on with them; their QACK is answered 0.  Of a queue of work each job is
    acknowledged, on all nodes that can be reached.  Very many are dropped bit by bit.  Who waits goes on waiting.
    """

    queue: bytes = positional("Queue to empty.", QUEUE)

    def run(self, node: Node, client: Client) -> Any:
        """Flush it; returns OK when there is little to do, else BLOCKED."""
        queue = node.state.queues.by_name.get(self.queue)
        if queue is not None:
            node.logs.flush(queue)
        parts = okq.flushed(node, self.queue)
        node.lists.tell_flush(self.queue)
        try:
            next(parts)
        except StopIteration as end:
            return end.value
        node.in_parts(client, parts)
        return BLOCKED


# Looking.


def statistics(node: Node, name: bytes, group_name: bytes) -> tuple[int, ...]:
    """The figures of a group of a queue, in the order of STATISTICS."""
    queue = node.state.queues.by_name.get(name)
    log = None if queue is None else queue.log
    group = None if log is None else log.groups.get(group_name)
    waiting = 0 if group is None else len(group.waiters)
    consumers = waiting + node.logs.members.count(name, group_name)
    total = 0 if log is None else len(log)
    if group is None:
        return (total, 0, 0, 0, total, consumers)
    return (total, group.leased, group.redo, group.done, group.available, consumers)


def _groups(node: Node, name: bytes) -> list[bytes]:
    """The groups of a queue that there is anything to say of, by name."""
    queue = node.state.queues.by_name.get(name)
    known = [] if queue is None or queue.log is None else [one for one in queue.log.groups.values() if one.is_known]
    return sorted({*(group.name for group in known), *node.logs.members.groups(name)})


def _is_log(node: Node, name: bytes) -> bool:
    """Tell whether a queue is shown with its groups: it has events, or groups, or was named with one."""
    queue = node.state.queues.by_name.get(name)
    return bool(_groups(node, name)) or (queue is not None and queue.log is not None and queue.log.has_content)


def _active(node: Node, names: list[bytes]) -> list[bytes]:
    """The queues that are asked for, each once, or all active ones by name.  Raises CommandError (too many)."""
    if names:
        return list(dict.fromkeys(names))
    logs = {queue.name for queue in node.state.queues.by_name.values() if _is_log(node, queue.name)}
    found = sorted({*okq.active_names(node, []), *logs, *node.logs.members.queues()})
    if len(found) > okq.SHOWN_AT_ONCE:
        raise CommandError(okq.TOO_MANY)
    return found


def _shown(node: Node, words: list[bytes]) -> dict[bytes, list[tuple[bytes, list[Any]]]]:
    """What QSTATUS and QINFO are to show: {queue: [(group, names and figures in turn), ...]}."""
    at = next((at for at, word in enumerate(words) if word.upper() == b"GROUPS"), len(words))
    wanted = words[at + 1 :]
    shown: dict[bytes, list[tuple[bytes, list[Any]]]] = {}
    for name in _active(node, words[:at]):
        if not wanted and not _is_log(node, name):
            shown[name] = [(okq.GROUPLESS, okq.statistics(node, name))]
            continue
        figures = [(group, statistics(node, name, group)) for group in wanted or _groups(node, name)]
        shown[name] = [
            (group, [part for pair in zip(okq.STATISTICS, values, strict=True) for part in pair])
            for group, values in figures
        ]
    return shown


_STATUS_WORDS = "Queues, then GROUPS and groups; all unless given."
_FIGURES = Shape(
    "array: of name and integer in turn: " + ", ".join(word.decode() for word in okq.STATISTICS),
    lambda value: isinstance(value, list) and value[::2] == list(okq.STATISTICS),
)
_BY_GROUP = Shape(
    "array: of group and its figures in turn",
    lambda value: isinstance(value, list) and len(value) % 2 == 0 and all(map(_FIGURES.matches, value[1::2])),
)


@command(
    "QSTATUS",
    group="logs",
    flags=Flag.READ,
    reply=array(tuple_of("[queue, groups]", bulk("queue"), _BY_GROUP), "of [queue, groups]"),
    cost="O(N) in the queues and groups",
    errors=(okq.TOO_MANY,),
)
@attrs.define
class QStatus:
    """Count the events of queues by what groups made of them, on this node.

    total is all events of the queue; of these are inprogress with consumers of the group, redo were with one and are
    available again, done are acknowledged, available were never given to the group: total = inprogress + redo + done +
    available.  consumers wait in QGET or QNOTIFY, or are registered.  A queue of work has one group, called -.  Queues
    come as asked for, or by name.  A queue whose name is GROUPS cannot be asked for by it.
    """

    words: list[bytes] = rest(_STATUS_WORDS, QUEUE, minimum=0)

    def run(self, node: Node, client: Client) -> list[Any]:
        """Count."""
        shown = _shown(node, list(self.words))
        return [[name, [part for pair in groups for part in pair]] for name, groups in shown.items()]


@command(
    "QINFO",
    group="logs",
    flags=Flag.READ,
    reply=array(bulk("line"), "of lines, one for each queue and group"),
    cost="O(N) in the queues and groups",
    errors=(okq.TOO_MANY,),
)
@attrs.define
class QInfo:
    """Show what QSTATUS counts in lines for people: queue, group, and the figures by name."""

    words: list[bytes] = rest(_STATUS_WORDS, QUEUE, minimum=0)

    def run(self, node: Node, client: Client) -> list[bytes]:
        """Write the lines."""
        rows = [
            [name, group, *(b"%b:%d" % pair for pair in zip(figures[::2], figures[1::2], strict=True))]
            for name, groups in _shown(node, list(self.words)).items()
            for group, figures in groups
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return [b" ".join(map(bytes.ljust, row, widths)).rstrip(b" ") for row in rows]


# Groups.


def _group_misuse(word: str, known: bool) -> str:
    if known:
        return f"wrong number or kind of arguments for QGROUP {word.upper()}"
    return "QGROUP takes LIST, START, RETURN or FORGET, and a queue"


container(
    "QGROUP", group="logs", flags=Flag.WRITE, summary="What groups of consumers made of a log.", misuse=_group_misuse
)


@command("QGROUP LIST", group="logs", flags=Flag.READ, reply=array(bulk("group"), "names of groups"), cost="O(N log N)")
@attrs.define
class QGroupList:
    """Name the groups of a queue that have consumers, or have or had events of it."""

    queue: bytes = positional("Queue to look at.", QUEUE)

    def run(self, node: Node, client: Client) -> list[bytes]:
        """Name them, by name."""
        _queue_of_log(node, self.queue)
        return _groups(node, self.queue)


def _read_start(text: bytes) -> bytes:
    if is_job_id(text):
        return text
    word = text[:8].upper()
    if word not in (b"FIRST", b"NOW"):
        raise CommandError("a group starts FIRST, NOW, or at the id of an event")
    return word


_START = Kind(
    "string", _read_start, "FIRST | NOW | the id of an event",
    errors=("ERR a group starts FIRST, NOW, or at the id of an event",),
)  # fmt: skip


@command(
    "QGROUP START",
    group="logs",
    flags=Flag.WRITE | Flag.DENY_OOM,
    reply=OK,
    cost="O(N) in the events of the queue",
    errors=(WrongType, UnknownJob),
)
@attrs.define
class QGroupStart:
    """Let a group begin at the oldest event, behind all that are there now, or at one of them.

    What consumers of the group have, and what it is done with, is forgotten: their QACK is answered 0.  Events before
    the beginning count as done.
    """

    queue: bytes = positional("Queue of the group.", QUEUE)
    group: bytes = positional("Group to start.", GROUP)
    at: bytes = positional("Where it begins.", _START)

    def run(self, node: Node, client: Client) -> Status:
        """Start it.  Raises UnknownJob (NOJOB)."""
        _queue_of_log(node, self.queue)
        log = node.state.log(self.queue)
        if self.at == b"FIRST":
            # A stamp before all events tells a group that was started from one that was forgotten.
            floor = {node.id[:8]: 0}
        elif self.at == b"NOW":
            floor = node.logs.floor_now(log)
        else:
            event = node.state.jobs.get(self.at)
            if not isinstance(event, Event) or event.log is not log:
                raise UnknownJob
            floor = dict.fromkeys(log.seen, event.ctime - 1)
        node.logs.start(log, self.group, floor)
        return DONE


@command(
    "QGROUP RETURN",
    group="logs",
    flags=Flag.WRITE,
    reply=integer("events that were given back"),
    cost="O(log N) per event",
    errors=(WrongType,),
)
@attrs.define
class QGroupReturn:
    """Give events back that consumers of a group have: the group gets them at once, before all others."""

    queue: bytes = positional("Queue of the events.", QUEUE)
    group: bytes = positional("Group that has them.", GROUP)
    ids: list[bytes] = rest("Events to give back; of several the first is the first again.", JOB_ID)

    def run(self, node: Node, client: Client) -> int:
        """Give them back; returns how many somebody had."""
        _queue_of_log(node, self.queue)
        returned = 0
        for event_id in reversed(self.ids):
            unit = node.logs.unit(self.queue, self.group, event_id)
            if unit is not None and node.logs.is_held(unit):
                node.logs.give_back(unit, front=True)
                returned += 1
        return returned


@command(
    "QGROUP FORGET",
    group="logs",
    flags=Flag.WRITE,
    reply=integer("1 when there was such a group, else 0"),
    cost="O(N) in the events of the queue",
    errors=(WrongType,),
)
@attrs.define
class QGroupForget:
    """Forget what a group made of a log; should it come again it is a new one, and begins at the oldest event."""

    queue: bytes = positional("Queue of the group.", QUEUE)
    group: bytes = positional("Group to forget.", GROUP)

    def run(self, node: Node, client: Client) -> int:
        """Forget it."""
        queue = _queue_of_log(node, self.queue)
        group: Group | None = None if queue is None or queue.log is None else queue.log.groups.get(self.group)
        if group is None or queue is None or queue.log is None or not group.is_known:
            return 0
        node.logs.start(queue.log, self.group, {})
        return 1
