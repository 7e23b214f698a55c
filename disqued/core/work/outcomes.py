"""Outcomes: clients wait for jobs to be over, on any node (WAITJOB).

    us    --WATCH(number, ids)--> every node with a link, unless this node holds the jobs
    them  --OUTCOME(number)-->    us: how each stands there; those that are not over are watched from now on
          --OUTCOME(0)-->         us: one of these is over, or has another progress

A holder remembers which nodes watch a job, for `WATCHED_MS`; we ask again every `ASKED_EVERY_MS`, and whenever a link
opens, so that a message that is lost costs time alone.  What a node does not know any more it cannot tell: a job whose
result nobody keeps can be waited for by those who began before it was over.

Nodes may say different things of a job; `standings` says what counts.  An end that a node only remembers does not end
a wait while another node has the job: that one has yet to hear of it, and knows the result then.  A job is unknown when
no node of the cluster has it, and none that had it has fallen silent since; the reason says what is remembered of its
end.  While a node has no link, or does not answer within `SILENCE_MS`, it may know a job that the others do not
remember; such a job is waited for.

A holder cannot tell whether a consumer of another one has a job.  So all that have a job are asked once more shortly
before a client is answered that its time is over, and the highest number of tries counts.

Nor can it tell so of a job that is acknowledged here with a consumer elsewhere.  Of one with RESULT those who watch are
told a moment later, when the holders have said how often it was tried.  Those who ask meanwhile hear until then that it
is pending.

Watching costs the path of a job one look at an empty table, where it is dropped (`State.let_go`).

Times are integer milliseconds.
"""

from collections.abc import Callable, Iterable
from typing import Final

from disqued.core.model.fate import NO_FATE, Fate, Word, accepted, merge
from disqued.core.model.job import ACKED, ACTIVE, QUEUED, Job
from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.messages import (
    A_COPY,
    ENDED,
    ENDED_CANCELLED,
    ENDED_DEAD,
    ENDED_EXPIRED,
    EXPIRED,
    GONE,
    IDS_PER_MESSAGE,
    IS_DEAD,
    NOT_KNOWN,
    OUTCOME,
    PENDING,
    SOON,
    UNDER_WAY,
    WAS_ACKED,
    WAS_CANCELLED,
    WATCH,
    Outcome,
)
from disqued.core.model.outbox import GONE_DELETED, GONE_EXPIRED, Client
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.model.watched import WATCHED_MAX, ChangedJobs
from disqued.core.work.background import BackgroundClient
from disqued.core.work.standings import (
    awaits_last_try,
    end_of,
    has_ended,
    is_final,
    merge_standings,
    standing_of,
    tries_told,
)
from disqued.errors import CommandError, WrongType

SILENCE_MS: Final = 2_000  #: how long nodes that say nothing are waited for in a round
ASKED_EVERY_MS: Final = 5_000
#: How long before the time of a wait is over nodes are asked how often its jobs were tried that are not over.
TRIES_ASKED_MS: Final = 250
LAST_TRY_MS: Final = 250  #: for which the nodes are waited for that know whether a job that is done had one try more
WATCHED_MS: Final = 20_000  #: how long a node is told of jobs that it asked for once
FOR_EVER: Final = 1 << 62
PROGRESS_KEPT: Final = 1_000  #: jobs whose progress is remembered as clients of this node were told it
BYTES_PER_MESSAGE: Final = 256 << 10  #: results, after which the next message begins

_UNKNOWN: Final = b"unknown"
_PENDING: Final = b"pending"
#: What a client is answered, by standing: the state, and the reason unless the job has a better one.
_WORDS: Final = {
    NOT_KNOWN: (_UNKNOWN, b"no node that answered knows it"),
    GONE: (_UNKNOWN, b"no node that answered has it any more"),
    UNDER_WAY: (_PENDING, b""),
    A_COPY: (_PENDING, b""),
    SOON: (_PENDING, b""),
    PENDING: (_PENDING, b""),
    IS_DEAD: (b"dead", b"it failed too often, or was buried, without a reason"),
    ENDED_DEAD: (_UNKNOWN, b"it has ended: it was dead until its time was over"),
    ENDED_EXPIRED: (_UNKNOWN, b"it has ended: its time to live was over"),
    ENDED: (_UNKNOWN, b"it has ended, and its result was not kept"),
    ENDED_CANCELLED: (b"cancelled", b"cancelled"),
    EXPIRED: (b"expired", b"its time to live is over"),
    WAS_CANCELLED: (b"cancelled", b"cancelled"),
    WAS_ACKED: (b"acked", b"acknowledged"),
}
#: The same of a job that no node knows while one does not answer.
_AWAY: Final = (_PENDING, b"no node that answered knows it, and another one did not answer")
#: The same of one that is cancelled while a consumer has it.
_STOPPING: Final = (_PENDING, b"cancelling")
_KNOWING: Final = (UNDER_WAY, A_COPY, SOON, PENDING)  #: what a node says that has, or had, a job that is not over
_RIVALS: Final = b"acknowledged more than once, with different results; the first one counts"

