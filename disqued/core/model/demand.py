"""Demand of other nodes: which of them have consumers waiting for a queue, and for how many jobs.

A want lives as long as its node may take to say so again, or until so many jobs have been brought.  Wants of one queue
are kept in the order in which their nodes asked, those behind which consumers wait before those of consumers that come
and look; who has been brought something goes to the end.

Other nodes decide how many wants there are, so they are bounded in bytes: of a node with too many the oldest is
forgotten, and when all nodes together have too many, new ones are not remembered.  That costs time and no job: who is
not brought jobs asks again.

Times are integer milliseconds.
"""

from typing import TypeVar

from disqued.core.model.queues import Queue

Entry = TypeVar("Entry")
LIVES_MS = 35_000  #: longer than the longest time between two broadcasts
WANT_COST = 400  #: bytes of a want without its name: object, places in the tables
GROUP_COST = 60  #: bytes of each group in it, without its name
NODE_BYTES_MAX = 1 << 20
BYTES_MAX = 16 << 20


class JobDemand:
    """So many jobs of a queue, for a node."""

    __slots__ = ("count", "until", "waits", "without")

    def __init__(self, count: int, until: int, *, waits: bool, without: tuple[bytes, ...] = ()) -> None:
        self.count: int = count
        self.without: tuple[bytes, ...] = without  #: groups that the node does not want: their jobs wait there
        self.waits: bool = waits  #: consumers are waiting; False: they polled, and may poll again
        self.until: int = until  #: when it is forgotten


class EntryDemand:
    """Another node has consumers of a group that want entries of a stream."""

    __slots__ = ("is_told", "until")

    def __init__(self, until: int) -> None:
        self.until: int = until  #: when it is forgotten
        self.is_told: bool = False  #: the node knows that there are some


class RemoteDemand:
    """What other nodes want of this one."""

    __slots__ = ("entries", "giving", "jobs", "listeners")

    def __init__(self) -> None:
        #: Queues that consumers of other nodes want jobs of: {name: {node id: want}}; kept by `federation`.
        self.jobs: dict[bytes, dict[bytes, JobDemand]] = {}
        #: Streams that consumers of other nodes want entries of: {queue: {group: {node id: want}}}; kept by `offers`.
        self.entries: dict[bytes, dict[bytes, dict[bytes, EntryDemand]]] = {}
        #: Ids of the nodes with subscribers, this one included; kept by `notifications`.
        self.listeners: dict[bytes, None] = {}
        #: Queues that got jobs which other nodes want; served at the end of the step, after the own consumers.
        self.giving: dict[Queue, None] = {}


class DemandTable:
    """Every want that is remembered."""

    __slots__ = ("_by_name", "_by_node", "_oldest", "_sizes", "size")

    def __init__(self, by_name: dict[bytes, dict[bytes, JobDemand]]) -> None:
        """Keep the wants in that table: {queue: {node: want}}."""
        self._by_name = by_name
        self._by_node: dict[bytes, dict[bytes, None]] = {}  #: {node: queues}, renewed longest ago first
        self._oldest: dict[tuple[bytes, bytes], JobDemand] = {}  #: {(queue, node): want}, in the same order
        self._sizes: dict[bytes, int] = {}
        self.size = 0  #: bytes, as they are counted

    def __len__(self) -> int:
        return len(self._oldest)

    def note(
        self, name: bytes, node_id: bytes, count: int, now: int, *, waits: bool, without: tuple[bytes, ...] = ()
    ) -> JobDemand:
        """Take note of a want, which is remembered if there is room for it; a newer one replaces an older one."""
        self._forget_old(now)
        want = JobDemand(count, now + LIVES_MS, waits=waits, without=without)
        cost = _cost(name, want)
        before = self._oldest.pop((name, node_id), None)
        if before is not None:
            # One that is renewed keeps its place among those of the queue.
            self._grow(node_id, -_cost(name, before))
            _take_out(self._by_node, node_id, name)
        if cost > NODE_BYTES_MAX or not self._make_room(node_id, cost):
            if before is not None:
                _take_out(self._by_name, name, node_id)
            return want
        self._grow(node_id, cost)
        self._by_name.setdefault(name, {})[node_id] = want
        self._by_node.setdefault(node_id, {})[name] = None
        self._oldest[name, node_id] = want
        return want

    def met(self, name: bytes, node_id: bytes, count: int) -> None:
        """So many jobs have been brought: the others of the queue come first now."""
        want = self._by_name.get(name, {}).get(node_id)
        if want is None:
            return
        want.count -= count
        if want.count <= 0:
            self.forget(name, node_id)
        else:
            nodes = self._by_name[name]
            nodes[node_id] = nodes.pop(node_id)

    def brought(self, name: bytes, node_id: bytes) -> None:
        """A node has brought jobs of a queue: no consumer waits for them there, and one may look."""
        want = self._by_name.get(name, {}).get(node_id)
        if want is not None:
            want.waits, want.count = False, 1

    def forget(self, name: bytes, node_id: bytes) -> None:
        """Forget a want, if there is one."""
        want = self._oldest.pop((name, node_id), None)
        if want is None:
            return
        self._grow(node_id, -_cost(name, want))
        _take_out(self._by_name, name, node_id)
        _take_out(self._by_node, node_id, name)

    def _make_room(self, node_id: bytes, cost: int) -> bool:
        """Forget the oldest wants of a node with too many; return whether there is room for one more."""
        while self._sizes.get(node_id, 0) + cost > NODE_BYTES_MAX:
            self.forget(next(iter(self._by_node[node_id])), node_id)
        return self.size + cost <= BYTES_MAX

    def _grow(self, node_id: bytes, size: int) -> None:
        self.size += size
        self._sizes[node_id] = self._sizes.get(node_id, 0) + size
        if not self._sizes[node_id]:
            del self._sizes[node_id]

    def of_queue(self, name: bytes, now: int) -> list[tuple[bytes, JobDemand]]:
        """The wants of a queue with their nodes, in the order in which they are to be met: who waits comes first."""
        self._forget_old(now)
        return sorted(self._by_name.get(name, {}).items(), key=_is_patient)

    def of_node(self, node_id: bytes) -> list[bytes]:
        """The queues that a node wants jobs of."""
        return list(self._by_node.get(node_id, ()))

    def _forget_old(self, now: int) -> None:
        while self._oldest:
            (name, node_id), want = next(iter(self._oldest.items()))
            if want.until > now:
                return
            self.forget(name, node_id)


def _is_patient(entry: tuple[bytes, JobDemand]) -> bool:
    return not entry[1].waits


def _cost(name: bytes, want: JobDemand) -> int:
    return WANT_COST + len(name) + sum([GROUP_COST + len(group) for group in want.without])


def _take_out(table: dict[bytes, dict[bytes, Entry]], key: bytes, inner: bytes) -> None:
    """Take an entry out of a table of tables, and its table when that is empty then."""
    entries = table[key]
    del entries[inner]
    if not entries:
        del table[key]
