"""Reliable lists, as RedisRQ has them: what is popped stays in the list until it is acknowledged.

    RQ.PUSH --> undelivered --RQ.POP--> delivered --RQ.ACK--> gone
                                          |   ^
                                          +---+ RQ.RECOVER: to another consumer, one delivery more

Nothing comes back by itself, unless its producer wanted that (RQ.PUSHX RETRY).  Jobs of every family may be in one
queue; what is delivered is shown whoever fetched it, but for jobs that are delivered at most once.

Source: the RedisRQ README; the replies are those of the module, where the README says nothing.
"""

from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import Any

import attrs

from disqued.commands.jobs import JOBS_AT_ONCE, MAXLEN, REPLICATE
from disqued.commands.names import ELEMENT, element_names, jobs_called, name_of, shown
from disqued.commands.parts import in_order, in_parts
from disqued.commands.shapes import array, bulk, either, handing_out, integer, null_or, pairs, tuple_of
from disqued.commands.table import BLOCKED, Flag, command, flag, option, optional, positional, rest
from disqued.commands.taking import existing, note_taken, wait_for_jobs, with_new, work_queue
from disqued.commands.values import (
    BYTES,
    INT64_MAX,
    INT64_MIN,
    MILLISECOND,
    NAME,
    QUEUE,
    TAKER,
    Kind,
    bounded,
    seconds,
    span,
    whole,
)
from disqued.commands.values import count as count_kind
from disqued.core.lists import RecoveredJob, RecoveryRequest
from disqued.core.model.ids import is_job_id
from disqued.core.model.job import ACTIVE, ALIAS_MAX, FLAG_LEASED, FLAG_WITH_CONSUMER, RETRY_NEVER_MS, JobOptions, Unit
from disqued.core.model.messages import ACK_ONE
from disqued.core.model.outbox import Client
from disqued.core.model.queues import Queue, handed_out
from disqued.core.model.unfinished import Parts
from disqued.core.model.waiters import Form, Lease
from disqued.core.node import Node
from disqued.core.work.delivery import FETCHED_BYTES, counters_of
from disqued.core.work.inquiries import AliasFindings
from disqued.core.work.replication import Batch
from disqued.core.workers.workers import WorkerForm
from disqued.errors import (
    CommandError,
    EmptyKey,
    NodeLeaving,
    NotReplicated,
    NoWorker,
    OutOfMemory,
    QueuePaused,
    QueueTooLong,
    SlotsElsewhere,
    WrongType,
)
from disqued.wire.replies import AddedList, Handed

PUSH_MS = 5_000  #: how long a producer waits for the copies of what it pushed
COUNTED_AT_ONCE = 5_000  #: elements that RQ.INFO counts in one go, some milliseconds' work
_RETRY_MAX_MS = 2**31 * 1_000 - 1

_ONCE = "with RETRY 0 an element is delivered at most once and has one copy; set REPLICATE to 1"
_DELAY = "DELAY must be below TTL, or the element would never be delivered"
_INSPECT = "usage: RQ.INSPECT key [PENDING] start count, where start is a whole number and count is 1 or more"
_RECOVER = "usage: RQ.RECOVER key count elapsed, where count is a whole number and elapsed a number of milliseconds"

TTL = seconds("TTL", "TTL must be a number of seconds above 0")
DELAY = seconds("DELAY", "DELAY must be a number of seconds, 0 or more", zero=True)
RETRY = span(
    MILLISECOND,
    0,
    _RETRY_MAX_MS,
    f"RETRY must be a number of milliseconds, 0 to {_RETRY_MAX_MS}",
    f"0 to {_RETRY_MAX_MS} milliseconds",
)

_COUNT = count_kind(0, JOBS_AT_ONCE, "COUNT must be a whole number, 0 or more")
_BLOCK = span(
    MILLISECOND,
    INT64_MIN,
    INT64_MAX,
    "BLOCK must be a number of milliseconds, of 64 bits at most",
    "milliseconds; 0 = do not wait, below 0 = for ever",
)


