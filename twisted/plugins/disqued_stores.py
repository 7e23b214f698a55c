"""The stores that come with disqued; no `__init__.py` here, so that Twisted's own package stays whole."""

from disqued.persistence.aof import AofFactory
from disqued.persistence.null import NullFactory
from disqued.persistence.redis import RedisStoreFactory
from disqued.persistence.sqlite import SqliteFactory

none = NullFactory()
aof = AofFactory()
redis = RedisStoreFactory()
sqlite = SqliteFactory()
