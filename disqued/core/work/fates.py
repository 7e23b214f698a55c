"""Fates travel: each holder of a job learns what became of it.

    changed here --journal: the job again--> --FATE--> every other holder
    FATE, or a copy of a job that is here --> `merge` --> new here: journal, then `fate_changed` of every machine

A progress alone is not journaled: the next record of the job has it, and a stop in order (`recovery.progressed`).

Whoever learns something tells nobody, but answers a sender that knows less.  A job takes its fate along in every copy,
so that a node that gets the job needs no message for it.  What a link lost is said again with the next word about the
job: before its acknowledgement is asked for (`State.say_done`), and when a holder asks for its turn (WILLQUEUE).
"""

from disqued.core.model.fate import (
    ENDED_MS,
    NO_FATE,
    TOLD_MS,
    TRIED_MS,
    UNKNOWN_AT,
    UNTRIED_MS,
    Fate,
    Word,
    is_undone,
    merge,
)
from disqued.core.model.job import (
    ACKED,
    ACTIVE,
    FLAG_ASKING,
    FLAG_ENDED_ELSEWHERE,
    FLAG_PUT_OFF,
    FLAG_TAKEN_OUT,
    FLAG_TRY_TOLD,
    FLAG_WITH_CONSUMER,
    PERHAPS_TRIED,
    WAIT_REPL,
    WAS_TRIED,
    Job,
    StoredJob,
)
from disqued.core.model.machine import Hear, Machine
from disqued.core.model.messages import FATE, Message
from disqued.core.model.outbox import JOB_ADDED
from disqued.core.model.state import State
from disqued.core.model.terms import NO_TERMS


