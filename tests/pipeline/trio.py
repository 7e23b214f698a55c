"""Three nodes that tests kill, and start again, named by the place of their ids."""

from collections.abc import Sequence

import attrs

from tests.integration.cluster import Cluster
from tests.integration.daemon import HOST, Daemon


@attrs.frozen
class Trio:
    """Nodes in the order of their ids, in which the connector asks them."""

    cluster: Cluster

    def _number(self, place: int) -> int:
        return sorted(range(3), key=lambda number: self.cluster.ids[number])[place]

    def __getitem__(self, place: int) -> Daemon:
        return self.cluster.nodes[self._number(place)]

    def kill(self, place: int) -> None:
        """End a node as a power cut would."""
        self.cluster.kill(self._number(place))

    def wait_lost(self, place: int) -> None:
        """Wait until the others know that a node is away."""
        self.cluster.wait_lost(self._number(place))

    def restart(self, place: int) -> None:
        """Start it again."""
        self.cluster.restart(self._number(place))

    def all(self) -> list[Daemon]:
        """The three of them."""
        return [self[place] for place in range(3)]


def addresses(nodes: Sequence[Daemon]) -> str:
    """Write the addresses of nodes as the option `address` has them."""
    return ",".join(f"{HOST}:{node.port}" for node in nodes)
