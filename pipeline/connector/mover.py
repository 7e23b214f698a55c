"""Moving the jobs of a stream's batches into another queue: the runner of `disqued.moves` for Spark.

    driver      a batch of jobs that the stream has leased (see `stream`)
    executor    for each part: SHOW, ADDJOB ... KEY move/<id>, ACKJOB, on the node that has the job
    driver      adds up what came of them, and ends the query when jobs were refused

The keys make it harmless that Spark runs a task, or a batch, a second time.  Jobs that a first run has moved are done
by then, and are left out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import pyarrow as pa

from disqued.client.errors import DisquedError, ServerError, Unreachable
from disqued.moves import Broken, Effect, Lost, Refusal, Tally, Terms, Wait, move_known, run
from disqued.pipeline.connector.nodes import NodeAt, NodeLink, ask_each, find_nodes, pieces
from disqued.pipeline.connector.options import ConnectorUse, read_options
from disqued.wire.texts import raw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What a task answers: how many jobs it moved, why jobs were refused.
RESULT: Final = "moved LONG, refused ARRAY<STRING>"
BATCH: Final = 100  #: jobs that are under way at a time


class MoveRefused(DisquedError):
    """Jobs were refused by the queue that they were to go to, and are where they were."""


@attrs.frozen
class MovedRow:
    """A job of a batch."""

    id: bytes
    queue: bytes
    body: bytes
    node: str  #: 8 hex digits


class QueueMover:
    """Moves batches into a queue; it may be pickled."""

    def __init__(self, given: Mapping[str, str], to: str) -> None:
        """Take options as a user writes them.  Raises ValueError."""
        self._options = read_options(given, ConnectorUse.MOVE)
        self._to = raw(to) if "\\" in to else to.encode()

    def move(self, jobs: "DataFrame") -> int:
        """Move a batch; return how many jobs were moved.  Raises MoveRefused, and what Spark raises for a task."""
        parts = jobs.select("id", "queue", "body", "node").mapInArrow(self.move_batches, RESULT).collect()
        moved: int = sum(part.moved for part in parts)
        refused = [why for part in parts for why in part.refused]
        if refused:
            raise MoveRefused(
                f"{moved} jobs of the batch were moved; {len(refused)} were refused, and are where they were: "
                f"{refused[0]}"
            )
        return moved

    def check_nodes(self) -> None:
        """Raise Unreachable when a node is away.

        A batch that an earlier run has begun leaves out jobs that no node knows: an earlier attempt has moved them.
        But the stream acknowledges them as well, and a job that is on the absent node alone would be lost.
        """
        away = ask_each(find_nodes(self._options, away=True), self._options, lambda *_: None)
        if away:
            raise Unreachable(
                f"{away[0]}; jobs of the batch that an earlier run has begun may be there alone: start that node, or "
                "make the cluster forget it"
            ) from away[0]

    def move_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Move the jobs of a task.  Raises Unreachable, ServerError, DisquedError for lost jobs."""
        moved, refused = 0, list[str]()
        for batch in batches:
            for rows in pieces([_row(row) for row in batch.to_pylist()], min(BATCH, self._options["pipeline"])):
                for tally in self._tallies(rows):
                    moved += tally.moved + tally.overtaken
                    refused += [refusal.text for _, refusal in tally.refused]
        yield pa.RecordBatch.from_pydict(
            {"moved": [moved], "refused": [refused]},
            schema=pa.schema([("moved", pa.int64()), ("refused", pa.list_(pa.string()))]),
        )

    def _tallies(self, rows: Sequence[MovedRow]) -> Iterator[Tally]:
        """Move rows on the nodes that know them, each on its own node first.

        A job that no node knows is over, unless a node is away: it may be there alone, and would be lost if the stream
        acknowledged it.
        """
        nodes = find_nodes(self._options, away=True)
        left = {row.id: row for row in rows}
        silent: list[Unreachable] = []
        for is_own in (True, False):
            for node in nodes:
                here = [row for row in left.values() if (row.node == node.short_id) is is_own]
                for queue in dict.fromkeys(row.queue for row in here):
                    try:
                        yield self._move_on(node, queue, [row for row in here if row.queue == queue], left)
                    except Unreachable as error:
                        silent.append(error)
        if left and silent:
            raise Unreachable(f"{len(left)} jobs are on no node that answers: {silent[0]}") from silent[0]

    def _move_on(self, node: NodeAt, queue: bytes, rows: Sequence[MovedRow], left: dict[bytes, MovedRow]) -> Tally:
        """Move jobs by one node, and take those that it knows out of what is left.  Raises Unreachable, ServerError."""
        with NodeLink(node.address, self._options) as link:
            tally = _run(self._terms(queue), rows, link)
        for row in rows:
            if row.id not in tally.unknown:
                del left[row.id]
        return tally

    def _terms(self, queue: bytes) -> Terms:
        options = self._options
        return Terms(queue, self._to, options["replicate"], options["retry"], options["ttl"], options["delay"] or None,
                     float(options["replicationTimeout"]))  # fmt: skip


def _run(terms: Terms, rows: Sequence[MovedRow], link: NodeLink) -> Tally:
    """Move jobs on one node: both sides are the same connection.  Raises Unreachable, ServerError, DisquedError."""

    def perform(effect: Effect) -> list[Any] | None:
        if isinstance(effect, Wait):  # never: Spark runs the task again
            return None
        try:
            replies = link.ask_all(effect.commands)
        except Unreachable as error:  # the connection stood, so that any of the commands may have arrived
            raise Broken(may_be_done=True) from error
        return [_read(reply) for reply in replies]

    try:
        tally = run(move_known(terms, [(row.id, row.body) for row in rows]), perform)
    except Lost as lost:
        raise DisquedError(str(lost)) from lost
    for _, refusal in tally.both:
        raise refusal.error
    return tally


def _read(reply: Any) -> Any:
    return Refusal(reply.word, str(reply), reply) if isinstance(reply, ServerError) else reply


def _row(row: Mapping[str, Any]) -> MovedRow:
    queue: str = row["queue"]
    return MovedRow(row["id"].encode(), raw(queue) if "\\" in queue else queue.encode(), row["body"], row["node"])
