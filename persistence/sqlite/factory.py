"""The store `sqlite`, as a plugin: what it is made of is imported when somebody wants it."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from disqued.core.clock import Clock
from disqued.core.outbox import Record
from disqued.persistence.interface import IStoreFactory, StoreError, StoreSettings

if TYPE_CHECKING:
    from disqued.persistence.sqlite.store import SqliteStore


class SqliteSettings(StoreSettings, Protocol):
    """The settings that the store reads."""

    @property
    def sqlite_file(self) -> Path | None:
        """The database."""

    @property
    def sqlite_history(self) -> int:
        """How long facts about jobs that are over are kept, in seconds; 0 = not at all."""


@implementer(IStoreFactory)
class SqliteFactory:
    """Makes the store `sqlite` as the settings say."""

    name = "sqlite"

    def create(self, config: StoreSettings, reactor: IReactorTime, clock: Clock) -> "SqliteStore":
        if find_spec("sqlite_utils") is None:
            raise StoreError(
                '`persistence sqlite` needs the package sqlite-utils, which is not there: pip install "disqued[sqlite]"'
            )
        from disqued.persistence.sqlite.store import SqliteStore

        settings = cast(SqliteSettings, config)
        return SqliteStore(
            database_path(settings),
            clock=clock,
            reactor=reactor,
            fsync=settings.appendfsync,
            history_s=settings.sqlite_history,
            cut_torn=settings.aof_load_truncated,
            enqueue_once=settings.aof_enqueue_jobs_once,
        )

    def holds(self, config: StoreSettings) -> bool:
        return database_path(cast(SqliteSettings, config)).exists()

    def peek(self, config: StoreSettings) -> Iterator[Record]:
        from disqued.persistence.sqlite.reading import peek_database

        return peek_database(database_path(cast(SqliteSettings, config)))


def database_path(config: SqliteSettings) -> Path:
    """The path of the database.  Raises StoreError."""
    if not config.sqlite_file:
        raise StoreError("sqlite-file is empty; a database needs a name, such as disque.sqlite")
    return Path(config.sqlite_file)
