"""Sources and sink, beside the plain client: the same commands to the same daemon from one Python process.

    table    SCAN, then SHOW of each          against the same by `Link`, whose replies are dropped
    stream   GETJOB, SHOW, ACKJOB             the same; a batch is counted and thrown away
    group    QGET, SHOW, QACK                 the same
    sink     ADDJOB ... DELAY, then ENQUEUE   the same; rows are made by Spark

A daemon of its own on the processor of the servers; Spark and the client have the others.
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
    from pyspark.sql import SparkSession

    from disqued.pipeline.connector.nodes import Link

Tell = Callable[[Row], Any]  #: what is told of each measure

GOAL: Final = Goal(1.5)
CLIENT: Final = "the plain client"
QUEUE: Final = "bench"
LOG: Final = "bench-log"
GROUP: Final = "readers"
BATCH: Final = 50_000  #: jobs in a batch of the stream; what Spark does for each takes 0.2 s
PER_CALL: Final = 1_000


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

    def link(self) -> "Link":
        """A connection of the plain client."""
        from disqued.pipeline.connector.nodes import Link
        from disqued.pipeline.connector.options import Use, read_options

        return Link(("127.0.0.1", self.server.port), read_options(self.options, Use.READ))

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
    from disqued.pipeline.connector.nodes import scan

    with place.link() as link:
        link.ask_all([("SHOW", each) for each in scan(link, QUEUE, ("queued", "active"))])


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
    with place.link() as link:
        while given := link.ask(["QGET", LOG, GROUP, "EX", 600, "COUNT", PER_CALL]):
            ids = [event[0] for event in given]
            link.ask_all([("SHOW", each) for each in ids])
            link.ask(["QACK", LOG, GROUP, *ids])


def _stream_by_client(place: Place) -> None:
    with place.link() as link:
        while given := link.ask(["GETJOB", "NOHANG", "WITHCOUNTERS", "COUNT", PER_CALL, "FROM", QUEUE]):
            ids = [job[1] for job in given]
            link.ask_all([("SHOW", each) for each in ids])
            link.ask(["ACKJOB", *ids])


def _sink(place: Place) -> None:
    rows = place.spark.range(place.jobs).selectExpr("repeat('x', 100) AS body")
    rows.write.format("disqued").options(**place.options, queue=QUEUE).mode("append").save()


def _sink_by_client(place: Place) -> None:
    with place.link() as link:
        ids = link.ask_all([("ADDJOB", QUEUE, b"x" * 100, 10_000, "DELAY", 3600)] * place.jobs)
        for at in range(0, len(ids), PER_CALL):
            link.ask(["ENQUEUE", *ids[at : at + PER_CALL]])


@attrs.frozen
class Way:
    """A source or the sink, and the same by the plain client."""

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
