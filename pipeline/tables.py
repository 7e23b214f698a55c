"""The tables that the jobs make: where each is, which columns it has, and how a part of it is replaced as a whole.

    <root>/events/date=2026-11-22/node=1f0e2d3c/batch=00000007/*.parquet
          /lifecycle/date=2026-11-22/*.parquet
          /rollup/grain=minute/date=2026-11-22/*.parquet
          /slo/date=2026-11-22/*.parquet
          /findings/date=2026-11-22/*.parquet
          /audit/...
          /_state/lifecycle.json                  how far a job has come: names with _ are nothing to readers
          /_checkpoints/ingest/
          /_merging, _replaced                    while batches are put together: compact

A job replaces whole parts (`date=...`) by what it has computed of everything that belongs there, and then notes how far
it has come.  So a job that was killed between the two does the same once more, one that is run twice changes nothing,
and one that is run late catches up.

`<root>` is any folder that Spark can write to: of this machine, of HDFS, of an object store.  Columns of partitions are
texts.  Times are `..._us`, microseconds since 1970, as in the event log, or TIMESTAMP, UTC.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import attrs

from disqued.pipeline.errors import Misused
from disqued.pipeline.files import FileSystems, locked
from disqued.wire.eventlines import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

#: How long a reader waits for a rewriting of events that is under way, in seconds, and how often it looks.
SETTLED_S: Final = 30.0
LOOK_S: Final = 0.2
#: What is being written elsewhere than on this machine, and was not touched for so long, nobody writes any more.
LEFT_S: Final = 86_400.0


@attrs.frozen
class LakeTable:
    """One table: its columns as Spark writes them, and those that its folders are named by."""

    name: str
    columns: str
    parts: tuple[str, ...]

    @property
    def schema(self) -> str:
        """All columns, those of the folders last."""
        return ", ".join((self.columns, *(f"{part} STRING" for part in self.parts)))

    @property
    def names(self) -> list[str]:
        return [field.split()[0] for field in self.schema.split(", ")]


EVENTS: Final = LakeTable("events", ", ".join(f"{name} {kind}" for name, kind in COLUMNS), ("date", "node", "batch"))
LIFECYCLE: Final = LakeTable(
    "lifecycle",
    "job_id STRING, scope STRING, queue STRING, node STRING, size BIGINT, ttl_s DOUBLE, retry_s DOUBLE, "
    "delay_s DOUBLE, repl INT, created_us BIGINT, first_deliver_us BIGINT, last_deliver_us BIGINT, deliveries INT, "
    "nacks INT, requeues INT, acks INT, end STRING, ended_us BIGINT, wait_us BIGINT, run_us BIGINT, age_us BIGINT, "
    "nodes INT, last_event STRING, last_us BIGINT, max_tries INT, result_size BIGINT, dead_us BIGINT, "
    "redriven_us BIGINT, group STRING, schedule STRING",
    ("date",),
)
ROLLUP: Final = LakeTable(
    "rollup",
    "at TIMESTAMP, queue STRING, event STRING, count BIGINT, bytes BIGINT, wait BINARY, run BINARY, age BINARY",
    ("grain", "date"),
)
SLO: Final = LakeTable(
    "slo",
    "queue STRING, measure STRING, count BIGINT, p50_us BIGINT, p95_us BIGINT, p99_us BIGINT, target_us BIGINT, "
    "over DOUBLE, deliveries BIGINT, redeliveries BIGINT, redelivery DOUBLE",
    ("date",),
)

#: What an audit found on the day (UTC) of its date; one of the same day takes its place.
AUDIT: Final = LakeTable(
    "audit",
    "kind STRING, severity STRING, job_id STRING, scope STRING, queue STRING, node STRING, boot BIGINT, seq BIGINT, "
    "at_us BIGINT, detail STRING",
    ("date",),
)
#: What the doctor found on the day (UTC) of its date; the last look of a day counts.
FINDINGS: Final = LakeTable(
    "findings", "kind STRING, queue STRING, job_id STRING, count BIGINT, since_us BIGINT, detail STRING", ("date",)
)


class Tables:
    """The tables below one root."""

    def __init__(self, spark: "SparkSession", root: str, form: str = "parquet") -> None:
        """`form` is that of the files: parquet, or delta on clusters that have its jar."""
        self.spark = spark
        self.root = root.rstrip("/")
        self.form = form
        self.files = FileSystems(spark)

    def path(self, *names: str) -> str:
        """Where something lies below the root."""
        return "/".join((self.root, *names))

    def has(self, table: LakeTable) -> bool:
        """Tell whether a table was ever written."""
        return bool(self.files.matching(self.path(table.name, f"{table.parts[0]}=*")))

    def filled(self, table: LakeTable, job: str) -> Self:
        """Give these tables back if a job has ever filled one of them.  Raises Misused where it has not."""
        if not self.has(table) and not self.state(job):
            raise Misused(
                f"there is no table {table.name} in {self.root}: --tables names the folder that {job} was given"
            )
        return self

    def read(self, table: LakeTable) -> "DataFrame":
        """Read a table; one that is not there yet has no rows.

        Raises Misused where events are being rewritten, and that does not end.
        """
        return self._settled(table, lambda: self._rows(table))

    def _rows(self, table: LakeTable) -> "DataFrame":
        path = self.path(table.name)
        if not self.has(table):
            return self.spark.createDataFrame([], table.schema)
        if self.form == "parquet":
            return self.spark.read.schema(table.schema).parquet(path)
        return self.spark.read.format(self.form).load(path)

    def parts(self, table: LakeTable) -> list[tuple[str, ...]]:
        """The parts of a table that there are, as values of the columns that its folders are named by; sorted.

        Raises Misused as `read` does.
        """
        return self._settled(table, lambda: self._parts(table))

    def _parts(self, table: LakeTable) -> list[tuple[str, ...]]:
        if self.form != "parquet":
            found = self._rows(table).select(*table.parts).distinct().collect()
            return sorted(tuple(row) for row in found)
        paths = self.files.matching(self.path(table.name, *(f"{part}=*" for part in table.parts)))
        folders = (path.split("/")[-len(table.parts) :] for path in paths)
        return sorted(tuple(name.partition("=")[2] for name in names) for names in folders)

    def _settled(self, table: LakeTable, look: Callable[[], T]) -> T:
        """Look at a table as it is between two rewritings.

        Looking lists its files; one that is gone when it is read is an error of Spark's.
        """
        end = time.monotonic() + SETTLED_S
        while True:
            before = self.state("compact") if table == EVENTS else {}
            seen = look()
            if table != EVENTS or (not before.get("merging") and self.state("compact") == before):
                return seen
            if time.monotonic() > end:
                raise Misused("a rewriting of the events was broken off: the verb ingest ends it before anything else")
            time.sleep(LOOK_S)

    def replace(self, table: LakeTable, rows: "DataFrame", parts: Iterable[tuple[str, ...]] = ()) -> None:
        """Let rows take the place of all parts of a table that any of them belongs to; other parts stay.

        `parts` are of the table, too, and end empty where no row belongs there.
        """
        writer = rows.select(*table.names).write.format(self.form).mode("overwrite").partitionBy(*table.parts)
        path, whole = self.path(table.name), [_named(table, part) for part in parts]
        if self.form != "parquet":
            if whole:
                writer = writer.option("replaceWhere", " OR ".join(map(_condition, whole)))
            writer.option("partitionOverwriteMode", "dynamic").save(path)
            return
        with self._writing(table):
            before = {file for names in whole for file in self._files_of(table, names)}
            writer.option("partitionOverwriteMode", "dynamic").save(path)
            # What was there before and still is was not written again: there are no rows of it.
            for file in before.intersection(file for names in whole for file in self._files_of(table, names)):
                self.files.remove(file)

    @contextmanager
    def _writing(self, table: LakeTable) -> Iterator[None]:
        """Remove what a run that was killed has left of its writing, and nothing of a run that is at work."""
        lock = self.path("_state", f"{table.name}.writing")
        if self.files.is_local(lock):
            with locked(Path(self.files.local(lock)), wait=True):
                self._remove_left(table, 0.0)
                yield
        else:
            self._remove_left(table, LEFT_S)
            yield

    def _remove_left(self, table: LakeTable, older_s: float) -> None:
        for left in self.files.matching(self.path(table.name, ".spark-staging-*")):
            if not older_s or time.time() - self.files.modified(left) > older_s:
                self.files.remove(left)

    def count(self, table: LakeTable, parts: Iterable[tuple[str, ...]]) -> int:
        conditions = [_condition(_named(table, part)) for part in parts]
        return self.read(table).where(" OR ".join(conditions) or "false").count()

    def _files_of(self, table: LakeTable, names: dict[str, str]) -> list[str]:
        folders = [f"{name}={names.get(name, '*')}" for name in table.parts]
        return self.files.matching(self.path(table.name, *folders, "part-*"))

    # How far a job has come.

    def state(self, job: str) -> dict[str, Any]:
        """What a job noted when it was last done; empty = it never was."""
        text = self.files.read_text(self.path("_state", f"{job}.json"))
        state: dict[str, Any] = {} if text is None else json.loads(text)
        return state

    def note(self, job: str, state: dict[str, Any]) -> None:
        """Note how far a job has come: there at once, or not at all."""
        self.files.write_text(self.path("_state", f"{job}.json"), json.dumps(state))

    @contextmanager
    def alone(self, job: str) -> Iterator[None]:
        """Let nobody else on this machine run a job on these tables meanwhile.  Raises Misused.

        On other file systems nothing keeps two runs apart: they are started by one timer there.
        """
        name = self.path("_state", f"{job}.lock")
        if not self.files.is_local(name):
            yield
            return
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(Path(self.files.local(name))))
            except BlockingIOError:
                raise Misused(f"another run of {job} is at work on {self.root}: one at a time") from None
            yield


def _named(table: LakeTable, part: tuple[str, ...]) -> dict[str, str]:
    """Values of the first columns that folders are named by, with their names."""
    return dict(zip(table.parts, part, strict=False))


def _condition(part: dict[str, str]) -> str:
    return "(" + " AND ".join(f"{name} = '{value}'" for name, value in part.items()) + ")"
