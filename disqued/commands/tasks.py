"""WQ.*: queues of tasks for live workers.

A task is a work job of which only the body is shown; a process is one that somebody has, by the name
``<job id>:<attempt>``.  Source: the Worqr README; the commands are ours.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Final

import attrs

from disqued.commands.jobs import DELAY, GET_COUNT, JOBS_AT_ONCE, REPLICATE, RETRY, TTL
from disqued.commands.parts import in_parts, spelt
from disqued.commands.permission import Sees, seen_by
from disqued.commands.shapes import PROCESSES, array, bulk, either, integer, null_or, status, tuple_of
from disqued.commands.table import BLOCKED, Flag, command, flag, option, optional, positional, rest
from disqued.commands.taking import note_taken, wait_for_jobs, with_new, work_queue
from disqued.commands.values import BYTES, INT64_MAX, MILLISECOND, QUEUE, TIMEOUT, Kind, bounded, span
from disqued.commands.values import integer as integer_kind
from disqued.commands.workers import WORKER_ID
from disqued.core.model.ids import is_job_id
from disqued.core.model.job import JobOptions, Unit, attempt_of, process_of
from disqued.core.model.memory import WORK_COST
from disqued.core.model.messages import HAS, HAS_ANYWHERE, SOON
from disqued.core.model.outbox import WORK, Client, Notification
from disqued.core.model.queues import HOLDS_ALL, Queue, check_name
from disqued.core.model.unfinished import Parts
from disqued.core.model.waiters import Form
from disqued.core.node import Node
from disqued.core.work.delivery import FETCHED_BYTES
from disqued.core.work.inquiries import AliasFindings
from disqued.core.work.replication import Batch
from disqued.core.workers.tasks import Process, unique_alias
from disqued.core.workers.workers import WorkerForm
from disqued.errors import (
    BadJobId,
    CommandError,
    DuplicateTask,
    NodeLeaving,
    NotReplicated,
    NotWorking,
    NoWorker,
    OutOfMemory,
    QueuePaused,
    StaleWorker,
    WrongType,
)
from disqued.wire.replies import EncodedList, Status

DEFAULT_TTL_MS = 86_400_000
ADDED_TIMEOUT_MS = 5_000  #: how long WQ.ENQUEUE waits for copies on other nodes
LISTED_PER_PART = 1_000  #: queues or processes looked at in one step, some milliseconds' work
PROCESSES_MAX = 10_000  #: in one reply
UNIQUE_MAX: Final = 64 << 20  #: bytes of the tasks of one command with UNIQUE; more take too long to compare

_ONCE = "With RETRY set to 0 please explicitly set REPLICATE to 1: a task that runs at most once is in one place"
_DELAY = "The specified DELAY is greater than TTL. Task refused since it would never be taken"
_TOO_LARGE = f"the tasks are too large for UNIQUE: {UNIQUE_MAX} bytes together are allowed"
_CLIENT = integer_kind(1, INT64_MAX, "CLIENT is the number of a client - allowed are whole numbers from 1", "from 1")
_BAD_ATTEMPT = "a process is <job id>:<attempt>, or the id of a job alone"
_ATTEMPT_MAX = 2**32


def _read_process(text: bytes) -> Process:
    """Read the id of a process.  Raises BadJobId (BADID), CommandError."""
    job_id, colon, attempt = text.partition(b":")
    if not is_job_id(job_id):
        raise BadJobId
    if not colon:
        return Process(job_id, 0)
    if not attempt.isdigit() or not 0 < int(attempt[:12]) <= _ATTEMPT_MAX:
        raise CommandError(_BAD_ATTEMPT)
    return Process(job_id, int(attempt))


PROCESS = Kind(
    "string", _read_process,
    "<job id>:<attempt> as WQ.DEQUEUE answered it, or a job id, which means the current attempt",
    errors=(f"{BadJobId.code} {BadJobId.__doc__}", f"ERR {_BAD_ATTEMPT}"), names="job",
)  # fmt: skip
_BLOCK = span(MILLISECOND, 0, INT64_MAX, "BLOCK must be a number of milliseconds, 0 or more", TIMEOUT.allowed)
_START = integer_kind(0, INT64_MAX, "start must be a whole number, 0 or more", "0 or more")
_COUNT = Kind(
    "integer", bounded(0, INT64_MAX, "count must be a whole number, 0 or more"),
    f"0 or more; more than {JOBS_AT_ONCE} is {JOBS_AT_ONCE}", {"type": "integer", "minimum": 0},
    ("ERR count must be a whole number, 0 or more",),
)  # fmt: skip


@command(
    "WQ.ENQUEUE", group="workers", flags=Flag.WRITE | Flag.DENY_OOM | Flag.FAST,
    reply=array(status("job id"), "ids of the jobs, in the order of the tasks"), cost="O(log N) per task",
    errors=(_ONCE, _DELAY, _TOO_LARGE, NotReplicated, QueuePaused, DuplicateTask), is_large=True,
)  # fmt: skip
@attrs.define
class WqEnqueue:
    """Add tasks to a queue, the first one to be served first: all of them, or none.

    The reply comes when all copies are made.  With UNIQUE a task whose body is that of a unique one that is not done is
    refused, and the id of that one's job told; it is looked for in its queue or in all of them (wq-unique-scope), on
    all nodes that can be reached; for a user who may not touch all queues, in its queue alone.  A task that is in the
    hands of a worker stays there as long as that lives; RETRY is when it comes again should its whole node be gone.
    """

    queue: bytes = positional("Queue to add to; it comes into being when it is first used.", QUEUE)
    unique: bool = flag("UNIQUE", "Refuse tasks that are there already; at most 64 MiB of tasks.")
    replicate: int | None = option(
        "REPLICATE", "Nodes that shall hold the tasks; as many as reachable, up to 3.", REPLICATE
    )
    retry: int | None = option("RETRY", "Seconds until a task comes again whose node is gone; wq-retry.", RETRY)
    ttl: int = option("TTL", "Seconds until a task is dropped, whether it was done or not.", TTL, DEFAULT_TTL_MS)
    delay: int = option("DELAY", "Seconds before the tasks are queued.", DELAY, 0)
    asynchronous: bool = flag("ASYNC", "Reply at once and copy in the background.")
    tasks: list[bytes] = rest("Tasks: any bytes, kept as they are.", BYTES, word="TASKS")

    def run(self, node: Node, client: Client) -> Any:
        """Add the tasks; returns the ids of their jobs, or BLOCKED.  Raises CommandError."""
        options = self._options(node)
        if not self.unique:
            return self._add(node, client, options, [])
        aliases, inquiries = self._aliases(node, client), node.inquiries
        if not inquiries.can_ask:
            return self._add(node, client, options, aliases)
        verb = HAS_ANYWHERE if _looks_anywhere(node, client) else HAS
        inquiries.ask(client, verb, self.queue, aliases, partial(self._add_unless_found, node, client, options))
        return BLOCKED

    def _add_unless_found(
        self, node: Node, client: Client, options: JobOptions, found: dict[bytes, AliasFindings]
    ) -> Any:
        """Add unique tasks that no other node has.  Raises CommandError."""
        aliases = self._aliases(node, client)
        for what in found.values():
            node.state.counters.unique_refused += 1
            raise DuplicateTask(what.job_id, soon=what.how == SOON)
        value = self._add(node, client, options, aliases)
        return node.inquiries.waits if value is BLOCKED else value

    def _add(self, node: Node, client: Client, options: JobOptions, names: list[bytes]) -> Any:
        aliases = iter(names)
        batch = Batch(client)
        jobs = node.additions.add_together(
            batch, self.queue, self.tasks, options, lambda _: next(aliases, b""),
            maxlen=0, timeout_ms=ADDED_TIMEOUT_MS, asynchronous=self.asynchronous, by_default=self.replicate is None,
        )  # fmt: skip
        batch.value = [Status(job.id) for job in jobs]
        return batch.value if batch.is_over else BLOCKED

    def _options(self, node: Node) -> JobOptions:
        """Check the wishes against each other, and fill in what was not wished.  Raises CommandError."""
        retry, replicate = self.retry, self.replicate
        if replicate is None:
            replicate = node.placement.default_copies
        if retry is None:
            retry = node.tasks.retry_ms
        if not retry and replicate > 1:
            raise CommandError(_ONCE)
        if self.delay >= self.ttl:
            raise CommandError(_DELAY)
        return node.state.shared.options(self.ttl, retry, self.delay, replicate)

    def _aliases(self, node: Node, client: Client) -> list[bytes]:
        """What makes the tasks unique, in their order.  Raises DuplicateTask (DUPLICATE), CommandError."""
        if sum(map(len, self.tasks)) > UNIQUE_MAX:
            raise CommandError(_TOO_LARGE)
        anywhere = _looks_anywhere(node, client)
        aliases = list(map(unique_alias, self.tasks))
        for alias in aliases:
            job = node.tasks.first_unique(self.queue, alias, anywhere=anywhere)
            if job is not None:
                node.state.counters.unique_refused += 1
                raise DuplicateTask(job.id)
        is_claimed = any(node.inquiries.is_claimed(self.queue, alias, anywhere=anywhere) for alias in aliases)
        if is_claimed:
            raise DuplicateTask(soon=True)
        if len(frozenset(aliases)) < len(aliases):
            raise DuplicateTask
        return aliases


def _looks_anywhere(node: Node, client: Client) -> bool:
    """Tell whether unique tasks are looked for in all queues: who may not see some would learn what is in them."""
    return node.tasks.unique_anywhere and seen_by(client) is None


_WHO = (NoWorker, StaleWorker)


@command(
    "WQ.WORK", group="workers", flags=Flag.WRITE | Flag.FAST,
    reply=integer("tasks that wait in these queues on this node"), cost="O(1) per queue",
    errors=(*_WHO, OutOfMemory, WrongType), is_of_connection=True,
)  # fmt: skip
@attrs.define
class WqWork:
    """Work on queues from now on, as the worker that this connection is: WQ.DEQUEUE may name them."""

    queues: list[bytes] = rest("Queues to work on.", QUEUE)

    def run(self, node: Node, client: Client) -> int:
        """Note the queues; returns how many tasks wait in them.  Raises OutOfMemory (OOM)."""
        worker = node.sessions.worker_of(client)
        waiting = sum(_length(node, queue) for queue in dict.fromkeys(self.queues))
        new = [queue for queue in dict.fromkeys(self.queues) if queue not in worker.queues]
        if new:
            for queue in new:
                check_name(queue)
            node.check_names(sum(map(len, new)) + WORK_COST * len(new))
        node.workers.work_on(worker, self.queues)
        return waiting


def _length(node: Node, name: bytes) -> int:
    queue = work_queue(node, name)
    return 0 if queue is None else len(queue.units)


@command(
    "WQ.UNWORK", group="workers", flags=Flag.WRITE, reply=integer("tasks that were queued again"),
    cost="O(N) in what the worker has", errors=_WHO, is_of_connection=True,
)  # fmt: skip
@attrs.define
class WqUnwork:
    """Work on queues no more: what this worker has of them goes to the front again, and what others have stays."""

    queues: list[bytes] = rest("Queues to work on no more.", QUEUE)

    def run(self, node: Node, client: Client) -> Any:
        """Note it; returns how many tasks came back, or BLOCKED when there are very many."""
        worker = node.sessions.worker_of(client)
        return in_parts(node, client, node.workers.stop_work(worker, self.queues))


@command(
    "WQ.REQUEST", group="workers", flags=Flag.READ | Flag.FAST,
    reply=integer("tasks that this node could hand out now"), cost="O(1)", errors=(WrongType,), is_of_connection=True,
)  # fmt: skip
@attrs.define
class WqRequest:
    """Ask whether there is work: if there is, a `work` event comes on this connection, if it listens to the queue."""

    queue: bytes = positional("Queue to ask about.", QUEUE)

    def run(self, node: Node, client: Client) -> int:
        queue = work_queue(node, self.queue)
        count = 0 if queue is None or queue.holds & HOLDS_ALL else queue.units.ready_count
        if count and node.notifications.listens:
            node.outbox.events.append(Notification(self.queue, WORK, count, client))
        return count


class ProcessForm(Form):
    """WQ.DEQUEUE: (queue, process, task)."""

    __slots__ = ()

    def row(self, unit: Unit) -> tuple[bytes, bytes, bytes]:
        """A unit as WQ.DEQUEUE answers it."""
        return (unit.queue, process_of(unit), unit.body)


@command(
    "WQ.DEQUEUE", group="workers", flags=Flag.WRITE | Flag.FAST, reply=PROCESSES, cost="O(1) per task",
    errors=(*_WHO, NotWorking, NodeLeaving, OutOfMemory, WrongType), shows_bodies=True, is_of_connection=True,
)  # fmt: skip
@attrs.define
class WqDequeue:
    """Take tasks, as the worker that this connection is, from queues that it works on.

    Queues are asked from left to right, one task each, and round again until COUNT are taken; 2000 at most, and no more
    once they are a mebibyte together.  Null when there is none, or with BLOCK when none came in time.  The first queue
    may have any name, others none that reads as an option.
    """

    queue: bytes = positional("Queue to take from.", QUEUE)
    count: int = option("COUNT", "Tasks to take at most.", GET_COUNT, 1)
    block: int | None = option("BLOCK", "Wait for the first one, so many milliseconds.", _BLOCK)
    queues: list[bytes] = rest("More queues.", QUEUE, minimum=0)

    def run(self, node: Node, client: Client) -> Any:
        """Take the tasks; returns rows as `PROCESSES` describes them, None, or BLOCKED."""
        workers, delivery, state = node.workers, node.delivery, node.state
        worker = node.sessions.worker_of(client)
        names = list(dict.fromkeys((self.queue, *self.queues)))
        workers.check_work(worker, names)
        for name in names:
            work_queue(node, name)
        queues = self._queues(node, names)
        units = delivery.fetch(queues, self.count)
        form = ProcessForm(self.count)
        if units:
            note_taken(node, queues, units, worker)
            return [form.row(unit) for unit in units]
        if self.block is None and not (state.waiting.behind and delivery.is_behind(queues)):
            if state.peers.linked:
                node.federation.local_demand.need(queues)
            return None
        waiting = WorkerForm(workers, worker, form)
        return wait_for_jobs(
            node, client, queues, waiting, named=len(names), timeout_ms=self.block or 0, nohang=self.block is None
        )

    def _queues(self, node: Node, names: list[bytes]) -> list[Queue]:
        """The queues, made where they are not there.  Raises OutOfMemory (OOM) for one that must be waited for."""
        queues = with_new(node, names)
        if len(queues) < len(names) and self.block is not None:
            raise OutOfMemory
        return queues


@command(
    "WQ.FINISH", group="workers", flags=Flag.WRITE | Flag.FAST,
    reply=integer(
        "1 = it was the current process; 2 = it was late, and the task is done now; 0 = nothing was done here"
    ),
    cost="O(1)", errors=(WrongType,), is_large=True,
)  # fmt: skip
@attrs.define
class WqFinish:
    """Say that a process is done, whoever had it; those who listen hear `done`, with the result.

    Who is late finishes the task all the same: if another worker has it by then, that one hears `cancel` with the id of
    its process, and its own WQ.FINISH is answered 0.  With STRICT the late one is answered 0 instead, and nothing is
    done.  A task that was done before is answered 0, and so is one of which this node holds no copy; the latter is done
    all the same, whatever STRICT says, as soon as a node that knows it is told, and nobody hears `done`.  So on another
    node than the worker's own 2 means that this node was told that the task is queued again or with somebody else, and
    0 may be the answer though the task is done.  Of two nodes that are told within some milliseconds both may answer 1.
    """

    process: Process = positional("Process that is done.", PROCESS)
    result: bytes | None = option("RESULT", "What came of it, for those who listen.", BYTES)
    strict: bool = flag("STRICT", "Do nothing if somebody else has the task by now.")

    def run(self, node: Node, client: Client) -> int:
        by = node.sessions.last_worker_of(client)
        return node.tasks.finish(self.process, self.result, by, strict=self.strict)


@command(
    "WQ.RETURN", group="workers", flags=Flag.WRITE | Flag.FAST, reply=integer("tasks that were given back"),
    cost="O(log N) per process",
)  # fmt: skip
@attrs.define
class WqReturn:
    """Give tasks back: they go to the front of their queue, in their order, and whoever waits is woken.

    Each node that holds the task does so, whichever the worker is on; the answer counts what this one gave back.  A
    process that is over is passed over, and so is one of which this node knows nothing, as it holds no copy.
    """

    process: Process = positional("Process to give back.", PROCESS)
    back: bool = flag("BACK", "Behind all that wait.")
    delay: int = option("DELAY", "Seconds before they are queued.", DELAY, 0)
    processes: list[Process] = rest("More of them.", PROCESS, minimum=0)

    def run(self, node: Node, client: Client) -> int:
        processes = [self.process, *self.processes]
        return node.tasks.return_some(processes, back=self.back, delay_ms=self.delay)


@command(
    "WQ.CANCEL", group="workers", flags=Flag.WRITE,
    reply=array(either(integer("tasks"), bulk("process")), "how many waiting tasks are gone, then ids of processes"),
    cost="O(N) in the tasks of the queue", errors=(WrongType,), is_large=True,
)  # fmt: skip
@attrs.define
class WqCancel:
    """End all tasks of a queue of this node with exactly this body that wait; those who listen hear `cancel`.

    Processes with this body go on; their ids are answered, so that they can be told or finished.  With KILL they are
    done as well: neither a return nor a death brings them back, and their own WQ.FINISH is answered 0.
    """

    queue: bytes = positional("Queue of the tasks.", QUEUE)
    task: bytes = positional("Body of the tasks.", BYTES)
    kill: bool = flag("KILL", "Processes with this body are done, too.")

    def run(self, node: Node, client: Client) -> Any:
        """Cancel; returns the count and the ids, or BLOCKED for a very long queue."""
        work_queue(node, self.queue)
        return in_parts(node, client, node.tasks.cancel(self.queue, self.task, kill=self.kill))


@command(
    "WQ.DELETE", group="workers", flags=Flag.WRITE, reply=integer("tasks that are gone"), cost="O(N) in the tasks",
    errors=(WrongType,),
)  # fmt: skip
@attrs.define
class WqDelete:
    """End all tasks of a queue that wait on this node; those who listen hear `delete`.

    Processes may go on and finish; one that would come back is done instead, unless KEEP was said.
    """

    queue: bytes = positional("Queue to empty.", QUEUE)
    keep: bool = flag("KEEP", "What is being worked on may come back.")

    def run(self, node: Node, client: Client) -> Any:
        """Empty the queue; returns how many tasks are gone, or BLOCKED for a very long one."""
        work_queue(node, self.queue)
        return in_parts(node, client, node.tasks.delete(self.queue, keep=self.keep))


def _good(node: Node, queue: bytes) -> Iterator[Unit]:
    """The units that wait in a queue of this node and whose time is not over, the first to be served first."""
    known = work_queue(node, queue)
    now = node.state.now
    return (unit for unit in (() if known is None else known.units) if unit.job.expires_at > now)


@command(
    "WQ.PEEK", group="workers", flags=Flag.READ | Flag.FAST, reply=null_or(bulk("the task")), cost="O(1)",
    errors=(WrongType,), shows_bodies=True,
)  # fmt: skip
@attrs.define
class WqPeek:
    """Look at the task of this node that is served next; null when there is none."""

    queue: bytes = positional("Queue to look into.", QUEUE)

    def run(self, node: Node, client: Client) -> bytes | None:
        unit = next(_good(node, self.queue), None)
        return None if unit is None else unit.body


@command(
    "WQ.LEN", group="workers", flags=Flag.READ | Flag.FAST, reply=integer("tasks that wait"), cost="O(1)",
    errors=(WrongType,),
)  # fmt: skip
@attrs.define
class WqLen:
    """Count the tasks that wait in a queue of this node."""

    queue: bytes = positional("Queue to measure.", QUEUE)

    def run(self, node: Node, client: Client) -> int:
        return _length(node, self.queue)


@command(
    "WQ.TASKS", group="workers", flags=Flag.READ, reply=array(bulk("task"), "tasks"), cost="O(start + count)",
    errors=(WrongType,), shows_bodies=True,
)  # fmt: skip
@attrs.define
class WqTasks:
    """Look at tasks that wait in a queue of this node, those first that are served first.

    One call shows 2000 at most, and no more once they are a mebibyte together.
    """

    queue: bytes = positional("Queue to look into.", QUEUE)
    start: int = optional("How many to pass over.", _START, 0)
    count: int = optional("How many to show at most.", _COUNT, JOBS_AT_ONCE)

    def run(self, node: Node, client: Client) -> Any:
        """Look; BLOCKED when there are very many to pass over."""
        known = work_queue(node, self.queue)
        return [] if known is None else in_parts(node, client, self._parts(node, known))

    def _parts(self, node: Node, queue: Queue) -> Parts:
        tasks: list[bytes] = []
        size, passed, count = 0, 0, min(self.count, JOBS_AT_ONCE)
        # Between two parts units come and go.
        for seen, unit in enumerate(queue.units.listed(), 1):
            if len(tasks) >= count or size >= FETCHED_BYTES:
                break
            if unit.job.expires_at > node.state.now:
                passed += 1
                if passed > self.start:
                    tasks.append(unit.body)
                    size += len(unit.body)
            if seen % LISTED_PER_PART == 0:
                yield
        return tasks


@command("WQ.QUEUES", group="workers", flags=Flag.READ, reply=array(bulk("queue"), "names"), cost="O(N) in the queues")
@attrs.define
class WqQueues:
    """Names of all queues of this node in which tasks wait; SCAN QUEUE walks over very many."""

    def run(self, node: Node, client: Client) -> Any:
        """List names; BLOCKED when there are very many queues."""
        return in_parts(node, client, self._parts(node, seen_by(client)))

    @staticmethod
    def _parts(node: Node, sees: Sees | None) -> Parts:
        names: list[bytes] = []
        serial = 0
        while queues := node.state.queues.from_serial(serial, LISTED_PER_PART):
            names += [queue.name for queue in queues if len(queue.units) and (sees is None or sees(queue.name))]
            serial = queues[-1].serial + 1
            if len(queues) == LISTED_PER_PART:
                yield
        return (yield from spelt(iter(names), LISTED_PER_PART))


_PROCESS = tuple_of(
    "[process, queue, worker, task, age in ms, attempt]; a worker that is empty is none",
    bulk("process"), bulk("queue"), bulk("worker"), bulk("task"), integer("age"), integer("attempt"),
)  # fmt: skip


@command(
    "WQ.PROCS", group="workers", flags=Flag.READ, reply=array(_PROCESS, "of processes"),
    cost="O(N) in the processes of the queue, of the worker, or of the node", errors=(WrongType,), shows_bodies=True,
    is_large=True,
)  # fmt: skip
@attrs.define
class WqProcs:
    """List what consumers have from this node, 10000 at most and no more once it is a mebibyte together."""

    queue: bytes | None = option("QUEUE", "Only those of this queue.", QUEUE)
    worker: bytes | None = option("WORKER", "Only those of this worker.", WORKER_ID)
    task: bytes | None = option("TASK", "Only those with exactly this body.", BYTES)
    client: int | None = option("CLIENT", "Only those of the client that has this number in CLIENT LIST.", _CLIENT)

    def run(self, node: Node, client: Client) -> Any:
        """List them; BLOCKED when there are very many.  Raises WrongType (WRONGTYPE)."""
        if self.queue is not None:
            work_queue(node, self.queue)
        return in_parts(node, client, self._parts(node, seen_by(client)))

    def _parts(self, node: Node, sees: Sees | None) -> Parts:
        reply = EncodedList()
        size = 0
        units = list(self._units(node))
        for at in range(0, len(units), LISTED_PER_PART):
            if at:
                yield
            rows: list[tuple[Any, ...]] = []
            for unit in units[at : at + LISTED_PER_PART]:
                row = self._row(node, unit)
                if row is not None and (sees is None or sees(unit.queue)):
                    rows.append(row)
                    size += len(unit.queue) + len(unit.body)
                if len(reply) + len(rows) == PROCESSES_MAX or size >= FETCHED_BYTES:
                    reply.add(rows)
                    return reply
            reply.add(rows)
        return reply

    def _units(self, node: Node) -> Iterable[Unit]:
        if self.worker is not None:
            worker = node.workers.by_id.get(self.worker)
            return () if worker is None else worker.leases
        if self.queue is not None:
            queue = node.state.queues.by_name.get(self.queue)
            return () if queue is None else queue.leased
        return chain.from_iterable(queue.leased for queue in list(node.state.queues.by_name.values()) if queue.leased)

    def _row(self, node: Node, unit: Unit) -> tuple[Any, ...] | None:
        """Describe a process; None if it is over, or was not asked for."""
        state = node.state
        queue = state.queues.by_name.get(unit.queue)
        if queue is None or unit not in queue.leased or (self.queue is not None and unit.queue != self.queue):
            return None
        if self.task is not None and unit.body != self.task:
            return None
        handed_out, consumer = queue.leased[unit]
        if self.client is not None and (consumer is None or consumer.id != self.client):
            return None
        worker = node.workers.leases.holder_of(unit)
        since = handed_out if worker is None else worker.leases[unit]
        name = b"" if worker is None else worker.id
        return (process_of(unit), unit.queue, name, unit.body, state.now - since, attempt_of(unit))
