"""Reads of the JSON API: each is a command of the table, or several.

`acts`, `bulk`, `commands_api` and `openapi` declare the other operations; they are imported with this module.

A queue stands in a path, where its bytes are quoted with %, or in the query: ``/api/qstat?queue=``, which is how a
queue without a name, or one called ``.`` or ``..``, is reached by programs that tidy up paths.
"""

from collections.abc import Callable
from typing import Any, Final

from disqued.core.model.messages import Vitals
from disqued.core.model.phases import STATE_WORDS
from disqued.web.api import acts as api_acts  # noqa: F401 - they declare their routes
from disqued.web.api import (
    bulk,  # noqa: F401 - they declare their routes
    commands_api,  # noqa: F401 - they declare their routes
    failed,  # noqa: F401 - they declare their routes
    openapi,  # noqa: F401 - they declare their routes
)
from disqued.web.api.objects import JOB, PEEKED, POLICY, QUEUE, by_name, job_object, peeked, shown_to, without_secrets
from disqued.web.http.exchange import QueryParameter, Reply, Request, Role, Schema, object_of
from disqued.web.http.problems import Problem
from disqued.web.http.values import BYTES
from disqued.web.routes import Act, route
from disqued.web.site import Site
from disqued.web.turns import next_turn

PAGE_MAX: Final = 1_000  #: elements of a page of a scan
FULL_MAX: Final = 250  #: of one with descriptions
SCANNED_PER_TURN: Final = 100  #: names or ids that one command of a walk finds, as a hint
SHOWN_PER_TURN: Final = 25  #: descriptions made ready before others have their turn
ASKED_PER_TURN: Final = 10  #: queues that QSTAT is asked of before that
PEEK_MAX: Final = 250

_JOB_SORTS: Final = ("id", "queue", "state", "phase", "ctime", "ttl", "nacks", "additional-deliveries")
_QUEUE_SORTS: Final = (
    "name", "len", "age", "idle", "blocked", "import-rate", "jobs-in", "jobs-out", "ctime", "delayed", "in-flight",
    "elsewhere", "done", "dead", "oldest",
)  # fmt: skip
_QUEUE: Final = QueryParameter("queue", "The queue; its bytes quoted with %.", {"type": "string", "format": "bytes"})
_CURSOR: Final = QueryParameter(
    "cursor", "What the page before answered; 0, or nothing, to begin.", {"type": "integer", "minimum": 0}
)
_REPLY: Final = QueryParameter("reply", "id: names or ids alone; all: descriptions, and pages of about 250 at most.",
                               {"type": "string", "enum": ["id", "all"], "default": "id"})  # fmt: skip
