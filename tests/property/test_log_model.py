"""The commands on logs of a lone node against a model of them that keeps everything in plain lists.

The model knows no index, no position and no counter: it looks at every event each time, and at the facts alone.  Events
have different lives, so that anything ends at any time: in progress, in redo, done, never seen.
"""

from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from disqued.commands.table import BLOCKED
from disqued.core.recovery import Recovery, walk
from disqued.wire.jobdump import decode_record, encode_event, encode_job
from tests.core_fixtures import Server, check

QUEUES = [b"a", b"b"]
GROUPS = [b"g", b"h", b""]
CLIENTS = ["anna", "ben", "cleo"]

queue_names = st.sampled_from(QUEUES)
group_names = st.sampled_from(GROUPS)
lives = st.sampled_from([1, 200, 1_000, 1_001, 3_000, 30_000, 100_000])
leases = st.sampled_from([0, 1, 64, 500, 1_000, 2_000, 50_000])
spans = st.sampled_from([0, 1, 63, 64, 100, 499, 500, 999, 1_000, 1_001, 2_000, 5_000, 61_000])


@attrs.define(eq=False)
class Lease:
    """What a group has of an event, or had."""

    until: int
    front: int = 0  #: place before all others; a higher one is before a lower one
    held: bool = True


@attrs.define(eq=False)
class Entry:
    """An event."""

    number: int
    id: bytes
    queue: bytes
    visible_at: int
    expires_at: int
    done: set[bytes] = attrs.field(factory=set)
    leases: dict[bytes, Lease] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Waiting:
    """A consumer that waits; of those of a group the first one comes first."""

    client: str
    queue: bytes
    group: bytes
    lease_ms: int
    until: int


def seconds(ms: int) -> str:
    return f"{ms // 1_000}.{ms % 1_000:03d}"


