"""Moving jobs: one state machine for the command line, the HTTP API and Spark; nothing here does I/O.

    the mover               here                    there
    deliver   GETJOB     -->|
    look      SHOW       -->|                                    options, TTL and key of each job
    hold      DEQUEUE    -->|                                    a job that waits and was not delivered to the mover
    claim     ACKJOB     -->|                                    RETRY 0 alone
    copy      ADDJOB ... KEY move/<id> ------------>|            answers when the job has its copies there
    end       CANCEL     -->|                                    copied jobs that have terms: nobody has done them
              NACK UNTRIED  |                                    ends those at once, since they are cancelled
              ACKJOB     -->|                                    other copied jobs
    give back NACK UNTRIED->|                                    the refused jobs; no try is counted

The machines are generators.  They yield `Ask` (commands for one side) and `Wait`; a runner carries these out and sends
back one reply for each command, a `Refusal` for an error.  A runner that loses its connection throws `Broken` in.

The rules, for every runner:

* A job is ended here once its copy is safe there, so a crash loses nothing.  One with terms is cancelled, so that a
  producer that waits for its result does not take it for done.  Others are acknowledged, which costs less.
* The copy has a key: the job's own, or `move/<id>`.  A second attempt, by this mover or another, finds the first copy
  as long as that exists.  A copy is therefore never taken back: another mover may rely on it.
* A job with RETRY 0 is acknowledged before it is added, is added at most once, and needs to have been delivered to the
  mover.  When it is refused there, it is added here again.
* TTL (what is left), RETRY, REPLICATE, DELAY (what is left) and the job's own key travel; `Terms` may override all but
  the key.
* Jobs that were done or expired in the meantime are counted, and not moved.

This module is in the root of the package because the daemon and the client library, which do not know each other, both
need it.  Times are seconds.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from enum import Enum, auto
from typing import Any, Final, TypeAlias, TypeVar

import attrs

T = TypeVar("T")
Word: TypeAlias = bytes | str | int
Words: TypeAlias = Sequence[Word]
Seconds: TypeAlias = int | float  #: to the millisecond

KEY: Final = b"move/"  #: begins the key of a job that has none of its own; the id follows
ADD_S: Final = 5.0  #: how long ADDJOB waits for the copies of a job
CANCEL_S: Final = 2.0  #: how long CANCEL waits for nodes that say nothing
PAUSE_S: Final = 0.2  #: between two attempts to reach the other side
ALLOWED: Final = 2**31 - 1  #: the longest span that ADDJOB takes
SHORTEST: Final = 0.001  #: and the shortest TTL
_CANCELLED: Final = frozenset({b"cancelled", b"cancelling"})
ONCE: Final = "RETRY 0: it is delivered at most once, and a move could deliver it twice"


class Side(Enum):
    """Where commands go."""

    HERE = auto()
    THERE = auto()


@attrs.frozen
class Ask:
    """Send commands to one side; the answer is a list of their replies."""

    side: Side
    commands: Sequence[Words]
    waits: float = 0.0  #: how long the node may take over each reply beyond the usual timeout


@attrs.frozen
class Wait:
    """Wait; the answer is not looked at."""

    seconds: float


@attrs.frozen
class Refusal:
    """An error that a side answered to a command."""

    code: str  #: its first word
    text: str
    error: Exception  #: as the runner knows it


class Broken(Exception):
    """Thrown in by a runner: a side cannot be reached.  Its cause is the runner's own error."""

    def __init__(self, *, may_be_done: bool) -> None:
        super().__init__("a side cannot be reached")
        self.may_be_done = may_be_done  #: the commands were sent, so that any of them may have been carried out


class Lost(Exception):
    """At-most-once jobs that may or may not be there, or are on neither side."""


class Has(Enum):
    """Who has a job when its move begins."""

    QUEUE = auto()  #: it waits: the mover takes it out of its queue first
    MOVER = auto()  #: it was delivered to the mover, or the mover took it out
    OTHERS = auto()  #: it is delayed, or with a consumer: the mover never gives it back


@attrs.frozen
class Job:
    """A job to be moved, and what ADDJOB needs to know of it."""

    id: bytes
    body: bytes
    ttl_s: Seconds  #: what is left
    retry_s: Seconds
    replicate: int
    key: bytes
    delay_s: Seconds = 0  #: what is left
    has: Has = Has.MOVER
    terms: Words = ()  #: options of ADDJOB, from MAXTRIES to GROUP; an older node refuses them

    @property
    def is_given_once(self) -> bool:
        """True for a job that is never delivered a second time."""
        return self.retry_s == 0


