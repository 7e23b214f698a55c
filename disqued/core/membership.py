"""Who is in the cluster: meeting, gossip, and the opinion of each node about the others.

Source: Disque, src/cluster.c.
"""

from collections.abc import Callable

from disqued.core.messages import Greeting, Message, Target
from disqued.core.schedule import Timed
from disqued.core.state import State


class Membership(Timed):
    """The machine behind CLUSTER, and what the bus asks where to go."""

    __slots__ = ("_on_reachable", "_state")

    def __init__(self, state: State, on_reachable: Callable[[], None]) -> None:
        self.awake_at = 0
        self._state = state
        self._on_reachable = on_reachable  #: called after `state.peers.reachable` has changed

    def due(self) -> None:
        """Ping, suspect, give up: whatever the time asks for."""

    def targets(self) -> list[Target]:
        """Where links shall lead to, now."""
        return []

    def link_opened(self, target: Target, greeting: Greeting, own_host: str) -> bool:
        """Our link to a target is proven; say whether it is wanted."""
        return False

    def link_closed(self, node_id: bytes) -> None:
        """Our link to a node is gone."""

    def greeted(self, greeting: Greeting, host: str, own_host: str) -> None:
        """Somebody's link to us, from this address to that one of ours, is proven."""

    def on_ping(self, sender: bytes, message: Message) -> None:
        """Answer, and listen to the rumours."""

    def on_pong(self, sender: bytes, message: Message) -> None:
        """Note that a node answers."""

    def on_fail(self, sender: bytes, message: Message) -> None:
        """Hear that most nodes find that one has failed."""
