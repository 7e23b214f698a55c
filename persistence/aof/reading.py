"""Reading a journal from start to end: by its owner, or while another node writes it.

A torn end is accepted where a crash may leave one: in the last segment that holds records.  Increments without any may
stand behind it: a compaction lists the one that it begins before the one that it ends is synced.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Self

from twisted.logger import Logger

from disqued.core.model.outbox import Record
from disqued.persistence.aof.manifest import Base, Increment, JournalFiles, Manifest
from disqued.persistence.aof.segments import HEADER_SIZE, SegmentReader
from disqued.persistence.disk import Disk, reason
from disqued.persistence.interface import StoreDamaged, StoreFailed


class JournalReader:
    """Yields the records that a manifest speaks of, and knows how far it is."""

    log = Logger()

    def __init__(
        self, files: JournalFiles, manifest: Manifest, *, cut_torn: bool, sizes: bool = True,
        pause: Callable[[], Any] | None = None,
    ) -> None:  # fmt: skip
        """Take a journal; `cut_torn` lets it end within a record.  Raises StoreDamaged, StoreFailed.

        What `pause` returns is yielded among the records, so that nobody waits long for the next one.

        Without `sizes` the files are not looked for, and `bytes_total` is 0.
        """
        self.sequence: int = 1  #: number of the record after the last
        self.torn: Increment | None = None  #: the segment that ends within a record
        self.torn_why: str = ""  #: how
        self.good_size: int = 0  #: bytes of that one that are good
        self.last_size: int = 0  #: bytes of the last segment that are good
        self._files = files
        self._cut_torn = cut_torn
        self._pause = pause
        self._segments = manifest.segments
        self._bytes_before = 0
        self._reader: SegmentReader | None = None
        self._is_numbered = False  #: the next segment goes on with the numbers of the last one
        self._refusal: StoreDamaged | None = None  #: why no record may stand behind the torn one
        self.bytes_total: int = sum(self._size(segment) for segment in self._segments) if sizes else 0

    @property
    def bytes_loaded(self) -> int:
        """Bytes of the journal behind us."""
        return self._bytes_before + (self._reader.good_size if self._reader else 0)

    def __iter__(self) -> Iterator[Record]:
        """Yield the records.  Raises StoreDamaged, StoreFailed."""
        return self.read(self._open_each())

    def read(self, opened: Iterable[BinaryIO]) -> Iterator[Record]:
        """Yield the records of these files, which are the segments in turn.  Raises StoreDamaged, StoreFailed."""
        try:
            for segment, file in zip(self._segments, opened, strict=True):
                with file:
                    reader = self._begin(segment, file)
                    # Each generator on the way of a record costs time.
                    yield from reader
                    self._end(segment, reader)
        except OSError as error:
            raise StoreFailed(f"{self._files.path}: {reason(error)}") from error
        self.log.info("Journal read: {size} bytes from {path}", size=self.bytes_loaded, path=str(self._files.path))

    def _open_each(self) -> Iterator[BinaryIO]:
        for segment in self._segments:
            yield self._files.segment(segment).open("rb")

    def _size(self, segment: Base | Increment) -> int:
        path = self._files.segment(segment)
        try:
            return path.stat().st_size
        except FileNotFoundError:
            raise StoreDamaged(str(path), 0, 0, "the manifest lists this file, and it is missing") from None
        except OSError as error:
            raise StoreFailed(f"{path}: {reason(error)}") from error

    def _begin(self, segment: Base | Increment, file: BinaryIO) -> SegmentReader:
        sequence = segment.first or self.sequence
        if self._is_numbered and sequence != self.sequence:
            raise self._incomplete(segment, f"it begins with record {sequence} where {self.sequence} is next")
        reader = self._reader = SegmentReader(
            self._files.segment(segment), file, segment.first, sequence, pause=self._pause
        )
        if self._refusal is not None and reader.size > HEADER_SIZE:
            raise self._refusal
        return reader

    def _end(self, segment: Base | Increment, reader: SegmentReader) -> None:
        self._check_end(segment, reader)
        self._is_numbered = isinstance(segment, Increment)
        self.sequence = reader.sequence
        self.last_size = reader.good_size
        self._bytes_before += reader.good_size
        self._reader = None

    def _check_end(self, segment: Base | Increment, reader: SegmentReader) -> None:
        if isinstance(segment, Base):
            if reader.torn or reader.sequence != segment.first + segment.count:
                read = reader.sequence - segment.first
                raise self._incomplete(segment, f"it ends after {read} of {segment.count} records")
        elif reader.torn:
            self._check_torn(segment, reader)

    def _check_torn(self, segment: Increment, reader: SegmentReader) -> None:
        """Accept a torn end when the operator allows it and nothing follows."""
        if self._refusal is not None:
            raise self._refusal
        if not self._cut_torn:
            raise self._incomplete(segment, f"{reader.torn}; `aof-load-truncated yes` starts without it")
        self._refusal = self._incomplete(segment, reader.torn)
        self.torn = segment
        self.torn_why = reader.torn
        self.good_size = reader.good_size

    def _incomplete(self, segment: Base | Increment, what: str) -> StoreDamaged:
        offset = self._reader.good_size if self._reader else 0
        sequence = self._reader.sequence if self._reader else self.sequence
        return StoreDamaged(str(self._files.segment(segment)), offset, sequence, what)


class JournalPeek:
    """A journal that a node may be writing and compacting meanwhile; it may be read more than once.

    Files that are open stay what they are, whatever happens to their names.
    """

    def __init__(self, path: Path) -> None:
        """Open every file of the journal that is named after a path.  Raises StoreError."""
        self._files = JournalFiles(path, Disk())
        self._manifest, self._opened = _open_all(self._files)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._opened:
            file.close()

    @property
    def has_queues(self) -> bool:
        """Whether the records say the truth about queues: the node has ended in good order, and left them so."""
        return self._manifest.has_queues

    def read(self) -> Iterator[Record]:
        """Yield the records from the first one on; one that is being written ends them.  Raises StoreError."""
        again = (os.fdopen(os.dup(file.fileno()), "rb") for file in self._opened)
        return JournalReader(self._files, self._manifest, cut_torn=True, sizes=False).read(again)


def _open_all(files: JournalFiles) -> tuple[Manifest, list[BinaryIO]]:
    """Open every segment of a journal that may be compacted meanwhile.  Raises StoreError."""
    manifest = files.read_manifest()
    while True:
        with ExitStack() as opened:
            try:
                result: list[BinaryIO] = [
                    opened.enter_context(files.segment(segment).open("rb")) for segment in manifest.segments
                ]
            except FileNotFoundError as error:
                before, manifest = manifest, files.read_manifest()
                if manifest == before:
                    raise StoreDamaged(
                        error.filename, 0, 0, "the manifest lists this file, and it is missing"
                    ) from None
            except OSError as error:
                raise StoreFailed(f"{files.path}: {reason(error)}") from error
            else:
                opened.pop_all()
                return manifest, result
