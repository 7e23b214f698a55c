"""`disqued-spark ingest`: event logs of the nodes into one table."""

import time
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from disqued.pipeline.errors import Misused
from disqued.pipeline.events import NAMED
from disqued.pipeline.run import (
    PipelineRun,
    line_of,
    need_folder,
    need_tables,
    place_of,
    place_options,
    running,
    to_its_end,
)
from disqued.tools.values import Number

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import StreamingQueryProgress

BATCH_BYTES: Final = 1 << 30
SPLITS: Final = "spark.sql.files.minPartitionNum"
KEPT: Final = "spark.sql.streaming.numRecentProgressUpdates"
BATCHES_KEPT: Final = 100_000  #: of which it is known how many lines were read
TASKS_A_CORE: Final = 2


@click.command(epilog="Reads files of event logs; writes the table events: docs/reference/tables.md has its columns.")
@click.option("--events", required=True, envvar="DISQUED_EVENTS", metavar="DIR",
              help="Folder of the event logs: the one with date=... in it.")  # fmt: skip
@click.option("--every", type=Number(min=0.1), metavar="SECONDS", help="Go on for ever, at this interval.")
@click.option("--batch-bytes", type=click.IntRange(min=1), default=BATCH_BYTES, show_default=True,
              help="Files of so many bytes, about, are taken in one batch.")  # fmt: skip
@click.option("--compact", is_flag=True, help="Put all batches of each day and node together afterwards.")
@place_options
def command(events: str, every: float | None, batch_bytes: int, compact: bool, **words: Any) -> None:
    """Take what nodes have published of their event logs into the table events.

    Only files that were not taken before are read, however late they come; one that is killed does its last batch
    again, and no event is there twice.  Run it by a timer, or let it go on by itself:

    \b
        disqued-spark ingest --events /mnt/events --tables /srv/tables
        disqued-spark ingest --events /mnt/events --tables /srv/tables --every 60

    The latter ends with SIGTERM or Ctrl-C.  A line that is no event is left out, and counted.  Days that are over and
    came in many batches are put together by themselves; --compact does so with every day, whatever it came in.
    """
    place = place_of(words)
    need_tables(place)
    need_folder(events, NAMED, place.conf)
    with running("ingest", place) as run, run.tables.alone("ingest"):
        from disqued.pipeline.compact import MANY, Compaction

        compaction = Compaction(run.tables, run.say)

        def take_and_compact() -> None:
            compaction.finish()
            Ingest(run, events, batch_bytes).round()
            if compact:
                compaction.compact(2)
            elif run.place.form == "parquet":
                compaction.compact(MANY, before=datetime.now(UTC).date().isoformat())

        if every is None:
            take_and_compact()
        else:
            go_on(run, every, take_and_compact)


def go_on(run: PipelineRun, every: float, take: Callable[[], None]) -> None:
    """Do it again and again until SIGTERM or Ctrl-C; a storage that is away for a while is outlived."""
    try:
        while True:
            try:
                take()
            except Misused:
                raise
            except Exception as error:
                if run.spark.sparkContext._jsc.sc().isStopped():
                    raise
                run.say(f"failed, trying again: {line_of(error)}")
                run.remember(error)
            if run.rows:
                run.remember()
            time.sleep(every)
    except KeyboardInterrupt:
        run.say("stopped")