def _number(usage: str) -> Kind:
    return attrs.evolve(whole(""), read=bounded(INT64_MIN, INT64_MAX, usage), errors=(f"ERR {usage}",))


_INSPECTED = _number(_INSPECT)
_RECOVERED = _number(_RECOVER)
_ELAPSED = span(MILLISECOND, INT64_MIN, INT64_MAX, _RECOVER, "milliseconds")

_ID = "the id: milliseconds-sequence, or the job id of what was not pushed by RQ.PUSH"
_ELEMENT = tuple_of("[id, body]", bulk("id"), bulk("body"))
_DELIVERED = tuple_of(
    "[id, body, last delivery in unix ms, ms since then, deliveries]", bulk("id"), bulk("body"),
    integer("unix ms"), integer("ms"), integer("deliveries"),
)  # fmt: skip
_POPPED = (bulk("key"), bulk("id"), bulk("body"))
_COUNTERS = (bulk("nacks"), integer("n"), bulk("additional-deliveries"), integer("n"))
POPPED = handing_out(
    null_or(
        array(
            either(
                tuple_of("[key, id, body]", *_POPPED),
                tuple_of("with counters [key, id, body, nacks, n, additional-deliveries, n]", *_POPPED, *_COUNTERS),
            ),
            "elements, each [key, id, body], with counters also [nacks, n, additional-deliveries, n]; none at once",
        )
    )
)
RECOVERED = null_or(array(_ELEMENT, "elements that are now with this client"))
PUSHED = array(bulk("id"), "ids, one for each element, in order")
_PUSH_ERRORS = (NotReplicated, QueuePaused, OutOfMemory, WrongType)


class ElementForm(Form):
    """RQ.POP: (key, id, body), and with counters names and their values behind that."""

    __slots__ = ("_with_counters",)

    def __init__(self, count: int, *, with_counters: bool) -> None:
        super().__init__(count)
        self._with_counters = with_counters

    @property
    def nothing(self) -> Any:
        """No elements."""
        return ()

    def row(self, unit: Unit) -> Handed:
        """An element as RQ.POP answers it."""
        counters = counters_of(unit) if self._with_counters else ()
        return Handed((unit.queue, name_of(unit.job, ELEMENT), unit.body, *counters), unit.id)


def list_options(node: Node, *, ttl_ms: int = 0, retry_ms: int = RETRY_NEVER_MS, replicate: int = 0) -> JobOptions:
    """How elements want to be treated whose producer says no more than this; 0 = it does not say."""
    lists = node.lists
    copies = replicate or lists.replicate or node.placement.default_copies
    return node.state.shared.options(ttl_ms or lists.ttl_ms, retry_ms, 0, copies)


@command(
    "RQ.PUSH", group="lists", flags=Flag.WRITE | Flag.DENY_OOM | Flag.FAST, reply=PUSHED, cost="O(1) per element",
    errors=_PUSH_ERRORS, is_large=True,
)  # fmt: skip
@attrs.define
class RqPush:
    """Add elements at the end of a list, all of them or none, in their order.

    The reply comes when all of them have as many copies as rq-replicate says, or as ADDJOB makes; after 5 seconds
    without it is NOREPL, and none of them is there.
    """

    key: bytes = positional("List to add to; it comes into being when it is first used.", QUEUE)
    elements: list[bytes] = rest("The elements, any bytes.", BYTES)

    def run(self, node: Node, client: Client) -> Any:
        """Add them; returns their ids, or BLOCKED."""
        options = list_options(node)
        return push(node, client, self.key, self.elements, options, by_default=not node.lists.replicate)


