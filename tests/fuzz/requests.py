"""Bytes to the admin side of a node, and what comes back, every answer of it looked at."""

from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.testing import StringTransportWithDisconnection

from disqued.web.channel import AdminRequest
from disqued.web.server import AdminServer
from tests.fuzz.answers import Answer, check, read_all
from tests.fuzz.node import Fuzzed

PIECE = 64  #: bytes that come at a time
PATIENCE_S = 100  #: longer than every time-out of the admin side


def ask(node: Fuzzed, server: AdminServer, data: bytes) -> tuple[list[Answer], bytes]:
    """Send bytes; returns the answers, and all bytes of them.  Raises AssertionError for what is none."""
    methods: list[str] = []

    class Request(AdminRequest):
        """One whose method is known beside it: it says whether its answer has a body."""

        def process(self) -> None:
            methods.append(self.method.decode("latin-1"))
            super().process()

    address = IPv4Address("TCP", "127.0.0.1", 50_000)
    transport = StringTransportWithDisconnection(peerAddress=address)
    protocol: Any = server.factory.buildProtocol(address)
    protocol.requestFactory = Request
    transport.protocol = protocol
    protocol.makeConnection(transport)
    for at in range(0, len(data), PIECE):
        if transport.connected:
            protocol.dataReceived(data[at : at + PIECE])
    node.turn()
    node.reactor.advance(PATIENCE_S)
    node.turn()
    node.check()
    if transport.connected:
        transport.loseConnection()
    received = transport.value()
    answers = read_all(received, methods)
    for answer in answers:
        check(answer, data)
    return answers, received