_COUNT: Final = QueryParameter(
    "count", "Elements wanted, as a hint; a page may hold fewer, or none, and the walk still goes on.",
    {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": 100})  # fmt: skip
_WHOLE: Final[Schema] = {"type": "integer"}


def _page_of(one: Schema, described: Schema) -> Schema:
    return object_of(
        cursor={"type": "integer", "minimum": 0, "description": "To go on with; 0 = the walk is over."},
        items={"type": "array", "items": {"anyOf": [one, described]}},
    )


def _sort(fields: tuple[str, ...], alone: str) -> QueryParameter:
    words = [f"{sign}{field}" for field in fields for sign in ("", "-")]
    doc = f"Order within the page, downwards with a minus; without reply=all by {alone} alone."
    return QueryParameter("sort", doc, {"type": "string", "enum": words})


def queue_route(
    path: str, *, query: tuple[QueryParameter, ...] = (), at: str = "", **more: Any
) -> Callable[[Act], Act]:
    """Enter a route on one queue twice: with the queue in the path, and in the query."""

    def enter(act: Act) -> Act:
        route("GET", f"{path}/<queue>", query=query, at=f"{path}/mail{at}", **more)(act)
        second = at.replace("?", "&", 1)
        route("GET", path, query=(_QUEUE, *query), at=f"{path}?queue=mail{second}", **more)(act)
        return act

    return enter


def queue_of(asked: Request) -> bytes:
    """The queue that a path or a query names; a path that ends with a slash names the one without a name."""
    if "queue" in asked.path:
        return asked.path["queue"]
    if "queue" in asked.query:
        return bytes(asked.query["queue"])
    if asked.request.path.endswith(b"/"):
        return b""
    raise Problem(400, "which queue? Give it in the path, or as ?queue=")


@queue_route("/api/qstat", role=Role.VIEWER, summary="Statistics of a queue on this node", reply=QUEUE, tag="queues",
             commands=("QSTAT",), errors=("NOQUEUE",))  # fmt: skip
async def qstat(site: Site, asked: Request) -> dict[str, Any]:
    """What QSTAT with FULL answers, as an object."""
    queue = queue_of(asked)
    values = await site.call(asked.visitor, "QSTAT", queue, "FULL")
    if values is None:
        raise Problem.no_queue(queue)
    return by_name(values)


@queue_route("/api/qpolicy", role=Role.VIEWER, summary="The policy of a queue in the whole cluster", reply=POLICY,
             tag="queues", commands=("QPOLICY",))  # fmt: skip
async def qpolicy(site: Site, asked: Request) -> dict[str, Any]:
    """What QPOLICY GET answers: the fields that are set; none for a queue without a policy."""
    queue = queue_of(asked)
    rows = await site.call(asked.visitor, "QPOLICY", queue, "GET")
    return {"queue": queue, "fields": [dict(zip(("name", "value", "node", "at"), row, strict=True)) for row in rows]}


@queue_route(
    "/api/qpeek", role=Role.VIEWER, summary="Jobs that wait in a queue, without taking them", tag="queues",
    commands=("QPEEK",),
    query=(
        QueryParameter(
            "count", "How many, oldest first; a negative number: newest first.",
            {"type": "integer", "minimum": -PEEK_MAX, "maximum": PEEK_MAX, "default": 10},
        ),
        QueryParameter("dead", "true: its dead jobs, those first that failed last.", {"type": "boolean"}),
    ),
    at="?count=-5",
    reply=object_of(queue=BYTES, jobs={"type": "array", "items": PEEKED}),
)  # fmt: skip
async def qpeek(site: Site, asked: Request) -> Reply:
    """No jobs for a queue that is not there.  A page ends once names and bodies are a mebibyte together."""
    queue = queue_of(asked)
    rows = await site.call(asked.visitor, "QPEEK", queue, asked.query.get("count", 10),
                           *(("DEAD",) if asked.query.get("dead") else ()))  # fmt: skip
    jobs = [peeked(asked.visitor, row) for row in rows]
    return await site.json({"queue": queue, "jobs": jobs})


@route("GET", "/api/show/<id>", role=Role.VIEWER, summary="A job as this node knows it", reply=JOB, tag="jobs",
       commands=("SHOW",), errors=("NOJOB", "BADID"),
       at="/api/show/DI0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0SQ")  # fmt: skip
async def show(site: Site, asked: Request) -> dict[str, Any]:
    """What SHOW answers, as an object."""
    values = await site.call(asked.visitor, "SHOW", asked.path["id"])
    if values is None:
        raise Problem.no_job(asked.path["id"])
    return shown_to(asked.visitor, job_object(values))


@route(
    "GET", "/api/scan/jobs", role=Role.VIEWER, summary="Walk over the jobs of this node", tag="jobs",
    commands=("JSCAN",),
    query=(
        _CURSOR, _COUNT,
        QueryParameter(
            "state", "Only jobs in this state; may be given several times.",
            {"type": "string", "enum": [word.decode() for word in STATE_WORDS]}, repeats=True,
        ),
        QueryParameter("queue", "Only jobs of this queue.", {"type": "string", "format": "bytes"}),
        QueryParameter("maxidle", "Only jobs that were added, queued or handed out within this many seconds.", _WHOLE),
        _REPLY, _sort(_JOB_SORTS, "id"),
    ),
    at="/api/scan/jobs?state=queued&state=active&reply=all&sort=-ctime", reply=_page_of({"type": "string"}, JOB),
)  # fmt: skip
async def scan_jobs(site: Site, asked: Request) -> Reply:
    """A job that is there throughout the walk is met at least once.  The walk is over when the cursor is 0."""
    full = asked.query.get("reply") == "all"
    words = _scan_words(asked, ("maxidle", "queue"))
    for state in asked.query.get("state", ()):
        words += ["STATE", state]
    most = FULL_MAX if full else PAGE_MAX
    cursor, found = await _scanned(site, asked, "JSCAN", [*words, "REPLY", "ALL" if full else "ID"], most)
    items = await _shown(site, asked, found) if full else found
    items = _sorted(items, asked.query.get("sort"), full=full, alone="id")
    return await site.json({"cursor": int(cursor), "items": items})


@route(
    "GET", "/api/scan/queues", role=Role.VIEWER, summary="Walk over the queues of this node", tag="queues",
    commands=("QSCAN",),
    query=(
        _CURSOR, _COUNT,
        QueryParameter("minlen", "Only queues with at least this many jobs.", _WHOLE),
        QueryParameter("maxlen", "Only queues with at most this many jobs.", _WHOLE),
        QueryParameter("importrate", "Only queues that import this many jobs a second.", _WHOLE),
        QueryParameter("maxidle", "Only queues used within this many seconds.", _WHOLE),
        _REPLY, _sort(_QUEUE_SORTS, "name"),
    ),
    at="/api/scan/queues?minlen=1&reply=all&sort=-len", reply=_page_of(BYTES, QUEUE),
)  # fmt: skip
async def scan_queues(site: Site, asked: Request) -> Reply:
    """Queues, in the order in which the node heard of them.  The walk is over when the cursor is 0.

    Queues that the node does not have while it knows jobs of them, such as delayed ones, have `ctime` 0.
    """
    full = asked.query.get("reply") == "all"
    words = _scan_words(asked, ("minlen", "maxlen", "importrate", "maxidle"))
    cursor, found = await _scanned(site, asked, "QSCAN", [*words, "REPLY", "KNOWN"], FULL_MAX if full else PAGE_MAX)
    items = await _described(site, asked, found) if full else found
    items = _sorted(items, asked.query.get("sort"), full=full, alone="name")
    return await site.json({"cursor": int(cursor), "items": items})


Words = list[bytes | str | int]


def _scan_words(asked: Request, options: tuple[str, ...]) -> Words:
    words: Words = []
    for option in options:
        if option in asked.query:
            words += [option, asked.query[option]]
    return words


async def _scanned(site: Site, asked: Request, name: str, words: Words, most: int) -> tuple[int, list[Any]]:
    """A page of a walk, taken by several commands in turns of their own: the next cursor, and what was found."""
    cursor, left = asked.query.get("cursor", 0), min(asked.query.get("count", 100), most)
    page: list[Any] = []
    while True:
        count = min(left - len(page), SCANNED_PER_TURN)
        text, found = await site.call(asked.visitor, name, cursor, "COUNT", count, *words)
        cursor = int(text)
        page += found
        if not cursor or len(page) >= left or not found:
            return cursor, page
        await next_turn(site.gateway.turns)


async def _shown(site: Site, asked: Request, found: list[Any]) -> list[dict[str, Any]]:
    items = []
    for number, job in enumerate(found, 1):
        items.append(shown_to(asked.visitor, job_object(job)))
        if number % SHOWN_PER_TURN == 0:
            await next_turn(site.gateway.turns)
    return items


async def _described(site: Site, asked: Request, found: list[bytes]) -> list[dict[str, Any]]:
    """Statistics of queues, those that are gone left out."""
    items = []
    for number, name in enumerate(found, 1):
        values = await site.call(asked.visitor, "QSTAT", name, "FULL")
        if values is not None:
            items.append(by_name(values))
        if number % ASKED_PER_TURN == 0:
            await next_turn(site.gateway.turns)
    return items


def _sorted(items: list[Any], sort: str | None, *, full: bool, alone: str) -> list[Any]:
    if sort is None:
        return items
    field = sort.removeprefix("-")
    if full:
        return sorted(items, key=lambda item: _rank(item[field]), reverse=sort != field)
    if field != alone:
        raise Problem(400, f"sort={sort} needs reply=all; without it allowed are {alone} and -{alone}")
    return sorted(items, reverse=sort != field)


def _rank(value: Any) -> tuple[bool, Any]:
    """A place for what is unknown: the queue of a job that is known only as acknowledged."""
    return (value is not None, value if value is not None else 0)


@route(
    "GET", "/api/info", role=Role.VIEWER, summary="Facts about this node, as INFO tells them",
    query=(
        QueryParameter("section", "One section alone: server, clients, memory, ...; all: every one and commandstats"),
    ),
    reply={
        "type": "object",
        "additionalProperties": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    tag="node", commands=("INFO",), at="/api/info?section=memory",
)  # fmt: skip
async def info(site: Site, asked: Request) -> dict[str, Any]:
    """Sections, and in each the fields and their values."""
    text: bytes = await site.call(asked.visitor, "INFO", asked.query.get("section", "default"))
    sections: dict[str, Any] = {}
    fields: dict[str, str] = {}
    for line in text.decode("utf-8", "backslashreplace").splitlines():
        if line.startswith("#"):
            fields = sections[line[1:].strip().lower()] = {}
        elif ":" in line:
            name, value = line.split(":", 1)
            fields[name] = value
    return sections


_PORT: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": 65_535}
_TEXT: Final[Schema] = {"type": "string"}


@route(
    "GET", "/api/hello", role=Role.VIEWER, summary="Addresses of the nodes, and which is best to connect to",
    reply=object_of(
        id=_TEXT,
        nodes={
            "type": "array",
            "items": object_of(id=_TEXT, ip=_TEXT, port=_PORT, priority={"type": "integer", "minimum": 1}),
        },
    ),
    tag="cluster", commands=("HELLO",),
)  # fmt: skip
async def hello(site: Site, asked: Request) -> dict[str, Any]:
    """What HELLO answers: this node first.  The lowest priority is the best; the own address is empty until told."""
    _, own_id, *rows = await site.call(asked.visitor, "HELLO")
    nodes = [
        {"id": node_id, "ip": ip, "port": int(port), "priority": int(priority)} for node_id, ip, port, priority in rows
    ]
    return {"id": own_id, "nodes": nodes}


_TOLD: Final[Schema] = {"type": ["integer", "null"], "minimum": 0}
_NOT_TOLD: Final = dict.fromkeys(("told_at", "version", "jobs", "memory", "maxmemory", "queued", "given"))
_MOMENT: Final[Schema] = {"type": "integer", "minimum": 0, "description": "Unix milliseconds; 0 = never, or none."}


@route(
    "GET", "/api/cluster/nodes", role=Role.VIEWER, summary="The nodes that this one knows",
    reply={
        "type": "array",
        "items": object_of(
            id=_TEXT, ip=_TEXT, port=_PORT, bus_port=_PORT, flags={"type": "array", "items": _TEXT},
            myself={"type": "boolean"}, ping_sent_at=_MOMENT, pong_at=_MOMENT, connected={"type": "boolean"},
            told_at={**_TOLD, "description": "Unix milliseconds; null, as all that follows, until the node told."},
            version={"type": ["string", "null"]},
            jobs=_TOLD, memory=_TOLD, maxmemory=_TOLD, queued=_TOLD, given=_TOLD,
        ),
    },
    tag="cluster", commands=("CLUSTER NODES",),
)  # fmt: skip
async def cluster_nodes(site: Site, asked: Request) -> list[dict[str, Any]]:
    """What CLUSTER NODES answers, a node an object; flags are myself, fail?, fail, handshake, noaddr, leaving.

    With it comes what each node told last of itself, and when: its version, jobs and bytes that it holds, its
    maxmemory, how often a job came into a queue of it, and how often it handed one to a consumer, since its start.
    """
    text: bytes = await site.call(asked.visitor, "CLUSTER", "NODES")
    node = site.gateway.view
    wall, now = node.wall(), node.now()
    told = {peer.id: _vitals(peer.account.vitals, wall + peer.account.at - now)
            for peer in node.peers if peer.account is not None}  # fmt: skip
    told[node.id] = _vitals(node.vitals, wall)
    nodes = [_node(line.split()) for line in text.decode("ascii", "backslashreplace").splitlines()]
    return [each | told.get(each["id"].encode("ascii"), _NOT_TOLD) for each in nodes]


def _vitals(told: Vitals, told_at: int) -> dict[str, Any]:
    return {"told_at": told_at, "version": told.version.decode("ascii"), "jobs": told.jobs, "memory": told.memory,
            "maxmemory": told.limit, "queued": told.queued, "given": told.given}  # fmt: skip


def _node(fields: list[str]) -> dict[str, Any]:
    node_id, place, flags, ping, pong, link = fields
    place, _, bus = place.partition("@")
    ip, _, port = place.rpartition(":")
    words = [word for word in flags.split(",") if word != "noflags"]
    return {"id": node_id, "ip": ip, "port": int(port), "bus_port": int(bus) if bus else _bus_of(int(port)),
            "flags": words, "myself": "myself" in words, "ping_sent_at": int(ping), "pong_at": int(pong),
            "connected": link == "connected"}  # fmt: skip


def _bus_of(port: int) -> int:
    """The bus port that is not told: 10000 above, where there is such a port."""
    return port + 10_000 if 0 < port <= 55_535 else 0


@route("GET", "/api/config", role=Role.VIEWER, summary="The settings in force",
       query=(QueryParameter("pattern", "Only settings whose name fits: *, ? and [...] as in CONFIG GET."),),
       reply={"type": "object", "additionalProperties": BYTES}, tag="node", commands=("CONFIG GET",),
       at="/api/config?pattern=slowlog-*")  # fmt: skip
async def config(site: Site, asked: Request) -> dict[str, Any]:
    """Names and values as CONFIG GET answers them.  Passwords and secrets that are set are shown as asterisks."""
    return without_secrets(await site.call(asked.visitor, "CONFIG", "GET", asked.query.get("pattern", "*")))