def words_of(
    max_tries: int, backoff: Sequence[Seconds], keep_dead: Seconds, keep_result: Seconds, headers: Sequence[bytes],
    *, group: bytes = b"",
) -> Words:  # fmt: skip
    """Return the options of ADDJOB for terms as SHOW tells them, in seconds; headers are names and values in turn."""
    words: list[Any] = [b"MAXTRIES", max_tries] if max_tries else []
    words += [b"BACKOFF", *map(span_word, backoff)] if backoff[0] else []
    words += [b"KEEPDEAD", span_word(keep_dead)] if keep_dead or max_tries else []
    words += [b"RESULT", span_word(keep_result)] if keep_result else []
    for name, value in zip(headers[::2], headers[1::2], strict=True):
        words += [b"HEADER", name, value]
    words += [b"GROUP", group] if group else []
    return tuple(words)


def span_word(span: Seconds) -> Word:
    """Return a span as a word of a command."""
    return span if isinstance(span, int) else f"{span:.15g}"


def _seconds(told: Any) -> Seconds:
    """Read a span as SHOW tells it: an integer, or where it is not whole a double, which RESP2 writes as text."""
    return told if isinstance(told, int) else float(told)


def key_of(job_id: bytes) -> bytes:
    """Return the key under which a job without a key of its own is moved; the same in every attempt."""
    return KEY + job_id


@attrs.frozen
class Terms:
    """Where jobs go, and what is different there; None = as the job has it."""

    queue: bytes  #: here
    to: bytes  #: there
    replicate: int | None = None
    retry_s: Seconds | None = None
    ttl_s: Seconds | None = None
    delay_s: Seconds | None = None
    add_s: float = ADD_S
    patience_s: float = 0.0  #: how long the other side may be away before the move gives up
    clock: Callable[[], float] = lambda: 0.0  #: monotonic

    def addition(self, job: Job) -> Words:
        """Return the ADDJOB that makes the copy."""
        retry_s = min(job.retry_s if self.retry_s is None else self.retry_s, ALLOWED)
        ttl_s = max(SHORTEST, min(self.ttl_s or job.ttl_s, ALLOWED))
        delay_s = job.delay_s if self.delay_s is None else self.delay_s
        if delay_s >= ttl_s:
            delay_s = max(0, ttl_s - 1)
        copies = (self.replicate or job.replicate) if retry_s else 1
        return self._adding(self.to, attrs.evolve(job, ttl_s=ttl_s, retry_s=retry_s, replicate=copies, delay_s=delay_s))

    def restoration(self, job: Job) -> Words:
        """Return the ADDJOB that puts an at-most-once job back into its queue, as it was."""
        return self._adding(self.queue, attrs.evolve(job, ttl_s=max(SHORTEST, min(job.ttl_s, ALLOWED)), delay_s=0))

    def _adding(self, queue: bytes, job: Job) -> Words:
        delay: Words = (b"DELAY", span_word(job.delay_s)) if job.delay_s else ()
        return (
            b"ADDJOB", queue, job.body, int(self.add_s * 1_000), b"REPLICATE", job.replicate,
            b"TTL", span_word(job.ttl_s), b"RETRY", span_word(job.retry_s), *delay, *job.terms, b"KEY", job.key,
        )  # fmt: skip


@attrs.define
class Tally:
    """What came of the jobs of a batch."""

    moved: int = 0  #: copied there and ended here; a copy that an earlier attempt has left counts, too
    overtaken: int = 0  #: copied, and ended here by somebody else meanwhile: they may be done twice
    gone: int = 0  #: done, expired or taken by a consumer before they were copied; nothing was done with them
    unknown: list[bytes] = attrs.field(factory=list)  #: ids that this node does not know
    refused: list[tuple[Job, Refusal]] = attrs.field(factory=list)  #: no copy was made; the jobs are where they were
    both: list[tuple[Job, Refusal]] = attrs.field(factory=list)  #: copied, and this node refused to end them


Effect: TypeAlias = Ask | Wait
Machine: TypeAlias = Generator[Effect, Any, T]


def run(machine: Machine[T], perform: Callable[[Effect], Any]) -> T:
    """Run a machine with a blocking `perform`; return its result.  Raises the causes of `Broken`, and Lost."""
    try:
        effect = next(machine)
        while True:
            try:
                answer = perform(effect)
            except BaseException as error:
                effect = machine.throw(error)
            else:
                effect = machine.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
    except Broken as broken:
        if broken.__cause__ is None:
            raise
        raise broken.__cause__ from None


