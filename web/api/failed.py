"""Failing and dead jobs of the whole cluster: lists, an export, and actions on those that fit a filter.

    {"filter": {"queue": "mail", "reason": "timeout"}}                     -> {"matched": 42, ...}
    {"filter": {...}, "dry_run": false, "token": "<of the dry run>"}       -> {"done": 42, ...}

Requests and replies are those of `bulk`, and so are the rules for the dry run and its token.  The jobs are those that
`views.failed_jobs` lists, on whatever node they are.  REDRIVE and CANCEL reach the nodes that hold a job; ENQUEUE and
NACK apply to jobs of which a node has a copy, so that the node that knows most of a job is asked (CLUSTER ASK).  Jobs
of a node that does not answer are told in `failed`.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import attrs

from disqued.errors import CommandError
from disqued.web.api import bulk
from disqued.web.api.acts import on_node
from disqued.web.api.bulk import IDS_AT_ONCE, SAMPLE, DryRun, dry_run_of, flag, is_dry, read_ids, token_of
from disqued.web.api.fields import JOB_IDS, VALUE, read_bytes, read_object
from disqued.web.api.objects import JOB, job_object, shown_to
from disqued.web.http.bodies import Body, JSONWriter
from disqued.web.http.exchange import Reply, Request, Role, Schema, object_of
from disqued.web.http.problems import Problem
from disqued.web.http.values import BYTES
from disqued.web.routes import route
from disqued.web.site import Site
from disqued.web.views.failed_jobs import DEAD, FAILING, FILTERS, PAGE, FailedJob, FailedPage, FailedQuery, read_since

LINES: Final = "application/x-ndjson"
NAMED_MAX: Final = 1_000  #: jobs that one filter names
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_TEXT: Final[Schema] = {"type": "string"}
_LIST: Final[Schema] = object_of(
    found={**_COUNT, "description": "Jobs that fit, each once."}, page=_COUNT, pages=_COUNT,
    incomplete={
        "type": "array", "items": _TEXT, "description": "Why jobs may be left out, in sentences; empty if none are."
    },
    jobs={
        "type": "array",
        "items": object_of(
            id=_TEXT, queue=BYTES, phase={**_TEXT, "description": "Where it is, for the node that knows most of it."},
            node={**_TEXT, "description": "That node."},
            holders={"type": "array", "items": _TEXT, "description": "Nodes that told of it."},
            tries={**_COUNT, "description": "Tries since it was added, or redriven."},
            max_tries={**_COUNT, "description": "0 = no limit."},
            failed_at={**_COUNT, "description": "The last failure, unix milliseconds; 0 = none is known."},
            who={**BYTES, "description": "Name or address of the consumer; empty = the node noticed it."},
            reason=BYTES,
            next_ms={
                "type": ["integer", "null"], "minimum": 0,
                "description": "Milliseconds until it is queued again; null: it is queued, with a consumer, or dead.",
            },
            kept_ms={**_COUNT, "description": "Milliseconds until it is dropped."},
        ),
    },
)  # fmt: skip


async def _listed(site: Site, asked: Request, kind: str) -> Reply:
    found = await site.failed.find(FailedQuery.of(asked, kind))
    cut = FailedPage.of(found.jobs, asked.query.get("page", 1))
    return await site.json(
        {"found": cut.count, "page": cut.page, "pages": cut.pages, "incomplete": found.gaps,
         "jobs": [_object(job) for job in cut.rows]}
    )  # fmt: skip


def _object(job: FailedJob) -> dict[str, Any]:
    return {"id": job.id, "queue": job.queue, "phase": job.phase, "node": job.node_id, "holders": list(job.holders),
            "tries": job.tries, "max_tries": job.max_tries, "failed_at": job.failed_at, "who": job.who,
            "reason": job.reason, "next_ms": job.next_ms, "kept_ms": job.kept_ms}  # fmt: skip


@route("GET", "/api/failing", role=Role.VIEWER, summary="Failing jobs of all nodes", reply=_LIST, tag="jobs",
       query=(*FILTERS, PAGE), at="/api/failing?queue=mail", commands=("CLUSTER ASK", "JSCAN"))  # fmt: skip
async def failing(site: Site, asked: Request) -> Reply:
    """Jobs that have failed and are not dead, each once, the newest failure first.

    Nodes keep failures of jobs with terms, and of those that NACK with an option returned.
    """
    return await _listed(site, asked, FAILING)


@route("GET", "/api/dead", role=Role.VIEWER, summary="Dead jobs of all nodes", reply=_LIST, tag="jobs",
       query=(*FILTERS, PAGE), at="/api/dead?queue=mail", commands=("CLUSTER ASK", "JSCAN"))  # fmt: skip
async def dead(site: Site, asked: Request) -> Reply:
    """Dead letters, each once, those first that died last."""
    return await _listed(site, asked, DEAD)


@route("GET", "/api/dead/export", role=Role.VIEWER, summary="Dead jobs of all nodes as JSON lines", media=LINES,
       reply=JOB, tag="jobs", query=FILTERS, at="/api/dead/export?queue=mail",
       commands=("CLUSTER ASK", "JSCAN"))  # fmt: skip
async def export(site: Site, asked: Request) -> Reply:
    """A line for each job: what SHOW tells of it, as the node that knows most of it does, with its body.

    A user without the right to see bodies gets the lines without them.  If jobs may be missing, the last line says why:
    {"incomplete": ["..."]}.
    """
    found, rows = await site.failed.describe(FailedQuery.of(asked, DEAD))
    body = Body(site.kept)
    try:
        for row in rows:
            words = [word for name, value in row.items() for word in (name.encode(), value)]
            await JSONWriter(site.gateway.turns, body).write(shown_to(asked.visitor, job_object(words)))
            body.add(b"\n")
        why = found.gaps
        if why:
            await JSONWriter(site.gateway.turns, body).write({"incomplete": why})
            body.add(b"\n")
    except BaseException:
        body.close()
        raise
    headers = {"Content-Disposition": 'attachment; filename="dead-jobs.jsonl"'}
    return Reply(body.next_piece() if body.is_short else body, LINES, headers=headers)


# Actions.

_FILTERED: Final = ("ids", "queue", "reason", "since")
_BODY: Final[dict[str, Any]] = {
    "filter": object_of(
        "All of the conditions have to hold.",
        ids={
            "type": "array", "items": JOB_IDS, "minItems": 1, "maxItems": NAMED_MAX, "description": "These jobs.",
        },
        queue={**VALUE, "description": "Jobs of this queue, or of those that this glob covers."},
        reason={**_TEXT, "description": "Jobs with this in the reason of their last failure, in any case."},
        since={**_TEXT, "description": "Jobs that failed then or later; a moment in UTC, such as 2026-11-28T12:00."},
        optional=_FILTERED,
    ),
    **{name: bulk.BODY[name] for name in ("all", "dry_run", "token")},
}  # fmt: skip


@attrs.define
class _Tally:
    """What came of an action."""

    done: int = 0
    failed: list[dict[str, Any]] = attrs.field(factory=list)

    def fail(self, ids: Sequence[bytes], problem: Problem) -> None:
        """Note that nothing came of some jobs, and why."""
        self.failed += [{"id": job_id, "code": problem.code, "detail": problem.detail} for job_id in ids]


#: Acts on some jobs of one queue, or of one node.
Act = Callable[[Site, Request, _Tally, bytes, list[bytes]], Awaitable[None]]


@attrs.frozen(kw_only=True)
class _Action:
    """What can be done with the jobs of a list."""

    kind: str  #: FAILING or DEAD
    word: str  #: the last of the path
    command: str
    act: Act
    phases: Sequence[str] = ()  #: of the jobs that it is for; empty = any
    others: str = ""  #: why other jobs are left out, after "because they"
    by_node: bool = False  #: it applies to jobs of which a node has a copy, and is not told others

    @property
    def name(self) -> str:
        """The path, behind that of the API."""
        return f"{self.kind}/{self.word}"


async def _redrive(site: Site, asked: Request, tally: _Tally, queue: bytes, ids: list[bytes]) -> None:
    tally.done += await site.call(asked.visitor, "REDRIVE", queue, "ID", *ids)


async def _cancel(site: Site, asked: Request, tally: _Tally, queue: bytes, ids: list[bytes]) -> None:
    words = await site.call(asked.visitor, "CANCEL", *ids)
    for job_id, word in zip(ids, words, strict=True):
        if word in {b"cancelled", b"cancelling"}:
            tally.done += 1
        else:
            tally.fail([job_id], Problem.of(CommandError(f"CANCEL answered {word.decode()}")))


async def _enqueue(site: Site, asked: Request, tally: _Tally, node_id: bytes, ids: list[bytes]) -> None:
    tally.done += await on_node(site, asked, node_id, "ENQUEUE", *ids)


async def _bury(site: Site, asked: Request, tally: _Tally, node_id: bytes, ids: list[bytes]) -> None:
    why = _why(asked)
    reason = () if why is None else ("REASON", why)
    tally.done += await on_node(site, asked, node_id, "NACK", *ids, "DEAD", *reason)


def _why(asked: Request) -> bytes | None:
    """The reason of an action; None = none is given.  Raises Problem 400."""
    return read_bytes("why", asked.body["why"]) if "why" in asked.body else None


def _read(asked: Request, kind: str) -> FailedQuery:
    """Read the filter of an action.  Raises Problem 400."""
    given = read_object(asked.body.get("filter", {}), _FILTERED, "the filter")
    reason, since = given.get("reason", ""), given.get("since", "")
    for name, value in (("reason", reason), ("since", since)):
        if not isinstance(value, str):
            raise Problem(400, f"{name}: allowed is text")
    wanted = FailedQuery(kind, read_bytes("queue", given.get("queue", "")), reason, read_since(since),
                         frozenset(read_ids(given["ids"], NAMED_MAX)) if "ids" in given else None)  # fmt: skip
    means_all = flag(asked.body, "all", default=False)
    if not (means_all or wanted.queue or wanted.reason or wanted.since or wanted.ids):
        conditions = ", ".join(_FILTERED)
        raise Problem(400, f'the filter has no condition and fits every job; say "all": true, or one of {conditions}')
    return wanted


async def _run(site: Site, asked: Request, action: _Action) -> dict[str, Any]:
    """Do what a request asks for: the dry run, or the act."""
    wanted, dry = _read(asked, action.kind), is_dry(asked.body)
    _why(asked)
    before = dry_run_of(action.name, asked.body)
    found = await site.failed.find(wanted)
    if found.failure:
        raise Problem(503, f"the nodes cannot be asked now: {found.failure}", code="TRYAGAIN")
    jobs = [job for job in found.jobs if not action.phases or job.phase in action.phases]
    if dry:
        last = DryRun(max((job.failed_at for job in jobs), default=0), len(jobs))
        spared = len(found.jobs) - len(jobs)
        left_out = [f"Left out, because they {action.others}: {spared}."] if spared else []
        return {"dry_run": True, "matched": len(jobs), "sample": [job.id for job in jobs[:SAMPLE]],
                "incomplete": [*left_out, *found.gaps],
                "token": token_of(action.name, asked.body, last)}  # fmt: skip
    if before is not None:
        # Nothing that came since, and no more than was said.
        jobs = [job for job in jobs if job.failed_at <= before.until][: before.matched]
    tally = _Tally()
    parts: dict[bytes, list[bytes]] = {}
    for job in jobs:
        parts.setdefault(job.node_id if action.by_node else job.queue, []).append(job.id)
    for part, ids in parts.items():
        for at in range(0, len(ids), IDS_AT_ONCE):
            some = ids[at : at + IDS_AT_ONCE]
            try:
                await action.act(site, asked, tally, part, some)
            except CommandError as error:
                tally.fail(some, Problem.of(error))
            except Problem as problem:
                if not action.by_node:
                    raise
                tally.fail(some, problem)
    return {"dry_run": False, "matched": len(jobs), "done": tally.done, "failed": tally.failed}


def _declare(action: _Action, summary: str, doc: str, **more: Schema) -> None:
    """Declare the route of an action; `more` are fields of its own."""
    fields = {**_BODY, **more}

    async def run(site: Site, asked: Request) -> dict[str, Any]:
        read_object(asked.body, fields)
        return await _run(site, asked, action)

    route("POST", f"/api/{action.name}", role=Role.OPERATOR, summary=summary, doc=f"{doc}  {_HOW}",
          body=object_of(optional=fields, **fields), reply=bulk.REPLY, tag="bulk", writes=True, errors=bulk.ERRORS,
          commands=(action.command, "CLUSTER ASK", "JSCAN"), example={"filter": {"queue": "mail"}})(run)  # fmt: skip


_HOW: Final = (
    "Unless dry_run is false nothing is changed: the answer counts the jobs and shows some ids, and a token for the "
    "act.  The act leaves alone what failed since, and answers to how many jobs it applied, and which failed and why."
)
_ASKED: Final = "The node that knows most of a job is asked; jobs of one that does not answer are told in failed."
_declare(
    _Action(kind=DEAD, word="redrive", command="REDRIVE", act=_redrive), "Queue dead jobs again, on all nodes",
    "REDRIVE: they begin again, whichever node holds them; their tries count afresh.",
)  # fmt: skip
_declare(
    _Action(kind=DEAD, word="purge", command="CANCEL", act=_cancel), "End dead jobs on all nodes",
    "CANCEL: they end on every node, and no copy comes back.",
)  # fmt: skip
_declare(
    _Action(kind=FAILING, word="retry", command="ENQUEUE", act=_enqueue, phases=("delayed",), by_node=True,
            others="wait in their queue or are being tried"),
    "Try failing jobs now", f"ENQUEUE: those that wait for their next try are queued now.  {_ASKED}",
)  # fmt: skip
_declare(
    _Action(kind=FAILING, word="bury", command="NACK", act=_bury, phases=("delayed", "ready"), by_node=True,
            others="are being tried"),
    "Make failing jobs dead letters",
    f"NACK with DEAD: they are not tried again before REDRIVE.  Jobs with consumers are left alone.  {_ASKED}",
    why={**VALUE, "description": "REASON of NACK."},
)  # fmt: skip
_declare(
    _Action(kind=FAILING, word="cancel", command="CANCEL", act=_cancel), "Cancel failing jobs, on all nodes",
    "CANCEL: they end on every node; one that a consumer has ends once it is returned or its time is over.",
)  # fmt: skip
