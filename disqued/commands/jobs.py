"""Commands on jobs: add, get, acknowledge, and look at them.

Source: Disque 1.0-rc1, whose replies and error texts these are; the Disque README, "API".
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any

import attrs

from disqued.commands.parse_cache import (
    DEFAULT_TTL_MS,
    NEVER_DELIVERED,
    ONCE,
    ONE_TRY,
    Acknowledgement,
    Addition,
    CachedOptions,
    Fetch,
    WishedTerms,
    cached_fetches,
    cached_options,
    checked_ids,
    ids_alone,
)
from disqued.commands.parts import in_parts, spelt
from disqued.commands.shapes import JOBS, array, bulk, integer, null_or, pairs, status, tuple_of
from disqued.commands.shapes import seconds as seconds_shape
from disqued.commands.table import BLOCKED, LONG, MANUAL, Flag, command, flag, option, positional, repeated, rest
from disqued.commands.values import (
    BYTES,
    COUNT_MISFIT,
    INT64_MAX,
    JOB_ID,
    QUEUE,
    TAKER,
    TIMEOUT,
    TIMEOUT_MISFIT,
    Kind,
    in_seconds,
    never_empty,
    seconds,
)
from disqued.commands.values import count as count_kind
from disqued.commands.values import integer as integer_kind
from disqued.core.model import marks
from disqued.core.model.fate import FAILURE_REASON_MAX, NO_FATE, PROGRESS_MAX, Fate, accepted
from disqued.core.model.groups import Entry, Group, units_of
from disqued.core.model.job import ACKED, ACTIVE, KEYED, QUEUED, RETRY_NEVER_MS, STATE_NAMES, Job, NamedJob, attempt_of
from disqued.core.model.outbox import Client, name_of
from disqued.core.model.phases import IN_FLIGHT, PHASE_NAMES, phase_of
from disqued.core.model.queues import HOLDS
from disqued.core.model.state import State
from disqued.core.model.terms import (
    GROUP_MAX,
    HEADER_NAME_MAX,
    HEADERS_BYTES_MAX,
    HEADERS_MAX,
    NO_TERMS,
    TRIES_MAX,
    Terms,
    headers_misfit,
)
from disqued.core.model.unfinished import Parts
from disqued.core.node import Node
from disqued.core.work.queueing import requeue_within
from disqued.core.work.requeueing import GivenBack
from disqued.errors import (
    CommandError,
    JobCancelled,
    JobIsDead,
    NodeLeaving,
    NotReplicated,
    NoWorker,
    OutOfMemory,
    QueuePaused,
    QueueTooLong,
    SlotIsOver,
    SyntaxFault,
    TooLate,
    UnknownJob,
    WrongType,
)

KEY_MAX = 1_024  #: bytes
JOBS_AT_ONCE = 2_000  #: jobs in one reply at most, some milliseconds' work
# Of a command on very many jobs; a part takes some milliseconds.
CHECKED_PER_PART = 10_000  #: ids whose form is checked
CHANGED_PER_PART = 500  #: jobs that are changed
CHANGED_EFFORT = 20_000  #: or fewer, of which groups have much: see `State.effort`

TTL = seconds("TTL", "TTL must be a number > 0 - allowed are seconds, with fractions")
RETRY = seconds("RETRY", "RETRY time must be a non negative number - allowed are seconds, with fractions", zero=True)
DELAY = seconds("DELAY", "DELAY time must be a non negative number - allowed are seconds, with fractions", zero=True)
REPLICATE = integer_kind(1, 65_535, "REPLICATE must be between 1 and 65535 - allowed are whole numbers", "1 to 65535")
_BAD_KEY = f"KEY must be 1 to {KEY_MAX} bytes"


def _read_key(text: bytes) -> bytes:
    if not 0 < len(text) <= KEY_MAX:
        raise CommandError(_BAD_KEY)
    return text


_BAD_GROUP = f"GROUP must be 1 to {GROUP_MAX} bytes"


def _read_group(text: bytes) -> bytes:
    if not 0 < len(text) <= GROUP_MAX:
        raise CommandError(_BAD_GROUP)
    return text


_HEADER_NAME = f"1 to {HEADER_NAME_MAX} bytes of printable ASCII"
#: Checked as a whole: see `headers_misfit`.
HEADER = Kind(
    "string", None, f"name: {_HEADER_NAME}, each once; value: any bytes",
    errors=(
        f"ERR <n> headers; allowed are {HEADERS_MAX}", f"ERR headers of <n> bytes; allowed are {HEADERS_BYTES_MAX}",
        f"ERR header name '<name>'; allowed are {_HEADER_NAME}", "ERR header '<name>' is given twice; allowed is once",
    ),
)  # fmt: skip
GROUP = Kind("string", _read_group, f"1 to {GROUP_MAX} bytes", errors=(f"ERR {_BAD_GROUP}",))
KEY = Kind("string", _read_key, f"1 to {KEY_MAX} bytes", errors=(f"ERR {_BAD_KEY}",))
MAXLEN = integer_kind(1, INT64_MAX, "MAXLEN must be a positive number - allowed are whole numbers", "1 or more")

MAXTRIES = integer_kind(1, TRIES_MAX, f"MAXTRIES must be a whole number from 1 to {TRIES_MAX}", f"1 to {TRIES_MAX}")
BACKOFF = seconds("BACKOFF", "BACKOFF delays must be numbers of seconds > 0")
LONGEST_BELOW_FIRST = "BACKOFF takes the first delay and then the longest: the longest is not below the first"


def check_backoff(backoff: tuple[int, ...] | None) -> None:
    """Check that the longest delay, where there is one, is not below the first.  Raises CommandError."""
    if backoff and backoff[-1] < backoff[0]:
        raise CommandError(LONGEST_BELOW_FIRST)


KEEPDEAD = seconds("KEEPDEAD", "KEEPDEAD time must be a number of seconds, 0 or more", zero=True)
RESULT = seconds("RESULT", "RESULT time must be a number of seconds > 0")

NACK_DELAY = seconds("DELAY", "DELAY time must be a number of seconds, 0 or more", zero=True)
_BAD_REASON = f"REASON must be at most {FAILURE_REASON_MAX} bytes"


def _read_reason(text: bytes) -> bytes:
    if len(text) > FAILURE_REASON_MAX:
        raise CommandError(_BAD_REASON)
    return text


FAILURE_REASON = Kind("string", _read_reason, f"at most {FAILURE_REASON_MAX} bytes", errors=(f"ERR {_BAD_REASON}",))

UNTRIED_ALONE = "UNTRIED goes without DELAY, REASON and DEAD"

LONG_RESULT = "the result is too long; allowed are {most} bytes (result-max)"
_AMONG_IDS = f"syntax error - options among {LONG} ids or more; expected before them or behind them"
ONE_RESULT = "RESULT goes with one job id"
WAITED_MAX = 1_000  #: jobs that one call waits for
WAITED_TOO_MANY = f"too many jobs to wait for; allowed are {WAITED_MAX}"


WAIT_TIMEOUT = never_empty(TIMEOUT, TIMEOUT_MISFIT)
_BAD_PROGRESS = f"PROGRESS must be at most {PROGRESS_MAX} bytes"


def _read_progress(text: bytes) -> bytes:
    if len(text) > PROGRESS_MAX:
        raise CommandError(_BAD_PROGRESS)
    return text


PROGRESS = Kind("string", _read_progress, f"at most {PROGRESS_MAX} bytes", errors=(f"ERR {_BAD_PROGRESS}",))
_OUTCOME = tuple_of(
    "[id, state, result, tries, reason]", bulk("id"), bulk("acked | dead | cancelled | expired | unknown | pending"),
    null_or(bulk("result")), integer("deliveries, as far as they are known"), bulk("reason"),
)  # fmt: skip
GET_COUNT = count_kind(1, JOBS_AT_ONCE, COUNT_MISFIT)


@command(
    "ADDJOB", group="jobs", flags=Flag.WRITE | Flag.DENY_OOM | Flag.FAST, reply=status("the id of the job"),
    cost="O(log N) in the jobs of the queue at worst, O(1) as a rule",
    errors=(ONCE, NEVER_DELIVERED, ONE_TRY, LONGEST_BELOW_FIRST, NotReplicated, QueueTooLong, QueuePaused, WrongType),
    cache=cached_options, is_large=True,
)  # fmt: skip
@attrs.define
class AddJob:
    """Add a job to a queue.

    The reply comes when REPLICATE nodes hold the job.  With RETRY 0 it is delivered at most once; otherwise it is
    queued again each time that RETRY seconds pass after a delivery without an ACKJOB, until its TTL ends.

    With KEY a producer that does not know whether its job was added says the same again, to whichever node.  As long as
    a job of this queue with this key is there, on any node that can be reached, nothing is added and that job's id is
    answered, whatever body and options come with the key: the first ones count, and neither MAXLEN nor PAUSE refuses
    what is there already.  While that job still waits for its copies the others wait, each for its own time, and hear
    what becomes of it.  A key is free again when its job is acknowledged, deleted, cancelled or purged, or its TTL is
    over; a dead job keeps its key until KEEPDEAD is over, too, and its id is answered.  Nodes are asked first, for two
    seconds at most, before the time for the copies begins, with ASYNC too; those that cannot hear each other may each
    add a job of one key.

    MAXTRIES, BACKOFF, KEEPDEAD, RESULT, HEADER and GROUP are the terms of the job: they go with it to every node that
    holds it, and never change.  Jobs of one GROUP, say of one customer, are a group within their queue, to which
    QPOLICY FAIR and THROTTLE apply; jobs without GROUP are a group of their own.  The event log has the trace id of a
    header `traceparent`, as W3C Trace Context has it.  Each header is given once, and case counts: `a` and `A` are two
    headers, and `Traceparent` is no `traceparent`.

    Options that are not given are those of the queue, where QPOLICY has set them; an error that comes of such a default
    names it.  Other commands that add jobs take no default of QPOLICY.
    """

    queue: bytes = positional("Queue to add to; it comes into being when it is first used.", QUEUE)
    body: bytes = positional("The job itself; never looked at.", BYTES)
    timeout: int = positional("How long to wait for the copies on other nodes, in milliseconds.", TIMEOUT)
    replicate: int | None = option(
        "REPLICATE", "Nodes that shall hold the job; as many as reachable, up to 3.", REPLICATE
    )
    delay: int = option("DELAY", "Seconds before the job is queued.", DELAY, 0)
    retry: int | None = option("RETRY", "Seconds until a delivery counts as failed; TTL / 10, at most 300.", RETRY)
    ttl: int | None = option(
        "TTL", f"Seconds until the job is dropped, delivered or not; {DEFAULT_TTL_MS // 1_000} unless given.", TTL
    )
    maxlen: int | None = option("MAXLEN", "Refuse when the queue holds this many jobs already.", MAXLEN)
    asynchronous: bool = flag("ASYNC", "Reply at once and copy in the background.")
    max_tries: int | None = option(
        "MAXTRIES",
        "Deliveries before the job is dead instead of being queued again; no limit.",
        MAXTRIES,
        once=True,
    )
    backoff: tuple[int, ...] | None = option(
        "BACKOFF",
        "Seconds from a NACK to the next delivery, doubled by each further NACK; `most`, as a rule an hour, is the"
        " longest.", BACKOFF, parts=("first", "most"), spare=True, once=True,
    )  # fmt: skip
    keep_dead: int | None = option(
        "KEEPDEAD",
        "Seconds that a dead job stays beyond its TTL; with MAXTRIES as the setting dead-ttl.",
        KEEPDEAD,
        once=True,
    )
    result: int | None = option("RESULT", "Seconds to keep the result after the acknowledgement.", RESULT, once=True)
    headers: tuple[tuple[bytes, bytes], ...] = repeated(
        "HEADER", "A header, which GETJOB WITHHEADERS answers; 16 of them, 8 KiB together.", HEADER,
        parts=("name", "value"),
    )  # fmt: skip
    group: bytes = option("GROUP", "Group within the queue: a customer, a tenant, an account.", GROUP, b"", once=True)
    key: bytes | None = option(
        "KEY", "Add nothing while a job of the queue has this key: answer its id.", KEY, once=True
    )

    def cached_options(self) -> CachedOptions:
        """All but the queue, the body and the key."""
        check_backoff(self.backoff)
        wrong = headers_misfit(self.headers)
        if wrong:
            raise CommandError(wrong)
        return CachedOptions(
            ttl=self.ttl, retry=self.retry, delay=self.delay, replicate=self.replicate,
            maxlen=self.maxlen, timeout_ms=self.timeout, asynchronous=self.asynchronous,
            terms=WishedTerms(self.max_tries, self.backoff, self.keep_dead, self.result, self.headers, self.group),
        )  # fmt: skip

    def run(self, node: Node, client: Client) -> Any:
        """Add the job, unless one of its queue has the key; returns the id of whichever it is, or BLOCKED."""
        options = self.cached_options()
        if self.key is None:
            return Addition(self.queue, self.body, options, self.timeout).run(node, client)
        state = node.state
        # Wrong options are refused, though there is a job already.
        options.of_queue(state.queues.policies, self.queue).options(node.placement, state)
        alias = KEYED + self.key

        def add(producer: Client) -> bytes | None:
            # Those who wait together have timeouts of their own.
            job_id: bytes | object = Addition(self.queue, self.body, options, 0, lambda _: alias).run(node, producer)
            return job_id if isinstance(job_id, bytes) else None

        job_id = node.keys.add(client, self.queue, alias, self.timeout, add)
        return BLOCKED if job_id is None else job_id


@command(
    "GETJOB", group="jobs", flags=Flag.WRITE | Flag.FAST, reply=JOBS, cost="O(1) per job", arity=-2,
    errors=(NodeLeaving, OutOfMemory, NoWorker, WrongType), cache=cached_fetches, shows_bodies=True,
)  # fmt: skip
@attrs.frozen
class GetJob:
    """Take jobs from one or more queues, waiting for the first when there is none.

    Queues are asked from left to right, one job each, and round again until COUNT jobs are taken.  A client that had
    to wait gets one job.  Consumers that wait for a queue are served in the order in which they came.

    With ORDERED each queue is emptied before the next one is asked, as by RQ.POP, so that the jobs come in the order of
    the queues, and those of a queue that is named later have to wait.  A client that had to wait gets up to COUNT jobs,
    all of the queue that has one first.  A queue that gives no job now (PAUSE, THROTTLE, the limits of QPOLICY) counts
    as empty; of one with limits, a job that the steward has not given yet is not waited for once there are others.
    The order is that of the jobs that this node has: jobs of other nodes come to it when it has none.

    With WORKER the jobs belong to a worker (WORKER START), which keeps them as long as it lives, whatever their retry
    period is.  Those with RETRY 0 are delivered once, and belong to nobody.

    One call takes 2000 jobs at most, and no more once their names and bodies are a mebibyte together.  When memory is
    full no queue is made for a consumer: one that would have to wait for a queue that is not there is refused.

    The number of the delivery, which WITHHEADERS answers, is 1 for the first and grows with each further one: together
    with the id it is a fencing token, by which a store can refuse what a consumer writes that has lost the job.  Of a
    job with a term (MAXTRIES, BACKOFF, KEEPDEAD, RESULT, HEADER or GROUP) nodes write the number down and tell each
    other, so that it comes twice only from nodes that could not hear each other.  Of a job without terms it may come
    twice after a crash as well.
    """

    nohang: bool = flag("NOHANG", "Do not wait: null when there is no job.")
    with_counters: bool = flag("WITHCOUNTERS", "Answer how often each job was given back and queued again, too.")
    with_headers: bool = flag("WITHHEADERS", "Answer its headers and the number of this delivery, too.")
    timeout: int = option("TIMEOUT", "Milliseconds to wait before null is answered; 0 = for ever.", TIMEOUT, 0)
    count: int = option("COUNT", "Jobs to take at most; one call may take fewer.", GET_COUNT, 1)
    ordered: bool = flag("ORDERED", "Empty each queue before the next one is asked.")
    worker: bytes | None = option("WORKER", "Who takes them: if it dies they are queued again, in front.", TAKER)
    queues: list[bytes] = rest("Queues to take from.", QUEUE, word="FROM")

    def fetch(self) -> Fetch:
        """The compiled call."""
        return Fetch(
            self.queues, self.count, self.timeout, self.worker,
            nohang=self.nohang, ordered=self.ordered, with_counters=self.with_counters,
            with_headers=self.with_headers,
        )  # fmt: skip

    def run(self, node: Node, client: Client) -> Any:
        """Take the jobs; returns rows as `JOBS` describes them, None, or BLOCKED."""
        return self.fetch().run(node, client)


@attrs.define
class _InParts:
    """A command on so many jobs that it is run in parts; each id is a change of its own."""

    command: "_OnEachJob"  #: with its options, and without ids
    words: list[bytes]  #: as they came, with the name and without options; taken apart
    read: Callable[[bytes], Any]  #: the reader of an id

    def run(self, node: Node, client: Client) -> Any:
        """Begin; the reply comes with the last part."""
        node.in_parts(client, self._parts(node, client))
        return BLOCKED

    def _parts(self, node: Node, client: Client) -> Parts:
        """Check every id, then change job by job; returns how many were changed.  Raises BadJobId (BADID)."""
        words = self.words
        for at in range(1, len(words), CHECKED_PER_PART):
            for word in words[at : at + CHECKED_PER_PART]:
                self.read(word)
            yield
        # They are taken off the end, so that they are freed in parts, too.
        words.reverse()
        words.pop()
        changed = 0
        while words:
            node.state.unfinished.effort = 0
            change = self.command.change(node, client)
            for _ in range(min(CHANGED_PER_PART, len(words))):
                changed += change(words.pop())
                if node.state.unfinished.effort > CHANGED_EFFORT:
                    break
            yield
        return changed


class _OnEachJob(ABC):
    """What the commands share that take any number of job ids and answer to how many they applied."""

    __slots__ = ()

    ids: list[bytes]

    @abstractmethod
    def change(self, node: Node, client: Client) -> Callable[[bytes], bool]:
        """What is done with one id; says whether it applied.  To be asked for anew in each step."""

    @classmethod
    def in_parts(cls, words: list[bytes]) -> _InParts:
        """Make the command of words that are too many to be dealt with at once: options come before or after the ids.

        Raises SyntaxFault, and what is wrong with an option.
        """
        entry = MANUAL[words[0].upper().decode()]
        widths = {field.arg.keyword: field.arg.width for field in entry.fields if field.arg.style == "option"}
        widths |= {field.arg.keyword: 0 for field in entry.fields if field.arg.style == "flag"}
        most = sum(widths.values()) + len(widths)  #: words of all options
        first, last = 1, len(words)
        while first <= most and words[first][:32].upper() in widths:
            first += 1 + widths[words[first][:32].upper()]
        for at in range(last - 1, max(first, last - most) - 1, -1):
            if words[at][:32].upper() in widths:
                last = at
        options = entry.parse([words[0], *words[1:first], *words[last:]])
        assert isinstance(options, cls)
        if options.ids:
            raise SyntaxFault(_AMONG_IDS)
        read = next(field.arg.read for field in entry.fields if field.arg.style == "rest")
        assert read is not None
        return _InParts(options, [words[0], *words[first:last]] if first > 1 else words[:last], read)

    def run(self, node: Node, client: Client) -> int:
        """Apply it to each id; returns how many it applied to."""
        return sum(map(self.change(node, client), self.ids))


def _on_work(node: Node, change: Callable[[Job], bool]) -> Callable[[bytes], bool]:
    """Make a change of jobs one of ids, which does not apply to unknown ones; an event is refused (WRONGTYPE)."""

    def change_work(job: Job) -> bool:
        if job.options.kind:
            raise WrongType
        return change(job)

    return _on_known(node, change_work)


def _on_known(node: Node, change: Callable[[Job], bool]) -> Callable[[bytes], bool]:
    """Make a change of jobs one of ids; it does not apply to unknown ones."""
    get = node.state.jobs.get

    def change_known(job_id: bytes) -> bool:
        job = get(job_id)
        return job is not None and change(job)

    return change_known


@command(
    "ACKJOB", group="jobs", flags=Flag.WRITE | Flag.FAST,
    reply=integer("jobs that were known here and not acknowledged before"), cost="O(1) per job", arity=-1,
    errors=(ONE_RESULT, LONG_RESULT.format(most="<result-max>")),
    once=True, cache=checked_ids,
)  # fmt: skip
@attrs.define
class AckJob(_OnEachJob):
    """Acknowledge jobs: they are done and are never delivered again.

    Each id is a change of its own, and any number may be named.  More than 499 are dealt with bit by bit, so that
    other clients have their turn in between; so are those of the other commands that take many ids.

    With RESULT there is one id.  Clients that wait for the job (WAITJOB) receive the result.  The holders of a job that
    was added with RESULT keep it for that time; without a result here it is empty.  The first result counts.  None is
    refused when memory is full.
    """

    ids: list[bytes] = rest("Jobs that are done.", JOB_ID, minimum=0, long=True)
    result: bytes | None = option("RESULT", "What came of the one job; at most result-max bytes.", BYTES)

    def __attrs_post_init__(self) -> None:
        """Refuse a result without a job, before jobs are taken out that the client may not see."""
        if self.result is not None and len(self.ids) != 1:
            raise CommandError(ONE_RESULT)

    def change(self, node: Node, client: Client) -> Callable[[bytes], bool]:
        """Acknowledge a job; True when it was known and not done."""
        return node.acks.acknowledge

    def run(self, node: Node, client: Client) -> Any:
        """Acknowledge each; returns how many were known and not done."""
        if self.result is None:
            return Acknowledgement(self.ids).run(node, client)
        most = node.acks.result_max
        if len(self.result) > most:
            raise CommandError(LONG_RESULT.format(most=most))
        return int(node.acks.acknowledge_with(self.ids[0], self.result))


@command(
    "FASTACK", group="jobs", flags=Flag.WRITE | Flag.FAST, reply=integer("jobs that were known here"),
    cost="O(1) per job", arity=-1,
)  # fmt: skip
@attrs.define
class FastAck(_OnEachJob):
    """Acknowledge jobs without making sure that every holder hears of it."""

    ids: list[bytes] = rest("Jobs that are done.", JOB_ID, minimum=0, long=True)

    def change(self, node: Node, client: Client) -> Callable[[bytes], bool]:
        """Drop a job everywhere, as far as nodes can be reached."""
        return node.acks.acknowledge_fast


@command(
    "DELJOB", group="jobs", flags=Flag.WRITE | Flag.FAST, reply=integer("jobs that were known here"),
    cost="O(1) per job, O(log N) when it is queued", arity=-1,
)  # fmt: skip
@attrs.define
class DelJob(_OnEachJob):
    """Drop jobs from this node alone, whatever their state; events of a log from all nodes that can be reached."""

    ids: list[bytes] = rest("Jobs to drop.", JOB_ID, minimum=0, long=True)

    def change(self, node: Node, client: Client) -> Callable[[bytes], bool]:
        """Drop a job from this node."""
        return node.acks.delete

    def run(self, node: Node, client: Client) -> Any:
        """Drop each; returns how many there were, or BLOCKED when groups have very much of them."""
        return in_parts(node, client, self._parts(node))

    def _parts(self, node: Node) -> Parts:
        state, dropped = node.state, 0
        state.unfinished.effort = 0
        for job_id in self.ids:
            if state.unfinished.effort > CHANGED_EFFORT:
                yield
                state.unfinished.effort = 0
            dropped += node.acks.delete(job_id)
        return dropped


@command(
    "NACK", group="jobs", flags=Flag.WRITE | Flag.DENY_OOM | Flag.FAST, reply=integer("jobs that were given back"),
    cost="O(log N) per job in the jobs of its queue", arity=-1, errors=(UNTRIED_ALONE,), once=True,
    cache=ids_alone(lambda ids: Nack(ids), LONG),  # noqa: PLW0108 - the class is made below
)  # fmt: skip
@attrs.define
class Nack(_OnEachJob):
    """Give jobs back: queue them again, and count that they were given back.

    They are queued at once, or after the BACKOFF of their terms.  With DELAY they are queued after so many seconds: the
    node remembers that, so that the client may go.  The rest of the job's time is the longest delay.

    A job that was added with MAXTRIES is dead after the last of its tries, and with DEAD it is dead at once, whatever
    its terms say, and with RETRY 0 as well: it is not delivered again before REDRIVE.

    The reason is kept with the job, along with the time, the node and the name or address of the client: SHOW tells the
    last 5 failures.  One of a job without terms is kept only if NACK has options.

    With UNTRIED a job returns to its place in its queue and nothing is counted: its consumer has not begun to work on
    it.  A job with RETRY 0 is not given back, so that no second call delivers it twice.

    NACK names a job and no delivery.  A consumer whose retry period is over takes the job from its successor with it,
    and a try is counted once more: a consumer that is late says nothing.

    A node that holds no copy of a job does nothing, and does not count it: neither the delay nor the reason nor DEAD go
    to another node.  Say it to the node that handed the job out, or to any of its holders.

    Options come before or after the ids.  A job that waits in a queue is not given back, nor is one that is put off;
    but DEAD buries either.  The node on which it waits counts no try, as nobody has it; another holder cannot know
    that, and counts one.  A job that nobody was given, since its delay is not over or DEQUEUE took it out of its queue,
    is queued at once and nothing is counted, where this node knows that; with DELAY it stays as it is.
    """

    ids: list[bytes] = rest("Jobs to give back.", JOB_ID, minimum=0, long=True)
    delay: int | None = option("DELAY", "Seconds until they are queued.", NACK_DELAY)
    reason: bytes | None = option("REASON", "Why the try failed; up to 1 KiB.", FAILURE_REASON)
    dead: bool = flag("DEAD", "Bury them: they are dead now.")
    untried: bool = flag("UNTRIED", "Count no try; goes without the other options.")

    def change(self, node: Node, client: Client) -> Callable[[bytes], bool]:
        """Give back a job that is active."""
        delay_ms = -1 if self.delay is None else self.delay
        said = GivenBack(name_of(client), self.reason or b"", delay_ms, self.dead)
        is_plain = self.delay is None and self.reason is None and not self.dead
        if self.untried:
            if not is_plain:
                raise CommandError(UNTRIED_ALONE)
            return _on_work(node, node.requeueing.take_back)
        return _give_back(node, said, is_plain=is_plain)


def is_burial(call: Any) -> bool:
    """Return whether a call, of however many jobs, is NACK with DEAD."""
    said = call.command if isinstance(call, _InParts) else call
    return isinstance(said, Nack) and said.dead


def _give_back(node: Node, said: GivenBack, *, is_plain: bool) -> Callable[[bytes], bool]:
    requeueing = node.requeueing

    def give_back(job: Job) -> bool:
        if job.options.is_rare:
            if job.options.kind:
                raise WrongType
        elif is_plain:
            return requeueing.nack(job)
        return requeueing.give_back(job, said)

    return _on_known(node, give_back)


@command(
    "ENQUEUE", group="jobs", flags=Flag.WRITE | Flag.DENY_OOM | Flag.FAST, reply=integer("jobs that were queued"),
    cost="O(log N) per job in the jobs of its queue", arity=-1,
)  # fmt: skip
@attrs.define
class Enqueue(_OnEachJob):
    """Queue jobs that are active: delivered, delayed or dequeued.

    A job with RETRY 0 is queued only if it never was.  One that was added with MAXTRIES and has had all of its tries is
    dead instead of being queued, and not counted, though its consumer may still be at work; one that is dead already
    stays so, and REDRIVE queues it.  A PAUSE of the queue does not stop this.  An event comes into its
    log if its delay is not over, and stays as it is if it is there.
    """

    ids: list[bytes] = rest("Jobs to queue.", JOB_ID, minimum=0, long=True)

    def change(self, node: Node, client: Client) -> Callable[[bytes], bool]:
        """Queue a job that is active."""
        return _on_known(node, partial(node.requeueing.enqueue, asked=True))


@command(
    "DEQUEUE", group="jobs", flags=Flag.WRITE | Flag.FAST, reply=integer("jobs that were queued"),
    cost="O(log N) per job in the jobs of its queue", arity=-1,
)  # fmt: skip
@attrs.define
class Dequeue(_OnEachJob):
    """Take jobs out of their queue without delivering them; their retry timer goes on.

    Whatever queues them again, be it ENQUEUE, NACK or the timer, counts no try: no consumer has had them.
    """

    ids: list[bytes] = rest("Jobs to take out.", JOB_ID, minimum=0, long=True)

    def change(self, node: Node, client: Client) -> Callable[[bytes], bool]:
        """Make a job active that is queued."""
        return _on_work(node, node.queueing.take_out)


@command(
    "WORKING", group="jobs", flags=Flag.WRITE | Flag.FAST, reply=seconds_shape("the retry period of the job"),
    cost="O(1), O(log N) when the job is queued",
    errors=(UnknownJob, JobCancelled, TooLate, JobIsDead, SlotIsOver, WrongType), once=True,
)  # fmt: skip
@attrs.define
class Working:
    """Say that a job is still being worked on: its next delivery is a whole retry period away again.

    Refused once half of the job's TTL has passed, so that a stuck consumer cannot keep a job for ever.  An event is
    refused, too: its consumers have it for the time of their QGET, each group for its own.

    With PROGRESS the job says how far it is, to SHOW and WAITJOB on every node that holds it; the latest value counts.
    Other nodes receive it at most once a second, and a crash may lose it.

    In a queue with limits the job keeps its slot.  Once its retry time is over it has none, and is refused; so it is by
    any node but the one that handed it out.

    A job that was cancelled is answered CANCELLED: its consumer should stop, and acknowledge it or let it go.  One that
    is done is not known any more, and one that is dead is refused: nobody has it.  A node that holds no copy answers
    NOJOB: say it to the node that handed the job out, or to any of its holders.
    """

    id: bytes = positional("Job that is worked on.", JOB_ID)
    progress: bytes | None = option("PROGRESS", "How far it is; up to 1 KiB.", PROGRESS)

    def run(self, node: Node, client: Client) -> int | float:
        """Put off the next delivery; returns the retry period in seconds.  Raises WrongType (WRONGTYPE)."""
        retry_ms = node.requeueing.working(self.id)
        if self.progress is not None:
            node.progress.note(self.id, self.progress)
        return in_seconds(retry_ms)


@command(
    "WAITJOB", group="jobs", flags=Flag.READ, shows_bodies=True,
    reply=array(_OUTCOME, "one for each job, in order; with ANY for each that is over"), cost="O(N) in the jobs",
    errors=(WrongType, WAITED_TOO_MANY), once=True,
)  # fmt: skip
@attrs.define(slots=False)
class WaitJob:
    """Wait until jobs are over, and answer how each ended: its state, its result, its tries and the reason.

    Any node may be asked.  The states are acked, dead, cancelled, expired, unknown and, of a job that is not over when
    the time is, pending.  The result is null unless the job is acked.  The reason is that of the last failure, or says
    how the job ended.

    With ANY the reply comes as soon as one job is over, and has those alone that are.  With PROGRESS it comes, too,
    when the progress of a job changes after it was first seen by this call, and the row of a job that is not over has
    its last progress instead of a result.  With both, a reply that a progress causes has all jobs, none of them over.

    Tries are deliveries.  Nodes that have a job are asked for them a quarter of a second before the time is over, so
    that those of a job that is pending may leave out what a node did since, or a node that does not answer.  A reply
    that a progress causes comes without asking, so that tries may be too low there, and 0 of a job at work.

    A job that was added without RESULT can be waited for as well: clients that wait receive its end, and its result if
    the consumer gave one.  For later calls it is cancelled if it was, and otherwise unknown; the reason says how it
    ended, while nodes remember that.

    A job is unknown when no node of the cluster has it.  While a node does not answer that may have it, the call goes
    on waiting, and the job is pending when the time is over.
    """

    timeout: int = positional("How long to wait, in milliseconds; 0 = for ever.", WAIT_TIMEOUT)
    any: bool = flag("ANY", "Answer as soon as one job is over.")
    progress: bool = flag("PROGRESS", "Answer when the progress of a job changes, too.")
    ids: list[bytes] = rest(f"Jobs to wait for, {WAITED_MAX} at most.", JOB_ID)

    def __attrs_post_init__(self) -> None:
        """Keep what the client named: jobs that it may not see are taken out of `ids`, and have an answer, too."""
        self.named = self.ids

    def run(self, node: Node, client: Client) -> Any:
        """Wait for the jobs; returns the rows, or BLOCKED.  Raises WrongType (WRONGTYPE)."""
        if len(self.named) > WAITED_MAX:
            raise CommandError(WAITED_TOO_MANY)
        rows = node.outcomes.wait(
            client, self.timeout, self.named, answers_any=self.any, with_progress=self.progress, hidden=_hidden(self)
        )  # fmt: skip
        return BLOCKED if rows is None else rows


@command(
    "CANCEL", group="jobs", flags=Flag.WRITE | Flag.FAST,
    reply=array(bulk("cancelled | cancelling | done | unknown"), "one for each job, in order"), cost="O(1) per job",
    errors=(WrongType,),
)  # fmt: skip
@attrs.define(slots=False)
class Cancel:
    """Cancel jobs on the whole cluster: they are not delivered any more.

    A job that waits or is delayed ends at once: cancelled.  One that a consumer has is cancelling: WORKING is answered
    CANCELLED, a connection of its live worker that listens to wq:<queue>:cancel receives a push, and the job ends
    instead of being queued again.  A consumer that acknowledges it all the same has done the work, and the job counts
    as acknowledged.

    A job that has ended is done; one that no answering node knows is unknown, and so is one that had neither a copy nor
    RESULT and was acknowledged: nobody remembers it.  Nodes that are away learn of it when they are back.
    """

    ids: list[bytes] = rest("Jobs to cancel; with the name of the command 1024 words at most.", JOB_ID)

    def __attrs_post_init__(self) -> None:
        """Keep what the client named: jobs that it may not see are taken out of `ids`, and have an answer, too."""
        self.named = self.ids

    def run(self, node: Node, client: Client) -> Any:
        """Cancel the jobs; returns a word for each, or BLOCKED.  Raises WrongType (WRONGTYPE)."""
        words = node.cancels.cancel(client, self.named, _hidden(self))
        return BLOCKED if words is None else words


def _hidden(call: WaitJob | Cancel) -> frozenset[bytes]:
    """Jobs that a call named and that its user may not see, as this node does not know their queues."""
    return frozenset(call.named).difference(call.ids)


SHOWN = (
    "id", "queue", "state", "repl", "ttl", "ctime", "delay", "retry", "nacks", "additional-deliveries",
    "nodes-delivered", "nodes-confirmed", "next-requeue-within", "next-awake-within", "body",
)  # fmt: skip
_UNIT = tuple_of(
    "[group, state, deliveries, left ms]", bulk("group"), bulk("in progress | redo | done"),
    integer("deliveries that this node knows of"), integer("until its deadline"),
)  # fmt: skip
#: Names that follow where a job has what they stand for, in this order.
SHOWN_TOO = (
    "groups", "key", "max-tries", "backoff", "keep-dead", "keep-result", "headers", "group", "generation",
    "attempt", "failures", "cancelled", "progress", "result", "rival-results", "blocked", "phase",
    "consumer", "in-flight-for", "result-from", "place",
)  # fmt: skip
PLACE_MAX = 500  #: places in a queue that SHOW counts
DESCRIPTION = pairs("what is known of the job", *SHOWN, optional=SHOWN_TOO)


def describe(node: Node, job: Job) -> list[Any]:
    """A job as SHOW answers it: the 15 names of Disque and their values in turn, and behind them what disqued adds."""
    shown = _described(node, job)
    if isinstance(job, Entry):
        return [*shown, b"groups", _units(node, job), *_phase(node, job)]
    if isinstance(job, NamedJob) and job.alias[:1] == KEYED:
        shown += [b"key", job.alias[1:]]
    if job.options.terms is not NO_TERMS:
        shown += _terms(job.options.terms)
    if job.options.fate is not NO_FATE:
        shown += [*_fate(job), *_said(job.options.fate)]
    queue = node.state.queues.by_name.get(job.queue) if job.state == QUEUED else None
    if queue is not None and queue.holds & HOLDS:
        shown += [b"blocked", node.hindrances.of_job(queue, job)]
    return [*shown, *_phase(node, job), *_result_from(job.options.fate)]


def _phase(node: Node, job: Job) -> list[Any]:
    """Where a job is, as far as this node knows; and of one that a consumer has who that is, and for how long."""
    state = node.state
    phase = phase_of(state.queues, job)
    shown: list[Any] = [b"phase", PHASE_NAMES[phase]]
    if phase == IN_FLIGHT:
        since, who = held_by(state, job)
        shown += [b"consumer", who or None, b"in-flight-for", None if since is None else max(0, state.now - since)]
    return shown


def held_by(state: State, job: Job) -> tuple[int | None, bytes]:
    """Return since when a consumer of this node has a job, and its worker's id, name or address.

    None and empty, where that is not known.
    """
    queue, worker = state.queues.by_name.get(job.queue), state.custody.bound.get(job)
    lease = None if queue is None else queue.leased.get(job)
    if lease is None:
        holder = state.custody.limited.get(job)
        return (None, b"") if holder is None else (holder.since, holder.client)
    since, consumer = lease
    if worker is not None:
        return since, worker.id
    return since, b"" if consumer is None else consumer.word


def _said(fate: Fate) -> list[Any]:
    """What clients said of a job, as far as they did."""
    shown: list[Any] = []
    if fate.is_cancelled:
        shown += [b"cancelled", 1]
    if fate.progress is not None:
        shown += [b"progress", fate.progress.value]
    result = accepted(fate)
    if result is not None:
        shown += [b"result", result.value]
    if fate.has_rivals:
        shown += [b"rival-results", 1]
    return shown


def _result_from(fate: Fate) -> list[Any]:
    """When and on which node a job was acknowledged, where its result tells."""
    result = accepted(fate)
    return [] if result is None else [b"result-from", [result.at, result.node_id]]


def _place(node: Node, job: Job) -> list[Any]:
    """The place of a job in the queue of this node, 1 for the first; nothing for one that is far behind, or not there.

    Groups that have their turns may be served before it all the same.
    """
    queue = node.state.queues.by_name.get(job.queue) if job.state == QUEUED else None
    if queue is None:
        return []
    for place, unit in enumerate(islice(queue.units, PLACE_MAX), 1):
        if unit is job:
            return [b"place", place]
    return []


def _terms(terms: Terms) -> list[Any]:
    """The terms of a job; spans in seconds."""
    shown: list[Any] = [
        b"max-tries", terms.max_tries,
        b"backoff", [in_seconds(terms.backoff_ms), in_seconds(terms.backoff_most_ms)],
        b"keep-dead", in_seconds(terms.keep_dead_ms),
        b"keep-result", in_seconds(terms.keep_result_ms),
        b"headers", [word for header in terms.headers for word in header],
    ]  # fmt: skip
    return [*shown, b"group", terms.group] if terms.group else shown


def _fate(job: Job) -> list[Any]:
    """How often a job was redriven, the number of its delivery, and its last failures.

    Deliveries are counted on over REDRIVE, so that no number comes twice.  A failure is unix milliseconds, node,
    client, reason.
    """
    fate = job.options.fate
    failures = [list(failure) for failure in fate.failures]
    return [b"generation", fate.generation, b"attempt", attempt_of(job), b"failures", failures]


def touches(job: Job) -> int:
    """How many groups made something of an event, as far as that is counted for each; 0 for other jobs."""
    if not isinstance(job, Entry):
        return 0
    return marks.count(job.marks) + sum(1 for _ in units_of(job))


def made_of(event: Entry, group: Group, now: int) -> list[Any] | None:
    """Return name, state, deliveries and milliseconds left of an event in a group; None when the group never had it."""
    unit = group.units.get(event)
    if unit is None:
        return [group.name, b"done", 0, 0] if group.is_done(event) else None
    is_held = unit.state == ACTIVE
    left_ms = max(0, unit.requeue_at - now) if is_held else 0
    return [group.name, b"in progress" if is_held else b"redo", unit.deliveries, left_ms]


def _touching(event: Entry) -> list[Group]:
    """The groups that touched an event, by name."""
    if event.stream is None:
        return []
    found = dict.fromkeys([*(unit.group for unit in units_of(event)), *event.stream.done_with(event)])
    return sorted(found, key=attrgetter("name"))


def _units(node: Node, event: Entry) -> list[list[Any]]:
    """What each group that touched an event made of it, by name."""
    return [row for group in _touching(event) if (row := made_of(event, group, node.state.now)) is not None]


def _described(node: Node, job: Job) -> list[Any]:
    now = node.state.now
    options = job.options
    left_ms = max(0, job.expires_at - now)
    is_final = options.retry_ms == RETRY_NEVER_MS and job.requeue_at >= job.expires_at
    has_timer = job.requeue_at and not is_final and job.state != ACKED
    within_ms = requeue_within(job, now) if has_timer else None
    return [
        b"id", job.id,
        b"queue", None if job.is_dummy else job.queue,
        b"state", STATE_NAMES[job.state],
        b"repl", options.replicate,
        b"ttl", (left_ms + 999) // 1_000,
        b"ctime", job.ctime,
        b"delay", in_seconds(options.delay_ms),
        b"retry", in_seconds(options.retry_ms),
        b"nacks", job.nacks,
        b"additional-deliveries", job.redeliveries,
        b"nodes-delivered", sorted((node.id,) if job.holders is None else job.holders),
        b"nodes-confirmed", sorted(job.confirmed or ()),
        b"next-requeue-within", within_ms,
        b"next-awake-within", left_ms if within_ms is None else min(within_ms, left_ms),
        b"body", None if job.state == ACKED else job.body,
    ]  # fmt: skip


@command(
    "SHOW", group="jobs", flags=Flag.READ | Flag.FAST, reply=null_or(DESCRIPTION), shows_bodies=True,
    cost=f"O(1); for a job in a queue O(N), where N is the number of jobs in front of it, {PLACE_MAX} at most",
)  # fmt: skip
@attrs.define
class Show:
    """Describe a job as this node knows it.

    ttl is how many seconds the job stays here from now on: to the end of its TTL, of a dead one to that of KEEPDEAD,
    also after REDRIVE, and of one that is done to the end of the time for which its result is kept.

    Behind all that follows comes phase, which says where the job is: it waits for its copies (wait-repl), is in the
    queue of this node (ready), with a consumer of this node (in-flight), waits for the end of its delay (delayed), is
    done (acknowledged, and kept) or dead.  elsewhere is a job that is neither in the queue of this node nor with a
    consumer of it: as a rule this node has a copy, and another one the job; it may also be out of its queue since a
    DEQUEUE, or since a restart of this node, with a consumer that had it before.

    Behind it, of a job in flight: consumer, which is the id of the live worker that has the job, or else the name
    (CLIENT SETNAME) or the address of the client, and in-flight-for, the milliseconds since it was handed out.  Either
    is null where this node does not know it: after a restart, and of a job that is delivered once (RETRY 0).

    Of a job with a result result-from comes last: when it was acknowledged, in unix milliseconds, and the id of the
    node that accepted it.  Of a job in the queue of this node SHOW, and not JSCAN, has its place there, 1 for the next,
    as long as it is among the first 500.

    Of an event groups come behind the first 15: of each group that touched it [group, state, deliveries, milliseconds
    until its deadline], where the state is in progress, redo or done.  Of a job that was added with a KEY, and is not
    done, the key comes there.  Of one with failures, or that was redriven, the generation follows, the number of its
    delivery, which is that of the next one while it waits, and the last 5 failures: unix milliseconds, node, client,
    reason.

    Of a job that was cancelled, or has a progress or a result, these follow; rival-results is 1 when the job was
    acknowledged more than once, with different results; the first one counts.

    Of a job that waits in a queue that is paused, throttled or limited blocked follows: why it may not be handed
    out now, or nothing if it may, as far as this node knows.  A node knows pauses and throttles, and of slots what the
    steward of the queue has told it, which may be some moments old.  That a rate is used up only a node knows whose
    consumers wait for the job.
    """

    id: bytes = positional("Job to describe.", JOB_ID)

    def run(self, node: Node, client: Client) -> Any:
        """Describe the job; None when it is not known here, BLOCKED when very many groups touched it."""
        job = node.state.jobs.get(self.id)
        if isinstance(job, Entry):
            return in_parts(node, client, self._parts(node, job))
        return None if job is None else [*describe(node, job), *_place(node, job)]

    @staticmethod
    def _parts(node: Node, event: Entry) -> Parts:
        rows = (made_of(event, group, node.state.now) for group in _touching(event))
        groups = yield from spelt(row for row in rows if row is not None)
        return [*_described(node, event), b"groups", groups, *_phase(node, event)]
