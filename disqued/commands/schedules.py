"""Commands on schedules: jobs that the cluster adds by itself, when cron lines, spans or instants come."""

from typing import Any, Final

import attrs

from disqued.commands.jobs import BACKOFF, DELAY, GROUP, KEEPDEAD, MAXLEN, MAXTRIES, REPLICATE, RESULT, RETRY, TTL
from disqued.commands.parse_cache import (
    DEFAULT_TTL_MS,
    NEVER_DELIVERED,
    ONCE,
    ONE_TRY,
    CachedOptions,
    WishedTerms,
)
from disqued.commands.parts import in_order, in_parts, spelt
from disqued.commands.permission import Sees, seen_by
from disqued.commands.shapes import array, bulk, either, integer, null_array_or, pairs, status, tuple_of
from disqued.commands.table import BLOCKED, Flag, command, container, flag, option, optional, positional, repeated
from disqued.commands.values import BYTES, PATTERN, QUEUE, SECOND, SECONDS_MAX, Kind, in_seconds, one_of, seconds, span
from disqued.commands.values import count as count_kind
from disqued.commands.values import integer as integer_kind
from disqued.core.cluster.schedules import NEXT_MAX, RUNS_TOLD, Schedules
from disqued.core.model.calendar import (
    AT,
    CATCH_UP,
    CATCH_UP_MAX,
    CRON,
    EVERY,
    NAME_MAX,
    UTC,
    JobTemplate,
    ScheduleSetting,
    headers_of,
    words_of,
)
from disqued.core.model.glob import matches
from disqued.core.model.job import KIND_WORK
from disqued.core.model.outbox import Client
from disqued.core.model.policies import SCHEDULE_FIELD, PolicyTable, cost_of_register
from disqued.core.model.queues import check_name
from disqued.core.model.spans import seconds_text
from disqued.core.model.terms import Terms, headers_misfit
from disqued.core.model.unfinished import Parts
from disqued.core.node import Node
from disqued.errors import (
    CommandError,
    NameTooLong,
    NotReplicated,
    OutOfMemory,
    QueuePaused,
    QueueTooLong,
    SyntaxFault,
    WrongType,
)
from disqued.wire.replies import Status

LISTED_PER_PART: Final = 50  #: schedules whose next instant is worked out at a time, some milliseconds' work
NEXT_SHOWN: Final = 5  #: instants that DRYRUN tells
SIZE_MAX: Final = 60_000  #: bytes of queue, body, headers and the rest of a schedule

#: Names of cron lines, as other programs know them.
_LINES: Final = {
    b"@yearly": b"0 0 1 1 *",
    b"@annually": b"0 0 1 1 *",
    b"@monthly": b"0 0 1 * *",
    b"@weekly": b"0 0 * * 0",
    b"@daily": b"0 0 * * *",
    b"@midnight": b"0 0 * * *",
    b"@hourly": b"0 * * * *",
}
_GRAMMAR = (
    "SCHEDULE takes SET name line|EVERY seconds|AT unix-seconds QUEUE queue BODY body and options, or LIST, GET, DEL,"
    " PAUSE, RESUME, FIRE or NEXT; a cron line is one word, in quotes"
)
_SET_FAULT = "SCHEDULE SET takes a line, EVERY or AT, then QUEUE, BODY and options; a cron line is one word, in quotes"
_BAD_NAME = f"a schedule name has 1 to {NAME_MAX} bytes"
_NO_SCHEDULE = "no such schedule; SCHEDULE LIST names those that there are"
_ONE_TIME = "SCHEDULE SET takes one of a cron line, EVERY seconds and AT unix-seconds"
_ZONE_OF_LINE = "TZ goes with a cron line"
_NO_JOB = "SCHEDULE SET needs QUEUE and BODY"
_LATE_AT = "AT is over; allowed are unix times to come"
_LATE_JOB = "DELAY and JITTER together must be below TTL"
_TOO_LARGE = f"the schedule is too large; allowed are {SIZE_MAX} bytes of queue, body and headers"