class LogMachine(RuleBasedStateMachine):
    """Compares each answer with the model's."""

    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.entries: list[Entry] = []  # oldest first
        self.waiting: list[Waiting] = []
        self.expected: dict[str, list[Any]] = {}
        self.fronts = 0
        self.restarts = 0

    @property
    def now(self) -> int:
        return self.server.clock.now()

    # The model.

    def live(self, queue: bytes) -> list[Entry]:
        return [
            entry for entry in self.entries if entry.queue == queue and entry.visible_at <= self.now < entry.expires_at
        ]

    def stand(self, entry: Entry, group: bytes) -> str:
        if group in entry.done:
            return "done"
        lease = entry.leases.get(group)
        if lease is None:
            return "available"
        return "inprogress" if lease.held and self.now <= lease.until else "redo"

    def next(self, queue: bytes, group: bytes) -> Entry | None:
        """The event that the group is to get: given back ones, then by age."""

        def place(entry: Entry) -> tuple[int, int]:
            lease = entry.leases.get(group)
            return (-lease.front if lease is not None else 0, entry.number)

        waiting = [entry for entry in self.live(queue) if self.stand(entry, group) in ("redo", "available")]
        return min(waiting, key=place, default=None)

    def lease(self, entry: Entry, group: bytes, lease_ms: int) -> None:
        if lease_ms:
            entry.leases[group] = Lease(self.now + lease_ms)
        else:
            entry.leases.pop(group, None)
            entry.done.add(group)

    def serve(self) -> None:
        """Give what there is to those who wait."""
        for waiting in list(self.waiting):
            entry = self.next(waiting.queue, waiting.group)
            if entry is not None:
                self.waiting.remove(waiting)
                self.lease(entry, waiting.group, waiting.lease_ms)
                self.expected.setdefault(waiting.client, []).append([entry.id, b"%d" % entry.number])

    def free(self) -> list[str]:
        return [client for client in CLIENTS if client not in {waiting.client for waiting in self.waiting}]

    # Rules.

    @rule(queue=queue_names, life=lives, delay=st.sampled_from([0, 0, 0, 1, 700]))
    def add(self, queue: bytes, life: int, delay: int) -> None:
        number = len(self.entries)
        words = ("DELAY", seconds(delay)) if 0 < delay < life else ()
        event_id = self.server("QADD", queue, seconds(life), number, *words)
        visible_at = self.now + (delay if words else 0)
        self.entries.append(Entry(number, event_id, queue, visible_at, self.now + life))
        self.serve()

    @rule(queue=queue_names, group=group_names, lease_ms=leases)
    def get(self, queue: bytes, group: bytes, lease_ms: int) -> None:
        entry = self.next(queue, group)
        taken = self.server("QGET", queue, group, "EX", seconds(lease_ms), client="nobody else")
        assert taken == (None if entry is None else [entry.id, b"%d" % entry.number])
        if entry is not None:
            self.lease(entry, group, lease_ms)

    @precondition(lambda self: self.free())
    @rule(queue=queue_names, group=group_names, lease_ms=leases, block_ms=st.sampled_from([1, 100, 10_000]))
    def wait(self, queue: bytes, group: bytes, lease_ms: int, block_ms: int) -> None:
        client = self.free()[0]
        entry = self.next(queue, group)
        words = ("EX", seconds(lease_ms), "BLOCK", seconds(block_ms))
        taken = self.server("QGET", queue, group, *words, client=client)
        if entry is None:
            assert taken is BLOCKED
            self.waiting.append(Waiting(client, queue, group, lease_ms, self.now + block_ms))
        else:
            assert taken == [entry.id, b"%d" % entry.number]
            self.lease(entry, group, lease_ms)

    @precondition(lambda self: self.entries)
    @rule(data=st.data(), group=group_names)
    def acknowledge(self, data: st.DataObject, group: bytes) -> None:
        entry = data.draw(st.sampled_from(self.entries[-12:]))
        held = entry in self.live(entry.queue) and self.stand(entry, group) == "inprogress"
        journal = len(self.server.journal)
        assert self.server("QACK", entry.queue, group, entry.id) == held
        if held:
            del entry.leases[group]
            entry.done.add(group)
        else:
            assert len(self.server.journal) == journal, "a refused acknowledgement left a trace"

    @precondition(lambda self: self.entries)
    @rule(data=st.data(), group=group_names)
    def give_back(self, data: st.DataObject, group: bytes) -> None:
        entry = data.draw(st.sampled_from(self.entries[-12:]))
        held = entry in self.live(entry.queue) and self.stand(entry, group) == "inprogress"
        assert self.server("QGROUP", "RETURN", entry.queue, group, entry.id) == held
        if held:
            self.fronts += 1
            entry.leases[group] = Lease(0, front=self.fronts, held=False)
            self.serve()

    @rule(queue=queue_names, group=group_names, where=st.sampled_from(["FIRST", "NOW"]))
    def start(self, queue: bytes, group: bytes, where: str) -> None:
        self.server("QGROUP", "START", queue, group, where)
        for entry in self.entries:
            if entry.queue == queue:
                entry.leases.pop(group, None)
                entry.done.discard(group)
                if where == "NOW":
                    entry.done.add(group)  # also one whose delay is not over
        self.serve()

    @rule(queue=queue_names)
    def flush(self, queue: bytes) -> None:
        self.server("QFLUSH", queue)
        for entry in self.entries:
            if entry.queue == queue:
                entry.expires_at = 0
        self.server.advance(1)
        self.pass_time()

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.entries[-12:]))
        self.server("DELJOB", entry.id)
        entry.expires_at = 0

    @rule(ms=spans)
    def advance(self, ms: int) -> None:
        end = self.now + ms
        while True:
            moments = [waiting.until for waiting in self.waiting]
            for entry in self.entries:
                moments += [entry.visible_at, entry.expires_at]
                moments += [lease.until + 1 for lease in entry.leases.values() if lease.held]
            step = min((at for at in moments if self.now < at <= end), default=end)
            self.server.advance(step - self.now)
            self.pass_time()
            if step == end:
                return

    def pass_time(self) -> None:
        """What is due in one millisecond has no order: who is told that its time is up may have been served."""
        for waiting in [waiting for waiting in self.waiting if waiting.until <= self.now]:
            if self.server.answers[waiting.client][len(self.expected.get(waiting.client, [])) :] == [None]:
                self.waiting.remove(waiting)
                self.expected.setdefault(waiting.client, []).append(None)
        self.serve()

    @rule()
    def restart(self) -> None:
        """A crash: what the journal says is all that there is."""
        self.restarts += 1
        for waiting in list(self.waiting):
            self.server.gone(waiting.client)
        self.waiting.clear()
        server = Server(clock=self.server.clock, seed=1_000 + self.restarts)
        wall, now = self.server.clock.wall(), self.now
        recovery = Recovery(server.state, restores_queues=False)
        server.node.begin()
        server.state.journaling = False
        for record in list(walk(self.server.state)):
            assert record is not None
            data = encode_job(record[1], wall - now) if record[0] == 0 else encode_event(record, wall)
            recovery.apply(decode_record(data))
        server.state.journaling = True
        server.journal = [record for record in walk(server.state) if record is not None]
        server.answers = self.server.answers
        self.server = server
        for entry in self.entries:
            for lease in entry.leases.values():
                lease.front = 0  # a place at the front is not written down

    # What always holds.

    @invariant()
    def figures_are_those_of_the_facts(self) -> None:
        for queue in QUEUES:
            for group in GROUPS:
                [[_, [_, values]]] = self.server("QSTATUS", queue, "GROUPS", group)
                live = self.live(queue)
                stands = [self.stand(entry, group) for entry in live]
                wanted = [len(live), *(stands.count(name) for name in ("inprogress", "redo", "done", "available"))]
                assert values[1:10:2] == wanted, (queue, group)
                assert values[1] == sum(values[3:10:2])

    @invariant()
    def answers_are_those_of_the_model(self) -> None:
        assert {client: got for client, got in self.server.answers.items() if got} == self.expected

    @invariant()
    def it_is_consistent(self) -> None:
        check(self.server)


TestLogs = LogMachine.TestCase
