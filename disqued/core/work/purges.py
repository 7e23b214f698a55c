"""Purging: the jobs of a queue end on every node, each counted once.

    us  --PURGE(queue, number, states, first = 0)-->  every node with a link; each ends its jobs
        <--PURGED(number, count, over)--              how many so far, now and then, and at the end
    us  --PURGE(queue, number, states, first)-->      once more: whatever a holder left to one that did not see to it
        <--PURGED(number, count, over)--

A job ends as a cancelled one: nobody did its work.

In the first round a job that all of its holders see in one state is ended, and counted, by the holder that comes
first (`ids.comes_first`); SETACK ends it on the others.  One that is queued on one node and active on the others is
left to the node that has it queued, unless both states are meant.  In the second round each node ends what is left
of that, so that no job stays because a holder fell silent, or because two nodes know different things of it.  A node
that left nothing to others has nothing to do then.

A job that another node brings (YOURJOBS) may have left before that node heard of the purge, and come when this one is
done with its round.  So it is held against the rounds of which the end is not known here, and ended or left like any
other.  One that is delivered at most once and is longer on its way than both rounds take stays.

A dry run is the first round, in which jobs are counted and none ends.

What was added after a node heard of the purge stays.  A node that is away learns of each job that ended by SETACK;
what it alone holds stays.

FLUSH, which QFLUSH sends, is the first round without a count, where each node ends what it has.

Times are integer milliseconds.
"""

from collections.abc import Generator, Iterator
from typing import Final

from disqued.core.model.job import (
    ACKED,
    ACTIVE,
    ALL_STATES,
    DEAD,
    FLAG_LEASED,
    FLAG_QUEUED_BEFORE,
    QUEUED,
    Job,
)
from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.messages import DRY, FLUSH, PURGE, PURGED
from disqued.core.model.outbox import Client
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State, goes_first
from disqued.core.model.unfinished import QuietParts
from disqued.core.work.acks import Acks

SILENCE_MS: Final = 2_000  #: how long a node may say nothing before the others are waited for alone
REPORT_MS: Final = 500  #: how often a node says how far it is
ENDED_PER_PART: Final = 500  #: jobs that end in one go, some milliseconds' work
LOOKED_AT_PER_PART: Final = 5_000  #: jobs that are looked at

_ALIKE: Final = 1 << ACTIVE | 1 << QUEUED  #: with both of these, the holders of a job agree on whether it is meant


class Purge(Timed):
    """A purge that a client of this node asked for; it is due when nobody has said anything for too long."""

    __slots__ = ("client", "counts", "first", "is_last", "number", "queue", "silent", "states", "waits_for")

    def __init__(self, client: Client, number: int, queue: bytes, states: int) -> None:
        self.awake_at = 0
        self.client: Client | None = client  #: None = it has gone
        self.number: int = number  #: of this round
        self.first: int = number  #: of the first round
        self.queue: bytes = queue
        self.states: int = states  #: bits
        self.is_last: bool = False
        self.waits_for: set[bytes] = set()  #: nodes that are not done with this round, this one among them
        self.silent: set[bytes] = set()  #: nodes that said nothing in the first round: nobody waits for them any more
        self.counts: dict[tuple[int, bytes], int] = {}  #: jobs that ended, by round and node


class Share:
    """What one node does in a round of a purge."""

    __slots__ = ("count", "is_last", "is_over", "latest", "leaves", "queue", "states")

    def __init__(self, queue: bytes, states: int, latest: int, *, is_last: bool) -> None:
        self.queue: bytes = queue
        self.states: int = states
        self.latest: int = latest  #: stamp of the last job that is meant
        self.is_last: bool = is_last
        self.is_over: bool = False  #: the asking node knows the count: what ends later counts in the next round
        self.count: int = 0  #: jobs that ended
        self.leaves: bool = False  #: jobs were left to other holders


