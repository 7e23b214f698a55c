"""Redriving: the dead jobs of a queue are queued again, on every node, each counted once.

    us  --REDRIVE(queue, number, first, count, last, ids)-->  one node after the other; this one is the first
        <--REDRIVEN(number, count, rest)--                    jobs redriven, and whether there may be more
    ... once more, for what a holder left to one that did not see to it

Each node redrives the jobs of which it is the first reachable holder (`ids.comes_first`), oldest first, so that
a count holds for the whole cluster.  The nodes are asked in turn, some jobs at a time; pauses between questions keep a
rate.  A redriven job is not dead any more, and the others hear so (FATE), so that to ask once more
changes nothing.

Two nodes may redrive a job all the same: they do not agree on its holders, or FATE is late.  So it is queued as any job
whose timer ends, when the other holders have said that they do not have it (WILLQUEUE, `sharing`).

Times are integer milliseconds.
"""

from typing import Final

from disqued.core.model.job import DEAD, Job
from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.messages import OWNED_ELSEWHERE, REDRIVE, REDRIVE_ENDED, REDRIVE_GOES_ON, REDRIVEN
from disqued.core.model.outbox import Client
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State, goes_first
from disqued.core.model.unfinished import AT_ONCE
from disqued.core.work.deadletters import DeadLetters

SILENCE_MS: Final = 2_000  #: how long a node may say nothing before the others are asked
SPREADS_MS: Final = 200  #: between the two rounds: the word of the first one is under way
JOBS_AT_ONCE: Final = 200  #: jobs that are redriven in one step
LOOKED_AT_ONCE: Final = 5_000  #: jobs that are looked at
GRANTS_A_SECOND: Final = 10  #: questions a second where there is a rate
NO_LIMIT: Final = (1 << 32) - 1


class Redrive(Timed):
    """A redrive that a client of this node asked for."""

    __slots__ = ("asked", "client", "count", "first", "ids", "is_last", "left", "nodes", "number", "queue", "rate",
                 "some_left")  # fmt: skip

    def __init__(  # noqa: PLR0917 - the fields of the command
        self, client: Client, number: int, queue: bytes, left: int, ids: tuple[bytes, ...], rate: int
    ) -> None:
        self.awake_at = 0
        self.client: Client = client
        self.number: int = number  #: of the last question
        self.first: int = number  #: of the first question of the round, by which nodes know it
        self.queue: bytes = queue
        self.left: int = left  #: jobs that may be redriven yet
        self.ids: tuple[bytes, ...] = ids  #: these alone; empty = any
        self.rate: int = rate  #: jobs a second; 0 = no limit
        self.nodes: list[bytes] = []  #: to be asked in this round, the next one last
        self.asked: bytes = b""  #: the node that has yet to answer; empty = none
        self.count: int = 0  #: jobs redriven
        self.is_last: bool = False  #: the second round
        self.some_left: bool = False  #: a node left jobs to other holders


