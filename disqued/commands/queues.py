"""Commands on queues: length, contents, statistics, pause, policy, dead letters and the purge.

Source: Disque 1.0-rc1.
"""

from collections.abc import Iterable
from itertools import chain, islice
from math import ceil
from typing import Any

import attrs

from disqued.commands.jobs import (
    BACKOFF,
    JOBS_AT_ONCE,
    KEEPDEAD,
    LONGEST_BELOW_FIRST,
    MAXLEN,
    MAXTRIES,
    REPLICATE,
    RESULT,
    RETRY,
    TTL,
    check_backoff,
)
from disqued.commands.parts import Making, in_order, in_parts
from disqued.commands.permission import owner_of
from disqued.commands.shapes import JOBS, array, bulk, either, integer, null_array_or, pairs, status, tuple_of
from disqued.commands.slots import (
    GROUP_IN_FLIGHT,
    GROUP_RATE,
    IN_FLIGHT,
    LIMIT_STATISTICS,
    PARTITION,
    RATE,
    RATE_PARTS,
    RATE_WORDS,
    limit_facts,
    limit_value,
)
from disqued.commands.table import BLOCKED, Flag, command, flag, option, positional, repeated, rest
from disqued.commands.values import COUNT_MISFIT, JOB_ID, QUEUE, SECOND, Kind, one_of, span, whole
from disqued.commands.values import count as count_kind
from disqued.commands.values import integer as integer_kind
from disqued.core.model.calendar import LastFiring, Refusal, ScheduleSetting
from disqued.core.model.gates import NO_LIMITS
from disqued.core.model.job import ALL_STATES, KIND_LOG, KIND_WORK, STATE_NAMES, Unit
from disqued.core.model.messages import DRY
from disqued.core.model.outbox import Client
from disqued.core.model.phases import count_phases
from disqued.core.model.policies import (
    BACKOFF_FIELD,
    FAIR_FIELD,
    GATE_FIELDS,
    GROUPINFLIGHT_FIELD,
    GROUPRATE_FIELD,
    IDLE_FIELD,
    IDLE_MIN_MS,
    INFLIGHT_FIELD,
    KEEPDEAD_FIELD,
    MAXLEN_FIELD,
    MAXTRIES_FIELD,
    NUMBER_FIELDS,
    PARTITION_FIELD,
    PAUSE_FIELD,
    QUEUE_FIELD_NAMES,
    RATE_FIELD,
    REASON_MAX,
    REPLICATE_FIELD,
    RESULT_FIELD,
    RETRY_FIELD,
    SPAN_MAX_S,
    TTL_FIELD,
    PauseSetting,
    PolicyTable,
    Value,
    cost_of_register,
    is_empty,
    is_printable,
)
from disqued.core.model.queues import PAUSE_IN, PAUSE_NAMES, PAUSE_OUT, Queue, check_name
from disqued.core.model.spans import seconds_text
from disqued.core.node import Node
from disqued.core.work.delivery import FETCHED_BYTES
from disqued.core.work.redrives import NO_LIMIT
from disqued.errors import (
    CommandError,
    LogWithoutLimits,
    NameTooLong,
    OutOfMemory,
    WrongType,
)
from disqued.wire.replies import Status

REDRIVE_COUNT = count_kind(1, NO_LIMIT, COUNT_MISFIT)
REDRIVE_RATE = integer_kind(1, 1_000_000, "RATE must be a whole number from 1 to 1000000", "1 to 1000000")


@command("QLEN", group="queues", flags=Flag.READ | Flag.FAST, reply=integer("jobs that wait on this node"), cost="O(1)")
@attrs.define
class QLen:
    """Count the jobs that wait in a queue of this node."""

    queue: bytes = positional("Queue to measure.", QUEUE)

    def run(self, node: Node, client: Client) -> int:
        queue = node.state.queues.by_name.get(self.queue)
        return 0 if queue is None else queue.length


BRIEF_MAX = 65_536
_BRIEF = integer_kind(
    0,
    BRIEF_MAX,
    f"BRIEF is out of range - allowed are whole numbers of bytes from 0 to {BRIEF_MAX}",
    f"0 to {BRIEF_MAX} bytes",
)


