"""Phases: where a job is, as one node knows it.

A state says what a node may do with a job, and `active` covers three answers to the question where the job is:

    state      phase       the job
    wait-repl  wait-repl   waits for its copies; its producer waits, too
    queued     ready       is in the queue of this node; an event is in its log
    active     in-flight   is with a consumer of this node, which may be a live worker
    active     delayed     waits for the end of a delay: of ADDJOB on one node, of NACK or BACKOFF on each holder
    active     elsewhere   is neither in the queue of this node nor with a consumer of it, as far as this node knows
    acked      done        is acknowledged, and kept until all holders know, or for its result
    dead       dead        is never delivered again before REDRIVE

A job that is elsewhere is nearly always a copy: another node has the job in its queue, with a consumer, or delayed.  It
may also be a job that DEQUEUE took out of the queue, or one that a consumer may have since before a crash of this node.

Each job is in one phase, so that the counts of the phases of a queue (`count_phases`) add up to its jobs.
"""

from typing import Final, NamedTuple

from disqued.core.model.job import (
    ACKED,
    ACTIVE,
    DEAD,
    FLAG_LEASED,
    FLAG_PUT_OFF,
    FLAG_QUEUED_BEFORE,
    FLAG_WITH_CONSUMER,
    QUEUED,
    STATE_NAMES,
    WAIT_REPL,
    Job,
)
from disqued.core.model.queues import Queues

WAITING: Final = 0  #: for its copies
READY: Final = 1
IN_FLIGHT: Final = 2
DELAYED: Final = 3
ELSEWHERE: Final = 4
DONE: Final = 5
GIVEN_UP: Final = 6  #: dead

PHASE_NAMES: Final = (b"wait-repl", b"ready", b"in-flight", b"delayed", b"elsewhere", b"done", b"dead")
#: The phase by the state, of jobs that are not active.
_OF_STATE: Final = {WAIT_REPL: WAITING, QUEUED: READY, ACKED: DONE, DEAD: GIVEN_UP}
_ACTIVE_PHASES: Final = 1 << IN_FLIGHT | 1 << DELAYED | 1 << ELSEWHERE
#: What STATE of JSCAN means by each word, as bits of phases: a phase, or all phases of a state.
PHASES_OF_WORD: Final[dict[bytes, int]] = {
    **{name: 1 << phase for phase, name in enumerate(PHASE_NAMES)},
    **{name: 1 << _OF_STATE[state] for state, name in STATE_NAMES.items() if state != ACTIVE},
    STATE_NAMES[ACTIVE]: _ACTIVE_PHASES,
}


#: These words, each once: those of Disque first.
STATE_WORDS: Final = (*STATE_NAMES.values(), *(name for name in PHASE_NAMES if name not in STATE_NAMES.values()))


class PhaseCounts(NamedTuple):
    """How many jobs of a queue are in each phase, in the order of their numbers."""

    waiting: int
    ready: int  #: events that are kept are among these
    in_flight: int  #: of a log none: each of its groups counts for itself
    delayed: int
    elsewhere: int
    done: int
    dead: int


def phase_of(queues: Queues, job: Job) -> int:
    """Return the phase of a job on this node."""
    if job.state != ACTIVE:
        return _OF_STATE[job.state]
    if job.flags & FLAG_LEASED:
        return IN_FLIGHT
    if job in queues.delayed or (job.options.kind and _is_delayed_event(queues, job)):
        return DELAYED
    return ELSEWHERE


def count_phases(queues: Queues, name: bytes) -> PhaseCounts:
    """Count the jobs of a queue by phase: O(1)."""
    if name not in queues.counts:
        return PhaseCounts(0, 0, 0, 0, 0, 0, 0)
    counts, queue = queues.counts[name], queues.by_name.get(name)
    ready, leased, dead = (0, 0, 0) if queue is None else (queue.length, len(queue.leased), len(queue.dead))
    in_flight, delayed = leased + counts.once, queues.delayed_in(name)
    elsewhere = counts.known - counts.waiting - ready - in_flight - delayed - counts.done - dead
    return PhaseCounts(counts.waiting, ready, in_flight, delayed, elsewhere, counts.done, dead)


def list_delayed(queues: Queues, job: Job) -> None:
    """Enter a job among those that wait for the end of a delay, if it does."""
    if is_delayed(job):
        queues.note_delay(job)


def is_delayed(job: Job) -> bool:
    """Return whether a job waits for the end of a delay, after which this node queues it.

    The delay is that of ADDJOB, where no other node is to queue the job, or of a NACK or a back-off, on each holder.
    """
    options, flags = job.options, job.flags
    if options.kind or options.fate.is_dead or job.state != ACTIVE or flags & FLAG_WITH_CONSUMER:
        return False
    return bool(flags & FLAG_PUT_OFF or (options.delay_ms and not flags & FLAG_QUEUED_BEFORE))


def _is_delayed_event(queues: Queues, event: Job) -> bool:
    queue = queues.by_name.get(event.queue)
    return queue is not None and queue.stream is not None and event in queue.stream.delayed
