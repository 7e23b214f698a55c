"""The store `sqlite`, as a plugin: what it is made of is imported when somebody wants it."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from disqued.config.settings import Settings
from disqued.core.model.clock import Clock
from disqued.core.model.outbox import Record
from disqued.persistence.interface import IStoreFactory, StoreError

if TYPE_CHECKING:
    from disqued.persistence.sqlite.store import SqliteStore


@implementer(IStoreFactory)
class SqliteFactory:
    """Makes the store `sqlite` as the settings say."""

    name = "sqlite"

    def create(self, config: Settings, reactor: IReactorTime, clock: Clock) -> "SqliteStore":
        if find_spec("sqlite_utils") is None:
            raise StoreError(
                '`persistence sqlite` needs the package sqlite-utils, which is not there: pip install "disqued[sqlite]"'
            )
        from disqued.persistence.sqlite.store import SqliteStore

        return SqliteStore(database_path(config), config, clock=clock, reactor=reactor)

    def holds(self, config: Settings) -> bool:
        return database_path(config).exists()

    def peek(self, config: Settings) -> Iterator[Record]:
        from disqued.persistence.sqlite.reading import peek_database

        return peek_database(database_path(config))


def database_path(config: Settings) -> Path:
    """The path of the database.  Raises StoreError."""
    if not config.sqlite_file:
        raise StoreError("sqlite-file is empty; a database needs a name, such as disque.sqlite")
    return Path(config.sqlite_file)
