"""The nodes of the cluster, and which of them the client uses.

    seeds --> HELLO of the first that answers --> all nodes, each with a priority (with sockets alone: those)
                                                   |
    broken, refused --> closed for a while         +--> the best that is open, kept while it is one of the best
                        0.1 s, 0.2 s ... 10 s      +--> the node that most of our jobs come from

A job id names the node where the job was added.  A consumer whose jobs mostly come from one other node is better off
there: no job has to travel.  So the client counts the origins of the last jobs, and moves to a node that has more than
half of them.

Instants and durations are seconds; callers pass the time in.  Source: the Disque README, "Client libraries".
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

import attrs

from .addresses import Address, Socket, written
from .job import ORIGIN_LENGTH, Topology

PRIORITY_FINE: Final = 1
PRIORITY_LEAVING: Final = 100
FIRST_CLOSED_S: Final = 0.1
LAST_CLOSED_S: Final = 10.0
DOUBLINGS: Final = 10  #: more do not matter
HELLO_EVERY_S: Final = 30.0
JOBS_COUNTED: Final = 64  #: how many jobs are counted before the client decides to move


@attrs.define(eq=False)
class Node:
    """A node, as this client knows it."""

    address: Address
    id: bytes = b""  #: known once it, or another node, has reported it
    priority: int = PRIORITY_FINE
    #: Its other address: the one that other nodes report, or the one tried before that.
    elsewhere: Address | None = None
    is_seed: bool = False
    failures: int = 0  #: in a row
    open_at: float = float("-inf")  #: it is not used before
    hello_at: float = float("-inf")  #: when to send it the next HELLO
    error: Exception | None = None  #: the last failure, until it works again


class Nodes:
    """All known nodes of the cluster, and the current one."""

    def __init__(self, seeds: Iterable[Address], rng: Random, hello_every: float = HELLO_EVERY_S) -> None:
        """Take at least one address."""
        self._all = [Node(address, is_seed=True) for address in dict.fromkeys(seeds)]
        #: Whether to learn nodes: with Unix sockets alone, others may not be reachable.
        self._follows = any(not isinstance(node.address, Socket) for node in self._all)
        self._rng = rng
        self._hello_every = hello_every
        self._origins: Counter[bytes] = Counter()
        self.current: Node | None = None

    def addresses(self) -> set[Address]:
        """The addresses of all nodes."""
        return {node.address for node in self._all}

    def tell(self) -> str:
        """Return a text about the failures of all nodes."""
        return "; ".join(f"{written(node.address)}: {node.error or 'not asked'}" for node in self._all)

    # Choosing.

    def choose(self, now: float, near: bytes = b"", without: Sequence[Node] = ()) -> Node | None:
        """Choose a node: `near` if it works, else the current one or a better one.

        Returns None when no node is open; `opens_at` returns when one will be.
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
        """Return when a node will be open again; infinity when all are excluded."""
        return min((node.open_at for node in self._all if node not in without), default=float("inf"))

    def _move(self, node: Node) -> None:
        if self.current is not node:
            self.current = node
            self._origins.clear()

    # Outcomes.

    def failed(self, node: Node, now: float, error: Exception | None = None) -> None:
        """Avoid a node for a while: it cannot be reached, does not answer or cannot help."""
        node.error = error or node.error
        if now < node.open_at:
            return  # another command has reported it
        span = min(FIRST_CLOSED_S * 2 ** min(node.failures, DOUBLINGS), LAST_CLOSED_S)
        node.failures += 1
        # Spread the clients of a node that comes back.
        node.open_at = now + span * self._rng.uniform(0.75, 1.25)
        node.hello_at = float("-inf")
        if node.elsewhere is not None and self._follows and not isinstance(node.address, Socket):
            node.address, node.elsewhere = node.elsewhere, node.address

    def worked(self, node: Node) -> None:
        """Note that a node has answered."""
        node.failures, node.error = 0, None

    def leaves(self, node: Node) -> None:
        """Note that a node is leaving; a later HELLO may revoke it."""
        node.priority = PRIORITY_LEAVING
        node.hello_at = float("-inf")

    def wants_hello(self, node: Node, now: float) -> bool:
        """Return whether to send HELLO first; True once per interval."""
        if now < node.hello_at:
            return False
        node.hello_at = now + self._hello_every
        return True

    def heard(self, node: Node, topology: Topology, now: float) -> None:
        """Take a node's reply to HELLO, which names all nodes.

        The node keeps the address where it was reached, as its own idea of it may belong to another network.  A node
        that fails there is tried at the address that others report, and then at the old one, in turn.
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
                    each.failures = 0  # it works again
            elif told.host and self._follows:
                self._add(told.id, (told.host, told.port), told.priority)
        # Drop another entry of the node that answered: nobody reached it at that address.
        others = {told.id for told in topology.nodes if told.id != node.id}
        self._all = [each for each in self._all if each.is_seed or each is node or each.id in others]

    def _add(self, id_: bytes, address: Address, priority: int) -> None:
        for node in self._all:
            if node.address == address:  # a seed that has not answered yet, or a node that replaces another one
                node.id, node.priority = id_, priority
                return
        self._all.append(Node(address, id_, priority))

    # Following the jobs.

    def took(self, origins: Iterable[bytes]) -> None:
        """Count the origins of delivered jobs, and move to the node where most of them were added."""
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
