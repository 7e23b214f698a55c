"""One connection to a Redis server, made again whenever it is lost.

    connect --> AUTH, SELECT, scripts --> prepare(connection) --> ready --- lost --> connect ...
        ^                                                                    |
        +---- 0.1 s, 0.2 s ... 2 s ------------ failed <--------------------+

The protocol is txredisapi's; what is added is that values stay bytes, that commands are packed by hiredis, and that
the greeting is ours, so that each way in which it can fail has a name.  A reply that does not come within `PATIENCE_S`
ends the connection: a server that hangs is away.

Whoever uses a connection `drop`s it when the server refuses what has to be done; trying again is the same as coming
back after a loss.  Times are seconds.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from hashlib import sha1
from typing import Any, Final, cast

import hiredis
import txredisapi  # type: ignore[import-untyped]
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.error import ConnectError, ConnectingCancelledError, DNSLookupError
from twisted.internet.error import TimeoutError as UserTimeout
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued.config.kinds import RedisAddress

PATIENCE_S: Final = 5.0  #: how long a server may take to be reached, and to answer
NEXT_ADDRESS_S: Final = 0.05  #: when to try the next address of a host; no failure is told before
FIRST_PAUSE_S: Final = 0.1  #: before the second attempt to connect; doubled each time
LAST_PAUSE_S: Final = 2.0

#: Errors of a server that waiting can help, by their first word.
PASSING: Final = frozenset((
    "LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "OOM", "MISCONF", "NOREPLICAS",
))  # fmt: skip


RedisError = txredisapi.RedisError
ResponseError = txredisapi.ResponseError
ScriptMissing = txredisapi.ScriptDoesNotExist


class ServerAway(Exception):
    """The server cannot be reached, or refuses for the time being."""


class ServerRefused(Exception):
    """The server refuses, and will as long as nobody changes something."""


class RedisConnection(txredisapi.RedisProtocol):  # type: ignore[misc]
    """A connection: commands are answered with Deferreds, in order."""

    def __init__(self, lost: Callable[["RedisConnection"], None]) -> None:
        super().__init__(charset=None, convertNumbers=False, replyTimeout=PATIENCE_S)
        self.is_foreign: bool = False  #: the server at this address is no Redis server
        self.why: str = ""  #: why it was lost, or dropped
        self._told_lost = lost

    def connectionMade(self) -> None:
        """Do nothing: the link greets the server."""

    def connectionLost(self, why: Failure) -> None:
        self.why = self.why or "the connection was lost"
        # First, so that those who hear that their commands failed know what has become of the connection.
        self._told_lost(self)
        super().connectionLost(why)

    def dataReceived(self, data: bytes, unpause: bool = False) -> None:
        try:
            super().dataReceived(data, unpause)
        except txredisapi.InvalidData as error:
            self.is_foreign = True
            self.drop(f"what answers there is no Redis server ({error})")

    def drop(self, why: str) -> None:
        """End the connection; the first reason is the one that is told."""
        self.why = self.why or why
        self.transport.abortConnection()

    def tryConvertData(self, data: Any) -> Any:
        """Leave values as they are."""
        return data

    def _build_command(self, *args: Any, **kwargs: Any) -> bytes:
        return cast("bytes", hiredis.pack_command(args))

    def ask(self, *command: bytes | str | int) -> "Deferred[Any]":
        return cast("Deferred[Any]", self._sent(self.execute_command, *command))

    def run(self, script: bytes, keys: Sequence[bytes], args: Sequence[bytes | int]) -> "Deferred[list[Any]]":
        """Run one of the scripts that the link has loaded."""
        return cast("Deferred[list[Any]]", self._sent(self.evalsha, _sha1(script), keys, args))

    @staticmethod
    def _sent(send: Callable[..., Any], *args: Any) -> Any:
        try:
            return send(*args)
        except txredisapi.ConnectionError as error:
            return fail(error)


@cache
def _sha1(script: bytes) -> str:
    return sha1(script, usedforsecurity=False).hexdigest()


def reason_of(error: BaseException) -> str:
    """What an error of the connection or of the server says, in one line."""
    if isinstance(error, txredisapi.TimeoutError):
        return str(error).replace("Not received Redis response in", "no answer within").replace("seconds", "s")
    if isinstance(error, DNSLookupError):
        return "the name of the host is not known"
    if isinstance(error, ConnectError) and isinstance(error.osError, int):
        return os.strerror(error.osError).lower()
    if isinstance(error, UserTimeout):
        return "it cannot be reached in time"
    return " ".join(str(error).split()) or type(error).__name__


def is_passing(error: txredisapi.ResponseError) -> bool:
    """Tell whether waiting can help against what a server says."""
    return isinstance(error, ScriptMissing) or str(error).partition(" ")[0] in PASSING


class Link:
    """Keeps one connection to the server."""

    log = Logger()

    def __init__(
        self, address: RedisAddress, reactor: IReactorTime, *, prepare: Callable[[RedisConnection], Awaitable[None]],
        up: Callable[[], None], down: Callable[[str, bool, bool], None], scripts: Sequence[bytes] = (),
    ) -> None:  # fmt: skip
        """Take a server and what to do with it.

        `prepare` makes a new connection ready; it raises ServerAway or ServerRefused when it cannot.  Then `up` is
        called.  `down` is called with the reason when the connection is lost and after each attempt that fails;
        whether another attempt follows at once; and whether only a change that somebody makes can help.
        """
        self.name: str = f"{address.host}:{address.port}"
        self.connection: RedisConnection | None = None  #: one that is ready
        self._address = address
        self._reactor = reactor
        self._prepare = prepare
        self._up = up
        self._down = down
        self._scripts = scripts
        self._attempt: Deferred[None] | None = None
        self._next_attempt: IDelayedCall | None = None
        self._failures = 0
        self._is_stopped = False
        self._missed = False  #: it has been logged that the server is away
        self.is_hopeful: bool = False  #: the connection was lost just now, and nothing is known of the next attempt

    def start(self) -> None:
        self._connect()

    def confirm(self) -> None:
        """Note that the connection does what it is for."""
        self._failures = 0
        if self._missed:
            self._missed = False
            self.log.info("redis {server}: connected again", server=self.name)

    def drop(self, why: str, *, hopeful: bool = False) -> None:
        """Give the connection up, because the server refuses what has to be done; and try again, `hopeful` at once."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.drop(why)
            self._end(why, hopeful=hopeful and not self._failures)

    async def stop(self) -> None:
        """Disconnect, and do not connect again."""
        self._is_stopped = True
        if self._next_attempt is not None:
            self._next_attempt.cancel()
            self._next_attempt = None
        if self._attempt is not None:
            self._attempt.cancel()
        connection, self.connection = self.connection, None
        if connection is not None:
            gone = connection.whenDisconnected()
            connection.drop("it is not needed any more")
            await gone

    # Connecting.

    def _connect(self) -> None:
        self._next_attempt = None
        self._attempt = Deferred.fromCoroutine(self._try())
        self._attempt.addErrback(self._report)

    def _report(self, failure: Failure) -> None:
        if not isinstance(failure.value, CancelledError | ConnectingCancelledError):
            self.log.failure("Internal error while connecting to a Redis server", failure=failure)

    async def _try(self) -> None:
        connection: RedisConnection | None = None
        try:
            connection = await self._reach()
            await self._greet(connection)
            await self._prepare(connection)
        except (ServerAway, ServerRefused, txredisapi.RedisError, ConnectError, DNSLookupError, UserTimeout) as error:
            self._failed(connection, error)
        except BaseException:
            if connection is not None:
                connection.drop("it is not needed any more")
            raise
        else:
            self._attempt = None
            self.connection = connection
            self.is_hopeful = False
            self._up()

    async def _reach(self) -> RedisConnection:
        endpoint = HostnameEndpoint(
            self._reactor, self._address.host, self._address.port, timeout=PATIENCE_S, attemptDelay=NEXT_ADDRESS_S
        )
        factory = Factory.forProtocol(lambda: RedisConnection(self._lost))
        factory.noisy = False
        return cast("RedisConnection", await endpoint.connect(factory))

    async def _greet(self, connection: RedisConnection) -> None:
        address = self._address
        if address.password:
            await connection.auth(address.password, address.user or None)
        answer = await connection.ping()
        if answer != b"PONG":
            raise ServerRefused(f"what answers there is no Redis server: PING is answered with {answer!r}")
        if address.db:
            await connection.select(address.db)
        for script in self._scripts:
            await connection.script_load(script)

    def _failed(self, connection: RedisConnection | None, error: Exception) -> None:
        """End an attempt in vain."""
        self._attempt = None
        lasting = isinstance(error, ServerRefused)
        why = reason_of(error)
        if connection is not None:
            if isinstance(error, txredisapi.ResponseError):
                lasting = not is_passing(error)
            elif connection.why:
                lasting, why = connection.is_foreign, connection.why
            connection.drop(why)
        self._end(why, lasting=lasting)

    def _lost(self, connection: RedisConnection) -> None:
        if connection is self.connection:
            self.connection = None
            self._end(connection.why, hopeful=not self._failures)

    def _end(self, why: str, *, hopeful: bool = False, lasting: bool = False) -> None:
        """Tell that there is no connection, and come back later."""
        if self._is_stopped:
            return
        self.is_hopeful = hopeful
        pause_s = 0.0 if hopeful else min(FIRST_PAUSE_S * 2 ** min(self._failures, 10), LAST_PAUSE_S)
        self._failures += 1
        if not self._missed:
            self._missed = True
            self.log.warn("redis {server}: {reason}; it is tried again", server=self.name, reason=why)
        self._next_attempt = self._reactor.callLater(pause_s, self._connect)
        self._down(why, hopeful, lasting)