def _read_name(text: bytes) -> bytes:
    if not 0 < len(text) <= NAME_MAX:
        raise CommandError(_BAD_NAME)
    return text


def _read_line(text: bytes) -> bytes:
    """Read a cron line or its name.  Raises SyntaxFault for a single word: that is a misspelt option."""
    if len(text.split()) < 2 and not text.startswith(b"@"):
        raise SyntaxFault
    return text


SCHEDULE = Kind("string", _read_name, f"1 to {NAME_MAX} bytes", errors=(f"ERR {_BAD_NAME}",), names="schedule")
LINE = Kind("string", _read_line, "five or six fields of cron, in one word")
ZONE = Kind("string", None, "a name of the tz database")
#: Nodes look for instants that they have missed second by second: see `calendar.looked_at`.
EVERY_SPAN = span(
    SECOND, SECOND, SECONDS_MAX * SECOND - 1, f"EVERY must be a number of seconds from 1 to {SECONDS_MAX - 1}",
    f"1 to {SECONDS_MAX - 1} seconds, with fractions",
)  # fmt: skip
INSTANT = integer_kind(1, 2**33, "AT must be a unix time in whole seconds, 1 to 2**33", "unix seconds, at most 2**33")
JITTER = seconds("JITTER", "JITTER must be a number of seconds, 0 or more", zero=True)
CATCHUP = integer_kind(
    0, CATCH_UP_MAX, f"CATCHUP must be a whole number from 0 to {CATCH_UP_MAX}", f"0 to {CATCH_UP_MAX}"
)  # fmt: skip
OVERLAP = one_of({b"ALLOW": False, b"SKIP": True}, "OVERLAP must be allow or skip")
NEXT_COUNT = count_kind(1, NEXT_MAX, "the count of instants must be a whole number, 1 or more")

container(
    "SCHEDULE", group="queues", flags=Flag.WRITE, summary="Jobs that the cluster adds by itself.", misuse=_GRAMMAR
)