# The machines.


def move_delivered(terms: Terms, count: int) -> Machine[Tally | None]:
    """Take at most so many jobs out of the queue and move them; None when there are none left."""
    while True:
        [given] = yield Ask(Side.HERE, [("GETJOB", "NOHANG", "COUNT", count, "FROM", terms.queue)])
        if isinstance(given, Refusal):
            raise given.error
        if not given:
            return None
        tally = yield from move_known(terms, [(row[1], row[2]) for row in given])
        tally.gone += len(tally.unknown)
        if tally.gone < len(given):
            return tally


def move_known(terms: Terms, jobs: Sequence[tuple[bytes, bytes]]) -> Machine[Tally]:
    """Move jobs that were delivered to the mover, given as (id, body), as far as this node still has them."""
    shown = yield Ask(Side.HERE, [("SHOW", job_id) for job_id, _ in jobs])
    tally = Tally()
    found: list[Job] = []
    for (job_id, body), reply in zip(jobs, shown, strict=True):
        if reply is None or isinstance(reply, Refusal):
            tally.unknown.append(job_id)
        elif (job := read_shown(job_id, body, reply)) is None:
            tally.gone += 1
        else:
            found.append(job)
    yield from _move(terms, found, tally)
    return tally


def read_shown(job_id: bytes, body: bytes, reply: Any) -> Job | None:
    """Read a reply to SHOW, which is names and values in turn; None for a job that is done."""
    facts = dict(zip(reply[::2], reply[1::2], strict=True))
    if facts[b"state"] == b"acked":
        return None
    key = facts.get(b"key", key_of(job_id))
    terms: Words = ()
    if b"max-tries" in facts:
        terms = words_of(
            facts[b"max-tries"], [*map(_seconds, facts[b"backoff"])], _seconds(facts[b"keep-dead"]),
            _seconds(facts[b"keep-result"]), facts[b"headers"], group=facts.get(b"group", b""),
        )  # fmt: skip
    return Job(job_id, body, facts[b"ttl"], _seconds(facts[b"retry"]), facts[b"repl"], key, terms=terms)


def move_chosen(terms: Terms, jobs: Sequence[Job]) -> Machine[Tally]:
    """Move jobs that were chosen by their ids; those that wait are taken out of their queue meanwhile."""
    tally = Tally()
    movable = [job for job in jobs if job.has is Has.MOVER or not job.is_given_once]
    tally.refused += [(job, Refusal("ERR", ONCE, ValueError(ONCE))) for job in jobs if job not in movable]
    held = yield from _hold([job for job in movable if job.has is Has.QUEUE], tally)
    others = (job for job in movable if job.has is not Has.QUEUE)
    ours = {job.id: job for job in (*held, *others)}
    yield from _move(terms, [ours[job.id] for job in movable if job.id in ours], tally)
    return tally


def _hold(jobs: Sequence[Job], tally: Tally) -> Machine[list[Job]]:
    """Take jobs out of their queue, so that no consumer receives them; return those that were still in it."""
    if not jobs:
        return []
    replies = yield Ask(Side.HERE, [("DEQUEUE", job.id) for job in jobs])
    held = []
    for job, reply in zip(jobs, replies, strict=True):
        if isinstance(reply, Refusal):
            tally.refused.append((job, reply))
        elif reply:
            held.append(attrs.evolve(job, has=Has.MOVER))
        else:  # a consumer was faster
            tally.gone += 1
    return held


def _move(terms: Terms, jobs: Sequence[Job], tally: Tally) -> Machine[None]:
    """Copy jobs, end those that were copied, and give back those that were refused."""
    jobs = yield from _claim(jobs, tally)
    if not jobs:
        return
    try:
        replies = yield from _copy(terms, jobs)
    except GeneratorExit:
        raise
    except BaseException as error:  # an interrupt, too
        may_be_there = not isinstance(error, Broken) or error.may_be_done
        yield from _give_back(terms, jobs, may_be_there=may_be_there)
        raise
    copied = [job for job, reply in zip(jobs, replies, strict=True) if not isinstance(reply, Refusal)]
    refused = [(job, reply) for job, reply in zip(jobs, replies, strict=True) if isinstance(reply, Refusal)]
    tally.refused += refused
    yield from _end(copied, tally)
    if refused:
        yield from _give_back(terms, [job for job, _ in refused], may_be_there=False)


