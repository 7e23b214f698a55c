"""Fates: what became of a job, apart from where it waits and who has it.

A fate is a value that never changes; a job gets another one.  Holders tell each other the fates of their jobs, in any
order and any number of times, and `merge` makes the same fate of them everywhere:

    generation       the higher one wins, and with it whether the job is dead; REDRIVE begins the next generation
    is_dead          within one generation a job that is dead stays dead
    is_cancelled     once is enough
    failures         the union, of which the last `FAILURES_KEPT` stay
    progress         the latest one (time, node id)
    result           the first one (time, node id); `has_rivals` says that there was another one

Commutative, associative and idempotent: `tests/property/test_fate_merge_laws.py`.

The counters of a job, `nacks` and `additional_deliveries`, belong to its generation: the higher generation brings its
own, and within one the higher number counts.

Nearly all jobs have the fate `NO_FATE`, one object, and cost nothing more; nor do those that a purge ends.  Times are
unix milliseconds.
"""

from typing import Final, NamedTuple

FAILURES_KEPT: Final = 5
FAILURE_REASON_MAX: Final = 1_024  #: bytes
PROGRESS_MAX: Final = 1_024  #: bytes
RESULT_MAX: Final = 16 << 20  #: bytes; the setting `result-max` is lower as a rule
GENERATION_MAX: Final = (1 << 32) - 1
FATE_COST: Final = 560  #: bytes of a fate, and of the options that the job then shares with no other
WORD_COST: Final = 280  #: bytes of a failure, a progress or a result without its texts


#: Time of the result of a job that is known to be acknowledged, and nothing else: any other result comes before it.
UNKNOWN_AT: Final = (1 << 63) - (1 << 53)
#: Replaces the time until a job is queued in FATE: no consumer has had the job since the last counted try.
UNTRIED_MS: Final = 1
TRIED_MS: Final = 2  #: the same of a job that is done, and that a consumer has had since
ENDED_MS: Final = 4  #: added to these, or alone: the sender has ended the job
TOLD_MS: Final = UNTRIED_MS | TRIED_MS | ENDED_MS  #: the highest of these values; a time left is longer
MARK: Final = b"="  #: first byte of `mark_of`, in which no scope begins


class Failure(NamedTuple):
    """A try that failed, as the consumer said or the node noticed."""

    at: int
    node_id: bytes
    who: bytes  #: name or address of the client; empty = unknown
    reason: bytes  #: any bytes; empty = none was given


class Word(NamedTuple):
    """What a consumer said of a job: a progress or a result."""

    at: int
    node_id: bytes  #: of the node that it was said to
    value: bytes


class Fate(NamedTuple):
    """What became of a job."""

    generation: int = 0  #: how often it was redriven
    is_dead: bool = False
    spent: int = 0  #: tries of earlier generations
    is_cancelled: bool = False
    failures: tuple[Failure, ...] = ()  #: in order
    progress: Word | None = None
    result: Word | None = None
    has_rivals: bool = False  #: nodes that could not hear each other accepted different results


NO_FATE: Final = Fate()
ONLY_CANCELLED: Final = Fate(is_cancelled=True)  #: of nearly all jobs that a purge ends


def accepted(fate: Fate) -> Word | None:
    """Return the result that a node accepted; None = there is none, or it is not known."""
    result = fate.result
    return None if result is None or result.at == UNKNOWN_AT else result


def cancelled(fate: Fate) -> Fate:
    """Return the fate of a job that is cancelled now."""
    return ONLY_CANCELLED if fate is NO_FATE else fate._replace(is_cancelled=True)


def is_undone(fate: Fate) -> bool:
    """Return whether a job with this fate ends, or has ended, as cancelled: nobody acknowledged it."""
    return fate.is_cancelled and fate.result is None


def has_died(fate: Fate) -> bool:
    """Return whether a job is dead, or was before it was redriven: it stays for longer since then."""
    return fate.is_dead or fate.generation > 0


def mark_of(fate: Fate) -> bytes:
    """Return what tells the end of a job with this fate from any other end that it may have; empty = a plain one.

    A node accepts one result of a job, so that its time and its node tell it.  `MARK` alone: it was cancelled.
    """
    result = fate.result
    if result is None:
        return MARK if fate.is_cancelled else b""
    return b"%b%d:%b:%d:%d" % (MARK, result.at, result.node_id, fate.has_rivals, fate.is_cancelled)


def merge(first: Fate, second: Fate) -> Fate:
    """Make one fate of two that nodes know of the same job."""
    if first == second or second is NO_FATE:
        return first
    if first is NO_FATE:
        return second
    newer = first if first.generation >= second.generation else second
    is_dead, spent = newer.is_dead, newer.spent
    if first.generation == second.generation:
        is_dead, spent = first.is_dead or second.is_dead, max(first.spent, second.spent)
    result, has_rivals = _first_result(first, second)
    return Fate(
        newer.generation,
        is_dead,
        spent,
        first.is_cancelled or second.is_cancelled,
        last_failures((*first.failures, *second.failures)),
        first.progress if _latest(first.progress) >= _latest(second.progress) else second.progress,
        result,
        has_rivals,
    )


def last_failures(failures: tuple[Failure, ...]) -> tuple[Failure, ...]:
    """Return the failures that are kept of these, each once and in order."""
    return tuple(sorted(set(failures))[-FAILURES_KEPT:])


def _latest(word: Word | None) -> tuple[int, bytes, bytes]:
    return (-1, b"", b"") if word is None else (word.at, word.node_id, word.value)


def _first_result(first: Fate, second: Fate) -> tuple[Word | None, bool]:
    has_rivals = first.has_rivals or second.has_rivals
    if first.result is None or second.result is None:
        return first.result or second.result, has_rivals
    both_known = UNKNOWN_AT not in (first.result.at, second.result.at)
    return min(first.result, second.result), has_rivals or (both_known and first.result != second.result)


def cost_of_fate(fate: Fate) -> int:
    """Return the bytes that a fate takes; jobs that were cancelled, and nothing else, share theirs."""
    if fate in (NO_FATE, ONLY_CANCELLED):
        return 0
    cost = FATE_COST
    for failure in fate.failures:
        cost += WORD_COST + len(failure.who) + len(failure.reason)
    for word in (fate.progress, fate.result):
        if word is not None:
            cost += WORD_COST + len(word.value)
    return cost
