"""The stores that come with disqued; no `__init__.py` here, so that Twisted's own package stays whole."""

from disqued.persistence.aof.store import AofFactory
from disqued.persistence.null import NullFactory
from disqued.persistence.redis.factory import RedisStoreFactory
from disqued.persistence.sqlite.factory import SqliteFactory

none = NullFactory()
aof = AofFactory()
redis = RedisStoreFactory()
sqlite = SqliteFactory()