class Redrives(Machine):
    """The machine behind REDRIVE."""

    __slots__ = ("_asked", "_letters", "_open", "_shares", "_state")

    def __init__(self, state: State, letters: DeadLetters) -> None:
        self._state = state
        self._letters = letters
        self._open: dict[Redrive, None] = {}
        self._asked: dict[int, Redrive] = {}  #: those that wait for a node, by the number of the question
        #: Jobs to be looked at for a round, the next one last, by the node that asks and the number of the round.
        self._shares: dict[tuple[bytes, int], list[Job]] = {}

    def hears(self) -> dict[int, Hear]:
        return {REDRIVE: self.on_redrive, REDRIVEN: self.on_redriven}

    def due_table(self) -> Acts:
        return on(Redrive, self.due)

    def abandon_table(self) -> Acts:
        return on(Redrive, self.forsake)

    # Asking.

    def redrive(self, client: Client, queue: bytes, count: int, ids: tuple[bytes, ...], rate: int) -> None:
        """Queue dead jobs again on all nodes with a link; the client is blocked, and hears how many."""
        state = self._state
        this = Redrive(client, state.numbers.next_number(), queue, count, ids, rate)
        state.waiting.add(client, this)
        self._open[this] = None
        self._begin_round(this, AT_ONCE)

    def _begin_round(self, this: Redrive, at: int) -> None:
        state = self._state
        this.first = state.numbers.next_number()
        this.nodes = [*sorted(state.peers.linked, reverse=True), state.node_id]
        this.some_left = False
        state.schedule.move(this, at)

    def due(self, this: Redrive) -> None:
        """Ask the next node, or go on without one that says nothing."""
        if this.asked:
            self._give_up(this)
        while this.nodes and this.left:
            if self._ask(this):
                return
            this.nodes.pop()
        if this.some_left and this.left and not this.is_last:
            this.is_last = True
            self._begin_round(this, self._state.now + SPREADS_MS)
            return
        self._end(this)

    def _ask(self, this: Redrive) -> bool:
        """Ask the next node for as many jobs as may be now; return False if it cannot be asked."""
        state, node_id = self._state, this.nodes[-1]
        count = min(this.left, JOBS_AT_ONCE)
        if this.rate:
            count = min(count, max(1, this.rate // GRANTS_A_SECOND))
        if node_id == state.node_id:
            self._answered(this, *self._redrive_some(node_id, this.queue, this.first, count, this.ids, this.is_last))
            return True
        this.number = state.numbers.next_number()
        message = (REDRIVE, this.queue, this.number, this.first, count, this.is_last, this.ids)
        if not state.send(node_id, message):
            return False
        this.asked = node_id
        self._asked[this.number] = this
        state.schedule.move(this, state.now + SILENCE_MS)
        return True

    def _give_up(self, this: Redrive) -> None:
        """Expect no answer of the node that was asked, and ask it no more."""
        del self._asked[this.number]
        this.asked = b""
        this.nodes.pop()

    def _answered(self, this: Redrive, count: int, rest: int) -> None:
        """Note what a node did, and go on when the rate allows it."""
        this.count += count
        this.left -= count
        if rest != REDRIVE_GOES_ON:
            this.nodes.pop()
            this.some_left = this.some_left or rest == OWNED_ELSEWHERE
        self._state.schedule.move(this, self._state.now + count * 1_000 // this.rate if this.rate else AT_ONCE)

    def _end(self, this: Redrive) -> None:
        self._close(this)
        self._state.outbox.replies.append((this.client, this.count, []))

    def on_redriven(self, sender: bytes, number: int, count: int, rest: int) -> None:
        """Hear what another node did."""
        this = self._asked.get(number)
        if this is not None and this.asked == sender:
            del self._asked[number]
            this.asked = b""
            self._answered(this, count, rest)

    def forsake(self, this: Redrive) -> None:
        """Stop: the client that wanted it has gone."""
        self._close(this)

    def _close(self, this: Redrive) -> None:
        self._state.waiting.remove(this.client, this)
        self._state.schedule.cancel(this)
        self._asked.pop(this.number, None)
        del self._open[this]

    def link_closed(self, node_id: bytes) -> None:
        """Expect no answer of a node, and no further question."""
        for this in self._asked.values():
            if this.asked == node_id:
                self._state.schedule.move(this, self._state.now + 1)
        for place in [place for place in self._shares if place[0] == node_id]:
            del self._shares[place]

    def flushing(self) -> None:
        """Everything is gone: the clients that wait hear what was done."""
        self._shares.clear()
        for this in list(self._open):
            self._end(this)

    # Redriving.

    def on_redrive(  # noqa: PLR0917 - the fields of the message
        self, sender: bytes, queue: bytes, number: int, first: int, count: int, last: bool, ids: tuple[bytes, ...]
    ) -> None:
        """Redrive jobs because another node says so."""
        done, rest = self._redrive_some(sender, queue, first, min(count, JOBS_AT_ONCE), ids, last)
        self._state.send(sender, (REDRIVEN, number, done, rest))

    def _redrive_some(  # noqa: PLR0917 - the fields of the message
        self, asker: bytes, name: bytes, first: int, count: int, ids: tuple[bytes, ...], is_last: bool
    ) -> tuple[int, int]:
        """Redrive some jobs of a round; returns how many, and whether there may be more."""
        share = self._shares.get((asker, first))
        if share is None:
            share = self._shares[asker, first] = self._dead_jobs(name, ids)
        done = 0
        rest = REDRIVE_ENDED
        for _ in range(min(len(share), LOOKED_AT_ONCE)):
            if done == count:
                break
            job = share.pop()
            if self._state.jobs.get(job.id) is not job or job.state != DEAD:
                continue
            if is_last or goes_first(self._state, job.holders, job.id):
                self._letters.redrive(job)
                done += 1
            else:
                rest = OWNED_ELSEWHERE
        if share:
            return done, REDRIVE_GOES_ON
        del self._shares[asker, first]
        return done, rest

    def _dead_jobs(self, name: bytes, ids: tuple[bytes, ...]) -> list[Job]:
        """The dead jobs of a queue, or those of these ids, the oldest last."""
        state = self._state
        queue = state.queues.by_name.get(name)
        if queue is None:
            return []
        found = [job for job_id in ids if (job := state.jobs.get(job_id)) is not None and job in queue.dead]
        if not ids:
            found = [unit.job for unit in queue.dead]
        found.reverse()
        return found
