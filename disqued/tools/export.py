"""`disqued export`: what a store holds, as rows for a data pipeline.

    store --peek--> records --row--> JSON lines, or Parquet (parquet.py) --> standard output, or a file

One row is one event: a job added, leased, acknowledged, done or gone, a flush, a pause, the beginning of a group.
Every row has every column, in both formats, null where the event has nothing to say; `COLUMNS` is the schema.  The
store may be in use: a record that is being written ends the export.  Unless the user names a store it is the one that
holds the jobs, as `store.conf` says.

Text is UTF-8.  Names and aliases may be any bytes: those that are not UTF-8 are written as `\\xff`, and so that this is
never ambiguous, a backslash is written twice.  Bodies are bytes in Parquet and base64 in JSON, always.

Times are unix milliseconds, except `ctime`.
"""

import contextlib
import json
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

import click
from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime

from disqued.config import Config
from disqued.core.model.calendar import LastFiring, Refusal, ScheduleSetting, words_of
from disqued.core.model.job import ACKED, KIND_NAMES, StoredJob
from disqued.core.model.outbox import (
    FLUSHED,
    GROUP,
    JOB_ADDED,
    JOB_GONE,
    POLICY,
    QUEUE_PAUSED,
    UNIT_DONE,
    UNIT_LEASED,
    WATERMARK,
)
from disqued.core.model.policies import FIELD_NAMES, PauseSetting
from disqued.core.model.queues import PAUSE_NAMES
from disqued.files import create_anew
from disqued.persistence.interface import IStoreFactory
from disqued.tools.exportcolumns import COLUMNS, Row, Value
from disqued.tools.exportfates import fate_as_json, terms_as_json
from disqued.tools.program import DONE, INTERRUPTED
from disqued.tools.progress import Advance, ignore, meter
from disqued.tools.running import ToolError, run, settings, steps, store_options, store_to_read
from disqued.tools.stdio import BROKEN_PIPE, silence
from disqued.wire.fields import Fields
from disqued.wire.texts import text

TOOL = "export"
BYTES_PER_WRITE = 1 << 16

_NAMES: Final = tuple(column.name for column in COLUMNS)


class Writer(Protocol):
    """Takes rows and writes them in some format."""

    def write(self, row: Row) -> None:
        """Take the next row.  Raises OSError."""

    def close(self) -> None:
        """Write what is left.  Raises OSError."""


@click.command(TOOL)
@store_options
@click.option("--format", "form", type=click.Choice(["jsonl", "parquet"]), default="jsonl", show_default=True)
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="File to write; else standard output.")
def command(form: str, output: Path | None, **store: str | None) -> int:
    """Write what a store holds, one row for each event, for programs that analyse it.

    The node may be running.  docs/how-to/import-export.md describes the columns.

    \b
    Examples:
      disqued export --persistence aof --dir /var/lib/disqued | head
      disqued export --config /etc/disqued/disqued.conf --format parquet --output jobs.parquet
    """
    if form == "parquet" and output is None:
        raise click.UsageError("Parquet is written to a file: --output FILE")

    async def work(reactor: Any) -> int:
        try:
            config = settings(**store)
            factory = store_to_read(TOOL, config, chosen=store["persistence"] is not None)
            shows = output is not None or not sys.stdout.isatty()  # nor is a bar drawn among rows
            with opened(output) as file, meter("export", None, "records") if shows else nullcontext(ignore) as advance:
                return await export(config, factory, writer(form, file), reactor, advance)
        except BrokenPipeError:
            silence()
            return BROKEN_PIPE

    return run(TOOL, work)


async def export(
    config: Config, factory: IStoreFactory, rows: Writer, reactor: IReactorTime, advance: Advance = ignore
) -> int:
    """Write every record of a store; returns the exit status.  Raises ToolError, StoreError, OSError."""
    written = 0
    try:
        async for record in steps(reactor, factory.peek(config)):
            if record[0] == WATERMARK:
                continue  # it says nothing of any job
            rows.write(row(record))
            written += 1
            advance(1)
    except CancelledError:
        raise ToolError(
            f"interrupted after {written} records; a file is made of all of them, or not at all", INTERRUPTED
        ) from None
    if not written and not factory.holds(config):
        raise ToolError(f"there is no store of the kind {factory.name} in {config.dir}")
    rows.close()
    return DONE