_NONE: Final[frozenset[bytes]] = frozenset()

Row = list[object]  #: [id, state, result, tries, reason]


class Wait(Timed):
    """A client that waits for jobs to be over; due when nodes are to be asked again, or its time is over."""

    __slots__ = (
        "answers_any", "client", "deadline_at", "has_asked_all", "hidden", "is_asking", "job_ids", "knowing", "named",
        "news", "next_round_at", "number", "progress", "seen", "tries_asked_at", "unheard", "with_progress",
    )  # fmt: skip

    def __init__(
        self, client: Client, number: int, named: list[bytes], deadline_at: int, *, answers_any: bool,
        with_progress: bool, hidden: frozenset[bytes],
    ) -> None:  # fmt: skip
        self.awake_at = 0
        self.client: Client = client
        self.number: int = number
        self.named: list[bytes] = named  #: as the client named them
        self.job_ids: list[bytes] = list(dict.fromkeys(named))
        self.deadline_at: int = deadline_at  #: 0 = never
        #: When nodes are asked how often jobs were tried; 0 = never, or not again.
        self.tries_asked_at: int = max(1, deadline_at - TRIES_ASKED_MS) if deadline_at else 0
        self.next_round_at: int = 0  #: when a round begins or ends
        self.answers_any: bool = answers_any
        self.with_progress: bool = with_progress
        self.hidden: frozenset[bytes] = hidden  #: jobs of which the client may not know
        self.seen: dict[bytes, Outcome] = {job_id: Outcome(job_id, NOT_KNOWN, 0, NO_FATE) for job_id in named}
        self.knowing: dict[bytes, set[bytes]] = {}  #: nodes that said last that a job is not over, by job
        self.progress: dict[bytes, Word | None] = {}  #: the first that was heard of each job that is not over
        self.news: bool = False  #: True when the progress of a job is another one since
        self.is_asking: bool = True  #: True while it is not decided which jobs are unknown
        self.has_asked_all: bool = True  #: False while a node of the cluster has not answered that may hold the jobs
        self.unheard: dict[bytes, set[bytes]] = {}  #: by nodes the jobs of which they have yet to say something

    def note(self, node_id: bytes, outcome: Outcome) -> None:
        """Hear how a job stands on a node."""
        job_id = outcome.job_id
        if job_id in self.hidden:
            return
        if outcome.state in _KNOWING:
            self.knowing.setdefault(job_id, set()).add(node_id)
        elif job_id in self.knowing:
            self.knowing[job_id].discard(node_id)
        self.seen[job_id] = merge_standings(self.seen[job_id], outcome)
        if outcome.state == PENDING:
            progress = self.seen[job_id].fate.progress
            if job_id not in self.progress:
                self.progress[job_id] = progress
            elif self.progress[job_id] != progress:
                self.news = True

    def note_all(self, state: State, standing: Callable[[State, bytes], Outcome]) -> None:
        """Note how the jobs stand on this node that are not over: they may have left it, or come to it."""
        for job_id in self.left:
            self.note(state.node_id, standing(state, job_id))

    def know(self, job_id: bytes, progress: Word) -> None:
        """Hear of a progress that a call before this one heard of."""
        seen = self.seen[job_id]
        self.seen[job_id] = seen._replace(fate=merge(seen.fate, Fate(progress=progress)))

    def is_known(self, job_id: bytes) -> bool:
        """Return whether a node knew a job when it was heard last, and it was not over."""
        return bool(self.knowing.get(job_id))

    def is_over(self, job_id: bytes) -> bool:
        """Return whether there is nothing to wait for any more."""
        if job_id in self.hidden or is_final(self.seen[job_id].state):
            return True
        if self.is_asking or self.is_known(job_id):
            return False
        return self.has_asked_all or has_ended(self.seen[job_id].state)

    @property
    def left(self) -> list[bytes]:
        """Jobs that are not over."""
        return [job_id for job_id in self.job_ids if not self.is_over(job_id)]

    def row(self, job_id: bytes) -> Row:
        """What the client is answered of a job."""
        _, state, tries, fate = self.seen[job_id]
        said = _WORDS[state]
        if not self.is_over(job_id):
            said = _AWAY if state == NOT_KNOWN and not self.has_asked_all else _WORDS[PENDING]
            said = _STOPPING if fate.is_cancelled else said
            state = PENDING
        elif state in _KNOWING:
            # What knew it before may have heard of its end since.
            state = ENDED
            said = _WORDS[state]
        word_of_state, reason = said
        if state == WAS_ACKED and fate.has_rivals:
            reason = _RIVALS
        elif state in (PENDING, EXPIRED, IS_DEAD) and fate.failures and said is not _STOPPING:
            reason = fate.failures[-1].reason or reason
        word = accepted(fate) if state == WAS_ACKED else None
        if state == PENDING and self.with_progress:
            word = fate.progress
        return [job_id, word_of_state, None if word is None else word.value, tries, reason]

    def reply(self) -> list[Row] | None:
        """What the client is answered now; None = it goes on waiting."""
        over = [job_id for job_id in self.named if self.is_over(job_id)]
        if len(over) == len(self.named) or (self.answers_any and over):
            return [self.row(job_id) for job_id in over]
        return self.all_rows() if self.with_progress and self.news else None

    def all_rows(self) -> list[Row]:
        """What the client is answered when its time is over."""
        return [self.row(job_id) for job_id in self.named]


