"""Sources and sink, beside redis-py as it comes: the same commands to the same daemon from one Python process.

    table    SCAN, then SHOW of each                the same, in pipelines of a thousand; the replies are dropped
    stream   GETJOB, SHOW, ACKJOB                   the same; a batch is counted and thrown away
    group    QGET, SHOW, QACK                       the same
    sink     ADDJOB ... DELAY KEY, then ENQUEUE     the same; rows are made by Spark

A daemon, Spark and the client share the processors.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from benchmarks.figures import Goal, Row, ratios, spread
from benchmarks.machine import Processors
from benchmarks.servers import Disqued

if TYPE_CHECKING:
    import redis
    from pyspark.sql import SparkSession

    from disqued.pipeline.connector.nodes import NodeLink

Tell = Callable[[Row], Any]  #: what is told of each measure

GOAL: Final = Goal(1.5)
CLIENT: Final = "redis-py"
QUEUE: Final = "bench"
LOG: Final = "bench-log"
GROUP: Final = "readers"
BATCH: Final = 50_000  #: jobs in a batch of the stream; what Spark does for each takes 0.2 s
PER_CALL: Final = 1_000
KEY: Final = "0123456789abcdef0123456789abcdef/0"  #: the keys of a write are as long, and each is another one


@attrs.define
class Place:
    """What the measures are given."""

    spark: "SparkSession"
    server: Disqued
    work: Path
    jobs: int
    rounds: int

    @property
    def options(self) -> dict[str, str]:
        """Options of the connector."""
        return {"address": f"127.0.0.1:{self.server.port}"}

    def client(self) -> "redis.Redis":
        """Redis-py, as its users have it."""
        import redis

        return redis.Redis("127.0.0.1", self.server.port)

    def link(self) -> "NodeLink":
        """A connection of the connector, which fills queues and looks at them in short time."""
        from disqued.pipeline.connector.nodes import NodeLink
        from disqued.pipeline.connector.options import ConnectorUse, read_options

        return NodeLink(("127.0.0.1", self.server.port), read_options(self.options, ConnectorUse.READ))

    def fill(self) -> None:
        """Let the queue have the jobs, and nothing else be there."""
        with self.link() as link:
            link.ask(["DEBUG", "FLUSHALL"])
            link.ask_all([("ADDJOB", QUEUE, b"x" * 100, 0, "RETRY", 3600)] * self.jobs)

    def fill_log(self) -> None:
        """Let the log have the events, and nothing else be there."""
        with self.link() as link:
            link.ask(["DEBUG", "FLUSHALL"])
            link.ask_all([("QADD", LOG, 86_400, b"x" * 100)] * self.jobs)

    def clear(self) -> None:
        """Let nothing be there."""
        with self.link() as link:
            link.ask(["DEBUG", "FLUSHALL"])


def _table(place: Place) -> None:
    rows = place.spark.read.format("disqued").options(**place.options, queues=QUEUE).load()
    rows.write.format("noop").mode("overwrite").save()


def _table_by_client(place: Place) -> None:
    with place.client() as client:
        cursor = b"0"
        while True:
            words = ("SCAN", "JOB", cursor, "COUNT", PER_CALL, "QUEUE", QUEUE, "STATE", "queued", "STATE", "active")
            cursor, ids = client.execute_command(*words, "REPLY", "id")
            _at_once(client, [("SHOW", each) for each in ids])
            if int(cursor) == 0:  # redis-py makes a number of it, as of the cursors of Redis
                return


def _at_once(client: "redis.Redis", commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Send commands in pipelines, and return their replies."""
    replies: list[Any] = []
    with client.pipeline(transaction=False) as pipeline:
        for at in range(0, len(commands), PER_CALL):
            for words in commands[at : at + PER_CALL]:
                pipeline.execute_command(*words)  # type: ignore[no-untyped-call]
            replies += pipeline.execute()
    return replies


def counted_away(spark: "SparkSession", work: Path, options: dict[str, Any]) -> None:
    """Run a stream over all that there is, and throw its rows away."""
    checkpoint = work / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    rows = spark.readStream.format("disqued").options(**options).load()
    query = (
        rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    )
    query.awaitTermination()


