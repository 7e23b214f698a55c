"""The links of one process to other nodes: which there are, and the attempts to open more.

    follow    what the membership says --> links closed that lead to the wrong place, dials begun for those that lack
    opened    a dial has succeeded     --> a link that takes messages
    lose      a link has broken        --> its node learns of it (`on_lost`), and `follow` has it dialed again

`testing/network.py` carries what a link takes; here is what `net/cluster/links.py` does for the daemon.
"""

from collections.abc import Callable

from disqued.core.model.messages import Message, Target
from disqued.core.node import Node
from disqued.core.turn import Messages
from disqued.testing.clock import NodeClock
from disqued.testing.network import Dial, SimLink


class SimLinks:
    """The open links of one process, at most one to each node, and its dials."""

    def __init__(
        self, node: Node, clock: NodeClock, dial: Callable[[Target], Dial], on_lost: Callable[[bytes], None]
    ) -> None:
        """`dial` begins to open a link; `on_lost` receives the id of each node whose link has ended."""
        self._node = node
        self._clock = clock
        self._dial = dial
        self._on_lost = on_lost
        self._open: dict[bytes, SimLink] = {}  #: by node id
        self._dials: dict[Target, Dial] = {}

    def __len__(self) -> int:
        return len(self._open)

    def follow(self) -> None:
        """Close links that lead elsewhere than the membership says, and dial nodes that have none."""
        targets = self._node.membership.targets()
        wanted = {target.id: target for target in targets if target.id}
        for peer_id, link in list(self._open.items()):
            target = wanted.get(peer_id)
            peer = self._node.state.peers.by_id.get(peer_id)
            if target is None or peer is None or peer.stale or (target.host, target.bus_port) != link.where:
                self.lose(link)
        missing = [target for target in targets if not target.id or target.id not in self._open]
        for target in [target for target in self._dials if target not in missing]:
            self._dials.pop(target).is_over = True
        for target in missing:
            if target not in self._dials:
                self._dials[target] = self._dial(target)

    def opened(self, dial: Dial, link: SimLink) -> None:
        """Take a link that a dial has opened."""
        dial.is_over = True
        self._dials.pop(dial.target, None)
        self._open[link.peer_id] = link
        link.open()

    def lose(self, link: SimLink) -> None:
        """Close a link, with the loss of what is under way."""
        link.close(loses=True)
        if self._open.get(link.peer_id) is link:
            del self._open[link.peer_id]
            self._on_lost(link.peer_id)

    def send(self, messages: Messages) -> None:
        """Send each message on the link to its node; messages to nodes without a link are dropped."""
        batches: dict[bytes, list[Message]] = {}
        for peer_id, message in messages:
            batch = batches.get(peer_id)
            if batch is None:
                batches[peer_id] = [message]
            else:
                batch.append(message)
        self._node.state.now = self._clock.now()
        for peer_id, batch in batches.items():
            link = self._open.get(peer_id)
            if link is not None:
                link.send(batch)

    def close(self) -> None:
        """End with the process: close all links, of which what is under way still arrives, and stop dialing."""
        for dial in self._dials.values():
            dial.is_over = True
        for link in self._open.values():
            link.close(loses=False)
        self._dials.clear()
        self._open.clear()
