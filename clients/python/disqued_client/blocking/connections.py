"""The connections to one node: each belongs to one thread while its command is under way, and is idle in between.

A live worker has one of its own (`seats`), which nothing else uses.

The connections are redis-py's, of any release from 5.0, without its retries, which would add jobs twice.  Durations are
seconds.
"""

import contextlib
import inspect
import threading
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import redis
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, DefaultParser
from redis.retry import Retry

from ..addresses import Address, ConnectionOptions, Socket
from ..calls import Patience
from ..commands import ASK_FOR_RECEIPTS, RECEIPT, WorkerIdentity
from ..errors import NoWorker, ServerError, StaleWorker, server_error
from ..failures import ConnectionBroken, NotSent
from ..seats import take_a_seat
from ..ssl_context import make_context, refusal
from ..tls_renewal import RenewedContext
from .secure import SecureConnection

_AWAY = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError)
_TAKES_LIMIT = "timeout" in inspect.signature(AbstractConnection.read_response).parameters


class _Parser(DefaultParser):  # type: ignore[misc, valid-type]
    """Keeps the first word of errors, which redis-py removes from those that Redis also has."""

    EXCEPTION_CLASSES: dict[str, type[Exception]] = {}  # noqa: RUF012 - as in the base class


class Connector:
    """Opens connections, to any node."""

    def __init__(self, access: ConnectionOptions, patience: Patience) -> None:
        """Read the TLS files.  Raises ValueError."""
        self.patience = patience
        self.greetings = access.greetings
        self._tls = access.tls
        self._context = None if access.tls is None else RenewedContext(access.tls, make_context)

    def connection_to(self, address: Address) -> AbstractConnection:
        """Make a connection without opening it.  Raises NotTrusted."""
        options: dict[str, Any] = {
            "protocol": 2,
            "socket_timeout": self.patience.reply,
            "socket_connect_timeout": self.patience.connect,
            "retry": Retry(NoBackoff(), 0),
            "parser_class": _Parser,
        }
        connection: Any
        if isinstance(address, Socket):
            connection = redis.UnixDomainSocketConnection(path=address.path, **options)  # type: ignore[abstract]
        elif self._tls is None or self._context is None:
            connection = redis.Connection(host=address[0], port=address[1], **options)
        else:
            connection = SecureConnection(self._tls, self._context.get(), host=address[0], port=address[1], **options)
        # redis-py is not to tell the node of itself: each release has one of these, and the options have changed since.
        connection.driver_info = connection.lib_name = connection.lib_version = None
        return connection  # type: ignore[no-any-return]

    def open(self, connection: AbstractConnection) -> None:
        """Connect and log in.  Raises NotSent, NotTrusted, ServerError, and then closes the connection."""
        try:
            connection.connect()
            for greeting in self.greetings:
                _exchange(connection, greeting, self.patience.reply)
        except (*_AWAY, ConnectionBroken) as error:
            connection.disconnect()
            raise NotSent(str(error)) from error
        except BaseException:
            connection.disconnect()
            raise


