"""The files of a database: the database itself, its log, what belongs to them, and a lock."""

from pathlib import Path

from twisted.logger import Logger

from disqued.persistence.disk import Disk
from disqued.persistence.lock import FileLock
from disqued.persistence.sqlite.reading import DatabaseReader
from disqued.persistence.sqlite.schema import failure_of, find_database, prepare, wal_path
from disqued.persistence.sqlite.synced import forget_synced, index_path, synced_path
from disqued.persistence.sqlite.tail import check_tail


class DatabaseFiles:
    """The files of one database."""

    log = Logger()

    def __init__(self, path: Path, disk: Disk) -> None:
        """Take the path of the database."""
        self.path = path
        self.disk = disk
        self.lock = FileLock(path, disk, "database")  #: the log watches the other files

    def open(self, *, synced: bool, cut_torn: bool) -> DatabaseReader | None:
        """Lock the files and return the reader of the database; None where there is none yet.  Raises StoreError."""
        self.lock.take()
        try:
            if not find_database(self.path):
                return None
            check_tail(self.path, synced=synced, cut_torn=cut_torn)
            self._forget_synced()
            prepare(self.path, self.disk)
            return DatabaseReader(self.path)
        except BaseException:
            self.lock.release()
            raise

    def _forget_synced(self) -> None:
        # Who reads the database puts the log into it at the end.
        try:
            forget_synced(self.path)
        except OSError as error:
            raise failure_of(error, self.path) from error

    @property
    def size(self) -> int:
        """Bytes of the database; 0 when it is not there."""
        return _size(self.path)

    @property
    def wal_size(self) -> int:
        """Bytes of the log; 0 when it is not there."""
        return _size(wal_path(self.path))

    def remove(self) -> None:
        """Remove all of them but the lock."""
        for path in (self.path, wal_path(self.path), index_path(self.path), synced_path(self.path)):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                self.log.warn("{path} cannot be removed: {why}", path=str(path), why=error.strerror)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
