"""`python -m tests.torture.standin [source] [sink] ...`: calls the connector as Spark does, and starts in a moment.

    offsets/N   is written --> tasks, each a process, tried four times --> files or jobs --> commits/N is written
    again       a driver finds an N in offsets/ that is not in commits/, and runs that batch once more

The order of calls is that of MicroBatchExecution and of WriteToDataSourceV2 in Spark 4: `latestOffset` with what is
done, the log, `commit` of the batch before, `partitions`, tasks; `write` in tasks, then `commit` or `abort` of the
writer.  A reader and its parts, and writers and their messages, are pickled for every process.  The table has the log
that file sinks of Spark keep.
"""

import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StringType, StructType

from disqued.pipeline.connector import write
from disqued.pipeline.connector.options import ConnectorUse, read_options
from disqued.pipeline.connector.stream import QueuesStreamReader
from tests.torture.words import read_words

TRIES = 4  #: of a task
ROWS = 20  #: of an Arrow batch
PARTS = 2  #: of a batch of the sink
FILES = 4  #: of a batch of the sink
PAUSE = 0.05  #: seconds until a stream that has nothing to do looks again
QUERY = "query"


class TaskFailed(Exception):
    """A task has failed as often as it may; the stream ends."""


@attrs.frozen
class Task:
    """What Spark tells a task of itself."""

    part: int
    batch: int

    def partitionId(self) -> int:
        """The number of the part."""
        return self.part

    def getLocalProperty(self, name: str) -> str:
        """The query, or the number of the batch."""
        return {write.QUERY_PROPERTY: QUERY, write.BATCH_PROPERTY: str(self.batch)}[name]


class Log:
    """A folder with one file for each batch, as a checkpoint has two."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder

    def last(self) -> int:
        """The highest number; -1 = none."""
        return max((int(path.name) for path in self._folder.glob("[0-9]*")), default=-1)

    def read(self, number: int) -> Any:
        """What was written for a batch."""
        return json.loads((self._folder / str(number)).read_text())

    def write(self, number: int, what: object) -> None:
        """Write it as a whole."""
        path = self._folder / f".{number}"
        path.write_text(json.dumps(what))
        path.rename(self._folder / str(number))


def in_process(work: Callable[..., Any], *things: Any) -> Any:
    """Run something in a process of its own, four times at most, with copies; returns a copy of what it returned."""
    sent = pickle.dumps(things)
    for _ in range(TRIES):
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            status = 1
            try:
                os.write(writing, pickle.dumps(work(*pickle.loads(sent))))
                status = 0
            finally:
                os._exit(status)
        os.close(writing)
        with open(reading, "rb") as pipe:
            told = pipe.read()
        if os.waitpid(pid, 0)[1] == 0:
            return pickle.loads(told)
    raise TaskFailed


def take(address: str, place: Path) -> None:
    """Take jobs into a table."""
    reader = QueuesStreamReader(
        read_options({"address": address, "queues": "source", "minPartitions": "4"}, ConnectorUse.STREAM)
    )
    offsets, commits = Log(place / "state" / "offsets"), Log(place / "state" / "commits")
    start = reader.initialOffset() if commits.last() < 0 else offsets.read(commits.last())
    while True:
        number = commits.last() + 1
        if offsets.last() < number:
            end = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
            if end == start:
                time.sleep(PAUSE)
                continue
            offsets.write(number, end)
            if number:
                reader.commit(start)
        end = offsets.read(number)
        names = [in_process(read_part, reader, part, place / "out") for part in reader.partitions(start, end)]
        log = place / "out" / "_spark_metadata"
        log.mkdir(exist_ok=True)
        (log / f".{number}").write_text("\n".join(["v1", *(json.dumps({"path": f"file://{name}"}) for name in names)]))
        (log / f".{number}").rename(log / str(number))
        commits.write(number, {})
        start = end


def read_part(reader: QueuesStreamReader, part: Any, out: Path) -> str:
    """Do a task: write a file that no other try of it writes."""
    path = out / f"part-{time.monotonic_ns()}-{os.getpid()}.parquet"
    pq.write_table(pa.Table.from_batches(list(reader.read(part))), path)
    return str(path)


def add(address: str, place: Path) -> None:
    """Make jobs of lines."""
    options = read_options({"address": address, "queue": "sink", "replicate": "2", "retry": "20"}, ConnectorUse.WRITE)
    offsets, commits = Log(place / "state" / "offsets"), Log(place / "state" / "commits")
    while True:
        number = commits.last() + 1
        if offsets.last() < number:
            done = {name for batch in range(number) for name in offsets.read(batch)}
            names = sorted({path.name for path in (place / "in").iterdir()} - done)[:FILES]
            if not names:
                time.sleep(PAUSE)
                continue
            offsets.write(number, names)
        lines = [line for name in offsets.read(number) for line in (place / "in" / name).read_text().split()]
        run_batch(
            write.QueuesStreamWriter(write.Sink(StructType().add("body", StringType()), options)), number, lines, place
        )
        commits.write(number, {})


def run_batch(writer: write.QueuesStreamWriter, number: int, lines: Sequence[str], place: Path) -> None:
    """Write the lines of a batch; they are there, or the stream ends."""
    messages: list[Any] = [None] * PARTS
    try:
        for part in range(PARTS):
            messages[part] = in_process(write_part, writer, Task(part, number), lines[part::PARTS], place / "told")
        in_process(commit, writer, messages, number)
    except TaskFailed:
        writer.abort(messages, number)
        raise


def write_part(writer: write.QueuesStreamWriter, task: Task, lines: Sequence[str], told: Path) -> Any:
    """Do a task, which may have been told to fail when it has added some jobs."""
    write.TaskContext = type("TaskContext", (), {"get": staticmethod(lambda: task)})  # type: ignore[misc]

    def batches() -> Iterator[pa.RecordBatch]:
        for at in range(0, len(lines), ROWS):
            yield pa.RecordBatch.from_pydict({"body": list(lines[at : at + ROWS])})
            if (told / "always").exists():
                raise TaskFailed
            if (told / "once").exists():
                (told / "once").unlink()
                raise TaskFailed

    return writer.write(batches())


def commit(writer: write.QueuesStreamWriter, messages: list[Any], number: int) -> None:
    """Let consumers have the jobs."""
    writer.commit(messages, number)


def main() -> int:
    """Run streams until somebody ends them, or one of them fails."""
    options = read_words("tests.torture.standin")
    streams = {"source": take, "sink": add}
    # A stream with tasks is a process, since they are forked from it; whichever ends first ends the driver.
    for role in options.roles:
        if not os.fork():
            streams[role](options.address, options.place / role)
    os.wait()
    return 1


if __name__ == "__main__":
    sys.exit(main())
