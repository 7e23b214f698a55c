"""The store `redis`, as the settings ask for it; what it is made of is loaded only when it is wanted.

factory.py ---> store.py ---> server.py ---> link.py    txredisapi's connection, made again and again
|             +-- whose data these are
+-- backlog.py     what waits, in numbered batches
+-- reading.py     coming back, page by page       layout.py    keys and scripts
---> peek.py               reading beside a node
"""

from typing import Protocol, cast

from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from disqued.config_values import RedisAddress
from disqued.core.clock import Clock
from disqued.persistence.interface import IStore, IStoreFactory, StoreError, StoreSettings
from disqued.persistence.redis.layout import Keys
from disqued.persistence.redis.reading import Records


class RedisSettings(StoreSettings, Protocol):
    """The settings that this store reads."""

    @property
    def redis_url(self) -> str:
        """Where the server is."""

    @property
    def redis_prefix(self) -> str:
        """What the names of the keys begin with."""

    @property
    def redis_backlog(self) -> int:
        """Bytes of records that may wait for the server."""


@implementer(IStoreFactory)
class RedisStoreFactory:
    """Makes the store `redis` as the settings say."""

    name = "redis"

    def create(self, config: StoreSettings, reactor: IReactorTime, clock: Clock) -> IStore:
        try:
            from disqued.persistence.redis.store import RedisStore
        except ModuleNotFoundError as error:
            raise _not_installed(error) from None
        settings = cast("RedisSettings", config)
        return RedisStore(
            _address(settings),
            Keys(settings.redis_prefix),
            clock=clock,
            reactor=reactor,
            fsync=settings.appendfsync,
            backlog_limit=settings.redis_backlog,
            enqueue_once=settings.aof_enqueue_jobs_once,
        )

    def holds(self, config: StoreSettings) -> bool:
        return True

    def peek(self, config: StoreSettings) -> Records:
        try:
            from disqued.persistence.redis.peek import peek
        except ModuleNotFoundError as error:
            raise _not_installed(error) from None
        settings = cast("RedisSettings", config)
        return peek(_address(settings), Keys(settings.redis_prefix))


def _address(settings: RedisSettings) -> RedisAddress:
    try:
        return RedisAddress.of(settings.redis_url)
    except ValueError as error:
        raise StoreError(f"redis-url: {error}") from None


def _not_installed(error: ModuleNotFoundError) -> StoreError:
    if error.name != "txredisapi":
        raise error
    return StoreError('`persistence redis` needs txredisapi: pip install "disqued[redis]"')
