"""Rows as jobs, in two phases, so that a write that fails leaves nothing behind that anybody is given.

    executor   row --> ADDJOB ... DELAY prepareTimeout KEY k      the job is there, and in no queue
    driver     every task is well:  ENQUEUE of all ids            consumers have them from now on (see `commits`)
               one is not:          DELJOB of all ids

The key is made of the write, the number of its part and what is in the row.  A task that is run again, and a batch of
a stream that is run again after the driver was killed, meets its own jobs and adds nothing twice, as long as those
live.  The place of a row within its part is not in the key, since it may be another one the next time; the same row
several times in a part is counted instead.

A task never drops what it added: another one that runs the same part, at the same time or later, may count on it.
When its node goes away it goes on with the next one; where jobs have one copy it fails, since that node has them.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Self
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from disqued.client.errors import ServerError, Unreachable
from disqued.moves import span_word
from disqued.pipeline.connector.commits import MS_IN_S, WriteCommits
from disqued.pipeline.connector.nodes import NodeAt, NodeLink, Word, find_nodes
from disqued.wire.texts import raw

BODY: Final = "body"
QUEUE: Final = "queue"
KEY: Final = "key"
HEADERS: Final = "headers"
GROUP: Final = "group"
US_IN_MS: Final = 1_000
KEY_BYTES: Final = 16  #: of the hash of a row
#: What Spark says of a batch of a stream to its tasks.
QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
_TYPES: Final = {
    BODY: ("binary", "string"),
    QUEUE: ("string",),
    KEY: ("binary", "string"),
    HEADERS: ("map<string,binary>", "map<string,string>"),
    GROUP: ("string",),
}


class Prepared(WriterCommitMessage):
    """The jobs of one task, and the node that knows them, unless they were there before."""

    def __init__(self, write: str, node: NodeAt, ids: Sequence[bytes], since_us: int) -> None:
        """`since_us` is the time of the node when the task began, in microseconds since 1970."""
        self.write = write
        self.node = node
        self.ids = tuple(ids)
        self.since_us = since_us


def check_columns(schema: StructType, options: Mapping[str, Any]) -> None:
    """Raise ValueError for a table that cannot be jobs."""
    for name in (BODY, QUEUE):
        if name not in schema.names and not (name == QUEUE and options["queue"] is not None):
            raise ValueError(
                f"the column {name} is missing: jobs are made of body (BINARY or STRING), queue (STRING; or the option "
                "queue) and, where they are given, key (BINARY or STRING), headers (MAP<STRING, BINARY or STRING>) and "
                "group (STRING)"
            )
    for field in schema.fields:
        allowed = _TYPES.get(field.name)
        if allowed is None:
            raise ValueError(f"the column {field.name} is no part of a job: there are {', '.join(_TYPES)}")
        if field.dataType.simpleString() not in allowed:
            types = " or ".join(each.upper() for each in allowed)
            raise ValueError(f"the column {field.name} is {field.dataType.simpleString()}; allowed: {types}")


class Sink:
    """Adds jobs, and ends what was prepared."""

    def __init__(self, schema: StructType, options: Mapping[str, Any]) -> None:
        """Take options as `read_options` makes them.  Raises ValueError."""
        check_columns(schema, options)
        self._options = options
        self._write = uuid4().hex
        self._has_keys = KEY in schema.names

    # The tasks.

    def prepare(self, batches: Iterator[pa.RecordBatch]) -> Prepared:
        """Add the jobs of a task.  Raises DisquedError."""
        task = TaskContext.get()
        part = 0 if task is None else task.partitionId()
        seen: Counter[bytes] = Counter()
        with Adder(self._options, part) as adder:
            for batch in batches:
                adder.add(self._commands(batch, part, seen))
            return adder.prepared(self._name())

    def _commands(self, batch: pa.RecordBatch, part: int, seen: Counter[bytes]) -> list[list[Word]]:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        bodies = columns[BODY].to_pylist()
        queues = columns[QUEUE].to_pylist() if QUEUE in columns else [self._options["queue"]] * len(bodies)
        keys = columns[KEY].to_pylist() if KEY in columns else [None] * len(bodies)
        headers = columns[HEADERS].to_pylist() if HEADERS in columns else [None] * len(bodies)
        groups = columns[GROUP].to_pylist() if GROUP in columns else [None] * len(bodies)
        made, words = f"{self._name()}/{part}".encode(), self._words()
        timeout_ms = round(self._options["replicationTimeout"] * MS_IN_S)
        commands: list[list[Word]] = []
        for body, queue, key, given, group in zip(bodies, queues, keys, headers, groups, strict=True):
            if body is None or queue is None:
                raise ServerError(
                    'ERR a row has no body or no queue: null is no job (of CSV an empty cell is null, and "" no text)'
                )
            chosen = _key(made, body, queue, seen) if key is None else key
            name = _bytes_of(queue)
            if any(value is None for _, value in given or ()):
                raise ServerError("ERR the value of a header is null; leave the header out")
            named = (word for header in given or () for word in ("HEADER", *header))
            grouped = ("GROUP", _bytes_of(group)) if group else ()
            commands.append(["ADDJOB", name, body, timeout_ms, *words, KEY, chosen, *named, *grouped])
        return commands

    def _name(self) -> str:
        """What this write is called, the same when it is run again."""
        task = TaskContext.get()
        query = task and task.getLocalProperty(QUERY_PROPERTY)
        batch = task and task.getLocalProperty(BATCH_PROPERTY)
        return batch_name(query, batch) if query and batch else self._write

    def _words(self) -> list[Word]:
        options = self._options
        delay = options["prepareTimeout"] if options["twoPhase"] else options["delay"]
        given = {"REPLICATE": options["replicate"], "RETRY": options["retry"], "TTL": options["ttl"], "DELAY": delay}
        return [word for name, value in given.items() if value is not None for word in (name, span_word(value))]

    # The driver.

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch: int | None = None) -> None:
        """Let consumers have what was prepared.  Raises Unreachable when no node that is there knows it.

        `batch` is the number of that batch of a stream; None = it is no stream.
        """
        if not self._options["twoPhase"]:
            return
        prepared = _prepared(messages)
        write = prepared[0].write if prepared else self._write
        parts: dict[NodeAt, list[bytes]] = {}
        for message in prepared:
            parts.setdefault(message.node, []).extend(message.ids)
        commits = WriteCommits(self._options, has_keys=self._has_keys)
        has_jobs = any(parts.values())
        if has_jobs:
            commits.commit(write, parts, _since(prepared))
        if batch is None and has_jobs:
            commits.end(write)
        elif batch and prepared:
            commits.end(batch_name(write.rpartition("/")[0], batch - 1))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batch: int | None = None) -> None:
        """Drop what this write added; what was there before stays.

        Of a batch of a stream of which no task has told anything it stays, too: it is for the batch that is run again.
        """
        prepared = _prepared(messages)
        if batch is not None and not prepared:
            return
        write = prepared[0].write if prepared else self._write
        ids = [each for message in prepared for each in message.ids]
        WriteCommits(self._options, has_keys=self._has_keys).abort(write, ids, _since(prepared))


def _bytes_of(name: str) -> bytes | str:
    """Read the name of a queue or a group as a column has it: `\\xNN` is a byte, and two backslashes are one."""
    return raw(name) if "\\" in name else name


def _key(made: bytes, body: bytes | str, queue: str, seen: Counter[bytes]) -> bytes:
    """Make the key of a row that has none of its own: who writes, what, and the how-manieth of the kind it is."""
    content = body.encode() if isinstance(body, str) else body
    name = hashlib.blake2b(content, digest_size=KEY_BYTES, key=_hashed(queue)).hexdigest().encode()
    seen[name] += 1
    return b"%b/%b/%d" % (made, name, seen[name])


@lru_cache
def _hashed(queue: str) -> bytes:
    return hashlib.blake2b(queue.encode(), digest_size=KEY_BYTES).digest()


def _since(prepared: Sequence[Prepared]) -> int:
    """When the first task began, in microseconds since 1970."""
    return min((message.since_us for message in prepared), default=0)


def batch_name(query: str, batch: int | str) -> str:
    """Name the write of a batch of a stream, which is the same when it is run again."""
    return f"{query}/{batch}"


def _prepared(messages: Sequence[WriterCommitMessage | None]) -> list[Prepared]:
    return [message for message in messages if isinstance(message, Prepared)]


class Adder:
    """Adds the jobs of a task on one node, and on the next one when that goes away."""

    def __init__(self, options: Mapping[str, Any], part: int) -> None:
        """Connect.  Raises Unreachable, ServerError."""
        self._options = options
        nodes = find_nodes(options)
        first = part % len(nodes)
        self._nodes = [*nodes[first:], *nodes[:first]]
        if options["replicate"] == 1:
            del self._nodes[1:]
        self._ids: list[bytes] = []
        self._since_us: int | None = None
        self._link = self._connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()

    def _connect(self) -> NodeLink:
        while True:
            try:
                link = NodeLink(self._nodes[0].address, self._options)
                seconds, microseconds = link.ask(["TIME"])
            except Unreachable:
                del self._nodes[0]
                if not self._nodes:
                    raise
            else:
                # As the times of jobs are.
                since_us = int(seconds) * 1_000_000 + int(microseconds) // US_IN_MS * US_IN_MS
                self._since_us = since_us if self._since_us is None else min(since_us, self._since_us)
                return link

    def add(self, commands: Sequence[Sequence[Word]]) -> None:
        """Add jobs, each of which has a key: they may be asked for twice.  Raises Unreachable, ServerError."""
        while True:
            try:
                replies = self._link.ask_all(commands)
            except Unreachable:
                del self._nodes[0]
                if not self._nodes:
                    raise
                self._link = self._connect()
            else:
                break
        for reply in replies:
            if isinstance(reply, ServerError):
                raise reply
        self._ids += replies

    def prepared(self, write: str) -> Prepared:
        return Prepared(write, self._nodes[0], self._ids, self._since_us or 0)


class QueuesWriter(DataSourceArrowWriter):
    """`df.write`."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.prepare(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Let consumers have them."""
        self._sink.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop them, and those of tasks that have not come to an end."""
        self._sink.abort(messages)


class QueuesStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: the same for each batch."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.prepare(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._sink.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._sink.abort(messages, batchId)
