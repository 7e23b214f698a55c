"""Which node a verb talks to: the options that all such verbs share, and the client that is made of them.

    @click.command()
    @node_options                    -h -p -a --user --askpass --password-file -s --tls ... --timeout
    def command(target: Target, ...) -> None:
        with target.node() as node:
            node.call("QLEN", queue)             one node, and no other
        with target.client() as client:          the whole cluster: `disqued.client.blocking`
            client.add(queue, body)
        with target.at(("10.0.0.2", 7711)).node() as other: ...

What goes wrong between the verb and a node is an error of `disqued.client.errors`.  One that the verb lets through is
shown by click as one line on standard error, exit status 1; options that do not fit together are a misuse, status 2.

As in redis-cli `-h` is the host; the help is `--help` alone.  Spans are seconds.
"""

import contextlib
import os
import socket
import ssl
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from getpass import GetPassWarning
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

import attrs
import click

from disqued.client.addresses import (
    DEFAULT_PORT,
    MOST_PORT,
    Address,
    ConnectionOptions,
    Named,
    Socket,
    read_nodes,
    written,
)
from disqued.client.errors import AccessDenied, DisquedError, NotTrusted, ServerError, Uncertain, Unreachable
from disqued.client.tls import Tls
from disqued.config.credentials import written_out
from disqued.files import PrivateFileError, read_private
from disqued.tools.program import INTERRUPTED, end_echo
from disqued.tools.values import Seconds, options

if TYPE_CHECKING:  # redis-py takes as long to load as all the rest: it is loaded when a node is asked
    from redis.connection import AbstractConnection

    from disqued.client.blocking import Client
    from disqued.client.blocking.connections import Connector

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_TIMEOUT_S: Final = 5.0
MOST_TIMEOUT_S: Final = 86_400.0
MOST_PASSWORD: Final = 1 << 16  #: bytes of a file with a password
VARIABLE: Final = "DISQUED_AUTH"

_PASSWORDS: Final = f"-a, --password-file, --askpass or {VARIABLE}"

F = TypeVar("F", bound=Callable[..., Any])


