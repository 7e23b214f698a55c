"""The store `redis`, as a plugin; its modules are imported only when they are needed.

factory.py ---> store.py ---> server.py ---> link.py    txredisapi's connection, made again and again
|             +-- whose data these are
+-- backlog.py     what waits, in numbered batches
+-- reading.py     coming back, page by page       layout.py    keys and scripts
---> peek.py               reading beside a node
"""

from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from disqued.config.kinds import RedisAddress
from disqued.config.settings import Settings
from disqued.core.model.clock import Clock
from disqued.persistence.interface import IStore, IStoreFactory, StoreError
from disqued.persistence.redis.layout import Keys
from disqued.persistence.redis.reading import Records


@implementer(IStoreFactory)
class RedisStoreFactory:
    """Makes the store `redis` as the settings say."""

    name = "redis"

    def create(self, config: Settings, reactor: IReactorTime, clock: Clock) -> IStore:
        try:
            from disqued.persistence.redis.store import RedisStore
        except ModuleNotFoundError as error:
            raise _not_installed(error) from None
        return RedisStore(_address(config), config, clock=clock, reactor=reactor)

    def holds(self, config: Settings) -> bool:
        return True

    def peek(self, config: Settings) -> Records:
        try:
            from disqued.persistence.redis.peek import peek
        except ModuleNotFoundError as error:
            raise _not_installed(error) from None
        return peek(_address(config), Keys(config.redis_prefix))


def _address(config: Settings) -> RedisAddress:
    try:
        return RedisAddress.of(config.redis_url)
    except ValueError as error:
        raise StoreError(f"redis-url: {error}") from None


def _not_installed(error: ModuleNotFoundError) -> StoreError:
    if error.name != "txredisapi":
        raise error
    return StoreError('`persistence redis` needs txredisapi: pip install "disqued[redis]"')
