"""Sockets that systemd passes: who gets which, with what transport."""

import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import pytest_twisted
from twisted.internet import endpoints, reactor, tcp
from twisted.internet.protocol import Factory, Protocol
from twisted.python.systemd import ListenFDs

from disqued.net.loop.passed import PassedError, PassedSockets
from disqued.net.loop.transport import EagerPort, EagerServer, EagerUnixServer


@pytest.fixture
def opened() -> Iterator[list[socket.socket]]:
    """What the unit has opened; closed at the end."""
    sockets: list[socket.socket] = []
    yield sockets
    for one in sockets:
        one.close()


def passing(monkeypatch: pytest.MonkeyPatch, sockets: Sequence[socket.socket]) -> PassedSockets:
    """Let Twisted find copies of sockets, as those that were passed to this process."""
    names = [f"name{number}" for number in range(len(sockets))]
    found = ListenFDs([os.dup(one.fileno()) for one in sockets], names)
    monkeypatch.setattr(endpoints._SystemdParser, "_sddaemon", found)
    return PassedSockets(reactor, {"LISTEN_FDNAMES": ":".join(names)})


@pytest_twisted.ensureDeferred
async def test_clients_get_the_transports_of_a_port_of_our_own(
    monkeypatch: pytest.MonkeyPatch, opened: list[socket.socket], tmp_path: Path
) -> None:
    path = tmp_path / "socket"
    opened += [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)]
    opened[1].bind(str(path))
    opened[1].listen()
    passed = passing(monkeypatch, opened)
    factory = Factory.forProtocol(Protocol)
    by_tcp = passed.adopt(factory, "127.0.0.1", opened[0].getsockname()[1], EagerPort)
    by_path = passed.adopt_unix(factory, os.fsencode(path))
    passed.refuse_rest()
    try:
        assert isinstance(by_tcp, EagerPort)
        assert by_tcp.transport is EagerServer
        assert by_path.transport is EagerUnixServer
    finally:
        await by_tcp.stopListening()
        await by_path.stopListening()
    assert path.is_socket()


@pytest_twisted.ensureDeferred
async def test_a_socket_goes_to_its_very_address_once(
    monkeypatch: pytest.MonkeyPatch, opened: list[socket.socket]
) -> None:
    opened += [socket.create_server(("::1", 0), family=socket.AF_INET6), socket.create_server(("127.0.0.1", 0))]
    passed = passing(monkeypatch, opened)
    factory = Factory.forProtocol(Protocol)
    port6, port4 = (one.getsockname()[1] for one in opened)
    assert passed.adopt(factory, "127.0.0.2", port4) is None
    assert passed.adopt(factory, "0.0.0.0", port4) is None
    assert passed.adopt(factory, "127.0.0.1", 0) is None
    with pytest.raises(PassedError, match=rf"::1, port {port6} \(name0\); 127\.0\.0\.1, port {port4} \(name1\)"):
        passed.refuse_rest()
    port = passed.adopt(factory, "0:0::1", port6)
    assert type(port) is tcp.Port
    assert passed.adopt(factory, "::1", port6) is None
    await port.stopListening()
    for wrong in ("systemd:domain=INET:name=other", "systemd:", "systemd:domain=INET:index=9", "tcp:0"):
        passed.leave_to(wrong)
    with pytest.raises(PassedError, match="name1"):
        passed.refuse_rest()
    passed.leave_to("systemd:domain=INET:name=name1")
    passed.refuse_rest()


def test_what_is_no_listening_stream_is_refused(monkeypatch: pytest.MonkeyPatch, opened: list[socket.socket]) -> None:
    opened.append(socket.socket())
    opened[0].bind(("127.0.0.1", 0))
    with pytest.raises(PassedError, match="name0 is no socket that can be listened on; allowed"):
        passing(monkeypatch, opened)


def test_where_nothing_was_passed_nothing_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disqued.net.loop.passed.serverFromString", None)
    passed = PassedSockets(reactor, {})
    assert passed.adopt(Factory(), "127.0.0.1", 7711) is None
    passed.leave_to("systemd:domain=INET:name=web")
    passed.refuse_rest()