class Ingest:
    """One round: everything that was published until now."""

    def __init__(self, run: PipelineRun, events: str, batch_bytes: int) -> None:
        self._run = run
        self._tables = run.tables
        self._events = events
        self._batch_bytes = batch_bytes
        self._taken: dict[int, int] = {}  #: events by batch

    def round(self) -> None:
        """Take what is new.  Raises Misused."""
        from disqued.pipeline.events import stream_events
        from disqued.pipeline.session import settings

        checkpoint = self._tables.path("_checkpoints", "ingest")
        self._check(checkpoint)
        stream = stream_events(self._run.spark, self._events, batch_bytes=self._batch_bytes).writeStream
        stream = stream.foreachBatch(self.take).option("checkpointLocation", checkpoint).trigger(availableNow=True)
        spark = self._run.spark
        cores = spark.sparkContext.defaultParallelism
        # As Spark has it, one core may read the last of three parts while all others have nothing left to do.
        with settings(spark, {SPLITS: str(TASKS_A_CORE * cores), KEPT: str(BATCHES_KEPT)}):
            query = to_its_end(stream)
        self._run.say(f"done: {sum(self._taken.values())} events are new")
        if left := self._left(query.recentProgress):
            state = self._tables.state("ingest")
            self._tables.note("ingest", {**state, "left": state.get("left", 0) + left})
            self._run.note = f"{left} lines were no events"
            self._run.say(f"{self._run.note}, and were left out")

    def _left(self, batches: "Sequence[StreamingQueryProgress]") -> int:
        """Tell how many lines were left out: Spark counts those that it reads anyway, and to count them again costs."""
        read = {batch.batchId: batch.numInputRows for batch in batches}
        return sum(max(0, read.get(number, 0) - taken) for number, taken in self._taken.items())

    def _check(self, checkpoint: str) -> None:
        from disqued.pipeline.tables import EVENTS

        files, root = self._tables.files, self._tables.root
        if not files.is_folder(self._events):
            is_file = files.exists(self._events)
            raise Misused(
                f"{self._events} is a file: {NAMED}" if is_file else f"there is no folder {self._events}: {NAMED}"
            )
        there, known = self._tables.has(EVENTS), files.exists(f"{checkpoint}/offsets")
        if there and not known:
            raise Misused(
                f"the table {root}/events is there, but not what ingest knows of the files in it ({checkpoint}): they "
                "would be taken a second time.  Put that folder back, or remove the table, too, to take all files again"
            )
        if known and self._tables.state("ingest").get("rows") and not files.exists(f"{root}/events"):
            raise Misused(
                f"the table {root}/events is gone, but files that were in it count as taken.  Put it back, or remove "
                f"{checkpoint}, too, to take all files again"
            )
        if not known:
            self._events = files.resolved(self._events)
            # Batches are numbered from 0 again; what other jobs know of earlier ones is nothing about these.
            self._tables.note("ingest", {"epoch": uuid.uuid4().hex, "events": self._events})
        else:
            self._events = self._known_as()

    def _known_as(self) -> str:
        """Name the folder as it was when files were first taken: Spark knows files by their whole names."""
        files, state = self._tables.files, self._tables.state("ingest")
        before: str | None = state.get("events")
        if before is None:  # by a version that did not note it
            before = files.qualified(self._events)
            self._tables.note("ingest", {**state, "events": before})
        given = files.resolved(self._events)
        if files.resolved(before) != given:
            raise Misused(
                f"the table {self._tables.root}/events was filled from {before}, and {given} is another folder: files "
                "that were taken there would be taken a second time here.  If it has moved, leave a link of the old "
                "name (ln -s NEW OLD); other logs need --tables of their own"
            )
        return before

    def take(self, rows: "DataFrame", number: int) -> None:
        """Write a batch, which takes the place of what a run that was killed has left of it."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        from disqued.pipeline.jobs.ingest import batch_name, taken_in
        from disqued.pipeline.tables import EVENTS

        state = self._tables.state("ingest")
        if state.get("batch", -1) >= number:  # written as a whole; killed before the checkpoint said so
            return
        seen = Observation("events")
        events = taken_in(rows, batch_name(number)).observe(seen, f.count(f.lit(1)).alias("taken"))
        self._tables.replace(EVENTS, events)
        taken = self._taken[number] = seen.get["taken"]
        self._tables.note("ingest", {**state, "rows": state.get("rows", 0) + taken, "batch": number})
        self._run.count(taken)
        self._run.say(f"batch {number}: {taken} events")
