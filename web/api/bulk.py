"""Actions on every job that fits a filter: first a dry run that counts, then the act.

    {"filter": {"queue": "mail", "state": ["in-flight"], "older_than_s": 600}}                  -> {"matched": 42, ...}
    {"filter": {...}, "dry_run": false, "token": "<of the dry run>"}                            -> {"done": 42, ...}

The registry is walked table by table.  In one turn of the loop at most `SLICE_ROWS` jobs are looked at and
`SLICE_BYTES` of bodies searched; then others have their turn.  What fits is acted on at once, by commands of at most
`IDS_AT_ONCE` ids, so that nothing has changed in between and no list of all of it is kept.

Jobs are moved by the state machine of `disqued.moves`, whose rules hold here as well: a copy with a key is added to the
other queue, and the old job ends once that copy is as safe as its REPLICATE demands.  A job that waits is taken out of
its queue first; when its copy is refused it goes back, and no try is counted.  A job that a consumer has may be done
twice.  A job with RETRY 0 is refused, because it was not delivered to the mover, and so is one that ADDJOB cannot
describe: a job with a name in its queue other than a key, and one that no timer queues again.

A state is a word that STATE of JSCAN takes.  Requeue cuts no delay short that nobody named, and takes no job that
another node holds, too: that one may have it in its queue or with a consumer, and it would be delivered twice.

An event of a log is nobody's to be done with: each group of consumers goes its own way with it.  It is left alone, and
the answer says why.

Ages are seconds since the job was created, on the wall clock.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Any, Final, NamedTuple

import attrs
from twisted.internet.defer import ensureDeferred, gatherResults

from disqued import moves
from disqued.commands.values import in_seconds
from disqued.core.model.ids import is_job_id
from disqued.core.model.job import (
    ACTIVE,
    ALL_STATES,
    FLAG_QUEUED_BEFORE,
    KEYED,
    KIND_LOG,
    QUEUED,
    RETRY_NEVER_MS,
    STATE_NAMES,
    Job,
    NamedJob,
)
from disqued.core.model.phases import ELSEWHERE, PHASES_OF_WORD, STATE_WORDS
from disqued.core.model.registry import TABLES
from disqued.core.model.terms import Terms as JobTerms
from disqued.errors import CommandError
from disqued.moves import Ask, Has, Refusal, Terms
from disqued.web.api.fields import JOB_IDS, VALUE, read_bytes, read_object, whole
from disqued.web.gateway import BODY_SEARCHED, SLICE_BYTES, SLICE_ROWS
from disqued.web.http.exchange import Request, Role, Schema, Visitor, object_of
from disqued.web.http.problems import Problem
from disqued.web.routes import route
from disqued.web.site import Site
from disqued.web.turns import next_turn
from disqued.web.views.cluster_answers import ask_all, missing_nodes

IDS_AT_ONCE: Final = 100  #: jobs of one command
MOVED_AT_ONCE: Final = 50  #: jobs that are copied at the same time
SAMPLE: Final = 20  #: ids that a dry run shows
FAILED_MAX: Final = 1_000  #: jobs that fail before the rest is left alone
LIMIT_MAX: Final = 100_000_000

_STATES: Final = {word.decode(): PHASES_OF_WORD[word] for word in STATE_WORDS}
#: What is looked at unless states are named: a job that is done, or not there yet, is left alone.
_USUAL: Final = _STATES["active"] | _STATES["queued"]
_MOVABLE: Final = frozenset({ACTIVE, QUEUED})
_FIELDS: Final = ("ids", "queue", "state", "older_than_s", "newer_than_s", "body_contains", "limit")
IDS_MAX: Final = 10_000  #: jobs that one filter names


@attrs.frozen
class JobFilter:
    """Which jobs are meant; what is None is no condition."""

    ids: tuple[bytes, ...] | None  #: these alone, each once
    queue: bytes | None
    phases: int | None  #: bits of phases
    older_than_ms: int | None
    newer_than_ms: int | None
    body_contains: bytes | None
    limit: int  #: jobs at most
    spares_copies: bool = False  #: jobs that are elsewhere are not meant, if another node holds them, too

    @property
    def is_open(self) -> bool:
        """True when every job is meant."""
        conditions = (self.ids, self.queue, self.phases, self.older_than_ms, self.newer_than_ms, self.body_contains)
        return all(condition is None for condition in conditions)

    def fits(self, job: Job, phase: int, wall: int) -> bool:
        """Tell whether a job in a phase is meant, its body aside; `wall` is unix milliseconds."""
        age = wall - job.ctime // 1_000_000
        return (
            # Of a dummy ack there is nothing to act on.
            not job.is_dummy
            and (_USUAL if self.phases is None else self.phases) >> phase & 1 != 0
            and not (self.spares_copies and phase == ELSEWHERE and len(job.holders or ()) > 1)
            and (self.queue is None or job.queue == self.queue)
            and (self.older_than_ms is None or age >= self.older_than_ms)
            and (self.newer_than_ms is None or age < self.newer_than_ms)
        )


def read_filter(given: Any, visitor: Visitor) -> JobFilter:
    """Read a filter.  Raises Problem 400, and 403 for bodies that the visitor may not see."""
    values = read_object(given, _FIELDS, "the filter")
    if "body_contains" in values and not visitor.sees_bodies:
        raise Problem(403, f"{visitor.name} may not see the bodies of jobs, and body_contains would tell of them")
    limit = whole("limit", values.get("limit", LIMIT_MAX))
    if not 1 <= limit <= LIMIT_MAX:
        raise Problem(400, f"limit is {limit}; allowed are whole numbers from 1 to {LIMIT_MAX}")
    return JobFilter(read_ids(values["ids"]) if "ids" in values else None,
                     read_bytes("queue", values["queue"]) if "queue" in values else None,
                     _read_states(values["state"]) if "state" in values else None, _read_age("older_than_s", values),
                     _read_age("newer_than_s", values),
                     read_bytes("body_contains", values["body_contains"]) if "body_contains" in values else None,
                     limit)  # fmt: skip


def read_ids(given: Any, most: int = IDS_MAX) -> tuple[bytes, ...]:
    """Read a list of job ids.  Raises Problem 400."""
    ids = [text.encode() for text in given if isinstance(text, str)] if isinstance(given, list) else []
    if not ids or len(ids) > most or len(ids) != len(given) or not all(map(is_job_id, ids)):
        raise Problem(400, f"ids: allowed are lists of 1 to {most} job ids")
    return tuple(dict.fromkeys(ids))


def _read_states(given: Any) -> int:
    known = isinstance(given, list) and all(isinstance(name, str) and name in _STATES for name in given)
    if not known or not given:
        raise Problem(400, f"state: allowed are lists of {', '.join(_STATES)}")
    return reduce(or_, (_STATES[name] for name in given))


def _read_age(name: str, values: Any) -> int | None:
    if name not in values:
        return None
    seconds = values[name]
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= 2**31:
        raise Problem(400, f"{name}: allowed are numbers of seconds from 0 to {2**31}")
    return round(seconds * 1_000)


#: Acts on jobs that were found in this turn, and notes in the run what came of it.
Act = Callable[["BulkRun", list[Job]], Awaitable[None]]


@attrs.define
class BulkRun:
    """One walk over the jobs."""

    site: Site
    visitor: Visitor
    wanted: JobFilter
    until: int | None = None  #: ctime of the newest job that is meant, where there was a dry run
    leaves_out: bytes | None = None  #: a queue whose jobs are not meant: that to which the others are moved
    newest: int = 0  #: ctime of the newest job that was found
    matched: int = 0
    done: int = 0
    failed: list[dict[str, Any]] = attrs.field(factory=list)

    @property
    def _is_over(self) -> bool:
        return self.matched >= self.wanted.limit or len(self.failed) >= FAILED_MAX

    async def walk(self, act: Act, most: int) -> None:
        """Find the jobs that are meant and hand them to `act`, at most so many at a time."""
        jobs = self._jobs()
        more = True
        while more and not self._is_over:
            found, more = self._slice(jobs, min(most, self.wanted.limit - self.matched))
            self.matched += len(found)
            if found:
                await act(self, found)
            await next_turn(self.site.gateway.turns)

    def _jobs(self) -> Iterator[Job]:
        """The jobs that are named, or every job of the node; a table is copied when the walk comes to it."""
        node = self.site.gateway.view
        if self.wanted.ids is not None:
            yield from filter(None, map(node.job, self.wanted.ids))
            return
        for number in range(TABLES):
            yield from node.jobs_of_table(number)

    def _slice(self, jobs: Iterator[Job], most: int) -> tuple[list[Job], bool]:
        """Look at as many jobs as one turn may; returns those that fit, and whether there may be more."""
        node = self.site.gateway.view
        wall = node.wall()
        found: list[Job] = []
        searched = 0
        for looked_at, job in enumerate(jobs, 1):
            # The table was copied in an earlier turn, perhaps: the job may be gone.
            if self._is_meant(job, wall) and node.job(job.id) is job:
                searched += 0 if self.wanted.body_contains is None else min(len(job.body), BODY_SEARCHED)
                if self._has_text(job.body):
                    found.append(job)
                    self.newest = max(self.newest, job.ctime)
            if looked_at >= SLICE_ROWS or len(found) >= most or searched >= SLICE_BYTES:
                return found, True
        return found, False

    def _has_text(self, body: bytes) -> bool:
        text = self.wanted.body_contains
        return text is None or body.find(text, 0, BODY_SEARCHED) >= 0

    def _is_meant(self, job: Job, wall: int) -> bool:
        return (
            (self.until is None or job.ctime <= self.until)
            and job.queue != self.leaves_out
            and self.wanted.fits(job, self.site.gateway.view.phases.of(job), wall)
        )

    def fail(self, ids: Iterable[bytes], error: CommandError | Refusal, detail: str = "") -> None:
        """Note that nothing came of some jobs, and why."""
        self.failed += [{"id": job_id, "code": error.code, "detail": detail or error.text} for job_id in ids]


_EVENT: Final = (
    "it is an event of a log, which each group of consumers is given until its time is over; QGROUP says where a group "
    "goes on, and QFLUSH empties the log"
)


def _with_ids(name: str, *, takes_events: bool = False) -> Act:
    async def act(run: BulkRun, jobs: list[Job]) -> None:
        if not takes_events:
            run.fail((job.id for job in jobs if job.options.kind == KIND_LOG), CommandError(_EVENT))
            jobs = [job for job in jobs if job.options.kind != KIND_LOG]
        if not jobs:
            return
        try:
            run.done += await run.site.call(run.visitor, name, *(job.id for job in jobs))
        except CommandError as error:
            run.fail((job.id for job in jobs), error)

    return act


async def _redrive(run: BulkRun, jobs: list[Job]) -> None:
    """Redrive dead jobs, queue by queue."""
    by_queue: dict[bytes, list[bytes]] = {}
    for job in jobs:
        by_queue.setdefault(job.queue, []).append(job.id)
    for queue, ids in by_queue.items():
        try:
            run.done += await run.site.call(run.visitor, "REDRIVE", queue, "ID", *ids)
        except CommandError as error:
            run.fail(ids, error)


# Moving.


def _move_to(queue: bytes) -> Act:
    async def act(run: BulkRun, jobs: list[Job]) -> None:
        movable = []
        for job in jobs:
            problem = _unmovable(job)
            if problem:
                run.fail([job.id], CommandError(problem))
            else:
                movable.append(_described(job, run.site.gateway.view.now()))
        if not movable:
            return
        tally = await _perform(run, moves.move_chosen(Terms(b"", queue), movable))
        run.done += tally.moved
        for moved, refusal in tally.refused:
            run.fail([moved.id], refusal)
        for moved, refusal in tally.both:
            detail = f"it is in both queues: the copy is made, and the old one is there: {refusal.text}"
            run.fail([moved.id], refusal, detail)

    return act


def _described(job: Job, now: int) -> moves.Job:
    """Describe a job to the machine; `now` is the clock of deadlines, in milliseconds."""
    options = job.options
    is_delayed = job.state == ACTIVE and not job.flags & FLAG_QUEUED_BEFORE and options.delay_ms
    return moves.Job(job.id, job.body, ttl_s=in_seconds(job.expires_at - now), retry_s=in_seconds(options.retry_ms),
                     replicate=options.replicate,
                     key=job.alias[1:] if isinstance(job, NamedJob) else moves.key_of(job.id),
                     delay_s=in_seconds(max(0, job.requeue_at - now)) if is_delayed else 0,
                     has=Has.QUEUE if job.state == QUEUED else Has.OTHERS, terms=_words_of(options.terms))  # fmt: skip


def _words_of(terms: JobTerms) -> moves.Words:
    """Return the options of ADDJOB for the terms of a job."""
    backoff = (in_seconds(terms.backoff_ms), in_seconds(terms.backoff_most_ms))
    headers = [word for header in terms.headers for word in header]
    return moves.words_of(terms.max_tries, backoff, in_seconds(terms.keep_dead_ms), in_seconds(terms.keep_result_ms),
                          headers, group=terms.group)  # fmt: skip


async def _perform(run: BulkRun, machine: moves.Machine[moves.Tally]) -> moves.Tally:
    """Run a machine by commands of the node, on both sides."""
    try:
        effect = next(machine)
        while True:
            try:
                answers = await _carry_out(run, effect)
            except BaseException as error:  # the visitor has gone
                effect = machine.throw(error)
            else:
                effect = machine.send(answers)
    except StopIteration as end:
        tally: moves.Tally = end.value
        return tally


async def _carry_out(run: BulkRun, effect: moves.Effect) -> list[Any]:
    """Run the commands of an effect; this node is never away, so there is nothing to wait for."""
    commands = effect.commands if isinstance(effect, Ask) else ()
    return list(await gatherResults([ensureDeferred(_ask(run, words)) for words in commands]))


async def _ask(run: BulkRun, words: moves.Words) -> Any:
    try:
        return await run.site.call(run.visitor, *words)
    except CommandError as error:
        return Refusal(error.code, error.text, error)


def _unmovable(job: Job) -> str:
    """Why a job cannot be moved; empty when it can."""
    if job.options.kind == KIND_LOG:
        return _EVENT
    if isinstance(job, NamedJob) and job.alias[:1] != KEYED:
        return "it has a name in its queue, which a copy in another queue would not have"
    if job.options.retry_ms >= RETRY_NEVER_MS:
        return "no timer queues it again, which ADDJOB has no word for; RQ.PUSHX adds such a job"
    if job.options.fate.is_cancelled:
        return "it is cancelled, and ends when its consumer is done with it"
    return "" if job.state in _MOVABLE else "only active and queued jobs can be moved"


# The routes.


class DryRun(NamedTuple):
    """What a dry run found."""

    until: int  #: ctime of the newest job
    matched: int  #: how many jobs


def token_of(action: str, body: Any, dry: DryRun) -> str:
    """What ties an act to its dry run: the filter, how many jobs were found, and the newest of them."""
    meant = json.dumps([action, body.get("filter"), body.get("to"), body.get("all", False), *dry], sort_keys=True)
    digest = hashlib.sha256(meant.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{dry.until:x}-{dry.matched:x}-{digest[:16]}"


def dry_run_of(action: str, body: Any) -> DryRun | None:
    """What the dry run found that the token is of; None where there was none.  Raises Problem 400, 409."""
    token = body.get("token")
    if token is None:
        return None
    text = token if isinstance(token, str) else ""
    try:
        until, matched, _ = text.split("-")
        dry = DryRun(int(until, 16), int(matched, 16))
    except ValueError:
        raise Problem(400, "token: allowed is what the dry run answered") from None
    if text != token_of(action, body, dry):
        raise Problem(409, "the token is of another dry run: action, filter, all and to have to be the same")
    return dry


def flag(body: Any, name: str, *, default: bool) -> bool:
    """Read a field that is true or false.  Raises Problem 400."""
    value = body.get(name, default)
    if not isinstance(value, bool):
        raise Problem(400, f"{name}: allowed are true and false")
    return value


def is_dry(body: Any) -> bool:
    """Return whether a request asks for the dry run.  Raises Problem 400."""
    dry = flag(body, "dry_run", default=True)
    if not dry and "token" not in body:
        raise Problem(400, 'the act needs the token that its dry run answered; "token": null acts without one')
    return dry


#: Narrows a filter that was read to what an action may touch, by the words that it has for states.
Narrow = Callable[[JobFilter, Sequence[str]], JobFilter]

_NOT_ELSEWHERE: Final = (
    "state: requeue does not take elsewhere: another node may have such a job in its queue, or with a consumer; allowed"
    f" are the others of {', '.join(_STATES)}, and ENQUEUE with the id of a job"
)


def _queued_unharmed(wanted: JobFilter, states: Sequence[str]) -> JobFilter:
    """Leave out delays that were not named, and jobs that other nodes hold, too.  Raises Problem 400."""
    if "elsewhere" in states:
        raise Problem(400, _NOT_ELSEWHERE)
    phases = _USUAL if wanted.phases is None else wanted.phases
    if "delayed" not in states:
        phases &= ~_STATES["delayed"]
    return attrs.evolve(wanted, phases=phases, spares_copies=True)


def _dead_alone(wanted: JobFilter, states: Sequence[str]) -> JobFilter:
    """Mean dead jobs alone.  Raises Problem 400 for other states."""
    if wanted.phases not in (None, _STATES["dead"]):
        raise Problem(400, "state: allowed for redrive is dead")
    return attrs.evolve(wanted, phases=_STATES["dead"])


async def _run(
    site: Site,
    asked: Request,
    action: str,
    act: Act,
    *,
    most: int,
    leaves_out: bytes | None = None,
    narrowed: Narrow | None = None,
) -> dict[str, Any]:
    """Do what a request for an action asks for: the dry run, or the act; `narrowed` is the filter, as the act has it.

    `narrowed` is given the words for states.
    """
    body = asked.body
    wanted = read_filter(body.get("filter", {}), asked.visitor)
    if narrowed is not None:
        wanted = narrowed(wanted, body.get("filter", {}).get("state", ()))
    dry = is_dry(body)
    means_all = flag(body, "all", default=False)
    if wanted.is_open and not means_all:
        raise Problem(400, f'the filter has no condition and fits every job; say "all": true, or one of {_CONDITIONS}')
    before = dry_run_of(action, body)
    if before is not None and not dry:
        # Nothing that came since, and no more than was said.
        wanted = attrs.evolve(wanted, limit=min(wanted.limit, before.matched))
    run = BulkRun(site, asked.visitor, wanted, None if before is None else before.until, leaves_out)
    if not dry:
        await run.walk(act, most)
        return {"dry_run": False, "matched": run.matched, "done": run.done, "failed": run.failed}
    sample: list[bytes] = []

    async def note(_: BulkRun, jobs: list[Job]) -> None:
        sample.extend(job.id for job in jobs[: SAMPLE - len(sample)])

    await run.walk(note, SLICE_ROWS)
    incomplete = [] if action in _THIS_NODE else await not_reached(site, wanted.queue)
    return {"dry_run": True, "matched": run.matched, "sample": sample, "incomplete": incomplete,
            "token": token_of(action, body, DryRun(run.newest, run.matched))}  # fmt: skip


_THIS_NODE: Final = frozenset({"delete", "requeue"})  #: actions that other nodes have no part in


async def not_reached(site: Site, queue: bytes | None) -> list[str]:
    """Say in sentences which nodes an action would not reach now; they are asked for a queue."""
    reply = await ask_all(site.everywhere, site.gateway.view, b"QLEN", queue or b"")
    missing = missing_nodes(site.gateway.view, reply)
    return [f"{one.sentence} It is not reached: jobs that it alone holds stay as they are." for one in missing]


_CONDITIONS: Final = ", ".join(_FIELDS[:-1])
_AGE: Final[Schema] = {"type": "number", "minimum": 0, "maximum": 2**31}
_FILTER: Final[Schema] = object_of(
    "All of the conditions have to hold.",
    ids={
        "type": "array", "items": JOB_IDS, "minItems": 1, "maxItems": IDS_MAX, "description": "These jobs.",
    },
    queue={**VALUE, "description": "Jobs of this queue."},
    state={
        "type": "array", "items": {"enum": list(_STATES)}, "minItems": 1,
        "description": "Jobs in one of these states; active (in-flight, delayed and elsewhere) and queued (ready)"
        " unless given.",
    },
    older_than_s={**_AGE, "description": "Jobs created this many seconds ago, or more."},
    newer_than_s={**_AGE, "description": "Jobs created less than this many seconds ago."},
    body_contains={
        **VALUE,
        "description": f"Jobs with these bytes in the first {BODY_SEARCHED} of their body; needs the right to see "
        "bodies.",
    },
    limit={"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "description": "Jobs at most, any of those."},
    optional=_FIELDS,
)  # fmt: skip
BODY: Final[dict[str, Any]] = {
    "filter": _FILTER,
    "all": {"type": "boolean", "default": False, "description": "Needed for a filter without a condition."},
    "dry_run": {"type": "boolean", "default": True, "description": "false: act."},
    "token": {
        "type": ["string", "null"],
        "description": "Needed for the act: what the dry run answered. The act is refused for another filter, acts on "
        "no more jobs than were counted, and leaves those alone that were added since. null: act without a dry run.",
    },
}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_TEXT: Final[Schema] = {"type": "string"}
_FAILED: Final[Schema] = {"type": "array", "items": object_of(id=_TEXT, code=_TEXT, detail=_TEXT)}
_SAMPLE: Final[Schema] = {"type": "array", "items": _TEXT}
REPLY: Final[Schema] = {
    "oneOf": [
        object_of(
            dry_run={"const": True},
            matched=_COUNT,
            sample=_SAMPLE,
            incomplete={
                "type": "array",
                "items": _TEXT,
                "description": "Why jobs are left out, in sentences, as those of nodes that do not answer.",
            },
            token=_TEXT,
        ),
        object_of(dry_run={"const": False}, matched=_COUNT, done=_COUNT, failed=_FAILED),
    ]
}


def _declare(
    action: str, command: str, summary: str, doc: str, *, takes_events: bool = False, narrowed: Narrow | None = None
) -> None:
    """Declare the route of an action that a command with ids does."""
    act = _with_ids(command, takes_events=takes_events)

    async def bulk(site: Site, asked: Request) -> dict[str, Any]:
        read_object(asked.body, BODY)
        return await _run(site, asked, action, act, most=IDS_AT_ONCE, narrowed=narrowed)

    route("POST", f"/api/bulk/{action}", role=Role.OPERATOR, summary=summary, doc=f"{doc}  {_HOW}",
          body=object_of(optional=BODY, **BODY), reply=REPLY, tag="bulk", writes=True, errors=ERRORS,
          commands=(command,),
          example={"filter": {"queue": "mail", "state": ["in-flight"], "older_than_s": 600}})(bulk)  # fmt: skip


ERRORS: Final = ("ERR", "TRYAGAIN", "LOADING")
_HOW: Final = (
    "Unless dry_run is false nothing is changed: the answer counts the jobs and shows some ids, and a token for the "
    "act.  The act answers how many jobs fitted, to how many of them the action applied, and which failed and why; "
    f"after {FAILED_MAX} failures the rest is left alone.  Hanging up ends it where it is."
)
_declare("requeue", "ENQUEUE", "Queue every job that fits",
         "ENQUEUE: jobs that consumers of this node have, or that were taken out of its queue, are queued now; those"
         " that wait stay.  Delays end if the filter names the state delayed, and not with active or without a state."
         "  Jobs that another node holds, too, and that no consumer of this one has are left alone: they may be in its"
         " queue or with a consumer of it.  So the state elsewhere is refused.",
         narrowed=_queued_unharmed)  # fmt: skip
_declare("delete", "DELJOB", "Drop every job that fits from this node", "DELJOB: other nodes that hold a job keep it.",
         takes_events=True)  # fmt: skip
_declare("ack", "ACKJOB", "Acknowledge every job that fits",
         "ACKJOB: they are done, on every node, and are never delivered again.")  # fmt: skip


@route("POST", "/api/bulk/redrive", role=Role.OPERATOR, summary="Queue every dead job that fits again",
       body=object_of(optional=BODY, **BODY), reply=REPLY, tag="bulk", writes=True, errors=ERRORS,
       commands=("REDRIVE",), example={"filter": {"queue": "mail"}})  # fmt: skip
async def redrive(site: Site, asked: Request) -> dict[str, Any]:
    """REDRIVE: dead jobs that this node holds begin again, whichever node queues them; their tries count afresh.

    The only state of the filter is dead, which need not be named.  Unless dry_run is false nothing is changed: the
    answer counts the jobs.
    """
    read_object(asked.body, BODY)
    return await _run(site, asked, "redrive", _redrive, most=IDS_AT_ONCE, narrowed=_dead_alone)


@route("POST", "/api/bulk/move", role=Role.OPERATOR, summary="Move every job that fits to another queue",
       body=object_of(optional=BODY, **BODY, to={**VALUE, "description": "The queue to move to."}), reply=REPLY,
       tag="bulk", writes=True, errors=ERRORS, commands=("ADDJOB", "ACKJOB", "CANCEL", "DEQUEUE", "NACK"),
       example={"filter": {"queue": "mail"}, "to": "post"})  # fmt: skip
async def move(site: Site, asked: Request) -> dict[str, Any]:
    """Add each job to the other queue, then end the old one: a job whose copy is refused stays, and no try is counted.

    RETRY, REPLICATE, the terms, the key, what is left of TTL, and what is left of a DELAY are kept; the id, the
    counters and the place in the queue are new.  An old job with terms is cancelled, any other one is acknowledged.

    A job without a key is added with the key `move/<id>`, as `disqued move` does it: a move that a crash has ended is
    run again, and adds nothing twice as long as the copies are there.  Nothing is lost, and no consumer receives a
    waiting job while it is moved; a job that a consumer has already may be done twice.  Jobs with RETRY 0, which must
    not, are not moved but told in `failed`; `disqued move` moves them.  Jobs that are in that queue already are left
    out.
    """
    body = read_object(asked.body, [*BODY, "to"])
    if "to" not in body:
        raise Problem(400, "the field to is needed: the queue to move to")
    queue = read_bytes("to", body["to"])
    return await _run(site, asked, "move", _move_to(queue), most=MOVED_AT_ONCE, leaves_out=queue)


_PURGED: Final = ("queue", "state")
_ENDED: Final = tuple(name.decode() for state, name in STATE_NAMES.items() if ALL_STATES >> state & 1)
_PURGE_BODY: Final[dict[str, Any]] = {
    "filter": object_of(
        "Which jobs are meant.",
        queue={**VALUE, "description": "Jobs of this queue."},
        state={
            "type": "array", "items": {"enum": list(_ENDED)}, "minItems": 1,
            "description": "Jobs in one of these states; in each of them unless given.",
        },
        optional=("state",),
    ),
    "dry_run": BODY["dry_run"],
    "token": {
        "type": ["string", "null"],
        "description": "Needed for the act: what the dry run of the same filter answered. null: act without a dry run.",
    },
}  # fmt: skip


@route("POST", "/api/bulk/purge", role=Role.OPERATOR, summary="End the jobs of a queue on all nodes",
       body=object_of(optional=("dry_run", "token"), **_PURGE_BODY), reply=REPLY, tag="bulk", writes=True,
       errors=(*ERRORS, "WRONGTYPE"), commands=("QPURGE",), example={"filter": {"queue": "mail"}})  # fmt: skip
async def purge(site: Site, asked: Request) -> dict[str, Any]:
    """QPURGE: the jobs are cancelled on every node of the cluster, so that no copy comes back.

    Unless dry_run is false the answer counts the jobs of all nodes, each once, and nothing is changed.  The act answers
    how many jobs ended; it ends those that were added since the dry run, too.
    """
    body = read_object(asked.body, _PURGE_BODY)
    given = read_object(body.get("filter", {}), _PURGED, "the filter")
    dry = is_dry(body)
    dry_run_of("purge", body)
    if "queue" not in given:
        raise Problem(400, "the field queue of the filter is needed: the queue to purge")
    states = given.get("state", list(_ENDED))
    if not isinstance(states, list) or not states or not all(name in _ENDED for name in states):
        raise Problem(400, f"state: allowed are lists of {', '.join(_ENDED)}")
    queue = read_bytes("queue", given["queue"])
    words = [b"QPURGE", queue, *(word for name in states for word in ("STATE", name))]
    matched = await site.call(asked.visitor, *words, *(("DRYRUN",) if dry else ()))
    if not dry:
        return {"dry_run": False, "matched": matched, "done": matched, "failed": []}
    incomplete = await not_reached(site, queue)
    return {"dry_run": True, "matched": matched, "sample": [], "incomplete": incomplete,
            "token": token_of("purge", body, DryRun(0, matched))}  # fmt: skip
