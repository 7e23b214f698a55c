"""Stores as tables: journals, databases, and what `disqued export` made of them.

    driver     paths and patterns --> which store each is --> one part for each; of a database several
    executor   journal, export:  read for what still counts, and once more for that (standing)
               database:         the rows of a range of numbers

A node may be writing what is read: a journal is read as far as it was whole when the reading began, a database in one
transaction for each part.  Nothing is changed.  Driver and executors read the files, so all of them have to see the
same ones.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from fnmatch import fnmatchcase
from functools import partial
from glob import glob, has_magic
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from disqued.core.model.job import ACKED, WORK_SCOPE, StoredJob
from disqued.core.model.outbox import FLUSHED, JOB_ADDED, JOB_GONE, UNIT_DONE, Record
from disqued.persistence.aof.reading import JournalPeek
from disqued.persistence.interface import StoreError
from disqued.persistence.sqlite.ranges import EndedJob, numbers_of, read_facts, read_jobs
from disqued.pipeline.connector.exports import read_lines, read_parquet
from disqued.pipeline.connector.rows import text
from disqued.pipeline.connector.standing import Outstanding
from disqued.pipeline.connector.store_rows import Row, batches_of, fact_row, row_of, state_of
from disqued.wire.fields import Fields

MANIFEST: Final = ".manifest"
#: What the names of the files of a journal have behind that of the journal.
OF_JOURNAL: Final = re.compile(r"\.(?:manifest|lock|\d+\.(?:base|incr))$")
STORE_FILE: Final = "store.conf"  #: says which store holds the jobs of a data folder
LOCAL: Final = ("file://", "file:")
#: How exports are named, and how the files of each kind begin.
EXPORTS: Final = {".jsonl": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
MAGIC: Final = {b"SQLite format 3\0": "sqlite", b"PAR1": "parquet", b"{": "jsonl"}
TABLES: Final = {"jobs": "jobs", "added": "jobs", "done": "done", "evictions": "evictions"}


class StorePart(InputPartition):
    """What one task reads of a store."""

    def __init__(self, kind: str, path: str, numbers: range | None = None) -> None:
        """Take one of `KINDS`, and of a database the range of numbers."""
        self.kind = kind
        self.path = path
        self.numbers = numbers


class StoresReader(DataSourceReader):
    """Reads stores."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Take options as `read_options` makes them."""
        self._options = options
        self._records: str = options["records"]

    def partitions(self) -> list[InputPartition]:
        """Find the stores.  Raises ValueError, StoreError."""
        stores = [
            (kind, path) for word in self._options["path"] for kind, path in find_stores(word, self._options["store"])
        ]
        ranges = -(-self._options["minPartitions"] // len(stores))
        parts: list[InputPartition] = []
        for kind, path in dict.fromkeys(stores):
            if kind == "sqlite":
                numbers = numbers_of(path, TABLES[self._records])
                parts += [StorePart(kind, str(path), piece) for piece in _split(numbers, ranges)]
            else:
                parts.append(StorePart(kind, str(path)))
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part.  Raises StoreError."""
        if not isinstance(partition, StorePart):  # Spark makes one with None where there is none
            return
        read_rows = self._read_database if partition.kind == "sqlite" else self._read_records
        yield from batches_of(read_rows(partition), self._records)

    def _read_database(self, part: StorePart) -> Iterator[Row]:
        path = Path(part.path)
        if self._records in ("jobs", "added"):
            for job, told in read_jobs(path, part.numbers):
                yield from self._job_rows(job, part.path, told=told)
        else:
            for fact in read_facts(path, TABLES[self._records], part.numbers):
                yield from self._fact_rows(fact, part.path)

    def _read_records(self, part: StorePart) -> Iterator[Row]:
        path = Path(part.path)
        with ExitStack() as stack:
            told = False
            read: Callable[[], Iterator[Record]]
            if part.kind == "aof":
                journal = stack.enter_context(JournalPeek(path))
                read, told = journal.read, journal.has_queues
            else:
                read = partial(read_lines if part.kind == "jsonl" else read_parquet, path)
            if self._records == "jobs":
                standing = Outstanding()
                standing.note_all(read())
                for job in standing.choose(read()):
                    yield from self._job_rows(job, part.path, told=told)
            elif self._records == "added":
                for record in read():
                    added = record[-1]
                    if isinstance(added, StoredJob):
                        yield from self._job_rows(added, part.path, told=False)
            else:
                for fact in facts_of(read(), self._records):
                    yield from self._fact_rows(fact, part.path)

    def _job_rows(self, job: StoredJob, store: str, *, told: bool) -> Iterator[Row]:
        if job.state == ACKED:  # remembered: its body is gone
            return
        state = state_of(job, int(time.time() * 1_000), told=told)
        if (self._records == "added" or state in self._options["states"]) and self._is_wanted(job.queue):
            yield row_of(job, state, store)

    def _fact_rows(self, fact: EndedJob, store: str) -> Iterator[Row]:
        if self._options["queues"] == ("*",) or (fact.queue is not None and self._is_wanted(fact.queue)):
            yield fact_row(fact, store)

    def _is_wanted(self, queue: bytes) -> bool:
        patterns = self._options["queues"]
        return patterns == ("*",) or any(fnmatchcase(text(queue), pattern) for pattern in patterns)


def facts_of(records: Iterator[Fields], wanted: str) -> Iterator[EndedJob]:
    """Tell how jobs ended, of `done` or `evictions`, with what an earlier record said of them."""
    kind = UNIT_DONE if wanted == "done" else JOB_GONE
    known: dict[bytes, tuple[bytes, int]] = {}
    for record in records:
        if record[0] == JOB_ADDED:
            known[record[1].id] = (record[1].queue, record[1].ctime)
        elif record[0] == FLUSHED:
            known.clear()
        elif record[0] in (UNIT_DONE, JOB_GONE):
            _, job_id, tail, when = record
            if record[0] == kind:
                queue, ctime = known.get(job_id, (None, None))
                yield EndedJob(job_id, tail, queue, ctime, when)
            if record[0] == JOB_GONE or tail == WORK_SCOPE:
                known.pop(job_id, None)


def _split(numbers: range, pieces: int) -> Iterator[range]:
    size = max(1, -(-len(numbers) // pieces))
    return (numbers[at : at + size] for at in range(0, len(numbers), size))


# Which store a path means.


def find_stores(word: str, kind: str | None) -> list[tuple[str, Path]]:
    """Find the stores that a path or a pattern means, each with its kind.  Raises ValueError, StoreError."""
    for scheme in LOCAL:
        word = word.removeprefix(scheme)
    paths = [Path(found) for found in sorted(glob(word))] if has_magic(word) else [Path(word)]
    if not paths:
        raise ValueError(f"the option path: nothing is called {word!r}")
    # The files of a journal are one store, and a pattern may name them all.
    return list(dict.fromkeys(store for path in paths for store in _find(path, kind)))


def _find(path: Path, kind: str | None) -> list[tuple[str, Path]]:
    if path.is_dir():
        return _find_in(path, kind)
    journal = path.with_name(OF_JOURNAL.sub("", path.name))
    if kind in (None, "aof") and journal.with_name(journal.name + MANIFEST).exists():
        return [("aof", journal)]
    if not path.exists():
        raise ValueError(f"the option path: {str(path)!r} is not there, nor is a journal of that name")
    return [(kind or _kind_of(path), path)]


def _kind_of(path: Path) -> str:
    with path.open("rb") as file:
        beginning = file.read(16)
    for magic, kind in MAGIC.items():
        if beginning.startswith(magic):
            return kind
    if not beginning and path.suffix in EXPORTS:
        return EXPORTS[path.suffix]
    raise ValueError(
        f"the option path: {str(path)!r} is no journal, no database, and no export (JSON lines, Parquet); the option "
        "store says what it is where that cannot be seen"
    )


def _find_in(folder: Path, kind: str | None) -> list[tuple[str, Path]]:
    """Find the store of a data folder, or the exports in a folder."""
    chosen = kind or _held_in(folder)
    found = {
        "aof": sorted(path.with_name(path.name.removesuffix(MANIFEST)) for path in folder.glob(f"*{MANIFEST}")),
        "sqlite": sorted(path for path in folder.glob("*.sqlite")),
        **{each: sorted(_exports_in(folder, each)) for each in ("jsonl", "parquet")},
    }
    if chosen is not None and chosen not in found:
        raise ValueError(
            f"the option path: the jobs of {str(folder)!r} are in the store {chosen} ({STORE_FILE}), which is no file; "
            "`disqued export` makes one"
        )
    for each in [chosen] if chosen else found:
        if len(found[each]) > 1 and each in ("aof", "sqlite"):
            raise ValueError(f"the option path: {str(folder)!r} has several: {', '.join(p.name for p in found[each])}")
        if found[each]:
            return [(each, path) for path in found[each]]
    raise ValueError(f"the option path: {str(folder)!r} has no {chosen or 'store, and no export'} in it")


def _held_in(folder: Path) -> str | None:
    """Say which store holds the jobs of a data folder, as the node has noted it."""
    try:
        words = (folder / STORE_FILE).read_text("ascii").split()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StoreError(f"{folder / STORE_FILE} cannot be read: {error}") from None
    return words[1] if len(words) == 2 else None


def _exports_in(folder: Path, kind: str) -> Iterator[Path]:
    for path in folder.iterdir():
        if EXPORTS.get(path.suffix) == kind and not path.name.startswith(("_", ".")):
            yield path