@command("QPEEK", group="queues", flags=Flag.READ, reply=JOBS, cost="O(count)", shows_bodies=True)
@attrs.define
class QPeek:
    """Look at jobs that wait on this node without taking them.

    With DEAD these are the dead jobs of the queue that this node holds, those first that failed last.

    With BRIEF each job is [queue, id, body, size, bytes, age, milliseconds]: the body ends after so many bytes, size is
    that of the whole body, and age the time since the job was added.

    One call shows 2000 jobs at most, and no more once their names and bodies are a mebibyte together.
    """

    queue: bytes = positional("Queue to look into.", QUEUE)
    count: int = positional("How many, oldest first; a negative number: newest first.", whole("count"))
    dead: bool = flag("DEAD", "Dead jobs, newest failures first; with a negative number oldest first.")
    brief: int | None = option("BRIEF", "So many bytes of each body, its size, and the age of the job.", _BRIEF)

    def run(self, node: Node, client: Client) -> Any:
        """Look; no jobs when there is no such queue, BLOCKED when there are very many dead ones."""
        queue = node.state.queues.by_name.get(self.queue)
        if queue is None:
            return []
        if self.dead:
            return in_parts(node, client, self._dead_rows(queue, node.state.wall))
        units = chain(queue.units, queue.stream or ())
        if self.count <= 0:
            units = chain(() if queue.stream is None else reversed(queue.stream.entries), reversed(queue.units))
        return self._rows(units, node.state.wall)

    def _dead_rows(self, queue: Queue, wall: int) -> Making[list[tuple[Any, ...]]]:
        key = _failed_last if self.count > 0 else _failed_first
        most = min(abs(self.count), JOBS_AT_ONCE)
        return self._rows((yield from in_order(list(queue.dead), key=key, most=most)), wall)

    def _rows(self, units: Iterable[Unit], wall: int) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        size = 0
        for unit in islice(units, min(abs(self.count), JOBS_AT_ONCE)):
            body = unit.body
            more: tuple[Any, ...] = ()
            if self.brief is not None:
                more = (b"size", len(body), b"age", max(0, wall - unit.job.ctime // 1_000_000))
                body = body[: self.brief]
            rows.append((unit.queue, unit.id, body, *more))
            size += len(unit.queue) + len(body)
            if size >= FETCHED_BYTES:
                break
        return rows


def _failed_first(unit: Unit) -> tuple[int, bytes]:
    failures = unit.options.fate.failures
    return (failures[-1].at if failures else 0, unit.id)


def _failed_last(unit: Unit) -> tuple[int, bytes]:
    at, job_id = _failed_first(unit)
    return (-at, job_id)


STATISTICS = (
    "name", "len", "age", "idle", "blocked", "import-from", "import-rate", "jobs-in", "jobs-out", "pause",
)  # fmt: skip
MORE_STATISTICS = (
    "produced", "consumed", "sources", "ctime", "pause-reason", "pause-by", "pause-at", "pause-node",
    "dead", "failing", "delayed", "groups", "throttled-for", *LIMIT_STATISTICS, "in-flight", "elsewhere", "done",
    "oldest", "delivered", "slots-lost",
)  # fmt: skip
STREAM_STATISTICS = ("owned",)
FULL_STATISTICS = either(
    pairs("with FULL", *STATISTICS, *MORE_STATISTICS),
    pairs("with FULL, of a log", *STATISTICS, *MORE_STATISTICS, *STREAM_STATISTICS),
)
#: What a table of queues shows of one, without names: a fifth of the bytes and of the work of the above.
FIGURES = tuple_of(
    "[name, ready, in-flight, delayed, dead, failing, oldest, blocked, jobs-in, delivered, requeued, consumed, idle, "
    "pause, pause-node, is a log, elsewhere, done, slots-lost]",
    bulk("queue name"), integer("len, of a log owned"), integer("as of QSTAT"), integer("as of QSTAT"),
    integer("as of QSTAT"), integer("as of QSTAT"), integer("seconds, or -1"), integer("as of QSTAT"),
    integer("as of QSTAT"), integer("as of QSTAT"), integer("jobs-in without produced"), integer("as of QSTAT"),
    integer("seconds, or -1 for a name without a queue"), bulk("as of QSTAT"), bulk("as of QSTAT"), integer("0 or 1"),
    integer("as of QSTAT"), integer("as of QSTAT"), integer("as of QSTAT"),
)  # fmt: skip


@command(
    "QSTAT", group="queues", flags=Flag.READ | Flag.FAST,
    reply=null_array_or(either(pairs("statistics", *STATISTICS), FULL_STATISTICS)),
    cost="O(1)", arity=-2,
)  # fmt: skip
@attrs.define
class QStat:
    """Statistics of a queue on this node; null for one that is not there, unless it has limits.

    A node has a queue once a job was queued in it there, or a consumer has waited for one.  FULL also answers for a
    queue that the node does not have while it knows jobs of it, delayed ones or copies; ctime, age and idle are 0 then.

    With FULL, more: jobs produced (queued here, each counted once), jobs consumed (acknowledged here), the nodes that
    ever sent jobs, when the queue came into being (ctime), in unix seconds, and what the last PAUSE for the whole
    cluster said: its reason, who said it and when, in unix seconds (0 = never).  pause-node is the pause of this node
    alone; pause combines both.  dead counts the dead jobs that this node holds, and failing its other jobs with a
    failure that it knows: nodes note failures of jobs with terms, and of jobs given back with options.  groups counts
    the groups that have jobs waiting on this node, if the queue keeps its groups apart (QPOLICY FAIR, or THROTTLE with
    GROUP).  throttled-for is how many seconds THROTTLE holds the whole queue back from now on.

    inflight, group-inflight, rate, group-rate and partition are the limits of the queue (QPOLICY); 0 and nothing are
    none.  slots are the jobs of the queue that are with consumers in the whole cluster, as far as this node knows
    (SLOTS shows them), slots-awaited the jobs for which this node has asked the steward and has no slot yet, and
    steward the node that gives slots, as far as this node can tell; empty without limits.  slots-blocked says why none
    is given at present, whatever the job: no majority of the nodes can be reached, or the steward waits for what other
    nodes know; empty if this node knows no such reason.  The reason of one job is `blocked` of SHOW.

    delayed are the jobs that this node queues when their delay is over.  That of ADDJOB is counted by one node, and
    that of a NACK or a BACKOFF by each node that holds the job, so that a sum over nodes counts it more than once.
    in-flight are the jobs with consumers of this node, and elsewhere those that are neither in its queue nor with a
    consumer of it: another node has them, DEQUEUE took them out, or a consumer may have them since before a crash.
    done are the acknowledged jobs that are kept until all nodes know, or for their results.  So len, delayed, dead,
    in-flight, elsewhere and done count each job of the queue that this node knows once, but for those that wait for
    their copies.  What consumers have of a log QSTATUS counts, for each group.

    oldest is the age, in seconds, of the job that waits first, or of the oldest event; -1 if there is none.  delivered
    counts the jobs handed to consumers; jobs-out also counts those that moved to other nodes.

    slots-lost counts the slots of nodes that are gone, or that crashed and came back without their jobs.  The steward
    counts them every two seconds; other nodes answer 0.  Such a slot ends when its job is acknowledged, or when the job
    may be delivered again.

    Of a log it also answers how many of its events this node hands out (owned).  Other nodes have copies of these, so
    that only the sum of owned over all nodes counts each event once.
    """

    queue: bytes = positional("Queue to describe.", QUEUE)
    full: bool = flag("FULL", "Answer produced, consumed, sources, ctime and more of the pause, too.")

    def run(self, node: Node, client: Client) -> list[Any] | None:
        """Describe the queue; None when this node neither has it, nor knows limits of it, nor with FULL jobs."""
        queues, queue = node.state.queues, node.state.queues.by_name.get(self.queue)
        if queue is None:
            if not (self.full and queues.has_jobs(self.queue)) and queues.policies.limits_of(self.queue) == NO_LIMITS:
                return None
            queue = absent(node, self.queue)
        return statistics(node, queue, full=self.full)


def absent(node: Node, name: bytes) -> Queue:
    """Stand in for a queue that is not there, in statistics."""
    return Queue(name, 0, node.state.now, 0)


def statistics(node: Node, queue: Queue, *, full: bool) -> list[Any]:
    """A queue as QSTAT answers it."""
    values = _statistics(node, queue)
    if full:
        values += [
            b"produced", queue.jobs_in - queue.requeued,
            b"consumed", queue.acked,
            b"sources", list(queue.sources),
            b"ctime", queue.created_wall // 1_000,
            *_pause_facts(node, queue),
            b"dead", len(queue.dead),
            b"failing", len(queue.failing),
            b"delayed", node.state.queues.delayed_in(queue.name),
            b"groups", 0 if queue.grouped is None else queue.grouped.group_count,
            b"throttled-for", ceil(node.gates.throttled_ms(queue.name) / 1_000),
            *limit_facts(node, queue),
            *_phase_facts(node, queue),
            b"oldest", _oldest_s(node, queue),
            b"delivered", queue.delivered,
            b"slots-lost", node.stewards.lost.get(queue.name, 0),
        ]  # fmt: skip
        if queue.stream is not None:
            values += [b"owned", queue.stream.owned]
    return values


def figures(node: Node, queue: Queue) -> tuple[Any, ...]:
    """A queue in the form of FIGURES."""
    state, stream = node.state, queue.stream
    phases = count_phases(state.queues, queue.name)
    return (
        queue.name,
        queue.length if stream is None else stream.owned,
        phases.in_flight,
        state.queues.delayed_in(queue.name),
        len(queue.dead),
        len(queue.failing),
        _oldest_s(node, queue),
        len(queue.waiters),
        queue.jobs_in,
        queue.delivered,
        queue.requeued,
        queue.acked,
        (state.now - queue.accessed_at) // 1_000 if queue.serial else -1,
        PAUSE_NAMES[queue.pause],
        PAUSE_NAMES[queue.pause_here],
        int(stream is not None),
        phases.elsewhere,
        phases.done,
        node.stewards.lost.get(queue.name, 0),
    )


def _oldest_s(node: Node, queue: Queue) -> int:
    """Age in seconds of the job that waits first, or of the oldest event; -1 = there is none."""
    oldest = queue.oldest
    return -1 if oldest is None else max(0, node.state.wall - oldest // 1_000_000) // 1_000


def _pause_facts(node: Node, queue: Queue) -> list[Any]:
    policies = node.state.queues.policies
    register, value = policies.registers.get((queue.name, PAUSE_FIELD)), policies.pause_of(queue.name)
    set_at = 0 if register is None else register.set_at
    return [
        b"pause-reason", value.reason,
        b"pause-by", value.owner,
        b"pause-at", set_at // 1_000,
        b"pause-node", PAUSE_NAMES[queue.pause_here],
    ]  # fmt: skip


def _phase_facts(node: Node, queue: Queue) -> list[Any]:
    counts = count_phases(node.state.queues, queue.name)
    return [b"in-flight", counts.in_flight, b"elsewhere", counts.elsewhere, b"done", counts.done]


def _statistics(node: Node, queue: Queue) -> list[Any]:
    now = node.state.now
    return [
        b"name", queue.name,
        b"len", queue.length,
        b"age", (now - queue.created_at) // 1_000,
        b"idle", (now - queue.accessed_at) // 1_000,
        b"blocked", len(queue.waiters),
        b"import-from", queue.recent_sources(now),
        b"import-rate", queue.import_rate.per_second(now),
        b"jobs-in", queue.jobs_in,
        b"jobs-out", queue.jobs_out,
        b"pause", PAUSE_NAMES[queue.pause],
    ]  # fmt: skip


_NO_IDS = "ID goes with the ids of jobs, and they with it: REDRIVE queue ID id [id ...]"


@command(
    "REDRIVE", group="queues", flags=Flag.WRITE | Flag.DENY_OOM,
    reply=integer("jobs that were queued again, in the whole cluster"), cost="O(N) in the dead jobs of the queue",
    errors=(_NO_IDS,), once=True,
)  # fmt: skip
@attrs.define
class Redrive:
    """Queue the dead jobs of a queue again, in the whole cluster.

    Each begins again: it may be tried as often as at first, and keeps its id, its failures and the end of its time.
    One with RETRY 0 that was buried is delivered once more.  Those that died first come first.  The reply comes when
    all have begun again; a job that other nodes hold, too, is queued when they have confirmed that they have not queued
    it.  To call it once more does no harm.

    A client that goes stops it.  Nodes that cannot be reached keep their dead jobs.
    """

    queue: bytes = positional("Queue whose jobs are dead.", QUEUE)
    count: int = option("COUNT", "How many at most; all.", REDRIVE_COUNT, NO_LIMIT)
    by_id: bool = flag("ID", "Only the jobs of the ids that follow.")
    rate: int = option("RATE", "Jobs a second at most; as fast as it goes.", REDRIVE_RATE, 0)
    ids: list[bytes] = rest("Jobs to queue again; the command has 1024 words at most.", JOB_ID, minimum=0)

    def run(self, node: Node, client: Client) -> Any:
        """Begin; the reply comes when it is done."""
        if self.by_id != bool(self.ids):
            raise CommandError(_NO_IDS)
        node.redrives.redrive(client, self.queue, self.count, tuple(dict.fromkeys(self.ids)), self.rate)
        return BLOCKED


_PAUSE_BITS = {b"IN": PAUSE_IN, b"OUT": PAUSE_OUT, b"ALL": PAUSE_IN | PAUSE_OUT}
_PAUSE_WORDS = ("in", "out", "all", "none", "state", "bcast", "node")
_PAUSE_WORD = one_of(
    {word.upper().encode(): word.upper().encode() for word in _PAUSE_WORDS},
    f"syntax error - allowed are {', '.join(_PAUSE_WORDS)}, and REASON with a text",
)
_BAD_REASON = f"REASON must be 1 to {REASON_MAX} bytes of printable UTF-8 in one line"
_NO_REASON = "REASON goes with in, out or all for the whole cluster, and not with none, state or node"


def _read_reason(text: bytes) -> bytes:
    """Read the reason of a pause."""
    if not 0 < len(text) <= REASON_MAX or not is_printable(text):
        raise CommandError(_BAD_REASON)
    return text


_REASON = Kind(
    "string", _read_reason, f"1 to {REASON_MAX} bytes of printable UTF-8 in one line", errors=(f"ERR {_BAD_REASON}",)
)


@command(
    "PAUSE",
    group="queues",
    flags=Flag.READ | Flag.FAST,
    reply=status("the state afterwards: none, in, out or all"),
    cost="O(1)",
    errors=(OutOfMemory, _NO_REASON),
)
@attrs.define
class Pause:
    """Stop a queue from taking jobs, from handing them out, or both, in the whole cluster.

    The words of one call are read from left to right: in and out add up, all is both, none clears; state changes
    nothing.  A call that changes the pause replaces what an earlier call said, its reason included.  A node
    that cannot be reached learns the last word when it is back, and a node with a store keeps it over a restart.  It
    may have a reason, which producers hear with the error PAUSED, along with who paused the queue: the user, the name
    of the connection, or the address of a client that has neither.

    node limits the pause to this node; it counts besides that of the cluster, until the next word for the whole
    cluster.  A node that is paused in keeps no copies for producers of other nodes either: where they need one from it,
    as for the three copies of a job in a cluster of three, they are refused with PAUSED and the id of the node; fewer
    copies (REPLICATE), and ASYNC, do without it.  bcast is what Disque called the whole cluster, and is the default
    here.

    A queue that is paused in takes what other nodes bring for consumers of this one, or because they are leaving.
    When memory is full, a queue that is not there cannot be paused.

    Rules of users know whole commands, so that state needs the right to write, too; QSTAT with FULL shows the pause.
    """

    queue: bytes = positional("Queue to pause.", QUEUE)
    words: list[bytes] = rest("in, out, all, none, state, node or bcast.", _PAUSE_WORD)
    reason: bytes | None = option("REASON", "Why, for those who are refused.", _REASON)

    def run(self, node: Node, client: Client) -> Status:
        """Set the pause; returns its name."""
        pause, changes = 0, False
        for word in self.words:
            if word == b"NONE":
                pause, changes = 0, True
            elif word in _PAUSE_BITS:
                pause, changes = pause | _PAUSE_BITS[word], True
        here = b"NODE" in self.words
        if self.reason is not None and (here or not pause):
            raise CommandError(_NO_REASON)
        if changes and here:
            self._check_room(node, pause, 0)
            node.policies.pause_here(self.queue, pause)
        elif changes:
            value = PauseSetting(pause, self.reason or b"", owner_of(client))
            self._check_room(node, pause, cost_of_register(self.queue, value))
            node.policies.set_pause(self.queue, value)
        queue = node.state.queues.by_name.get(self.queue)
        return Status(PAUSE_NAMES[0 if queue is None else queue.pause])

    def _check_room(self, node: Node, pause: int, size: int) -> None:
        """Check that there is room for a register of this size and its queue, unless the queue is there.

        Raises OutOfMemory (OOM), NameTooLong (ERR).
        """
        state = node.state
        cost_of_queue = state.queues.cost_of_new([self.queue])
        if (self.queue, PAUSE_FIELD) in state.queues.policies.registers:
            size = 0  # it takes the place of another one
        if pause:
            size += cost_of_queue
        if size and cost_of_queue:
            node.check_names(size)


_ENDED = {state: word for state, word in STATE_NAMES.items() if ALL_STATES >> state & 1}
_ENDED_STATE = one_of(
    {word.upper(): 1 << state for state, word in _ENDED.items()},
    f"unknown STATE {{word}}; expected one of {', '.join(word.decode() for word in _ENDED.values())}",
)


@command(
    "QPURGE", group="queues", flags=Flag.WRITE, reply=integer("jobs that ended, each counted once"),
    cost="O(N) in the jobs of each node, bit by bit", errors=(WrongType,), once=True,
)  # fmt: skip
@attrs.define
class QPurge:
    """End the jobs of a queue on all nodes of the cluster.

    Each node ends the jobs that it holds, so that no copy comes back: those with RETRY 0, those that consumers have and
    those that are dead as well.  The jobs are cancelled: clients that wait for one, or ask for it later, hear so.
    Jobs that are added meanwhile stay.  The reply comes when all nodes are done, and waits two seconds at most for a
    node that says nothing.  What such a node ended is not counted, nor are the jobs that it was to count: each job is
    counted by one of its holders, and ends on all of them.

    A node that is away learns which jobs have ended when it is back.  Jobs that it alone holds stay.  A job with RETRY
    0 that moves to another node meanwhile ends there.

    A job that waits on one node is active on the other nodes that hold a copy.  So with STATE active, and without
    queued, a node ends the jobs that are delayed, that its own consumers have, or that no other node holds.

    A queue with events of a log is refused: QFLUSH empties it.
    """

    queue: bytes = positional("Queue to purge.", QUEUE)
    states: tuple[int, ...] = repeated(
        "STATE", "Only jobs in this state; may be given several times. All of them end unless it is given.",
        _ENDED_STATE,
    )  # fmt: skip
    dry_run: bool = flag("DRYRUN", "Count the jobs, and end none.")

    def run(self, node: Node, client: Client) -> Any:
        """Purge the queue; returns the number of jobs, or BLOCKED.  Raises WrongType (WRONGTYPE)."""
        queue = node.state.queues.by_name.get(self.queue)
        if queue is not None:
            queue.check_kind(KIND_WORK)
        states = sum(set(self.states)) or ALL_STATES
        if self.dry_run:
            states |= DRY
        if node.state.peers.linked:
            node.purges.purge(client, self.queue, states)
            return BLOCKED
        return in_parts(node, client, node.purges.purge_here(self.queue, states))


_NUMBERS = {name: field for field, name in QUEUE_FIELD_NAMES.items() if field != PAUSE_FIELD}
_NUMBER_NAME = one_of(
    {name.upper(): field for name, field in _NUMBERS.items()},
    f"unknown field {{word}}; expected one of {', '.join(name.decode() for name in _NUMBERS)}",
)
_IDLE = span(
    SECOND, IDLE_MIN_MS, SPAN_MAX_S * SECOND,
    f"IDLE must be a number of seconds - allowed are {IDLE_MIN_MS // SECOND} to {SPAN_MAX_S}, with fractions",
    f"{IDLE_MIN_MS // SECOND} to {SPAN_MAX_S} seconds, with fractions",
)  # fmt: skip
_ONE_VERB = "QPOLICY takes SET and options, UNSET and fields, or GET"
_GET_ALONE = "QPOLICY GET takes no field: it shows all fields that are set"
_ONE_TRY = "RETRY 0 goes without MAXTRIES and BACKOFF, in one queue: UNSET what is not meant, or take a RETRY above 0"
_ONE_COPY = "RETRY 0 goes with REPLICATE 1, in one queue: SET both, or take a RETRY above 0"
_FIELD = tuple_of(
    "[field, value, node, set at]", bulk("pause, ttl, ..."), bulk("as it was set"),
    bulk("id of the node it was set on"), integer("unix seconds"),
)  # fmt: skip


@command(
    "QPOLICY", group="queues", flags=Flag.WRITE | Flag.FAST,
    reply=either(array(_FIELD, "GET: the fields that are set"), status("SET, UNSET: OK")), cost="O(1)",
    errors=(OutOfMemory, NameTooLong, LogWithoutLimits, LONGEST_BELOW_FIRST, _ONE_TRY, _ONE_COPY, _ONE_VERB,
            _GET_ALONE),
    once=True,
)  # fmt: skip
@attrs.define
class QPolicy:
    """Set defaults of ADDJOB for a queue in the whole cluster, its limits and FAIR, or show them.

    ADDJOB takes the default of its queue for each option that it does not give itself.  A job keeps the options that it
    was added with: a change is for later jobs.  Other commands that add jobs, such as QADD, RQ.PUSH and
    WQ.ENQUEUE, take none of these.

    With FAIR each node hands out the jobs of the queue that wait on it group by group in turn, one of each, instead of
    the oldest first: of k groups that have jobs, none waits for more than k-1 jobs of others.  GROUP of ADDJOB says the
    group of a job; within a group the oldest goes first.

    INFLIGHT and GROUPINFLIGHT limit how many jobs are with consumers at the same time, RATE and GROUPRATE how many are
    handed out, in the whole cluster: the queue, and each GROUP of it; jobs without one are a group together for
    GROUPINFLIGHT, and GROUPRATE leaves them alone.  GROUPINFLIGHT 1 hands out the jobs of a group one after the other.
    A job has its slot until ACKJOB or NACK, or the end of its retry time, which WORKING puts off.  With PARTITION
    strict, which is what counts unless it is set, nothing is handed out where a majority of the nodes cannot be
    reached, and the limits hold; with available each side of a partition has the limits for itself.  SLOTS shows which
    jobs have slots.  A consumer of such a queue waits for the steward, with NOHANG, too.  GETJOB then takes one job,
    whatever COUNT says; RQ.POP and WQ.DEQUEUE take up to COUNT, as many as the steward gives at once; QRPOP is refused.
    Events of logs have no limits: where this node knows the queue as a log, limits and FAIR are refused (WRONGTYPE).  A
    log may be made with the name of a queue whose limits are set already: they do not count for it.

    To change a limit, SET another value.  UNSET of the last limit of a queue forgets its slots: if a limit is set again
    later, jobs that consumers had meanwhile have none, and as many more may be handed out until those are over.

    MAXTRIES and BACKOFF are left aside for a job with RETRY 0, which has one try.  A queue is not given both.  RETRY 0
    of a queue goes with REPLICATE 1, without which ADDJOB refuses such jobs.  REPLICATE above the number of nodes
    makes every ADDJOB that names no number NOREPL.

    With IDLE the queue expires once nobody has used it for so long, or for up to half as long again: all its fields are
    unset on every node, and its figures are forgotten.  In use is a queue with jobs, delayed and dead ones included, or
    with events; with consumers that wait; with a pause; and one to which a job came, from which one was taken, or of
    which a field was set within that time.  A GETJOB that gets nothing and does not wait is no use, and a throttle is
    none.  An expiry ends no job: there is none.  Nothing expires while a node of the cluster is away; a node that was
    forgotten (CLUSTER FORGET) does not bring the policy back, unless it has jobs of the queue.

    Each field is set, and wins, for itself: of two values that two nodes were given the later one counts on every node.
    A node that cannot be reached learns it when it is back, and a node with a store keeps it over a restart.  The
    policy of a queue outlives the queue.

    GET, which is what the name of a queue alone means, shows the fields that are set, and the PAUSE of the queue
    without its reason and its owner, which QSTAT with FULL tells.  Rules of users know whole commands, so that showing
    needs the right to write, too; QSTAT with FULL shows the pause.
    """

    queue: bytes = positional("Queue whose policy it is.", QUEUE)
    shows: bool = flag("GET", "Show the fields that are set.", last=_GET_ALONE)
    sets: bool = flag("SET", "Set the fields that follow.")
    ttl: int | None = option("TTL", "Seconds until a job is dropped, delivered or not.", TTL)
    retry: int | None = option("RETRY", "Seconds until a delivery counts as failed; 0 = deliver at most once.", RETRY)
    replicate: int | None = option("REPLICATE", "Nodes that shall hold a job.", REPLICATE)
    maxlen: int | None = option("MAXLEN", "Refuse a job when the queue holds this many jobs already.", MAXLEN)
    max_tries: int | None = option("MAXTRIES", "Deliveries before a job is dead.", MAXTRIES)
    backoff: tuple[int, ...] | None = option(
        "BACKOFF", "Seconds from a NACK to the next delivery, doubled by each further NACK, up to `most`.", BACKOFF,
        parts=("first", "most"), spare=True,
    )  # fmt: skip
    keep_dead: int | None = option("KEEPDEAD", "Seconds that a dead job stays beyond its TTL.", KEEPDEAD)
    result: int | None = option("RESULT", "Seconds to keep the result after the acknowledgement.", RESULT)
    fair: bool = flag("FAIR", "Hand out the jobs of each GROUP in turn.")
    in_flight: int | None = option("INFLIGHT", "Jobs that are with consumers at the same time.", IN_FLIGHT)
    group_in_flight: int | None = option("GROUPINFLIGHT", "The same of each GROUP.", GROUP_IN_FLIGHT)
    rate: tuple[int, ...] | None = option(
        "RATE", "Jobs that are handed out in so many seconds; `burst` at once, or as many as `count`.", RATE[0],
        parts=RATE_PARTS, words=RATE_WORDS, kinds=RATE, spare=True,
    )  # fmt: skip
    group_rate: tuple[int, ...] | None = option(
        "GROUPRATE", "The same of each GROUP.", GROUP_RATE[0], parts=RATE_PARTS, words=RATE_WORDS, kinds=GROUP_RATE,
        spare=True,
    )  # fmt: skip
    partition: int | None = option(
        "PARTITION", "Whether the limits hold, or jobs are handed out, while nodes cannot reach each other.", PARTITION
    )
    idle: int | None = option(
        "IDLE", "Seconds without jobs, consumers and use after which the queue forgets its policy.", _IDLE
    )
    unset: list[int] = rest("Fields that shall have no value any more.", _NUMBER_NAME, word="UNSET", minimum=0)

    def run(self, node: Node, client: Client) -> Any:
        """Set, unset or show fields.  Raises OutOfMemory (OOM), NameTooLong (ERR), LogWithoutLimits (WRONGTYPE)."""
        given = {
            TTL_FIELD: self.ttl, RETRY_FIELD: self.retry, REPLICATE_FIELD: self.replicate, MAXLEN_FIELD: self.maxlen,
            MAXTRIES_FIELD: self.max_tries, KEEPDEAD_FIELD: self.keep_dead, RESULT_FIELD: self.result,
            INFLIGHT_FIELD: self.in_flight, GROUPINFLIGHT_FIELD: self.group_in_flight, PARTITION_FIELD: self.partition,
            IDLE_FIELD: self.idle,
        }  # fmt: skip
        values: dict[int, Value] = {field: (number,) for field, number in given.items() if number is not None}
        check_backoff(self.backoff)
        several = {BACKOFF_FIELD: self.backoff, RATE_FIELD: self.rate, GROUPRATE_FIELD: self.group_rate}
        values.update((field, numbers) for field, numbers in several.items() if numbers is not None)
        if self.fair:
            values[FAIR_FIELD] = (1,)
        if self.sets + self.shows + bool(self.unset) > 1 or self.sets != bool(values):
            raise CommandError(_ONE_VERB)
        if not values.keys().isdisjoint(GATE_FIELDS):
            queue = node.state.queues.by_name.get(self.queue)
            if queue is not None and queue.kind == KIND_LOG:
                raise LogWithoutLimits
        policies = node.state.queues.policies
        values.update((field, ()) for field in self.unset if (self.queue, field) in policies.registers)
        if self.sets:
            self._check_one_try(policies, values)
            check_name(self.queue)
            new = [value for field, value in values.items() if (self.queue, field) not in policies.registers]
            if new:
                node.check_names(sum(cost_of_register(self.queue, value) for value in new))
        if self.sets or self.unset:
            node.policies.set(self.queue, values)
            return Status(b"OK")
        return [
            [name, policy_value(name, register.value), register.node_id, register.set_at // 1_000]
            for field, name in QUEUE_FIELD_NAMES.items()
            if (register := policies.registers.get((self.queue, field))) is not None and not is_empty(register.value)
        ]

    def _check_one_try(self, policies: PolicyTable, values: dict[int, Value]) -> None:
        """Check that a queue of jobs with one try has no more tries and copies.  Raises CommandError."""

        def has(field: int) -> Value:
            register = policies.registers.get((self.queue, field))
            return values.get(field, () if register is None else register.value)

        if has(RETRY_FIELD) == (0,):
            if has(MAXTRIES_FIELD) or has(BACKOFF_FIELD):
                raise CommandError(_ONE_TRY)
            if has(REPLICATE_FIELD) != (1,) and (RETRY_FIELD in values or REPLICATE_FIELD in values):
                raise CommandError(_ONE_COPY)


def _digits(number: int) -> bytes:
    return b"%d" % number


#: Fields whose numbers are spans, all of them.
_SPANS = {name for name, field in _NUMBERS.items() if 0 in NUMBER_FIELDS[field].spans}


def policy_value(field: bytes, value: Value) -> bytes:
    """Return the value of a field as QPOLICY GET tells it."""
    if isinstance(value, PauseSetting):
        return PAUSE_NAMES[value.bits]
    assert not isinstance(value, ScheduleSetting | LastFiring | Refusal), "these are no fields of queues"
    return limit_value(field, value) or b" ".join(map(seconds_text if field in _SPANS else _digits, value))
