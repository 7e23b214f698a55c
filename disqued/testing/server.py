"""One simulated node: the real core and the real codecs, between a simulated disk, network and clock.

    client's command, batch of messages, greeting, timer --> a step of the node --> core/turn.py
        at the end of the turn, which is the millisecond:  1 journal, commit   2 messages   3 replies

It does in virtual time what `net/process/driver.py` does on a loop: it carries out what the same `Turn` asks for.  With
`commit_ms` a commit takes its time, as one in a thread or on another server does.

A process ends at any moment, also between the parts of the end of a turn (`doom`), and starts again from its disk.

Times are integer milliseconds; `boot` counts the processes of a node, so that what was meant for one that is gone is
not taken for news.
"""

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from disqued.commands.catalogue import MODULES  # enters the commands into the table
from disqued.commands.dispatch import Dispatch, Outcome
from disqued.commands.latency import LatencyMonitor
from disqued.commands.slowlog import SlowLog
from disqued.commands.table import BLOCKED, Command
from disqued.core.model.messages import Greeting, Message, Target
from disqued.core.model.peers import FAIL, PFAIL, KnownNode
from disqued.core.node import Node
from disqued.core.recovery import Recovery, snapshot, walk
from disqued.core.turn import RETRY_MS, Messages, Turn
from disqued.errors import CommandError
from disqued.persistence.interface import StoreFailed
from disqued.testing.clock import WALL_MS, NodeClock
from disqued.testing.disk import SimDisk
from disqued.testing.eventlog import SimEventLog
from disqued.testing.events import EventQueue, generator
from disqued.testing.journal import ALWAYS, EVERYSEC, NO, NONE, SimJournal
from disqued.testing.network import Dial, SimLink, SimNetwork
from disqued.wire.messages import decode

assert MODULES

PORT = 7711
BUS_PORT = 17711
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


class SimRecipient:
    """The replies of one client that have not left yet; it issues commands, and is a `Recipient` to the turn."""

    name = b""
    address = ""
    limited = False

    def __init__(self, server: "SimServer", client: SimClient) -> None:
        self._server = server
        self.client = client
        self.blocked: Outcome | None = None  #: of the command that it waits in
        self.due: list[Outcome] = []  #: they wait for the next commit
        self.held: list[Outcome] = []  #: they wait for the commit that is under way
        self.leaving: list[Outcome] = []  #: they leave when the step that runs is over

    def check(self, entry: Command) -> None:
        """It may run every command."""

    @property
    def is_held(self) -> bool:
        """True while replies wait for a commit that is under way."""
        return bool(self.held)

    def is_gone(self) -> bool:
        """Return whether the client has broken its connection."""
        return self.client.is_gone

    def unblock(self, value: Any) -> None:
        """Take the value of the command that blocked."""
        assert self.blocked is not None
        self.blocked.answer(value)
        self.due.append(self.blocked)
        self.blocked = None

    def flush(self) -> None:
        """Send the replies that are due."""
        due, self.due = self.due, []
        self._leave(due)

    def hold(self) -> None:
        """Put the replies that are due apart."""
        self.held += self.due
        self.due = []

    def release(self) -> None:
        """Send what was put apart."""
        held, self.held = self.held, []
        self._leave(held)

    def _leave(self, replies: list[Outcome]) -> None:
        if replies:
            self.leaving += replies
            self._server.answer_soon(self)

    def take_back(self, unkept: set[bytes], error: CommandError) -> list[bytes]:
        """Replace each reply that tells of one of these jobs or units by an error; returns their ids."""
        taken: list[bytes] = []
        for outcome in (*self.held, *self.due):
            told = [name for name in outcome.promised() if name in unkept]
            if told:
                taken += told
                outcome.fail(error)
        return taken

    def handed(self) -> list[bytes]:
        """Ids of the jobs in replies that did not leave."""
        return [name for outcome in (*self.leaving, *self.held, *self.due) for name in outcome.handed()]


def _fail(client: SimRecipient, words: list[bytes]) -> None:
    """Let a bug in a command end the simulation."""
    raise  # noqa: PLE0704 - it is called while the exception is being handled


