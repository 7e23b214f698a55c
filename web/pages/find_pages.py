"""The search field in the head of every page: a job by its id; a queue, a worker or a client by its name.

id of a job, name of a queue, id of a worker --> its page
the first 14 characters of an id, or more    --> page of the job, or a choice of jobs
part of names                                --> page or list of queues, workers or clients; a choice of kinds

Ids that begin alike are in one table of the jobs of a node, which JSCAN begins at: no other one is walked over.
"""

import re
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import urlencode

import attrs

from disqued.commands.scans import WITHIN
from disqued.core.model.ids import is_job_id
from disqued.core.model.registry import BEGINNING, TABLES, table_of
from disqued.core.view import NodeView
from disqued.reports.value_formats import count
from disqued.web.http.exchange import HTML, QueryParameter, Reply, Request, Role
from disqued.web.pages import actions
from disqued.web.pages.render import MissingProblem, page_of
from disqued.web.routes import route
from disqued.web.site import Site
from disqued.web.views import rendering
from disqued.web.views.cluster_answers import ask_all, missing_nodes
from disqued.web.views.connection_views import ConnectionQuery
from disqued.web.views.everywhere import Everywhere
from disqued.web.views.worker_views import WorkerQuery

#: What an id may begin with, and what was copied of one; who looks for a job does not want a queue of that name.
_LIKE_AN_ID: Final = re.compile(rb"(DI|D-)[0-9a-f]{2,8}([0-9a-f]|-|$)", re.IGNORECASE)
NODE_SHOWN: Final = 8  #: characters of the id of a node on pages
JOBS_SHOWN: Final = 20  #: whose ids begin alike
_WANTED: Final = QueryParameter(
    "q", "Id of a job or a node; name of a queue, of a worker or of a client, or a part of it", {"type": "string"}
)


@attrs.frozen
class Found:
    """What of one kind has a text in its name."""

    said: str  #: how many of what
    path: str  #: where it is, or they are


@route("GET", "/find", role=Role.VIEWER, summary="Page: where a job, node, queue, worker or client is",
       media="text/html", listed=False, query=(_WANTED,))  # fmt: skip
async def find(site: Site, asked: Request) -> Reply:
    """Lead to what is meant: to the one thing, to a list of those that have the text in their names, or to a choice."""
    text = asked.query.get("q", "").strip().removesuffix("…")
    wanted = text.encode("utf-8", "surrogateescape")
    if not wanted:
        return _to("/queues")
    if is_job_id(wanted):
        return _to(f"/jobs/{rendering.segment(wanted)}")
    node = site.gateway.view
    exact = await ask_all(site.everywhere, node, b"QSTAT", wanted, b"FULL")
    if any(each.value is not None for each in exact.answered):
        return _to(rendering.queue_path(wanted))
    path = _worker_or_node(node, wanted)
    if path:
        return _to(path)
    is_like_an_id = _LIKE_AN_ID.match(wanted) is not None
    found = await _jobs(site.everywhere, node, wanted) if is_like_an_id and len(wanted) >= BEGINNING else []
    if not found:
        found = [one async for one in _found(site, asked, text)]
    if len(found) == 1:
        return _to(found[0].path)
    if found:
        return page_of(site, asked, "", "found.html", {"text": text, "found": found})
    hints = []
    if is_like_an_id:
        hints.append(("Ids of jobs are 48 bytes, DI…SQ, or 40 of Disque 1.0, D-…", ""))
        least = f"A job is found by {BEGINNING} characters of its id from the beginning, or more."
        hints.append((f"{least} The page of a job has a button that copies the whole id.", ""))
    hints += [
        (f"{one.sentence} It may have such a job, queue, worker or client.", "") for one in missing_nodes(node, exact)
    ]
    if asked.visitor.role < Role.ADMIN:
        hints.append(("Only admins find clients by their names.", ""))
    shown = rendering.name(wanted, 60)
    detail = f"{shown} is neither the id of a job nor in the name of a queue, worker or client"
    if is_like_an_id:
        detail = f"no job has an id that begins with {shown}, and no name of a queue, worker or client has that in it"
        if len(wanted) < BEGINNING:
            detail = f"{shown} is too short to find a job by its id: {BEGINNING} characters or more are needed"
    ways = [] if is_like_an_id else [actions.add_job(wanted)]
    raise MissingProblem(detail, "NOQUEUE", hints=hints, ways=ways)


def _worker_or_node(node: NodeView, wanted: bytes) -> str:
    """Return the page of the worker with this id, or of the one node whose address this is, or whose id begins so.

    Pages show nodes by the first 8 digits.  Empty = there is none.
    """
    if node.worker(wanted) is not None:
        return rendering.worker_path(wanted)
    found = [
        each.id
        for each in node.known_nodes()
        if (len(wanted) >= NODE_SHOWN and each.id.startswith(wanted)) or f"{each.host}:{each.port}".encode() == wanted
    ]
    return f"/nodes/{found[0].decode('ascii')}" if len(found) == 1 else ""


async def _jobs(everywhere: Everywhere, node: NodeView, beginning: bytes) -> list[Found]:
    """Return the jobs of all nodes whose ids begin so, JOBS_SHOWN at most."""
    number = table_of(beginning)
    ids: set[bytes] = set()
    for first in (await ask_all(everywhere, node, b"JSCAN", b"%d" % number, b"COUNT", b"1", fresh_s=0)).answered:
        replies = [first]
        while replies:
            cursor, some = replies.pop().value
            ids.update(job_id for job_id in map(bytes, some) if job_id.startswith(beginning))
            if int(cursor) >= WITHIN and int(cursor) % TABLES == number:  # the rest of the table
                words = (b"JSCAN", cursor, b"COUNT", b"1")
                replies = (await ask_all(everywhere, node, *words, node_id=first.node_id, fresh_s=0)).answered
    return [
        Found(f"Job {job_id.decode()}", f"/jobs/{rendering.segment(job_id)}") for job_id in sorted(ids)[:JOBS_SHOWN]
    ]


async def _found(site: Site, asked: Request, text: str) -> AsyncIterator[Found]:
    """Yield each kind of which some have a text in their names, on any node."""
    node, everywhere, query = site.gateway.view, site.everywhere, urlencode({"q": text})
    async with site.large_walk:
        _, elements = await everywhere.walk(b"QSCAN", b"REPLY", b"known", count=2_000)
    part = text.encode("utf-8", "surrogateescape").lower()
    names = {name for some in elements.values() for name in some if part in bytes(name).lower()}
    if names:
        path = rendering.queue_path(next(iter(names))) if len(names) == 1 else f"/queues?{query}"
        yield Found(_counted(len(names), "queue"), path)
    workers = await WorkerQuery(text).cut(everywhere, node)
    if workers.rows:
        is_one = len(workers.rows) == 1 and not workers.has_more
        path = rendering.worker_path(workers.rows[0].id) if is_one else f"/workers?{query}"
        yield Found(_counted(len(workers.rows), "worker", has_more=workers.has_more), path)
    if asked.visitor.role >= Role.ADMIN:
        clients = await ConnectionQuery(text, by_name=True).cut(everywhere, node, site.gateway.turns)
        if clients.found:
            yield Found(_counted(clients.found, "client"), f"/connections?{query}")


def _counted(number: int, what: str, *, has_more: bool = False) -> str:
    more = "more than " if has_more else ""
    return f"{more}{count(number)} {what}{'' if number == 1 else 's'}"


def _to(path: str) -> Reply:
    return Reply(b"", HTML, 303, {"Location": path})
