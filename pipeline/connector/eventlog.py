"""The event log as a stream while it is written: the files that are open, too, and not only those that are published.

    <dir>/date=D/node=N/events-<boot>-<first>.jsonl     whole
                        _open-<boot>-<first>.jsonl      read up to its last whole line

    offset   for each node {"boot": ..., "first": ..., "bytes": ..., "seq": ...}: the file, how much of it was read, and
             the number of the last event in that

A file that is published gets another name and stays what it is, so that an offset means the same before and after.
Files of one node are in the order of boot and number, and one that is behind another is never written to again.

A node that cannot write cuts off what it has half written, and that may have been read: what follows then is found by
the numbers of the events.
"""

import io
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructField, StructType

from disqued.client.errors import DisquedError
from disqued.core.model.trace import NAMES
from disqued.pipeline.days import is_day
from disqued.wire.eventlines import COLUMNS, VERSION

_TYPES: Final = {"INT": IntegerType(), "BIGINT": LongType(), "DOUBLE": DoubleType(), "STRING": StringType()}
#: The members of a line, and what the folders tell.
SCHEMA: Final = StructType(
    [
        *(StructField(name, _TYPES[kind], nullable=True) for name, kind in COLUMNS),
        StructField("date", StringType(), nullable=True),
        StructField("node", StringType(), nullable=True),
    ]
)
ARROW: Final = to_arrow_schema(SCHEMA, timezone="UTC")
#: Of a line: the folders tell the rest.
LINE: Final = pa.schema(list(ARROW)[: len(COLUMNS)])
NAME: Final = re.compile(r"(?:_open|events)-(\d+)-(\d{16})\.jsonl")
CHUNK: Final = 4 << 20  #: bytes of lines that become one batch
SETTLED_NS: Final = 60 * 10**9  #: since a folder has changed; then what was found in it is kept
_WORDS: Final = pa.array([name.decode("ascii") for name in NAMES])
_LAST: Final = 1 << 16  #: bytes read at a time in search of the last whole line
_PARSE: Final = pyarrow.json.ParseOptions(explicit_schema=LINE, unexpected_field_behavior="ignore")

Offset = dict[str, Any]


class EventsGone(DisquedError):
    """Events that were not read yet are in no file any more."""


@attrs.frozen(order=True)
class LogFile:
    """A file of the event log of one node."""

    boot: int
    #: Number of its first event.
    first: int
    date: str = attrs.field(eq=False, order=False)
    path: Path = attrs.field(eq=False, order=False)

    def open(self) -> io.BufferedReader:
        """Open it, under the name that it has now.  Raises FileNotFoundError."""
        try:
            return self.path.open("rb")
        except FileNotFoundError:
            return self.path.with_name(self.path.name.replace("_open-", "events-")).open("rb")


@attrs.frozen
class LogPosition:
    """How far the log of one node was read."""

    boot: int
    first: int
    #: Of that file.
    bytes: int
    #: Number of the last event that was read in this boot; 0 = none was.
    seq: int


class LinesPart(InputPartition):
    """Lines that one task reads: a part of one file."""

    def __init__(self, file: LogFile, node: str, span: tuple[int, int], above: int) -> None:
        """Take the first byte and the one behind the last; events with numbers up to `above` are left out."""
        self.path, self.date, self.node = str(file.path), file.date, node
        self.boot, self.first = file.boot, file.first
        self.start, self.end = span
        self.above = above


class EventsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the event log of all nodes as it grows."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Take options as `read_options` makes them."""
        self._options = options
        self._folder = EventLogFolder(Path(options["events"]))
        #: Up to where availableNow reads; None = no end.
        self._until: dict[str, LogPosition] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what is the driver's."""
        return {"_options": self._options, "_folder": None, "_until": None}

    # What Spark asks for, in the driver.

    def initialOffset(self) -> Offset:
        """Begin at the oldest event, or behind the last one.  Raises ValueError where there is no such folder."""
        if not self._folder.path.is_dir():
            raise ValueError(
                f"the option events: {str(self._folder.path)!r} is no folder; the setting events-dir of a node names it"
            )
        return _offset(self._ends() if self._options["startingPosition"] == "latest" else {})

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._ends()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Say up to where the next batch goes.  Raises EventsGone."""
        begun = _positions(start)
        budget: int = self._options["maxBytesPerTrigger"]
        reached = dict(begun)
        for node, files in self._folder.files().items():
            for file, at, most in self._open_parts(node, files, begun.get(node)):
                if budget <= 0:
                    break
                with file.open() as lines:
                    end = most if most - at <= budget else _line_end(lines, at, at + budget, most)
                    seq = _last_number(lines, end)
                reached[node] = LogPosition(file.boot, file.first, end, seq)
                # What is left of a file comes before the next one.
                budget = budget - (end - at) if end == most else 0
        return start if reached == begun else _offset(reached)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Name the parts of files between two offsets.  Raises EventsGone."""
        begun, ended = _positions(start), _positions(end)
        parts: list[InputPartition] = []
        files = self._folder.files()
        for node, last in ended.items():
            for file, at, size in self._open_parts(node, files.get(node, []), begun.get(node), last):
                before = begun.get(node)
                above = before.seq if before is not None and file.boot == before.boot else 0
                parts.append(LinesPart(file, node, (at, size), above))
        return parts

    def commit(self, end: Offset) -> None:
        """Need nothing: the log is there for others, too."""

    # What Spark asks for, in the executors.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the lines of a part.  Raises OSError."""
        if not isinstance(partition, LinesPart):
            return
        file = LogFile(partition.boot, partition.first, partition.date, Path(partition.path))
        with file.open() as lines:
            lines.seek(partition.start)
            left, rest = partition.end - partition.start, b""
            while left > 0 and (data := lines.read(min(CHUNK, left))):
                left -= len(data)
                whole = (rest + data).rpartition(b"\n")
                rest = whole[2]
                if whole[0]:
                    yield from _batches(whole[0], partition)

    # Where things are.

    def _ends(self) -> dict[str, LogPosition]:
        """Give the position behind all that there is."""
        ends = {}
        for node, files in self._folder.files().items():
            if files:
                with files[-1].open() as lines:
                    end = _whole(lines)
                    ends[node] = LogPosition(files[-1].boot, files[-1].first, end, _last_number(lines, end))
        return ends

    def _open_parts(
        self, node: str, files: Sequence[LogFile], begun: LogPosition | None, last: LogPosition | None = None
    ) -> Iterator[tuple[LogFile, int, int]]:
        """Yield what was not read of the files of a node: file, first byte, and the one behind its last whole line.

        `last` is where to end; without it that is what availableNow says, or the end.
        """
        if last is None and self._until is not None:
            last = self._until.get(node, LogPosition(0, 0, 0, 0))
        if begun is not None:
            self._check_all_there(node, files, begun)
        for file in files:
            place = (file.boot, file.first)
            if begun is not None and place < (begun.boot, begun.first):
                continue
            if last is not None and place > (last.boot, last.first):
                return
            with file.open() as lines:
                end = _whole(lines)
                at = 0
                if begun is not None and place == (begun.boot, begun.first) and _is_line_start(lines, begun.bytes, end):
                    at = begun.bytes
            if last is not None and place == (last.boot, last.first):
                end = min(end, last.bytes)
            if end > at:
                yield file, at, end

    def _check_all_there(self, node: str, files: Sequence[LogFile], begun: LogPosition) -> None:
        """Raise EventsGone when files were removed before they were read."""
        later = [file for file in files if (file.boot, file.first) >= (begun.boot, begun.first)]
        if not later or not self._options["failOnDataLoss"] or (later[0].boot, later[0].first) == (
                begun.boot, begun.first):  # fmt: skip
            return
        if later[0].boot == begun.boot and later[0].first > begun.seq + 1:
            raise EventsGone(
                f"events {begun.seq + 1} to {later[0].first - 1} of boot {begun.boot} of the node {node} are in no "
                "file any more: they were removed (events-keep-days, events-keep-size) before they were read, or never "
                "written; with the option failOnDataLoss = false they are left out"
            )


