"""The other nodes as this one knows them: data alone, changed by `membership` and `failure_detector`.

Times are integer milliseconds of the monotonic clock, where they do not say otherwise.
"""

from collections.abc import Iterable
from typing import NamedTuple

from disqued.core.model.vitals import LastVitals

PFAIL = 1  #: no answer for too long, as far as this node can tell
FAIL = 2  #: a majority of nodes agrees
LEAVING = 4  #: it drains, and takes no new jobs
FULL = 8  #: it takes no copies now
FAILING = PFAIL | FAIL

TIMEOUT_MS = 15_000
#: How many node time-outs a silent node is waited for that the majority has not declared failed.
PATIENCE = 16
PEERS_MAX = 1_000  #: most nodes that a node knows, and most addresses that it tries
BRIEF_MS = 5_000  #: a link that lasts no longer is brief
BRIEF_MANY = 3  #: brief links in a row, of which
BRIEF_RECENT_MS = 60_000  #: the last one ended within this time: the other end does not take what this node sends
RUMOURS_MAX = PEERS_MAX // 10  #: in one message


class KnownNode(NamedTuple):
    """A node as CLUSTER NODES and nodes.conf show it; this one, too."""

    id: bytes
    host: str  #: empty = not known
    port: int  #: for clients
    bus_port: int
    flags: int = 0  #: PFAIL, FAIL, LEAVING
    ping_sent_at: int = 0  #: when the unanswered ping was sent, unix milliseconds; 0 = none
    pong_at: int = 0  #: when it last answered, unix milliseconds; 0 = never
    connected: bool = False  #: our link to it is open
    myself: bool = False
    met: bool = True  #: False: an address that is tried, not yet a known node
    account: LastVitals | None = None  #: its last vitals; None = none yet, or this node


class Peer:
    """Another node of the cluster."""

    __slots__ = (
        "account", "asked_again", "brief_at", "brief_links", "bus_port", "caught_up", "flags", "given", "given_lately",
        "heard_at", "heard_host", "host", "id", "linked", "linked_at", "ping_sent_at", "pong_at", "pong_wall", "port",
        "reports", "silent", "stale", "told_at",
    )  # fmt: skip

    def __init__(self, node_id: bytes, host: str, port: int, bus_port: int) -> None:
        self.id: bytes = node_id
        self.host: str = host  #: empty = unknown, since another node answers there
        #: The address that its link to us last came from, if it differs; empty = it does not.
        self.heard_host: str = ""
        self.port: int = port  #: for clients
        self.bus_port: int = bus_port
        self.flags: int = 0  #: PFAIL, FAIL, LEAVING, FULL
        self.linked: bool = False  #: our link to it is open: it can be written to
        self.linked_at: int = 0  #: when the link opened
        self.brief_links: int = 0  #: our links to it, in a row, that ended soon after they opened
        self.brief_at: int = 0  #: when the last of them ended
        self.told_at: int = 0  #: when this node last told it its state, as it seemed not to know it
        self.asked_again: bool = False  #: it was, on this link, when its own link to us had come about
        self.silent: bool = False  #: its link to us is new, and nothing has come on it yet
        #: True = our link to it is broken although it seems open: the bus replaces it.
        self.stale: bool = False
        #: When the unanswered ping was sent, or should have been without a link; 0 = none.
        self.ping_sent_at: int = 0
        self.pong_at: int = 0  #: when it last answered; 0 = never
        self.heard_at: int = 0  #: when its last message came, or it became known
        self.pong_wall: int = 0  #: the same, unix milliseconds
        self.account: LastVitals | None = None  #: its last vitals; None = none yet
        self.given: int = 0  #: bytes of jobs sent to it that its vitals do not include yet
        self.given_lately: int = 0  #: of these: since the last ping
        self.caught_up: int = 0  #: it has dealt with what this node said before then
        #: Nodes that suspect it, and when each last said so.
        self.reports: dict[bytes, int] = {}

    def note_end(self, now: int) -> None:
        """Note that our link to it has ended."""
        if now - self.linked_at > BRIEF_MS:
            self.brief_links = 0
            return
        self.brief_links = self.brief_links + 1 if now - self.brief_at <= BRIEF_RECENT_MS else 1
        self.brief_at = now

    def ends_links(self, now: int) -> bool:
        """Return whether our links to it keep ending soon after they open."""
        return self.brief_links >= BRIEF_MANY and now - self.brief_at <= BRIEF_RECENT_MS

    @property
    def version(self) -> str:
        """The version that it runs, or a question mark."""
        return "?" if self.account is None else self.account.vitals.version.decode("ascii")

    def move_to(self, host: str, port: int, bus_port: int) -> None:
        """Note another address; a link to the old one is to be replaced."""
        self.host, self.port, self.bus_port = host, port, bus_port
        self.heard_host = ""
        self.stale = self.linked


class Peers:
    """Every other node that this one knows; a node alone knows none."""

    __slots__ = ("by_id", "forgotten", "has_quorum", "linked", "reachable", "refused", "timeout_ms")

    def __init__(self) -> None:
        self.by_id: dict[bytes, Peer] = {}
        #: Ids of nodes that CLUSTER FORGET removed: nothing waits for them.
        self.forgotten: set[bytes] = set()
        #: Peers with an open link.
        self.linked: dict[bytes, Peer] = {}
        #: Sorted ids of the nodes that can take copies now: linked, heard from, not leaving, not suspected.
        self.reachable: tuple[bytes, ...] = ()
        #: A majority, this node included, is linked and not suspected; kept by `failure_detector`.
        self.has_quorum: bool = True
        self.timeout_ms: int = TIMEOUT_MS  #: cluster-node-timeout: silence after which a node is suspected
        self.refused: int = 0  #: messages of unknown nodes, which were ignored

    @property
    def expected(self) -> int:
        """Count the nodes that take copies, or will once there is a link: known, and not suspected."""
        return sum(not peer.flags for peer in self.by_id.values())

    @property
    def majority(self) -> int:
        """Count the nodes that are the most of the cluster, this one among them."""
        return (len(self.by_id) + 1) // 2 + 1

    def awaited(self, node_ids: Iterable[bytes], asked_at: int, now: int) -> frozenset[bytes]:
        """Choose the nodes whose answer to a question is worth waiting for, link or not.

        Most nodes can agree that one has failed, and it is not waited for.  A node that does not hear most others may
        be the one that is cut off: it waits until it has heard nothing for `PATIENCE` time-outs, and not longer for
        any answer.
        """
        since = now - PATIENCE * self.timeout_ms
        if asked_at <= since:
            return frozenset()
        return frozenset([node_id for node_id in node_ids if self._may_answer(node_id, since)])

    def _may_answer(self, node_id: bytes, since: int) -> bool:
        peer = self.by_id.get(node_id)
        if peer is None or peer.heard_at <= since or (peer.flags & FAIL and self.has_quorum):
            return False
        # One that said that it leaves, and is gone, has given away what it had.
        return not (peer.flags & LEAVING and peer.flags & PFAIL)

    @property
    def may_lack_holders(self) -> bool:
        """Return whether a known node that may hold jobs has no link; one that leaves and is gone gave them away."""
        if not self.is_one_away:
            return False
        away = [peer for peer in self.by_id.values() if not peer.linked]
        return any(not (peer.flags & LEAVING and peer.flags & (PFAIL | FAIL)) for peer in away)

    @property
    def is_one_away(self) -> bool:
        """Tell whether some node that is known cannot be written to."""
        return len(self.linked) < len(self.by_id)