@command(
    "SCHEDULE SET", group="queues", flags=Flag.WRITE, fault=_SET_FAULT, once=True,
    reply=either(status("OK"), array(integer("unix seconds"), "DRYRUN: the next instants, in order")), cost="O(1)",
    errors=(
        OutOfMemory, NameTooLong, _ONE_TIME, _ZONE_OF_LINE, _NO_JOB, _LATE_AT, _LATE_JOB, _TOO_LARGE, ONCE,
        NEVER_DELIVERED, ONE_TRY, WrongType,
    ),
)  # fmt: skip
@attrs.define
class ScheduleSet:
    """Add a job to a queue whenever a cron line, a span or an instant comes, once for the whole cluster.

    A cron line is one word of five fields (minute, hour, day of month, month, day of week), or of six with seconds
    first; @hourly, @daily, @weekly, @monthly and @yearly are lines as well.  EVERY counts from the moment in which the
    schedule is set.  The cluster fires each instant once: nodes that cannot hear each other add the same job, which is
    one when they meet.

    A time that a clock change of the zone skips comes at the change, and one that comes twice comes the first time.

    Instants that no node fired in time are missed, and the last CATCHUP of them are fired when a node can.  With
    OVERLAP skip no job is added while the last one is not over.  JITTER delays each job by up to so many seconds,
    derived from the name and the instant.

    The other options are those of ADDJOB, for each job; what is not given is that of the queue (QPOLICY) at the time of
    this command.  Each job has the headers schedule-name and schedule-time.  A schedule that is set again stays paused
    if it is.

    DRYRUN checks all of this, and tells the next 5 instants that the schedule would have, paused or not.
    """

    name: bytes = positional("Name of the schedule.", SCHEDULE)
    line: bytes | None = optional('Cron line, such as "0 2 * * mon-fri".', LINE, leads=True)
    every: int | None = option("EVERY", "Seconds from one job to the next.", EVERY_SPAN)
    at: int | None = option("AT", "Unix seconds of the only job.", INSTANT)
    queue: bytes | None = option("QUEUE", "Queue to add to.", QUEUE)
    body: bytes | None = option("BODY", "Body of each job.", BYTES)
    zone: bytes | None = option("TZ", "Time zone of the cron line; UTC unless given.", ZONE)
    overlap: bool = option("OVERLAP", "Whether a job is added while the last one is not over.", OVERLAP, False)
    catch_up: int = option("CATCHUP", f"Missed instants that are fired later, at most; {CATCH_UP}.", CATCHUP, CATCH_UP)
    jitter: int = option("JITTER", "Seconds by which a job is delayed at most.", JITTER, 0)
    replicate: int | None = option("REPLICATE", "Nodes that shall hold a job.", REPLICATE)
    delay: int = option("DELAY", "Seconds before a job is queued.", DELAY, 0)
    retry: int | None = option("RETRY", "Seconds until a delivery counts as failed; 0 = deliver at most once.", RETRY)
    ttl: int | None = option(
        "TTL", f"Seconds until a job is dropped, delivered or not; {DEFAULT_TTL_MS // 1_000} unless given.", TTL
    )
    maxlen: int | None = option("MAXLEN", "Add no job while the queue holds this many already.", MAXLEN)
    asynchronous: bool = flag("ASYNC", "Do not wait for copies before the instant is over.")
    max_tries: int | None = option("MAXTRIES", "Deliveries before a job is dead.", MAXTRIES)
    backoff: tuple[int, ...] | None = option(
        "BACKOFF", "Seconds from a NACK to the next delivery, doubled by each further NACK, up to `most`.", BACKOFF,
        parts=("first", "most"), spare=True,
    )  # fmt: skip
    keep_dead: int | None = option("KEEPDEAD", "Seconds that a dead job stays beyond its TTL.", KEEPDEAD)
    result: int | None = option("RESULT", "Seconds to keep the result after the acknowledgement.", RESULT)
    headers: tuple[tuple[bytes, bytes], ...] = repeated(
        "HEADER", "A header of each job, besides schedule-name and schedule-time.", BYTES, parts=("name", "value")
    )
    group: bytes = option("GROUP", "Group of each job within its queue.", GROUP, b"")
    dry_run: bool = flag("DRYRUN", "Set nothing: tell when the schedule would come next.")

    def run(self, node: Node, client: Client) -> Any:
        """Set the schedule, or try it.  Raises OutOfMemory (OOM), NameTooLong (ERR), WrongType (WRONGTYPE)."""
        setting = self._setting(node)
        misfit = node.schedules.misfit(setting.line, setting.zone) if setting.kind == CRON else ""
        misfit = misfit or headers_misfit(headers_of(self.name, setting, 0))
        if misfit:
            raise CommandError(misfit)
        if setting.kind == AT and setting.number <= node.state.wall:
            raise CommandError(_LATE_AT)
        size = cost_of_register(self.name, setting)
        if size > SIZE_MAX:
            raise CommandError(_TOO_LARGE)
        node.check_names(size)
        if self.dry_run:
            return [instant // 1_000 for instant in node.schedules.next_of(self.name, NEXT_SHOWN, setting)]
        node.schedules.set(self.name, setting)
        return Status(b"OK")

    def _setting(self, node: Node) -> ScheduleSetting:
        times = [time for time in (self.line, self.every, self.at) if time is not None]
        if len(times) != 1:
            raise CommandError(_ONE_TIME)
        if self.zone is not None and self.line is None:
            raise CommandError(_ZONE_OF_LINE)
        line, number = b"", self.every or (self.at or 0) * SECOND
        kind = AT if self.at is not None else EVERY
        if self.line is not None:
            kind, line = CRON, b" ".join(self.line.split())
            line = _LINES.get(line.lower(), line)
        return ScheduleSetting(
            kind, line, number, UTC if self.zone is None else self.zone, self.overlap, self.catch_up,
            self.jitter, self._job(node),
        )  # fmt: skip

    def _job(self, node: Node) -> JobTemplate:
        """Make the jobs complete, once for all nodes and instants."""
        if self.queue is None or self.body is None:
            raise CommandError(_NO_JOB)
        check_name(self.queue)
        queue = node.state.queues.by_name.get(self.queue)
        if queue is not None:
            queue.check_kind(KIND_WORK)
        cached = CachedOptions(
            ttl=self.ttl, retry=self.retry, delay=self.delay, replicate=self.replicate, maxlen=self.maxlen,
            timeout_ms=0, asynchronous=self.asynchronous,
            terms=WishedTerms(self.max_tries, self.backoff, self.keep_dead, self.result, self.headers, self.group),
        ).of_queue(node.state.queues.policies, self.queue)  # fmt: skip
        options = cached.options(node.placement, node.state)
        if options.delay_ms + self.jitter >= options.ttl_ms:
            raise CommandError(_LATE_JOB)
        return JobTemplate(
            self.queue, self.body, options.ttl_ms, options.retry_ms, options.delay_ms,
            0 if cached.by_default else options.replicate, cached.maxlen, cached.asynchronous, options.terms,
        )  # fmt: skip


def _known(node: Node, name: bytes) -> ScheduleSetting:
    """Return what a schedule says.  Raises CommandError."""
    setting = node.state.queues.policies.schedules.get(name)
    if setting is None:
        raise CommandError(_NO_SCHEDULE)
    return setting


def _next_second(node: Node, name: bytes) -> int:
    """Return when a schedule comes next, in unix seconds; 0 = it does not."""
    instants = node.schedules.next_of(name, 1)
    return instants[0] // 1_000 if instants else 0


def standing_of(policies: PolicyTable, schedules: Schedules, name: bytes) -> bytes:
    """Return whether a schedule is active, paused or done."""
    if policies.is_schedule_paused(name):
        return b"paused"
    return b"done" if policies.schedules[name].kind == AT and not schedules.next_of(name, 1) else b"active"


def _standing(node: Node, name: bytes) -> bytes:
    return standing_of(node.state.queues.policies, node.schedules, name)


_ROW = tuple_of(
    "[name, when, queue, state, next, last, became, error]",
    bulk("name"), bulk("cron line, EVERY seconds or AT unix-seconds"),
    bulk("queue"), bulk("active | paused | done"), integer("next instant in unix seconds; 0 = none"),
    integer("last instant in unix seconds; 0 = none"), bulk("what became of it, as in SCHEDULE GET; empty = none"),
    bulk("why the instant that has come since is refused; empty = none is"),
)  # fmt: skip


@command(
    "SCHEDULE LIST", group="queues", flags=Flag.READ, reply=array(_ROW, "schedules, by name"),
    cost="O(N log N) in the schedules",
)  # fmt: skip
@attrs.define
class ScheduleList:
    """Name the schedules of the cluster, as far as this node knows."""

    pattern: bytes = optional("Only schedules whose name matches this glob pattern.", PATTERN, b"*")

    def run(self, node: Node, client: Client) -> Any:
        """Name them, by name; BLOCKED when there are very many."""
        return in_parts(node, client, self._parts(node, seen_by(client)))

    def _parts(self, node: Node, sees: Sees | None) -> Parts:
        schedules = node.state.queues.policies.schedules
        names = yield from in_order([name for name in schedules if matches(self.pattern, name)])
        rows = (
            [
                name, words_of(setting), setting.job.queue, _standing(node, name), _next_second(node, name),
                *_last_of(node, name), _refusal_now(node, name),
            ]
            for name in names
            if (setting := schedules.get(name)) is not None and (sees is None or sees(setting.job.queue))
        )  # fmt: skip
        return (yield from spelt(rows, LISTED_PER_PART))


def _last_of(node: Node, name: bytes) -> tuple[int, bytes]:
    """Return the last instant of a schedule in unix seconds and what became of it; 0 and nothing when there is none."""
    runs = node.schedules.runs_of(name, 1)
    return (runs[0].instant // 1_000, runs[0].state) if runs else (0, b"")


def _refusal_now(node: Node, name: bytes) -> bytes:
    """Return why the instant that has come is refused; empty = none is."""
    refusal = node.schedules.refusal_of(name)
    return refusal.error if refusal is not None and refusal.is_pending else b""


FIELDS: Final = (
    "name", "when", "zone", "state", "next", "last", "last-job", "runs", "error", "error-instant", "error-node",
    "queue", "body", "overlap", "catchup",
    "jitter", "ttl", "retry", "delay", "replicate", "maxlen", "async", "maxtries", "backoff", "keepdead", "result",
    "headers", "group", "set-on", "set-at",
)  # fmt: skip


@command(
    "SCHEDULE GET", group="queues", flags=Flag.READ | Flag.FAST,
    reply=null_array_or(pairs("what the schedule says, and how it stands", *FIELDS)), cost="O(1)", shows_bodies=True,
)  # fmt: skip
@attrs.define
class ScheduleGet:
    """Show a schedule; null when there is none of this name.

    last is the last instant that is over, and last-job the last job that was added.  runs are the last instants that
    are over, the latest first, 5 at most: of each the instant, the id of its job and what became of that, as far as
    this node knows:

    queued, delayed, running: the job is here, or a consumer has it; pending: another node hands it out.

    acked, cancelled, dead, expired, deleted, ended: how it came to an end.

    skipped: the last job was not over (OVERLAP skip); missed: no node fired it in time, or it was refused; paused: it
    came in a pause.  There is no id then.

    unknown: this node has forgotten the job, or has never had it.  WAITJOB asks all nodes; with RESULT the end of a job
    is known for so long.

    error is why a job was refused last (NOREPL, PAUSED, MAXLEN, OOM, MISCONF and so on), error-instant the instant that
    it was for, and error-node the node that refused it; they are empty and 0 once that instant is fired or forgotten.

    Runs begin anew when the schedule is set.  Spans and instants are seconds; replicate 0 means as many copies as can
    be made, 3 at most, and maxlen 0 no limit.
    """

    name: bytes = positional("Name of the schedule.", SCHEDULE)

    def run(self, node: Node, client: Client) -> list[Any] | None:
        """Describe the schedule."""
        policies = node.state.queues.policies
        setting = policies.schedules.get(self.name)
        if setting is None:
            return None
        runs = self._runs(node)
        job, register = setting.job, policies.registers[self.name, SCHEDULE_FIELD]
        values = [
            self.name, words_of(setting), setting.zone, _standing(node, self.name), _next_second(node, self.name),
            runs[0][0] if runs else 0, policies.last_job_of(self.name), runs, *_refusal(node, self.name),
            job.queue, job.body,
            b"skip" if setting.skips else b"allow", setting.catch_up,
            *map(in_seconds, (setting.jitter_ms, job.ttl_ms, job.retry_ms, job.delay_ms)),
            job.replicate, job.maxlen, int(job.asynchronous), *_terms(job.terms), register.node_id,
            register.set_at // 1_000,
        ]  # fmt: skip
        return [part for name, value in zip(FIELDS, values, strict=True) for part in (name.encode(), value)]

    def _runs(self, node: Node) -> list[list[Any]]:
        runs = node.schedules.runs_of(self.name, RUNS_TOLD)
        return [[run.instant // 1_000, run.job_id, run.state] for run in runs]


def _refusal(node: Node, name: bytes) -> list[Any]:
    refusal = node.schedules.refusal_of(name)
    return [b"", 0, b""] if refusal is None else [refusal.error, refusal.instant // 1_000, refusal.node_id]


def _terms(terms: Terms) -> list[Any]:
    backoff = (
        b"%b %b" % (seconds_text(terms.backoff_ms), seconds_text(terms.backoff_most_ms)) if terms.backoff_ms else b""
    )
    headers = [part for header in terms.headers for part in header]
    return [terms.max_tries, backoff, in_seconds(terms.keep_dead_ms), in_seconds(terms.keep_result_ms), headers,
            terms.group]  # fmt: skip


@command(
    "SCHEDULE DEL", group="queues", flags=Flag.WRITE | Flag.FAST, reply=integer("1 = deleted, 0 = there was none"),
    cost="O(1)",
)  # fmt: skip
@attrs.define
class ScheduleDel:
    """Delete a schedule in the whole cluster; jobs that it has added stay."""

    name: bytes = positional("Name of the schedule.", SCHEDULE)

    def run(self, node: Node, client: Client) -> int:
        """Delete it."""
        return int(node.schedules.delete(self.name))


@command(
    "SCHEDULE PAUSE", group="queues", flags=Flag.WRITE | Flag.FAST, reply=status("OK"), cost="O(1)",
    errors=(OutOfMemory, _NO_SCHEDULE),
)  # fmt: skip
@attrs.define
class SchedulePause:
    """Pause a schedule in the whole cluster: instants that come until it is resumed do not count."""

    name: bytes = positional("Name of the schedule.", SCHEDULE)

    def run(self, node: Node, client: Client) -> Status:
        """Pause it."""
        if not node.schedules.pause(self.name, pauses=True):
            raise CommandError(_NO_SCHEDULE)
        return Status(b"OK")


@command(
    "SCHEDULE RESUME", group="queues", flags=Flag.WRITE | Flag.FAST, reply=status("OK"), cost="O(1)",
    errors=(_NO_SCHEDULE,),
)  # fmt: skip
@attrs.define
class ScheduleResume:
    """End the pause of a schedule in the whole cluster: its next instant counts again."""

    name: bytes = positional("Name of the schedule.", SCHEDULE)

    def run(self, node: Node, client: Client) -> Status:
        """Resume it."""
        if not node.schedules.pause(self.name, pauses=False):
            raise CommandError(_NO_SCHEDULE)
        return Status(b"OK")


@command(
    "SCHEDULE FIRE", group="queues", flags=Flag.WRITE | Flag.DENY_OOM, reply=status("the id of the job"), cost="O(1)",
    errors=(_NO_SCHEDULE, NotReplicated, QueueTooLong, QueuePaused, WrongType),
)  # fmt: skip
@attrs.define
class ScheduleFire:
    """Add one job of a schedule now, paused or not, whatever OVERLAP says; its instants come as before.

    The job has an id of its own: a repetition adds another one.
    """

    name: bytes = positional("Name of the schedule.", SCHEDULE)

    def run(self, node: Node, client: Client) -> Any:
        """Add the job; returns its id, or BLOCKED."""
        job_id = node.schedules.fire(client, self.name, _known(node, self.name))
        return BLOCKED if job_id is None else job_id


@command(
    "SCHEDULE NEXT", group="queues", flags=Flag.READ, reply=array(integer("unix seconds"), "instants, in order"),
    cost="O(N) in the instants", errors=(_NO_SCHEDULE,),
)  # fmt: skip
@attrs.define
class ScheduleNext:
    """Tell the next instants of a schedule; none while it is paused, or when it is done."""

    name: bytes = positional("Name of the schedule.", SCHEDULE)
    count: int = optional("How many.", NEXT_COUNT, 1)

    def run(self, node: Node, client: Client) -> list[int]:
        """Tell them, in order."""
        _known(node, self.name)
        return [instant // 1_000 for instant in node.schedules.next_of(self.name, self.count)]