@contextlib.contextmanager
def opened(path: Path | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that is there only when it is complete.  Raises OSError."""
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    elif path.exists() and not path.is_file():
        # A device or a pipe is written to as it is.
        with path.open("wb") as file:
            yield file
    else:
        aside = path.with_name(f"{path.name}.part")
        try:
            with create_anew(aside) as file:
                yield file
            aside.replace(path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise


def writer(form: str, file: BinaryIO) -> Writer:
    """A writer of one of the formats.  Raises ToolError."""
    if form == "jsonl":
        return JsonLines(file)
    try:
        from disqued.tools.parquet import Parquet
    except ImportError as error:
        raise ToolError(
            f"Parquet is written by pyarrow, which cannot be imported ({error}): pip install 'disqued[parquet]'"
        ) from None
    return Parquet(file)


class JsonLines:
    """One JSON object a line."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lines: list[str] = []
        self._size = 0
        self._encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

    def write(self, row: Row) -> None:
        line = self._encode(
            {
                column.name: b64encode(value).decode("ascii") if isinstance(value, bytes) else value
                for column, value in zip(COLUMNS, row, strict=True)
            }
        )
        self._lines.append(line)
        self._size += len(line)
        if self._size >= BYTES_PER_WRITE:
            self._flush()

    def _flush(self) -> None:
        if self._lines:
            self._file.write("\n".join([*self._lines, ""]).encode())
            self._lines, self._size = [], 0

    def close(self) -> None:
        self._flush()
        self._file.flush()


# Records as rows.


def row(record: Fields) -> Row:
    """The row of a record in the form of `jobdump.decode_record`."""
    kind = record[0]
    if kind == JOB_ADDED:
        return _added(record[1])
    if kind == UNIT_DONE:
        _, job_id, scope, when = record
        return _row(event="done", at=when, id=text(job_id), scope=text(scope))
    if kind == UNIT_LEASED:
        _, job_id, scope, deliveries, worker, when = record
        return _row(
            event="leased", at=when, id=text(job_id), scope=text(scope), worker=text(worker), deliveries=deliveries
        )
    if kind == JOB_GONE:
        _, job_id, reason, when = record
        return _row(event="gone", at=when, id=text(job_id), reason=text(reason))
    if kind == QUEUE_PAUSED:
        _, queue, pause, when = record
        return _row(event="paused", at=when, queue=text(queue), pause=text(PAUSE_NAMES[pause]))
    if kind == POLICY:
        return _policy(record)
    if kind == FLUSHED:
        return _row(event="flushed", at=record[1])
    if kind == GROUP:
        _, queue, scope, floor, when = record
        stamps = json.dumps({text(origin): ctime for origin, ctime in floor}, separators=(",", ":"))
        return _row(event="begun", at=when, queue=text(queue), scope=text(scope), floor=stamps)
    raise ToolError(f"the store holds a record of kind {kind}, which this version cannot export")


def _policy(record: Fields) -> Row:
    _, queue, field, register = record
    value = register.value
    if isinstance(value, LastFiring):
        return _row(event="policy", at=register.set_at, id=text(value.job_id), queue=text(queue),
                    scope=text(FIELD_NAMES[field]))  # fmt: skip
    if isinstance(value, Refusal):
        return _row(event="policy", at=register.set_at, queue=text(queue), scope=text(FIELD_NAMES[field]),
                    reason=text(value.error))  # fmt: skip
    if isinstance(value, ScheduleSetting):
        return _row(event="policy", at=register.set_at, queue=text(queue), scope=text(FIELD_NAMES[field]),
                    reason=text(words_of(value)), body=value.job.body)  # fmt: skip
    if not isinstance(value, PauseSetting):
        numbers = " ".join(map(str, value))
        return _row(event="policy", at=register.set_at, queue=text(queue), scope=text(FIELD_NAMES[field]),
                    reason=numbers)  # fmt: skip
    return _row(
        event="policy", at=register.set_at, queue=text(queue), pause=text(PAUSE_NAMES[value.bits]),
        reason=text(value.reason), worker=text(value.owner),
    )  # fmt: skip


def _added(job: StoredJob) -> Row:
    """A job that is there, or what is remembered of one that is done."""
    is_done = job.state == ACKED
    return _row(event="acked" if is_done else "added", at=job.ctime // 1_000_000, id=text(job.id),
                queue=text(job.queue), body=None if is_done else job.body,
                ctime=job.ctime, ttl_ms=job.ttl_ms, retry_ms=job.retry_ms, delay_ms=job.delay_ms,
                replicate=job.replicate, nacks=job.nacks, additional_deliveries=job.additional_deliveries,
                expires=job.expires, kind=text(KIND_NAMES[job.kind]),
                alias=text(job.alias) if job.alias else None, terms=terms_as_json(job.terms),
                fate=fate_as_json(job.fate))  # fmt: skip


def _row(**values: Value) -> Row:
    return tuple(map(values.get, _NAMES))
