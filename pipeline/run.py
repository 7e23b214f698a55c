"""One run of a job of `disqued-spark`: Spark, the tables, what is told meanwhile, and what is remembered of it.

    with running("rollup", place) as run:
        run.say("3 days have new events")           stderr, with the seconds since it began; and how far Spark is
        run.tables.replace(...)
        run.count(rows)                              what `runs` in reports.sqlite is to say

A run that fails is in `runs`, too, with what went wrong.
"""

import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from disqued.pipeline.errors import Misused
from disqued.pipeline.failures import told
from disqued.pipeline.files import here
from disqued.pipeline.progress import telling
from disqued.pipeline.session import spark_session
from disqued.pipeline.tables import Tables
from disqued.tools.values import options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from disqued.pipeline.reports.store import Reports

# Exit statuses.
DONE: Final = 0
FOUND: Final = 1
FAILED: Final = 2


@attrs.frozen
class RunLocation:
    """Where a run reads and writes, and how Spark is to run."""

    tables: str | None = None
    reports: str | None = None
    form: str = "parquet"
    master: str | None = None
    conf: tuple[str, ...] = ()
    quiet: bool = False

    def settings(self) -> dict[str, str]:
        """Settings of Spark by name.  Raises Misused."""
        settings = {}
        for word in self.conf:
            name, equals, value = word.partition("=")
            if not name or not equals:
                raise Misused(f"--conf {word!r} is no setting of Spark; it is written name=value")
            settings[name] = value
        return settings


def need_tables(place: RunLocation, *, are_there: bool = False) -> str:
    """Name the folder of the tables.  Raises Misused where none is named, or that is a file or, if need be, not there.

    Of other file systems than those of this machine nothing is known yet.
    """
    if place.tables is None:
        raise Misused("the folder of the tables is missing: --tables DIR, or DISQUED_TABLES")
    need_folder(place.tables, "--tables names the folder of the tables", place.conf, is_there=are_there)
    return place.tables


def need_folder(path: str, said: str, conf: Sequence[str] = (), *, is_there: bool = True) -> None:
    """Raise Misused for a file or, if need be, for what is not there, as far as that is known before Spark starts.

    `said` tells what is allowed.
    """
    known = here(path, conf)
    if known is None:
        return
    if known.is_file():
        raise Misused(f"{path} is a file: {said}")
    if is_there and not known.is_dir():
        raise Misused(f"there is no folder {path}: {said}")


@attrs.define(slots=False)
class PipelineRun:
    """What a job needs while it runs."""

    job: str
    spark: "SparkSession"
    place: RunLocation
    reports: "Reports | None" = None
    rows: int = 0
    note: str = ""
    _began: float = attrs.field(factory=time.monotonic, init=False)
    _began_at: float = attrs.field(factory=time.time, init=False)
    _said: float = attrs.field(factory=time.monotonic, init=False)  #: when something was told last

    @cached_property
    def tables(self) -> Tables:
        """The tables.  Raises Misused where no folder was named."""
        tables = Tables(self.spark, need_tables(self.place), self.place.form)
        if tables.files.exists(tables.root) and not tables.files.is_folder(tables.root):
            raise Misused(f"{tables.root} is a file: --tables names the folder of the tables")
        return tables

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """Tell what is done just now, on stderr."""
        self._said = time.monotonic()
        if not self.place.quiet:
            sys.stderr.write(f"{self.job} {self.seconds:6.1f} s  {text}\n")
            sys.stderr.flush()

    def silent_s(self) -> float:
        """For how many seconds nothing was told."""
        return time.monotonic() - self._said

    def count(self, rows: int) -> None:
        self.rows += rows

    def remember(self, error: BaseException | None = None) -> None:
        """Put what was done until now, and how it ended, into the reports; what follows is a run of its own there."""
        status, note = ("done", self.note) if error is None else ("failed", line_of(error))
        ended = time.time()
        if self.reports is not None:
            self.reports.note_run(self.job, began=self._began_at, ended=ended, status=status, rows=self.rows, note=note)
        self._began_at, self.rows, self.note = ended, 0, ""


def to_its_end(stream: "DataStreamWriter") -> "StreamingQuery":
    """Run a stream until it ends, and stop it when anything else ends it."""
    query = stream.start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query


@contextmanager
def running(job: str, place: RunLocation) -> Iterator[PipelineRun]:
    """Start Spark for a job, and remember the run in the reports, if there are some.

    SIGTERM ends it in good order, as Ctrl-C does.
    """
    began, reports = time.time(), _reports(place)
    run: PipelineRun | None = None
    try:
        with _ended_by_signal(), spark_session(job, place.master, place.settings()) as spark:
            run = PipelineRun(job, spark, place, reports)
            with nullcontext() if place.quiet else telling(spark, run.silent_s, run.say):
                yield run
            run.remember()
    except BaseException as error:
        if run is not None:
            run.remember(None if _is_result(error) else error)
        elif reports is not None:
            reports.note_run(job, began=began, ended=time.time(), status="failed", rows=0, note=line_of(error))
        raise
    finally:
        if reports is not None:
            reports.close()


def line_of(error: BaseException) -> str:
    """What went wrong, in a line."""
    return told(error) or f"{type(error).__name__}: {error}".partition("\n")[0]


def _is_result(error: BaseException) -> bool:
    """Tell whether an exit is a result: done, or something was found."""
    return isinstance(error, SystemExit) and error.code in (None, DONE, FOUND)


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    """Make SIGTERM what Ctrl-C is, for as long as a run lasts."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _reports(place: RunLocation) -> "Reports | None":
    if place.reports is None:
        return None
    from disqued.pipeline.reports.store import Reports, ReportsError

    try:
        return Reports(place.reports)
    except ReportsError as error:
        raise Misused(str(error)) from error


_SPARK: Final = (
    click.option("--reports", envvar="DISQUED_REPORTS", metavar="FILE", help="SQLite file that the daemon shows."),
    click.option("--master", metavar="URL", help="Where Spark runs: else as spark-submit says, or here."),
    click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; as many as there are."),
    click.option("--quiet", "-q", is_flag=True, help="Tell nothing of what is done meanwhile."),
)
#: Adds the options that say where a run reads and writes, and how Spark is to run; see `place_of`.
place_options: Final = options(
    click.option("--tables", envvar="DISQUED_TABLES", metavar="DIR", help="Folder of the tables."),
    click.option(
        "--format", "form", type=click.Choice(["parquet", "delta"]), default="parquet", show_default=True,
        help="Of the tables; delta needs its jar.",
    ),
    *_SPARK,
)  # fmt: skip
#: Adds the same but for those of tables: for a verb that has none.
spark_options: Final = options(*_SPARK)


def place_of(words: dict[str, Any]) -> RunLocation:
    """Take the options of `place_options` or `spark_options` out of those of a verb."""
    return RunLocation(
        **{field.name: words.pop(field.name) for field in attrs.fields(RunLocation) if field.name in words}
    )
