"""No store: the data of the node lives in memory alone.

It still takes part in a controlled restart: `rewrite` leaves a snapshot in the form of a journal, and the next start
with aof-enqueue-jobs-once takes it over into memory and removes it.  A journal that something else left here is not
touched: nothing was written to it while this store was used, so that its jobs may be long done.
"""

from collections.abc import Iterable, Iterator

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from disqued.config.settings import Settings
from disqued.core.model.clock import Clock
from disqued.core.model.outbox import Record
from disqued.persistence.aof.base import replace_journal
from disqued.persistence.aof.manifest import JournalFiles, Manifest, journal_path
from disqued.persistence.aof.reading import JournalReader
from disqued.persistence.disk import Disk
from disqued.persistence.interface import IStore, IStoreFactory, StoreError, StoreFailed


@implementer(IStore)
class NullStore:
    """Keeps nothing, except from a controlled shutdown to the start that follows."""

    log = Logger()
    records = False
    wants_compaction = False

    def __init__(self, config: Settings, *, clock: Clock) -> None:
        """Take the settings appendfilename and aof-enqueue-jobs-once.  Raises StoreError."""
        self.restores_queues: bool = False
        self._clock = clock
        self._enqueue_once = config.aof_enqueue_jobs_once
        self._files = JournalFiles(journal_path(config), Disk())
        self._reader: JournalReader | None = None

    @property
    def bytes_total(self) -> int:
        return self._reader.bytes_total if self._reader else 0

    @property
    def bytes_loaded(self) -> int:
        return self._reader.bytes_loaded if self._reader else 0

    def open(self) -> None:
        if not self._enqueue_once:
            return
        self._files.lock.take()
        try:
            manifest = self._files.read_manifest()
            if manifest.has_queues:
                self._reader = JournalReader(self._files, manifest, cut_torn=False)
        except StoreError:
            self._files.lock.release()
            raise
        self.restores_queues = manifest.has_queues
        if not manifest.has_queues:
            self._files.lock.release()
            self.log.warn(
                "aof-enqueue-jobs-once: {path} was not written by SHUTDOWN REWRITE-AOF; nothing is loaded",
                path=str(self._files.path),
            )

    def load(self) -> Iterator[Record]:
        if self._reader is None:
            return
        yield from self._reader
        try:
            self._files.write_manifest(Manifest())
        except OSError as error:
            raise StoreFailed(error.strerror or str(error)) from error
        self._files.remove_leftovers(Manifest())
        self._files.lock.release()

    def renew(self) -> None:
        """Nothing is kept, so nothing has to go."""

    def configure(self, config: Settings) -> None:
        """There is no setting that it could follow."""

    def append(self, records: list[Record]) -> None:
        """Forget them."""

    def commit(self) -> None:
        """Nothing was kept, so nothing can fail."""

    def look(self) -> None:
        """Nothing is kept that could be taken away."""

    def secure(self) -> None:
        """Nothing was kept, so nothing can be lost."""

    def compact(self, records: Iterator[Record | None]) -> None:
        """Refuse: there is nothing that could become smaller."""
        raise StoreError("there is no journal to rewrite: `persistence` is none")

    def rewrite(self, records: Iterable[Record]) -> None:
        self._files.lock.take()
        try:
            replace_journal(self._files, records, 1, self._clock)
        finally:
            self._files.lock.release()

    def status(self) -> dict[str, int | str]:
        return {
            "aof_enabled": 0,
            "aof_state": "off",
            "aof_rewrite_in_progress": 0,
            "aof_rewrite_scheduled": 0,
            "aof_last_rewrite_time_sec": -1,
            "aof_current_rewrite_time_sec": -1,
            "aof_last_bgrewrite_status": "ok",
            "aof_last_write_status": "ok",
        }

    def discard(self) -> None:
        """There is nothing to discard."""
        self.close()

    def close(self) -> None:
        self._files.lock.release()


@implementer(IStoreFactory)
class NullFactory:
    """Makes the store `none`."""

    name = "none"

    def holds(self, config: Settings) -> bool:
        return False

    def peek(self, config: Settings) -> Iterator[Record]:
        """Refuse: nothing is stored."""
        raise StoreError("nothing is stored: `persistence` is none")

    def create(self, config: Settings, reactor: IReactorTime, clock: Clock) -> NullStore:
        return NullStore(config, clock=clock)
