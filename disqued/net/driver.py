"""The loop around the node: commit, answers, one timer.

    a client's bytes --> step(s) of the node --> outbox
                                                    |  1  journal: appended, committed once per turn of the loop
                                                    |  2  messages to peers
                                                    |  3  replies
                                                    +  4  the one timer is set to the node's next deadline

While no store wants the journal there is nothing to wait for: a client is answered as soon as its commands have run,
or at the end of the loop's round of clients (`net/reactor.py`), and messages leave at the end of the turn, together.
Otherwise the replies of every step of one turn of the loop wait for the one commit at the end of that turn: under
`appendfsync always` hundreds of clients share one sync.  A store that commits elsewhere (a thread, a server) answers
later; the turns that pass meanwhile share the commit after that one.  Messages wait in the same way, but for those
that only tell who is there.

When a commit fails nothing of it is acknowledged: the producers hear MISCONF with the store's reason in the place of
their job's id, the jobs are forgotten, additions are refused from then on, and no other node is given a copy or hears
that one is kept.  Who was to get an event that is done by that (EX 0) hears MISCONF, too: after a crash its group might
have it again.  Jobs that are there are still delivered and acknowledged.  The commit is tried again every second,
so that additions resume when there is room again, when the server is back, or when the journal has been written anew.

    store ----------------------------------> left
         records of each step to both           ^  one commit of both, then the word that the new one counts
    successor --- walk, in slices --- complete -+

Source: Disque, src/server.c (beforeSleep), src/aof.c; times are integer milliseconds.
"""

from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued.core.messages import DURABLE_ALONE, URGENT, Message
from disqued.core.node import Node
from disqued.core.outbox import GONE_REFUSED, Record, promises
from disqued.core.recovery import walk
from disqued.errors import JournalFailed
from disqued.net.callers import Caller
from disqued.net.clients import ClientConnection
from disqued.net.commits import Commits
from disqued.net.turns import soon_of
from disqued.persistence.interface import IStore, StoreError, StoreFailed

Messages = list[tuple[bytes, Message]]  #: node ids, and what is for them
Recipient = ClientConnection | Caller  #: who is answered when what the answer says is durable

log = Logger("disqued.net.driver.Driver")  # by its name: who asks cannot be seen where this is compiled

RETRY_S = 1.0  #: pause between two attempts to commit, after one has failed


