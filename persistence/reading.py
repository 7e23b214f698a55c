"""Reading a journal from its first record to its last."""

from collections.abc import Iterator

from twisted.logger import Logger

from disqued.core.outbox import Record
from disqued.persistence.interface import StoreDamaged, StoreFailed
from disqued.persistence.manifest import Base, Increment, JournalFiles, Manifest
from disqued.persistence.segments import SegmentReader


class JournalReader:
    """Yields the records that a manifest speaks of, and knows how far it is."""

    log = Logger()

    def __init__(self, files: JournalFiles, manifest: Manifest, *, cut_torn: bool) -> None:
        """Take a journal; `cut_torn` lets it end within a record.  Raises StoreDamaged, StoreFailed."""
        self.sequence: int = 1  #: number of the record after the last
        self.last_size: int = 0  #: bytes of the last segment that are good
        self.torn: bool = False  #: whether the last segment has more bytes than that
        self._files = files
        self._cut_torn = cut_torn
        self._segments = manifest.segments
        self._bytes_before = 0
        self._reader: SegmentReader | None = None
        self.bytes_total: int = sum(self._size(segment) for segment in self._segments)

    @property
    def bytes_loaded(self) -> int:
        """Bytes of the journal behind us."""
        return self._bytes_before + (self._reader.good_size if self._reader else 0)

    def __iter__(self) -> Iterator[Record]:
        """Yield the records.  Raises StoreDamaged, StoreFailed."""
        if self._segments:
            self.sequence = self._segments[0].first
        try:
            for segment in self._segments:
                yield from self._read(segment)
        except OSError as error:
            raise StoreFailed(f"{self._files.path}: {error.strerror}") from error
        self.log.info("Journal read: {size} bytes from {path}", size=self.bytes_loaded, path=str(self._files.path))

    def _size(self, segment: Base | Increment) -> int:
        path = self._files.segment(segment)
        try:
            return path.stat().st_size
        except FileNotFoundError:
            raise StoreDamaged(str(path), 0, 0, "the manifest lists this file, and it is missing") from None
        except OSError as error:
            raise StoreFailed(f"{path}: {error.strerror}") from error

    def _read(self, segment: Base | Increment) -> Iterator[Record]:
        if segment.first != self.sequence:
            raise self._incomplete(segment, f"it begins with record {segment.first} where {self.sequence} is next")
        reader = self._reader = SegmentReader(self._files.segment(segment), segment.first)
        yield from reader
        self._check_end(segment, reader)
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
        """Accept a torn end where a crash may leave one: in the last segment, when the operator allows it."""
        if segment is not self._segments[-1]:
            raise self._incomplete(segment, reader.torn)
        if not self._cut_torn:
            raise self._incomplete(segment, f"{reader.torn}; `aof-load-truncated yes` starts without it")
        self.torn = True
        self.log.warn(
            "{path}: {torn}; cut off at byte {offset}",
            path=str(self._files.segment(segment)), torn=reader.torn, offset=reader.good_size,
        )  # fmt: skip

    def _incomplete(self, segment: Base | Increment, what: str) -> StoreDamaged:
        offset = self._reader.good_size if self._reader else 0
        sequence = self._reader.sequence if self._reader else self.sequence
        return StoreDamaged(str(self._files.segment(segment)), offset, sequence, what)