class Failed(click.ClickException):
    """A verb cannot do what it was asked for; the text is what its user reads."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(message)
        context = click.get_current_context(silent=True)
        self._verb = context.command_path if context else "disqued"

    def show(self, file: Any = None) -> None:
        """Write the line: `disqued VERB: what went wrong`."""
        click.echo(f"{self._verb}: {self.format_message()}", file=file, err=True)


class Interrupted(Failed):
    """Ctrl-C has ended a verb in the middle of what it did; the text is how far it got."""

    exit_code = INTERRUPTED

    def show(self, file: Any = None) -> None:
        """Write the line, behind that of the ^C."""
        end_echo()
        super().show(file)


class NoAnswer(Failed):
    """It cannot because a node is down, or hangs, or went away meanwhile."""


class NodeConnection:
    """One node, asked on one connection, which opens with the first command, and again when it has broken."""

    def __init__(self, target: "Target") -> None:
        self.target = target
        self._connection: AbstractConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __str__(self) -> str:
        return str(self.target)

    def call(self, *words: bytes | str | int, waits: float = 0.0) -> Any:
        """Send a command and return its reply: bytes, numbers, None, and lists of these.

        Raises ServerError for a reply that is an error, and as `call_all` does.
        """
        (reply,) = self.call_all([words], waits)
        if isinstance(reply, ServerError):
            raise reply
        return reply

    def call_all(self, commands: Sequence[Sequence[bytes | str | int]], waits: float = 0.0) -> list[Any]:
        """Send commands, many at a time, and return their replies; one that is an error is a ServerError in its place.

        `waits` is how long the node may take over each reply, beyond the timeout; for what blocks.

        Raises Unreachable when nothing was sent, Uncertain when the connection broke before the last reply, NotTrusted.
        """
        from disqued.client.blocking.connections import is_quiet
        from disqued.client.failures import ConnectionBroken
        from disqued.tools.pipelines import exchange

        if self._connection is not None and not is_quiet(self._connection):
            self.close()
        if self._connection is None:
            self._connection = self.target.connection()
        try:
            return list(exchange(self._connection, commands, waits + self.target.timeout))
        except BaseException as error:  # an interrupt, too: what comes next would be the reply to this command
            self.close()
            if isinstance(error, ConnectionBroken):
                raise Uncertain(self.target.broken(error)) from error
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None


@attrs.frozen
class Target:
    """A node, and how it and the others of its cluster are reached."""

    address: Address = (DEFAULT_HOST, DEFAULT_PORT)
    user: bytes | None = None
    password: bytes | None = attrs.field(default=None, repr=False)
    tls: Tls | None = None
    #: How long a node may say nothing before it counts as away.
    timeout: float = DEFAULT_TIMEOUT_S

    def __str__(self) -> str:
        return written(self.address)

    @property
    def access(self) -> ConnectionOptions:
        """How connections to it begin.  Raises ValueError for what does not fit together."""
        return read_nodes(self._named, self.user, self.password, self.tls)[1]

    @property
    def _named(self) -> Named:
        return str(self.address) if isinstance(self.address, Socket) else self.address

    def at(self, address: Address) -> "Target":
        """Name another node that is reached in the same way."""
        return attrs.evolve(self, address=address)

    def way(self) -> "Connector":
        """How connections are opened.  Raises ValueError for files of TLS that cannot be used."""
        from disqued.client.blocking.connections import Connector
        from disqued.client.calls import Patience

        return Connector(self.access, Patience(self.timeout, self.timeout, self.timeout))

    def node(self) -> NodeConnection:
        """Make the client of this node alone; it connects when it is first asked."""
        return NodeConnection(self)

    def client(self) -> "Client":
        """Make a client of the cluster, which goes to another node when one is away."""
        from disqued.client.blocking import Client

        return Client(self._named, username=self.user, password=self.password, tls=self.tls, patience=self.timeout,
                      reply_timeout=self.timeout, connect_timeout=self.timeout)  # fmt: skip

    def connection(self) -> "AbstractConnection":
        """Open a bare connection of redis-py, logged in.

        Replies are read with `read_response(disable_decoding=True)`.  Raises Unreachable, ServerError, NotTrusted.
        """
        from disqued.client.failures import NotSent

        way = self.way()
        connection = way.connection_to(self.address)
        try:
            way.open(connection)
        except NotSent as error:
            raise Unreachable(self.away(error)) from error
        return connection

    def open_socket(self) -> socket.socket:
        """Open a bare connection, not logged in, whose calls have the timeout.  Raises Unreachable, NotTrusted."""
        try:
            return self._connected()
        except OSError as error:
            raise Unreachable(self.away(error)) from error

    def _connected(self) -> socket.socket:
        """Connect, and shake hands if need be.  Raises OSError, NotTrusted."""
        if isinstance(self.address, Socket):
            opened = socket.socket(socket.AF_UNIX)
            opened.settimeout(self.timeout)
            try:
                opened.connect(self.address.path)
            except BaseException:
                opened.close()
                raise
            return opened
        opened = socket.create_connection(self.address, self.timeout)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls is None:
            return opened
        from disqued.client.ssl_context import make_context, why_not

        try:
            return make_context(self.tls).wrap_socket(opened, server_hostname=self.tls.name_of(self.address[0]))
        except BaseException as error:
            opened.close()
            if isinstance(error, ssl.SSLError):
                raise NotTrusted(f"{self}: {why_not(error)}") from error
            raise

    def away(self, error: BaseException) -> str:
        """Say that the node cannot be reached, and why."""
        return f"no node answers at {self}: {_reason(error, self.timeout)}"

    def broken(self, error: BaseException) -> str:
        """Say that the node did not reply to what it was sent, and why."""
        return f"{self} was asked and did not reply: {_reason(error, self.timeout)}"


def _reason(error: BaseException | None, timeout: float) -> str:
    """The innermost word of the system on what went wrong."""
    said = str(error)
    while error is not None:
        if isinstance(error, TimeoutError):
            return f"nothing came within {timeout:g} s (--timeout)"
        if isinstance(error, OSError) and error.strerror:
            said = error.strerror
        error = error.__cause__ or error.__context__
    return said if said[:2].isupper() else said[:1].lower() + said[1:]


# The options.

_OPTIONS: Final = options(
    click.option("-h", "--host", default=DEFAULT_HOST, show_default=True, metavar="HOST", help="Host of the node."),
    click.option(
        "-p", "--port", type=click.IntRange(1, MOST_PORT), default=DEFAULT_PORT, show_default=True, metavar="PORT",
        help="Its port for clients.",
    ),
    click.option(
        "-s", "--socket", type=click.Path(), metavar="PATH", help="Its Unix socket, in the place of host and port."
    ),
    click.option(
        "-a", "--password", "--pass", envvar=VARIABLE, show_envvar=True, metavar="PASSWORD",
        help="Password; others on the machine can see what stands on a command line: better are the next two.",
    ),
    click.option("--password-file", type=click.Path(), metavar="FILE", help="File whose first line is the password."),
    click.option("--askpass", is_flag=True, help="Ask for the password at the terminal."),
    click.option("--user", metavar="NAME", help="User whose password it is; without one the node's own."),
    click.option("--tls", is_flag=True, help="Connect by TLS."),
    click.option(
        "--cacert", type=click.Path(), metavar="FILE", help="Whose certificates (PEM) to trust, with --tls."
    ),
    click.option("--cert", type=click.Path(), metavar="FILE", help="Our own certificate (PEM), with --tls."),
    click.option("--key", type=click.Path(), metavar="FILE", help="Its key, if that is in another file, with --tls."),
    click.option(
        "--timeout", type=Seconds(MOST_TIMEOUT_S), default=DEFAULT_TIMEOUT_S,
        show_default=True, metavar="SECONDS", help="How long a node may say nothing before it counts as away.",
    ),
)  # fmt: skip
#: What the options are called in a verb's parameters.
OPTION_NAMES: Final = (
    "host", "port", "socket", "password", "password_file", "askpass", "user", "tls", "cacert", "cert", "key", "timeout",
)  # fmt: skip


def node_options(function: F) -> F:
    """Give a verb the options that say which node is meant; it is called with them as `target`."""

    @wraps(function)
    def verb(**words: Any) -> Any:
        target = target_of(**{name: words.pop(name) for name in OPTION_NAMES})
        with telling():
            return function(target=target, **words)

    return cast("F", _OPTIONS(verb))


def target_of(
    *, host: str, port: int, socket: str | None, password: str | None, password_file: str | None, askpass: bool,
    user: str | None, tls: bool, cacert: str | None, cert: str | None, key: str | None, timeout: float,
) -> Target:  # fmt: skip
    """Read the options.  Raises click.UsageError for what does not fit together, Failed for a file of no use."""
    if not tls and (cacert or cert or key):
        raise click.UsageError("--cacert, --cert and --key are of TLS, and --tls is not given")
    if socket and any(map(on_line, ("host", "port"))):
        raise click.UsageError("-s names a Unix socket, and -h and -p a host and its port: they exclude each other")
    if socket and tls:
        raise click.UsageError("--tls is for hosts; a Unix socket (-s) is reached without it")
    secret = _password(password, password_file, ask=askpass)
    if user and not secret:
        raise click.UsageError(f"--user is given without a password: {_PASSWORDS} give one")
    try:
        target = Target(address=Socket(os.path.abspath(socket)) if socket else (host, port),
                        user=os.fsencode(user) if user else None, password=secret,
                        tls=Tls(ca=cacert, certificate=cert, key=key) if tls else None, timeout=timeout)  # fmt: skip
        if tls:
            target.way()  # reads the files
        else:
            target.access  # noqa: B018 - looks at the address
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return target


def on_line(name: str) -> bool:
    """Tell whether an option of the verb that runs stands on its command line, and is no default or variable."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _password(given: str | None, file: str | None, *, ask: bool) -> bytes | None:
    """The password, from wherever it comes.  Raises click.UsageError for two places, Failed for a file of no use."""
    if (given is not None and on_line("password")) + bool(file) + ask > 1:
        raise click.UsageError("-a, --askpass and --password-file each give the password: one of them is allowed")
    if ask:
        given = _asked()
    elif file:
        return password_of(file)
    return os.fsencode(given) if given else None


