"""The commands: arguments checked and turned into words, and the reader of the reply.

Each client turns all of them into methods, so that all clients have the same ones, documented here.

Durations are seconds, as numbers or as `timedelta`; names and bodies are bytes, or text, which becomes UTF-8.  Every
command raises ValueError for values that no node accepts, before anything is sent.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

import attrs

from . import replies
from .job import Job, Topology
from .outcomes import AddedJob, Outcome
from .policies import Setting, Slot, encode_field, read_policy, read_slots
from .replies import Facts, Reader
from .schedules import Schedule, read_instants, read_schedules
from .values import (
    ABOVE_0,
    Headers,
    Span,
    Word,
    encode,
    encode_data,
    encode_headers,
    encode_queues,
    encode_span,
    milliseconds,
    short_text,
    to_seconds,
    waiting_seconds,
    whole_number,
)

T = TypeVar("T")
#: A job, or its id.
AnyJob: TypeAlias = Job | bytes | str
JobStateName: TypeAlias = Literal["wait-repl", "active", "queued", "acked", "dead"]
PartitionName: TypeAlias = Literal["strict", "available"]
#: Jobs, in how long, and perhaps how many at once.
Rate: TypeAlias = tuple[int, Span] | tuple[int, Span, int]
PauseName: TypeAlias = Literal["none", "in", "out", "all", "state"]

#: Asks a node to take receipts on a connection that fetches.
ASK_FOR_RECEIPTS: Final = (b"CLIENT", b"RECEIPTS", b"ON")
#: Says, as any command does, that the jobs of the last reply have arrived.
RECEIPT: Final = (b"PING",)
DEFAULT_ADD_S: Final = 5.0
KEY_MAX: Final = 1_024  #: bytes
REASON_MAX: Final = 1_024  #: bytes
WORDS_MAX: Final = 1_024  #: words of a command, but for those that take very many job ids
MORE_WORDS: Final = 4  #: words that a fetch has when it is sent: its timeout and its worker
#: The form of a job id; nobody looks at what stands between the marks.
JOB_ID: Final = re.compile(rb"DI.{44}SQ|D-.{8}-.{24}-.{4}", re.DOTALL)
PROGRESS_MAX: Final = 1_024  #: bytes
TRIES_MAX: Final = 65_535
GROUP_MAX: Final = 255  #: bytes
THROTTLE_MAX: Final = 86_400  #: seconds
IN_FLIGHT_MAX: Final = 10_000
RATE_MAX: Final = 1_000_000  #: jobs, seconds and burst of a rate
IDLE_MIN_S: Final = 10  #: seconds of a queue's idleness
NAME_MAX: Final = 255  #: bytes of the name of a schedule
CATCH_UP_MAX: Final = 1_000
WAITED_MAX: Final = 1_000  #: jobs that one command waits for
LONG_S: Final = 600.0  #: how long a command may take that goes through the jobs of a queue on all nodes


class ConnectionUse(Enum):
    """Which connection a command uses: one that waits holds up all commands behind it."""

    QUICK = "quick"
    ADD = "add"  #: waits for other nodes
    FETCH = "fetch"  #: waits for jobs: a connection of its own for each
    WAIT = "wait"  #: waits for the end of jobs: a connection of its own for each
    LONG = "long"  #: takes long: a connection of its own for each


@attrs.frozen
class WorkerIdentity:
    """A live worker, as nodes know it; it has a connection of its own to each node that it takes jobs from."""

    id: bytes
    #: Seconds without a heartbeat after which it counts as dead.
    dead_after: float
    #: A name for people.
    name: bytes = b""


@attrs.frozen
class Command(Generic[T]):
    """A command, ready to be sent, perhaps several times."""

    words: tuple[bytes, ...]
    read: Reader[T]
    #: Whether it may be sent again when its outcome is unknown.
    repeatable: bool = True
    lane: ConnectionUse = ConnectionUse.QUICK
    #: Seconds that the node may wait before it answers; None = no limit.
    waits: float | None = 0.0
    #: Whether it hands out jobs.
    fetches: bool = False
    #: Of a command that adds a job, and returns its id: the headers of the job; None = it adds none.
    headers: Headers | None = None
    #: Whether to ask again after a result, while there is time; None = never.
    waits_on: Callable[[T], bool] | None = None
    #: Id of the preferred node; b"" = any.
    near: bytes = b""
    #: The live worker whose connection it uses; None = a shared one.
    seat: WorkerIdentity | None = None

    def asking(self, seconds: float) -> tuple[bytes, ...]:
        """Return the words of a request that waits for `seconds`; only what is sent in slices contains its wait."""
        match self.lane:
            case ConnectionUse.FETCH if self.waits != 0.0:
                return (self.words[0], b"TIMEOUT", milliseconds(seconds), *self.words[1:])
            case ConnectionUse.WAIT:
                return (self.words[0], milliseconds(seconds), *self.words[1:])
        return self.words

    def with_headers(self, more: Headers) -> "Command[T]":
        """Return the addition of a job with more headers."""
        words = (word for header in more for word in (b"HEADER", *header))
        return attrs.evolve(self, words=(*self.words, *words), headers=(*(self.headers or ()), *more))

    @property
    def is_sliced(self) -> bool:
        """Whether its wait is sent in slices."""
        return self.lane in (ConnectionUse.FETCH, ConnectionUse.WAIT)


# Jobs.


def add(
    queue: bytes | str,
    body: bytes | str,
    *,
    timeout: Span = DEFAULT_ADD_S,
    replicate: int | None = None,
    delay: Span | None = None,
    retry: Span | None = None,
    ttl: Span | None = None,
    maxlen: int | None = None,
    asynchronous: bool = False,
    key: bytes | str | None = None,
    max_tries: int | None = None,
    backoff: Span | tuple[Span, Span] | None = None,
    keep_dead: Span | None = None,
    result_ttl: Span | None = None,
    headers: Mapping[str, bytes | str] | None = None,
    group: bytes | str | None = None,
    retry_add: bool = False,
) -> Command[AddedJob]:
    """Add a job; returns its id, as bytes with the methods `wait` and `outcome`.

    `timeout` is how long to wait for the copies; `replicate` is how many nodes hold the job.  `delay` is the time
    before it is queued, `retry` the time after which a delivery without acknowledgement counts as failed (0 = deliver
    at most once), `ttl` its time to live, all to the millisecond.  `maxlen` refuses the job when the queue holds that
    many.  `asynchronous` replies at once and replicates in the background.

    `key` is an idempotency key of 1 to 1024 bytes, free again when its job is done; a dead job keeps its key as long as
    it stays.  While a job of the queue has it, nothing is added, and that job's id is returned, whatever its body is.

    `max_tries` is the number of tries after which the job is dead.  `backoff` is the delay after the first failed try,
    which doubles with each further one, or a pair of it and the longest delay.  `keep_dead` is how long a dead job
    stays beyond its time to live, `result_ttl` how long its result stays after its acknowledgement.  `headers` go with
    the job to its consumer: 16 of them, and 8 KiB together.  With OpenTelemetry the client adds those of the current
    trace, unless there is a `traceparent` among them.  `group` is the group of the job within its queue, such as a
    customer, in 1 to 255 bytes: `set_policy(fair=True)` and `throttle` look at it.

    When the connection breaks before the reply, the job may have been added.  With a `key` the client adds it again
    elsewhere, and it exists once.  Without one it raises Uncertain, unless `retry_add` allows that it exists twice.

    Raises NotReplicated, QueuePaused, QueueTooLong, Uncertain, Unreachable, ServerError.
    """
    seconds = waiting_seconds(timeout, "timeout")
    words = [b"ADDJOB", encode_data(queue, "queue"), encode_data(body, "body"), milliseconds(seconds)]
    words += _settings(delay, retry, ttl, replicate, maxlen)
    _check_terms(retry, replicate, delay, ttl, is_tried_again=max_tries is not None or backoff is not None)
    if asynchronous:
        words.append(b"ASYNC")
    words += _terms(max_tries, backoff, keep_dead, result_ttl)
    given = encode_headers(headers) if headers else ()
    for header in given:
        words += b"HEADER", *header
    if group is not None:
        words += b"GROUP", _group(group)
    if key is not None:
        words += b"KEY", _key(key)
    return Command(
        tuple(words), cast("Reader[AddedJob]", replies.read_bytes), repeatable=retry_add or key is not None,
        lane=ConnectionUse.ADD, waits=seconds, headers=given,
    )  # fmt: skip


def copy(job: Job, queue: bytes | str, ttl: Span | None, facts: Facts) -> Command[AddedJob]:
    """Add the body, headers and terms of a job to another queue; `facts` are those of SHOW.

    When the connection breaks before the reply, the job is added again and may exist twice.
    """
    return add(queue, job.body, ttl=ttl, headers=job.headers, retry_add=True, **_terms_in(facts))


def _terms_in(facts: Facts) -> dict[str, Any]:
    """Return the terms of a job that is shown, as arguments of `add`; headers are left out."""
    found: dict[str, Any] = {}
    match facts.get("max-tries"):
        case int() as tries if tries > 0:
            found["max_tries"] = tries
    match facts.get("backoff"):
        case [int() | float() as first, int() | float() as most] if first > 0:
            found["backoff"] = (first, most)
    match facts.get("keep-dead"):
        case int() | float() as seconds if seconds > 0 or "max_tries" in found:
            found["keep_dead"] = seconds
    match facts.get("keep-result"):
        case int() | float() as seconds if seconds > 0:
            found["result_ttl"] = seconds
    match facts.get("group"):
        case bytes() as group if group:
            found["group"] = group
    return found


def _settings(
    delay: Span | None, retry: Span | None, ttl: Span | None, replicate: int | None, maxlen: int | None
) -> list[bytes]:
    """Encode the times of a job, its number of copies and the limit of its queue.  Raises ValueError."""
    words: list[bytes] = []
    if replicate is not None:
        words += b"REPLICATE", whole_number(replicate, "replicate", most=65_535)
    for name, span, least in (("delay", delay, 0), ("retry", retry, 0), ("ttl", ttl, ABOVE_0)):
        if span is not None:
            words += name.upper().encode(), encode_span(span, name, least)
    if maxlen is not None:
        words += b"MAXLEN", whole_number(maxlen, "maxlen")
    return words


def _check_terms(
    retry: Span | None, replicate: int | None, delay: Span | None, ttl: Span | None, *, is_tried_again: bool
) -> None:
    """Check valid options against each other; `is_tried_again`: they say what failed tries mean.  Raises ValueError."""
    is_once = retry is not None and not to_seconds(retry, "retry")
    if is_once and is_tried_again:
        raise ValueError("max_tries or backoff with retry 0, which is one try; a retry above 0 is allowed")
    if is_once and replicate is not None and replicate > 1:
        raise ValueError(f"replicate is {replicate} with retry 0; 1 is allowed")
    if delay is not None and ttl is not None and to_seconds(delay, "delay") >= to_seconds(ttl, "ttl"):
        raise ValueError(f"delay is {delay!r}; less than ttl is allowed: {ttl!r}")


def _terms(
    max_tries: int | None, backoff: Span | tuple[Span, Span] | None, keep_dead: Span | None, result_ttl: Span | None
) -> list[bytes]:
    """Encode the terms of a job.  Raises ValueError."""
    words: list[bytes] = []
    if max_tries is not None:
        words += b"MAXTRIES", whole_number(max_tries, "max_tries", most=TRIES_MAX)
    if backoff is not None:
        delays = backoff if isinstance(backoff, tuple) else (backoff,)
        if len(delays) not in (1, 2):
            raise ValueError(f"backoff is {backoff!r}; a delay, or a first and a longest one, are allowed")
        words += b"BACKOFF", *(encode_span(delay, "backoff", ABOVE_0) for delay in delays)
        if len(delays) > 1 and float(words[-1]) < float(words[-2]):
            raise ValueError(f"backoff is {backoff!r}; the longest delay is at least the first one")
    if keep_dead is not None:
        words += b"KEEPDEAD", encode_span(keep_dead, "keep_dead")
    if result_ttl is not None:
        words += b"RESULT", encode_span(result_ttl, "result_ttl", ABOVE_0)
    return words


def _key(key: bytes | str) -> bytes:
    """Encode the key of a job.  Raises ValueError if it is empty or too long."""
    data = encode_data(key, "key")
    if not 0 < len(data) <= KEY_MAX:
        raise ValueError(f"a key of {len(data)} bytes; 1 to {KEY_MAX} are allowed")
    return data


def _group(group: bytes | str) -> bytes:
    """Encode the group of a job.  Raises ValueError if it is empty or too long."""
    data = encode_data(group, "group")
    if not 0 < len(data) <= GROUP_MAX:
        raise ValueError(f"a group of {len(data)} bytes; 1 to {GROUP_MAX} are allowed")
    return data


def get(
    *queues: bytes | str,
    timeout: Span | None = None,
    count: int = 1,
    nohang: bool = False,
    ordered: bool = False,
    counters: bool = False,
    headers: bool = False,
) -> Command[list[Job]]:
    """Fetch up to `count` jobs, waiting for the first one; returns none after `timeout` (None = no limit).

    With `nohang` it does not wait.  With `ordered` it empties each queue before it looks at the next one.  With
    `counters` each job has its `nacks` and `additional_deliveries`, with `headers` its `headers` and `attempt`.  While
    it waits it follows the cluster: when its node goes away it moves to another one.  A job that a node delivered into
    a connection that broke goes back to its queue at once, untried: the client confirms what it has read, and returns
    it when the node has answered that.  A user who may not send CLIENT RECEIPTS has such a job after its retry time,
    and never with retry 0.

    Raises Unreachable, ServerError.
    """
    words = [b"GETJOB"]
    if nohang:
        if timeout is not None:
            raise ValueError("nohang does not wait: it goes without a timeout")
        words.append(b"NOHANG")
    if counters:
        words.append(b"WITHCOUNTERS")
    if headers:
        words.append(b"WITHHEADERS")
    if ordered:
        words.append(b"ORDERED")
    words += b"COUNT", whole_number(count, "count"), b"FROM", *encode_queues(queues)
    _check_words(len(words) + MORE_WORDS)
    waits = 0.0 if nohang else None if timeout is None else waiting_seconds(timeout, "timeout")
    return Command(
        tuple(words), replies.read_jobs, lane=ConnectionUse.FETCH, waits=waits, fetches=True,
        waits_on=None if nohang else lambda jobs: not jobs,
    )  # fmt: skip


def _on_jobs(word: bytes, jobs: tuple[AnyJob, ...], read: Reader[T], *options: bytes) -> Command[T]:
    if not jobs:
        raise ValueError(f"{word.decode()} without a job; at least one is needed")
    nodes = {job.node for job in jobs if isinstance(job, Job)}
    return Command((word, *map(job_id, jobs), *options), read, near=nodes.pop() if len(nodes) == 1 else b"")


def job_id(job: AnyJob) -> bytes:
    """Return the id of a job.  Raises ValueError for an invalid id."""
    if isinstance(job, Job):
        return job.id  # a node has named it
    found = encode_data(job, "a job id")
    if not JOB_ID.fullmatch(found):
        raise ValueError(
            f"{found[:60]!r} is no job id: they are 48 characters DI...SQ, or 40 of the form D-...-...-..."
        )
    return found


def ack(*jobs: AnyJob, result: bytes | str | None = None) -> Command[int]:
    """Acknowledge jobs, so that they are not delivered again; returns how many were known and not acknowledged yet.

    With a `result` there is one job.  Clients that wait for it receive the result, and its nodes keep it if the job was
    added with `result_ttl`.
    """
    if result is None:
        return _on_jobs(b"ACKJOB", jobs, replies.read_number)
    if len(jobs) > 1:
        raise ValueError(f"a result of {len(jobs)} jobs; a result of one is allowed")
    return _on_jobs(b"ACKJOB", jobs, replies.read_number, b"RESULT", encode_data(result, "result"))


def fast_ack(*jobs: AnyJob) -> Command[int]:
    """Acknowledge jobs without making sure that every holder learns of it; returns how many were known."""
    return _on_jobs(b"FASTACK", jobs, replies.read_number)


def nack(
    *jobs: AnyJob, delay: Span | None = None, reason: bytes | str = "", dead: bool = False, untried: bool = False
) -> Command[int]:
    """Return jobs to their queue because their try failed; returns how many were given back.

    They are delivered again after the backoff that they were added with, or after `delay`; without
    either at once.  `reason` is kept with the job, in at most 1 KiB.  With `dead` the jobs are dead: nobody receives
    them before `redrive`.

    With `untried`, which goes alone, jobs return to their place in their queue at once and no try is counted: nobody
    has begun to work on them.
    """
    if untried and (delay is not None or reason or dead):
        raise ValueError("untried goes alone, without delay, reason and dead")
    options: list[bytes] = [b"UNTRIED"] if untried else []
    if delay is not None:
        options += b"DELAY", encode_span(delay, "delay")
    if reason:
        options += b"REASON", short_text(reason, "reason", REASON_MAX)
    if dead:
        options.append(b"DEAD")
    return _on_jobs(b"NACK", jobs, replies.read_number, *options)


def working(job: AnyJob, progress: bytes | str | None = None) -> Command[int | float]:
    """Postpone the next delivery of a job; returns its retry time in seconds, which starts again (0 = at most once).

    `progress` tells how far it is, in at most 1 KiB.

    Raises UnknownJob, TooLate, JobCancelled.
    """
    options = () if progress is None else (b"PROGRESS", short_text(progress, "progress", PROGRESS_MAX))
    return _on_jobs(b"WORKING", (job,), replies.read_seconds, *options)


def _check_words(count: int) -> None:
    """Raise ValueError when a command has more words than a node takes."""
    if count > WORDS_MAX:
        raise ValueError(f"a command of {count} words; at most {WORDS_MAX} are allowed, so name fewer")


def cancel(*jobs: AnyJob) -> Command[list[str]]:
    """Cancel jobs in the whole cluster; returns a word for each.

    `cancelled`: it waited, and has ended.  `cancelling`: a consumer has it, and learns of it.  `done`: it had ended.
    `unknown`: no node that can be reached knows it.
    """
    _check_words(len(jobs) + 1)
    return attrs.evolve(_on_jobs(b"CANCEL", jobs, replies.read_words), lane=ConnectionUse.ADD)


def wait_jobs(
    jobs: Iterable[AnyJob],
    timeout: Span | None = None,
    *,
    any: bool = False,  # noqa: A002 - as the command says
) -> Command[list[Outcome]]:
    """Wait until jobs are over, 1000 at most; returns the outcome of each, in order.

    With `any` it waits for the first, and returns the outcomes of those alone that are over.  When `timeout` ends first
    (None = no limit), jobs that are not over have the state pending.
    """
    ids = tuple(map(job_id, [jobs] if isinstance(jobs, Job | bytes | str) else jobs))
    if not 0 < len(ids) <= WAITED_MAX:
        raise ValueError(f"waiting for {len(ids)} jobs; 1 to {WAITED_MAX} are allowed")
    return Command(
        (b"WAITJOB", *((b"ANY",) if any else ()), *ids), replies.read_outcomes, lane=ConnectionUse.WAIT,
        waits=_limit(timeout), waits_on=_none_over if any else _some_pending,
    )  # fmt: skip


def standings(jobs: Iterable[Job]) -> Command[list[Outcome]]:
    """Return how jobs stand now, 1000 at most, without waiting for their end."""
    command = _on_jobs(b"WAITJOB", tuple(jobs), replies.read_outcomes)
    return attrs.evolve(command, words=(b"WAITJOB", milliseconds(0), *command.words[1:]))


def outcome(job: AnyJob, timeout: Span | None = None) -> Command[Outcome]:
    """Wait until a job is over; returns its outcome, which is pending when `timeout` ends first (None = no limit)."""
    return Command(
        (b"WAITJOB", job_id(job)), replies.read_outcome, lane=ConnectionUse.WAIT, waits=_limit(timeout),
        waits_on=lambda found: not found.is_over,
    )  # fmt: skip


def progress_or_outcome(command: Command[Outcome], seen: bytes | None, seconds: float | None) -> Command[Outcome]:
    """Return the command of `outcome` that ends with a progress other than `seen` as well, after so long at most.

    The progress is the value of the outcome, which is pending.
    """
    return attrs.evolve(
        command, words=(b"WAITJOB", b"PROGRESS", *command.words[1:]), waits=seconds,
        waits_on=lambda found: not found.is_over and found.value in (None, seen),
    )  # fmt: skip


def _limit(timeout: Span | None) -> float | None:
    return None if timeout is None else waiting_seconds(timeout, "timeout")


def _none_over(found: list[Outcome]) -> bool:
    return not any(each.is_over for each in found)


def _some_pending(found: list[Outcome]) -> bool:
    return not all(each.is_over for each in found)


def enqueue(*jobs: AnyJob) -> Command[int]:
    """Queue jobs that are not queued yet; returns how many it queued."""
    return _on_jobs(b"ENQUEUE", jobs, replies.read_number)


def dequeue(*jobs: AnyJob) -> Command[int]:
    """Remove jobs from their queue without delivering them; returns how many were queued."""
    return _on_jobs(b"DEQUEUE", jobs, replies.read_number)


def delete(*jobs: AnyJob) -> Command[int]:
    """Delete jobs from one node; returns how many it knew."""
    return _on_jobs(b"DELJOB", jobs, replies.read_number)


def show(job: AnyJob) -> Command[Facts | None]:
    """Return the facts that a node has about a job, by name; None when it does not know the job."""
    return _on_jobs(b"SHOW", (job,), replies.read_shown)


# Queues.


def qlen(queue: bytes | str) -> Command[int]:
    """Return the number of queued jobs of a queue, on one node."""
    return Command((b"QLEN", encode_data(queue, "queue")), replies.read_number)


def qpeek(queue: bytes | str, count: int = 1, *, dead: bool = False) -> Command[list[Job]]:
    """Return queued jobs without fetching them, oldest first; with a negative count the newest, newest first.

    With `dead` it returns the dead jobs of the queue, those first that failed last.
    """
    number = whole_number(count, "count", least=-(2**63))
    words = (b"QPEEK", encode_data(queue, "queue"), number, *((b"DEAD",) if dead else ()))
    return Command(words, replies.read_jobs)


def redrive(
    queue: bytes | str, *jobs: AnyJob, count: int | None = None, rate: int | None = None, timeout: Span = LONG_S
) -> Command[int]:
    """Queue dead jobs of a queue again, in the whole cluster, with new tries; returns how many.

    `jobs` are the ones to queue, or all; `count` is how many at most, `rate` how many a second, at most a million.
    `timeout` is how long that may take.
    """
    words = [b"REDRIVE", encode_data(queue, "queue")]
    for name, value, most in (("count", count, 2**63 - 1), ("rate", rate, RATE_MAX)):
        if value is not None:
            words += name.upper().encode(), whole_number(value, name, most=most)
    if jobs:
        words += b"ID", *map(job_id, jobs)
    _check_words(len(words))
    return _long(words, timeout)


def one_or_more(states: JobStateName | Iterable[JobStateName]) -> tuple[JobStateName, ...]:
    """Return the states that were given, where a single one needs no sequence."""
    return (states,) if isinstance(states, str) else tuple(states)


def purge(
    queue: bytes | str,
    *,
    states: JobStateName | Iterable[JobStateName] = (),
    dry_run: bool = False,
    timeout: Span = LONG_S,
) -> Command[int]:
    """End the jobs of a queue on all nodes, so that no copy comes back; returns how many, each counted once.

    `states` ends only jobs in this state, or in these: wait-repl, active, queued, dead.  With `dry_run` it counts them
    and ends none.  Jobs that are added meanwhile stay.  `timeout` is how long it may take; the nodes go on after that.

    Raises Uncertain when the connection breaks before the reply, as a second purge may end jobs that are added later.
    """
    words = [b"QPURGE", encode_data(queue, "queue")]
    for state in one_or_more(states):
        if state not in ("wait-repl", "active", "queued", "dead"):
            raise ValueError(f"a state of {state!r}; wait-repl, active, queued and dead are allowed")
        words += b"STATE", state.encode()
    if dry_run:
        words.append(b"DRYRUN")
    _check_words(len(words))
    return attrs.evolve(_long(words, timeout), repeatable=dry_run)


def _long(words: list[bytes], timeout: Span) -> Command[int]:
    seconds = waiting_seconds(timeout, "timeout")
    return Command(tuple(words), replies.read_number, lane=ConnectionUse.LONG, waits=seconds)


def policy(queue: bytes | str) -> Command[dict[str, Setting]]:
    """Return what is set for a queue in the whole cluster, by the names of `set_policy`; and its `pause`."""
    return Command((b"QPOLICY", encode_data(queue, "queue"), b"GET"), read_policy)


def set_policy(
    queue: bytes | str,
    *,
    replicate: int | None = None,
    retry: Span | None = None,
    ttl: Span | None = None,
    maxlen: int | None = None,
    max_tries: int | None = None,
    backoff: Span | tuple[Span, Span] | None = None,
    keep_dead: Span | None = None,
    result_ttl: Span | None = None,
    fair: bool = False,
    in_flight: int | None = None,
    group_in_flight: int | None = None,
    rate: Rate | None = None,
    group_rate: Rate | None = None,
    partition: PartitionName | None = None,
    idle: Span | None = None,
) -> Command[str]:
    """Set defaults of `add` for a queue in the whole cluster; None leaves a field as it is.  Returns OK.

    `add` takes the default for each option that it does not give itself; jobs that were added before keep theirs.  With
    `fair` the groups of the queue take turns, and `unset_policy(queue, "fair")` ends that.

    `in_flight` limits how many jobs of the queue are with consumers at the same time in the whole cluster, `rate` how
    many are handed out: `(10, 1)` are 10 a second, `(10, 1, 50)` the same with 50 at once after a pause.
    `group_in_flight` and `group_rate` limit each group.  With `partition="available"` each side of a partition has the
    limits for itself; `strict` hands nothing out without a majority of the nodes.

    With `idle` the queue forgets its policy once it has had neither jobs nor consumers, and no use, for so long.
    """
    words = [*_settings(None, retry, ttl, replicate, maxlen), *_terms(max_tries, backoff, keep_dead, result_ttl)]
    _check_terms(retry, replicate, None, ttl, is_tried_again=max_tries is not None or backoff is not None)
    words += _limits(in_flight, group_in_flight, rate, group_rate, partition)
    if fair:
        words.append(b"FAIR")
    if idle is not None:
        words += b"IDLE", encode_span(idle, "idle", IDLE_MIN_S)
    if not words:
        raise ValueError("set_policy without a field; at least one is needed")
    return Command((b"QPOLICY", encode_data(queue, "queue"), b"SET", *words), replies.read_word)


def _limits(
    in_flight: int | None, group_in_flight: int | None, rate: Rate | None, group_rate: Rate | None,
    partition: PartitionName | None,
) -> list[bytes]:  # fmt: skip
    """Spell the limits of a queue.  Raises ValueError."""
    words: list[bytes] = []
    for name, word, number in (
        ("in_flight", b"INFLIGHT", in_flight), ("group_in_flight", b"GROUPINFLIGHT", group_in_flight)
    ):  # fmt: skip
        if number is not None:
            words += word, whole_number(number, name, most=IN_FLIGHT_MAX)
    for name, word, given in (("rate", b"RATE", rate), ("group_rate", b"GROUPRATE", group_rate)):
        if given is None:
            continue
        parts = cast("object", given)
        if not isinstance(parts, tuple | list) or len(parts) not in (2, 3):
            raise ValueError(f"{name} is {given!r:.100}; jobs, seconds and perhaps the burst are allowed")
        count, span, *burst = parts
        words += word, whole_number(count, name, most=RATE_MAX), b"PER", encode_span(span, name, ABOVE_0, RATE_MAX)
        for most in burst:
            words += b"BURST", whole_number(most, f"the burst of {name}", most=RATE_MAX)
    if partition is not None:
        if partition not in ("strict", "available"):
            raise ValueError(f"a partition of {partition!r}; strict and available are allowed")
        words += b"PARTITION", partition.encode()
    return words


def slots(queue: bytes | str, count: int = 100) -> Command[list[Slot]]:
    """Return which jobs of a queue with limits are with consumers in the whole cluster, as one node knows."""
    words = (b"SLOTS", encode_data(queue, "queue"), b"COUNT", whole_number(count, "count"))
    return Command(words, read_slots)


def unset_policy(queue: bytes | str, *fields: str) -> Command[str]:
    """Take back defaults of a queue, by the names of `set_policy`.  Returns OK."""
    if not fields:
        raise ValueError("unset_policy without a field; at least one is needed")
    words = (b"QPOLICY", encode_data(queue, "queue"), b"UNSET", *map(encode_field, fields))
    _check_words(len(words))
    return Command(words, replies.read_word)


def qstat(queue: bytes | str, *, full: bool = False) -> Command[Facts | None]:
    """Return the statistics of a queue on one node, by name; None when it has no such queue."""
    words = (b"QSTAT", encode_data(queue, "queue"), *((b"FULL",) if full else ()))
    return Command(words, replies.read_facts)


def _pause_reason(reason: bytes | str) -> bytes:
    """Encode the reason of a pause.  Raises ValueError unless it is one line of at most 1024 bytes of UTF-8."""
    data = short_text(reason, "reason", REASON_MAX)
    if not data.decode().isprintable():
        raise ValueError(f"reason is {reason!r:.100}; one line of printable text is allowed")
    return data


def pause(
    queue: bytes | str, state: PauseName = "all", *, reason: bytes | str = "", node: bool = False
) -> Command[str]:
    """Pause adding to a queue (`in`), delivering from it (`out`) or both (`all`), or resume it (`none`).

    The whole cluster follows, and producers hear the `reason`; with `node` the node that is asked does so alone, and
    there is no reason.  `state` changes nothing.  Returns the state afterwards.
    """
    if state not in ("none", "in", "out", "all", "state"):
        raise ValueError(f"a pause of {state!r}; none, in, out, all and state are allowed")
    # IN and OUT add up, so the old state is cleared first.
    parts = {"in": [b"none", b"in"], "out": [b"none", b"out"]}.get(state, [state.encode()])
    if reason:
        if node or state in ("none", "state"):
            raise ValueError("reason goes with in, out and all in the whole cluster, and not with none, state and node")
        parts += [b"REASON", _pause_reason(reason)]
    words = (b"PAUSE", encode_data(queue, "queue"), *parts, *((b"node",) if node else ()))
    return Command(words, replies.read_word)


def throttle(queue: bytes | str, seconds: Span, *, group: bytes | str | None = None) -> Command[int]:
    """Let a queue, or one group of it, hand out nothing for so many seconds in the whole cluster.

    The latest end counts; 0 changes nothing.  Returns the seconds that are left, rounded up.
    """
    span = encode_span(seconds, "seconds", most=THROTTLE_MAX)
    words = (b"THROTTLE", encode_data(queue, "queue"), span, *(() if group is None else (b"GROUP", _group(group))))
    # The same end comes of it again, or a later one: to say it once more does no harm.
    return Command(words, replies.read_number, repeatable=True)


# Schedules.


def _schedule(word: bytes, name: bytes | str) -> tuple[bytes, ...]:
    """Begin a command on a schedule.  Raises ValueError for a name that is empty or too long."""
    data = encode_data(name, "name")
    if not 0 < len(data) <= NAME_MAX:
        raise ValueError(f"a name of {len(data)} bytes; 1 to {NAME_MAX} are allowed")
    return (b"SCHEDULE", word, data)


def _instants(line: str | None, every: Span | None, at: int | None, zone: str | None) -> list[bytes]:
    """Encode when a schedule comes.  Raises ValueError."""
    if sum(time is not None for time in (line, every, at)) != 1:
        raise ValueError("one of line, every and at is allowed, and needed")
    if line is None and zone is not None:
        raise ValueError("zone goes with line")
    if every is not None:
        return [b"EVERY", encode_span(every, "every", 1)]
    if at is not None:
        return [b"AT", whole_number(at, "at", most=2**33)]
    text = encode_data(cast("str", line), "line")
    if len(text.split()) not in (5, 6) and not text.startswith(b"@"):
        raise ValueError(f"a line of {line!r:.100}; five or six fields of cron, or a name such as @daily, are allowed")
    return [text, *(() if zone is None else (b"TZ", encode_data(zone, "zone")))]


def set_schedule(
    name: bytes | str,
    queue: bytes | str,
    body: bytes | str,
    *,
    line: str | None = None,
    every: Span | None = None,
    at: int | None = None,
    zone: str | None = None,
    skip_overlap: bool = False,
    catch_up: int | None = None,
    jitter: Span | None = None,
    replicate: int | None = None,
    delay: Span | None = None,
    retry: Span | None = None,
    ttl: Span | None = None,
    maxlen: int | None = None,
    asynchronous: bool = False,
    max_tries: int | None = None,
    backoff: Span | tuple[Span, Span] | None = None,
    keep_dead: Span | None = None,
    result_ttl: Span | None = None,
    headers: Mapping[str, bytes | str] | None = None,
    group: bytes | str | None = None,
) -> Command[str]:
    """Let the cluster add a job at each instant of a schedule, or change the schedule.  Returns OK.

    One of `line`, `every` and `at` says when: a cron line such as "0 2 * * mon-fri" in the time zone `zone` (UTC unless
    given), a span of a second or more, or one instant in unix seconds.  `skip_overlap` adds no job while the last one
    is not over.  `catch_up` is how many missed instants are fired later at most, `jitter` delays each job by up to so
    many seconds.  The other options are those of `add`, for each job.
    """
    words = [*_schedule(b"SET", name), *_instants(line, every, at, zone)]
    words += b"QUEUE", encode_data(queue, "queue"), b"BODY", encode_data(body, "body")
    if skip_overlap:
        words += b"OVERLAP", b"skip"
    if catch_up is not None:
        words += b"CATCHUP", whole_number(catch_up, "catch_up", least=0, most=CATCH_UP_MAX)
    if jitter is not None:
        words += b"JITTER", encode_span(jitter, "jitter")
    words += _settings(delay, retry, ttl, replicate, maxlen)
    _check_terms(retry, replicate, delay, ttl, is_tried_again=max_tries is not None or backoff is not None)
    late = to_seconds(delay or 0, "delay") + to_seconds(jitter or 0, "jitter")
    if ttl is not None and late >= to_seconds(ttl, "ttl"):
        raise ValueError(f"delay and jitter are {late:.15g} seconds together; less than ttl is allowed: {ttl!r}")
    if asynchronous:
        words.append(b"ASYNC")
    words += _terms(max_tries, backoff, keep_dead, result_ttl)
    for header in encode_headers(headers) if headers else ():
        words += b"HEADER", *header
    if group is not None:
        words += b"GROUP", _group(group)
    return Command(tuple(words), replies.read_word)


def schedule(name: bytes | str) -> Command[Facts | None]:
    """Return what a schedule says and how it stands, by name; None when there is none."""
    return Command(_schedule(b"GET", name), replies.read_schedule)


def schedules(pattern: bytes | str = "*") -> Command[list[Schedule]]:
    """Return the schedules of the cluster whose name matches a glob pattern, by name."""
    return Command((b"SCHEDULE", b"LIST", encode_data(pattern, "pattern")), read_schedules)


def delete_schedule(name: bytes | str) -> Command[int]:
    """Delete a schedule; jobs that it has added stay.  Returns 1, or 0 when there was none."""
    return Command(_schedule(b"DEL", name), replies.read_number)


def pause_schedule(name: bytes | str) -> Command[str]:
    """Pause a schedule in the whole cluster: instants that come meanwhile do not count.  Returns OK."""
    return Command(_schedule(b"PAUSE", name), replies.read_word)


def resume_schedule(name: bytes | str) -> Command[str]:
    """End the pause of a schedule in the whole cluster.  Returns OK."""
    return Command(_schedule(b"RESUME", name), replies.read_word)


def fire_schedule(name: bytes | str) -> Command[bytes]:
    """Add one job of a schedule now, paused or not; returns its id.

    Raises Uncertain when the connection breaks before the reply, as a repetition adds another job.
    """
    return Command(
        _schedule(b"FIRE", name), replies.read_bytes, repeatable=False, lane=ConnectionUse.ADD, waits=DEFAULT_ADD_S
    )


def next_of_schedule(name: bytes | str, count: int = 1) -> Command[list[int]]:
    """Return the next instants of a schedule in unix seconds; none while it is paused, or when it is done."""
    return Command((*_schedule(b"NEXT", name), whole_number(count, "count")), read_instants)


Page: TypeAlias = tuple[bytes, list[bytes]]
WALK_COUNT: Final = 100


def scan_queues(
    cursor: bytes = b"0", *, minlen: int | None = None, maxlen: int | None = None, count: int = WALK_COUNT
) -> Command[Page]:
    """Return a page of the names of one node's queues that have at least `minlen` and at most `maxlen` jobs."""
    words = [b"QSCAN", cursor, b"COUNT", whole_number(count, "count")]
    if minlen is not None:
        words += b"MINLEN", whole_number(minlen, "minlen", least=0)
    if maxlen is not None:
        words += b"MAXLEN", whole_number(maxlen, "maxlen", least=0)
    return Command(tuple(words), replies.read_page)


