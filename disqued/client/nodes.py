"""Which node to talk to.

    seeds --> HELLO of the first that answers --> all nodes, each with a priority (with sockets alone: those)
                                                   |
    broken, refused --> closed for a while         +--> the best that is open, kept while it is one of the best
                        0.1 s, 0.2 s ... 10 s      +--> the node that most of our jobs come from

A job id names the node that it was added on.  A consumer whose jobs mostly come from one other node is better off
there: nothing has to travel.  So the origins of the last jobs are counted, and more than half decides.

Instants and spans are seconds, on a clock that is passed in.  Source: the Disque README, "Client libraries".
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

import attrs

from disqued.client.addresses import Address, Socket, written
from disqued.client.job import ORIGIN_LENGTH, Topology

PRIORITY_FINE: Final = 1
PRIORITY_LEAVING: Final = 100
FIRST_CLOSED_S: Final = 0.1
LAST_CLOSED_S: Final = 10.0
DOUBLINGS: Final = 10  #: more do not matter
HELLO_EVERY_S: Final = 30.0
JOBS_COUNTED: Final = 64  #: after so many jobs it is decided whether to move


@attrs.define(eq=False)
class Node:
    """A node, as far as this client knows it."""

    address: Address
    id: bytes = b""  #: known once it has answered, or another one has told
    priority: int = PRIORITY_FINE
    #: Where others say that it is, or where it was before it was looked for there.
    elsewhere: Address | None = None
    is_seed: bool = False
    failures: int = 0  #: in a row
    open_at: float = float("-inf")  #: until when it is not asked
    hello_at: float = float("-inf")  #: when it is to be asked for the others
    error: Exception | None = None  #: what went wrong last, while it fails


class Nodes:
    """All nodes of the cluster, and the one that is talked to."""

    def __init__(self, seeds: Iterable[Address], rng: Random, hello_every: float = HELLO_EVERY_S) -> None:
        """Begin with addresses, one at least."""
        self._all = [Node(address, is_seed=True) for address in dict.fromkeys(seeds)]
        #: Sockets are of one machine: without a host among the addresses nothing says that others can be reached.
        self._follows = any(not isinstance(node.address, Socket) for node in self._all)
        self._rng = rng
        self._hello_every = hello_every
        self._origins: Counter[bytes] = Counter()
        self.current: Node | None = None

    def addresses(self) -> set[Address]:
        """The addresses of all nodes."""
        return {node.address for node in self._all}

    def tell(self) -> str:
        """Say what is wrong with each node, for people."""
        return "; ".join(f"{written(node.address)}: {node.error or 'not asked'}" for node in self._all)

    # Choosing.

    def choose(self, now: float, near: bytes = b"", without: Sequence[Node] = ()) -> Node | None:
        """Name the node to ask: the one that is near if it is sound, else the current one or a better one.

        None when none is open; `opens_at` says when one will be.
        """
        open_ = [node for node in self._all if node.open_at <= now and node not in without]
        if not open_:
            return None
        if near:
            for node in open_:
                if node.id == near and node.failures == 0 and node.priority < PRIORITY_LEAVING:
                    return node
        best = min((node.failures > 0, node.priority) for node in open_)
        good = [node for node in open_ if (node.failures > 0, node.priority) == best]
        if self.current in good:
            return self.current
        sockets = [node for node in good if isinstance(node.address, Socket)]
        chosen = self._rng.choice(sockets or good)
        if not without:
            self._move(chosen)
        return chosen

    def opens_at(self, without: Sequence[Node] = ()) -> float:
        """When a node will be open again; never when all are excepted."""
        return min((node.open_at for node in self._all if node not in without), default=float("inf"))

    def _move(self, node: Node) -> None:
        if self.current is not node:
            self.current = node
            self._origins.clear()

    # What nodes do.

    def failed(self, node: Node, now: float, error: Exception | None = None) -> None:
        """Leave a node alone for a while: it cannot be reached, does not answer or cannot help."""
        node.error = error or node.error
        if now < node.open_at:
            return  # others that asked it have said so
        span = min(FIRST_CLOSED_S * 2 ** min(node.failures, DOUBLINGS), LAST_CLOSED_S)
        node.failures += 1
        # Not all clients of a node that comes back at the same moment.
        node.open_at = now + span * self._rng.uniform(0.75, 1.25)
        node.hello_at = float("-inf")
        if node.elsewhere is not None and self._follows and not isinstance(node.address, Socket):
            node.address, node.elsewhere = node.elsewhere, node.address

    def worked(self, node: Node) -> None:
        """Note that a node has answered."""
        node.failures, node.error = 0, None

    def leaves(self, node: Node) -> None:
        """Note that a node has said that it is leaving; a later HELLO may say otherwise."""
        node.priority = PRIORITY_LEAVING
        node.hello_at = float("-inf")

    def wants_hello(self, node: Node, now: float) -> bool:
        """Say whether to ask a node for the others first; true once, until its answer is old."""
        if now < node.hello_at:
            return False
        node.hello_at = now + self._hello_every
        return True

    def heard(self, node: Node, topology: Topology, now: float) -> None:
        """Take what a node has said about all of them.

        The address that it was reached at stays its own: the one that it knows itself by may be of another network.
        One that fails there is looked for where others say that it is, and then where it was, in turn.
        """
        node.id = topology.id
        known = {each.id: each for each in self._all if each.id}
        known[node.id] = node
        for told in topology.nodes:
            if (each := known.get(told.id)) is not None:
                if each is not node and told.host and (told.host, told.port) != each.address:
                    each.elsewhere = told.host, told.port
                each.priority = told.priority
                if told.priority == PRIORITY_FINE and each.open_at <= now:
                    each.failures = 0  # it is back
            elif told.host and self._follows:
                self._add(told.id, (told.host, told.port), told.priority)
        # Another entry for the one that answered has an address that it was not reached at.
        others = {told.id for told in topology.nodes if told.id != node.id}
        self._all = [each for each in self._all if each.is_seed or each is node or each.id in others]

    def _add(self, id_: bytes, address: Address, priority: int) -> None:
        for node in self._all:
            if node.address == address:  # a seed that has not answered yet, or a node in the place of another one
                node.id, node.priority = id_, priority
                return
        self._all.append(Node(address, id_, priority))

    # Following the jobs.

    def took(self, origins: Iterable[bytes]) -> None:
        """Count where jobs were added that the current node has handed out, and move to where most of them were."""
        self._origins.update(origins)
        total = self._origins.total()
        if total < JOBS_COUNTED or self.current is None:
            return
        (origin, count), *_ = self._origins.most_common(1)
        self._origins.clear()
        if count * 2 <= total or self.current.id.startswith(origin):
            return
        for node in self._all:
            if node.id[:ORIGIN_LENGTH] == origin and node.failures == 0 and node.priority <= self.current.priority:
                self._move(node)
                return
