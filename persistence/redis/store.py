"""The store: what a node appends, on its way to the server and back.

    append --> backlog --batches, one script each (sending.py)--> server <--pages-- load
    commit      always: answered when the server has answered for the batch
                everysec, no: at once, while the backlog has room

A server that is away or has lost its data: `sending`.

Times are seconds where the name ends in `_S`, else integer milliseconds.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from disqued.config.kinds import RedisAddress
from disqued.config.settings import Settings
from disqued.core.model.clock import Clock
from disqued.core.model.outbox import Record
from disqued.core.recovery import draw
from disqued.persistence.interface import IStore, StoreError, StoreFailed
from disqued.persistence.redis.backlog import build
from disqued.persistence.redis.layout import APPLY, HISTORY, RENEW, STAGE, SWAP, Keys
from disqued.persistence.redis.reading import JobReader, Records, reply
from disqued.persistence.redis.sending import BatchSender
from disqued.persistence.rewrite_status import Rewrites

RECORDS_PER_SLICE: Final = 500  #: written at a time when all is written anew
REST: Final = 3.0  #: while the node goes on the loop rests for this many times what a slice took


@implementer(IStore)
class RedisStore:
    """The records of one node in a Redis server."""

    log = Logger()
    records = True

    def __init__(self, address: RedisAddress, config: Settings, *, clock: Clock, reactor: IReactorTime) -> None:
        """Take a server, and the settings redis-prefix, appendfsync, redis-backlog and aof-enqueue-jobs-once."""
        self.restores_queues: bool = False
        self.configure(config)
        self._clock = clock
        self._reactor = reactor
        keys = Keys(config.redis_prefix)
        self._sender = BatchSender(address, keys, reactor)
        self._server = self._sender.server
        self._reader = JobReader(keys, self._server.ask)
        self._backlog = self._sender.backlog
        self._is_closed = False
        self._is_crowded = False  #: more waits than may, or did and has not gone yet
        self._rewriting: Deferred[None] | None = None
        self._rewrites = Rewrites(clock)

    def open(self) -> None:
        """Begin to connect; `load` and `renew` wait for the rest."""
        self._server.start()

    def configure(self, config: Settings) -> None:
        self._config = config
        # Needed for each command: settings are slow to read.
        self._is_always = config.appendfsync == "always"
        self._backlog_limit = config.redis_backlog

    @property
    def bytes_total(self) -> int:
        """Bytes to load: an estimate, until all are loaded."""
        return self._reader.bytes_total

    @property
    def bytes_loaded(self) -> int:
        return self._reader.bytes_loaded

    def load(self) -> Records:
        if self._sender.is_loaded:
            raise StoreError("a store is loaded once, after it is opened")
        yield self._server.when_ready()
        found = self._server.possession
        assert found is not None
        enqueue_once = self._config.aof_enqueue_jobs_once
        self.restores_queues = enqueue_once and found.has_queues
        if enqueue_once and not found.has_queues:
            self.log.warn(
                "aof-enqueue-jobs-once: {where} was not written by SHUTDOWN REWRITE-AOF; queues are not restored",
                where=self._server.where,
            )
        yield from self._warn_of_eviction()
        yield from self._reader.records(found.jobs, in_order=self.restores_queues)
        if found.has_queues:
            # Taken back before anybody hears of what was loaded.
            yield Deferred.fromCoroutine(self._settle(found.sequence))
        self._sender.begin(found.sequence)

    def _warn_of_eviction(self) -> Records:
        """Tell an operator whose server may throw jobs away."""
        facts = yield from reply(self._server.ask("INFO", "memory"))
        for line in (facts or b"").decode(errors="replace").splitlines():
            name, _, policy = line.partition(":")
            if name == "maxmemory_policy" and policy.startswith("allkeys"):
                self.log.warn(
                    "{where}: maxmemory-policy is {policy}: a server that is short of memory throws all jobs away at"
                    " once; noeviction does not",
                    where=self._server.where, policy=policy,
                )  # fmt: skip

    async def _settle(self, sequence: int) -> None:
        """Take the word about queues back: a batch without records does."""
        while True:
            await self._server.when_ready()
            try:
                await self._server.run(APPLY, HISTORY, sequence, sequence)
            except StoreFailed as error:
                self.log.warn("{reason}", reason=str(error))
            else:
                return

    def renew(self) -> "Deferred[None]":
        return Deferred.fromCoroutine(self._renew())

    async def _renew(self) -> None:
        server = self._server
        server.is_impatient = True
        await server.when_ready()
        await server.run(RENEW)
        assert server.possession is not None
        self._sender.begin(server.possession.sequence)

    def append(self, records: list[Record]) -> None:
        if self._server.refusal is None:
            self._backlog.append(records, self._clock.wall(), self._clock.now())

    def commit(self) -> "Deferred[None] | None":
        final = self._sender.final()
        if final is not None:
            raise StoreFailed(final)
        self._backlog.seal()
        self._sender.pump()
        if not self._is_always:
            self._check_room()
            return None
        if not self._backlog.count:
            return None
        if self._server.away is not None and not self._server.is_hopeful:
            raise self._sender.failed()
        return self._sender.applied.wait(self._backlog.last)

    def look(self) -> None:
        """Nothing: with every beat of the lease the server says what it has (`server`)."""

    def secure(self) -> "Deferred[None] | None":
        final = self._sender.final()
        if final is not None:
            raise StoreFailed(final)
        # What was committed under `always` has been answered.
        return self._sender.applied.wait(self._backlog.last, is_patient=True) if self._backlog.count else None

    def _check_room(self) -> None:
        """Refuse while too much waits, until half of it has gone.  Raises StoreFailed."""
        size = self._backlog.size
        limit = self._backlog_limit
        self._is_crowded = size > (limit // 2 if self._is_crowded else limit)
        if self._is_crowded:
            raise StoreFailed(f"{self._sender.failed()} ({size} bytes; redis-backlog is {limit})", final=False)

    @property
    def wants_compaction(self) -> bool:
        """True when the server has lost its data and is there to be given all of it again."""
        server = self._server
        return server.loss is not None and server.connection is not None and self._rewriting is None

    def compact(self, records: Iterator[Record | None]) -> None:
        server = self._server
        if self._rewriting is not None:
            raise StoreError(f"{server.where}: all jobs are being written anew already")
        if server.loss is None:
            raise StoreError(
                "there is no journal to rewrite: the Redis server keeps the jobs as they are, and its own BGREWRITEAOF"
                " makes its files smaller"
            )
        if server.connection is None:
            raise StoreError(f"{server.where}: {server.away}")
        self._rewriting = Deferred()
        Deferred.fromCoroutine(self._restore(records)).addErrback(self._sender.report)

    async def _restore(self, records: Iterator[Record | None]) -> None:
        """Give the server back what it has lost."""
        self._rewrites.begin()
        try:
            count = await self._write_anew(records, with_queues=False)
        except StoreFailed as error:
            self._rewrites.end(succeeded=False)
            self.log.error("The jobs are not written anew: {reason}", reason=str(error))
        else:
            self._server.loss = None
            self._rewrites.end(succeeded=True)
            self.log.info("{where}: {count} records were written anew", where=self._server.where, count=count)
        finally:
            self._rewrites.give_up()
            over, self._rewriting = self._rewriting, None
            assert over is not None
            over.callback(None)
        self._sender.pump()

    def rewrite(self, records: Iterable[Record]) -> "Deferred[None]":
        return Deferred.fromCoroutine(self._rewrite(iter(records)))

    async def _rewrite(self, records: Iterator[Record | None]) -> None:
        server = self._server
        if not self._sender.is_loaded:
            raise StoreError("a store is rewritten after it is loaded, not before")
        if self._rewriting is not None:
            await self._rewriting
        if server.refusal is not None:
            raise StoreFailed(str(server.refusal))
        if server.loss is None:
            await self._sender.drain()
        self._backlog.seal()
        count = await self._write_anew(records, with_queues=True)
        server.loss = None
        self._backlog.begin(self._backlog.last)
        self.log.info("{where}: {count} records were written", where=server.where, count=count)

    async def _write_anew(self, records: Iterator[Record | None], *, with_queues: bool) -> int:
        """Write records aside and put them into place; returns how many.  Raises StoreFailed."""
        count = parts = 0
        while True:
            began_s = self._reactor.seconds()
            some = draw(records, RECORDS_PER_SLICE)
            if some is None and parts:
                break
            part = build(some or [], self._clock.wall(), self._clock.now(), with_state=with_queues)
            rest_s = 0 if with_queues else (self._reactor.seconds() - began_s) * REST
            await self._server.run(STAGE, parts, int(with_queues), *part.args)
            await deferLater(self._reactor, rest_s)
            count += len(some or [])
            parts += 1
        # A snapshot is the last word; behind what a node that goes on knew there is what it has appended since.
        sequence = self._backlog.last if with_queues else self._backlog.applied
        await self._server.run(SWAP, parts, int(with_queues), sequence)
        return count

    def status(self) -> dict[str, int | str]:
        server = self._server
        return {
            **self._rewrites.status(writes=not (server.away or self._sender.final())),
            "redis_server": server.name,
            "redis_connected": int(server.connection is not None),
            "redis_backlog_records": self._backlog.count,
            "redis_backlog_bytes": self._backlog.size,
            "redis_backlog_limit": self._backlog_limit,
            "redis_last_error": server.last_error or "none",
        }

    def discard(self) -> "Deferred[None] | None":
        return self.close()

    def close(self) -> "Deferred[None] | None":
        if self._is_closed:
            return None
        self._is_closed = True
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        try:
            if self._rewriting is not None:
                await self._rewriting
            if self._sender.is_loaded and self._sender.final() is None:
                await self._sender.drain()
        finally:
            await self._server.stop()
        if self._server.loss is not None:
            raise StoreFailed(self._server.loss)
