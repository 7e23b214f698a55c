"""The server as this run of the node sees it: reachable or away, ours or somebody else's.

    connect --> claim the lease ----> ours ---- lost, connected again --> SYNC --> ours, as we left it
                     |                                                     +--> ours, but older or empty
                 held by a run that lives: refused                         +--> taken by another run: refused

One run holds the *lease*, renewed with each batch and every `BEAT_S`.  A run that was away for longer finds out what
happened before it writes again: each script names the run and its epoch.

The lease of a run that was killed ends by itself, and who comes next waits for that.  One that is renewed while we
look at it belongs to a node that lives.

Times are seconds where the name ends in `_S`, else integer milliseconds.
"""

import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall, deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued.config.kinds import RedisAddress
from disqued.persistence.interface import StoreError, StoreFailed, StoreLocked
from disqued.persistence.redis.layout import CLAIM, FORMAT, RELEASE, SCRIPTS, SYNC, Keys
from disqued.persistence.redis.link import (
    Link,
    RedisConnection,
    RedisError,
    ResponseError,
    ScriptMissing,
    ServerAway,
    ServerRefused,
    reason_of,
)

LEASE_MS: Final = 6_000  #: how long a run that says nothing more keeps others out
BEAT_S: Final = 2.0  #: pause between two renewals of the lease
LOOK_S: Final = 0.5  #: pause between two looks at a lease that another run holds


@attrs.frozen
class Possession:
    """What a run found when it took possession."""

    birth: bytes
    epoch: bytes
    sequence: int  #: number of the last batch
    has_queues: bool
    jobs: int
    pauses: int


