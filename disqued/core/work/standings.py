"""Standings: what became of a job, as far as this node knows.

    WAITJOB, CANCEL, ADDJOB KEY  --> the registry, else `custody.ended` --> NOT_KNOWN ... WAS_ACKED
    of this node or another one

All answers are on one scale (`messages`), so that one rule says which of two nodes counts: the higher number, and of
what they know of the fate of the job the merged one (`fate.merge`).  A job that has ended counts before one that has
not, since done beats every other state; an end that a node saw, or whose result it keeps, before one that it remembers.
"""

from disqued.core.model.fate import NO_FATE, Fate, accepted, merge
from disqued.core.model.job import ACKED, DEAD, PERHAPS_TRIED, WAIT_REPL, WAS_TRIED, Job, tries_at_end, tries_of
from disqued.core.model.messages import (
    A_COPY,
    ENDED,
    ENDED_DEAD,
    EXPIRED,
    IS_DEAD,
    NOT_KNOWN,
    PENDING,
    SOON,
    WAS_ACKED,
    WAS_CANCELLED,
    Outcome,
)
from disqued.core.model.state import State


def standing_of(state: State, job_id: bytes) -> Outcome:
    """Return how a job stands here."""
    job = state.jobs.get(job_id)
    if job is None:
        ended = state.custody.ended
        return Outcome(job_id, ended.of(job_id, state.now), ended.tries_of(job_id), NO_FATE)
    if job.options.kind:
        return Outcome(job_id, NOT_KNOWN, 0, NO_FATE)
    if job.is_dummy and job.options.fate.result is None:
        # The holders know more.
        return Outcome(job_id, ENDED, 0, NO_FATE)
    fate = job.options.fate
    standing = PENDING
    if job.state == DEAD:
        standing = IS_DEAD
    elif job.state == ACKED:
        standing = end_of(fate)
    return Outcome(job.id, standing, tries_told(job), fate)


def promise_of(state: State, job: Job) -> int:
    """Return how far a producer can count on a job that is here and not over: A_COPY, SOON or PENDING.

    The node that made it knows; another one cannot tell whether it was given up.
    """
    if job.state == WAIT_REPL:
        return SOON
    return PENDING if job.id[2:10] == state.node_id[:8] else A_COPY


def end_of(fate: Fate) -> int:
    """Return how a job ended that is acknowledged; ENDED = this node does not know more."""
    if accepted(fate) is not None:
        return WAS_ACKED
    if fate.is_cancelled:
        return WAS_CANCELLED
    return WAS_ACKED if fate.result is None else ENDED


def tries_told(job: Job) -> int:
    """Return how often a job was delivered, as far as this node knows.

    One that knows nothing but an acknowledgement with its word takes that for the end of a try.
    """
    if job.is_dummy:
        return int(job.options.fate.result is not None)
    return tries_at_end(job, job.flags) if job.state == ACKED else tries_of(job)


def awaits_last_try(state: State, job_id: bytes) -> bool:
    """Return whether another node is about to say whether a job that is done here had one try more.

    Of a job with RESULT alone.  A node that has the acknowledgement, and not the job, knows of no tries.
    """
    job = state.jobs.get(job_id)
    if job is None or job.state != ACKED or not state.peers.linked:
        return False
    if job.is_dummy:
        return job.options.fate.result is not None
    if not job.options.terms.keep_result_ms or job.flags & WAS_TRIED != PERHAPS_TRIED:
        return False
    return job not in state.custody.settled and len(job.holders or ()) > 1


def has_ended(standing: int) -> bool:
    """Return whether a job is over that stands so; a dead one may be redriven."""
    return standing >= ENDED_DEAD


def is_final(standing: int) -> bool:
    """Return whether nothing more is to be heard of a job that stands so; of an end that is remembered there is."""
    return standing == IS_DEAD or standing >= EXPIRED


def merge_standings(one: Outcome, other: Outcome) -> Outcome:
    """Return what counts of what two nodes say of a job."""
    standing, fate = max(one.state, other.state), merge(one.fate, other.fate)
    if standing in (PENDING, IS_DEAD):
        # One of them may not have heard that it was buried, or redriven.
        standing = IS_DEAD if fate.is_dead else PENDING
    return Outcome(one.job_id, standing, max(one.tries, other.tries), fate)