class EventLogFolder:
    """The folder of an event log; folders in it that have not changed for a while are not read again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Files by folder of a day and node, and the time at which that folder had changed.
        self._known: dict[str, tuple[int, list[LogFile]]] = {}

    def files(self) -> dict[str, list[LogFile]]:
        """Give the files of each node, in order; a folder that is named after no day has none."""
        found: dict[str, list[LogFile]] = {}
        for day in _folders(self.path, "date="):
            if not is_day(day.name.removeprefix("date=")):
                continue
            for node in _folders(Path(day.path), "node="):
                found.setdefault(node.name.removeprefix("node="), []).extend(self._in(day.name, node.path))
        return {node: sorted(files) for node, files in sorted(found.items())}

    def _in(self, day: str, folder: str) -> list[LogFile]:
        changed = os.stat(folder).st_mtime_ns
        known = self._known.get(folder)
        if known is not None and known[0] == changed:
            return known[1]
        files = list(_list(day.removeprefix("date="), Path(folder)))
        # Times of files are coarse, and may be those of another machine: what changes just now may change once more.
        if time.time_ns() - changed > SETTLED_NS:
            self._known[folder] = (changed, files)
        return files


def _folders(path: Path, beginning: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return [entry for entry in entries if entry.name.startswith(beginning) and entry.is_dir()]
    except FileNotFoundError:  # removed with its last file
        return []


def _list(date: str, folder: Path) -> Iterator[LogFile]:
    for path in folder.iterdir():
        found = NAME.fullmatch(path.name)
        if found:
            yield LogFile(int(found[1]), int(found[2]), date, path)


# Lines.


def _whole(lines: io.BufferedReader) -> int:
    """Bytes of a file up to the end of its last whole line."""
    return _line_end(lines, 0, size := os.fstat(lines.fileno()).st_size, size)


def _line_end(lines: io.BufferedReader, start: int, end: int, most: int) -> int:
    """Find the end of the last line that ends before a byte; of the first line behind it, if there is none."""
    at = end
    while at > start:
        begin = max(start, at - _LAST)
        lines.seek(begin)
        found = lines.read(at - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        at = begin
    lines.seek(end)
    return min(most, end + len(lines.readline())) if end < most else start


def _is_line_start(lines: io.BufferedReader, at: int, end: int) -> bool:
    if at > end:
        return False
    if at == 0:
        return True
    lines.seek(at - 1)
    return lines.read(1) == b"\n"


def _last_number(lines: io.BufferedReader, end: int) -> int:
    """Read the number of the last event before a byte; 0 where there is none."""
    if not end:
        return 0
    begin = _line_end(lines, 0, end - 1, end - 1)
    lines.seek(begin)
    try:
        return int(json.loads(lines.read(end - begin))["seq"])
    except (ValueError, KeyError, TypeError):
        return 0


def _batches(lines: bytes, part: LinesPart) -> Iterator[pa.RecordBatch]:
    """Make Arrow batches of lines; one that is no event is a row of nulls but for date and node."""
    table = _table(lines)
    if part.above:
        table = table.filter(pc.or_kleene(pc.greater(table["seq"], part.above), pc.is_null(table["seq"])))
    table = _known(table)
    for name in ("date", "node"):
        table = table.append_column(name, pa.repeat(pa.scalar(getattr(part, name)), len(table)))
    for batch in table.cast(ARROW).to_batches():
        if len(batch):
            yield batch


def _table(lines: bytes) -> pa.Table:
    """Read lines; one that is no JSON object in UTF-8 is a row of nulls."""
    if _is_text(lines):
        options = pyarrow.json.ReadOptions(block_size=len(lines) + 1)
        try:
            return pyarrow.json.read_json(io.BytesIO(lines), read_options=options, parse_options=_PARSE)
        except pa.ArrowInvalid:
            pass
    return pa.Table.from_pylist([_read_line(line) for line in lines.split(b"\n")], schema=LINE)


def _known(table: pa.Table) -> pa.Table:
    """Make rows of nulls of lines of another version, and of those with a word that is no event."""
    known = pc.and_(pc.equal(table["v"], VERSION), pc.is_in(table["event"], _WORDS)).fill_null(False)
    if pc.all(known).as_py():
        return table
    columns = [pc.if_else(known, column, pa.scalar(None, column.type)) for column in table.columns]
    return pa.table(columns, schema=table.schema)


def _is_text(line: bytes) -> bool:
    """Tell whether bytes are UTF-8; Arrow's reader takes them for that without a look."""
    if line.isascii():
        return True
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read_line(line: bytes) -> dict[str, Any]:
    """Read a line by itself; what fits nowhere is nothing."""
    if not _is_text(line):
        return {}
    try:
        row = pyarrow.json.read_json(io.BytesIO(line), parse_options=_PARSE).to_pylist()
    except pa.ArrowInvalid:
        return {}
    return dict(row[0]) if row else {}


def _offset(positions: Mapping[str, LogPosition]) -> Offset:
    return {"nodes": {node: attrs.asdict(at) for node, at in sorted(positions.items())}}


def _positions(offset: Offset) -> dict[str, LogPosition]:
    return {node: LogPosition(**at) for node, at in offset["nodes"].items()}