def _claim(jobs: Sequence[Job], tally: Tally) -> Machine[list[Job]]:
    """Acknowledge at-most-once jobs before they are added; return all jobs but those that were done already.

    So an attempt that is repeated, for whatever reason, finds them done and adds no second one.
    """
    once = [job for job in jobs if job.is_given_once]
    if not once:
        return list(jobs)
    replies = yield Ask(Side.HERE, [("ACKJOB", job.id) for job in once])
    claimed = {job.id for job, reply in zip(once, replies, strict=True) if reply == 1}
    tally.refused += [(job, reply) for job, reply in zip(once, replies, strict=True) if isinstance(reply, Refusal)]
    tally.gone += sum(reply == 0 for reply in replies)
    return [job for job in jobs if not job.is_given_once or job.id in claimed]


def _copy(terms: Terms, jobs: Sequence[Job]) -> Machine[list[Any]]:
    """Add the copies; when it is not sure that they are there, add them again, which their keys make harmless.

    An at-most-once job may have been done already, and its key be free: it is never added again.
    """
    end = terms.clock() + terms.patience_s
    additions = Ask(Side.THERE, [terms.addition(job) for job in jobs], terms.add_s)
    while True:
        try:
            replies: list[Any] = yield additions
        except Broken as broken:
            is_repeatable = not broken.may_be_done or not any(job.is_given_once for job in jobs)
            if not is_repeatable or terms.clock() >= end:
                raise
        else:
            return replies
        yield Wait(PAUSE_S)


def _end(jobs: Sequence[Job], tally: Tally) -> Machine[None]:
    """End copied jobs."""
    open_ = [job for job in jobs if not job.is_given_once]
    tally.moved += len(jobs) - len(open_)
    yield from _cancel([job for job in open_ if job.terms], tally)
    yield from _acknowledge([job for job in open_ if not job.terms], tally)


def _cancel(jobs: Sequence[Job], tally: Tally) -> Machine[None]:
    """End jobs as cancelled; a user who may not do that acknowledges them."""
    if not jobs:
        return
    ids = [job.id for job in jobs]
    [words] = yield Ask(Side.HERE, [("CANCEL", *ids)], CANCEL_S)
    if isinstance(words, Refusal):
        yield from _acknowledge(jobs, tally)
        return
    # A consumer has them, as far as the node knows: the mover.  A refusal does no harm: they end after their RETRY.
    yield Ask(Side.HERE, [("NACK", "UNTRIED", *ids)])
    cancelled = sum(word in _CANCELLED for word in words)
    tally.moved += cancelled
    tally.overtaken += len(jobs) - cancelled


def _acknowledge(jobs: Sequence[Job], tally: Tally) -> Machine[None]:
    if not jobs:
        return
    [reply] = yield Ask(Side.HERE, [("ACKJOB", *(job.id for job in jobs))])
    if isinstance(reply, Refusal):
        tally.both += [(job, reply) for job in jobs]
    else:
        tally.moved += reply
        tally.overtaken += len(jobs) - reply


def _give_back(terms: Terms, jobs: Iterable[Job], *, may_be_there: bool) -> Machine[None]:
    """Put jobs back where they were.  Raises Lost for at-most-once jobs that cannot be put back.

    Nothing can be done for an at-most-once job that may be there: a second one could be delivered, too.
    """
    jobs = list(jobs)
    again = [job for job in jobs if job.has is Has.MOVER and not job.is_given_once]
    if again:  # a refusal does no harm: they come back after their RETRY
        [reply] = yield Ask(Side.HERE, [("NACK", "UNTRIED", *(job.id for job in again))])
        plain = [job.id for job in again if not job.terms]
        if isinstance(reply, Refusal) and plain:  # by an older node, which has no UNTRIED
            yield Ask(Side.HERE, [("ENQUEUE", *plain)])
    once = [job for job in jobs if job.is_given_once]
    if not once:
        return
    if may_be_there:
        raise Lost(
            f"the other side went away while {len(once)} at-most-once jobs were added there; they may be there, and"
            f" cannot be given back: {b', '.join(job.id for job in once).decode()}"
        )
    replies = yield Ask(Side.HERE, [terms.restoration(job) for job in once], terms.add_s)
    lost = [job.body for job, reply in zip(once, replies, strict=True) if isinstance(reply, Refusal)]
    if lost:
        raise Lost(f"at-most-once jobs can neither be added there nor put back; their bodies are {lost}")
