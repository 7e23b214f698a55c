"""Addresses that this node tries, and forgotten nodes that it does not take in.

Both are bounded: whatever other nodes say, `MEETINGS_MAX` addresses are tried at once, and an operator comes first.
"""

from typing import NamedTuple

from disqued.core.cluster.own_address import canonical
from disqued.core.model.messages import Target
from disqued.core.model.peers import PEERS_MAX, KnownNode
from disqued.core.model.state import State

MEETING_MIN_MS = 1_000  #: an address is tried for the time-out, and for so long at least
FORGOTTEN_MS = 60_000  #: a node that was forgotten is not taken in for so long
MEETINGS_MAX = 100  #: addresses tried at once


class MeetAttempt(NamedTuple):
    """An address that is tried."""

    expected: bytes  #: id of the node that is looked for; empty = whoever answers
    shown_id: bytes  #: the same, or one that stands for it
    port: int  #: for clients
    ends_at: int


class Meetings:
    """Attempts to reach nodes by their addresses, and bans of nodes that were forgotten."""

    __slots__ = ("_banned", "_state", "attempts")

    def __init__(self, state: State) -> None:
        self._state = state
        self.attempts: dict[Target, MeetAttempt] = {}
        self._banned: dict[bytes, int] = {}  #: forgotten nodes, and until when they are not taken in

    def meet(self, host: str, port: int, bus_port: int) -> bool:
        """Try an address for an operator, as long as the time-out; return whether it is one."""
        target = Target(canonical(host), bus_port, b"", meets=True)
        if not target.host:
            return False
        if target not in self.attempts and len(self.attempts) >= MEETINGS_MAX:
            self.attempts.pop(next(iter(self.attempts)))
        self._try(target, b"", port)
        return True

    def look_at(self, node_id: bytes, host: str, port: int, bus_port: int) -> bool:
        """See whether a node is at an address; return whether there is room for that."""
        target = Target(canonical(host), bus_port, b"", meets=False)
        peers = self._state.peers.by_id
        if not target.host or target in self.attempts or len(self.attempts) >= MEETINGS_MAX or self.is_banned(node_id):
            return False
        if node_id not in peers and len(peers) >= PEERS_MAX:
            return False
        self._try(target, node_id, port)
        return True

    def _try(self, target: Target, expected: bytes, port: int) -> None:
        state = self._state
        shown_id = expected or b"%040x" % state.numbers.rng.getrandbits(160)
        ends_at = state.now + max(state.peers.timeout_ms, MEETING_MIN_MS)
        self.attempts[target] = MeetAttempt(expected, shown_id, port, ends_at)

    def give_up(self) -> bool:
        """Drop the attempts whose time is over; return whether there were any."""
        over = [target for target, attempt in self.attempts.items() if attempt.ends_at <= self._state.now]
        for target in over:
            del self.attempts[target]
        return bool(over)

    def lines(self) -> list[KnownNode]:
        """Return the addresses of nodes that are not known yet, as CLUSTER NODES shows them, oldest attempt first."""
        return [
            KnownNode(attempt.shown_id, target.host, attempt.port, target.bus_port, met=False)
            for target, attempt in self.attempts.items()
            if attempt.expected not in self._state.peers.by_id
        ]

    def ban(self, node_id: bytes) -> None:
        """Look for a forgotten node no more, and do not take it in for `FORGOTTEN_MS`."""
        self._banned[node_id] = self._state.now + FORGOTTEN_MS
        for target in [target for target, attempt in self.attempts.items() if attempt.expected == node_id]:
            del self.attempts[target]

    def lift_ban(self, node_id: bytes) -> None:
        """Let a node be taken in again."""
        self._banned.pop(node_id, None)

    def is_banned(self, node_id: bytes) -> bool:
        """Return whether a node must not be taken in now."""
        until = self._banned.get(node_id)
        if until is None:
            return False
        if until > self._state.now:
            return True
        del self._banned[node_id]
        return False

    def clear(self) -> None:
        """Drop every attempt and every ban."""
        self.attempts.clear()
        self._banned.clear()