class _Sweep(Timed):
    """When nodes are forgotten that have not asked again."""

    __slots__ = ()

    def __init__(self) -> None:
        self.awake_at = 0


class _Held(Timed):
    """Jobs whose end is told later, and when at the latest: other nodes know more of their tries.  Due at the first."""

    __slots__ = ("jobs",)

    def __init__(self) -> None:
        self.awake_at = 0
        self.jobs: dict[bytes, tuple[int, tuple[Job, bytes, int]]] = {}


class Outcomes(Machine):
    """The machine behind WAITJOB."""

    __slots__ = ("_by_job", "_held", "_open", "_progress", "_state", "_sweep")

    def __init__(self, state: State) -> None:
        self._state = state
        self._open: dict[int, Wait] = {}
        #: What other nodes said of the progress of jobs that are not here, the oldest first.
        self._progress: dict[bytes, Word] = {}
        self._by_job: dict[bytes, dict[Wait, None]] = {}  #: the same, by the jobs that they wait for
        self._sweep = _Sweep()
        self._held = _Held()

    def hears(self) -> dict[int, Hear]:
        return {WATCH: self.on_watch, OUTCOME: self.on_outcome}

    def due_table(self) -> Acts:
        return on(Wait, self.due) | on(ChangedJobs, self.tell) | on(_Sweep, self.sweep) | on(_Held, self.release)

    def abandon_table(self) -> Acts:
        return on(Wait, self.forsake)

    # Waiting.

    def wait(
        self, client: Client, timeout_ms: int, job_ids: list[bytes], *, answers_any: bool, with_progress: bool,
        hidden: frozenset[bytes] = _NONE,
    ) -> list[Row] | None:  # fmt: skip
        """Wait for jobs to be over; returns the reply, or None when the client is blocked until it comes.

        Those that are `hidden` from the client are unknown to it.  Raises WrongType (WRONGTYPE) for an event.
        """
        state = self._state
        deadline_at = state.now + timeout_ms if timeout_ms else 0
        this = Wait(
            client, state.numbers.next_number(), job_ids, deadline_at, answers_any=answers_any,
            with_progress=with_progress, hidden=hidden,
        )  # fmt: skip
        for job_id in this.left:
            job = state.jobs.get(job_id)
            if job is not None and job.options.kind:
                raise WrongType
            this.note(state.node_id, _standing_for_now(state, job_id))
            if job_id in self._progress:
                this.know(job_id, self._progress[job_id])
        rows = this.reply()
        if rows is not None:
            return rows
        self._open[this.number] = this
        state.waiting.add(client, this)
        for job_id in this.job_ids:
            self._by_job.setdefault(job_id, {})[this] = None
            state.custody.watched.setdefault(job_id, {})[state.node_id] = FOR_EVER
            _expect_last_try(state, job_id)
        for node_id in list(state.peers.linked):
            self._ask(this, node_id)
        if not this.unheard:
            self._conclude(this)
            rows = this.reply()
            if rows is not None:
                self.forsake(this)
                return rows
        self._ask_for_tries(this)
        self._plan(this, SILENCE_MS if this.unheard else ASKED_EVERY_MS)
        return None

    def _ask(self, this: Wait, node_id: bytes) -> None:
        """Ask a node for the jobs that are not over, but for those that are here."""
        state = self._state
        asked = [job_id for job_id in this.left if standing_of(state, job_id).state != PENDING]
        for at in range(0, len(asked), IDS_PER_MESSAGE):
            some = asked[at : at + IDS_PER_MESSAGE]
            if state.send(node_id, (WATCH, this.number, tuple(some))):
                this.unheard.setdefault(node_id, set()).update(some)

    def _ask_for_tries(self, this: Wait) -> None:
        """Ask all nodes that have jobs how often these were tried, once the time of a wait is nearly over."""
        state = self._state
        if not 0 < this.tries_asked_at <= state.now:
            return
        this.tries_asked_at = 0
        asked: dict[bytes, list[bytes]] = {}
        for job_id in this.left:
            job = state.jobs.get(job_id)
            having: Iterable[bytes] = this.knowing.get(job_id, _NONE) if job is None else job.holders or _NONE
            for node_id in having:
                asked.setdefault(node_id, []).append(job_id)
        for node_id, job_ids in sorted(asked.items()):
            for at in range(0, len(job_ids), IDS_PER_MESSAGE):
                # A node without a link is not asked.
                state.send(node_id, (WATCH, this.number, tuple(job_ids[at : at + IDS_PER_MESSAGE])))

    def _plan(self, this: Wait, in_ms: int) -> None:
        this.next_round_at = self._state.now + in_ms
        self._await(this)

    def _await(self, this: Wait) -> None:
        """See to it that a wait is looked at when there is something to do."""
        at = this.next_round_at
        if this.deadline_at:
            at = min(at, this.tries_asked_at or this.deadline_at)
        self._state.schedule.move(this, at)

    def due(self, this: Wait) -> None:
        """Ask again, or answer: the time is over."""
        state = self._state
        self.tell(state.custody.changed)  # how a job ended in this tick is not known later
        if self._open.get(this.number) is not this:
            return
        if this.deadline_at and this.deadline_at <= state.now:
            self.timed_out(this)
            return
        self._ask_for_tries(this)
        if this.next_round_at > state.now:
            self._await(this)
        elif not this.is_asking:
            self._begin_round(this)
        elif not self._end_round(this):
            self._plan(this, ASKED_EVERY_MS)

    def timed_out(self, this: Wait, error: CommandError | None = None) -> None:
        """Answer one who waits no longer how the jobs stand, or an error where that is wanted."""
        self.tell(self._state.custody.changed)
        if self._open.get(this.number) is this:
            this.note_all(self._state, standing_of)
            self._answer(this, this.all_rows() if error is None else error)

    def _begin_round(self, this: Wait) -> None:
        """Ask all nodes how the jobs stand that are not over."""
        state = self._state
        this.unheard = {}
        this.is_asking = True
        this.note_all(state, _standing_for_now)
        for node_id in list(state.peers.linked):
            self._ask(this, node_id)
        self._plan(this, SILENCE_MS)
        if not this.unheard:
            self._end_round(this)

    def _end_round(self, this: Wait) -> bool:
        """Take jobs for unknown that no node knows; return whether the client is answered now."""
        self._conclude(this)
        return self._answer_if_over(this)

    def _conclude(self, this: Wait) -> None:
        """Note that a round is over, and whether a node is missing that may know a job that the others do not.

        A machine of this node goes on with what the others know.
        """
        this.is_asking = False
        is_one_missing = this.unheard or self._state.peers.may_lack_holders
        this.has_asked_all = isinstance(this.client, BackgroundClient) or not is_one_missing

    def on_outcome(self, sender: bytes, number: int, outcomes: tuple[Outcome, ...]) -> None:
        """Hear how jobs stand on another node."""
        self._note(sender, outcomes)
        this = self._open.get(number)
        if this is not None and sender in this.unheard:
            this.unheard[sender].difference_update([outcome.job_id for outcome in outcomes])
            if not this.unheard[sender]:
                self._heard_all(this, sender)

    def _heard_all(self, this: Wait, node_id: bytes) -> None:
        """A node has nothing more to say for now; go on when it was the last one."""
        del this.unheard[node_id]
        if not this.unheard:
            self._end_round(this)

    def _note(self, node_id: bytes, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            if node_id != self._state.node_id:
                self._learn_progress(outcome)
            for this in list(self._by_job.get(outcome.job_id, ())):
                this.note(node_id, outcome)
                if _says_little(outcome) and not this.is_asking and this.is_over(outcome.job_id):
                    # It may have moved to another node.
                    self._begin_round(this)
                else:
                    self._answer_if_over(this)

    def _learn_progress(self, outcome: Outcome) -> None:
        """Keep what another node says of the progress of a job, so that no later call is answered an older one.

        A job that is here has it in its fate, where the word of that may not have come yet.
        """
        job_id, word = outcome.job_id, outcome.fate.progress
        if has_ended(outcome.state):
            self._progress.pop(job_id, None)
        if word is None or outcome.state != PENDING:
            return
        job = self._state.jobs.get(job_id)
        if job is None:
            known = merge(Fate(progress=self._progress.pop(job_id, None)), Fate(progress=word)).progress
            assert known is not None
            while len(self._progress) >= PROGRESS_KEPT:
                del self._progress[next(iter(self._progress))]
            self._progress[job_id] = known
        elif job.state in (ACTIVE, QUEUED):
            fate = merge(job.options.fate, Fate(progress=word))
            if fate != job.options.fate:
                self._state.set_fate(job, fate)

    def _answer_if_over(self, this: Wait) -> bool:
        rows = this.reply()
        if rows is None:
            return False
        self._answer(this, rows)
        return True

    def _answer(self, this: Wait, value: list[Row] | CommandError) -> None:
        self.forsake(this)
        if isinstance(this.client, BackgroundClient):
            this.client.ended(value)
        else:
            self._state.outbox.replies.append((this.client, value, []))

    def forsake(self, this: Wait) -> None:
        """Nobody waits for this any more."""
        state = self._state
        del self._open[this.number]
        state.schedule.cancel(this)
        state.waiting.remove(this.client, this)
        for job_id in this.job_ids:
            waits = self._by_job[job_id]
            del waits[this]
            if not waits:
                del self._by_job[job_id]
                self._stop_telling(job_id, state.node_id)

    def _stop_telling(self, job_id: bytes, node_id: bytes) -> None:
        watched = self._state.custody.watched
        watchers = watched.get(job_id)
        if watchers is not None:
            watchers.pop(node_id, None)
            if not watchers:
                del watched[job_id]

    # Links.

    def link_opened(self, node_id: bytes) -> None:
        """Ask a node that could not be asked, or that could not answer."""
        for this in list(self._open.values()):
            self._ask(this, node_id)

    def greeted(self, node_id: bytes) -> None:
        """Ask a node that can answer now."""
        self.link_opened(node_id)

    def link_closed(self, node_id: bytes) -> None:
        """Expect no answer of a node, which is asked again when it has a link."""
        for this in list(self._open.values()):
            if node_id in this.unheard:
                self._heard_all(this, node_id)

    # Telling.

    def on_watch(self, sender: bytes, number: int, job_ids: tuple[bytes, ...]) -> None:
        """Tell a node how jobs stand, and again when that changes."""
        state = self._state
        self.tell(state.custody.changed)
        watched = state.custody.watched
        outcomes = []
        for job_id in job_ids:
            can_watch = job_id in watched or len(watched) < WATCHED_MAX
            outcome = _standing_for_now(state, job_id) if can_watch else standing_of(state, job_id)
            outcomes.append(outcome)
            if outcome.state == PENDING and can_watch:
                watched.setdefault(job_id, {})[sender] = state.now + WATCHED_MS
                _expect_last_try(state, job_id)
        if not self._sweep.awake_at:
            state.schedule.add(self._sweep, state.now + WATCHED_MS)
        self._send(sender, number, outcomes)

    def _send(self, node_id: bytes, number: int, outcomes: list[Outcome]) -> None:
        """Send outcomes, large ones in messages of their own."""
        some: list[Outcome] = []
        size = 0
        for outcome in outcomes:
            some.append(outcome)
            size += 0 if outcome.fate.result is None else len(outcome.fate.result.value)
            if size >= BYTES_PER_MESSAGE:
                self._state.send(node_id, (OUTCOME, number, tuple(some)))
                some, size = [], 0
        if some:
            self._state.send(node_id, (OUTCOME, number, tuple(some)))

    def fate_changed(self, job: Job, before: Fate) -> None:
        """Note for those who wait that a job is dead, or has another progress or result."""
        if self._state.custody.watched:
            self._state.note_watched(job)

    def tell(self, changed: ChangedJobs) -> None:
        """Tell those who watch jobs how these stand after the last step."""
        state = self._state
        jobs, changed.jobs = changed.jobs, {}
        for job_id, entry in jobs.items():
            watchers = state.custody.watched.get(job_id)
            if watchers is None:
                self._held.jobs.pop(job_id, None)
                continue
            if self._holds(job_id, entry):
                continue
            job, reason, tries = entry
            outcome = standing_of(state, job_id)
            if _says_little(outcome):
                outcome = self._ending_of(job, reason, tries)
            for node_id in list(watchers):
                if node_id == state.node_id:
                    self._note(node_id, [outcome])
                else:
                    self._send(node_id, 0, [outcome])
                    if is_final(outcome.state):
                        self._stop_telling(job_id, node_id)

    def _holds(self, job_id: bytes, entry: tuple[Job, bytes, int]) -> bool:
        """Return whether those who watch a job are told of its end later, when its tries are known."""
        state, held = self._state, self._held
        until, _ = held.jobs.get(job_id, (state.now + LAST_TRY_MS, entry))
        is_gone_dummy = entry[0].is_dummy and entry[0].options.fate.result is not None
        if until <= state.now or not (is_gone_dummy or awaits_last_try(state, job_id)):
            held.jobs.pop(job_id, None)
            return False
        held.jobs[job_id] = (until, entry)
        if not held.awake_at:
            state.schedule.add(held, until)
        return True

    def release(self, held: _Held) -> None:
        """Tell of jobs of which nobody has said more for long enough."""
        state = self._state
        over = {job_id: entry for job_id, (until, entry) in held.jobs.items() if until <= state.now}
        state.custody.changed.jobs = over | state.custody.changed.jobs
        self.tell(state.custody.changed)
        if held.jobs:
            state.schedule.add(held, min(until for until, _ in held.jobs.values()))

    def _ending_of(self, job: Job, reason: bytes, tries: int) -> Outcome:
        """Return how a job ended that is not here any more, after so many tries if it was not done before."""
        is_acked = job.state == ACKED or not reason or (reason == GONE_DELETED and job.id in self._state.custody.ended)
        if job.state == ACKED:
            tries = tries_told(job)
        elif reason == GONE_EXPIRED:
            return Outcome(job.id, EXPIRED, tries, job.options.fate)
        if is_acked:
            fate = job.options.fate
            state = end_of(fate)
            return Outcome(job.id, state, tries, fate)
        return standing_of(self._state, job.id)

    def sweep(self, sweep: _Sweep) -> None:
        """Forget nodes that have not asked again."""
        state = self._state
        watched = state.custody.watched
        for job_id in [job_id for job_id, watchers in watched.items() if min(watchers.values()) <= state.now]:
            for node_id in [node_id for node_id, until in watched[job_id].items() if until <= state.now]:
                self._stop_telling(job_id, node_id)
        if watched:
            state.schedule.add(sweep, state.now + WATCHED_MS)

    # The whole node.

    def flushing(self) -> None:
        """Everything is about to be dropped: clients that wait hear what is known."""
        for this in list(self._open.values()):
            self._answer(this, this.all_rows())
        self._progress.clear()
        self._held.jobs.clear()

    def flushed(self) -> None:
        """The schedule is empty."""
        self._sweep.awake_at = 0
        self._held.awake_at = 0


def _standing_for_now(state: State, job_id: bytes) -> Outcome:
    """Return how a job stands here, for those who hear the rest later: it is pending until its last try is known."""
    return Outcome(job_id, PENDING, 0, NO_FATE) if awaits_last_try(state, job_id) else standing_of(state, job_id)


def _expect_last_try(state: State, job_id: bytes) -> None:
    """See to it that those who watch a job hear of its end when its last try is known, or soon."""
    job = state.jobs.get(job_id)
    if job is not None and awaits_last_try(state, job_id):
        state.note_watched(job)


def _says_little(outcome: Outcome) -> bool:
    """Return whether a node neither has a job nor saw how it ended."""
    return outcome.state != PENDING and not is_final(outcome.state)