def push(
    node: Node, client: Client, key: bytes, elements: list[bytes], options: JobOptions, *,
    maxlen: int = 0, asynchronous: bool = False, by_default: bool = False,
) -> Any:  # fmt: skip
    """Add elements; returns their ids, or BLOCKED."""
    batch = Batch(client)
    jobs = node.additions.add_together(
        batch, key, elements, options, element_names(node),
        maxlen=maxlen, timeout_ms=PUSH_MS, asynchronous=asynchronous, by_default=by_default,
    )  # fmt: skip
    batch.value = AddedList([name_of(job, ELEMENT) for job in jobs], [job.id for job in jobs])
    return batch.value if batch.is_over else BLOCKED


@command(
    "RQ.PUSHX", group="lists", flags=Flag.WRITE | Flag.DENY_OOM | Flag.FAST, reply=PUSHED, cost="O(1) per element",
    errors=(*_PUSH_ERRORS, QueueTooLong, _ONCE, _DELAY), is_large=True,
)  # fmt: skip
@attrs.define
class RqPushX:
    """Add elements as RQ.PUSH does, with the options of jobs.

    With RETRY an element is queued again by itself when so many milliseconds pass after a delivery without RQ.ACK;
    with RETRY 0 it is delivered at most once.
    """

    key: bytes = positional("List to add to.", QUEUE)
    replicate: int = option("REPLICATE", "Nodes that shall hold each element.", REPLICATE, 0)
    retry: int | None = option("RETRY", "Milliseconds until a delivery counts as failed; without it never.", RETRY)
    ttl: int = option("TTL", "Seconds until an element is dropped, delivered or not; rq-ttl.", TTL, 0)
    delay: int = option("DELAY", "Seconds before the elements can be popped.", DELAY, 0)
    maxlen: int = option("MAXLEN", "Refuse when the list would be longer than this.", MAXLEN, 0)
    asynchronous: bool = flag("ASYNC", "Reply at once and copy in the background.")
    elements: list[bytes] = rest("The elements, any bytes.", BYTES, word="ELEMS")

    def run(self, node: Node, client: Client) -> Any:
        """Add them; returns their ids, or BLOCKED."""
        return push(
            node, client, self.key, self.elements, self._options(node), maxlen=self.maxlen,
            asynchronous=self.asynchronous, by_default=not self.replicate and not node.lists.replicate,
        )  # fmt: skip

    def _options(self, node: Node) -> JobOptions:
        """Check the wishes against each other, and fill in what was not wished.  Raises CommandError."""
        lists = node.lists
        ttl_ms = self.ttl or lists.ttl_ms
        if self.delay >= ttl_ms:
            raise CommandError(_DELAY)
        copies = self.replicate or lists.replicate or node.placement.default_copies
        if self.retry == 0 and copies > 1:
            raise CommandError(_ONCE)
        retry_ms = RETRY_NEVER_MS if self.retry is None else self.retry
        return node.state.shared.options(ttl_ms, retry_ms, self.delay, copies)


@command(
    "RQ.POP", group="lists", flags=Flag.WRITE | Flag.FAST, reply=POPPED, cost="O(1) per element",
    errors=(NodeLeaving, OutOfMemory, NoWorker, WrongType), shows_bodies=True,
)  # fmt: skip
@attrs.define
class RqPop:
    """Take elements from one or more lists: each is emptied before the next one is touched.

    They stay in their list, as delivered, until RQ.ACK.  One who had to wait gets what has come into one of the lists,
    up to COUNT; who waits longest is served first, whatever family of commands it waits with.  Options stand before
    the lists; a list that is called like one stands behind KEYS.

    With WORKER the elements belong to a worker (WORKER START): when it dies they are back at once, in front and in
    their order, and do not wait for an RQ.RECOVER.

    Without BLOCK, and with BLOCK 0, nothing is an empty array; after a time-out it is null.
    """

    count: int = option("COUNT", "Elements to take at most; one call may take fewer large ones.", _COUNT, 1)
    block: int = option("BLOCK", "How long to wait for an element when there is none.", _BLOCK, 0)
    with_counters: bool = flag("WITHCOUNTERS", "Answer how often each was given back and queued again, too.")
    worker: bytes | None = option("WORKER", "Who takes them: if it dies they are queued again, in front.", TAKER)
    keys: list[bytes] = rest("Lists to take from.", QUEUE, word="KEYS", bare=True)

    def run(self, node: Node, client: Client) -> Any:
        """Take them; returns rows, or BLOCKED."""
        state, delivery = node.state, node.delivery
        worker = None if self.worker is None else node.workers.named(self.worker)
        queues = existing(node, self.keys)
        form = ElementForm(self.count, with_counters=self.with_counters)
        units = delivery.drain(queues, self.count)
        if units or not self.count:
            note_taken(node, queues, units, worker)
            return [form.row(unit) for unit in units]
        waiting: Form = form if worker is None else WorkerForm(node.workers, worker, form)
        if self.block:
            new = with_new(node, self.keys)
            return wait_for_jobs(node, client, new, waiting, named=len(self.keys), timeout_ms=max(0, self.block))
        if state.peers.linked:
            node.federation.local_demand.need(with_new(node, self.keys))
        if state.waiting.behind and delivery.is_behind(queues):
            delivery.wait(client, queues, 0, waiting, nohang=True)
            return BLOCKED
        return []


