"""One simulated node: the real core and the real codecs, between a simulated disk, network and clock.

    client's command, batch of messages, greeting, timer --> a step of the node --> outbox
        at the end of the turn, which is the millisecond:  1 journal, commit   2 messages   3 replies

It does in virtual time what `disqued.net.driver` does on the reactor: what steps of one turn have journaled is
committed once; nobody hears of anything before that; when a commit fails, producers hear MISCONF, promises to other
nodes are not sent, and additions are refused until a commit succeeds again.

A process ends at any moment, also between the parts of the end of a turn (`dies_at`), and starts again from its disk.

Times are integer milliseconds; `boot` counts the processes of a node, so that what was meant for one that is gone is
not taken for news.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from disqued.commands import table
from disqued.commands.catalogue import MODULES  # enters the commands into the table
from disqued.commands.table import BLOCKED, Flag
from disqued.core.messages import DURABLE_ALONE, Greeting, Message, Target
from disqued.core.node import Node
from disqued.core.outbox import GONE_REFUSED, Record, promises
from disqued.core.peers import KnownNode
from disqued.core.recovery import Recovery, snapshot, walk
from disqued.errors import CommandError, JournalFailed, OutOfMemory
from disqued.persistence.interface import StoreFailed
from disqued.testing.clock import WALL_MS, NodeClock
from disqued.testing.disk import SimDisk
from disqued.testing.eventlog import SimEventLog
from disqued.testing.events import Events, generator
from disqued.testing.journal import ALWAYS, EVERYSEC, NO, NONE, SimJournal
from disqued.testing.network import Dial, Link, SimNetwork
from disqued.wire.messages import decode

assert MODULES

PORT = 7711
BUS_PORT = 17711
RETRY_MS = 1_000  #: pause between two attempts to commit, after one has failed
SECURED_MS = 7  #: what a sync takes that held jobs wait for
SYNC_MS = {EVERYSEC: 1_000, NO: 30_000}  #: when what was written is synced, by the store or by the system
BOOT_MS_MAX = 1 << 40  #: what a machine's monotonic clock may have counted when its node starts

#: Where the end of a turn may be cut short.
STAGES: Final = ("before the write", "before the sync", "before the messages", "before the replies")


class SimClient(Protocol):
    """A client as its node sees it."""

    is_gone: bool  #: it has broken its connection

    def __hash__(self) -> int:
        """Any: the core compares clients, and no more."""

    def answered(self, value: Any) -> None:
        """The reply to its command, or the error."""

    def lost(self) -> None:
        """The connection is broken."""


class SimServer:
    """A node with its process, disk and clocks; what is not running keeps its disk."""

    node: Node

    def __init__(
        self, events: Events, network: SimNetwork, number: int, seed: str, *,
        policy: str, maxmemory: int, timeout_ms: int, asked_at_once: int, on_loss: "Callable[[SimServer], None]",
    ) -> None:  # fmt: skip
        """Make a node that is not started; `on_loss` hears when a crash took something that was acknowledged."""
        self.events = events
        self.network = network
        self.number = number
        self.rng = generator(f"{seed} node {number}")
        self.id: bytes = b"%040x" % self.rng.getrandbits(160)
        self.host = f"127.0.1.{number + 1}"
        self.bus_port = BUS_PORT
        self.clock = NodeClock(events, 0)
        self.disk = SimDisk(generator(f"{seed} disk {number}"))
        self.policy = policy
        self.maxmemory = maxmemory
        self.timeout_ms = timeout_ms
        self.asked_at_once = asked_at_once
        self.boot: int = 0
        self.is_up: bool = False
        self.is_paused: bool = False
        self.dies_at: str | None = None  #: one of STAGES: there the power goes, in the next turn that commits
        self.on_life: Callable[[bool], None] = lambda serves: None  #: a process serves, or has ended
        self.on_death: Callable[[], None] = lambda: None
        self.commits: int = 0
        self.event_log: SimEventLog | None = None  #: None = nobody wants it
        self._on_loss = on_loss
        self.numbers: dict[bytes, int] = {}  #: of every node, by id
        self._members: list[KnownNode] = []  #: nodes.conf
        self._clear()

    def __repr__(self) -> str:
        return f"node {self.number}"

    def _clear(self) -> None:
        """Forget what a process has in its memory."""
        self.failure: str | None = None
        self.links: dict[bytes, Link] = {}
        self._dials: dict[Target, Dial] = {}
        self._clients: dict[SimClient, None] = {}
        self._backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._turn_open = False
        self._sync_planned = False
        self._timer_at = 0
        self._batch: list[Record] = []
        self._messages: list[tuple[bytes, Message]] = []
        #: Who is to hear what, and the jobs that leave with it.
        self._replies: list[tuple[SimClient, Any, list[bytes]]] = []

    # The process.

    def start(self, *, restores_queues: bool = False) -> None:
        """Start a process on what the disk has."""
        self.boot += 1
        self.clock.offset_ms = self.rng.randrange(1, BOOT_MS_MAX)
        self.node = node = Node(
            self.id, self.clock, generator(f"{self.id!r} {self.rng.getrandbits(64)}"), maxmemory=self.maxmemory
        )
        self.outbox = node.outbox
        self.state = node.state
        self.journal = SimJournal(self.disk, self.policy, self.clock, restores_queues=restores_queues)
        node.membership.timeout_ms = self.timeout_ms
        node.acks.asked_at_once = self.asked_at_once
        node.membership.announce(self.host, PORT, self.bus_port)
        node.membership.restore(self._members)
        recovery = Recovery(self.state, restores_queues=restores_queues)
        for record in self.journal.load():
            recovery.apply(record)
        self.state.journaling = self.journal.records
        node.note_expired(recovery.expired)
        self.is_up = True
        if self.event_log is not None:
            self.event_log.start()
        node.begin()
        recovery.finish()
        if self.journal.records and not self.state.watermark.until:
            self.outbox.journal.append(self.state.begin_watermark())
        node.workers.recover(recovery.held)
        node.facts.resume()
        # A flush in the journal took their deadlines along.
        node.membership.wake()
        node.leaving.wake()
        node.tick()
        self.outbox.members_changed = True
        self._finish()
        self.on_life(True)

    def remember(self, members: "Iterable[SimServer]") -> None:
        """Let its nodes.conf name these nodes, all of which it has heard of: a process that starts links to them."""
        self._members = [
            KnownNode(member.id, member.host, PORT, member.bus_port, pong_at=WALL_MS, myself=member is self)
            for member in members
        ]

    def kill(self, *, power: bool) -> None:
        """End the process at once: kill -9, which leaves what was written, or the power, which leaves what was synced.

        Nobody notices that a machine has lost its power but by its silence.
        """
        lost = self.disk.lose_power() if power and self.journal.records else False
        if self.policy == NONE or (lost and self.policy != ALWAYS):
            self._on_loss(self)
        if self.event_log is not None:
            self.event_log.crash(power=power)
        self._end()
        if not power:
            self._say_that_it_is_gone()

    def restart(self) -> None:
        """Shut down in order and start again, with queues and deliveries as they were.  Raises StoreFailed."""
        self._end_turn(self.boot)
        self.journal.rewrite(snapshot(self.state), with_queues=True)
        self.stop()
        self.start(restores_queues=True)

    def stop(self) -> None:
        """End the process as a service manager does."""
        if self.event_log is not None:
            self.event_log.stop()
        self._end()
        self._say_that_it_is_gone()

    def _end(self) -> None:
        self.is_up = False
        self.is_paused = False
        self.dies_at = None
        self.on_life(False)
        self.boot += 1
        for dial in self._dials.values():
            dial.is_over = True
        for link in self.links.values():
            link.close(loses=False)
        clients = self._clients
        self._clear()
        for client in clients:
            client.lost()

    def _say_that_it_is_gone(self) -> None:
        """The system closes the connections of a process that ended."""
        for path in self.network.paths:
            if path.target is self and path.link is not None and not path.blocks:
                self.events.after(path.delay_ms, path.link.break_off)

    def pause(self) -> None:
        """Stop the process, as SIGSTOP does: everything waits for it."""
        self.is_paused = True

    def resume(self) -> None:
        """Let it go on, with all that has come meanwhile: timers first, as the loop takes them."""
        self.is_paused = False
        backlog = sorted(self._backlog, key=lambda entry: entry[0] != self._tick)
        self._backlog = []
        for call, arguments in backlog:
            if self.is_up:
                call(*arguments)

    def _is_away(self, call: Callable[..., None], *arguments: Any) -> bool:
        """Tell whether an input cannot be taken now; it waits if the process only sleeps."""
        if self.is_paused:
            self._backlog.append((call, arguments))
            return True
        return not self.is_up

    # Inputs.

    def command(self, client: SimClient, words: list[bytes]) -> None:
        """Run a command; the client hears at the end of a turn."""
        self._clients[client] = None
        if self._is_away(self.command, client, words) or client.is_gone:
            return
        node = self.node
        node.begin()
        handed: list[bytes] = []
        try:
            entry = table.find(words)
            call = table.recall(entry, words)
            if entry.flags & Flag.DENY_OOM:
                self._admit()
            value = node.command(client, call)
            if entry.hands_out and value and value is not BLOCKED:
                handed = entry.handed(value)
        except CommandError as error:
            value = error
        if value is not BLOCKED:
            self._replies.append((client, value, handed))
        self._finish()

    def _admit(self) -> None:
        if self.state.memory.level > 1 and not self.node.make_room():
            raise OutOfMemory
        if self.failure is not None:
            raise JournalFailed(f"{JournalFailed.__doc__}: {self.failure}")

    def leave(self, client: SimClient) -> None:
        """A client has broken its connection."""
        self._clients.pop(client, None)
        if self._is_away(self.leave, client):
            return
        # What it was to hear in this turn it will not.
        handed = [job_id for other, _, job_ids in self._replies if other is client for job_id in job_ids]
        self._replies = [reply for reply in self._replies if reply[0] is not client]
        self.node.begin()
        self.node.gone(client, handed)
        self._finish()

    def hear(self, sender: bytes, batch: list[bytes]) -> None:
        """Take messages of another node."""
        if self._is_away(self.hear, sender, batch):
            return
        node, note, watch = self.node, self.events.note, self.network.watch
        node.begin()
        for data in batch:
            note(data)
            message = decode(data)
            if watch is not None:
                watch(self, sender, message)
            node.message(sender, message)
        self._finish()

    def hear_greeting(self, greeting: Greeting, host: str) -> None:
        """Another node has opened its link to this one."""
        if self._is_away(self.hear_greeting, greeting, host):
            return
        self.node.begin()
        self.node.greeted(greeting, host, self.host)
        self._finish()

    def _tick(self, timer: tuple[int, int]) -> None:
        boot, at = timer
        if boot != self.boot or at != self._timer_at or self._is_away(self._tick, timer):
            return
        self._timer_at = 0
        self.node.begin()
        self.node.tick()
        self._finish()

    # Links.

    def open_link(self, dial: Dial, link: Link, greeting: Greeting) -> bool:
        """Our link to a target is proven; say whether the attempt is over."""
        self.node.begin()
        if not self.node.link_opened(dial.target, greeting, self.host):
            self.outbox.members_changed = True
            self._finish()
            return dial.is_over
        dial.is_over = True
        self._dials.pop(dial.target, None)
        self.links[link.peer_id] = link
        link.open()
        self._finish()
        return True

    def lose_link(self, link: Link, *, loses: bool = True) -> None:
        """A link has broken, or is not wanted any more."""
        link.close(loses=loses)
        if self.links.get(link.peer_id) is link:
            del self.links[link.peer_id]
            self._link_is_gone(link.peer_id, self.boot)

    def _link_is_gone(self, peer_id: bytes, boot: int) -> None:
        if boot != self.boot or self._is_away(self._link_is_gone, peer_id, boot):
            return
        self.node.begin()
        self.node.link_closed(peer_id)
        self.outbox.members_changed = True
        self._finish()

    def _follow(self) -> None:
        """Let links lead where they shall."""
        self.outbox.members_changed = False
        self._members = self.node.membership.lines()
        targets = self.node.membership.targets()
        wanted = {target.id: target for target in targets if target.id}
        for peer_id, link in list(self.links.items()):
            target = wanted.get(peer_id)
            peer = self.state.peers.by_id.get(peer_id)
            if target is None or peer is None or peer.stale or (target.host, target.bus_port) != link.where:
                self.lose_link(link)
        self._dial(targets)

    def _dial(self, targets: list[Target]) -> None:
        missing = [target for target in targets if not target.id or target.id not in self.links]
        for target in [target for target in self._dials if target not in missing]:
            self._dials.pop(target).is_over = True
        for target in missing:
            if target not in self._dials:
                self._dials[target] = self.network.dial(self, target)

    # The end of a step.

    def _finish(self) -> None:
        outbox = self.outbox
        if outbox.replies:
            self._take_replies()
        if outbox.journal:
            records, outbox.journal = outbox.journal, []
            self.journal.append(records)
            self._batch += records
        if outbox.events:
            self.node.events.collect()
        if outbox.messages:
            self._messages += outbox.messages
            outbox.messages.clear()
        if outbox.members_changed:
            self._follow()
        if self.event_log is not None and self.state.endings is not None and self.state.endings.is_news():
            self.event_log.wake()
        if not self._turn_open and (self._batch or self._messages or self._replies):
            self._turn_open = True
            self.events.after(0, self._end_turn, self.boot)
        at = self.state.schedule.next_at()
        if at is not None and not 0 < self._timer_at <= at:
            self._timer_at = at
            self.events.at(at - self.clock.offset_ms, self._tick, (self.boot, at))

    def _take_replies(self) -> None:
        outbox, node = self.outbox, self.node
        while outbox.replies:
            replies, outbox.replies = outbox.replies, []
            for client, value, units in replies:
                if client.is_gone:  # type: ignore[attr-defined]
                    node.delivery.give_back(units)
                else:
                    handed = [b"%b:%b" % (unit.id, unit.scope) if unit.scope else unit.id for unit in units]
                    self._replies.append((client, value, handed))  # type: ignore[arg-type]
            node.serve()

    # The end of a turn.

    def _end_turn(self, boot: int) -> None:
        """Make the turn's records durable, then speak."""
        if boot != self.boot:
            return
        self._turn_open = False
        batch, self._batch = self._batch, []
        if batch and self.failure is None and not self._commit(batch):
            return
        messages, self._messages = self._messages, []
        if messages:
            self._send(messages)
        if self._dies("before the replies"):
            return
        self._answer()

    def _answer(self) -> None:
        boot = self.boot
        replies, self._replies = self._replies, []
        for client, value, _ in replies:
            if boot == self.boot and not client.is_gone:
                self._clients.pop(client, None)
                client.answered(value)

    def _commit(self, batch: list[Record]) -> bool:
        """Commit; say whether the process is still there."""
        self.commits += 1
        told = (self.state.watermark.last, self.state.watermark.until)
        if self.dies_at is not None and self._dies_in_commit():
            return False
        try:
            self.journal.commit()
        except StoreFailed as error:
            self._fail(str(error), batch)
        else:
            if self.state.watermark.held:
                self.events.after(0 if self.policy == ALWAYS else SECURED_MS, self._secure, (self.boot, *told))
            if self.policy in SYNC_MS and not self._sync_planned:
                self._sync_planned = True
                self.events.after(SYNC_MS[self.policy], self._sync, self.boot)
        return not self._dies("before the messages")

    def _dies_in_commit(self) -> bool:
        if self.dies_at == "before the sync" and self.journal.records and not self.disk.is_full:
            # The bytes are with the system; nobody has asked for the disk yet.
            policy, self.journal.policy = self.journal.policy, EVERYSEC
            try:
                if not self.journal.is_bad:
                    self.journal.commit()
            finally:
                self.journal.policy = policy
        return self._dies("before the write") or self._dies("before the sync")

    def _dies(self, stage: str) -> bool:
        if self.dies_at != stage:
            return False
        self.on_death()
        return True

    def _send(self, messages: list[tuple[bytes, Message]]) -> None:
        links = self.links
        batches: dict[bytes, list[Message]] = {}
        if self.failure is not None:
            messages = [entry for entry in messages if entry[1][0] not in DURABLE_ALONE]
        for peer_id, message in messages:
            batch = batches.get(peer_id)
            if batch is None:
                batches[peer_id] = [message]
            else:
                batch.append(message)
        self.state.now = self.clock.now()
        for peer_id, batch in batches.items():
            link = links.get(peer_id)
            if link is not None:
                link.send(batch)

    def _sync(self, boot: int) -> None:
        if boot != self.boot or self._is_away(self._sync, boot):
            return
        self._sync_planned = False
        if self.failure is not None or not self.disk.unsynced or (self.policy == NO and self.disk.fails_sync):
            return
        try:
            self.journal.sync()
        except StoreFailed as error:
            self._fail(str(error), [])
            self._end_turn_soon()

    def _secure(self, told: tuple[int, int, int]) -> None:
        """Make safe what held jobs wait for, and queue them."""
        boot, last, until = told
        if boot != self.boot or self._is_away(self._secure, told):
            return
        try:
            if self.failure is None:
                self.journal.sync()
        except StoreFailed as error:
            self._fail(str(error), [])
        if self.failure is not None:
            self.events.after(RETRY_MS, self._secure, told)
            return
        self.node.begin()
        self.node.delivery.release(last, until)
        self._finish()

    # Failure and return.

    def _fail(self, reason: str, batch: list[Record]) -> None:
        """Take no more jobs, and take those back whose producers have not been answered."""
        self.failure = reason
        self.state.read_only = True
        unkept = promises(batch)
        self.node.begin()
        for at, (client, value, handed) in enumerate(self._replies):
            told = getattr(value, "job_ids", None) or (value if isinstance(value, list) else [value])
            names = (*told, *(name for name in handed if b":" in name))
            for job_id in [name for name in names if isinstance(name, bytes) and name in unkept]:
                self._replies[at] = (client, JournalFailed(f"{JournalFailed.__doc__}: {reason}"), handed)
                job = self.state.jobs.get(job_id)
                if job is not None:
                    self.state.forget(job, GONE_REFUSED)
        self._finish()
        self.events.after(RETRY_MS, self._try_again, self.boot)

    def _try_again(self, boot: int) -> None:
        if boot != self.boot or self._is_away(self._try_again, boot):
            return
        try:
            if self.journal.is_bad:
                self.journal.rewrite(walk(self.state))
            self.journal.commit()
        except StoreFailed:
            self.events.after(RETRY_MS, self._try_again, self.boot)
            return
        self.failure = None
        self.state.read_only = False
        if self.state.watermark.held:
            told = (self.boot, self.state.watermark.last, self.state.watermark.until)
            self.events.after(SECURED_MS, self._secure, told)
        self._end_turn_soon()

    def _end_turn_soon(self) -> None:
        if not self._turn_open:
            self._turn_open = True
            self.events.after(0, self._end_turn, self.boot)

    def compact(self) -> None:
        """Write the journal anew from what is there.  Raises StoreFailed."""
        if self.journal.records and self.failure is None:
            self.journal.commit()
            self.journal.rewrite(walk(self.state))