class SimServer:
    """A node with its process, disk and clocks; what is not running keeps its disk."""

    node: Node
    turn: Turn

    def __init__(
        self, events: EventQueue, network: SimNetwork, number: int, seed: str, *,
        policy: str, maxmemory: int, timeout_ms: int, asked_at_once: int,
        on_life: "Callable[[SimServer, bool], None]", on_loss: "Callable[[SimServer], None]",
    ) -> None:  # fmt: skip
        """Make a node that is not started.

        `on_life` hears that a process serves or has ended, `on_loss` that a crash took something acknowledged.
        """
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
        self._dies_at: str | None = None  #: one of STAGES: there the power goes, in the next turn that commits
        self._die: Callable[[], None] = lambda: None
        self.commits: int = 0
        self.suspected: set[int] = set()  #: numbers of nodes that it took for failed at some time
        self.commit_ms: int = 0  #: how long a commit takes at most; 0 = it is done when it returns
        self.event_log: SimEventLog | None = None  #: None = nobody wants it
        self._on_life = on_life
        self._on_loss = on_loss
        self.numbers: dict[bytes, int] = {}  #: of every node, by id
        self._members: list[KnownNode] = []  #: nodes.conf
        self._clear()

    def __repr__(self) -> str:
        return f"node {self.number}"

    def _clear(self) -> None:
        """Forget what a process has in its memory."""
        self.links: dict[bytes, SimLink] = {}
        self._dials: dict[Target, Dial] = {}
        self._clients: dict[SimClient, None] = {}  #: they wait for a reply
        self._recipients: dict[SimClient, SimRecipient] = {}
        self._leaving: list[SimRecipient] = []  #: their replies leave when the step that runs is over
        self._steps = False  #: a step runs: nobody is answered within it
        self._backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._turn_open = False
        self._sync_planned = False
        self._timer_at = 0

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
        node.state.peers.timeout_ms = self.timeout_ms
        node.acks.asked_at_once = self.asked_at_once
        node.membership.own_address.announce(self.host, PORT, self.bus_port)
        node.membership.restore(self._members)
        recovery = Recovery(self.state, restores_queues=restores_queues)
        for record in self.journal.load():
            recovery.apply(record)
        self.turn = turn = Turn(node, self)
        self._dispatch = Dispatch(
            node, seconds=lambda: 0.0, microseconds=lambda: self.clock.wall() * 1_000, on_crash=_fail,
            failure=lambda: self.failure, slowlog=SlowLog(-1, 0), latency=LatencyMonitor(0),
        )  # fmt: skip
        turn.give_to(self.journal)
        self.state.journaling = self.journal.records
        node.note_expired(recovery.expired)
        self.is_up = True
        if self.event_log is not None:
            self.event_log.start()
        node.begin()
        recovery.finish()
        if self.journal.records and not self.state.durability.watermark.until:
            self.outbox.journal.append(self.state.begin_watermark())
        node.workers.recover(recovery.held)
        node.acksets.resume()
        # A flush in the journal took their deadlines along.
        node.membership.detector.plan()
        node.leaving.wake()
        node.tick()
        self.outbox.members_changed = True
        self._finish()
        self._on_life(self, True)

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

    def doom(self, stage: str, die: Callable[[], None]) -> None:
        """Let the power go in the next turn that commits, at one of STAGES: `die` is called there."""
        self._dies_at, self._die = stage, die

    def spare(self) -> None:
        """Take `doom` back."""
        self._dies_at = None

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
        self._dies_at = None
        self._on_life(self, False)
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
        recipient = self._recipients.get(client)
        if recipient is None:
            recipient = self._recipients[client] = SimRecipient(self, client)
        self.node.begin()
        outcome = self._dispatch.execute(recipient, words, Outcome())
        if outcome.value is BLOCKED:
            recipient.blocked = outcome
            self._finish(None)
        else:
            recipient.due.append(outcome)
            self._finish(recipient)

    @property
    def failure(self) -> str | None:
        """Why the store takes no jobs now."""
        return self.turn.failure

    def leave(self, client: SimClient) -> None:
        """A client has broken its connection."""
        self._clients.pop(client, None)
        if self._is_away(self.leave, client):
            return
        recipient = self._recipients.pop(client, None)
        if recipient is None:
            return
        handed = recipient.handed()
        recipient.due, recipient.held, recipient.leaving = [], [], []
        self.node.begin()
        self.node.gone(recipient, handed)
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
        self._steps = True
        self.turn.tick()
        self._steps = False

    # Links.

    def open_link(self, dial: Dial, link: SimLink, greeting: Greeting) -> bool:
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

    def lose_link(self, link: SimLink, *, loses: bool = True) -> None:
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

    def _finish(self, recipient: SimRecipient | None = None) -> None:
        """Let the turn follow a step, on behalf of a client or of nobody."""
        self._steps = True
        self.turn.finish_step(recipient)
        self._steps = False

    def wake_at(self, at: int) -> None:
        """Set the timer."""
        self._timer_at = at
        self.events.at(at - self.clock.offset_ms, self._tick, (self.boot, at))

    def follow_members(self) -> None:
        """Let links lead where they shall."""
        self.suspected |= {
            self.numbers[peer_id]
            for peer_id, peer in self.state.peers.by_id.items()
            if peer.flags & (PFAIL | FAIL) and peer_id in self.numbers
        }
        self._follow()

    def follow_trail(self) -> None:
        """Let the event log take what the trail has."""
        if self.event_log is not None:
            self.event_log.wake()

    def answer_soon(self, recipient: SimRecipient) -> None:
        """Let replies leave: now, or when the step that runs is over."""
        self._leaving.append(recipient)
        if self._steps:
            self.end_turn_soon()

    def _answer(self) -> None:
        boot = self.boot
        leaving, self._leaving = self._leaving, []
        for recipient in leaving:
            replies, recipient.leaving = recipient.leaving, []
            for outcome in replies:
                client = recipient.client
                if boot == self.boot and not client.is_gone:
                    self._clients.pop(client, None)
                    client.answered(outcome.value)

    # The end of a turn.

    def end_turn_soon(self) -> None:
        """End the turn in this millisecond."""
        if not self._turn_open:
            self._turn_open = True
            self.events.after(0, self._end_turn, self.boot)

    def _end_turn(self, boot: int) -> None:
        """Make the turn's records durable, then speak."""
        if boot != self.boot:
            return
        self._turn_open = False
        self.turn.end()
        self._speak(boot)

    def _speak(self, boot: int) -> None:
        """Answer the clients whose replies have left the turn."""
        if boot == self.boot and not self._dies("before the replies"):
            self._answer()

    def commit(self) -> str | None:
        """Commit; returns the reason of a failure, "" when it is done, None when it takes its time, or never ends."""
        self.commits += 1
        if self.commit_ms:
            self.events.after(self.rng.randrange(self.commit_ms) + 1, self._commit_late, self.boot)
            return None
        return self._commit()

    def _commit(self) -> str | None:
        if self._dies_at is not None and self._dies_in_commit():
            return None
        try:
            self.journal.commit()
        except StoreFailed as error:
            reason = str(error)
        else:
            reason = ""
            if self.policy in SYNC_MS and not self._sync_planned:
                self._sync_planned = True
                self.events.after(SYNC_MS[self.policy], self._sync, self.boot)
        return None if self._dies("before the messages") else reason

    def await_commit(self) -> None:
        """The end of a commit that takes its time is an event of its own."""

    def _commit_late(self, boot: int) -> None:
        """Carry out a commit that takes its time."""
        if boot != self.boot or self._is_away(self._commit_late, boot):
            return
        reason = self._commit()
        if reason is not None:
            self.turn.committed(reason)
            self._speak(boot)

    def _dies_in_commit(self) -> bool:
        if self._dies_at == "before the sync" and self.journal.records and not self.disk.is_full:
            # The bytes are with the system; nobody has asked for the disk yet.
            policy, self.journal.policy = self.journal.policy, EVERYSEC
            try:
                if not self.journal.is_bad:
                    self.journal.commit()
            finally:
                self.journal.policy = policy
        return self._dies("before the write") or self._dies("before the sync")

    def _dies(self, stage: str) -> bool:
        if self._dies_at != stage:
            return False
        self._die()
        return True

    def send(self, messages: Messages) -> None:
        """Send messages to other nodes, each to the one link to its node."""
        if not self.is_up:
            return
        links = self.links
        batches: dict[bytes, list[Message]] = {}
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
            self._distrust(str(error))

    def _distrust(self, reason: str) -> None:
        """Take no more jobs: what was written may be lost."""
        self.node.begin()
        self.turn.fail(reason)
        self._finish()

    def secure(self) -> None:
        """Make safe what was committed, in a while."""
        self.events.after(0 if self.policy == ALWAYS else SECURED_MS, self._secure, self.boot)

    def _secure(self, boot: int) -> None:
        if boot != self.boot or self._is_away(self._secure, boot):
            return
        reason = self.failure or ""
        if not reason:
            try:
                self.journal.sync()
            except StoreFailed as error:
                reason = str(error)
                self._distrust(reason)
        self._steps = True
        self.turn.secured(reason)
        self._steps = False

    def secure_later(self, reason: str) -> None:
        """Try again in a second."""
        self.events.after(RETRY_MS, self._secure_again, self.boot)

    def _secure_again(self, boot: int) -> None:
        if boot == self.boot and not self._is_away(self._secure_again, boot):
            self.turn.secure_again()

    # Failure and return.

    def failing(self, before: str | None) -> None:
        """Nobody is told but the clients."""

    def try_again_later(self) -> None:
        """Try to commit again in a second."""
        self.events.after(RETRY_MS, self._try_again, self.boot)

    def _try_again(self, boot: int) -> None:
        if boot != self.boot or self._is_away(self._try_again, boot):
            return
        self.node.begin()
        self.turn.try_again()
        self._speak(boot)

    def repair(self) -> None:
        """Rewrite a journal that is not trusted any more, if that can be done now."""
        if self.journal.is_bad:
            with contextlib.suppress(StoreFailed):
                self.journal.rewrite(walk(self.state))

    def rested(self) -> None:
        """Nothing waits for a commit to be over."""

    def crashed(self) -> None:
        """A bug of ours: the story fails.  Raises what is being handled."""
        raise  # noqa: PLE0704 - it is called while an exception is handled

    def compact(self) -> None:
        """Write the journal anew from what is there.  Raises StoreFailed."""
        if self.journal.records and self.failure is None and not self.turn.under_way:
            self.journal.commit()
            self.journal.rewrite(walk(self.state))