@command(
    "RQ.ACK", group="lists", flags=Flag.WRITE | Flag.FAST,
    reply=null_or(array(bulk("id"), "ids that are acknowledged by this call, as they were given")), cost="O(1) per id",
    errors=(WrongType,),
)  # fmt: skip
@attrs.define
class RqAck:
    """Acknowledge elements: they are done, and leave their list.

    Whoever comes first gets the id back; an id that is not in the reply was acknowledged before, is not delivered, or
    does not exist.  Nodes that can be reached are asked for those that are not known here.  Null: there is no such list
    on this node, nor any of these elsewhere.  Of two nodes that are told within some milliseconds both may answer
    the id.
    """

    key: bytes = positional("List that they are in.", QUEUE)
    ids: list[bytes] = rest("Elements that are done: their ids, or their job ids.", NAME)

    def run(self, node: Node, client: Client) -> Any:
        """Acknowledge them; returns the ids that counted, or BLOCKED while other nodes are asked."""
        work_queue(node, self.key)
        names = list(dict.fromkeys(self.ids))
        asks = node.inquiries.can_ask
        doubtful = [name for name in names if asks and self._is_doubtful(node, name)]
        done = {name for name in names if name not in doubtful and self._acknowledge(node, name)}
        answer = partial(self._answer, node, names, done, doubtful)
        if not doubtful:
            return answer({})
        node.inquiries.ask(client, ACK_ONE, self.key, [ELEMENT + name for name in doubtful], answer)
        return BLOCKED

    def _is_doubtful(self, node: Node, name: bytes) -> bool:
        """Tell whether others have to be asked: it is not here, or a copy that somebody may have from elsewhere."""
        jobs = jobs_called(node.state, self.key, ELEMENT, name)
        return (
            not is_job_id(name)
            and len(name) < ALIAS_MAX
            and all(job.holders and job.state == ACTIVE and not job.flags & FLAG_WITH_CONSUMER for job in jobs)
        )

    def _answer(
        self, node: Node, names: list[bytes], done: set[bytes], doubtful: list[bytes], found: dict[bytes, AliasFindings]
    ) -> list[bytes] | None:
        peers = node.state.peers
        if len(peers.linked) < len(peers.by_id):
            # A node that cannot be asked may have given them to a consumer.
            done |= {name for name in doubtful if ELEMENT + name not in found and self._acknowledge(node, name)}
        counted = [name for name in names if name in done or ELEMENT + name in found]
        return counted if counted or self.key in node.state.queues.by_name else None

    def _acknowledge(self, node: Node, name: bytes) -> bool:
        """Acknowledge one; of several that nodes gave one name to, that which was delivered here, else the oldest."""
        jobs = [job for job in jobs_called(node.state, self.key, ELEMENT, name) if node.lists.may_be_acked(job)]
        job = next((job for job in jobs if job.flags & FLAG_LEASED), jobs[0] if jobs else None)
        return job is not None and node.acks.acknowledge(job.id)