def _asked() -> str:
    """Ask for the password where nobody sees it.  Raises click.UsageError where there is no terminal."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", GetPassWarning)
        try:
            answer: str = click.prompt("Password", hide_input=True, err=True)
        except GetPassWarning:
            raise click.UsageError(
                f"--askpass asks at a terminal, and there is none; --password-file or {VARIABLE} give the password"
            ) from None
        return answer


def password_of(file: str) -> bytes:
    """Read a file whose first line is a password.  Raises Failed for a file of no use."""
    path = Path(written_out(file))
    try:
        line = read_private(path, MOST_PASSWORD).partition(b"\n")[0].removesuffix(b"\r")
    except PrivateFileError as error:
        raise Failed(str(error)) from None
    if not line:
        raise Failed(f"{path}: its first line is to be the password, and is empty")
    return line


@contextlib.contextmanager
def telling() -> Iterator[None]:
    """Make one line of what goes wrong with nodes within.  Raises Failed, and NoAnswer of a node that is not there."""
    try:
        yield
    except (Unreachable, Uncertain) as error:
        raise NoAnswer(str(error)) from None
    except AccessDenied as error:
        raise Failed(f"{str(error).rstrip('.')}; {_PASSWORDS} give the password") from None
    except DisquedError as error:
        raise Failed(str(error)) from None
