"""Targets behind a door: what is sent by those who have said nothing, and by those who may do little.

    users    RESP, with a password    a stranger, a user of two commands, a user of nearly all on other queues
    tokens   HTTP, with tokens        a stranger, a viewer who sees no bodies

Whatever they send, nothing of the vault is shown, and nothing of it changes.
"""

import atexit
import contextlib
import functools
from typing import Final

import hiredis

from disqued.web.server import AdminServer
from tests.fuzz.node import Fuzzed, fuzzed
from tests.fuzz.requests import ask
from tests.fuzz.vault import BODY, NAME, PASSWORD, Vault

#: Rules of the users that an input speaks as, beside the stranger.
RULES: Final = {
    b"few": (b"on", b"resetchannels", b"%W~mail:*", b"+addjob", b"+ping"),
    b"many": (b"on", b"resetchannels", b"~mail:*", b"&mail:*", b"+@all", b"-@admin", b"-@dangerous"),
}
_WHO: Final = (None, *RULES)
#: Inputs hold this one; the other one of the file is in none.
VIEWER: Final = "0123456789abcdef"
_TOKENS: Final = {"tokens": f"ann viewer {VIEWER}\neve admin bodies 7c1f5be0d2a94e1f8a36\n"}


def users(data: bytes) -> None:
    """Requests of a stranger, or of a user; the first byte says whose."""
    who, said = _WHO[data[0] % len(_WHO)] if data else None, data[1:]
    with fuzzed(f'requirepass "{PASSWORD.decode()}"') as node:
        vault = Vault(node)
        vault.fill()
        access = node.daemon.access
        for name, rules in RULES.items():
            access.set_user(name, [*rules, b">" + PASSWORD])
        client, wire = node.client()
        if who is not None:
            user = access.users.get(who)
            assert user is not None
            client.session.become(user)
        before = vault.picture(), len(node.daemon.node.state.jobs)
        said = vault.aimed(said)
        client.dataReceived(said)
        node.turn()
        # What waits is given a chance to get what is not its own.
        later = vault.run(b"ADDJOB", NAME, BODY, b"0")
        node.reactor.advance(2)
        node.turn()
        node.check()
        vault.run(b"DELJOB", later)
        _check(node, vault, bytes(wire.written), said)
        assert vault.picture() == before[0]
        if who is None:
            assert len(node.daemon.node.state.jobs) == before[1]
        assert client.session.user is None or client.session.user.name == who
        assert not node.daemon.dispatch.monitors
        assert not node.daemon.paused


def _check(node: Fuzzed, vault: Vault, written: bytes, said: bytes) -> None:
    vault.look(written, said)
    reader = hiredis.Reader()
    reader.feed(written)
    while reader.gets() is not False:
        pass


@functools.cache
def guarded() -> tuple[Vault, AdminServer]:
    """One admin side for all inputs, as nothing that they ask for may change it."""
    lasting = contextlib.ExitStack()
    atexit.register(lasting.close)
    node = lasting.enter_context(fuzzed("http-token-file tokens", _TOKENS))
    vault = Vault(node)
    vault.fill()
    return vault, AdminServer(node.daemon)


def tokens(data: bytes) -> None:
    """Requests to an admin side that wants tokens."""
    vault, server = guarded()
    before = vault.picture()
    asked = vault.aimed(data)
    answers, received = ask(vault.node, server, asked)
    if VIEWER.encode() in asked:
        assert BODY not in received, received[:2_000]
    else:
        vault.look(received, asked)
        assert all(answer.status not in (201, 202) for answer in answers)
    assert vault.picture() == before
