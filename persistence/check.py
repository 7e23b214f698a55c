"""`disqued check-aof`: what a journal holds, what of it is lost, and how to go on without that.

    read each segment --damage--> note it --> the next whole record behind it --> read on
      |
      +-- records by kind, jobs that are alive, units that somebody has, what is lost: file, bytes, numbers of records

    --repair    every whole record, in order, in a new increment --> a manifest that lists it alone
                the old files stay, under names that end in `.damaged`

The loader is that of the store.  What a lost record said is not known: a job may be missing, or one that was done
may come back.  Of a manifest one flipped bit can be put right, since its checksum tells which.
`disqued.tools.check_aof` is the verb.  Source: Disque, disque-check-aof.c.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO, Final, TextIO

import attrs

from disqued.core.model.fate import accepted
from disqued.core.model.job import ACKED, WORK_SCOPE, StoredJob
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
    Record,
)
from disqued.core.model.policies import PAUSE_FIELD
from disqued.persistence.aof.manifest import CHECK_LINE, CHECK_SIZE, Base, Increment, JournalFiles, Manifest
from disqued.persistence.aof.segments import (
    FRAME_SIZE,
    HEADER_SIZE,
    SegmentReader,
    framed,
    is_record,
    next_record,
    number_of,
    record_end,
)
from disqued.persistence.disk import Disk, reason, write_all
from disqued.persistence.interface import StoreDamaged, StoreError, StoreFailed
from disqued.persistence.onebit import flipped_bit
from disqued.wire.fields import Fields
from disqued.wire.jobdump import decode_record

# What `check` returns.
WHOLE: Final = 0
DAMAGED: Final = 1
KINDS: Final = {
    JOB_ADDED: "added",
    UNIT_LEASED: "leased",
    UNIT_DONE: "done",
    JOB_GONE: "gone",
    FLUSHED: "flushed",
    QUEUE_PAUSED: "paused",
    POLICY: "policies",
    GROUP: "begun",
    WATERMARK: "watermarks",
}
#: What became of jobs that are still kept.
ENDINGS: Final = ("dead", "done with a result", "cancelled")
RECORDS_PER_WRITE: Final = 4_096


def _ending_of(job: StoredJob) -> str:
    """Return what became of a job that is still kept; empty = nothing yet, or nobody is to know."""
    fate = job.fate
    if job.state == ACKED and accepted(fate) is not None:
        return "done with a result"
    if fate.is_cancelled:
        return "cancelled"
    return "dead" if fate.is_dead and job.state != ACKED else ""


def _ignore(_: object) -> None:
    """Do nothing with what was read."""


@attrs.frozen
class Loss:
    """A part of a file that does not hold what was written to it."""

    path: Path
    start: int  #: first byte of it
    end: int  #: first byte behind it
    first: int  #: number of the first record that is lost; 0 = none is known to be
    last: int  #: number of the last
    what: str
    torn: bool = False  #: a torn end as a crash leaves it; a start continues without it
    following: int = 0  #: whole records behind it in the same file

    def __str__(self) -> str:
        if self.torn:
            return f"torn: {self.path.name}: {self.end - self.start} bytes from byte {self.start} on: {self.what}"
        if self.first > self.last:
            records = "no record"
        elif self.first == self.last:
            records = f"record {self.first}"
        else:
            records = f"records {self.first} to {self.last}"
        return (
            f"lost: {self.path.name}: bytes {self.start} to {self.end - 1}, {records}: {self.what};"
            f" {self.following} whole records follow"
        )


@attrs.define
class CheckReport:
    """What was found."""

    kinds: Counter[int] = attrs.field(factory=Counter)  #: records by kind
    jobs: set[bytes] = attrs.field(factory=set)  #: ids of the jobs alive at the end
    endings: dict[bytes, str] = attrs.field(factory=dict)  #: one of `ENDINGS`, by the ids of those jobs that have one
    #: Scopes of the leased units, by job id.
    leases: dict[bytes, set[bytes]] = attrs.field(factory=dict)
    pauses: dict[bytes, int] = attrs.field(factory=dict)  #: bits of this node alone by name of the queue
    policies: set[bytes] = attrs.field(factory=set)  #: queues that are paused in the whole cluster
    segments: list[tuple[Path, int, int]] = attrs.field(factory=list)  #: path, records, bytes
    losses: list[Loss] = attrs.field(factory=list)

    def note(self, record: Fields) -> None:
        """Take a record into account."""
        kind = record[0]
        self.kinds[kind] += 1
        if kind == JOB_ADDED:
            self._note_job(record[1])
        elif kind == FLUSHED:
            self.jobs.clear()
            self.endings.clear()
            self.leases.clear()
            self.pauses.clear()
        elif kind == QUEUE_PAUSED:
            self.pauses[record[1]] = record[2]
        elif kind == POLICY:
            if record[2] != PAUSE_FIELD:
                pass  # a default of jobs to come
            elif record[3].counter and record[3].value.bits:
                self.policies.add(record[1])
            else:
                self.policies.discard(record[1])
        elif kind == UNIT_LEASED:
            if record[1] in self.jobs:
                self.leases.setdefault(record[1], set()).add(record[2])
        elif kind in (GROUP, WATERMARK):
            pass  # these say nothing of any one job
        elif kind == UNIT_DONE and record[2] != WORK_SCOPE:
            self.leases.get(record[1], set()).discard(record[2])
        else:
            self.jobs.discard(record[1])
            self.endings.pop(record[1], None)
            self.leases.pop(record[1], None)

    def _note_job(self, job: StoredJob) -> None:
        self.jobs.add(job.id)
        if job.state == ACKED:
            self.leases.pop(job.id, None)
        if ending := _ending_of(job):
            self.endings[job.id] = ending
        elif self.endings:
            self.endings.pop(job.id, None)

    @property
    def is_torn(self) -> bool:
        """Whether nothing worse happened than a crash."""
        return all(loss.torn for loss in self.losses)

    def lines(self) -> Iterator[str]:
        """The report as people read it."""
        for path, records, size in self.segments:
            yield f"{path.name}: {records} records, {size} bytes"
        yield "records: " + ", ".join(f"{self.kinds[kind]} {word}" for kind, word in KINDS.items())
        paused = self.policies | {queue for queue, bits in self.pauses.items() if bits}
        yield (
            f"jobs: {len(self.jobs)} alive; units leased: {sum(map(len, self.leases.values()))};"
            f" queues paused: {len(paused)}"
        )
        ends = Counter(self.endings.values())
        yield "of these jobs: " + ", ".join(f"{ends[ending]} {ending}" for ending in ENDINGS)
        yield from map(str, self.losses)


class Examiner:
    """Reads every segment, whatever is wrong with it."""

    def __init__(
        self, files: JournalFiles, manifest: Manifest, keep: Callable[[bytes], object],
        advance: Callable[[int], object],
    ) -> None:  # fmt: skip
        """Take a journal; `keep` is given the bytes of each record that is whole, in turn, and `advance` their size."""
        self.report = CheckReport()
        self._files = files
        self._segments = manifest.segments
        self._keep = keep
        self._advance = advance
        self._sequence = 1  #: number of the next record
        self._is_numbered = False  #: the next segment goes on with it
        self._tail: Loss | None = None  #: the lost end of a segment whose record numbers are not known yet
        self._found = 0  #: records found in the segment at hand

    def examine(self) -> CheckReport:
        """Read it all.  Raises OSError."""
        path = self._files.manifest_path
        for segment in self._segments:
            first = segment.first or self._sequence
            if self._is_numbered and first > self._sequence:
                self._close_gap(path, first)
            path = self._files.segment(segment)
            self._sequence = first
            before, self._found = len(self.report.losses), 0
            size = self._examine(segment, path)
            if isinstance(segment, Base) and self._sequence < segment.first + segment.count:
                self._close_gap(path, segment.first + segment.count)
            self.report.losses[before:] = [
                attrs.evolve(loss, following=self._found - loss.following) for loss in self.report.losses[before:]
            ]
            self.report.segments.append((path, self._found, size))
            self._is_numbered = isinstance(segment, Increment)
        if self._tail is not None:
            self.report.losses.append(self._tail)
        return self.report

    def _examine(self, segment: Base | Increment, path: Path) -> int:
        """Read a segment; return its size."""
        try:
            with path.open("rb") as file, ExitStack() as stack:
                size = path.stat().st_size
                data: bytes | mmap = stack.enter_context(mmap(file.fileno(), 0, access=ACCESS_READ)) if size else b""
                at = 0
                while at >= 0:
                    at = self._read(segment, path, file, data, at)
                return size
        except FileNotFoundError:
            self._tail = Loss(path, 0, 0, self._sequence, 0, "the manifest lists this file, and it is missing")
            return 0

    def _read(self, segment: Base | Increment, path: Path, file: BinaryIO, data: bytes | mmap, start: int) -> int:
        """Read on from a byte; return where to read on after damage, -1 at the end."""
        reader = SegmentReader(path, file, segment.first, self._sequence, start=start, decode=self._decode)
        try:
            for _ in reader:
                self._found += 1
            what = reader.torn
        except StoreDamaged as damage:
            what = damage.what
        at, number = reader.good_size, reader.sequence
        self._sequence = number
        if not what:
            return -1
        if reader.torn and self._is_last(segment):
            self._tail = Loss(path, at, len(data), number, number, what, torn=True, following=self._found)
            return -1
        most = number + len(data) // FRAME_SIZE
        behind = record_end(data, at) if at else HEADER_SIZE
        if not is_record(data, behind, number, most):
            behind = next_record(data, max(at + 1, HEADER_SIZE), number, most)
        if behind < 0:
            # A mark is no record.
            last = number if len(data) - at > FRAME_SIZE else number - 1
            self._tail = Loss(path, at, len(data), number, last, what, following=self._found)
            return -1
        self._sequence = number_of(data[behind : behind + FRAME_SIZE])
        self._lose(Loss(path, at, behind, number, self._sequence - 1, what, following=self._found))
        return behind

    def _is_last(self, segment: Base | Increment) -> bool:
        """Tell whether no record stands in a later segment, so that this one may be torn."""
        later = self._segments[self._segments.index(segment) + 1 :]
        return isinstance(segment, Increment) and self._files.size_of(later) <= HEADER_SIZE * len(later)

    def _lose(self, loss: Loss) -> None:
        if self._tail is not None:
            # It was not the end: records follow in the next segment.
            loss = attrs.evolve(self._tail, last=loss.last, torn=False)
            self._tail = None
        self.report.losses.append(loss)

    def _close_gap(self, path: Path, following: int) -> None:
        """Note that everything up to the record with this number is missing at the end of a file."""
        end = path.stat().st_size if path.exists() else 0
        what = "the file ends early"
        self._lose(Loss(path, end, end, self._sequence, following - 1, what, following=self._found))
        self._sequence = following

    def _decode(self, payload: bytes) -> Record:
        record = decode_record(payload)
        self.report.note(record)
        self._keep(payload)
        self._advance(FRAME_SIZE + len(payload))
        return record


class Salvage:
    """Writes whole records into an increment that takes the place of a damaged journal."""

    def __init__(self, files: JournalFiles) -> None:
        """Begin a file beside.  Raises OSError."""
        self._files = files
        self._increment = Increment(files.free_number(), 1)
        self._fd = files.begin(self._increment)
        self._payloads: list[bytes] = []
        self.count = 0

    def keep(self, payload: bytes) -> None:
        """Take the next record.  Raises OSError."""
        self._payloads.append(payload)
        if len(self._payloads) >= RECORDS_PER_WRITE:
            self._write()

    def _write(self) -> None:
        write_all(self._files.disk, self._fd, b"".join(framed(self._payloads, self.count + 1)))
        self.count += len(self._payloads)
        self._payloads = []

    def drop(self) -> None:
        """Leave no trace."""
        self._files.disk.close(self._fd)
        self._files.remove(self._files.segment(self._increment))

    def swap(self, damaged: Manifest) -> list[Path]:
        """Put it in the place of the damaged journal; return under which names that one is kept.  Raises OSError."""
        self._write()
        self._files.disk.fdatasync(self._fd)
        self._files.disk.close(self._fd)
        paths = [self._files.manifest_path, *map(self._files.segment, damaged.segments)]
        kept = [(path, _free_name(path)) for path in paths if path.exists()]
        for path, name in kept:
            name.hardlink_to(path)
        self._files.write_manifest(Manifest(increments=(self._increment,)))
        for path, _ in kept[1:]:
            self._files.disk.remove(path)
        return [name for _, name in kept]


def _free_name(path: Path) -> Path:
    """A name for a damaged file that nothing has yet."""
    name = path.with_name(path.name + ".damaged")
    number = 1
    while name.exists():
        number += 1
        name = path.with_name(f"{path.name}.damaged.{number}")
    return name


def read_manifest(files: JournalFiles) -> tuple[Manifest, str]:
    """The manifest, and what is wrong with it where one flipped bit can be put right.  Raises StoreError."""
    try:
        return files.read_manifest(), ""
    except StoreDamaged:
        data = files.manifest_path.read_bytes() if files.manifest_path.exists() else b""
        for bit in _suspected(data):
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            try:
                return Manifest.from_bytes(
                    bytes(changed)
                ), f"{files.manifest_path.name}: one bit of byte {bit // 8} is wrong"
            except ValueError:
                continue
        raise


def _suspected(data: bytes) -> Iterator[int]:
    """The bits of a manifest that alone may be wrong: the one that its checksum tells, and each of its last line."""
    if line := CHECK_LINE.search(data):
        bit = flipped_bit(data[: line.start()], int(line[1], 16))
        if bit is not None:
            yield bit
    yield from range(max(0, len(data) - CHECK_SIZE) * 8, len(data) * 8)


def size_of(path: Path) -> int:
    """The bytes of a journal, as its manifest lists them; 0 where that cannot be read."""
    files = JournalFiles(path, Disk())
    try:
        manifest, _ = read_manifest(files)
        return sum(segment.stat().st_size for segment in map(files.segment, manifest.segments))
    except (StoreError, OSError):
        return 0


def check(
    path: Path, out: TextIO, *, repair: bool, disk: Disk | None = None, advance: Callable[[int], object] = _ignore
) -> int:
    """Examine a journal, and repair it when told so; WHOLE or DAMAGED.  `advance` is told of bytes that were read."""
    files = JournalFiles(path, disk or Disk())
    try:
        if repair:
            files.lock.take()
        try:
            return _check(files, out, advance, repair=repair)
        finally:
            files.lock.release(tidy=True)
    except StoreError as error:
        out.write(f"{error}\n")
    except OSError as error:
        out.write(f"{error.filename or path}: {reason(error)}\n")
    return DAMAGED


def _check(files: JournalFiles, out: TextIO, advance: Callable[[int], object], *, repair: bool) -> int:
    manifest, wrong = read_manifest(files)
    if not files.manifest_path.exists():
        raise StoreFailed(f"{files.manifest_path}: there is no journal of this name")
    salvage = Salvage(files) if repair else None
    keep = salvage.keep if salvage else _ignore
    try:
        report = Examiner(files, manifest, keep, advance).examine()
    except BaseException:
        if salvage:
            salvage.drop()
        raise
    out.writelines(line + "\n" for line in report.lines())
    if wrong:
        out.write(f"damaged: {wrong}\n")
    if not wrong and not report.losses:
        if salvage:
            salvage.drop()
        out.write("The journal is whole.\n")
        return WHOLE
    if salvage:
        kept = salvage.swap(manifest)
        if manifest.has_queues:
            out.write("What it said about queues is not kept: no start restores them.\n")
        out.write(f"Repaired: the journal holds {salvage.count} records.  What it was is kept:\n")
        out.writelines(f"  {path}\n" for path in kept)
        return WHOLE
    if report.is_torn and not wrong:
        out.write("The journal is torn, as a crash leaves it: a start with `aof-load-truncated yes` cuts that off.\n")
    else:
        out.write("The journal is damaged: --repair keeps every whole record.\n")
    return DAMAGED
