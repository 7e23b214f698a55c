"""WORKER: who is alive, and what comes back when that is over.

A connection works as a worker once it has said WORKER START, or WORKER KEEPALIVE with an id; from then on each of its
commands is a sign of life.  Source: the Worqr README; the commands are ours.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import attrs

from disqued.commands.parts import in_parts, picked, spelt
from disqued.commands.permission import Sees, queues_of_worker, seen_by
from disqued.commands.shapes import array, bulk, either, integer, pairs, tuple_of
from disqued.commands.table import BLOCKED, Flag, command, container, flag, option, optional, positional
from disqued.commands.values import (
    COUNT_MISFIT,
    MILLISECOND,
    PATTERN,
    QUEUE,
    Kind,
    bounded,
    count,
    span,
)
from disqued.core.model.glob import matches
from disqued.core.model.memory import WORKER_COST
from disqued.core.model.messages import WORKER_NAME_MAX
from disqued.core.model.outbox import Client
from disqued.core.model.unfinished import Parts
from disqued.core.model.worker import Worker
from disqued.core.node import Node
from disqued.core.workers.announcements import tell_life
from disqued.core.workers.workers import HEARTBEATS, TTL_MS
from disqued.errors import CommandError, NoWorker, OutOfMemory, StaleWorker

TTL_MAX_MS = 365 * 86_400_000
EPOCH_MAX = 2**63 - 1
LISTED_PER_PART = 5_000  #: ids of workers
DESCRIBED_MAX = 2_000  #: workers that one reply describes
_COUNT = count(1, DESCRIBED_MAX, COUNT_MISFIT)
_ID_BITS = 128
_BAD_NAME = f"the id of a worker has 1 to {WORKER_NAME_MAX} bytes, its name no more than {WORKER_NAME_MAX}"
_BAD_TTL = f"TTL must be a number of milliseconds, from 0 (for ever) to {TTL_MAX_MS} (a year)"
_BAD_EPOCH = "the epoch is a whole number from 1, as WORKER START answered it"
_HERE_ALONE = "FULL, MATCH and COUNT are about the workers of this node, and go without CLUSTER"
_UNHEARD_EPOCH = "no epoch as high was given to this worker, as far as this node has heard; WORKER START takes it over"


def _read_id(text: bytes) -> bytes:
    if not 0 < len(text) <= WORKER_NAME_MAX:
        raise CommandError(_BAD_NAME)
    return text


def _read_name(text: bytes) -> bytes:
    if len(text) > WORKER_NAME_MAX:
        raise CommandError(_BAD_NAME)
    return text


WORKER_ID = Kind("string", _read_id, f"1 to {WORKER_NAME_MAX} bytes", errors=(f"ERR {_BAD_NAME}",))
#: The worker that a command acts on.
_WORKER = attrs.evolve(WORKER_ID, names="worker")
_NAME = Kind("string", _read_name, f"at most {WORKER_NAME_MAX} bytes", errors=(f"ERR {_BAD_NAME}",))
_TTL = span(MILLISECOND, 0, TTL_MAX_MS, _BAD_TTL, f"milliseconds, 0 to {TTL_MAX_MS}; 0 = until it is stopped")
_EPOCH = Kind(
    "integer", bounded(1, EPOCH_MAX, _BAD_EPOCH), "1 or more", {"type": "integer", "minimum": 1}, (f"ERR {_BAD_EPOCH}",)
)


_MISUSE = "WORKER takes START, KEEPALIVE [id] [epoch], STOP [id], FAIL id, LIST or INFO id"


container(
    "WORKER", group="workers", flags=Flag.WRITE, summary="Workers, whose tasks come back when they die.", misuse=_MISUSE
)


@command(
    "WORKER START", group="workers", flags=Flag.WRITE | Flag.DENY_OOM | Flag.FAST,
    reply=tuple_of(
        "[id, epoch, ttl in ms, ms between two signs of life that are advised]",
        bulk("id"), integer("epoch"), integer("ttl"), integer("advice"),
    ),
    cost="O(1)", errors=(OutOfMemory,), is_of_connection=True,
)  # fmt: skip
@attrs.define
class WorkerStart:
    """Become a worker: from now on what this connection takes by WQ.DEQUEUE comes back when it dies.

    It is dead when nothing is heard of it for TTL milliseconds; every command of this connection is a sign of life, and
    so is waiting in one.  With BIND the end of this connection is its death, at once.  An id that is alive already is
    taken over with what it has, from whatever connection or node: who was it before is answered STALE from then on.
    """

    id: bytes | None = option("ID", "Its id; one is made up when none is given.", _WORKER)
    ttl: int = option("TTL", "Milliseconds after the last sign of life in which it dies.", _TTL, TTL_MS)
    bind: bool = flag("BIND", "It dies when this connection ends.")
    name: bytes | None = option("NAME", "A name for people to read.", _NAME)

    def run(self, node: Node, client: Client) -> list[Any]:
        """Begin, or take over; returns id, epoch, ttl and the advised time between two signs of life."""
        workers = node.workers
        worker_id = self.id or b"%032x" % node.state.numbers.rng.getrandbits(_ID_BITS)
        worker = workers.by_id.get(worker_id)
        if worker is None:
            node.check_names(WORKER_COST + len(worker_id) + len(self.name or b""))
            worker = node.worker_moves.come(worker_id) or Worker(worker_id, 1, self.ttl, node.state.now)
        elif not node.sessions.is_current(worker, client):
            workers.supersede(worker, worker.epoch + 1)
        worker.ttl_ms = self.ttl
        worker.epoch_is_known = True
        if self.name is not None:
            worker.name = self.name
        workers.begin(worker, client, bind=self.bind)
        node.worker_moves.arrived(worker)
        return [worker_id, worker.epoch, self.ttl, self.ttl // HEARTBEATS]


@command(
    "WORKER KEEPALIVE", group="workers", flags=Flag.WRITE | Flag.FAST, reply=integer("its ttl, in milliseconds"),
    cost="O(1)", errors=(NoWorker, StaleWorker, _UNHEARD_EPOCH), is_of_connection=True,
)  # fmt: skip
@attrs.define
class WorkerKeepAlive:
    """Show a sign of life, of the worker that this connection works as or of another one, as which it works then.

    One that lives on another node moves to this one, with its queues and what it has.  One that nobody knows, or that
    is dead, has to START again; what it had has come back by then.  So has one with an epoch that this node has not
    heard of, as it was given behind a cut; it keeps what it has.
    """

    id: bytes | None = optional("Its id; the one that this connection works as when none is given.", _WORKER)
    epoch: int | None = optional("Its epoch: who has an old one is refused, or one that nobody has heard of.", _EPOCH)

    def run(self, node: Node, client: Client) -> Any:
        """Note the sign; returns the ttl in milliseconds, or BLOCKED while a worker moves."""
        workers = node.workers
        if self.id is None:
            return node.sessions.worker_of(client).ttl_ms
        worker = workers.by_id.get(self.id)
        if worker is None:
            return self._move(node, client, self.id)
        if self.epoch is not None:
            self._check_epoch(node, client, worker, self.epoch)
        node.sessions.adopt(worker, client)
        return worker.ttl_ms

    @staticmethod
    def _check_epoch(node: Node, client: Client, worker: Worker, epoch: int) -> None:
        """Refuse an epoch that is over, and one that never was; after a restart one that may have been is it."""
        workers = node.workers
        if epoch > worker.epoch:
            if not workers.is_plausible(worker, epoch):
                raise CommandError(_UNHEARD_EPOCH)
            workers.supersede(worker, epoch)
            tell_life(node.state, worker)
        elif epoch < worker.epoch and not node.sessions.is_current(worker, client):
            raise StaleWorker
        worker.epoch_is_known = True

    def _move(self, node: Node, client: Client, worker_id: bytes) -> Any:
        home = node.homes.known.get(worker_id)
        if home is None:
            raise NoWorker
        if self.epoch is not None and self.epoch < home.epoch:
            raise StaleWorker
        if self.epoch is not None and self.epoch > home.highest:
            raise CommandError(_UNHEARD_EPOCH)
        came_from = home.node_id
        worker = node.worker_moves.come(worker_id)
        assert worker is not None
        node.workers.begin(worker, client)
        node.worker_moves.arrived(worker)
        return BLOCKED if node.worker_moves.await_rest(worker, client, came_from) else worker.ttl_ms


def alive_here(node: Node, worker_id: bytes) -> Worker:
    """A worker of this node.  Raises NoWorker (NOWORKER), which names the node where it lives if that is known."""
    worker = node.workers.by_id.get(worker_id)
    if worker is None:
        home = node.homes.known.get(worker_id)
        if home is not None:
            raise NoWorker(f"it lives on node {home.node_id.decode()}: ask there, or move it by WORKER KEEPALIVE")
        raise NoWorker
    return worker


_RETURNED = integer("tasks that were queued again")


@command(
    "WORKER STOP", group="workers", flags=Flag.WRITE, reply=_RETURNED, cost="O(log N) per task that it has",
    errors=(NoWorker, StaleWorker),
)  # fmt: skip
@attrs.define
class WorkerStop:
    """End a worker in order: what it has goes to the front of its queues, and nobody hears of a death.

    It is a failed try of each job that the worker has, "its worker NAME stopped before it was done": the work may have
    begun, and the next delivery gets the next attempt number.  A job that was added with MAXTRIES is dead after the
    last of its tries.  A worker that has jobs which it has not begun gives them back by NACK UNTRIED first.
    """

    id: bytes | None = optional("Its id; the one that this connection works as when none is given.", _WORKER)

    def run(self, node: Node, client: Client) -> Any:
        """End it; returns how many tasks came back, or BLOCKED when there are very many."""
        worker = node.sessions.worker_of(client) if self.id is None else alive_here(node, self.id)
        return in_parts(node, client, node.workers.stop(worker))


@command(
    "WORKER FAIL", group="workers", flags=Flag.WRITE, reply=_RETURNED, cost="O(log N) per task that it has",
    errors=(NoWorker,),
)  # fmt: skip
@attrs.define
class WorkerFail:
    """Declare a worker of this node dead.  Its jobs go to the front of their queues.

    It is a failed try of each job that the worker has, "its worker NAME died": one that was added with MAXTRIES is dead
    after the last of its tries.
    """

    id: bytes = positional("Its id.", _WORKER)

    def run(self, node: Node, client: Client) -> Any:
        """End it; returns how many tasks came back, or BLOCKED when there are very many."""
        return in_parts(node, client, node.workers.fail(alive_here(node, self.id)))


_FACTS = (
    "id", "epoch", "home", "ttl", "idle-ms", "bound", "queues", "processes", "started", "done", "returned", "name",
)  # fmt: skip
#: What newer nodes say, too.
_MORE = ("oldest-for",)
_DESCRIBED = pairs("what is known of the worker", *_FACTS, optional=_MORE)


def describe_worker(node: Node, worker: Worker) -> list[Any]:
    """A worker of this node, as WORKER INFO answers it."""
    now, since = node.state.now, next(iter(worker.leases.values()), None)
    return [
        b"id", worker.id,
        b"epoch", worker.epoch,
        b"home", node.id,
        b"ttl", worker.ttl_ms,
        b"idle-ms", now - worker.last_sign,
        b"bound", int(worker.bound_to is not None),
        b"queues", list(worker.queues),
        b"processes", len(worker.leases),
        b"started", worker.started,
        b"done", worker.done,
        b"returned", worker.returned,
        b"name", worker.name,
        b"oldest-for", None if since is None else max(0, now - since),
    ]  # fmt: skip


@command(
    "WORKER LIST", group="workers", flags=Flag.READ,
    reply=array(either(bulk("id"), _DESCRIBED), "ids; with FULL what is known of each"), cost="O(N) in the workers",
    errors=(_HERE_ALONE,),
)  # fmt: skip
@attrs.define
class WorkerList:
    """List the workers that are alive on this node, or in the cluster as far as this node knows.

    With FULL each is described as WORKER INFO does, 2000 at most.
    """

    queue: bytes | None = option("QUEUE", "Only those of this node that work on this queue.", QUEUE)
    cluster: bool = flag("CLUSTER", "Those of other nodes, too; not with QUEUE.")
    full: bool = flag("FULL", "Describe them; not with CLUSTER.")
    match: bytes | None = option(
        "MATCH", "Only those whose id or name matches this glob pattern, in any case; not with CLUSTER.", PATTERN
    )
    count: int | None = option("COUNT", "How many at most; not with CLUSTER.", _COUNT)

    def run(self, node: Node, client: Client) -> Any:
        """List ids, those of this node first; of others' queues none to who may not see those."""
        if self.cluster and (self.full or self.match is not None or self.count is not None):
            raise CommandError(_HERE_ALONE)
        return in_parts(node, client, self._parts(node, seen_by(client)))

    def _parts(self, node: Node, sees: Sees | None) -> Parts:
        ids: Iterable[bytes]
        if self.cluster and self.queue is None and sees is None:
            ids = [*node.workers.by_id, *node.homes.known]
        elif self.queue is None and self.match is None and sees is None:
            ids = list(node.workers.by_id)
        else:
            workers = list(node.workers.by_id.values())
            ids = yield from picked(worker.id if self._means(node, worker, sees) else None for worker in workers)
        most = DESCRIBED_MAX if self.full and self.count is None else self.count
        chosen = islice(ids, most)
        if not self.full:
            return (yield from spelt(chosen, LISTED_PER_PART))
        by_id = node.workers.by_id  # some may end between two parts
        return (yield from spelt(describe_worker(node, by_id[each]) for each in chosen if each in by_id))

    def _means(self, node: Node, worker: Worker, sees: Sees | None) -> bool:
        if self.queue is not None:
            if self.queue not in worker.queues:
                return False
        elif sees is not None and not all(map(sees, queues_of_worker(node, worker.id))):
            return False
        pattern = self.match
        return pattern is None or any(matches(pattern, text, ignore_case=True) for text in (worker.id, worker.name))


@command("WORKER INFO", group="workers", flags=Flag.READ | Flag.FAST, reply=_DESCRIBED, cost="O(N) in its queues",
         errors=(NoWorker,))  # fmt: skip
@attrs.define
class WorkerInfo:
    """Describe a worker of this node.

    Of the tasks that it `started`, so many are `done`, so many came back from it (`returned`), and `processes` are in
    its hands; it has the oldest of these for `oldest-for` milliseconds, null if there is none.
    """

    id: bytes = positional("Its id.", _WORKER)

    def run(self, node: Node, client: Client) -> list[Any]:
        return describe_worker(node, alive_here(node, self.id))
