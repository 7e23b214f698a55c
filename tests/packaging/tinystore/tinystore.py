"""The smallest store that keeps its promises: one file, each record behind its length, synced at each commit."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Any

from twisted.plugin import IPlugin
from zope.interface import implementer

from disqued.core.model.outbox import JOB_ADDED, Record
from disqued.persistence.interface import IStore, IStoreFactory, StoreError, StoreFailed
from disqued.wire.jobdump import decode_record, encode_event, encode_job

_LENGTH = Struct("<I")


@implementer(IStore)
class TinyStore:
    """Keeps a journal that only grows."""

    records = True
    restores_queues = False
    wants_compaction = False

    def __init__(self, path: Path, clock: Any) -> None:
        self._path = path
        self._clock = clock
        self._waiting: list[bytes] = []
        self.bytes_total = self.bytes_loaded = 0

    def open(self) -> None:
        """Open the file."""
        self._file = self._path.open("a+b")
        self.bytes_total = self._path.stat().st_size

    def load(self) -> Iterator[Record]:
        """Read it."""
        self._file.seek(0)
        while head := self._file.read(_LENGTH.size):
            data = self._file.read(_LENGTH.unpack(head)[0])
            self.bytes_loaded += len(head) + len(data)
            yield decode_record(data)

    def renew(self) -> None:
        """Empty it."""
        self._file.truncate(0)

    def configure(self, config: Any) -> None:
        """Follow nothing."""

    def append(self, records: list[Record]) -> None:
        """Write records down, in memory."""
        wall = self._clock.wall()
        for record in records:
            job = record[0] == JOB_ADDED
            data = encode_job(record[1], wall - self._clock.now()) if job else encode_event(record, wall)
            self._waiting += (_LENGTH.pack(len(data)), data)

    def commit(self) -> None:
        """Force them to the disk."""
        try:
            self._file.write(b"".join(self._waiting))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StoreFailed(str(error.strerror)) from error
        self._waiting.clear()

    def look(self) -> None:
        """Miss the file if it is gone, or another one is in its place."""
        try:
            there = os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except OSError as error:
            raise StoreFailed(str(error.strerror)) from error
        if not there:
            raise StoreFailed(f"{self._path} is another file now")

    def secure(self) -> None:
        """Do nothing: each commit is synced."""

    def compact(self, records: Iterator[Record]) -> None:
        """Not here."""
        raise StoreError("tinystore only grows")

    def rewrite(self, records: Iterable[Record]) -> None:
        """Not here."""
        raise StoreFailed("tinystore only grows")

    def status(self) -> dict[str, int | str]:
        """Tell where it is."""
        return {"tiny_path": str(self._path)}

    def discard(self) -> None:
        """Empty it and let go."""
        self._waiting.clear()
        self._file.truncate(0)
        self._file.close()

    def close(self) -> None:
        """Write what is left."""
        if not self._file.closed:
            self.commit()
            self._file.close()


@implementer(IPlugin, IStoreFactory)
class TinyFactory:
    """Makes the store `tiny`."""

    name = "tiny"

    def create(self, config: Any, reactor: Any, clock: Any) -> TinyStore:
        """Make a store in the data folder."""
        return TinyStore(config.dir / "jobs.tiny", clock)

    def holds(self, config: Any) -> bool:
        """Look for the file."""
        return (config.dir / "jobs.tiny").exists()

    def peek(self, config: Any) -> Iterator[Record]:
        """Read it from the start."""
        store = TinyStore(config.dir / "jobs.tiny", None)
        store.open()
        return store.load()
