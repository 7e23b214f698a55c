"""Leaving: a node hands on what it holds, until nothing is lost when it is stopped.

    CLUSTER LEAVING yes --> everybody hears it; consumers that wait are sent away; nothing is asked for any more
                            walks over all jobs, a bounded part at a time, while the node serves as before
    CLUSTER LEAVING no  --> all of that ends; what was moved stays where it is

    queued                 --YOURJOBS--> the nodes that can be reached, in turn        --GOTJOB--> us
    delayed, delivered     --REPLJOB---> as many nodes as are to hold the job          --GOTJOB--> us
    delayed, RETRY > 0     then --ENQUEUE(what is left of the delay)--> the first of them
    delayed, RETRY 0       --YOURJOBS, not queued--> one node, which has it alone then --GOTJOB--> us

A job that may be delivered again stays here as a copy and is *safe* when as many other nodes have said that they hold
it as its producer wanted, or as can be reached if these are fewer; what was said before this leaving, or before the
link to that node, does not count.  What other nodes may hold but have not said so is
asked for again: with those that may have it, then with any.  A job that is delivered at most once is in one place at a
time, so it is safe when its new node has said so, or when that could not be heard for two seconds.

The node is safe to stop when a whole walk has met nothing that is not safe, nothing is on its way, no producer waits,
and no ack is left that a node could be told which can be reached.  Acks that only others wait for are counted and do
not keep the node: what they are of may be delivered again when such a node comes back.  The walks go on, once a second
or more rarely, for nodes come and go.

A queue that is paused out is not moved, as it would be handed out elsewhere: its jobs are copied, and those that are
delivered at most once wait until it is not paused any more.

What is on its way is bounded in number and bytes, so a slow link is not flooded: it continues as nodes answer.

Times are integer milliseconds.  Source: the Disque README, "CLUSTER LEAVING"; moving jobs away is new.
"""

from disqued.core.cluster.federation import Federation
from disqued.core.cluster.membership import Membership
from disqued.core.model.job import (
    ACKED,
    DEAD,
    FLAG_DELIVERED,
    FLAG_LEASED,
    FLAG_QUEUED_BEFORE,
    QUEUED,
    RETRY_NEVER_MS,
    WAIT_REPL,
    WORK_SCOPE,
    Job,
)
from disqued.core.model.machine import Acts, Machine, on
from disqued.core.model.messages import ENQUEUE, JOBS_PER_MESSAGE, REPLJOB, YOURJOBS
from disqued.core.model.queues import PAUSE_OUT, Queue
from disqued.core.model.registry import TABLES
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.model.trace import LEAVE
from disqued.core.work.delivery import FETCHED_BYTES, Delivery
from disqued.core.work.replication import Replication

STEP_MS = 5  #: between two parts of a walk
LOOKED_AT_PER_STEP = 2_000  #: jobs, a millisecond's work or two
WALK_MS = 1_000  #: between two walks, at least
REST_SHARE = 4  #: between two walks is so many times as long as a walk took, at least
ON_THEIR_WAY_MAX = 1_000  #: jobs that no node has answered for
BYTES_ON_THEIR_WAY_MAX = 4 * FETCHED_BYTES
ANSWER_MS = 2_000  #: after which an answer is not expected any more
SPREAD_MS = 500  #: as all holders of a job are kept apart

NO_NODE = "no node can be reached that takes jobs"
PAUSED = "there are at-most-once jobs in a queue that is paused out"
UNDER_WAY = "jobs are on their way"
ACKS = "acks are on their way"


