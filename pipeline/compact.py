"""Batches of a day and node put together into one: many small files are slow to read.

    events/date=D/node=N/batch=00000003      --1 read, sorted, written--> _merging/date=D/node=N/batch=00000005c
                        /batch=00000004      --3 renamed--> _replaced/date=D/node=N/batch=00000004 ...
                        /batch=00000005
                        /batch=00000005c     <--4 renamed-- _merging/date=D/node=N/batch=00000005c

    2   _state/compact.json names what is about to be put in the place of what; then, and only then, anything moves
    5   what was replaced is removed
    6   _state/compact.json says that nothing is under way

Whoever is killed before 2 has changed nothing.  After 2 all that is left is to go on: 3 to 6 find out what is done
already, and do the rest.  Nobody sees an event twice at any moment; between 3 and 4, for as long as two renames take,
the events of one node and day are not to be seen.  `Tables.read` looks at the note before and after it lists the files,
and waits until nothing is under way.  Other readers that began before find that files are gone, and begin again.

Only ingest does this, which writes batches, too, so that the batches of a day do not change meanwhile.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from disqued.pipeline.errors import Misused
from disqued.pipeline.jobs.ingest import MERGED, batch_name, batch_number
from disqued.pipeline.tables import EVENTS, Tables

STATE: Final = "compact"
#: Days that are over are put together by themselves when one node has so many batches of them.
MANY: Final = 8
#: More are in another file of the same batch.
ROWS_PER_FILE: Final = 20_000_000

Merge = dict[str, Any]


class Compaction:
    """Putting batches together."""

    def __init__(self, tables: Tables, say: Callable[[str], None]) -> None:
        self._tables = tables
        self._files = tables.files
        self._say = say
        self._merging = tables.path("_merging")
        self._replaced = tables.path("_replaced")

    def finish(self) -> None:
        """Bring to its end what a run that was killed has begun."""
        state = self._tables.state(STATE)
        if state.get("merging"):
            self._say("an earlier run was stopped while it put batches together: going on with that")
            self._put_in_place(state)

    def compact(self, fewest: int, before: str | None = None) -> int:
        """Put together what has at least so many batches, of days before one alone if that is named.

        Returns the number of batches that are no more.  Raises Misused for tables that see to it themselves.
        """
        if self._tables.form != "parquet":
            raise Misused(f"tables of {self._tables.form} are not compacted here: OPTIMIZE does that")
        days: dict[str, list[Merge]] = defaultdict(list)
        for merge in self._merges(fewest):
            if before is None or merge["date"] < before:
                days[merge["date"]].append(merge)
        for day, merges in sorted(days.items()):
            self._say(f"putting together {sum(len(merge['batches']) for merge in merges)} batches of {day}")
            self._write(day, merges)
            state = {"number": self._tables.state(STATE).get("number", 0) + 1, "merging": merges}
            self._tables.note(STATE, state)
            self._put_in_place(state)
        return sum(len(merge["batches"]) - 1 for merges in days.values() for merge in merges)

    def _merges(self, fewest: int) -> list[Merge]:
        """What may be put together: batches by day and node, in their order."""
        batches: dict[tuple[str, str], list[str]] = defaultdict(list)
        for date, node, batch in self._tables.parts(EVENTS):
            batches[date, node].append(batch)
        return [
            {"date": date, "node": node, "batches": some, "into": batch_name(batch_number(some[-1])) + MERGED}
            for (date, node), some in batches.items()
            if len(some) >= max(2, fewest)
        ]

    def _write(self, day: str, merges: list[Merge]) -> None:
        """Write the batches of a day anew, aside."""
        from pyspark.sql import functions as f

        self._files.remove(self._merging)
        rows = self._tables.read(EVENTS)
        rows = rows.where((rows.date == day) & rows.node.isin([merge["node"] for merge in merges]))
        into = f.lit(None).cast("string")
        for merge in merges:
            into = f.when(f.col("node") == merge["node"], f.lit(merge["into"])).otherwise(into)
        sorted_ = rows.withColumn("batch", into).repartition("node").sortWithinPartitions("node", "boot", "seq")
        writer = sorted_.write.partitionBy(*EVENTS.parts).option("maxRecordsPerFile", ROWS_PER_FILE)
        writer.mode("error").parquet(self._merging)
        count, written = rows.count(), self._tables.spark.read.schema(EVENTS.schema).parquet(self._merging).count()
        if count != written:
            raise RuntimeError(f"{count} events of {day} became {written}: nothing was replaced")

    def _put_in_place(self, state: dict[str, Any]) -> None:
        """Let what is written take the place of what it was made of, as far as that is not done yet."""
        for merge in state["merging"]:
            part = f"date={merge['date']}/node={merge['node']}"
            new = f"{part}/batch={merge['into']}"
            if not self._files.exists(f"{self._merging}/{new}"):
                continue  # it is there already
            for batch in merge["batches"]:
                old = f"{part}/batch={batch}"
                self._files.rename(self._tables.path(EVENTS.name, old), f"{self._replaced}/{old}")
            self._files.rename(f"{self._merging}/{new}", self._tables.path(EVENTS.name, new))
        self._files.remove(self._replaced)
        self._files.remove(self._merging)
        self._tables.note(STATE, {"number": state["number"]})