@command(
    "RQ.RECOVER", group="lists", flags=Flag.WRITE, reply=RECOVERED, cost="O(1) per element, as a rule", arity=-4,
    errors=(_RECOVER, NoWorker, WrongType, SlotsElsewhere), shows_bodies=True,
)  # fmt: skip
@attrs.define
class RqRecover:
    """Take elements that were delivered long enough ago and are not acknowledged, oldest first.

    This is a delivery: it counts, its time is now, and the element goes to the end of those that are delivered.  Who
    had it before may still acknowledge it; the first one counts.  What consumers of other nodes have is asked for
    there, for 2 seconds at most, as far as this node has copies; it is taken over when its node cannot be reached.

    In a queue with limits an element keeps its slot, so that no more of them are with consumers than before.  There an
    element of a node that cannot be reached stays with its consumer, and with WORKER one of any other node does;
    ENQUEUE of its job says that the consumer is gone.

    What a worker had is that one's no more.  With WORKER it belongs to the worker that is named, as with RQ.POP.
    """

    key: bytes = positional("List to take from.", QUEUE)
    pending: bool = flag("PENDING", "Accepted, and changes nothing.")
    worker: bytes | None = option("WORKER", "Who takes them: if it dies they are queued again, in front.", TAKER)
    count: int | None = optional("Elements at most; 0 or less takes none.", _RECOVERED)
    elapsed: int | None = optional("Milliseconds since the last delivery, at least.", _ELAPSED)

    def run(self, node: Node, client: Client) -> Any:
        """Take them; returns [id, body] of each, None without such a list, or BLOCKED."""
        if self.count is None or self.elapsed is None:
            raise CommandError(_RECOVER)
        worker = None if self.worker is None else node.workers.named(self.worker)
        queue = work_queue(node, self.key)
        if queue is None:
            return None
        count = min(max(0, self.count), JOBS_AT_ONCE)
        if not count:
            return []
        rows = node.lists.recover(client, queue, RecoveryRequest(count, max(0, self.elapsed), worker), _recovered)
        return BLOCKED if rows is None else rows


def _recovered(found: RecoveredJob) -> tuple[bytes, bytes]:
    return (shown(found.id, found.alias, ELEMENT), found.body)


@command(
    "RQ.INSPECT", group="lists", flags=Flag.READ,
    reply=array(either(_ELEMENT, _DELIVERED), "elements; the longer rows with PENDING"), cost="O(start + count)",
    arity=-4, errors=(_INSPECT, EmptyKey, WrongType), shows_bodies=True,
)  # fmt: skip
@attrs.define
class RqInspect:
    """Look at the elements that wait, or with PENDING at those that are delivered, without taking any.

    A negative start counts from the end; one beyond either end shows nothing.  What consumers of other nodes have is
    among those that are delivered as far as this node has copies.  One call shows 2000 elements at most, and no more
    once their bodies are a mebibyte together.
    """

    key: bytes = positional("List to look into.", QUEUE)
    pending: bool = flag("PENDING", "Look at what is delivered.")
    start: int | None = optional("Place of the first one; 0 is the oldest, -1 the newest.", _INSPECTED)
    count: int | None = optional("How many, 1 or more, towards the newest.", _INSPECTED)

    def run(self, node: Node, client: Client) -> Any:
        """Look; returns rows, or BLOCKED.  Raises EmptyKey (EMPTYKEY) when there is no such list."""
        if self.start is None or self.count is None or self.count < 1:
            raise CommandError(_INSPECT)
        queue = work_queue(node, self.key)
        if queue is None:
            raise EmptyKey
        if self.pending:
            return in_parts(node, client, self._delivered(node, queue))
        start = self._place(len(queue.units))
        units = queue.units.slice(start, start + min(self.count, JOBS_AT_ONCE)) if start >= 0 else []
        return _short_of_large([((name_of(unit.job, ELEMENT), unit.body), len(unit.body)) for unit in units])

    def _delivered(self, node: Node, queue: Queue) -> Parts:
        state, lists = node.state, node.lists
        assert self.count is not None
        most = min(self.count, JOBS_AT_ONCE)
        start = self._place(len(queue.leased) + len(queue.elsewhere))
        if start < 0:
            return []
        if lists.is_in_order(queue):
            leases = _slice(queue.leased, start, most)
            entries: Iterable[tuple[Unit, int]] = [(unit, since) for unit, (since, _) in leases]
        else:
            entries = (yield from in_order(lists.delivered(queue), key=handed_out, most=start + most))[start:]

        def row(unit: Unit, since: int) -> tuple[Any, int]:
            elapsed_ms = max(0, state.now - since)
            name = name_of(unit.job, ELEMENT)
            return (name, unit.body, state.wall - elapsed_ms, elapsed_ms, unit.deliveries), len(unit.body)

        return _short_of_large([row(unit, since) for unit, since in islice(entries, most)])

    def _place(self, length: int) -> int:
        """The place of the first one, counted from the oldest; below 0 = beyond either end."""
        assert self.start is not None
        start = self.start + length if self.start < 0 else self.start
        return start if start < length else -1


