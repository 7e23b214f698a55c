"""QCONSUMERS: who waits for the jobs of a queue on this node, and who has some of them."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import attrs

from disqued.commands.parts import Making, in_order, in_parts
from disqued.commands.shapes import array, pairs
from disqued.commands.table import Flag, command, option, positional
from disqued.commands.values import COUNT_MISFIT, QUEUE
from disqued.commands.values import count as count_kind
from disqued.core.model.groups import PendingEntry
from disqued.core.model.job import Unit, attempt_of
from disqued.core.model.outbox import Client
from disqued.core.model.queues import Queue
from disqued.core.model.unfinished import Parts
from disqued.core.model.waiters import Consumer, Waiter
from disqued.core.model.worker import Worker
from disqued.core.node import Node

SHOWN_BY_DEFAULT = 100
SHOWN_MAX = 2_000  #: rows of one reply, some milliseconds' work
SEEN_PER_PART = 1_000  #: jobs and waiting clients
COUNT = count_kind(1, SHOWN_MAX, COUNT_MISFIT)
NAMED_MAX = 250  #: jobs that one reply names
JOBS = count_kind(0, NAMED_MAX, "JOBS must not be negative - allowed are whole numbers")

ROW = ("consumer", "address", "client", "connected", "worker", "group", "waiting-for", "jobs", "oldest-for")
NAMED = "held"  #: behind these, with JOBS


@attrs.define
class _Row:
    """A consumer of a queue: times are monotonic milliseconds; None = never."""

    consumer: Consumer | None
    worker: bytes
    group: bytes
    waits_since: int | None = None
    jobs: int = 0
    oldest: int | None = None
    named: list[tuple[Unit, int]] = attrs.field(factory=list)  #: units, and since when it has them

    def values(self, now: int, *, names_jobs: bool) -> list[Any]:
        """The row as it is answered."""
        who = self.consumer
        row: list[Any] = [
            b"consumer", who.word or None if who is not None else None,
            b"address", b"" if who is None else who.address,
            b"client", 0 if who is None else who.id,
            b"connected", int(who is not None and not who.is_gone),
            b"worker", self.worker,
            b"group", self.group,
            b"waiting-for", None if self.waits_since is None else max(0, now - self.waits_since),
            b"jobs", self.jobs,
            b"oldest-for", None if self.oldest is None else max(0, now - self.oldest),
        ]  # fmt: skip
        if names_jobs:
            held = [[unit.id, max(0, now - since), attempt_of(unit)] for unit, since in self.named]
            row += [NAMED.encode(), held]
        return row


#: Whose row it is: consumer, worker, group.
_Key = tuple[Consumer | None, bytes, bytes]
#: A unit that somebody has, or somebody who waits (None), and since when.
_Sight = tuple[_Key, int, Unit | None]


@command(
    "QCONSUMERS", group="queues", flags=Flag.READ,
    reply=array(
        pairs("a consumer", *ROW, optional=(NAMED,)), "consumers, those first that have a job for the longest time"
    ),
    cost="O(N) in the consumers that wait, and in what consumers have, bit by bit",
)  # fmt: skip
@attrs.define
class QConsumers:
    """Show who consumes a queue on this node: the clients that wait for its jobs, and those that have some.

    A client waits in GETJOB, RQ.POP, WQ.DEQUEUE, QGET or another command that fetches, for so many milliseconds by now
    (waiting-for; null if it does not wait).  jobs are the jobs that it has, or the events of a group of a log, and
    oldest-for is for how many milliseconds it has the oldest of them.  consumer is the name of the client (CLIENT
    SETNAME), or its address if it has none; client is its number in CLIENT LIST, and connected is 0 once its connection
    has ended.  What it has stays with it for its retry period even then, unless it is a worker's.  worker is the id of
    the live worker as which it consumes; each worker, and each group of a log, has a row of its own.

    consumer is null where this node does not know who has the jobs: since a restart.  Other nodes have consumers of
    their own.  What a consumer was given by another node, an event of a log as a rule, that other node shows, without
    the consumer.  Jobs that are delivered once (RETRY 0) are not counted: nobody awaits their acknowledgement.

    With JOBS the rows name so many of the jobs that consumers have, those that are held longest first: held in the row
    of its consumer is [id, milliseconds, attempt] of each.

    More names may come at the end of each row.
    """

    queue: bytes = positional("Queue whose consumers are shown.", QUEUE)
    count: int = option("COUNT", "How many at most.", COUNT, SHOWN_BY_DEFAULT)
    jobs: int = option("JOBS", "How many of their jobs are named, over all rows.", JOBS, 0)

    def run(self, node: Node, client: Client) -> Any:
        """Look at what consumers have, and at those that wait; BLOCKED when that is very much."""
        queue = node.state.queues.by_name.get(self.queue)
        return [] if queue is None else in_parts(node, client, self._parts(node, queue))

    def _parts(self, node: Node, queue: Queue) -> Parts:
        sights = list(_sights(node, queue))
        rows = yield from _rows(sights)
        if self.jobs:
            yield from _name_jobs(rows, sights, self.jobs)
        shown = sorted(rows.values(), key=_longest_first)
        return [row.values(node.state.now, names_jobs=self.jobs > 0) for row in islice(shown, self.count)]


def _rows(sights: list[_Sight]) -> Making[dict[_Key, _Row]]:
    """Put together what was seen of each consumer, so much a part."""
    rows: dict[_Key, _Row] = {}
    for number, (key, since, unit) in enumerate(sights, 1):
        row = rows.get(key)
        if row is None:
            row = rows[key] = _Row(*key)
        if unit is None:
            row.waits_since = since
        else:
            row.jobs += 1
            row.oldest = since if row.oldest is None else min(row.oldest, since)
        if number % SEEN_PER_PART == 0:
            yield
    return rows


def _name_jobs(rows: dict[_Key, _Row], sights: list[_Sight], most: int) -> Making[None]:
    """Enter into the rows the units that are held longest, `most` altogether."""
    held = [sight for sight in sights if sight[2] is not None]
    longest = yield from in_order(held, key=_since, most=most)
    for key, since, unit in longest[:most]:
        rows[key].named.append((unit, since))


def _since(sight: _Sight) -> int:
    return sight[1]


def _longest_first(row: _Row) -> tuple[bool, int]:
    """Those that have a job for the longest time come first, then those that wait, in the order in which they came."""
    if row.oldest is not None:
        return (False, row.oldest)
    return (True, row.waits_since or 0)


def _sights(node: Node, queue: Queue) -> Iterator[_Sight]:
    """Everything that consumers of this node have of a queue, and everybody who waits for it."""
    custody = node.state.custody
    for unit, (since, consumer) in queue.leased.items():
        worker = custody.bound.get(unit)
        yield (consumer, b"" if worker is None else worker.id, b""), since, unit
    for waiter in queue.waiters:
        yield _waiting(node, waiter, b"")
    groups = [] if queue.stream is None else list(queue.stream.groups.values())
    for group in groups:
        for entry in group.units.values():
            if entry.is_leased and not entry.granter:
                yield (entry.consumer, _id_of(entry.worker), group.name), _handed_out_at(entry), entry
        for group_waiter in group.waiters:
            yield _waiting(node, group_waiter, group.name)


def _waiting(node: Node, waiter: Waiter, group: bytes) -> _Sight:
    consumer = node.state.custody.consumer_of(waiter.client)
    return (consumer, _id_of(waiter.form.worker), group), waiter.since, None


def _id_of(worker: Worker | None) -> bytes:
    return b"" if worker is None else worker.id


def _handed_out_at(entry: PendingEntry) -> int:
    return entry.requeue_at - entry.lease_ms
