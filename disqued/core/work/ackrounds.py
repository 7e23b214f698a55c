"""Rounds of acknowledgements: what a partition held back is asked as fast as the other node answers.

    a link opens, theirs or ours -> 500 SETACK        the first GOTACK -> 500 SETACK        the first of those -> ...

So nothing else waits behind a hundred thousand questions.  Of several nodes that know of an ack one asks so, and the
others leave it to that one for a while.  An ack for which the time of another attempt comes meanwhile is left to the
round.  `acks` has the rest of the protocol.

Times are integer milliseconds.
"""

from disqued.core.model.job import Job
from disqued.core.model.machine import Machine
from disqued.core.model.state import State, goes_first
from disqued.core.model.unfinished import QuietParts

RETRY_MIN_MS = 1_000
RETRY_MAX_MS = 180_000
RETRY_SPREAD_MS = 500  #: width of the random shift; keeps holders of a job out of step
STRANGERS_GIVEN_UP = 6  #: attempts, about a minute
LEFT_TO_OTHERS_MS = 1_000  #: how long one of several nodes that know an ack is given to collect it
ASKED_AT_ONCE = 500  #: acks sent again in one go in a round, some milliseconds' work
ANSWER_MS = 1_000  #: a round goes on after this time, though there is no answer
LEFT_TO_ROUND_MS = 3_000  #: how long a round is given to come to an ack, at least
_NOBODY: frozenset[bytes] = frozenset()


def missing_holders(state: State, job: Job) -> list[bytes]:
    """Nodes that have yet to say that they know, in order."""
    confirmed = job.confirmed or _NOBODY
    if not job.holders:
        return [node_id for node_id in sorted(state.peers.by_id) if node_id not in confirmed]
    acked = state.custody.acked
    patient = job not in acked or acked[job] < STRANGERS_GIVEN_UP
    peers = state.peers
    return [
        node_id
        for node_id in state.shared.others(job.holders)
        if node_id not in confirmed and node_id not in peers.forgotten and (patient or node_id in peers.by_id)
    ]


def put_off(state: State, job: Job) -> None:
    """Set the time of the next attempt."""
    period_ms = min(RETRY_MIN_MS << max(0, state.custody.acked[job] - 1), RETRY_MAX_MS)
    # Centred, so that the mean period stays the one in the manual.
    at = state.now + period_ms + state.numbers.spread(RETRY_SPREAD_MS) - RETRY_SPREAD_MS // 2
    state.schedule.move(job, min(at, job.expires_at))


class _AckRound:
    """All acks that a node may not know, when a link to it has opened."""

    __slots__ = ("at", "awaited", "jobs", "waits_until")

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs: list[Job] = jobs
        self.at: int = 0  #: so many of them were looked at
        self.awaited: bytes = b""  #: id of a job: when its answer comes, the next ones are asked; empty = at work
        self.waits_until: int = 0  #: for that answer


class AckRounds(Machine):
    """The machine that asks a node for all acks that it may not know, when a link to it has opened."""

    __slots__ = ("_state", "asked_at_once", "open")

    def __init__(self, state: State) -> None:
        self._state = state
        self.open: dict[bytes, _AckRound] = {}  #: the rounds that are going on, by node
        self.asked_at_once: int = ASKED_AT_ONCE

    def link_opened(self, node_id: bytes) -> None:
        """Ask a node again that could not be asked, or could not answer: a link has opened, whoever's it is."""
        if self._state.custody.acked and node_id in self._state.peers.linked:
            this = self.open[node_id] = _AckRound(list(self._state.custody.acked))
            self._state.work(self._go_on(node_id, this))

    def greeted(self, node_id: bytes) -> None:
        """Ask a node again that can answer now."""
        self.link_opened(node_id)

    def link_closed(self, node_id: bytes) -> None:
        """Ask a node no more: the next link begins a round anew."""
        self.open.pop(node_id, None)

    def _go_on(self, node_id: bytes, this: _AckRound) -> QuietParts:
        """Ask a node for the next acks of a round: at once where that is ours to do, else a little later."""
        while self.open.get(node_id) is this:
            jobs = this.jobs[this.at : this.at + self.asked_at_once]
            this.at += len(jobs)
            has_to_wait = self._ask_some(node_id, this, jobs)
            if this.at == len(this.jobs):
                del self.open[node_id]
            if has_to_wait:
                return
            # Another part is a step of its own, before which much may have happened.
            yield

    def _ask_some(self, node_id: bytes, this: _AckRound, jobs: list[Job]) -> bool:
        """Ask a node for some acks of a round; say whether there is an answer to wait for."""
        state = self._state
        this.awaited = b""
        for job in jobs:
            if job not in state.custody.acked:
                continue
            missing = missing_holders(state, job)
            if node_id not in missing:
                continue
            state.custody.acked[job] = 0
            if goes_first(state, job.confirmed, job.id):
                state.say_done(node_id, job, last=len(missing) == 1)
                put_off(state, job)
                this.awaited = this.awaited or job.id
            else:
                again_at = state.now + LEFT_TO_OTHERS_MS + state.numbers.spread(LEFT_TO_OTHERS_MS)
                state.schedule.move(job, min(again_at, job.expires_at))
        this.waits_until = state.now + ANSWER_MS
        return bool(this.awaited)

    def answered(self, node_id: bytes, job_id: bytes) -> None:
        """Go on with a round, if this is the answer that it waits for."""
        this = self.open.get(node_id)
        if this is not None and this.awaited == job_id:
            this.awaited = b""
            self._state.work(self._go_on(node_id, this))

    def takes(self, job: Job) -> bool:
        """Put a job off if rounds are about to ask all those whom it waits for; say whether they are."""
        state = self._state
        missing = missing_holders(state, job)
        if not missing or not all(map(self._is_asked_in_a_round, missing)):
            return False
        state.schedule.move(
            job, min(state.now + LEFT_TO_ROUND_MS + state.numbers.spread(LEFT_TO_ROUND_MS), job.expires_at)
        )
        return True

    def _is_asked_in_a_round(self, node_id: bytes) -> bool:
        """Tell whether a round asks this node; one that has waited for too long goes on."""
        this = self.open.get(node_id)
        if this is None:
            return False
        if this.awaited and self._state.now >= this.waits_until:
            self.answered(node_id, this.awaited)
        return True