def _slice(units: dict[Unit, Lease], start: int, most: int) -> list[tuple[Unit, Lease]]:
    """Some of the units that consumers have, in order, counted from the end that is nearer."""
    most = min(most, len(units) - start)
    after = len(units) - start - most
    if start <= after:
        return list(islice(units.items(), start, start + most))
    return list(islice(reversed(units.items()), after, after + most))[::-1]


def _short_of_large(rows: list[tuple[Any, int]]) -> list[Any]:
    """Leave out rows from the end when there are too many bytes in them."""
    kept: list[Any] = []
    total = 0
    for row, size in rows:
        kept.append(row)
        total += size
        if total >= FETCHED_BYTES:
            break
    return kept


_INFO = ("undelivered", "delivered", "memory", "oldest-pending-ms", "max-deliveries", "copies-elsewhere")


@command(
    "RQ.INFO", group="lists", flags=Flag.READ, reply=pairs("what is in the list, on this node", *_INFO),
    cost="O(N) in the elements, bit by bit", errors=(EmptyKey, WrongType),
)  # fmt: skip
@attrs.define
class RqInfo:
    """Count what is in a list, on this node; more pairs may come at the end.

    undelivered waits here; delivered is with consumers, of this node or, as far as it has copies, of others; memory is
    the bytes of bodies; oldest-pending-ms is how long ago the longest of the delivered was handed out;
    max-deliveries is the most that one of them was; copies-elsewhere of them are with consumers of other nodes.
    """

    key: bytes = positional("List to describe.", QUEUE)

    def run(self, node: Node, client: Client) -> Any:
        """Count; returns names and values, or BLOCKED.  Raises EmptyKey (EMPTYKEY) when there is no such list."""
        queue = work_queue(node, self.key)
        if queue is None:
            raise EmptyKey
        return in_parts(node, client, self._count(node, queue))

    def _count(self, node: Node, queue: Queue) -> Parts:
        """Add up, so many at a time."""
        waiting, delivered = queue.units.listed(), node.lists.delivered(queue)
        oldest = min((since for _, since in delivered), default=0)
        memory = most = 0
        units = [*waiting, *(unit for unit, _ in delivered)]
        for at in range(0, len(units), COUNTED_AT_ONCE):
            if at:
                yield
            piece = units[at : at + COUNTED_AT_ONCE]
            memory += sum(len(unit.body) for unit in piece)
            most = max(most, *(unit.deliveries for unit in piece))
        return [
            b"undelivered", len(waiting),
            b"delivered", len(delivered),
            b"memory", memory,
            b"oldest-pending-ms", max(0, node.state.now - oldest) if delivered else 0,
            b"max-deliveries", most if delivered else 0,
            b"copies-elsewhere", len(queue.elsewhere),
        ]  # fmt: skip
