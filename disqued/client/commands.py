"""The commands: what callers say, checked and turned into words, and how the reply reads.

A client makes a method of each, so that both clients have the same ones and this is where they are described.

Spans are seconds, as numbers or as `timedelta`; names and bodies are bytes, or text, which becomes UTF-8.  Every
command raises ValueError for what no node would take, before anything is sent.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final, Generic, Literal, TypeAlias, TypeVar

import attrs

from disqued.client import replies
from disqued.client.job import Job, Topology
from disqued.client.replies import Facts, Reader
from disqued.client.values import (
    JOB_ID_LENGTHS,
    Span,
    Word,
    encode,
    encode_data,
    encode_queues,
    milliseconds,
    waiting_seconds,
    whole_number,
    whole_seconds,
)

T = TypeVar("T")
#: A job, or its id.
AnyJob: TypeAlias = Job | bytes | str
JobStateName: TypeAlias = Literal["wait-repl", "active", "queued", "acked"]
PauseName: TypeAlias = Literal["none", "in", "out", "all", "state"]

DEFAULT_ADD_S: Final = 5.0
KEY_MAX: Final = 1_024  #: bytes


class ConnectionUse(Enum):
    """Which connection a command goes by: one that waits holds up all that come behind it."""

    QUICK = "quick"
    ADD = "add"  #: waits for copies
    FETCH = "fetch"  #: waits for jobs: a connection of its own for each


@attrs.frozen
class WorkerIdentity:
    """A live worker, as a node knows it; it has a connection of its own to each node that it takes jobs from."""

    id: bytes
    #: Seconds without a sign of life after which it counts as dead.
    dead_after: float
    #: For people to read.
    name: bytes = b""


@attrs.frozen
class Command(Generic[T]):
    """A command, ready to be sent, perhaps several times."""

    words: tuple[bytes, ...]
    read: Reader[T]
    #: Whether it may be sent again when nobody knows if it was done.
    repeatable: bool = True
    lane: ConnectionUse = ConnectionUse.QUICK
    #: Seconds that the node may take before it answers; None = any time.
    waits: float | None = 0.0
    #: Whether it hands out jobs.
    fetches: bool = False
    #: Id of the node that it is best sent to; b"" = any.
    near: bytes = b""
    #: The live worker whose connection it goes by; None = none in particular.
    seat: WorkerIdentity | None = None

    def asking(self, seconds: float) -> tuple[bytes, ...]:
        """The words that ask for a reply within a time; only a fetch has a time of its own in them."""
        if self.lane is not ConnectionUse.FETCH:
            return self.words
        return (self.words[0], b"TIMEOUT", milliseconds(seconds), *self.words[1:])


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
    retry_add: bool = False,
) -> Command[bytes]:
    """Add a job; returns its id.

    `timeout` is how long to wait for the copies; `replicate` how many nodes shall hold the job.  `delay` is the time
    before it is queued, `retry` the time after which a delivery without acknowledgement counts as failed (0 = deliver
    at most once), `ttl` its life, all in whole seconds.  `maxlen` refuses when the queue holds that many jobs.
    `asynchronous` replies at once and copies in the background.

    While a job of the queue has the `key` nothing is added, and that job's id is returned, whatever its body is: 1 to
    1024 bytes, free again when its job is done.

    When the connection breaks before the answer comes the job may have been added.  With a `key` it is then added again
    elsewhere, and is there once.  Without one Uncertain is raised, unless `retry_add` says that it may be there twice.

    Raises NotReplicated, QueuePaused, QueueTooLong, Uncertain, Unreachable, ServerError.
    """
    seconds = waiting_seconds(timeout, "timeout")
    words = [b"ADDJOB", encode_data(queue, "queue"), encode_data(body, "body"), milliseconds(seconds)]
    if replicate is not None:
        words += b"REPLICATE", whole_number(replicate, "replicate", most=65_535)
    for name, span, least in (("delay", delay, 0), ("retry", retry, 0), ("ttl", ttl, 1)):
        if span is not None:
            words += name.upper().encode(), whole_seconds(span, name, least)
    if maxlen is not None:
        words += b"MAXLEN", whole_number(maxlen, "maxlen")
    if asynchronous:
        words.append(b"ASYNC")
    if key is not None:
        words += b"KEY", _key(key)
    is_repeatable = retry_add or key is not None
    return Command(tuple(words), replies.read_bytes, repeatable=is_repeatable, lane=ConnectionUse.ADD, waits=seconds)


def _key(key: bytes | str) -> bytes:
    """Write the key of a job.  Raises ValueError for one that is empty, or too long."""
    data = encode_data(key, "key")
    if not 0 < len(data) <= KEY_MAX:
        raise ValueError(f"a key of {len(data)} bytes; 1 to {KEY_MAX} are allowed")
    return data


def get(
    *queues: bytes | str, timeout: Span | None = None, count: int = 1, nohang: bool = False, counters: bool = False
) -> Command[list[Job]]:
    """Take up to `count` jobs from queues, waiting for the first one; returns none after `timeout` (None = wait on).

    With `nohang` it does not wait at all.  With `counters` each job tells its `nacks` and `additional_deliveries`.
    While it waits it follows the cluster: when its node goes away another one is asked.  A job that a node has handed
    out into a connection that broke comes back after its retry time, and with retry 0 never.

    Raises Unreachable, ServerError.
    """
    words = [b"GETJOB"]
    if nohang:
        if timeout is not None:
            raise ValueError("nohang does not wait: it goes without a timeout")
        words.append(b"NOHANG")
    if counters:
        words.append(b"WITHCOUNTERS")
    words += b"COUNT", whole_number(count, "count"), b"FROM", *encode_queues(queues)
    waits = 0.0 if nohang else None if timeout is None else waiting_seconds(timeout, "timeout")
    lane = ConnectionUse.QUICK if nohang else ConnectionUse.FETCH
    return Command(tuple(words), replies.read_jobs, lane=lane, waits=waits, fetches=True)


def _on_jobs(word: bytes, jobs: tuple[AnyJob, ...], read: Reader[T]) -> Command[T]:
    if not jobs:
        raise ValueError(f"{word.decode()} without a job; at least one is needed")
    nodes = {job.node for job in jobs if isinstance(job, Job)}
    return Command((word, *map(job_id, jobs)), read, near=nodes.pop() if len(nodes) == 1 else b"")


def job_id(job: AnyJob) -> bytes:
    """Name a job by its id.  Raises ValueError for what cannot be one."""
    found = job.id if isinstance(job, Job) else encode_data(job, "a job id")
    if len(found) not in JOB_ID_LENGTHS or not found.startswith(b"D"):
        raise ValueError(f"{found!r} is no job id: they are DI and 46 characters, or D- and 38")
    return found


def ack(*jobs: AnyJob) -> Command[int]:
    """Say that jobs are done, so that nobody gets them again; returns how many were known and not done before."""
    return _on_jobs(b"ACKJOB", jobs, replies.read_number)


def fast_ack(*jobs: AnyJob) -> Command[int]:
    """Say that jobs are done, without care that every holder hears of it; returns how many were known."""
    return _on_jobs(b"FASTACK", jobs, replies.read_number)


def nack(*jobs: AnyJob) -> Command[int]:
    """Give jobs back, to be delivered again at once; returns how many were queued."""
    return _on_jobs(b"NACK", jobs, replies.read_number)


def working(job: AnyJob) -> Command[int]:
    """Say that a job is still worked on; returns its retry time in seconds, which begins anew (0 = at most once).

    Raises UnknownJob, TooLate.
    """
    return _on_jobs(b"WORKING", (job,), replies.read_number)


def enqueue(*jobs: AnyJob) -> Command[int]:
    """Queue jobs that are not; returns how many were queued."""
    return _on_jobs(b"ENQUEUE", jobs, replies.read_number)


def dequeue(*jobs: AnyJob) -> Command[int]:
    """Take jobs out of their queue without delivering them; returns how many were queued."""
    return _on_jobs(b"DEQUEUE", jobs, replies.read_number)


def delete(*jobs: AnyJob) -> Command[int]:
    """Drop jobs from the one node that is asked; returns how many it knew."""
    return _on_jobs(b"DELJOB", jobs, replies.read_number)


def show(job: AnyJob) -> Command[Facts | None]:
    """Tell what the node knows of a job, by name; None when it does not know it."""
    return _on_jobs(b"SHOW", (job,), replies.read_facts)


# Queues.


def qlen(queue: bytes | str) -> Command[int]:
    """Count the jobs that wait in a queue, on the node that is asked."""
    return Command((b"QLEN", encode_data(queue, "queue")), replies.read_number)


def qpeek(queue: bytes | str, count: int = 1) -> Command[list[Job]]:
    """Look at jobs that wait, oldest first, without taking them; a negative count looks at the newest, newest first."""
    number = whole_number(count, "count", least=-(2**63))
    return Command((b"QPEEK", encode_data(queue, "queue"), number), replies.read_jobs)


def qstat(queue: bytes | str, *, full: bool = False) -> Command[Facts | None]:
    """Tell the statistics of a queue, by name; None when there is no such queue on the node that is asked."""
    words = (b"QSTAT", encode_data(queue, "queue"), *((b"FULL",) if full else ()))
    return Command(words, replies.read_facts)


def pause(
    queue: bytes | str, state: PauseName = "all", *, reason: bytes | str = "", node: bool = False
) -> Command[str]:
    """Stop a queue from taking jobs (`in`), from handing them out (`out`) or both (`all`), or let it go on (`none`).

    The whole cluster follows, and producers hear the `reason`; with `node` the node that is asked does so alone, and
    there is no reason.  `state` changes nothing.  Returns the state afterwards.
    """
    if state not in ("none", "in", "out", "all", "state"):
        raise ValueError(f"a pause of {state!r}; none, in, out, all and state are allowed")
    # IN and OUT add up, so that what was there before is cleared first.
    parts = {"in": [b"none", b"in"], "out": [b"none", b"out"]}.get(state, [state.encode()])
    if reason:
        parts += [b"REASON", encode_data(reason, "reason")]
    words = (b"PAUSE", encode_data(queue, "queue"), *parts, *((b"node",) if node else ()))
    return Command(words, replies.read_word)


Page: TypeAlias = tuple[bytes, list[bytes]]
WALK_COUNT: Final = 100


def scan_queues(
    cursor: bytes = b"0", *, minlen: int | None = None, maxlen: int | None = None, count: int = WALK_COUNT
) -> Command[Page]:
    """Walk over the names of the queues of one node: those with `minlen` jobs at least, and `maxlen` at most."""
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
    states: Iterable[JobStateName] = (),
    count: int = WALK_COUNT,
) -> Command[Page]:
    """Walk over the ids of the jobs of one node: those of a queue, and in some of the states."""
    words = [b"JSCAN", cursor, b"COUNT", whole_number(count, "count")]
    if queue is not None:
        words += b"QUEUE", encode_data(queue, "queue")
    for state in states:
        if state not in ("wait-repl", "active", "queued", "acked"):
            raise ValueError(f"a state of {state!r}; wait-repl, active, queued and acked are allowed")
        words += b"STATE", state.encode()
    return Command(tuple(words), replies.read_page)


# Nodes.


def hello() -> Command[Topology]:
    """Tell which nodes there are, as the node that is asked knows it."""
    return Command((b"HELLO",), replies.read_hello)


def info(section: str | None = None) -> Command[dict[str, str]]:
    """Tell the figures of the node that is asked, by name: all, or one section."""
    return Command((b"INFO", *(() if section is None else (encode(section),))), replies.read_info)


def call(*words: Word, repeatable: bool = False, waits: Span = 0) -> Command[object]:
    """Send any other command; returns the reply as it came: numbers, bytes, lists, None.

    `repeatable` says that it may be sent again when the connection breaks before the answer; otherwise Uncertain is
    raised then.  `waits` is the time that the node may take before it answers, beside the usual.
    """
    if not words:
        raise ValueError("a command has at least one word")
    seconds = waiting_seconds(waits, "waits") if waits else 0.0
    lane = ConnectionUse.ADD if seconds else ConnectionUse.QUICK
    return Command(tuple(map(encode, words)), replies.read_raw, repeatable=repeatable, lane=lane, waits=seconds)
