"""Listening sockets that systemd has opened and passes on: they outlive a restart, and connections wait in them.

    disqued.socket: ListenStream=127.0.0.1:7711       systemd --descriptors, LISTEN_FDS--> us
    port 7711, bind 127.0.0.1  --asks for that address--> the socket that is bound to it, or one of our own

A setting gets the socket that is bound to its very address, so that the same settings serve with and without one, and
what is checked of an address holds for both: what is open beyond this machine wants a password.  A socket that no
setting asks for stops the start; nobody would ever answer there.

Each is adopted through Twisted's endpoint ``systemd:domain=...:index=...``, and has the transports and limits of a port
of our own; only the backlog, and the permissions of a Unix socket, are those of the unit.

Names are not always passed along (``systemd-socket-activate`` without ``--fdname``).  Twisted leaves such sockets alone
and has forgotten by now how many there are, so the count is read where the kernel keeps what a process was started
with.

Source: sd_listen_fds(3), systemd.socket(5).
"""

import ipaddress
import os
import socket
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.internet import tcp
from twisted.internet.endpoints import _SystemdParser, serverFromString
from twisted.python.failure import Failure
from twisted.python.systemd import ListenFDs

from disqued.net.loop.transport import EagerUnixPort

NAMES: Final = "LISTEN_FDNAMES"  #: the variable that Twisted leaves in place
UNNAMED: Final = "unknown"  #: what systemd calls a socket that was passed without a name
FIRST_DESCRIPTOR: Final = 3
STARTED_WITH: Final = Path("/proc/self/environ")  #: the variables that this process was started with
ENDPOINT: Final = "systemd:"
_ALLOWED: Final = "allowed in a socket unit are ListenStream=, of IP and Unix, and Accept=no"

#: Gives a factory a port on an address that is open already, if there is one; the port is of that class.
Adopt = Callable[[Any, str, int, type[tcp.Port]], tcp.Port | None]


def adopt_nothing(factory: Any, address: str, port: int, kind: type[tcp.Port]) -> None:
    """There is none."""


class PassedError(Exception):
    """A descriptor that was passed is of no use; `str()` says why."""


class PassedUnixPort(EagerUnixPort):
    """A listening Unix socket whose file is somebody else's."""

    _preexistingSocket: Any
    factory: Any
    fileno: Any

    def startListening(self) -> None:
        """Take up the socket; its file, mode and backlog stay as they are."""
        self.factory.doStart()
        self.socket, self._preexistingSocket = self._preexistingSocket, None
        # Others hold this socket as well.
        self._shouldShutdown = False
        self.fileno = self.socket.fileno
        self.connected = True
        self.numberAccepts = 100
        self.startReading()

    def connectionLost(self, reason: Any) -> None:
        """Stop, and leave the file where it is."""
        tcp.Port.connectionLost(self, reason)


@attrs.define
class Adopter:
    """Stands where an endpoint expects the reactor, and makes a port of the class that is wanted."""

    reactor: Any
    kind: type[tcp.Port]

    def adoptStreamPort(self, fileDescriptor: int, addressFamily: int, factory: Any) -> Any:  # noqa: N803 - Twisted's
        port: Any
        if addressFamily == socket.AF_UNIX:
            port = PassedUnixPort._fromListeningDescriptor(self.reactor, fileDescriptor, factory)
        else:
            port = self.kind._fromListeningDescriptor(self.reactor, fileDescriptor, addressFamily, factory)
        port.startListening()
        return port


@attrs.frozen
class _Passed:
    """One socket."""

    index: int  #: among those that were passed
    name: str  #: FileDescriptorName, or the name of the unit
    domain: str  #: INET, INET6 or UNIX
    address: str  #: an address, or a path
    port: int  #: 0 = it has none

    def __str__(self) -> str:
        place = f"{self.address}, port {self.port}" if self.port else self.address
        return f"{place} ({self.name})"

    def endpoint(self, adopter: Adopter) -> Any:
        """Twisted's endpoint for it."""
        return serverFromString(adopter, f"{ENDPOINT}domain={self.domain}:index={self.index}")


