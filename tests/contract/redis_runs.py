"""One run of a node, as far as its store is concerned: it appends, commits, and tries again as a driver does."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import attrs
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from disqued.core.model.groups import new_job
from disqued.core.model.job import FLAG_QUEUED_BEFORE, KIND_WORK, QUEUED, Job, JobOptions
from disqued.core.model.outbox import JOB_ADDED, Record
from disqued.persistence.interface import StoreError, StoreFailed
from disqued.persistence.redis.factory import RedisStoreFactory
from disqued.testing.clock import Clock
from tests.limits import seconds
from tests.redis_server import RedisServer

LIMIT_S = seconds(30)
LOOK_S = 0.01


@attrs.define
class Settings:
    redis_url: str
    appendfsync: str = "always"
    redis_prefix: str = "disqued"
    redis_backlog: int = 64 << 20
    aof_enqueue_jobs_once: bool = False
    appendfilename: str = "disque.aof"
    aof_load_truncated: bool = True


def make_job(
    number: int, *, queue: bytes = b"queue", body: bytes | None = None, alias: bytes = b"", kind: int = KIND_WORK
) -> Job:
    """A job that can be told from others by its number."""
    options = JobOptions(ttl_ms=600_000, retry_ms=60_000, delay_ms=0, replicate=1, kind=kind)
    options.stamp(1_000)
    text = b"body %d" % number if body is None else body
    ctime = 1_700_000_000_000_000_000 + number * 1_000_000
    job = new_job(b"DI%044dSQ" % number, queue, text, ctime, options, alias=alias)
    job.state = QUEUED
    job.flags = FLAG_QUEUED_BEFORE
    return job


def added(*numbers: int) -> list[Record]:
    """Records of jobs with these numbers."""
    return [(JOB_ADDED, make_job(number)) for number in numbers]


async def until(condition: Callable[[], Any], what: str) -> Any:
    """Ask again and again until the answer is true, and return it; what else there is to do goes on meanwhile."""
    end = reactor.seconds() + LIMIT_S
    while not (answer := condition()):
        assert reactor.seconds() < end, f"after {LIMIT_S:.0f} s still not so: {what}"
        await deferLater(reactor, LOOK_S)
    return answer


async def read(records: Iterator[Any]) -> list[Record]:
    """Draw records as a loader does."""
    found = []
    for record in records:
        if isinstance(record, Deferred):
            await record
        else:
            found.append(record)
    return found


class Run:
    """One store, from its start to its end."""

    def __init__(self, server: RedisServer, **settings: Any) -> None:
        self.server = server
        self.settings = Settings(**{"redis_url": server.url, **settings})
        self.clock = Clock()
        self.factory = RedisStoreFactory()
        self.store: Any = self.factory.create(self.settings, reactor, self.clock)

    def key(self, part: str) -> str:
        """The name of a key."""
        return f"{{{self.settings.redis_prefix}}}:{part}"

    def stored(self) -> set[bytes]:
        """The ids of the jobs that the server holds."""
        return set(self.server.call("HKEYS", self.key("jobs")))

    def noted(self, stream: str) -> list[dict[bytes, bytes]]:
        """The entries of a stream."""
        return [entry for _, entry in self.server.call("XRANGE", self.key(stream), "-", "+")]

    async def start(self) -> list[Record]:
        """Open and load."""
        self.store.open()
        return await read(self.store.load())

    async def put(self, *records: Record) -> None:
        """Append and commit."""
        self.store.append(list(records))
        await self.commit()

    async def commit(self) -> None:
        """Commit what was appended."""
        result = self.store.commit()
        if result is not None:
            await result

    async def commit_until_good(self, walk: Callable[[], Iterator[Record]] | None = None) -> None:
        """Commit again and again, as a driver does after a failure; compact when that is wanted."""
        end = reactor.seconds() + LIMIT_S
        while True:
            if walk is not None and self.store.wants_compaction:
                self.store.compact(walk())
            try:
                await self.commit()
            except StoreFailed:
                assert reactor.seconds() < end
                await deferLater(reactor, LOOK_S)
            else:
                return

    async def drained(self) -> None:
        """Wait until nothing waits for the server."""
        await until(lambda: not self.store.status()["redis_backlog_records"], "nothing waits for the server")

    async def close(self) -> None:
        """End as a node does that is told to."""
        result = self.store.close()
        if result is not None:
            await result

    async def crash(self) -> None:
        """End as a node does that is killed: nothing more is written, and the lease is not given back."""
        server = self.store._server
        server._stop_beat()
        self.store._is_closed = True
        await server._link.stop()

    async def abandon(self) -> None:
        """End, whatever comes of it."""
        with contextlib.suppress(StoreError):
            await self.close()
