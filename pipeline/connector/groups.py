"""Logs as a source of streams: a group of consumers gets each event once, and is done with it when its batch is.

    initialOffset  QGROUP START, if the group is new and shall not begin at the oldest event
    latestOffset   QACK of the batch before;  QGET ... EX leaseTime  -->  {"seq": 7, "ids": {"log": "DI... DI..."}}
    partitions     the rows that QGET gave; after a restart, when there are the ids alone, SHOW
    commit         QACK, once more
    stop           QGROUP RETURN of what was never given to Spark's batches

Nothing prolongs the lease of an event, so that `leaseTime` has to be longer than a batch takes.  When it was not, QACK
says 0, and the group is given the event again: this reader knows those of batches that are done, and acknowledges them
when they come, instead of giving them to another batch.

Any node hands out the events of all, and takes acknowledgements of all.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from disqued.client.errors import DisquedError, ServerError, Unreachable
from disqued.core.model.fate import NO_FATE
from disqued.core.model.terms import NO_TERMS
from disqued.moves import span_word
from disqued.pipeline.connector.nodes import NodeAt, NodeLink, Word, ask_each, find_nodes, pieces, uncollected
from disqued.pipeline.connector.rows import (
    ACKED,
    ATTEMPT,
    BODY,
    DELIVERIES,
    STATE,
    TERMS,
    Told,
    batch_of,
    groups_of,
    needed,
    text,
)
from disqued.pipeline.connector.stream import (
    GET_COUNT,
    NOTHING,
    US_IN_S,
    HandedOut,
    KnownIds,
    Offset,
    QueuesStreamReader,
    show,
    tasks_of,
)

OVERDUE_MAX: Final = 1_000_000  #: ids that are remembered because they may come again
DONE: Final = b"done"


@attrs.define(eq=False)
class Taken:
    """The events of one batch."""

    #: The rows.
    batches: list[pa.RecordBatch] = attrs.field(factory=list)
    #: By queue.
    ids: dict[str, list[bytes]] = attrs.field(factory=dict)
    named: set[bytes] = attrs.field(factory=set)
    size: int = 0
    #: Spark has it in its log, so that it will be run until it is done.
    is_written: bool = False


class GroupStreamReader(QueuesStreamReader):
    """Reads logs as a consumer of a group does."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Take options as `read_options` makes them; nothing is sent before Spark asks."""
        super().__init__(options)
        self._batches: dict[int, Taken] = {}
        #: Number of the last batch that was acknowledged.
        self._acknowledged = 0
        #: Events of batches that are done, whose acknowledgement came too late; oldest first.
        self._overdue: dict[bytes, None] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what is the driver's: executors need the options."""
        return {**super().__getstate__(), "_batches": {}, "_acknowledged": 0, "_overdue": {}}

    # What Spark asks for, in the driver.

    def initialOffset(self) -> Offset:
        """Let a group that is new begin where it shall.  Raises Unreachable, ServerError."""
        where = self._options["startingPosition"]
        if where != "earliest":
            for queue in self._options["queues"]:
                if not self._is_known(queue):
                    self._start(queue, "NOW" if where == "latest" else where)
        return {"seq": 0, "ids": {}}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """End the batch that is done, and take the next one.  Raises Unreachable, ServerError."""
        self._acknowledge(start)
        wanted = limit.max_rows if isinstance(limit, ReadMaxRows) else self._waiting()
        taken = self._take_events(wanted if self._rest is None else min(wanted, self._rest))
        if not taken.named:
            return start
        if self._rest is not None:
            self._rest -= len(taken.named)
        seq = start["seq"] + 1
        self._batches[seq] = taken
        return {"seq": seq, "ids": {queue: b" ".join(ids).decode() for queue, ids in taken.ids.items()}}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Give out the rows of a batch, or the ids where it was begun by a driver that is gone."""
        if start == end:
            return []
        tasks = self._options["minPartitions"]
        taken = self._batches.get(end["seq"])
        if taken is not None:
            taken.is_written = True
            return tasks_of(taken.batches, tasks)
        ids = [each for named in _ids(end).values() for each in named]
        return [KnownIds(piece) for piece in pieces(ids, max(1, -(-len(ids) // tasks)))]

    def stop(self) -> None:
        """Give back what no batch will be run with; nodes that are away do so by themselves in time."""
        for taken in self._batches.values():
            if not taken.is_written:
                for queue, ids in taken.ids.items():
                    self._return(queue, ids)
        self._batches.clear()

    def _return(self, queue: str, ids: Sequence[bytes]) -> None:
        words = ["QGROUP", "RETURN", queue, self._options["group"]]
        with contextlib.suppress(DisquedError):
            self._on_any(lambda link: [link.ask([*words, *piece]) for piece in pieces(ids, self._options["pipeline"])])

    # The group.

    def _is_known(self, queue: str) -> bool:
        known: set[bytes] = set()
        nodes = find_nodes(self._options)
        ask_each(nodes, self._options, lambda _, link: known.update(link.ask(["QGROUP", "LIST", queue])))
        return self._options["group"].encode() in known

    def _start(self, queue: str, where: str) -> None:
        """Let the group begin; an event is named on a node that has it.  Raises Unreachable, ServerError."""
        words = ["QGROUP", "START", queue, self._options["group"], where]
        refused: list[ServerError] = []
        is_begun = False

        def ask(_: NodeAt, link: NodeLink) -> None:
            nonlocal is_begun
            if not is_begun:
                [reply] = link.ask_all([words])
                if not isinstance(reply, ServerError):
                    is_begun = True
                elif str(reply).startswith("NOJOB"):
                    refused.append(reply)
                else:
                    raise reply

        ask_each(find_nodes(self._options), self._options, ask)
        if not is_begun:
            raise ServerError(f"{refused[0]} No node has the event {where}, which startingPosition names.")

    def _waiting(self) -> int:
        """Count the events that the group can have: those with copies on several nodes several times."""
        counts: list[int] = []

        def ask(_: NodeAt, link: NodeLink) -> None:
            status = link.ask(["QSTATUS", *self._options["queues"], "GROUPS", self._options["group"]])
            counts.append(_available(status))

        ask_each(find_nodes(self._options), self._options, ask)
        return sum(counts)

    # Events.

    def _take_events(self, wanted: int) -> Taken:
        taken = Taken()

        def ask(node: NodeAt, link: NodeLink) -> None:
            for queue in self._options["queues"]:
                self._take_from(link, node, queue, wanted, taken)

        ask_each(find_nodes(self._options), self._options, ask)
        return taken

    def _take_from(self, link: NodeLink, node: NodeAt, queue: str, wanted: int, taken: Taken) -> None:
        most = self._options["maxBytesPerTrigger"]
        with uncollected():
            while (handed := self._fetch_events(link, queue, wanted - len(taken.named), most - taken.size)).given:
                self._note(node, queue, handed, taken)

    def _fetch_events(self, link: NodeLink, queue: str, count: int, size: int) -> HandedOut:
        """Ask for events, at most so many, and for what QGET does not say of them."""
        if count <= 0 or size <= 0:
            return NOTHING
        lease = span_word(self._options["leaseTime"])
        words: list[Word] = ["QGET", queue, self._options["group"], "EX", lease, "COUNT"]
        while given := link.ask([*words, min(GET_COUNT, count)]):
            now_us = int(time.time() * US_IN_S)
            late = {each: None for each, _ in given if each in self._overdue}
            if late:
                self._settle(link, queue, list(late))
                given = [event for event in given if event[0] not in late]
            if given:
                shown = link.ask_all([(b"SHOW", each) for each, _ in given])
                return HandedOut(given, shown, now_us)
        return NOTHING

    def _note(self, node: NodeAt, queue: str, handed: HandedOut, taken: Taken) -> None:
        """Note events that a node handed out."""
        name = queue.encode()
        fresh: list[Told] = []
        for (each, body), reply in zip(handed.given, handed.shown, strict=True):
            if isinstance(reply, ServerError):
                raise reply
            if each in taken.named:  # two nodes that do not hear each other may both hand one out
                continue
            job = None if reply is None else self._needed(reply)
            if job is None or job[STATE] == ACKED:  # the node has no copy of its own
                job = (each, name, body, None, 0, 0, ACKED, 0, 1, NO_TERMS, NO_FATE)
            fresh.append(job)
        ids = [job[0] for job in fresh]
        taken.named.update(ids)
        taken.ids.setdefault(queue, []).extend(ids)
        taken.size += sum(len(job[BODY]) for job in fresh)
        taken.batches.append(batch_of(fresh, node.short_id, handed.at_us))

    def _needed(self, reply: Sequence[Any]) -> Told:
        """Take what a row needs: an event was delivered again as often as the group has had it before."""
        job = needed(reply)
        deliveries = max([1, *(group[2] for group in self._told_of(reply))])
        return (*job[:DELIVERIES], deliveries - 1, *job[STATE:ATTEMPT], deliveries, *job[TERMS:])

    # Acknowledgements.

    def _acknowledge(self, offset: Offset) -> None:
        """Say that the events of a batch are done, once."""
        if offset["seq"] <= self._acknowledged:
            return
        self._batches.pop(offset["seq"], None)
        ids = _ids(offset)

        def settle(link: NodeLink) -> None:
            for queue, each in ids.items():
                self._settle(link, queue, each)

        if ids:
            self._on_any(settle)
        self._acknowledged = offset["seq"]

    def _settle(self, link: NodeLink, queue: str, ids: Sequence[bytes]) -> None:
        """Acknowledge events; remember those for which it is too late.  Raises Unreachable, ServerError."""
        some = list(pieces(ids, self._options["pipeline"]))
        replies = link.ask_all([("QACK", queue, self._options["group"], *piece) for piece in some])
        doubtful: list[bytes] = []
        for piece, reply in zip(some, replies, strict=True):
            if isinstance(reply, ServerError):
                raise reply
            if reply == len(piece):
                for each in piece:
                    self._overdue.pop(each, None)
            else:
                doubtful += piece
        for each, reply in show(link, doubtful):
            if self._is_done(reply):
                self._overdue.pop(each, None)
            else:
                self._overdue[each] = None
        while len(self._overdue) > OVERDUE_MAX:
            del self._overdue[next(iter(self._overdue))]

    def _is_done(self, reply: Sequence[Any]) -> bool:
        return any(group[1] == DONE for group in self._told_of(reply))

    def _told_of(self, reply: Sequence[Any]) -> list[Any]:
        """What SHOW says of our group: [group, state, deliveries, milliseconds], once or not at all."""
        return [group for group in groups_of(reply) if text(group[0]) == self._options["group"]]

    def _on_any(self, do: Callable[[NodeLink], object]) -> None:
        """Do something on the first node that answers to the end.  Raises Unreachable, ServerError."""
        failed: Unreachable | None = None
        for node in find_nodes(self._options):
            try:
                with NodeLink(node.address, self._options) as link:
                    do(link)
                    return
            except Unreachable as error:
                failed = error
        raise failed or Unreachable("there is no node")


def _ids(offset: Offset) -> dict[str, list[bytes]]:
    return {queue: [each.encode() for each in ids.split()] for queue, ids in offset["ids"].items()}


def _available(status: Any) -> int:
    """Count what QSTATUS says that one group can have: what it never had, and what it may have again."""
    figures = [dict(zip(each[::2], each[1::2], strict=True)) for _, groups in status for each in groups[1::2]]
    return sum(each[b"available"] + each[b"redo"] for each in figures)
