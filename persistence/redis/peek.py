"""Reading the keys of a node while it runs, for exports and checks.

    what is over so far --> policies --> pauses --> groups --> jobs --> their units --> what was over since

A job that ends while the jobs are read is either not found any more, and then stands in the history that follows, or
was found and stands there too.  What a group has done of a job that is there may stand in the history and with the
job; it is told once.  Nothing is written, and no lease is needed.
"""

from typing import Any

from twisted.internet.defer import Deferred

from disqued.config.kinds import RedisAddress
from disqued.core.model.job import WORK_SCOPE
from disqued.core.model.outbox import UNIT_DONE
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
        if version is not None and int(version) > FORMAT:
            raise ServerRefused(f"the keys have format {version.decode()}, this version knows those up to {FORMAT}")

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
            told: set[tuple[bytes, bytes]] = set()
            # Meanwhile the node goes on: what is missing in the end is no error.
            jobs = JobReader(self._keys, self._ask).records(0, in_order=False)
            for records in (history.records(), jobs, history.records()):
                yield from _once(records, told)
        finally:
            self._stop()


def _once(records: Records, told: set[tuple[bytes, bytes]]) -> Records:
    """Leave out what groups have done and was told; `told` has (id, scope) of that."""
    for record in records:
        if isinstance(record, tuple) and record[0] == UNIT_DONE and record[2] != WORK_SCOPE:
            unit = record[1:3]
            if unit in told:
                continue
            told.add(unit)
        yield record


def peek(address: RedisAddress, keys: Keys) -> Records:
    """Read with the reactor that runs."""
    from twisted.internet import reactor

    return Peeker(address, keys, reactor).records()
