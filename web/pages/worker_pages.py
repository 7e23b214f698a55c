"""The pages of workers: a table of who is alive, and for each what it has.

/workers    /workers/<worker>, /worker?id=...
"""

from typing import Final
from urllib.parse import urlencode

from disqued.core.model.worker import Worker
from disqued.web.http.exchange import QueryParameter, Request, Visitor
from disqued.web.http.problems import Problem
from disqued.web.pages import actions
from disqued.web.pages.render import Values, page
from disqued.web.site import Site
from disqued.web.views import rendering, worker_views
from disqued.web.views.worker_views import WorkerPage, WorkerQuery

_VIEW: Final = (
    QueryParameter("q", "Part of an id or a name, or a glob"),
    QueryParameter("page", "Which page of a hundred", {"type": "integer", "minimum": 1}),
)
_ID: Final = QueryParameter("id", "Which worker", {"type": "string", "format": "bytes"})


def workers_values(site: Site, view: WorkerQuery, cut: WorkerPage) -> Values:
    """What the table of workers shows."""

    def link(number: int) -> str:
        return "/workers?" + urlencode({"q": view.text, "page": number})

    return {"view": view, "cut": cut, "link": link, "sums": worker_views.sums_of(site.gateway.view)}


@page("/workers", "workers", "Page: workers", query=_VIEW)
async def workers(site: Site, asked: Request) -> tuple[str, Values]:
    """A table of workers."""
    view = WorkerQuery(asked.query.get("q", ""), asked.query.get("page", 1))
    async with site.large_walk:
        cut = await view.cut(site.gateway)
    return "workers.html", workers_values(site, view, cut)


def worker_values(site: Site, worker_id: bytes, visitor: Visitor) -> Values:
    """What changes by itself on the page of a worker; `row` is None when it is not alive any more."""
    node = site.gateway.view
    found = node.worker(worker_id)
    tasks = worker_views.tasks_of(node, found, visitor) if isinstance(found, Worker) else []
    row = None if found is None else worker_views.row_of(node, found)
    return {"worker_id": worker_id, "row": row, "tasks": tasks, "visitor": visitor}


@page("/workers/<worker>", "workers", "Page: a worker")
@page("/worker", "workers", "Page: a worker, whose id cannot stand in a path", query=(_ID,))
async def worker(site: Site, asked: Request) -> tuple[str, Values]:
    """A worker, and what it has."""
    worker_id: bytes | None = asked.path.get("worker", asked.query.get("id"))
    if worker_id is None:
        raise Problem(400, "missing parameter id: the id of a worker")
    values = worker_values(site, worker_id, asked.visitor)
    if values["row"] is None:
        known = rendering.name(worker_id, 60)
        raise Problem(404, f"no worker {known} known to this node: it has ended, or its node is unreachable")
    ways = actions.on_worker(worker_id) if values["row"].is_here else []
    return "worker.html", {**values, "ways": ways}
