"""Which nodes have the copies of a job, and which nodes refuse them.

    copies wanted --> one is this node's, if it takes one; the others are drawn among the nodes that can be reached

A copy on this node counts, unless the node takes none: because memory is low, or because it is leaving.

A known node without a link counts until it is suspected (PFAIL): an addition waits for it, and it gets its copy as soon
as it is back.  So a restart that is shorter than the producer's time-out refuses nothing.  ASYNC cannot wait: for that,
and for the default number of copies, the nodes count that can be reached now.

Source: Disque, src/job.c; the Disque README, "Jobs replication strategy".
"""

from itertools import count

from disqued.core.model.machine import Machine
from disqued.core.model.peers import FULL, LEAVING
from disqued.core.model.state import State
from disqued.errors import NotReplicated, QueueTooLong

DEFAULT_COPIES = 3  #: copies wanted when the producer does not say, as far as there are nodes

_EPOCHS = count()
JOINED_KEPT = 64  #: sets of nodes of which it is remembered what they are with one node more, for each such node
JOINED_SIZE = 16  #: nodes of such a set, at most
REFUSALS_SHOWN = 5  #: nodes that take no copies, in an error

TIMED_OUT = "Timeout reached before replicating to the requested number of nodes"
_OF_QUEUE = " - QPOLICY of the queue says"
_LEAVES = "is leaving the cluster"
_IS_FULL = "takes no copies now: its memory is low, or it cannot write its journal"


def timed_out(state: State) -> NotReplicated:
    """Make the error for copies that did not come in time, which names nodes that may be too old for them."""
    return NotReplicated("; ".join((TIMED_OUT, *older_nodes(state)[:REFUSALS_SHOWN])))


def naming_policy(error: NotReplicated, state: State, queue: bytes, replicate: int) -> NotReplicated:
    """Return an error that names the policy of the queue, if that asks for so many copies."""
    defaults = state.queues.policies.defaults.get(queue)
    if defaults is None or defaults.replicate != replicate:
        return error
    return NotReplicated(f"{error.text}{_OF_QUEUE} REPLICATE {replicate}")


def too_long(state: State, queue: bytes, maxlen: int) -> QueueTooLong:
    """Make the error for a queue that is full, which names the policy of the queue, if that says so."""
    defaults = state.queues.policies.defaults.get(queue)
    if defaults is None or defaults.maxlen != maxlen:
        return QueueTooLong()
    return QueueTooLong(f"{QueueTooLong.__doc__}{_OF_QUEUE} MAXLEN {maxlen}")


def older_nodes(state: State) -> list[str]:
    """Describe the nodes that end every link soon: an older version does so when it does not know a message."""
    return [
        f"node {peer.id[:8].decode('ascii')} (version {peer.version}) keeps ending its link to this node, and may be of"
        " a version that does not know this job or a setting of the cluster"
        for peer in state.peers.by_id.values()
        if peer.ends_links(state.now)
    ]


class Places:
    """Where jobs with copies go while there is nothing to draw: to each node that can be reached."""

    __slots__ = ("chosen", "confirmed", "holders", "node_id", "own", "reachable")

    def __init__(
        self, node_id: bytes, reachable: tuple[bytes, ...], confirmed: frozenset[bytes], holders: frozenset[bytes], *,
        own: bool,
    ) -> None:  # fmt: skip
        self.node_id: bytes = node_id  #: of this node
        self.reachable: tuple[bytes, ...] = reachable
        self.own: bool = own  #: this node has one of the copies
        self.chosen: list[bytes] = list(reachable)  #: never changed
        self.confirmed: frozenset[bytes] = confirmed  #: before anybody has answered
        self.holders: frozenset[bytes] = holders