def _stream(place: Place) -> None:
    counted_away(place.spark, place.work, {**place.options, "queues": QUEUE, "maxJobsPerTrigger": BATCH})


def _group(place: Place) -> None:
    options = {**place.options, "queues": LOG, "group": GROUP, "maxJobsPerTrigger": BATCH}
    counted_away(place.spark, place.work, options)


def _group_by_client(place: Place) -> None:
    with place.client() as client:
        while given := client.execute_command("QGET", LOG, GROUP, "EX", 600, "COUNT", PER_CALL):
            ids = [event[0] for event in given]
            _at_once(client, [("SHOW", each) for each in ids])
            client.execute_command("QACK", LOG, GROUP, *ids)


def _stream_by_client(place: Place) -> None:
    words = ("GETJOB", "NOHANG", "WITHCOUNTERS", "COUNT", PER_CALL, "FROM", QUEUE)
    with place.client() as client:
        while given := client.execute_command(*words):
            ids = [job[1] for job in given]
            _at_once(client, [("SHOW", each) for each in ids])
            client.execute_command("ACKJOB", *ids)


def _sink(place: Place) -> None:
    rows = place.spark.range(place.jobs).selectExpr("repeat('x', 100) AS body")
    rows.write.format("disqued").options(**place.options, queue=QUEUE).mode("append").save()


def _sink_by_client(place: Place) -> None:
    words = ("ADDJOB", QUEUE, b"x" * 100, 10_000, "DELAY", 3600, "KEY")
    with place.client() as client:
        ids = _at_once(client, [(*words, f"{KEY}/{number}") for number in range(place.jobs)])
        for at in range(0, len(ids), PER_CALL):
            client.execute_command("ENQUEUE", *ids[at : at + PER_CALL])


@attrs.frozen
class Way:
    """A source or the sink, and the same by redis-py."""

    name: str
    title: str
    ours: Callable[[Place], None]
    theirs: Callable[[Place], None]
    before: Callable[[Place], None]
    #: What is asked afterwards, and the answer that there has to be.
    asked: list[Any]
    answered: Callable[[Place], Any]

    def take(self, place: Place) -> Row:
        """Measure both in turns."""
        self._once(place, self.ours)
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(place.rounds):
            ours.append(place.jobs / self._once(place, self.ours))
            theirs.append(place.jobs / self._once(place, self.theirs))
        return Row(
            self.name, self.title, "jobs/s", spread(ours), CLIENT, spread(theirs), ratios(theirs, ours), GOAL,
            place.rounds, note="the ratio is that of the times",
        )  # fmt: skip

    def _once(self, place: Place, way: Callable[[Place], None]) -> float:
        self.before(place)
        began = time.perf_counter()
        way(place)
        seconds = time.perf_counter() - began
        with place.link() as link:
            answer, wanted = link.ask(self.asked), self.answered(place)
        if answer != wanted:
            raise RuntimeError(f"{self.name}: {self.asked} is answered {answer!r}, and should be {wanted!r}")
        return seconds


_LENGTH: Final = ["QLEN", QUEUE]
_NEXT: Final = ["QGET", LOG, GROUP]
WAYS: Final = (
    Way("table", "live queues as a table", _table, _table_by_client, Place.fill, _LENGTH, lambda place: place.jobs),
    Way("stream", "live queues as a stream", _stream, _stream_by_client, Place.fill, _LENGTH, lambda place: 0),
    Way("group", "a log as a stream, for a group", _group, _group_by_client, Place.fill_log, _NEXT, lambda place: None),
    Way(
        "sink", "a table as jobs, in two phases", _sink, _sink_by_client, Place.clear, _LENGTH, lambda place: place.jobs
    ),
)
NAMES: Final = [way.name for way in WAYS]


def measure(spark: "SparkSession", work: Path, sizes: tuple[int, int], names: Sequence[str], tell: Tell) -> None:
    """Take these measures with a daemon of their own; `sizes` are jobs in a queue, and rounds."""
    with Disqued(Processors(None, None), ["--maxmemory", "4gb"]) as server:
        place = Place(spark, server, work, *sizes)
        for way in WAYS:
            if way.name in names:
                tell(way.take(place))