class Fates(Machine):
    """The machine that changes fates, and keeps them the same on all holders."""

    __slots__ = ("_machines", "_state")

    def __init__(self, state: State, machines: list[Machine]) -> None:
        self._state = state
        self._machines = machines

    def hears(self) -> dict[int, Hear]:
        return {FATE: self.on_fate}

    def change(self, job: Job, fate: Fate) -> None:
        """Give a job another fate: the journal and the other holders hear of it, and every machine follows."""
        before = job.options.fate
        self._state.set_fate(job, fate)
        self.say(job)
        self._follow(job, before)

    def note_progress(self, job: Job, word: Word) -> None:
        """Note the progress of a job; neither the journal nor other holders hear of each (`progress`)."""
        before = job.options.fate
        self._state.set_fate(job, before._replace(progress=word))
        self._follow(job, before)

    def _end_wait(self, job: Job, *, is_over: bool) -> None:
        """Note that the node that counted a try has queued a job since, be it put off here: the next one counts again.

        `is_over`: that node has not put it off again.
        """
        job.flags &= ~(FLAG_TAKEN_OUT | FLAG_TRY_TOLD)
        if is_over and job.flags & FLAG_PUT_OFF:
            job.flags &= ~FLAG_PUT_OFF
            self._state.queues.end_delay(job)

    def on_fate(  # noqa: PLR0917 - the fields of the message
        self, sender: bytes, job_id: bytes, left_ms: int, nacks: int, additional_deliveries: int, fate: Fate
    ) -> None:
        """Learn the fate of a job; the time left until it is queued is 0 where the sender does not have that.

        `UNTRIED_MS`: nobody has had it since a try was last counted, as far as the sender knows.  `TRIED_MS`: somebody
        has.  `ENDED_MS`, with one of these or alone: the sender has ended it.
        """
        state = self._state
        job = state.jobs.get(job_id)
        if job is None:
            self._say_ended(sender, job_id, fate)
            return
        if job.is_dummy:
            self._say_done(sender, job, fate)
            return
        if job.state == WAIT_REPL:
            # Nobody can know of it but as one that is done.
            if fate.result is not None:
                state.set_fate(job, merge(job.options.fate, fate))
            return
        known = job.options.fate
        if left_ms <= TOLD_MS and left_ms & ENDED_MS:
            left_ms &= ~ENDED_MS
            if is_undone(fate) and job.state != ACKED:
                job.flags |= FLAG_ENDED_ELSEWHERE
        self.learn(job, nacks, additional_deliveries, fate, left_ms)
        if job.options.fate != fate and known is not NO_FATE and state.jobs.get(job_id) is job:
            if job.state == ACKED:
                state.say_done(sender, job)
            else:
                state.send(sender, state.word_of_fate(job))

    def _say_ended(self, sender: bytes, job_id: bytes, fate: Fate) -> None:
        """Tell a node that a job has ended here; one that keeps results takes no acknowledgement without a word."""
        state = self._state
        if fate.result is None and job_id in state.custody.ended:
            # Another node may know the result.
            word = Word(UNKNOWN_AT, state.node_id, b"")
            state.send(sender, (FATE, job_id, 0, 0, 0, Fate(result=word)))
        state.say_ended(sender, job_id)

    def _say_done(self, sender: bytes, dummy: Job, fate: Fate) -> None:
        """Tell a holder of a job that it is done, with a word: whoever says FATE may keep the result."""
        self._give_word(dummy, fate)
        self._state.say_done(sender, dummy)

    def _give_word(self, dummy: Job, fate: Fate) -> None:
        state = self._state
        if fate.result is None and dummy.options.fate.result is None:
            fate = fate._replace(result=Word(state.wall, state.node_id, b""))
        state.set_fate(dummy, merge(dummy.options.fate, fate))

    def say_untried(self, done: Job, stored: StoredJob, giver: bytes) -> None:
        """Tell the holders of a job that is done here that its giver had it in its queue: nobody has had it since.

        The node that gave it away does not know whether this one has handed it out.
        """
        state = self._state
        if done.is_dummy:
            self._give_word(done, stored.fate)
            word: Message = (FATE, done.id, UNTRIED_MS, stored.nacks, stored.additional_deliveries, done.options.fate)
        else:
            self.learn(done, stored.nacks, stored.additional_deliveries, stored.fate, UNTRIED_MS)
            word = state.word_of_fate(done)
        for node_id in state.shared.others((stored.holders or frozenset()) | {giver}):
            state.send(node_id, word)

    def learn(self, job: Job, nacks: int, additional_deliveries: int, fate: Fate, left_ms: int = 0) -> None:
        """Merge what another node knows of a job into what is known here."""
        before = job.options.fate
        after = merge(before, fate)
        tries = job.nacks + job.additional_deliveries
        if fate.generation > before.generation:
            job.nacks, job.additional_deliveries = nacks, additional_deliveries
        elif fate.generation == before.generation:
            job.nacks = max(job.nacks, nacks)
            job.additional_deliveries = max(job.additional_deliveries, additional_deliveries)
        if after != before:
            self._state.set_fate(job, after)
        has_counted = job.nacks + job.additional_deliveries != tries or after.generation != before.generation
        if has_counted:
            self._end_wait(job, is_over=left_ms <= TOLD_MS)
        knows_all = (nacks, additional_deliveries, fate.generation) == (
            job.nacks, job.additional_deliveries, after.generation
        )  # fmt: skip
        is_done = job.state == ACKED
        if is_done:
            self._learn_last_try(job, left_ms if knows_all else 0, counts_anew=has_counted)
        elif knows_all and left_ms in (UNTRIED_MS, TRIED_MS):
            _learn_of_try(job, fate, was_tried=left_ms == TRIED_MS)
        has_more_tries = job.options.terms.max_tries and has_counted
        # A progress alone is not worth a record with the body of the job.
        if has_more_tries or after._replace(progress=None) != before._replace(progress=None):
            self._note(job)
        if after != before:
            self._follow(job, before)
        if left_ms > TOLD_MS and not is_done:
            for machine in self._machines:
                machine.put_off_elsewhere(job, left_ms, is_news=has_counted)

    def _learn_last_try(self, done: Job, left_ms: int, *, counts_anew: bool) -> None:
        """Learn what another node knows of the last try of a job that is done; 0 = nothing.

        `counts_anew`: the counters have it now, or one since.  A node that knows of a consumer counts before others.
        """
        if done.is_dummy or not done.options.is_rare:
            return
        before = done.flags
        flags = before & ~WAS_TRIED | PERHAPS_TRIED if counts_anew else before
        if left_ms == TRIED_MS:
            flags |= WAS_TRIED
        elif left_ms and flags & WAS_TRIED != WAS_TRIED:
            flags &= ~WAS_TRIED
        done.flags = flags
        if flags != before:
            self._note(done)
            if self._state.custody.watched:
                self._state.note_watched(done)

    def learn_of_copy(self, job: Job, stored: StoredJob) -> None:
        """Learn what the sender of a copy knows of a job that is here."""
        if stored.fate is NO_FATE and stored.terms is NO_TERMS:
            return
        if job.state != WAIT_REPL and not job.is_dummy:
            self.learn(job, stored.nacks, stored.additional_deliveries, stored.fate)

    def say(self, job: Job) -> None:
        """Let the journal and the other holders hear the counters of a job, and its fate."""
        self._note(job)
        self._state.tell_fate(job)

    def _note(self, job: Job) -> None:
        if self._state.journaling and (job.state != ACKED or job.holders):
            self._state.outbox.journal.append((JOB_ADDED, job))

    def _follow(self, job: Job, before: Fate) -> None:
        for machine in self._machines:
            machine.fate_changed(job, before)


def _learn_of_try(job: Job, fate: Fate, *, was_tried: bool) -> None:
    """Learn whether a consumer has had a job since a try was last counted, of a node that counts as this one does.

    That node lets this one hand it out, or has ended it.
    """
    has_ended = fate.result is not None or fate.is_cancelled
    if was_tried:
        if has_ended:
            job.flags |= FLAG_TRY_TOLD
            job.flags &= ~FLAG_TAKEN_OUT
    elif (job.flags & FLAG_ASKING or has_ended) and job.state == ACTIVE and not job.flags & FLAG_WITH_CONSUMER:
        job.flags |= FLAG_TAKEN_OUT
        if has_ended:
            job.flags |= FLAG_TRY_TOLD
