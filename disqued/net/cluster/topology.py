"""Topology changes: updates links and nodes.conf, and logs what changed.

The core says that something has changed, and not what; what the log has to tell is found by comparing with what it told
last.  nodes.conf is written apart, at most every `SAVE_PAUSE_S`.  Only that a node is new is written down before this
one says another word, to whomever: a node that is killed as soon as the others see it comes back as the one that they
know.  It happens once for each node, and the loop waits for the disk meanwhile.
"""

from typing import Any, Final

from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued.core.model.peers import FAIL, FAILING, FULL, LEAVING, PFAIL, Peer
from disqued.core.node import Node
from disqued.net.cluster.bus import Bus
from disqued.net.cluster.identity import Identity, IdentityError

SAVE_PAUSE_S: Final = 0.1  #: pause between two writes of nodes.conf


class Topology:
    """Follows what one node knows of the others."""

    log = Logger()

    def __init__(self, node: Node, bus: Bus, identity: Identity, reactor: Any) -> None:
        self._node = node
        self._bus = bus
        self._identity = identity
        self._reactor = reactor
        self._save_call: IDelayedCall | None = None
        self._saved_at = -SAVE_PAUSE_S
        self._known: frozenset[bytes] = frozenset()  #: ids of the nodes written last
        self._told: dict[bytes, str] = {}  #: last state logged for each node
        self._leaving_told = ""
        self._twin_told = ""

    def changed(self) -> None:
        """Follow."""
        self._bus.follow_soon()
        self._tell_of_nodes()
        self._tell_of_leaving()
        self._tell_of_twin()
        known = frozenset(self._node.state.peers.by_id)
        if not known <= self._known:
            self._save_newcomers()
        self._known = known
        if self._save_call is None:
            pause_s = max(0.0, self._saved_at + SAVE_PAUSE_S - self._reactor.seconds())
            self._save_call = self._reactor.callLater(pause_s, self._save)

    def stop(self) -> None:
        """Write what is not written yet."""
        if self._save_call is not None:
            self._save_call.cancel()
            self._save()

    # The file.

    def _save_newcomers(self) -> None:
        try:
            self._identity.save()
        except IdentityError as error:
            self._cannot_save(str(error))

    def _save(self) -> None:
        self._save_call = None
        self._saved_at = self._reactor.seconds()
        maybeDeferred(lambda: self._identity.save_members(self._node)).addErrback(self._not_saved)

    def _not_saved(self, failure: Failure) -> None:
        self._cannot_save(failure.getErrorMessage())

    def _cannot_save(self, reason: str) -> None:
        self.log.error("What is known of the cluster is not saved: {reason}", reason=reason)

    # The log.

    def _tell_of_nodes(self) -> None:
        peers = self._node.state.peers.by_id
        for node_id in [node_id for node_id in self._told if node_id not in peers]:
            del self._told[node_id]
            self.log.info("Node {id} is forgotten", id=node_id.decode("ascii"))
        for node_id, peer in peers.items():
            is_now = _condition(peer)
            was = self._told.get(node_id)
            if is_now != was:
                self._told[node_id] = is_now
                self._tell_of_node(peer, was)

    def _tell_of_node(self, peer: Peer, was: str | None) -> None:
        told = "Node {id} at {host}, port {port}, {condition}"
        facts = {"id": peer.id.decode("ascii"), "host": peer.host, "port": peer.port}
        if was is None:
            self.log.info(told, condition="is known now", **facts)
        elif peer.flags & FAILING:
            self.log.warn(told, condition=_condition(peer), **facts)
        else:
            self.log.info(told, condition=_condition(peer), **facts)

    def _tell_of_leaving(self) -> None:
        leaving = self._node.leaving
        now = leaving.problem
        if self._node.state.leaving and leaving.is_safe:
            now = "safe"
        if now == self._leaving_told:
            return
        self._leaving_told = now
        if now == "safe":
            self.log.info("This node is leaving, and nothing is lost when it is stopped now")
        elif now:
            self.log.info("This node is leaving and must not be stopped yet: {problem}", problem=now)

    def _tell_of_twin(self) -> None:
        twin = self._node.membership.own_address.twin
        if twin and twin != self._twin_told:
            self.log.error(
                "The node at {address} says that it has the id of this one: was its folder copied? Give one of the two"
                " a new id with CLUSTER RESET HARD, which also forgets its jobs",
                address=twin,
            )
        self._twin_told = twin


def _condition(peer: Peer) -> str:
    """What the log says of a node."""
    if peer.flags & FAIL:
        return "has failed: most nodes say so"
    if peer.flags & PFAIL:
        return "does not answer"
    if peer.flags & LEAVING:
        return "is leaving"
    return "takes no copies now, its memory is low or its journal fails" if peer.flags & FULL else "answers"