class Connections:
    """The connections to one node."""

    def __init__(self, address: Address, way: Connector) -> None:
        self._address = address
        self._way = way
        self._lock = threading.Lock()
        self._idle: list[AbstractConnection] = []
        #: Connections of live workers, by their ids, while no command is under way on them.
        self._seats: dict[bytes, AbstractConnection] = {}
        #: All opened connections, in use or not.
        self._open: WeakSet[AbstractConnection] = WeakSet()
        #: Connections that have fetched: whether the node takes receipts on them.
        self._receipts: WeakKeyDictionary[AbstractConnection, bool] = WeakKeyDictionary()
        self._is_closed = False

    def ask(self, words: tuple[bytes, ...], limit: float, *, fetches: bool = False) -> object:
        """Send a command and wait for its reply.  Raises NotSent, ConnectionBroken, NotTrusted, ServerError.

        The jobs of a fetch are confirmed.
        """
        connection = self._take()
        try:
            confirms = fetches and self._takes_receipts(connection)
            reply = _exchange(connection, words, limit)
            if confirms and reply:
                with contextlib.suppress(ServerError):  # an answer, too
                    _exchange(connection, RECEIPT, self._way.patience.reply)
        except ServerError:
            self._give(connection)
            raise
        except BaseException:  # an interrupt, too: the next reply on it would be that of this command
            connection.disconnect()
            raise
        self._give(connection)
        return reply

    def _takes_receipts(self, connection: AbstractConnection) -> bool:
        """Return whether the node takes receipts on a connection, which is asked for before its first fetch."""
        if connection not in self._receipts:
            self._receipts[connection] = False
            with contextlib.suppress(ServerError):  # the user may not
                _exchange(connection, ASK_FOR_RECEIPTS, self._way.patience.reply)
                self._receipts[connection] = True
        return self._receipts[connection]

    def ask_seated(self, seat: WorkerIdentity, words: tuple[bytes, ...], limit: float) -> object:
        """Send a command on the connection of a live worker, and wait for its reply.

        A worker that its node declared dead starts again.  Raises NotSent, ConnectionBroken, NotTrusted, ServerError.
        """
        try:
            return self._ask_on(seat, self._take_seat(seat), words, limit)
        except (NoWorker, StaleWorker):
            self.leave(seat)
            return self._ask_on(seat, self._sit(seat), words, limit)

    def _ask_on(
        self, seat: WorkerIdentity, connection: AbstractConnection, words: tuple[bytes, ...], limit: float
    ) -> object:
        try:
            reply = _exchange(connection, words, limit)
        except ServerError:
            self._give_seat(seat, connection)
            raise
        except BaseException:
            connection.disconnect()
            raise
        self._give_seat(seat, connection)
        return reply

    def _take_seat(self, seat: WorkerIdentity) -> AbstractConnection:
        with self._lock:
            connection = self._seats.pop(seat.id, None)
        if connection is not None:
            if is_quiet(connection):
                return connection
            connection.disconnect()
        return self._sit(seat)

    def _sit(self, seat: WorkerIdentity) -> AbstractConnection:
        """Open the connection of a live worker, which lives as long as it."""
        connection = self._connect()
        try:
            _exchange(connection, take_a_seat(seat), self._way.patience.reply)
        except ConnectionBroken as error:
            connection.disconnect()
            raise NotSent(str(error)) from error
        except BaseException:
            connection.disconnect()
            raise
        return connection

    def _give_seat(self, seat: WorkerIdentity, connection: AbstractConnection) -> None:
        with self._lock:
            if not self._is_closed:
                self._seats[seat.id] = connection
                return
        connection.disconnect()

    def leave(self, seat: WorkerIdentity) -> None:
        with self._lock:
            connection = self._seats.pop(seat.id, None)
        if connection is not None:
            connection.disconnect()

    def _take(self) -> AbstractConnection:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if is_quiet(connection):
                    return connection
                connection.disconnect()
        return self._connect()

    def _give(self, connection: AbstractConnection) -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.append(connection)
                return
        connection.disconnect()

    def _connect(self) -> AbstractConnection:
        connection = self._way.connection_to(self._address)
        with self._lock:
            self._open.add(connection)
        self._way.open(connection)
        return connection

    def close(self) -> None:
        """Close idle connections now, and the others after their commands."""
        self._is_closed = True
        self.rest()
        with self._lock:
            seats, self._seats = self._seats, {}
        for connection in seats.values():
            connection.disconnect()

    def abandon(self) -> None:
        """Close all connections in a forked process; the nodes do not notice."""
        for connection in list(self._open):
            connection.disconnect()

    def rest(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.disconnect()


def _exchange(connection: AbstractConnection, words: tuple[bytes, ...], limit: float) -> object:
    """Send a command and read its reply.  Raises ConnectionBroken, NotTrusted, ServerError."""
    try:
        connection.send_command(*words, check_health=False)
        return read_reply(connection, limit)
    except redis.exceptions.ResponseError as error:
        raise server_error(str(error)) from None
    except (*_AWAY, redis.exceptions.RedisError) as error:
        raise refusal(error) or ConnectionBroken(str(error)) from error


def read_reply(connection: AbstractConnection, limit: float) -> Any:
    """Read the next reply, which has to come within `limit`.  Raises RedisError, OSError."""
    if _TAKES_LIMIT:
        return connection.read_response(disable_decoding=True, timeout=limit)
    # Before redis-py 8.0: it has to begin within it.
    if not connection.can_read(timeout=limit):
        raise TimeoutError(f"no reply within {limit:g} s")
    return connection.read_response(disable_decoding=True)


def is_quiet(connection: AbstractConnection) -> bool:
    """Return whether an idle connection can be used: it has received nothing, not even its end."""
    with contextlib.suppress(*_AWAY):
        return not connection.can_read(timeout=0)
    return False