class Placement(Machine):
    """Chooses the nodes for copies, among those that can be reached and take some."""

    __slots__ = ("_joined", "_places", "_state", "epoch")

    def __init__(self, state: State) -> None:
        self._state = state
        #: Another number on each node, and whenever other nodes can be reached: what depends on that is made anew.
        self.epoch: int = next(_EPOCHS)
        self._places: Places | None = None  #: of the last job that went to all nodes
        #: Sets of nodes with one node more, by that one and by the set without it.
        self._joined: dict[bytes, dict[frozenset[bytes], frozenset[bytes]]] = {}

    def reachable_changed(self) -> None:
        """Make anew what depends on the nodes that can be reached."""
        self.epoch = next(_EPOCHS)
        self._joined.clear()

    def renew_options(self) -> None:
        """Let what commands remember of options be made anew: a setting that they depend on has changed."""
        self.epoch = next(_EPOCHS)

    @property
    def takes_no_copy(self) -> bool:
        """True while jobs are kept by other nodes alone: memory is low, or this node is leaving."""
        state = self._state
        return state.leaving or state.memory.used > state.memory.low_mark

    @property
    def default_copies(self) -> int:
        """Copies when the producer does not say how many: as many as can be made, three at most."""
        return max(1, min(DEFAULT_COPIES, (not self.takes_no_copy) + len(self._state.peers.reachable)))

    def check(self, replicate: int, *, waits: bool) -> None:
        """Refuse a job for which there are too few nodes.

        A node whose link is broken counts until it is suspected, where somebody waits: it may only be restarted.
        """
        state = self._state
        external = self.takes_no_copy
        missing = replicate - (0 if external else 1) - len(state.peers.reachable)
        if missing > 0 and waits:
            missing = replicate - (0 if external else 1) - state.peers.expected
        if missing <= 0:
            return
        state.counters.refused += 1
        if external and missing == 1:
            reason = "I'm leaving the cluster" if state.leaving else "I'm out of memory"
            raise NotReplicated(
                f"{NotReplicated.__doc__}, "
                f"since I'm unable to hold a copy of the message for the following reason: {reason}"
            )
        raise self.not_replicated()

    def not_replicated(self) -> NotReplicated:
        """Make the error for too few nodes, which names those that take no copies."""
        peers = self._state.peers.by_id.values()
        refusals = [
            f"node {peer.id[:8].decode('ascii')} {_LEAVES if peer.flags & LEAVING else _IS_FULL}"
            for peer in peers
            if peer.flags & (LEAVING | FULL)
        ]
        refusals += older_nodes(self._state)
        return NotReplicated("; ".join((f"{NotReplicated.__doc__}", *refusals[:REFUSALS_SHOWN])))

    @property
    def willing(self) -> set[bytes]:
        """Other nodes that have not said that they take no copies, those included that cannot be reached."""
        return {node_id for node_id, peer in self._state.peers.by_id.items() if not peer.flags & (FULL | LEAVING)}

    def places_for(self, copies: int) -> Places:
        """Find places for so many copies; the same object again where that is every node."""
        state = self._state
        node_id, reachable, own = state.node_id, state.peers.reachable, not self.takes_no_copy
        everywhere = len(reachable) <= copies - own
        known = self._places
        if (
            everywhere and known is not None
            and known.reachable is reachable and known.own == own and known.node_id is node_id
        ):  # fmt: skip
            return known
        chosen = reachable if everywhere else tuple(self.draw(copies - own, frozenset()))
        ours = (node_id,) if own else ()
        confirmed, holders = state.shared.holders(frozenset(ours)), state.shared.holders(frozenset((*chosen, *ours)))
        places = Places(node_id, chosen, confirmed, holders, own=own)
        if everywhere:
            self._places = places
        return places

    def draw(self, count: int, holders: frozenset[bytes]) -> list[bytes]:
        """Draw nodes that can be reached and are not among the holders; all of them when there are fewer."""
        others = [node_id for node_id in self._state.peers.reachable if node_id not in holders]
        if len(others) <= count:
            return others
        # As `sample` does, which takes 3 microseconds for two: it is made for other counts.
        random = self._state.numbers.rng.random
        return [others.pop(int(random() * len(others))) for _ in range(count)]

    def join(self, node_ids: frozenset[bytes], node_id: bytes) -> frozenset[bytes]:
        """A set of nodes with one more; there are few such sets, and every copy asks for one."""
        if len(node_ids) > JOINED_SIZE:
            return self._state.shared.holders(node_ids | {node_id})
        of_node = self._joined.get(node_id)
        if of_node is None or len(of_node) >= JOINED_KEPT:
            if len(self._joined) >= JOINED_KEPT:
                self._joined.clear()
            of_node = self._joined[node_id] = {}
        joined = of_node.get(node_ids)
        if joined is None:
            joined = of_node[node_ids] = self._state.shared.holders(node_ids | {node_id})
        return joined

    def is_exhausted(self, confirmed: frozenset[bytes]) -> bool:
        """Tell whether all nodes that could confirm have done so: the rest take no copies, or cannot be reached."""
        others = {node_id for node_id, peer in self._state.peers.linked.items() if not peer.flags}
        return others <= confirmed