class RedisServer:
    """A Redis server that keeps the data of one node."""

    log = Logger()

    def __init__(
        self, address: RedisAddress, keys: Keys, reactor: IReactorTime, *, synced: Callable[[list[Any]], None],
        full: Callable[[RedisConnection], Awaitable[None]], up: Callable[[], None], down: Callable[[bool], None],
    ) -> None:  # fmt: skip
        """Take a server and its keys, and what to tell.

        `synced` is told what SYNC answers on a connection that was made again: ok or lost.  `full` is to make room on
        a server that is out of memory, before it is tried again.  `up` is called when the server can be used.  `down`
        is called when it cannot any more, and whenever that is found to be so still; and told whether another attempt
        follows at once.
        """
        self.keys: Keys = keys
        self.away: str | None = "not connected yet"  #: why it cannot be used; None = it can
        self.last_error: str = ""
        self.refusal: StoreError | None = None  #: why it cannot be used by this run at all
        self.loss: str | None = None  #: how it has lost its data; None = it has not
        self.is_impatient: bool = False  #: an attempt in vain is a refusal, until it was reached once
        self.possession: Possession | None = None
        self._reactor = reactor
        self._synced = synced
        self._full = full
        self._up = up
        self._down = down
        self._link = Link(address, reactor, prepare=self._prepare, up=self._is_up, down=self._is_down, scripts=SCRIPTS)
        self.name: str = self._link.name
        self.where: str = f"redis {self.name}"
        #: Unlike that of any other run; what an operator needs to find it.
        self._writer = f"{socket.gethostname()} pid {os.getpid()} run {secrets.token_hex(8)}".encode()
        self._beat = LoopingCall(self._renew_lease)
        self._beat.clock = reactor
        self._ready: list[Deferred[None]] = []

    @property
    def connection(self) -> RedisConnection | None:
        """The connection, while the server can be used."""
        return self._link.connection

    @property
    def is_hopeful(self) -> bool:
        """True while the connection was lost just now, and nothing is known of the next attempt."""
        return self._link.is_hopeful

    def start(self) -> None:
        self._link.start()

    async def stop(self) -> None:
        """Give the lease back and disconnect."""
        self._stop_beat()
        if self.connection is not None:
            try:
                await self.run(RELEASE)
            except StoreFailed as error:
                self.log.info("The lease was not given back: {reason}", reason=str(error))
        await self._link.stop()

    def when_ready(self) -> "Deferred[None]":
        """Fires when the server can be used; fails with StoreError."""
        waiter: Deferred[None] = Deferred()
        if self.refusal is not None:
            waiter.errback(self.refusal)
        elif self.connection is not None:
            waiter.callback(None)
        else:
            self._ready.append(waiter)
        return waiter

    # Talking to it.

    def ask(self, *command: Any) -> "Deferred[Any]":
        """Send a command; None when the connection was lost meanwhile, and is there again.  Fails with StoreError."""
        return Deferred.fromCoroutine(self._ask(*command))

    async def _ask(self, *command: Any) -> Any:
        await self.when_ready()
        connection = self._used()
        try:
            return await connection.ask(*command)
        except ResponseError as error:
            raise StoreError(f"{self.where}: {reason_of(error)}") from None
        except RedisError as error:
            self.drop(connection, reason_of(error))
            await self.when_ready()
            return None

    def send(self, script: bytes, *args: bytes | int) -> "Deferred[list[Any]]":
        """Send a script on the connection that there is; what it answers is not looked at."""
        return self.send_on(self._used(), script, *args)

    def send_on(self, connection: RedisConnection, script: bytes, *args: bytes | int) -> "Deferred[list[Any]]":
        """Send a script on a connection that may not be ready."""
        assert self.possession is not None
        identity: list[bytes | int] = [self._writer, self.possession.birth, self.possession.epoch, LEASE_MS]
        return connection.run(script, self.keys.names, [*identity, *args])

    def _used(self) -> RedisConnection:
        connection = self.connection
        assert connection is not None
        return connection

    async def run(self, script: bytes, *args: bytes | int) -> None:
        """Run a script that does everything, or nothing.  Raises StoreFailed."""
        connection = self.connection
        if connection is None:
            raise self.failed(self.away or "the connection was lost")
        try:
            answer = await self.send(script, *args)
        except RedisError as error:
            why = connection.why or reason_of(error)
            self.refused(error, connection)
            raise self.failed(why) from None
        if answer[0] != b"ok":
            self.drop(connection, explain(answer), hopeful=True)
            raise self.failed(explain(answer))

    def failed(self, why: str) -> StoreFailed:
        """An error that waiting may help against."""
        return StoreFailed(f"{self.where}: {why}", final=False)

    def confirm(self) -> None:
        """Note that the server does what it is for."""
        self._link.confirm()

    def drop(self, connection: RedisConnection, why: str, *, hopeful: bool = False) -> None:
        """Give up a connection that does not do what it is for, unless it has been given up."""
        if connection is self.connection:
            self._link.drop(connection.why or why, hopeful=hopeful)

    def refused(self, error: BaseException, connection: RedisConnection) -> None:
        """Give up a connection on which something failed; scripts that are missing are loaded on the next one."""
        self.drop(connection, reason_of(error), hopeful=isinstance(error, ScriptMissing))

    # The connection comes and goes.

    async def _prepare(self, connection: RedisConnection) -> None:
        """Find out, on a new connection, whether what the server holds is ours."""
        try:
            if self.possession is None:
                await self._claim(connection)
                self._beat.start(BEAT_S, now=False)
            else:
                await self._sync(connection)
        except StoreError as error:
            self.refusal = error
            raise ServerRefused(str(error)) from None

    async def _sync(self, connection: RedisConnection) -> None:
        try:
            answer = await self.send_on(connection, SYNC)
        except ResponseError as error:
            if str(error).startswith("OOM "):
                await self._full(connection)
            raise
        if answer[0] == b"taken":
            raise StoreError(f"{self.where}: {explain(answer)}; this node writes there no more")
        if answer[0] not in (b"ok", b"lost"):
            raise ServerAway(explain(answer))
        self._synced(answer)

    async def _claim(self, connection: RedisConnection) -> None:
        """Take possession, as soon as nobody else has it.  Raises StoreError."""
        birth = secrets.token_hex(8).encode()
        ends_s: float | None = None
        while True:
            answer = await connection.run(CLAIM, self.keys.names, [self._writer, birth, 0, LEASE_MS])
            if answer[0] != b"held":
                break
            left_s = answer[2] / 1_000
            ends_s = self._check_holder(answer[1].decode(errors="replace"), left_s, ends_s)
            await deferLater(self._reactor, min(LOOK_S, left_s + 0.01))
        if answer[0] != b"ok":
            raise StoreError(f"{self.where}: {explain(answer)}")
        _, birth, epoch, sequence, queues, jobs, pauses = answer
        self.possession = Possession(birth, epoch, int(sequence), bool(queues), int(jobs), pauses)

    def _check_holder(self, who: str, left_s: float, ends_s: float | None) -> float:
        """Look at the lease of another run; returns when it ends.  Raises StoreLocked when it has been renewed."""
        now_s = self._reactor.seconds()
        belongs = f"{self.where}: the keys {{{self.keys.prefix}}}:... belong to {who}"
        if left_s < 0:
            raise StoreLocked(f"{belongs}, for ever; remove the key {self.keys.name('owner').decode()} to end that")
        if ends_s is None:
            self.log.info("{where}: {who} holds the lease, for another {left} s unless it renews it", where=self.where,
                          who=who, left=f"{left_s:.1f}")  # fmt: skip
            return now_s + left_s
        if now_s + left_s > ends_s + LOOK_S / 2:
            raise StoreLocked(
                f"{belongs}, which has just renewed its lease for {left_s:.1f} s; give each node a redis-prefix of its"
                " own"
            )
        return ends_s

    def _is_up(self) -> None:
        self.away = None
        ready, self._ready = self._ready, []
        for waiter in ready:
            waiter.callback(None)
        self._up()

    def _is_down(self, why: str, hopeful: bool, lasting: bool) -> None:
        self.away = self.last_error = why
        if self.refusal is None and self.possession is None:
            if lasting:
                self.refusal = StoreError(f"{self.where}: {why}")
            elif self.is_impatient:
                self.refusal = StoreFailed(f"{self.where}: {why}")
        if self.refusal is not None:
            self._stop_beat()
            Deferred.fromCoroutine(self._link.stop()).addErrback(self._report)
            ready, self._ready = self._ready, []
            for waiter in ready:
                waiter.errback(self.refusal)
        self._down(hopeful)

    # The lease.

    def _renew_lease(self) -> None:
        connection = self.connection
        if connection is not None:
            answer = self.send(SYNC)
            answer.addCallbacks(self._beaten, self._not_beaten, callbackArgs=(connection,), errbackArgs=(connection,))
            answer.addErrback(self._report)

    def _beaten(self, answer: list[Any], connection: RedisConnection) -> None:
        # What anything else means, a new connection finds out.
        if answer[0] == b"ok" or (answer[0] == b"lost" and self.loss is not None):
            self.confirm()
        else:
            self.drop(connection, explain(answer), hopeful=True)

    def _not_beaten(self, failure: Failure, connection: RedisConnection) -> None:
        if not isinstance(failure.value, RedisError):
            self._report(failure)
        assert failure.value is not None
        self.refused(failure.value, connection)

    def _stop_beat(self) -> None:
        if self._beat.running:
            self._beat.stop()

    def _report(self, failure: Failure) -> None:
        self.log.failure("Internal error in the Redis store", failure=failure)


def explain(answer: list[Any]) -> str:
    """What a script has found in its way, in words."""
    word, *facts = [value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in answer]
    match word:
        case "lost":
            return f"it {facts[0]}"
        case "taken":
            return f"its keys were taken by {facts[0]}"
        case "type":
            return f"the key {facts[0]} is a {facts[1]} and has to be a {facts[2]}; it belongs to something else"
        case "format":
            return f"the keys have format {facts[0]}, this version knows those up to {FORMAT}"
        case "foreign":
            return f"the key {facts[0]} is there and {facts[1]} is not; remove it, or choose another redis-prefix"
        case "missing":
            return (
                f"there are {facts[0]} {facts[3]} where {facts[1]} were written; something else has removed the others;"
                f" restore the server's data, or accept what is there with: HSET {facts[2]} {facts[3]} {facts[0]}"
            )
        case "sequence":
            return f"it is at batch {facts[0]}"
        case "parts":
            return "something that was written aside is gone"
    return " ".join([word, *facts])