class PassedSockets:
    """The sockets that were passed to this process and that nothing listens on yet."""

    def __init__(self, reactor: Any, environment: MutableMapping[str, str] = os.environ) -> None:
        """Look at what was passed.  Raises PassedError."""
        self._reactor = reactor
        self._sockets: list[_Passed] = []
        # To look for kinds of endpoints takes time, which a process that was passed nothing need not spend.
        for index, name in enumerate(_names(environment.pop(NAMES, ""))):
            try:
                descriptor = _descriptor_of(index)
            except IndexError:
                return  # passed to another process, which started this one
            self._sockets.append(_look_at(descriptor, index, name))

    def adopt(self, factory: Any, address: str, port: int, kind: type[tcp.Port] = tcp.Port) -> Any:
        """Let a factory listen on the socket that is bound to an address; None when there is none."""
        wanted = ipaddress.ip_address(address)
        for passed in self._sockets:
            if passed.port == port != 0 and ipaddress.ip_address(passed.address) == wanted:
                return self._adopted(passed, factory, kind)
        return None

    def adopt_unix(self, factory: Any, path: bytes) -> Any:
        """The same for a path."""
        for passed in self._sockets:
            if passed.domain == "UNIX" and os.fsencode(passed.address) == path:
                return self._adopted(passed, factory, tcp.Port)
        return None

    def _adopted(self, passed: _Passed, factory: Any, kind: type[tcp.Port]) -> Any:
        self._sockets.remove(passed)
        opened: list[Any] = []
        passed.endpoint(Adopter(self._reactor, kind)).listen(factory).addBoth(opened.append)
        if isinstance(opened[0], Failure):
            opened[0].raiseException()
        return opened[0]

    def leave_to(self, endpoint: str) -> None:
        """Leave the socket that an endpoint string of Twisted names to whoever listens there."""
        if self._sockets and endpoint.startswith(ENDPOINT):
            try:
                descriptor = serverFromString(self._reactor, endpoint).fileno
            except Exception:  # whatever the parser raises: who listens there tells what is wrong with it
                return
            self._sockets = [passed for passed in self._sockets if _descriptor_of(passed.index) != descriptor]

    def refuse_rest(self) -> None:
        """Raise PassedError when there is a socket that nothing listens on."""
        if self._sockets:
            raise PassedError(
                f"systemd passes sockets that no setting asks for: {'; '.join(map(str, self._sockets))}; allowed are"
                " those of port and bind, unixsocket, cluster-port and cluster-bind, http-port and http-bind, and of"
                " an http-endpoint that begins with systemd:"
            )


def _names(text: str) -> list[str]:
    """The names of what was passed, given or not.  Raises PassedError where they do not fit."""
    names, count = text.split(":") if text else [], passed_count()
    if names and count not in (0, len(names)):
        raise PassedError(
            f"{count} sockets are passed (LISTEN_FDS), with {len(names)} names ({NAMES} is {text!r}); allowed are as"
            " many names as sockets, or none at all"
        )
    if count and not names:
        names = [UNNAMED] * count
        _SystemdParser._sddaemon = ListenFDs(range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + count), names)
    return names


def passed_count(started_with: Path = STARTED_WITH) -> int:
    """How many descriptors were passed to this very process."""
    try:
        fields = started_with.read_bytes().split(b"\0")
    except OSError:  # a system without it has no systemd either
        return 0
    variables = dict(field.split(b"=", 1) for field in fields if b"=" in field)
    count = variables.get(b"LISTEN_FDS", b"")
    is_ours = variables.get(b"LISTEN_PID") == b"%d" % os.getpid()
    return int(count) if is_ours and count.isdigit() else 0


def _descriptor_of(index: int) -> int:
    """The descriptor of a place among those passed, by Twisted's reckoning."""
    descriptor: int = serverFromString(None, f"{ENDPOINT}domain=INET:index={index}").fileno
    return descriptor


def _look_at(descriptor: int, index: int, name: str) -> _Passed:
    """Find out what was passed at a place.  Raises PassedError."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as found:
            domain = found.family.name.removeprefix("AF_")
            listens = found.type == socket.SOCK_STREAM and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            bound = found.getsockname()
    except OSError as error:
        raise PassedError(f"{name}: {error.strerror}; {_ALLOWED}") from None
    if not listens or domain not in ("INET", "INET6", "UNIX"):
        raise PassedError(f"{name} is no socket that can be listened on; {_ALLOWED}")
    address, port = (os.fsdecode(bound), 0) if domain == "UNIX" else bound[:2]
    return _Passed(index, name, domain, address, port)
