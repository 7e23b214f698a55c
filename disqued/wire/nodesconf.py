"""Nodes as CLUSTER NODES shows them and nodes.conf keeps them: one line for each.

    <id> <address>:<port>[@<bus port>] <flags> <ping sent> <pong received> <connected|disconnected>

The bus port is left out where it is 10000 above the port.  A node that does not know its own address yet writes none.
Flags are separated by commas: myself, fail?, fail, handshake, noaddr, leaving; `noflags` stands for none of them.
Times are unix milliseconds, 0 = none.

Source: Disque 1.0-rc1, src/cluster.c; the bus port is as in Redis.
"""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from disqued.core.model.ids import is_node_id
from disqued.core.model.peers import FAIL, LEAVING, PFAIL, KnownNode

BUS_PORT_OFFSET: Final = 10_000  #: from the port for clients to that of the bus, unless it is told
PORT_MAX: Final = 65_535
FIELDS: Final = 6
DIGITS_MAX: Final = 20  #: of a number in a line
_NOBODY: Final = b"noflags"
_BITS: Final = {b"fail?": PFAIL, b"fail": FAIL, b"leaving": LEAVING}
#: In the order in which they are written.
_FLAGS: Final = (b"myself", b"fail?", b"fail", b"handshake", b"noaddr", b"leaving")
_CONNECTED: Final = {b"connected": True, b"disconnected": False}


class BadNodes(ValueError):
    """Text that lists no nodes; says in which line, what is wrong and what is allowed."""


def format_nodes(nodes: Iterable[KnownNode]) -> bytes:
    """Write a line for each node, in this order."""
    return b"".join(map(_line, nodes))


def _line(node: KnownNode) -> bytes:
    place = b"%b:%d" % (node.host.encode(), node.port)
    if node.bus_port not in (0, node.port + BUS_PORT_OFFSET):
        place += b"@%d" % node.bus_port
    state = b"connected" if node.connected else b"disconnected"
    return b"%b %b %b %d %d %b\n" % (node.id, place, _flags(node), node.ping_sent_at, node.pong_at, state)


def _flags(node: KnownNode) -> bytes:
    words = {word for word, bit in _BITS.items() if node.flags & bit}
    if node.myself:
        words.add(b"myself")
    elif not node.host:
        words.add(b"noaddr")
    if not node.met:
        words.add(b"handshake")
    return b",".join(word for word in _FLAGS if word in words) or _NOBODY


def parse_nodes(text: bytes) -> list[KnownNode]:
    """Read the nodes back: the one that says `myself` first, then the others; those in handshake are left out.

    Raises BadNodes.
    """
    nodes = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if not fields or fields[0] == b"vars":
            continue
        try:
            nodes.append(_parse(fields))
        except BadNodes as error:
            raise BadNodes(f"line {number}: {error}") from None
    _check_ids(nodes)
    return sorted((node for node in nodes if node.met), key=lambda node: not node.myself)


def _check_ids(nodes: list[KnownNode]) -> None:
    if sum(node.myself for node in nodes) != 1:
        raise BadNodes("no line says `myself`, or more than one does; exactly one has to")
    seen: set[bytes] = set()
    for node in nodes:
        if node.id in seen:
            raise BadNodes(f"there are two lines of the node {node.id.decode()}; allowed is one")
        seen.add(node.id)


def _parse(fields: list[bytes]) -> KnownNode:
    if len(fields) != FIELDS or not is_node_id(fields[0]):
        raise BadNodes("expected an id of 40 hex digits and five more fields")
    node_id, place, flags, ping_sent, pong_received, state = fields
    host, port, bus_port = _place(place)
    words = _words(flags)
    if state not in _CONNECTED:
        raise BadNodes(f"{_shown(state)}: expected connected or disconnected")
    return KnownNode(
        node_id, host, port, bus_port,
        flags=sum(bit for word, bit in _BITS.items() if word in words),
        ping_sent_at=_number(ping_sent), pong_at=_number(pong_received),
        connected=_CONNECTED[state], myself=b"myself" in words, met=b"handshake" not in words,
    )  # fmt: skip


def _place(text: bytes) -> tuple[str, int, int]:
    """Read an address and its two ports."""
    wrong = BadNodes(f"{_shown(text)}: expected <address>:<port> or <address>:<port>@<bus port>, ports up to 65535")
    host, colon, ports = text.rpartition(b":")
    if not colon or not _is_address(host):
        raise wrong
    port, at, bus_port = ports.partition(b"@")
    numbers = [_number(part) for part in ((port, bus_port) if at else (port,))]
    if len(numbers) == 1:
        numbers.append(numbers[0] + BUS_PORT_OFFSET if 0 < numbers[0] <= PORT_MAX - BUS_PORT_OFFSET else 0)
    if max(numbers) > PORT_MAX:
        raise wrong
    return host.decode(), numbers[0], numbers[1]


def _is_address(host: bytes) -> bool:
    if not host:
        return True
    try:
        ip_address(host.decode("ascii"))
    except ValueError:
        return False
    return True


def _words(flags: bytes) -> set[bytes]:
    words = set(flags.split(b",")) - {_NOBODY}
    unknown = sorted(words - set(_FLAGS))
    if unknown:
        allowed = b", ".join((*_FLAGS, _NOBODY)).decode()
        raise BadNodes(f"flag {_shown(unknown[0])} is not known; allowed are {allowed}")
    return words


def _number(text: bytes) -> int:
    if not text.isdigit() or len(text) > DIGITS_MAX:
        raise BadNodes(f"{_shown(text)}: expected a whole number")
    return int(text)


def _shown(text: bytes) -> str:
    return repr(text[:64])[1:]