class Driver:
    """Carries out what the node's steps ask for."""

    def __init__(
        self, node: Node, store: IStore, reactor: IReactorTime, *,
        on_failure: Callable[[], None], on_crash: Callable[[], None],
    ) -> None:  # fmt: skip
        """Take a node and the store of its journal.

        `on_failure` is called when `failure` changes, `on_crash` while an exception is handled that is a bug of ours.
        """
        self.node = node
        self.store = store
        self.reactor = reactor
        self.failure: str | None = None  #: why the store takes no jobs now
        self.commits = Commits()
        #: Takes messages to other nodes that may leave now; set by the daemon.
        self.send: Callable[[Messages], None] = lambda messages: None
        #: Called when what is known of the other nodes has changed; set by the daemon.
        self.on_members: Callable[[], None] = lambda: None
        #: Called when the trail has news; set by the daemon.
        self.on_trail: Callable[[], None] = lambda: None
        #: Takes the same records, and will take the store's place.
        self.successor: IStore | None = None
        self._on_failure = on_failure
        self._on_crash = on_crash
        self._outbox = node.outbox
        self._state = node.state
        self._timer: IDelayedCall | None = None
        self._timer_at = 0
        self._halted = False
        self._is_closed = False
        self._waiting: dict[Recipient, None] = {}  #: their replies wait for the next commit
        self._gathers = False  #: a round of clients runs
        self._gathered: dict[Recipient, None] = {}  #: their replies wait for the end of the round, and nothing else
        self._batch: list[list[Record]] = []  #: what the next commit makes durable
        self._messages: Messages = []  #: they wait for the next commit
        self._soon = soon_of(reactor)
        self._sends = False  #: messages leave when this turn is over
        self._commits = False  #: it is committed then
        self._under_way: Deferred[None] | None = None  #: a commit that has not answered yet
        self._retry_call: IDelayedCall | None = None
        self._securing = False  #: the store makes safe what held jobs wait for
        self._told = (0, 0)  #: number of the last held job that a commit knows, and the watermark that it has
        self._safe_last = 0  #: number of the last one that is safe
        self._secure_call: IDelayedCall | None = None
        self._when_handed_over: Callable[[StoreFailed | None], None] | None = None
        node.state.journaling = False

    def start(self) -> None:
        """Give the store records from now on: it is loaded."""
        self.store.attention = self._attend
        self._find_journaling()

    def _find_journaling(self) -> None:
        self._state.journaling = bool(self.store.records) or self.successor is not None

    def begin_watermark(self) -> None:
        """Let a journal that has no watermark have one, with whatever it is given next."""
        if self._state.journaling and not self._state.watermark.until:
            self._append()
            record = self._state.begin_watermark()
            self.store.append([record])
            if self.successor is not None:
                self.successor.append([record])

    # Steps.

    def finish_step(self, client: Recipient | None) -> None:
        """Carry out the effects of the step that has just run, on behalf of a client or of the timer."""
        if self._is_closed:
            return  # Nothing can be made durable any more, so nobody hears of it.
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
        if (outbox.messages or outbox.events) and not self._commits and not self._sends:
            self._sends = True
            self._soon(self._end_turn)
        if outbox.members_changed:
            outbox.members_changed = False
            self.on_members()
        endings = self._state.endings
        if endings is not None and endings.is_news():
            self.on_trail()
        at = self._state.schedule.next_at()
        if at is not None and not self._halted and (self._timer is None or at < self._timer_at):
            self._set_timer(at)

    def _hand_over_replies(self) -> None:
        """Put the replies of clients that were blocked where their other replies wait."""
        outbox, node = self._outbox, self.node
        while outbox.replies:
            replies, outbox.replies = outbox.replies, []
            for client, value, units in replies:
                assert isinstance(client, ClientConnection | Caller)
                if units and client.is_gone():
                    node.delivery.give_back(units)
                    continue
                client.unblock(value)
                if node.state.journaling:
                    self._waiting[client] = None
                elif self._gathers:
                    self._gathered[client] = None
                else:
                    client.flush()
            node.serve()

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

    def _hold(self, client: Recipient | None) -> None:
        """Let the step's replies wait for the commit at the end of this turn.

        While a commit takes its time elsewhere, a client whose step has nothing to commit, and that waits for nothing
        either, is answered at once.
        """
        appended = self._append()
        if client is not None:
            if self._under_way is not None and not appended and client not in self._waiting and not client.is_held:
                client.flush()
            else:
                self._waiting[client] = None
        waits = self._under_way is not None and self.failure is None
        if not self._commits and not waits and (self._waiting or self._batch or self._messages):
            self._commit_soon()

    def _append(self) -> bool:
        """Give the stores what the step has journaled; say whether there was anything."""
        outbox = self._outbox
        if not outbox.journal:
            return False
        records, outbox.journal = outbox.journal, []
        self.store.append(records)
        if self.successor is not None:
            self.successor.append(records)
        self._batch.append(records)
        return True

    # The end of a turn.

    def _end_turn(self) -> None:
        """Let messages leave that have no commit to wait for."""
        if not self._sends:
            return  # `settle` has done it.
        self._sends = False
        if self._outbox.events:
            self.node.events.collect()
        if self._under_way is None and not self._batch:
            self._send(self._take_messages())
        else:
            messages, self._outbox.messages = self._outbox.messages, []
            self._messages += self._send_urgent(messages)

    def _send_urgent(self, messages: Messages) -> Messages:
        """Let those leave that only tell who is there; returns the others."""
        urgent = [entry for entry in messages if entry[1][0] in URGENT]
        if not urgent:
            return messages
        self.send(urgent)
        return [entry for entry in messages if entry[1][0] not in URGENT]

    def _take_messages(self) -> Messages:
        if self._outbox.events:
            self.node.events.collect()
        messages, self._outbox.messages = self._outbox.messages, []
        if self._messages:
            messages, self._messages = self._messages + messages, []
        return messages

    def _send(self, messages: Messages) -> None:
        """Let messages leave; while nothing can be made durable, those that say or ask that it is do not."""
        if self.failure is not None:
            messages = [entry for entry in messages if entry[1][0] not in DURABLE_ALONE]
        if messages:
            self.send(messages)

    def _commit_soon(self) -> None:
        """Commit when this turn is over."""
        self._commits = True
        self._soon(self._commit)

    def _commit(self) -> None:
        """End a turn: make its records durable, then speak."""
        if not self._commits:
            return  # `settle` has done it.
        self._commits = False
        clients, self._waiting = self._waiting, {}
        batch, self._batch = self._batch, []
        messages = self._take_messages()
        if self.failure is not None or not batch:
            # While it fails nothing is added, and what else is done the next good commit makes durable.
            self._speak(messages, clients)
            return
        self.commits.begin()
        if self._state.watermark.held:
            self._note_held()
        try:
            result = self.store.commit()
        except StoreFailed as error:
            self._fail(error, clients, batch, messages)
            return
        if result is None:
            self.commits.end()
            self._speak(messages, clients)
            if self._told[0] > self._safe_last:
                self._secure()
            return
        for client in clients:
            client.hold()
        messages = self._send_urgent(messages)
        self._under_way = result
        result.addCallbacks(
            self._answer, self._failed, callbackArgs=(clients, messages), errbackArgs=(clients, batch, messages)
        )
        result.addErrback(self._report)

    def _speak(self, messages: Messages, clients: Iterable[Recipient]) -> None:
        """Say what is durable now: to the other nodes, then to the clients."""
        self._send(messages)
        self._flush(clients)
        self._go_on()

    def _flush(self, clients: Iterable[Recipient]) -> None:
        for client in clients:
            try:
                client.flush()
            except Exception:  # a bug of ours: the others get their replies
                self._on_crash()

    def _answer(self, _: None, clients: Iterable[Recipient], messages: Messages) -> None:
        """Say what a commit that took its time has made durable."""
        self.commits.end()
        self._under_way = None
        self._send(messages)
        for client in clients:
            client.release()
        if self._told[0] > self._safe_last:
            self._secure()
        self._go_on()

    def _failed(
        self, failure: Failure, clients: dict[Recipient, None], batch: list[list[Record]], messages: Messages
    ) -> None:
        self._under_way = None
        waiting, self._waiting = self._waiting, {}
        later, self._batch = self._batch, []
        self._fail(self._reason(failure), clients | waiting, batch + later, messages + self._take_messages())

    def _reason(self, failure: Failure) -> StoreFailed:
        error = failure.value
        if isinstance(error, StoreFailed):
            return error
        self._report(failure)
        return StoreFailed(f"internal error: {error}")

    def _report(self, failure: Failure) -> None:
        log.failure("Internal error in the store", failure=failure)

    def _go_on(self) -> None:
        """Do what was put off while a commit was under way."""
        if self._when_handed_over is not None:
            if self._under_way is None:
                self._commit_successor()
        elif self.store.wants_compaction:
            self._compact_by_itself()
        self._hold(None)

    # What may leave only when it cannot be lost.

    def _note_held(self) -> None:
        """Note which held jobs the commit that begins is about."""
        mark = self._state.watermark
        self._told = (mark.last, mark.until)

    def _secure(self) -> None:
        """Let the store make safe what it has, if jobs are held until then."""
        last, until = self._told
        if self._securing or self._halted:
            return
        self._securing = True
        try:
            result = self.store.secure()
        except StoreFailed as error:
            self._not_secured(error)
            return
        if result is None:
            self._soon(lambda: self._secured(last, until))
        else:
            result.addCallbacks(
                lambda _: self._secured(last, until), lambda failure: self._not_secured(self._reason(failure))
            ).addErrback(self._report)

    def _secured(self, last: int, until: int) -> None:
        self._securing = False
        self._safe_last = last
        if not self._is_closed:
            self.node.begin()
            self.node.delivery.release(last, until)
            self.finish_step(None)
            if self._told[0] > self._safe_last:
                self._secure()

    def _not_secured(self, error: StoreFailed) -> None:
        """Try again in a while: the jobs are held as long as it takes."""
        log.warn("Jobs that are delivered at most once wait for the store: {reason}", reason=str(error))
        if not self._halted:
            self._secure_call = self.reactor.callLater(RETRY_S, self._secure_again)

    def _secure_again(self) -> None:
        self._secure_call = None
        self._securing = False
        if self._told[0] > self._safe_last:
            self._secure()

    # Failure and return.

    def _fail(
        self, error: StoreFailed, clients: Iterable[Recipient], batch: list[list[Record]], messages: Messages
    ) -> None:
        """Take no more jobs, and take those back whose producers have not been answered."""
        self.commits.failed += 1
        self._set_failure(str(error))
        log.error("The journal takes no jobs now: {reason}", reason=self.failure)
        self._take_back(clients, batch)
        self._send(messages)
        for client in clients:
            client.release()
            client.flush()
        self._retry_later()

    def _take_back(self, clients: Iterable[Recipient], batch: list[list[Record]]) -> None:
        """Answer MISCONF in the place of each id that was about to be told, or event that was done by that."""
        unkept = promises(record for records in batch for record in records)
        error = JournalFailed(f"{JournalFailed.__doc__}: {self.failure}")
        for client in clients if unkept else ():
            for job_id in client.take_back(unkept, error):
                job = self._state.jobs.get(job_id)
                if job is not None:
                    self._state.forget(job, GONE_REFUSED)
        self._append()
        self._batch = []

    def _set_failure(self, reason: str | None) -> None:
        self.failure = reason
        self._state.read_only = reason is not None
        self._on_failure()

    def _retry_later(self) -> None:
        if self._retry_call is None and not self._halted:
            self._retry_call = self.reactor.callLater(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        """Commit once more what could not be committed."""
        self._retry_call = None
        if self._under_way is not None:
            self._retry_later()
            return
        if self.store.wants_compaction:
            self._compact_by_itself()
        if self._state.watermark.held:
            self._note_held()
        try:
            result = self.store.commit()
        except StoreFailed as error:
            self._fail_again(error)
            return
        if result is None:
            self._recover()
            return
        self._under_way = result
        result.addCallbacks(
            lambda _: self._recover(), lambda failure: self._fail_again(self._reason(failure))
        ).addErrback(self._report)

    def _fail_again(self, error: StoreFailed) -> None:
        self.commits.failed += 1
        self._under_way = None
        if str(error) != self.failure:
            self._set_failure(str(error))
            log.error("The journal still takes no jobs: {reason}", reason=self.failure)
        self._retry_later()
        self._go_on()

    def _recover(self) -> None:
        self._under_way = None
        self._set_failure(None)
        log.info("The journal takes jobs again")
        if self._told[0] > self._safe_last:
            self._secure()
        self._go_on()

    def look(self) -> None:
        """Let the store see whether its files are there; between two commits, once a second."""
        if self._commits or self._under_way is not None or self.failure is not None or self._halted:
            return
        try:
            self.store.look()
        except StoreFailed as error:
            self._fail(error, {}, [], [])

    def _attend(self) -> None:
        """Hear from the store that there is something to do for it, although nothing is committed."""
        if not (self._commits or self._under_way or self.failure or self._is_closed):
            self._commit_soon()

    # Compaction.

    def compact(self) -> None:
        """Begin to make what is stored smaller, in the background.  Raises StoreError."""
        self.store.compact(walk(self._state))

    def _compact_by_itself(self) -> None:
        try:
            self.compact()
        except StoreError as error:
            log.warn("The journal is not rewritten: {reason}", reason=str(error))

    # Another store.

    def follow(self, successor: IStore) -> None:
        """Give a store that is open and empty the records of each step from now on, beside the one that counts."""
        self._append()
        self.successor = successor
        self._find_journaling()
        self.begin_watermark()

    def hand_over(self, done: Callable[[StoreFailed | None], None]) -> None:
        """Let the successor, which was given everything by now, take over.

        `done` is told the error, or is called at a moment when the successor holds all that was ever acknowledged
        and nothing is acknowledged meanwhile; it is to call `succeed` then.
        """
        self._when_handed_over = done
        if not self._commits and self._under_way is None:
            self._commit_soon()

    def _commit_successor(self) -> None:
        done, self._when_handed_over = self._when_handed_over, None
        assert done is not None
        assert self.successor is not None
        try:
            result = self.successor.commit()
        except StoreFailed as error:
            done(error)
            return
        if result is None:
            done(None)
            return
        self._under_way = result
        result.addCallbacks(
            lambda _: self._handed_over(done, None), lambda failure: self._handed_over(done, self._reason(failure))
        ).addErrback(self._report)

    def _handed_over(self, done: Callable[[StoreFailed | None], None], error: StoreFailed | None) -> None:
        self._under_way = None
        done(error)
        self._go_on()

    def succeed(self) -> IStore:
        """Make the successor the store; returns the one that is left, which is to be closed."""
        assert self.successor is not None
        left, self.store = self.store, self.successor
        self.store.attention = self._attend
        self.drop_successor()
        if self.failure is not None:
            self._cancel_retry()
            self._set_failure(None)
        return left

    def drop_successor(self) -> None:
        """Give records to the store alone."""
        self.successor = None
        self._when_handed_over = None
        self._find_journaling()

    # The timer.

    def _set_timer(self, at: int) -> None:
        """Be called at a time, and not later."""
        self._timer_at = at
        delay = max(0, at - self.node.state.now) / 1_000
        if self._timer is not None:
            self._timer.reset(delay)
        else:
            self._timer = self.reactor.callLater(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.node.begin()
        try:
            self.node.tick()
        except Exception:  # a bug of ours: the node goes on with what is due next
            self._on_crash()
        self.finish_step(None)

    def run_due(self) -> None:
        """Look at the deadlines now, whatever the timer says: after a load, and when memory or clocks changed."""
        if self._timer is not None:
            self._timer.cancel()
        self._tick()

    # The end.

    def halt(self) -> None:
        """Do nothing more by itself from now on: the node stays as it is."""
        self._halted = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._cancel_retry()
        if self._secure_call is not None:
            self._secure_call.cancel()
            self._secure_call = None
            self._securing = False

    def _cancel_retry(self) -> None:
        if self._retry_call is not None:
            self._retry_call.cancel()
            self._retry_call = None

    def resume(self) -> None:
        """Go on after all."""
        self._halted = False
        if self.failure is not None:
            self._retry_later()
        if self._told[0] > self._safe_last:
            self._secure()
        self.run_due()

    async def settle(self) -> None:
        """Commit what is pending and answer, outside the turns."""
        self._end_turn()
        while self._under_way is not None or self._commits:
            if self._under_way is not None:
                waiter: Deferred[Any] = Deferred()
                self._under_way.addBoth(waiter.callback)
                await waiter
            else:
                self._commit()

    async def stop(self) -> None:
        """Commit, close the store and do nothing again, whoever takes a step.  Raises StoreFailed."""
        self.halt()
        await self.settle()
        self._is_closed = True
        result = self.store.close()
        if result is not None:
            await result