def scan_jobs(
    cursor: bytes = b"0",
    *,
    queue: bytes | str | None = None,
    states: JobStateName | Iterable[JobStateName] = (),
    count: int = WALK_COUNT,
) -> Command[Page]:
    """Return a page of the ids of one node's jobs, of one queue and in some states if given."""
    words = [b"JSCAN", cursor, b"COUNT", whole_number(count, "count")]
    if queue is not None:
        words += b"QUEUE", encode_data(queue, "queue")
    for state in one_or_more(states):
        if state not in ("wait-repl", "active", "queued", "acked", "dead"):
            raise ValueError(f"a state of {state!r}; wait-repl, active, queued, acked and dead are allowed")
        words += b"STATE", state.encode()
    _check_words(len(words))
    return Command(tuple(words), replies.read_page)


# Nodes.


def hello() -> Command[Topology]:
    """Return the nodes of the cluster, as one node knows them."""
    return Command((b"HELLO",), replies.read_hello)


def info(section: str | None = None) -> Command[dict[str, str]]:
    """Return the figures of one node by name: all, or one section."""
    return Command((b"INFO", *(() if section is None else (encode(section),))), replies.read_info)


def call(*words: Word, repeatable: bool = False, waits: Span = 0) -> Command[object]:
    """Send any other command; returns the raw reply: numbers, bytes, lists, None.

    `repeatable` allows sending it again when the connection breaks before the reply; otherwise Uncertain is raised.
    `waits` is how long the node may wait before it answers, in addition to the usual time.
    """
    if not words:
        raise ValueError("a command has at least one word")
    seconds = waiting_seconds(waits, "waits") if waits else 0.0
    lane = ConnectionUse.ADD if seconds else ConnectionUse.QUICK
    return Command(tuple(map(encode, words)), replies.read_raw, repeatable=repeatable, lane=lane, waits=seconds)
