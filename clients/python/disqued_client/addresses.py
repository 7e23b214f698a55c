"""Parsing of node addresses, with their passwords and TLS options.

    disqued://[[user]:password@]host[:port]      redis:// means the same
    disqueds://...                               over TLS; rediss:// means the same
    unix://[[user]:password@]/path               the node behind a Unix socket of this machine
    host   host:port   [v6]:port   (host, port)  over TLS when `tls` is given

The client reaches nodes that it learns later in the same way as the named ones: with the same password, and with TLS or
without.  So all names must agree on that.  The query of a URL takes the fields of `Tls`, as in
`disqueds://host?ca=/etc/ca.pem`.

An address is a pair of host and port, or a Socket.  No error text and no repr contains a password.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import attrs

from .tls import Tls
from .values import encode_data

DEFAULT_PORT: Final = 7711
MOST_PORT: Final = 65_535
_PLAIN: Final = ("disqued", "redis")
_BY_TLS: Final = ("disqueds", "rediss")
_UNIX: Final = "unix"
_FORMS: Final = "disqued://host:port, disqueds://host:port, unix:///path, host:port, [v6]:port or (host, port)"

V = TypeVar("V")


@attrs.frozen
class Socket:
    """A Unix socket."""

    path: str

    def __str__(self) -> str:
        return f"unix://{self.path}"


#: Host and port, or a socket.
Address: TypeAlias = tuple[str, int] | Socket
#: How a program names a node.
Named: TypeAlias = str | tuple[str, int]


@attrs.frozen
class ConnectionOptions:
    """How to open connections, to any node."""

    #: The first commands of each connection: login and name.
    greetings: tuple[tuple[bytes, ...], ...] = attrs.field(default=(), repr=False)
    tls: Tls | None = None


@attrs.frozen
class NodeAddress:
    """A node as the program named it."""

    address: Address
    user: str = ""
    #: "" = none.
    password: str = attrs.field(default="", repr=False)
    #: None = the name does not say.
    by_tls: bool | None = None
    #: TLS options from the query of the URL.
    options: Mapping[str, str] = attrs.field(factory=dict, repr=False)


def written(address: Address) -> str:
    """Format an address as a program may name it: `host:port`, `[v6]:port` or `unix:///path`."""
    if isinstance(address, Socket):
        return str(address)
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def read_nodes(
    nodes: Named | Iterable[Named],
    user: bytes | str | None = None,
    password: bytes | str | None = None,
    tls: Tls | None = None,
    client_name: bytes | str = b"",
) -> tuple[list[Address], ConnectionOptions]:
    """Parse the names of one or more nodes, and the options given along with them.

    Raises ValueError for an empty list, for invalid names, and for names that contradict each other.
    """
    servers = [read_server(each) for each in _each(nodes)]
    if not servers:
        raise ValueError("no node is named; at least one is needed")
    greetings = tuple(filter(None, (_login(servers, user, password), _naming(client_name))))
    return [server.address for server in servers], ConnectionOptions(greetings, _tls(servers, tls))


def _each(nodes: Named | Iterable[Named]) -> list[Named]:
    if isinstance(nodes, str) or (isinstance(nodes, tuple) and len(nodes) == 2 and isinstance(nodes[1], int)):
        return [nodes]  # a single node
    try:
        return list(nodes)
    except TypeError:
        raise ValueError(f"{nodes!r} are no nodes; named are they by {_FORMS}") from None


def read_server(named: Named) -> NodeAddress:
    """Parse the name of one node.  Raises ValueError."""
    if not isinstance(named, str):
        return NodeAddress(_pair(named))
    if "://" not in named:
        return NodeAddress(read_address(named))
    url = _split(named)
    if "@" in url.path + url.query + url.fragment:  # the text before it may be part of the password
        raise ValueError("a URL of a node has a '/', '?' or '#' in its password; written they are %2F, %3F, %23")
    if url.scheme == _UNIX:
        return _server(url, _socket(url), None)
    if url.scheme not in (*_PLAIN, *_BY_TLS):
        raise ValueError(f"{_shown(url)} names no node; the forms are {_FORMS}")
    if url.path not in ("", "/", "/0"):
        raise ValueError(f"{_shown(url)} names a database, and a node has only the one: 0")
    return _server(url, _host_and_port(url), url.scheme in _BY_TLS)


def _split(named: str) -> SplitResult:
    try:
        return urlsplit(named)
    except ValueError as error:  # its text may contain the password
        raise ValueError(f"a URL of a node cannot be read: {type(error).__name__}; the forms are {_FORMS}") from None


def _server(url: SplitResult, address: Address, by_tls: bool | None) -> NodeAddress:
    options = dict(parse_qsl(url.query, keep_blank_values=True))
    if url.fragment:
        raise ValueError(f"{_shown(url)} has a '#': in a password it is written %23")
    if options and not by_tls:
        raise ValueError(f"{_shown(url)} is not by TLS, so that nothing may stand behind a '?'")
    user, password = unquote(url.username or ""), unquote(url.password or "")
    if user and not password:
        raise ValueError(f"{_shown(url)} names a user without a password; a password alone is written :password@")
    return NodeAddress(address, user, password, by_tls, options)


def _shown(url: SplitResult) -> str:
    """Format a URL without its secrets."""
    return repr(f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}")


def _socket(url: SplitResult) -> Socket:
    path = unquote(url.path)
    if url.netloc.rpartition("@")[2] or len(path) < 2:
        raise ValueError(f"{_shown(url)} is no path of a socket: unix:///run/disqued.sock has three slashes")
    return Socket(path)


def _host_and_port(url: SplitResult) -> Address:
    return read_address(unquote(url.netloc.rpartition("@")[2]))


def read_address(text: str) -> Address:
    """Parse `host`, `host:port` or `[v6]:port`.  Raises ValueError."""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        if port and not port.startswith(":"):
            raise _no_address(text)
        port = port[1:]
    else:
        host, _, port = text.partition(":")
    port = port or str(DEFAULT_PORT)
    if not port.isascii() or not port.isdecimal():
        raise _no_address(text)
    return _checked(host, int(port), text)


def _pair(named: object) -> Address:
    match named:
        case (str(host), int(port)):
            return _checked(host, port, named)
    raise _no_address(named)


def _checked(host: str, port: int, named: object) -> Address:
    if not host or not 0 < port <= MOST_PORT or set(host) & set("@/ []"):
        raise _no_address(named)
    return host, port


def _no_address(named: object) -> ValueError:
    shown = named.rpartition("@")[2] if isinstance(named, str) else named
    return ValueError(f"{shown!r} is no address of a node; the forms are {_FORMS}")


def _login(servers: Iterable[NodeAddress], user: bytes | str | None, password: bytes | str | None) -> tuple[bytes, ...]:
    """Return the words of AUTH, the same for all nodes; a password in one name is enough."""
    said = {(server.user.encode(), server.password.encode()) for server in servers if server.password}
    if password:
        said.add((encode_data(user or "", "username"), encode_data(password, "password")))
    elif user:
        raise ValueError("a username is given without a password")
    if len(said) > 1:
        raise ValueError("two passwords or users are given; all nodes of a cluster have to take the same")
    return tuple(word for pair in said for word in (b"AUTH", *pair) if word)


def _naming(name: bytes | str) -> tuple[bytes, ...]:
    """Return the words of CLIENT SETNAME; none without a name."""
    encoded = encode_data(name, "client_name")
    if not all(b"!"[0] <= byte <= b"~"[0] for byte in encoded):
        raise ValueError(f"client_name is {name!r}; letters, digits and signs of ASCII are allowed, and no spaces")
    return (b"CLIENT", b"SETNAME", encoded) if encoded else ()


def _tls(servers: Iterable[NodeAddress], tls: Tls | None) -> Tls | None:
    """Return how to reach all nodes over TLS; None = without TLS."""
    by_tls = _one({server.by_tls for server in servers if server.by_tls is not None}, "by TLS and without it")
    options = _one(
        {tuple(sorted(server.options.items())) for server in servers if server.options}, "by TLS, differently"
    )
    if tls is not None:
        if by_tls is False:
            raise ValueError(
                f"`tls` is given, and a URL without TLS: that begins with {_BY_TLS[0]}:// or {_BY_TLS[1]}://"
            )
        if options:
            raise ValueError("what TLS needs is given twice: as `tls`, and behind a URL")
        return tls
    return Tls.of_words(dict(options or ())) if by_tls else None


def _one(said: set[V], how: str) -> V | None:
    if len(said) > 1:
        raise ValueError(f"nodes are to be reached {how}; all have to be reached alike")
    return said.pop() if said else None