class Purges(Machine):
    """The machine behind QPURGE, and QFLUSH of jobs."""

    __slots__ = ("_acks", "_open", "_state", "ended_per_part", "shares")

    def __init__(self, state: State, acks: Acks) -> None:
        self._state = state
        self._acks = acks
        self.ended_per_part: int = ENDED_PER_PART
        self._open: dict[int, Purge] = {}
        #: Purges of which the second round is not over here, by the node that asked and the number of the first one.
        self.shares: dict[tuple[bytes, int], Share] = {}

    def hears(self) -> dict[int, Hear]:
        return {PURGE: self.on_purge, PURGED: self.on_purged, FLUSH: self.on_flush}

    def due_table(self) -> Acts:
        return on(Purge, self.due)

    def abandon_table(self) -> Acts:
        return on(Purge, self.forsake)

    # Asking.

    def purge(self, client: Client, queue: bytes, states: int) -> None:
        """End the jobs of a queue on all nodes with a link; the client is blocked, and hears how many ended."""
        state = self._state
        this = Purge(client, state.numbers.next_number(), queue, states)
        state.waiting.add(client, this)
        self._begin_round(this)

    def _begin_round(self, this: Purge) -> None:
        state = self._state
        self._open[this.number] = this
        first = this.first if this.is_last else 0
        message = (PURGE, this.queue, this.number, this.states, first)
        this.waits_for = {node_id for node_id in list(state.peers.linked) if state.send(node_id, message)} - this.silent
        this.waits_for.add(state.node_id)
        state.schedule.move(this, state.now + SILENCE_MS)
        state.begin_work(self._do_share(state.node_id, this.queue, this.number, this.states, first))

    def _note(self, this: Purge, node_id: bytes, count: int, *, is_over: bool) -> None:
        """Note how far a node is, and go on when it was the last one."""
        this.counts[this.number, node_id] = count
        if not is_over:
            self._state.schedule.move(this, self._state.now + SILENCE_MS)
            return
        this.waits_for.discard(node_id)
        if not this.waits_for:
            self._end_round(this)

    def _end_round(self, this: Purge) -> None:
        state = self._state
        del self._open[this.number]
        if not (this.is_last or this.states & DRY):
            this.is_last = True
            this.number = state.numbers.next_number()
            self._begin_round(this)
            return
        state.schedule.cancel(this)
        if this.client is not None:
            state.waiting.remove(this.client, this)
            state.outbox.replies.append((this.client, sum(this.counts.values()), []))

    def due(self, this: Purge) -> None:
        """Go on without the nodes that say nothing."""
        if self._open.get(this.number) is not this:
            return
        if self._state.node_id in this.waits_for:
            self._state.schedule.move(this, self._state.now + SILENCE_MS)
        else:
            this.silent = this.waits_for
            self._end_round(this)

    def forsake(self, this: Purge) -> None:
        """Go on without the client, which has gone."""
        if this.client is not None:
            self._state.waiting.remove(this.client, this)
            this.client = None

    def on_purged(self, sender: bytes, number: int, count: int, over: bool) -> None:
        """Hear how far another node is."""
        this = self._open.get(number)
        if this is not None and sender in this.waits_for:
            self._note(this, sender, count, is_over=over)

    def link_closed(self, node_id: bytes) -> None:
        """Expect no answer of a node, and no second round."""
        for this in list(self._open.values()):
            if node_id in this.waits_for:
                this.waits_for.discard(node_id)
                if not this.waits_for:
                    self._end_round(this)
        for place in [place for place in self.shares if place[0] == node_id]:
            del self.shares[place]

    def flushing(self) -> None:
        """Everything is gone: the clients that wait hear what is known."""
        self.shares.clear()
        for this in list(self._open.values()):
            this.is_last = True
            self._end_round(this)

    # Ending jobs.

    def on_purge(self, sender: bytes, queue: bytes, number: int, states: int, first: int) -> None:
        """End the jobs of a queue because another node says so, and answer how many these were."""
        self._state.begin_work(self._do_share(sender, queue, number, states, first))

    def _do_share(self, asker: bytes, queue: bytes, number: int, states: int, first: int) -> QuietParts:
        """Do what one round asks of this node, in parts, and tell the asking node how far it is."""
        state = self._state
        share = Share(queue, states, state.numbers.next_ctime(state.wall), is_last=first != 0)
        place = (asker, first or number)
        before = self.shares.get(place)
        if before is not None:
            share.latest = before.latest
            share.count = before.count if before.is_over else 0
        if not states & DRY:
            self.shares[place] = share
        if before is None or before.leaves:
            told_at = state.now
            for _ in self._end_jobs(share):
                if state.now - told_at >= REPORT_MS:
                    told_at = state.now
                    self._report(asker, number, share.count, is_over=False)
                yield
        if first:
            self.shares.pop(place, None)
        # The next round may begin at once.
        count, share.count, share.is_over = share.count, 0, True
        self._report(asker, number, count, is_over=True)

    def _report(self, asker: bytes, number: int, count: int, *, is_over: bool) -> None:
        state = self._state
        if asker != state.node_id:
            state.send(asker, (PURGED, number, count, is_over))
            return
        this = self._open.get(number)
        if this is not None:
            self._note(this, asker, count, is_over=is_over)

    def purge_here(self, queue: bytes, states: int) -> Generator[None, None, int]:
        """End the jobs of a queue that this node holds, in parts, or count them; returns how many."""
        state = self._state
        share = Share(queue, states, state.numbers.next_ctime(state.wall), is_last=True)
        yield from self._end_jobs(share)
        return share.count

    def _end_jobs(self, share: Share) -> QuietParts:
        """End or count the jobs that are meant, in parts; consumers that wait go on waiting."""
        state = self._state
        seen = done = 0
        is_dry = share.states & DRY != 0
        for job in self._every_job() if is_dry else self._jobs_of(share.queue):
            seen += 1
            if self._is_meant(job, share) and state.jobs.get(job.id) is job:
                if is_dry:
                    share.count += self._is_mine(job, share)
                else:
                    done += self._end_one(job, share)
            if seen >= LOOKED_AT_PER_PART or done >= self.ended_per_part:
                seen = done = 0
                yield

    def end(self, job: Job) -> bool:
        """End a job that another node has brought, if a purge means it that is not over here; say whether it ended."""
        return any(self._is_meant(job, share) and self._end_one(job, share) for share in self.shares.values())

    def _end_one(self, job: Job, share: Share) -> bool:
        """End and count a job, or leave it to another holder; say whether it ended."""
        is_mine = self._is_mine(job, share)
        if not (is_mine or share.is_last):
            share.leaves = True
            return False
        share.count += is_mine
        self._acks.end_undone(job)
        return True

    def _is_mine(self, job: Job, share: Share) -> bool:
        """Return whether this node ends a job in the first round, and counts it."""
        sees_all = share.states & _ALIKE == _ALIKE or self._is_alike(job)
        return not sees_all or goes_first(self._state, job.holders, job.id)

    def _is_meant(self, job: Job, share: Share) -> bool:
        """Return whether a job is to end.

        Of an active job with more holders another one may have it in its queue: unless that state is meant as well it
        has to be with a consumer of this node, or delayed.
        """
        if job.queue != share.queue or job.options.kind or job.state == ACKED or not share.states >> job.state & 1:
            return False
        if job.ctime > share.latest:
            return False
        if job.state != ACTIVE or share.states & 1 << QUEUED or job.holders is None:
            return True
        return bool(job.flags & FLAG_LEASED) or self._is_delayed(job)

    def _is_alike(self, job: Job) -> bool:
        """Return whether all holders of a job see it in this state: it is dead, or delayed."""
        return job.state == DEAD or self._is_delayed(job)

    def _is_delayed(self, job: Job) -> bool:
        """Return whether a job waits for the end of its delay, as far as this node knows.

        A node that has a copy expects the job in its queue a retry period after that (FLAG_QUEUED_BEFORE).
        """
        options = job.options
        if job.state != ACTIVE or not options.delay_ms:
            return False
        begins_at = job.expires_at - options.ttl_ms + options.delay_ms
        queued_at = begins_at + (options.retry_ms if job.flags & FLAG_QUEUED_BEFORE else 0)
        return begins_at > self._state.now and job.requeue_at >= queued_at

    def _jobs_of(self, name: bytes) -> Iterator[Job]:
        """The jobs of a queue, some of them twice, and others: first those known to be of it."""
        queue = self._state.queues.by_name.get(name)
        if queue is not None:
            for unit in (*queue.units.listed(), *queue.leased, *queue.elsewhere, *queue.dead):
                yield unit.job
        yield from self._every_job()

    def _every_job(self) -> Iterator[Job]:
        for _, jobs in self._state.jobs.from_table(0):
            yield from jobs

    # Flushing.

    def tell_flush(self, name: bytes) -> None:
        """Let all nodes that can be reached flush a queue."""
        for node_id in list(self._state.peers.linked):
            self._state.send(node_id, (FLUSH, name, 0))

    def on_flush(self, sender: bytes, name: bytes, _: int) -> None:
        """Flush a queue because another node says so."""
        self._state.work(self.purge_here(name, ALL_STATES))
