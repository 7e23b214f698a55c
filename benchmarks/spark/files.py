"""Sources that read files, beside one Python process that reads the same files without Spark.

    aof, sqlite   the store of a node that runs       against the reader of the connector, called by itself
    export        what `disqued export` makes of it   the same
    events        the event log as a stream           against `json.loads` of each line

What is measured so is what Spark adds; that the readers keep up with nodes is in docs/performance.md.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from benchmarks.figures import Goal, Row, ratios, spread
from benchmarks.machine import ROOT, Processors
from benchmarks.servers import Disqued
from benchmarks.spark.connector import Place as Filled
from benchmarks.spark.connector import Tell, counted_away
from benchmarks.spark.events import write_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOAL: Final = Goal(1.5)
STORES: Final = ("aof", "sqlite")
EVENTS_PER_JOB: Final = 5  #: of the log, so that it takes about as long
WRITTEN_S: Final = 60.0  #: at most, until what was added is in the store
NAMES: Final = (*STORES, "export", "events")
_SIDE: Final = "one process without Spark"


@attrs.define
class Place:
    """What the measures are given."""

    spark: "SparkSession"
    work: Path
    jobs: int
    rounds: int

    def stored(self, store: str, running: ExitStack) -> Path:
        """Start a node with a store, and fill it; returns its data folder."""
        server = running.enter_context(Disqued(Processors(None, None), ["--maxmemory", "4gb", "--persistence", store]))
        Filled(self.spark, server, self.work, self.jobs, 1).fill()
        until = time.monotonic() + WRITTEN_S
        while _read_alone(server.folder) < self.jobs and time.monotonic() < until:
            time.sleep(0.1)
        return server.folder

    def exported(self, folder: Path) -> Path:
        """Export a journal."""
        path = self.work / "jobs.parquet"
        words = ["export", "--persistence", "aof", "--dir", str(folder), "--format", "parquet", "--output", str(path)]
        program = "import sys; from disqued.cli import main; sys.exit(main())"
        subprocess.run([sys.executable, "-c", program, *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return path


def _read(place: Place, path: Path) -> int:
    """Read a store with Spark."""
    return place.spark.read.format("disqued").load(str(path)).count()


def _read_alone(path: Path) -> int:
    """Read it with what the tasks of Spark call."""
    from disqued.pipeline.connector.options import ConnectorUse, read_options
    from disqued.pipeline.connector.stores import StoresReader

    reader = StoresReader(read_options({"path": str(path)}, ConnectorUse.STORE))
    return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))


def _read_lines(folder: Path) -> int:
    lines = 0
    for path in folder.glob("*/*/*.jsonl"):
        with path.open("rb") as file:
            for line in file:
                json.loads(line)
                lines += 1
    return lines


def measure(spark: "SparkSession", work: Path, sizes: tuple[int, int], names: Sequence[str], tell: Tell) -> None:
    """Take these measures; `sizes` are jobs in a store, and rounds."""
    place = Place(spark, work, *sizes)
    with ExitStack() as running:
        for store in STORES:
            if store in names or (store == "aof" and "export" in names):
                folder = place.stored(store, running)
                if store in names:
                    tell(_taken(place, store, f"the store of a node that runs ({store})", folder))
                if store == "aof" and "export" in names:
                    path = place.exported(folder)
                    tell(_taken(place, "export", "an export (Parquet)", path))
    if "events" in names:
        logs = work / "stream-of-events"
        events = write_history(logs, place.jobs * EVENTS_PER_JOB, 1)

        def followed() -> int:
            counted_away(spark, work, {"events": str(logs)})
            return events

        title = "the event log as a stream"
        tell(_in_turns("events", title, (followed, lambda: _read_lines(logs)), (events, place.rounds), "events/s"))
        shutil.rmtree(logs)


def _taken(place: Place, name: str, title: str, path: Path) -> Row:
    ways = (lambda: _read(place, path), lambda: _read_alone(path))
    return _in_turns(name, title, ways, (place.jobs, place.rounds), "jobs/s")


def _in_turns(name: str, title: str, ways: Sequence[Callable[[], int]], sizes: tuple[int, int], unit: str) -> Row:
    """Measure ours and the other's in turns; `sizes` are rows that there have to be, and rounds."""
    rows, rounds = sizes
    rates: list[list[float]] = [[], []]
    for number in range(rounds + 1):
        for way, rate in zip(ways, rates, strict=True):
            began = time.perf_counter()
            found = way()
            seconds = time.perf_counter() - began
            if found != rows:
                raise RuntimeError(f"{name}: {found} rows were read, and there are {rows}")
            if number:  # the first time loads classes and fills the cache
                rate.append(rows / seconds)
    ours, theirs = rates
    return Row(
        name, title, unit, spread(ours), _SIDE, spread(theirs), ratios(theirs, ours), GOAL, rounds,
        note="the ratio is that of the times",
    )  # fmt: skip
