"""The commit rule: nobody learns of anything before it is durable.

    step of the node --> outbox    1 journal ----> every journal that takes the records
    step of the node --> outbox    2 messages --+
                                   3 replies  --+-- wait for the end of the turn
                                                        |
                         commit --- failed ---> take back what was promised, refuse additions, try again
                           |
                           +------- done -----> messages leave, then replies

A *turn* is what the node does between two waits for input; the replies of all its steps share one commit, so that
hundreds of clients share one sync.  While no store wants the journal there is nothing to wait for: a client is
answered as soon as its commands have run, or at the end of a round of clients (`begin_round`), and messages leave at
the end of the turn, together.

A commit may take its time elsewhere (a thread, a server).  The turns that pass meanwhile share the commit after it,
and their messages wait as well, except those that only tell which nodes are there (`URGENT`).

When a commit fails nothing of it is acknowledged: each producer receives MISCONF with the store's reason instead of
the id of its job, the jobs are forgotten, additions are refused from then on, and no other node is given a copy or
learns that one is kept (`DURABLE_ALONE`).  A consumer that would receive an event that is done by that (EX 0) receives
MISCONF, too: after a crash its group might have it again.  Jobs that are there are still delivered and acknowledged.
The commit is tried again every `RETRY_MS`, so that additions resume when there is room again, when the server is back,
or when the journal has been rewritten.

A job that may be delivered once at most is held until the store has made safe that it leaves (`model/watermark.py`):
`secure` is asked for it after the commit, and `requeueing.release` queues the job.

This module decides, and does nothing by itself.  What a decision needs is done by `Outside`: a driver on a loop
(`net/process/driver.py`) or in virtual time (`testing/driver.py`), so that what the simulator tests is what runs.

Source: Disque, src/server.c (beforeSleep), src/aof.c; times are integer milliseconds.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Protocol, cast

from disqued.core.model.messages import DURABLE_ALONE, URGENT, Message
from disqued.core.model.outbox import GONE_REFUSED, Asked, Record, promises
from disqued.core.node import Node
from disqued.errors import CommandError, JournalFailed

RETRY_MS: Final = 1_000  #: pause between two attempts to commit or to make safe, after one has failed

Messages = list[tuple[bytes, Message]]  #: node ids, and what is for them


class Recipient(Protocol):
    """Somebody whose commands the node runs, and who is answered."""

    @property
    def is_held(self) -> bool:
        """True while replies wait for a commit that is under way."""

    def is_gone(self) -> bool:
        """Return whether nobody can be reached any more."""

    def unblock(self, value: object) -> None:
        """Take the value, or the CommandError, of the command that blocked; it is due like every other reply."""

    def flush(self) -> None:
        """Send the replies that are due."""

    def hold(self) -> None:
        """Put the replies that are due apart: they wait for a commit that is under way."""

    def release(self) -> None:
        """Send what was put apart; what came after it waits for the next commit."""

    def take_back(self, unkept: set[bytes], error: CommandError) -> list[bytes]:
        """Replace each reply that tells of one of these jobs or units by an error; returns their ids."""


class Journal(Protocol):
    """What takes records."""

    def append(self, records: list[Record]) -> None:
        """Take records as they are now.  Never blocks, never fails."""


class Outside(Protocol):
    """What a turn needs done."""

    def commit(self) -> str | None:
        """Make durable what was appended; returns the reason when that failed, "" when it is done.

        None: it takes its time, and `Turn.committed` is to be called, not before `await_commit` is.
        """

    def await_commit(self) -> None:
        """Call `Turn.committed` when the commit that takes its time is over, or now if it is already."""

    def secure(self) -> None:
        """Make safe what was committed, and call `Turn.secured`, later and not at once."""

    def repair(self) -> None:
        """Begin to rewrite a journal whose failure is final."""

    def send(self, messages: Messages) -> None:
        """Send messages to other nodes."""

    def end_turn_soon(self) -> None:
        """Call `Turn.end` when this turn is over."""

    def try_again_later(self) -> None:
        """Call `Turn.try_again` in `RETRY_MS`, unless that is planned already."""

    def secure_later(self, reason: str) -> None:
        """Call `Turn.secure_again` in `RETRY_MS`: what is held could not be made safe."""

    def wake_at(self, at: int) -> None:
        """Call `Turn.tick` at a time, and not later; what was planned for a later one does not count any more."""

    def follow_members(self) -> None:
        """The nodes, their addresses, or where links shall lead to have changed."""

    def follow_trail(self) -> None:
        """The trail has news (`core/model/trace.py`)."""

    def answer(self, asked: list[Asked]) -> None:
        """Run these commands, each in a step of its own and not at once, and tell `Questions.answer` their values."""

    def failing(self, before: str | None) -> None:
        """`Turn.failure` has changed."""

    def rested(self) -> None:
        """Do what was put off until no commit is under way; follows each `Turn.rest_soon`."""

    def crashed(self) -> None:
        """An exception is being handled that is a bug of ours."""


class Turn:
    """The effects of the steps since the last commit, and who waits for them."""

    def __init__(self, node: Node, outside: Outside) -> None:
        self.node = node
        self.failure: str | None = None  #: why the store takes no jobs now
        self.journals: tuple[Journal, ...] = ()  #: they take the records of each step
        self.is_closed = False  #: nothing can be made durable any more, so nobody learns of anything
        self.is_planned = False  #: `end` will be called
        self.under_way = False  #: a commit has not answered yet
        self._outside = outside
        self._outbox = node.outbox
        self._state = node.state
        self._waiting: dict[Recipient, None] = {}  #: their replies wait for the next commit
        self._gathers = False  #: a round of clients runs
        self._gathered: dict[Recipient, None] = {}  #: their replies wait for the end of the round, and nothing else
        self._batch: list[list[Record]] = []  #: what the next commit makes durable
        self._messages: Messages = []  #: they wait for the next commit
        #: What the commit that is under way is about; what of it was not said yet.
        self._in_commit: tuple[dict[Recipient, None], list[list[Record]], Messages] = ({}, [], [])
        self._tries_again = False  #: the commit that is under way is another attempt at one that failed
        self._securing = False  #: the store makes safe what held jobs wait for
        self._told = (0, 0)  #: number of the last held job that a commit knows, and the watermark that it has
        self._in_securing = (0, 0)  #: the same of what is being made safe
        self._safe_last = 0  #: number of the last one that is safe
        self._is_halted = False
        self._wakes_at = 0  #: when `tick` will be called; 0 = it will not
        self._wants_rest = False  #: `rested` is to be called

    # Steps.

    def finish_step(self, client: Recipient | None) -> None:
        """Carry out the effects of the step that has just run, on behalf of a client or of nobody."""
        if self.is_closed:
            return
        outbox = self._outbox
        if outbox.replies:
            self._hand_over_replies()
        if self._state.journaling:
            self._hold(client)
        elif client is not None:
            if self._gathers:
                self._gathered[client] = None
            else:
                client.flush()
        if (outbox.messages or outbox.events) and not self.is_planned:
            self.is_planned = True
            self._outside.end_turn_soon()
        if outbox.members_changed:
            outbox.members_changed = False
            self._outside.follow_members()
        if outbox.asked:
            asked, outbox.asked = outbox.asked, []
            self._outside.answer(asked)
        endings = self._state.trace.endings
        if endings is not None and endings.is_news():
            self._outside.follow_trail()
        at = self._state.schedule.next_at()
        if at is not None and not self._is_halted and not 0 < self._wakes_at <= at:
            self._wakes_at = at
            self._outside.wake_at(at)

    def tick(self) -> None:
        """Do what is due."""
        self._wakes_at = 0
        self.node.begin()
        try:
            self.node.tick()
        except Exception:  # a bug of ours: the node goes on with what is due next
            self._outside.crashed()
        self.finish_step(None)

    def _hand_over_replies(self) -> None:
        """Put the replies of clients that were blocked where their other replies wait."""
        outbox, node = self._outbox, self.node
        while outbox.replies:
            replies, outbox.replies = outbox.replies, []
            for who, value, units in replies:
                client = cast(Recipient, who)  # only recipients block
                if units and client.is_gone():
                    node.delivery.give_back(units)
                    continue
                client.unblock(value)
                if self._state.journaling:
                    self._waiting[client] = None
                elif self._gathers:
                    self._gathered[client] = None
                else:
                    client.flush()
            node.serve()

    def _hold(self, client: Recipient | None) -> None:
        """Let the step's replies wait for the commit at the end of this turn.

        While a commit takes its time elsewhere, a client whose step has nothing to commit, and that waits for nothing
        either, is answered at once.
        """
        appended = bool(self._outbox.journal)
        if appended:
            self.append()
        if client is not None:
            if self.under_way and not appended and client not in self._waiting and not client.is_held:
                client.flush()
            else:
                self._waiting[client] = None
        waits = self.under_way and self.failure is None
        if not self.is_planned and not waits and (self._waiting or self._batch or self._messages):
            self.is_planned = True
            self._outside.end_turn_soon()

    def give_to(self, *journals: Journal) -> None:
        """Give the records of each step to these journals from now on."""
        self.journals = journals

    def append(self) -> None:
        """Give the journals what was journaled since this was last done."""
        outbox = self._outbox
        if outbox.journal:
            records, outbox.journal = outbox.journal, []
            for journal in self.journals:
                journal.append(records)
            self._batch.append(records)

    # Rounds of clients.

    def begin_round(self) -> None:
        """Keep replies back until the round is over; to the node it is one moment."""
        self._gathers = True
        self.node.stop_clocks()

    def end_round(self) -> None:
        """Answer the clients of the round."""
        self._gathers = False
        self.node.start_clocks()
        gathered, self._gathered = self._gathered, {}
        if self._state.journaling and gathered:
            # Since this round began: what came after that has to be durable before it is told.
            self._waiting |= gathered
            self._hold(None)
        else:
            self._flush(gathered)

    # The end of a turn.

    def end_soon(self) -> None:
        """Have the turn ended when it is over."""
        if not self.is_planned:
            self.is_planned = True
            self._outside.end_turn_soon()

    def end(self) -> None:
        """End a turn: make its records durable, then speak."""
        if not self.is_planned:
            return  # somebody could not wait
        self.is_planned = False
        outbox = self._outbox
        messages = self._take_messages() if outbox.messages or outbox.events or self._messages else []
        if self.under_way and self.failure is None:
            self._messages = self._send_urgent(messages)
            return
        clients, self._waiting = self._waiting, {}
        batch, self._batch = self._batch, []
        if self.failure is not None or not batch:
            # While it fails nothing is added, and what else is done the next good commit makes durable.
            self._speak(messages, clients)
            return
        if self._state.durability.watermark.held:
            self._note_held()
        reason = self._outside.commit()
        if reason is None:
            self.under_way = True
            for client in clients:
                client.hold()
            self._in_commit = (clients, batch, self._send_urgent(messages))
            self._outside.await_commit()
        elif reason:
            self._fail(reason, clients, batch, messages)
        else:
            self._speak(messages, clients)
            if self._told[0] > self._safe_last:
                self._secure()

    def committed(self, reason: str) -> None:
        """Take the outcome of a commit that took its time: "" = it is done."""
        self.under_way = False
        if self._tries_again:
            self._tried_again(reason)
            return
        (clients, batch, messages), self._in_commit = self._in_commit, ({}, [], [])
        if reason:
            waiting, self._waiting = self._waiting, {}
            later, self._batch = self._batch, []
            self._fail(reason, clients | waiting, batch + later, messages + self._take_messages())
            return
        self._send(messages)
        for client in clients:
            client.release()
        self._secure()
        self.go_on()

    def _take_messages(self) -> Messages:
        if self._outbox.events:
            self.node.notifications.collect()
        messages, self._outbox.messages = self._outbox.messages, []
        if self._messages:
            messages, self._messages = self._messages + messages, []
        return messages

    def _send_urgent(self, messages: Messages) -> Messages:
        """Let those leave that only tell which nodes are there; returns the others."""
        urgent = [entry for entry in messages if entry[1][0] in URGENT]
        if not urgent:
            return messages
        self._outside.send(urgent)
        return [entry for entry in messages if entry[1][0] not in URGENT]

    def _send(self, messages: Messages) -> None:
        """Let messages leave; while nothing can be made durable, those that say or ask that it is do not."""
        if self.failure is not None:
            messages = [entry for entry in messages if entry[1][0] not in DURABLE_ALONE]
        if messages:
            self._outside.send(messages)

    def _speak(self, messages: Messages, clients: Iterable[Recipient]) -> None:
        """Say what is durable now: to the other nodes, then to the clients."""
        if messages:
            self._send(messages)
        self._flush(clients)
        if self._wants_rest:
            self._rest()
        if self._waiting or self._batch or self._messages or self._outbox.journal:
            self._hold(None)

    def _flush(self, clients: Iterable[Recipient]) -> None:
        for client in clients:
            try:
                client.flush()
            except Exception:  # a bug of ours: the others get their replies
                self._outside.crashed()

    def go_on(self) -> None:
        """Do what was put off while a commit was under way."""
        if self._wants_rest:
            self._rest()
        self._hold(None)

    def rest_soon(self) -> None:
        """Have `Outside.rested` called as soon as no commit is under way, at the end of this turn or later."""
        self._wants_rest = True
        if not self.under_way:
            self.end_soon()

    def _rest(self) -> None:
        if not self.under_way:
            self._wants_rest = False
            self._outside.rested()

    def occupy(self) -> None:
        """Commit nothing from now on: something else uses the stores, until `vacate`."""
        self.under_way = True

    def vacate(self) -> None:
        """Go on after `occupy`."""
        self.under_way = False

    # What may leave only when it cannot be lost.

    def _note_held(self) -> None:
        """Note which held jobs the commit that begins is about."""
        mark = self._state.durability.watermark
        self._told = (mark.last, mark.until)

    def _secure(self) -> None:
        """Let the store make safe what it has, if jobs are held until then."""
        if self._told[0] > self._safe_last and not self._securing and not self._is_halted:
            self._securing = True
            self._in_securing = self._told
            self._outside.secure()

    def secured(self, reason: str) -> None:
        """Take the outcome of `secure`: "" = all of it is safe, and the held jobs are queued."""
        if reason:
            self._outside.secure_later(reason)  # the jobs are held as long as it takes
            return
        self._securing = False
        last, until = self._in_securing
        self._safe_last = last
        if not self.is_closed:
            self.node.begin()
            self.node.requeueing.release(last, until)
            self.finish_step(None)
            self._secure()

    def secure_again(self) -> None:
        """Try once more to make safe what is held."""
        self._securing = False
        self._secure()

    # Failure and return.

    def fail(self, reason: str) -> None:
        """Take no more jobs, though no commit has failed: the store cannot be trusted."""
        clients, self._waiting = self._waiting, {}
        batch, self._batch = self._batch, []
        self._fail(reason, clients, batch, self._take_messages())

    def _fail(self, reason: str, clients: dict[Recipient, None], batch: list[list[Record]], messages: Messages) -> None:
        """Take no more jobs, and take those back whose producers have not been answered."""
        self._set_failure(reason)
        self.node.begin()
        self._take_back(reason, clients, batch)
        self._send(messages)
        for client in clients:
            client.release()
            client.flush()
        self._outside.try_again_later()

    def _take_back(self, reason: str, clients: dict[Recipient, None], batch: list[list[Record]]) -> None:
        """Answer MISCONF instead of each id that was about to be told, or event that was done by that."""
        unkept = promises(_flat(batch))
        error = JournalFailed(f"{JournalFailed.__doc__}: {reason}")
        for client in clients if unkept else ():
            for job_id in client.take_back(unkept, error):
                job = self._state.jobs.get(job_id)
                if job is not None:
                    self._state.forget(job, GONE_REFUSED)
        self.append()
        self._batch = []

    def _set_failure(self, reason: str | None) -> None:
        before, self.failure = self.failure, reason
        self._state.durability.read_only = reason is not None
        self._outside.failing(before)

    def try_again(self) -> None:
        """Commit once more what could not be committed."""
        if self.under_way:
            self._outside.try_again_later()
            return
        self._outside.repair()
        if self._state.durability.watermark.held:
            self._note_held()
        self._tries_again = True
        reason = self._outside.commit()
        if reason is None:
            self.under_way = True
            self._outside.await_commit()
        else:
            self._tried_again(reason)

    def _tried_again(self, reason: str) -> None:
        self._tries_again = False
        if reason:
            if reason != self.failure:
                self._set_failure(reason)
            self._outside.try_again_later()
        else:
            self.recover()
            self._secure()
        self.go_on()

    def recover(self) -> None:
        """Take jobs again."""
        if self.failure is not None:
            self._set_failure(None)

    # The end.

    def halt(self) -> None:
        """Begin nothing by itself from now on."""
        self._is_halted = True

    def resume(self) -> None:
        """Go on after `halt`."""
        self._is_halted = False
        if self.failure is not None:
            self._outside.try_again_later()
        self._secure()


def _flat(batch: list[list[Record]]) -> Iterator[Record]:
    for records in batch:
        yield from records
