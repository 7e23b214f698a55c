"""Live queues as a source of streams: jobs are leased for a batch, and acknowledged when it is done.

    latestOffset   ACKJOB of the batch before;  GETJOB  -->  {"seq": 7, "ids": "DI... DI..."}
                                                             Spark writes that down, and then runs the batch
    partitions     the rows that GETJOB gave; after a restart, when there are the ids alone, WORKING and SHOW
    commit         ACKJOB, once more: Spark calls it only when the next batch is written down
    stop           NACK of what is leased and was never given to Spark's batches

So a checkpoint names exactly the jobs of the batch that is under way.  A thread of the driver says WORKING for what is
leased, at least three times in the shortest retry period among the jobs, until the batch is done.

What one node has is asked for on that node: a lease, its renewal and its end.  A node that does not answer is passed
over, and the others, which may have copies, are asked to renew and to end.  After a restart nobody knows where a job
was leased, and all are asked.

Two nodes that could not hear each other may both have a job in their queues: it is one row of the batch, and leased on
both.  A node that has not heard yet what is done may hand out a job again whose batch is over.  So the others are asked
about jobs that were queued more than once, and the ids of the last ones that are done are kept: such a job is
acknowledged once more, and in no other batch.
"""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from disqued.client.errors import DisquedError, ServerError, Unreachable
from disqued.core.model.fate import NO_FATE
from disqued.core.model.terms import Terms
from disqued.pipeline.connector.nodes import NodeAt, NodeLink, Word, ask_each, find_nodes, pieces, uncollected
from disqued.pipeline.connector.rows import ACKED, ARROW, BODY, RETRY, STATE, Told, batch_of, headers_of, needed

GET_COUNT: Final = 2_000  #: as many jobs as one GETJOB gives
US_IN_S: Final = 1_000_000
RENEWALS: Final = 3  #: in a retry period
MOVED_S: Final = 2.0  #: a job is in no queue while it goes from one node to another, for less than that
DONE_KEPT: Final = 100_000  #: ids of jobs that are done, and would be known again

Offset = dict[str, Any]


class ArrowJobs(InputPartition):
    """Rows that the driver has, in Arrow's form between processes."""

    def __init__(self, rows: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows.combine_chunks())
        self.arrow = sink.getvalue().to_pybytes()


class KnownIds(InputPartition):
    """Jobs of which the ids alone are known, after a restart."""

    def __init__(self, ids: Sequence[bytes]) -> None:
        self.ids = list(ids)


@attrs.frozen
class HandedOut:
    """What a node has handed out at a time, and what it says of each."""

    given: Sequence[Any] = ()  #: as GETJOB and QGET answer it
    shown: Sequence[Any] = ()  #: as SHOW answers it, in the same order
    at_us: int = 0


NOTHING: Final = HandedOut()


@attrs.define(eq=False)
class BatchLease:
    """The jobs of one batch, and on which node they were leased."""

    #: Ids of the rows, in their order.
    order: list[bytes] = attrs.field(factory=list)
    #: The rows.
    batches: list[pa.RecordBatch] = attrs.field(factory=list)
    named: set[bytes] = attrs.field(factory=set)
    #: Ids of those that were queued more than once.
    doubtful: list[bytes] = attrs.field(factory=list)
    ids: dict[NodeAt, list[bytes]] = attrs.field(factory=dict)
    #: The shortest retry period among them, in seconds; 0 = none has one.
    retry: float = 0
    size: int = 0  #: bytes of the bodies
    #: Spark has it in its log, so that it will be run until it is done.
    is_written: bool = False

    def add(self, node: NodeAt, ids: Sequence[bytes], retries: AbstractSet[float]) -> None:
        """Note jobs; several nodes may have one with us, and each is to be told of it."""
        if ids:
            self.named.update(ids)
            self.ids.setdefault(node, []).extend(ids)
            self.retry = min(filter(None, (self.retry, *retries)), default=0)

    def forget(self, done: AbstractSet[bytes]) -> dict[NodeAt, list[bytes]]:
        """Leave jobs out, and tell where they were leased."""
        left_out = pa.array(list(done), pa.string())
        self.order = [each for each in self.order if each not in done]
        self.batches = [
            batch.filter(pc.invert(pc.is_in(batch.column("id"), value_set=left_out))) for batch in self.batches
        ]
        self.size = sum(pc.sum(pc.binary_length(batch.column("body"))).as_py() or 0 for batch in self.batches)
        self.named -= done
        over = {node: [each for each in ids if each in done] for node, ids in self.ids.items()}
        self.ids = {node: [each for each in ids if each not in done] for node, ids in self.ids.items()}
        return {node: ids for node, ids in over.items() if ids}


class QueuesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads queues as a consumer does."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Take options as `read_options` makes them; nothing is sent before Spark asks."""
        self._options = options
        self._leases: dict[int, BatchLease] = {}
        #: What may still be taken with availableNow; None = no end.
        self._rest: int | None = None
        self._heart: LeaseRenewer | None = None
        #: Jobs of batches that are done, those that were done last at the end.
        self._done: dict[bytes, None] = {}
        #: The last batch that was acknowledged: Spark ends each of them twice.
        self._ended = 0

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what is the driver's: executors need the options."""
        return {"_options": self._options, "_leases": {}, "_rest": None, "_heart": None, "_done": {}, "_ended": 0}

    # What Spark asks for, in the driver.

    def initialOffset(self) -> Offset:
        """Begin before the first batch."""
        return {"seq": 0, "ids": ""}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Say how many jobs make a batch."""
        return ReadMaxRows(self._options["maxJobsPerTrigger"])

    def prepareForTriggerAvailableNow(self) -> None:
        """Take no more jobs than wait now.  Raises Unreachable, ServerError."""
        self._rest = self._waiting()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """End the batch that is done, and lease the next one.  Raises Unreachable, ServerError."""
        self._acknowledge(start)
        wanted = limit.max_rows if isinstance(limit, ReadMaxRows) else self._waiting()
        lease = self._lease(wanted) if self._rest is None else self._lease_rest(min(wanted, self._rest))
        if not lease.order:
            return start
        if self._rest is not None:
            self._rest -= len(lease.order)
        seq = start["seq"] + 1
        self._keep(seq, lease)
        return {"seq": seq, "ids": b" ".join(lease.order).decode()}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Give out the rows of a batch, or the ids where it was begun by a driver that is gone."""
        if start == end:
            return []
        tasks = self._options["minPartitions"]
        lease = self._leases.get(end["seq"])
        if lease is not None:
            lease.is_written = True
            return tasks_of(lease.batches, tasks)
        ids = _ids(end)
        again = self._lease_again(ids)
        again.is_written = True
        self._keep(end["seq"], again)
        return [KnownIds(piece) for piece in pieces(ids, max(1, -(-len(ids) // tasks)))]

    def commit(self, end: Offset) -> None:
        """End a batch that is done, if `latestOffset` has not done so.  Raises Unreachable, ServerError."""
        self._acknowledge(end)

    def stop(self) -> None:
        """Give back what no batch will be run with; nodes that are away do so by themselves in time."""
        if self._heart is not None:
            self._heart.stop()
        for lease in self._leases.values():
            if not lease.is_written:
                for node, ids in lease.ids.items():
                    with contextlib.suppress(DisquedError):
                        self._say(node, b"NACK", ids)
        self._leases.clear()

    # What Spark asks for, in the executors.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the jobs of a task.  Raises Unreachable, ServerError, JobsGone."""
        if isinstance(partition, ArrowJobs):
            yield from pa.ipc.open_stream(partition.arrow)
        elif isinstance(partition, KnownIds):
            for ids in pieces(partition.ids, self._options["pipeline"]):
                yield self._look_up(ids)

    def _look_up(self, ids: Sequence[bytes]) -> pa.RecordBatch:
        """Ask all nodes for jobs until each is found."""
        found: dict[bytes, tuple[Told, str]] = {}

        def ask(node: NodeAt, link: NodeLink) -> None:
            missing = [each for each in ids if each not in found]
            for each, reply in show(link, missing):
                found[each] = self._needed(reply), node.short_id

        silent = ask_each(find_nodes(self._options), self._options, ask)
        gone = [each.decode() for each in ids if each not in found]
        if gone and silent:
            raise Unreachable(f"{len(gone)} jobs of a batch that is run again are on no node that answers: {silent[0]}")
        if gone and self._options["failOnDataLoss"]:
            raise JobsGone(
                f"{len(gone)} jobs of a batch that is run again are gone, the first is {gone[0]}: somebody else has "
                "done them, their TTL is over, or the node that has them is away; with the option "
                "failOnDataLoss = false they are left out"
            )
        there = [found[each] for each in ids if each in found]
        return batch_of([job for job, _ in there], [node for _, node in there])

    def _needed(self, reply: Sequence[Any]) -> Told:
        """Take what a row needs of what SHOW tells."""
        return needed(reply)

    # Leases.

    def _waiting(self) -> int:
        """Count the jobs that wait, on all nodes."""
        lengths: list[int] = []

        def ask(_: NodeAt, link: NodeLink) -> None:
            lengths.extend(link.ask(["QLEN", queue]) for queue in self._options["queues"])

        ask_each(find_nodes(self._options), self._options, ask)
        return sum(lengths)

    def _lease(self, wanted: int) -> BatchLease:
        lease = BatchLease()
        most = self._options["maxBytesPerTrigger"]

        def ask(node: NodeAt, link: NodeLink) -> None:
            with uncollected():
                while (handed := self._fetch(link, wanted - len(lease.order), most - lease.size)).given:
                    self._take(node, handed, lease)

        nodes = find_nodes(self._options)
        ask_each(nodes, self._options, ask)
        self._leave_out(lease, nodes)
        return lease

    def _lease_rest(self, wanted: int) -> BatchLease:
        """Take some of those that waited when the query began; they may be on their way from node to node just now."""
        until = time.monotonic() + MOVED_S
        while not (lease := self._lease(wanted)).order and wanted and time.monotonic() < until:
            time.sleep(MOVED_S / 20)
        return lease

    def _leave_out(self, lease: BatchLease, nodes: Sequence[NodeAt]) -> None:
        """Leave out jobs of which another node knows that they are done: it remembers until all others have heard."""
        doubtful = lease.doubtful
        if not doubtful or len(nodes) == 1:
            return
        done: set[bytes] = set()

        def ask(_: NodeAt, link: NodeLink) -> None:
            replies = link.ask_all([(b"SHOW", each) for each in doubtful])
            done.update(each for each, reply in zip(doubtful, replies, strict=True) if _is_done(reply))

        ask_each(nodes, self._options, ask)
        if done:
            for node, ids in lease.forget(done).items():
                self._say(node, b"ACKJOB", ids)

    def _fetch(self, link: NodeLink, count: int, size: int) -> HandedOut:
        """Ask for jobs, at most so many; nothing where they may have no bytes."""
        if count <= 0 or size <= 0:
            return NOTHING
        words: list[Word] = ["GETJOB", "NOHANG", "WITHCOUNTERS", "WITHHEADERS", "COUNT", min(GET_COUNT, count), "FROM"]
        while given := link.ask([*words, *self._options["queues"]]):
            handed = self._look_at(link, given)
            if handed.given:
                return handed
        return NOTHING

    def _look_at(self, link: NodeLink, given: Sequence[Any]) -> HandedOut:
        """Ask for what GETJOB does not say of the jobs that it gave; those of batches that are done it gave in vain."""
        now_us = int(time.time() * US_IN_S)
        again = [job[1] for job in given if job[1] in self._done]
        if again:
            link.ask([b"ACKJOB", *again])
        fresh = [job for job in given if job[1] not in self._done]
        shown = link.ask_all([(b"SHOW", job[1]) for job in fresh])
        return HandedOut(fresh, shown, now_us)

    def _take(self, node: NodeAt, handed: HandedOut, lease: BatchLease) -> None:
        ids: list[bytes] = []
        fresh: list[Told] = []
        retries: set[float] = set()
        for row, reply in zip(handed.given, handed.shown, strict=True):
            queue, id_, body, _, nacks, _, deliveries, _, headers, _, attempt = row
            if isinstance(reply, list):
                job = self._needed(reply)
                if job[STATE] == ACKED:  # somebody has done it meanwhile
                    continue
                retries.add(job[RETRY])
            elif reply is None and not (nacks or deliveries):
                # Delivered at most once: for the node it is over.
                terms = Terms(headers=headers_of(headers))
                job = (id_, queue, body, None, nacks, deliveries, ACKED, 0, attempt, terms, NO_FATE)
            else:
                continue
            ids.append(id_)
            if id_ not in lease.named:
                fresh.append(job)
                if nacks or deliveries:
                    lease.doubtful.append(id_)
        if fresh:
            lease.order += [job[0] for job in fresh]
            lease.size += sum(len(job[BODY]) for job in fresh)
            lease.batches.append(batch_of(fresh, node.short_id, handed.at_us))
        lease.add(node, ids, retries)

    def _lease_again(self, ids: Sequence[bytes]) -> BatchLease:
        """Take the jobs of a batch that is run again out of their queues, wherever they are."""
        lease = BatchLease()

        def ask(node: NodeAt, link: NodeLink) -> None:
            replies = link.ask_all([(b"WORKING", each) for each in ids])
            known = {each: retry for each, retry in zip(ids, replies, strict=True) if isinstance(retry, int)}
            lease.add(node, list(known), set(known.values()))

        ask_each(find_nodes(self._options), self._options, ask)
        return lease

    def _keep(self, seq: int, lease: BatchLease) -> None:
        self._leases[seq] = lease
        if self._heart is None:
            self._heart = LeaseRenewer(self._options)
        self._heart.renew(seq, lease)

    def _acknowledge(self, offset: Offset) -> None:
        """Say that the jobs of a batch are done; saying it twice is no harm."""
        if offset["seq"] == self._ended:
            return
        ids = _ids(offset)
        self._note_done(ids)
        lease = self._leases.pop(offset["seq"], None)
        if self._heart is not None:
            self._heart.forget(offset["seq"])
        if lease is not None and lease.order:
            for node, here in lease.ids.items():
                try:
                    self._say(node, b"ACKJOB", here)
                except Unreachable:
                    self._acknowledge_elsewhere(node, here)
        elif ids:
            self._acknowledge_elsewhere(None, ids)
        self._ended = offset["seq"]

    def _note_done(self, ids: Sequence[bytes]) -> None:
        done = self._done
        done.update(dict.fromkeys(ids))
        for each in list(islice(done, max(0, len(done) - DONE_KEPT))):
            del done[each]

    def _acknowledge_elsewhere(self, away: NodeAt | None, ids: Sequence[bytes]) -> None:
        """Tell every other node: one that does not know a job passes on what is said of it.  Raises Unreachable."""
        others = [node for node in find_nodes(self._options) if node != away]
        if not others:
            raise Unreachable(f"the node {away} does not answer, and there is no other one")
        ask_each(others, self._options, lambda _, link: link.tell(b"ACKJOB", ids))

    def _say(self, node: NodeAt, command: bytes, ids: Sequence[bytes]) -> None:
        with NodeLink(node.address, self._options) as link:
            link.tell(command, ids)


class LeaseRenewer:
    """A thread that renews leases."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._leases: dict[int, BatchLease] = {}
        self._changed = threading.Condition()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="disqued-leases", daemon=True)
        self._thread.start()

    def renew(self, seq: int, lease: BatchLease) -> None:
        with self._changed:
            self._leases[seq] = lease
            self._changed.notify()

    def forget(self, seq: int) -> None:
        with self._changed:
            self._leases.pop(seq, None)

    def stop(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic() + self._interval()
        while True:
            with self._changed:
                is_changed = self._changed.wait(max(0.0, due - time.monotonic()))
                if self._is_over:
                    return
                if is_changed:
                    due = min(due, time.monotonic() + self._interval())
                    continue
                leases = list(self._leases.values())
            for lease in leases:
                for node, ids in lease.ids.items():
                    self._beat(node, ids)
            with self._changed:
                due = time.monotonic() + self._interval()

    def _interval(self) -> float:
        """How long until the next renewal, in seconds."""
        spans = [lease.retry / RENEWALS for lease in self._leases.values() if lease.retry]
        return float(min([self._options["leaseRenewInterval"], *spans]))

    def _beat(self, node: NodeAt, ids: Sequence[bytes]) -> None:
        """Say WORKING.  A node refuses it for what is over, or half over; for one that is away the others are asked."""

        def ask(_: NodeAt, link: NodeLink) -> None:
            link.ask_all([(b"WORKING", each) for each in ids])

        with contextlib.suppress(DisquedError):
            try:
                ask_each([node], self._options, ask)
            except Unreachable:
                others = [other for other in find_nodes(self._options) if other != node]
                ask_each(others, self._options, ask)


class JobsGone(DisquedError):
    """Jobs that a checkpoint names are on no node."""


def _ids(offset: Offset) -> list[bytes]:
    return [each.encode() for each in offset["ids"].split()]


def _is_done(reply: Any) -> bool:
    """Tell whether SHOW says that a job is acknowledged."""
    return isinstance(reply, list) and needed(reply)[STATE] == ACKED


def tasks_of(batches: Sequence[pa.RecordBatch], count: int) -> list[InputPartition]:
    """Share rows out among at most so many tasks."""
    rows = pa.Table.from_batches(batches, schema=ARROW)
    size = max(1, -(-len(rows) // count))
    return [ArrowJobs(rows.slice(at, size)) for at in range(0, len(rows), size)]


def show(link: NodeLink, ids: Sequence[bytes]) -> Iterator[tuple[bytes, list[Any]]]:
    """Ask for jobs; those that are known and not done are answered.  Raises ServerError."""
    for each, reply in zip(ids, link.ask_all([(b"SHOW", each) for each in ids]), strict=True):
        if isinstance(reply, ServerError):
            raise reply
        if reply is not None and needed(reply)[STATE] != ACKED:
            yield each, reply