class Leaving(Timed, Machine):
    """The machine that empties a node."""

    __slots__ = (
        "_acks_left", "_acks_met", "_began_at", "_bytes", "_delivery", "_doubted", "_federation", "_has_sent",
        "_imports", "_is_safe", "_jobs_left", "_jobs_met", "_looked_into", "_membership", "_on_their_way", "_paused",
        "_queueing", "_replication", "_state", "_table", "_to_be_doubted", "_turn", "_walks", "problem",
    )  # fmt: skip

    def __init__(
        self,
        state: State,
        delivery: Delivery,
        replication: Replication,
        federation: Federation,
        membership: Membership,
    ) -> None:
        self.awake_at = 0
        self._state = state
        self._delivery = delivery
        self._queueing = delivery.queueing
        self._replication = replication
        self._federation = federation
        self._membership = membership
        self._turn = 0
        self._reset()

    def _reset(self) -> None:
        #: Jobs that were sent and that no node has answered for: when, and how large they are.
        self._on_their_way: dict[bytes, tuple[int, int]] = {}
        self._bytes = 0  #: how large all of them are
        #: Nodes that may have lost what they said that they hold, before this leaving or this link to them: they are
        #: to say so again.  Those that this walk doubts, and those that the next one will.
        self._doubted: frozenset[bytes] = frozenset()
        self._to_be_doubted: set[bytes] = set(self._state.peers.by_id)
        #: Ids of jobs of which this walk has forgotten what those nodes said: what they say since counts.
        self._looked_into: set[bytes] = set()
        self._walks = 0  #: that were finished
        self._table = 0  #: where the walk goes on
        self._began_at = 0
        self._imports = 0  #: of the federation, when the walk began
        self._jobs_met = self._acks_met = 0  #: by this walk so far, that were not safe
        self._jobs_left = self._acks_left = 0  #: by the last one
        self._paused = False  #: the walk met jobs that wait for the end of a pause
        self._has_sent = False  #: the walk sent something
        self._is_safe = False  #: the last walk found that the node can be stopped
        #: Why the node is not safe to stop; empty when it is, or when it is not leaving.
        self.problem: str = ""

    def due_table(self) -> Acts:
        return on(Leaving, Leaving.due)

    # What operators want and see.

    def set(self, *, leaving: bool) -> None:
        """Begin or stop to leave; nothing happens when that is so already."""
        state = self._state
        if leaving == state.leaving:
            return
        self._delivery.set_leaving(leaving=leaving)
        self._membership.set_leaving(leaving=leaving)
        self._reset()
        if leaving:
            self._federation.local_demand.stop_asking()
            self._tell(UNDER_WAY)
        self.plan(STEP_MS)

    @property
    def is_safe(self) -> bool:
        """Tell whether nothing is lost when this node, which is leaving, is stopped now."""
        state = self._state
        return (
            state.leaving
            and self._is_safe
            and not self._replication.pending
            and not self._on_their_way
            and not self._to_be_doubted
            and self._imports == self._federation.imports
        )

    def facts(self) -> dict[str, str]:
        """What CLUSTER INFO shows."""
        state = self._state
        left, acks = 0, 0
        if state.leaving:
            left = self._jobs_left if self._walks else len(state.jobs) - state.custody.acked_count
            acks = len(state.custody.acked)
        return {
            "cluster_leaving": _yes(state.leaving),
            "cluster_leaving_jobs_left": str(max(left, len(self._on_their_way))),
            "cluster_leaving_acks_left": str(acks),
            "cluster_leaving_waits_for": self.problem,
            "cluster_safe_to_stop": _yes(self.is_safe),
        }

    def _tell(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            # Who writes the log looks at this node's words when its members changed.
            self._state.outbox.members_changed = True

    # Time.

    def plan(self, in_ms: int) -> None:
        """Go on in that time, or before; not at all unless the node is leaving."""
        schedule = self._state.schedule
        if not self._state.leaving:
            schedule.cancel(self)
            return
        at = self._state.now + in_ms
        if not 0 < self.awake_at <= at:
            schedule.move(self, at)

    def link_opened(self, node_id: bytes) -> None:
        """There is one node more that may take jobs; should it have come back, it may have come back empty."""
        if self._state.leaving:
            self._to_be_doubted.add(node_id)
        self.plan(STEP_MS)

    def flushed(self) -> None:
        self.wake()

    def wake(self) -> None:
        """Be scheduled again, after all deadlines were dropped."""
        self.awake_at = 0
        if self._state.leaving:
            self._reset()
            self.plan(STEP_MS)

    def due(self) -> None:
        """Go on with a walk, or begin one."""
        if not self._state.leaving:
            return
        self._give_up_answers()
        if not self._table:
            self._begin_walk()
        if self._walk_on():
            self._end_walk()
        else:
            self.plan(STEP_MS)

    def _give_up_answers(self) -> None:
        """Expect no answer any more for what was sent too long ago: it is sent again by the next walk."""
        since = self._state.now - ANSWER_MS
        while self._on_their_way:
            job_id, (at, _) = next(iter(self._on_their_way.items()))
            if at > since:
                return
            self._arrived(job_id)

    def _begin_walk(self) -> None:
        self._began_at = self._state.now
        self._imports = self._federation.imports
        self._doubted, self._to_be_doubted = frozenset(self._to_be_doubted), set()
        self._looked_into.clear()
        self._jobs_met = self._acks_met = 0
        self._paused = self._has_sent = False

    def _walk_on(self) -> bool:
        """Look at the next tables of jobs; say whether the walk is over."""
        state = self._state
        looked_at = 0
        while self._table < TABLES:
            if looked_at >= LOOKED_AT_PER_STEP or self._is_full:
                return False
            jobs = state.jobs.table(self._table)
            self._jobs_met += sum([not self._see_to(job) for job in jobs])
            looked_at += len(jobs)
            self._table += 1
        return True

    def _end_walk(self) -> None:
        state = self._state
        self._table = 0
        self._walks += 1
        self._jobs_left, self._acks_left = self._jobs_met, self._acks_met
        self._is_safe = not self._jobs_left and not self._acks_left and not self._on_their_way
        self._tell(self._reason())
        took_ms = state.now - self._began_at
        # Unless all that could be sent waits for answers, there is more to be done.
        hurries = self._has_sent and len(self._on_their_way) < self._jobs_met
        self.plan(STEP_MS if hurries else max(WALK_MS, REST_SHARE * took_ms))

    def _reason(self) -> str:
        if self.is_safe:
            return ""
        if self._jobs_left and not self._state.peers.reachable:
            return NO_NODE
        if self._paused and not self._on_their_way:
            return PAUSED
        return ACKS if self._acks_left and not self._jobs_left else UNDER_WAY

    @property
    def _is_full(self) -> bool:
        return len(self._on_their_way) >= ON_THEIR_WAY_MAX or self._bytes >= BYTES_ON_THEIR_WAY_MAX

    # Job by job.

    def _see_to(self, job: Job) -> bool:
        """Do for a job what is to be done; say whether it is safe already."""
        if self._state.jobs.get(job.id) is not job:
            return True
        if job.state == ACKED:
            self._acks_met += self._can_be_told(job)
            return job.requeue_at <= self._state.now or self._see_to_outcome(job)
        if job.state == WAIT_REPL:
            return False
        self._look_into(job)
        if job.id in self._on_their_way or self._is_full:
            return False
        retry_ms = job.options.retry_ms
        if job.state == QUEUED and not job.options.kind:
            queue = self._state.queues.by_name[job.queue]
            if not queue.pause & PAUSE_OUT:
                self._move(queue)
                return False
            self._paused |= not retry_ms
        if not retry_ms:
            return self._see_to_once(job)
        if self._is_held_elsewhere(job):
            return True
        self._copy(job)
        return False

    def _look_into(self, job: Job) -> None:
        """Forget, once in a walk, what was said of a job by nodes that may have lost it."""
        if self._doubted and job.id not in self._looked_into:
            self._looked_into.add(job.id)
            if job.confirmed:
                job.confirmed = self._state.shared.holders(job.confirmed - self._doubted)

    def _see_to_once(self, job: Job) -> bool:
        """Move a job that is delivered at most once and waits for its first delivery, or is dead."""
        if job.state == QUEUED:
            return False
        if job.state != DEAD and job.flags & (FLAG_QUEUED_BEFORE | FLAG_DELIVERED):
            return True
        if self._state.durability.read_only:
            return False  # the journal could not be told
        node_id = self._next_node()
        if node_id:
            self._state.send(node_id, (YOURJOBS, (job,), False))
            self._sent(job)
            self._state.note(LEAVE, job, who=node_id)
            self._federation.moves.part_with(job)
        return False

    def _see_to_outcome(self, job: Job) -> bool:
        """Let other nodes hold the outcome of a job, too; say whether as many do as are wanted."""
        state = self._state
        self._look_into(job)
        holders, confirmed = job.holders or frozenset(), job.confirmed or frozenset()
        held = [node_id for node_id in state.peers.reachable if node_id in holders and node_id in confirmed]
        others = [node_id for node_id in state.peers.reachable if node_id not in held]
        if len(held) >= self._wanted_copies(job) or not others:
            return bool(held)
        if job.id not in self._on_their_way and not self._is_full:
            self._turn += 1
            may_have_it = [node_id for node_id in others if node_id in holders] if not self._walks else []
            node_id = (may_have_it or others)[self._turn % len(may_have_it or others)]
            state.send(node_id, (REPLJOB, job, False))
            state.say_done(node_id, job)
            self._sent(job)
        return False

    def _can_be_told(self, job: Job) -> bool:
        """Tell whether a node can be reached that has yet to hear that a job is done."""
        peers = self._state.peers
        confirmed = job.confirmed or frozenset()
        others = peers.linked if not job.holders else self._state.shared.others(job.holders)
        return any(node_id in peers.linked and node_id not in confirmed for node_id in others)

    def _wanted_copies(self, job: Job) -> int:
        return max(1, min(job.options.replicate, len(self._state.peers.reachable)))

    def _is_held_elsewhere(self, job: Job) -> bool:
        confirmed = job.confirmed
        if not confirmed:
            return False
        reachable = self._state.peers.reachable
        return sum(node_id in confirmed for node_id in reachable) >= self._wanted_copies(job)

    def _copy(self, job: Job) -> None:
        """Ask as many nodes to say that they hold a job as are wanted, those first that may have it."""
        state = self._state
        confirmed = job.confirmed or frozenset()
        others = [node_id for node_id in state.peers.reachable if node_id not in confirmed]
        if not others:
            return
        holders = job.holders or frozenset()
        missing = self._wanted_copies(job) - (len(state.peers.reachable) - len(others))
        self._turn += 1
        at = self._turn % len(others)
        others = others[at:] + others[:at]
        if not self._walks:
            others.sort(key=lambda node_id: node_id not in holders)
        self._replication.copy_to(job, others[:missing])
        self._sent(job)

    def _move(self, queue: Queue) -> None:
        """Let the next node have the oldest jobs of a queue, throttled or not: it holds them back as this one does."""
        state = self._state
        node_id = self._next_node()
        if not node_id:
            return
        jobs = self._federation.moves.give_away(queue, JOBS_PER_MESSAGE, node_id, held=True)
        for job in jobs:
            self._look_into(job)
            if job.options.retry_ms and job.confirmed is None:
                job.confirmed = state.shared.holders(frozenset((state.node_id,)))
            self._sent(job)
        if jobs:
            state.send(node_id, (YOURJOBS, tuple(jobs), True))

    def _next_node(self) -> bytes:
        """The node whose turn it is, of those that can be reached; empty when there is none."""
        reachable = self._state.peers.reachable
        if not reachable:
            return b""
        self._turn += 1
        return reachable[self._turn % len(reachable)]

    # Answers.

    def _sent(self, job: Job) -> None:
        size = len(job.body)
        self._has_sent = True
        self._on_their_way[job.id] = (self._state.now, size)
        self._bytes += size

    def _arrived(self, job_id: bytes) -> bool:
        """Expect no answer for a job any more; say whether one was expected."""
        _, size = self._on_their_way.pop(job_id, (0, -1))
        if size < 0:
            return False
        self._bytes -= size
        return True

    def on_gotjob(self, sender: bytes, job_id: bytes) -> None:
        """Hear that a node holds a job now; `replication` has heard it before."""
        if not self._on_their_way or not self._arrived(job_id):
            return
        job = self._state.jobs.get(job_id)
        if job is not None:
            self._hand_over_delay(job, sender)
            if job.flags & FLAG_LEASED and job.options.retry_ms == RETRY_NEVER_MS:
                self._state.send(sender, self._queueing.leases.hint(job))
        if not self._on_their_way:
            # All that was sent has come: see whether that was all.
            self.plan(STEP_MS)

    def _hand_over_delay(self, job: Job, node_id: bytes) -> None:
        """Let another node queue a job when its delay is over, which has a copy of it now."""
        state = self._state
        if job.state in (QUEUED, ACKED, WAIT_REPL) or job.flags & FLAG_QUEUED_BEFORE or not job.options.delay_ms:
            return
        left_ms = max(1, job.requeue_at - state.now)
        state.send(node_id, (ENQUEUE, job.id, WORK_SCOPE, left_ms))
        job.flags |= FLAG_QUEUED_BEFORE
        self._queueing.put_off(job, state.now + left_ms + job.options.probe_ms + state.numbers.spread(SPREAD_MS))


def _yes(value: bool) -> str:
    return "yes" if value else "no"
