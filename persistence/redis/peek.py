"""Reading the keys of a node beside the node: for an export, and for whoever wants to know.

    what is over so far --> pauses --> jobs --> what was over since

A job that ends while the jobs are read is either not found any more, and then stands in the history that follows, or
was found and stands there too.  Nothing is written, and no lease is needed.
"""

from typing import Any

from twisted.internet.defer import Deferred

from disqued.config_values import RedisAddress
from disqued.persistence.interface import StoreError
from disqued.persistence.redis.layout import FORMAT, Keys
from disqued.persistence.redis.link import Link, RedisConnection, RedisError, ServerRefused, reason_of
from disqued.persistence.redis.reading import HistoryReader, JobReader, Records


class Peeker:
    """One connection that only reads."""

    def __init__(self, address: RedisAddress, keys: Keys, reactor: Any) -> None:
        self._keys = keys
        self._link = Link(address, reactor, prepare=self._check, up=self._is_up, down=self._is_down)
        self._ready: Deferred[None] = Deferred()

    async def _check(self, connection: RedisConnection) -> None:
        version = await connection.ask("HGET", self._keys.name("meta"), "format")
        if version is not None and version != b"%d" % FORMAT:
            raise ServerRefused(f"the keys have format {version.decode()}, this version knows {FORMAT}")

    def _is_up(self) -> None:
        self._ready.callback(None)

    def _is_down(self, why: str, hopeful: bool, lasting: bool) -> None:
        if not self._ready.called:
            self._ready.errback(StoreError(f"redis {self._link.name}: {why}"))
            self._stop()

    def _stop(self) -> None:
        Deferred.fromCoroutine(self._link.stop())

    def _ask(self, *command: Any) -> "Deferred[Any]":
        return Deferred.fromCoroutine(self._answer(*command))

    async def _answer(self, *command: Any) -> Any:
        connection = self._link.connection
        if connection is None:
            raise StoreError(f"redis {self._link.name}: the connection was lost")
        try:
            return await connection.ask(*command)
        except RedisError as error:
            raise StoreError(f"redis {self._link.name}: {reason_of(error)}") from None

    def records(self) -> Records:
        """Yield everything that is stored."""
        self._link.start()
        try:
            yield self._ready
            history = HistoryReader(self._keys, self._ask)
            yield from history.records()
            # Meanwhile the node goes on: what is missing in the end is no error.
            yield from JobReader(self._keys, self._ask).records(0, in_order=False)
            yield from history.records()
        finally:
            self._stop()


def peek(address: RedisAddress, keys: Keys) -> Records:
    """Read with the reactor that runs."""
    from twisted.internet import reactor

    return Peeker(address, keys, reactor).records()
