"""The pages of workers: a table of who is alive on any node, and for each what it has.

/workers    /workers/<worker>, /worker?id=...
"""

from typing import Final
from urllib.parse import urlencode

from disqued.web.http.exchange import QueryParameter, Request, Visitor
from disqued.web.http.problems import Problem
from disqued.web.pages import actions
from disqued.web.pages.lines import redis_line
from disqued.web.pages.render import MissingProblem, Values, page
from disqued.web.site import Site
from disqued.web.views import rendering, worker_views
from disqued.web.views.everywhere import FRESH_S
from disqued.web.views.worker_views import WorkerQuery, WorkerRow

_VIEW: Final = (
    QueryParameter("q", "Part of an id or a name, or a glob"),
    QueryParameter("page", "Which page of a hundred", {"type": "integer", "minimum": 1}),
)
_ID: Final = QueryParameter("id", "Which worker", {"type": "string", "format": "bytes"})


async def workers_values(site: Site, view: WorkerQuery, fresh_s: float = FRESH_S) -> Values:
    """What the table of workers shows."""

    def link(number: int) -> str:
        return "/workers?" + urlencode({"q": view.text, "page": number})

    node = site.gateway.view
    cut = await view.cut(site.everywhere, node, fresh_s)
    return {"view": view, "cut": cut, "link": link, "sums": worker_views.sums_of(node), "missing": cut.missing}


@page("/workers", "workers", "Page: workers", query=_VIEW)
async def workers(site: Site, asked: Request) -> tuple[str, Values]:
    """A table of workers."""
    view = WorkerQuery(asked.query.get("q", ""), asked.query.get("page", 1))
    return "workers.html", await workers_values(site, view, fresh_s=0)


async def worker_values(site: Site, worker_id: bytes, visitor: Visitor, fresh_s: float = FRESH_S) -> Values:
    """What changes by itself on the page of a worker; `row` is None when no node that answers knows it."""
    everywhere, node = site.everywhere, site.gateway.view
    found = await worker_views.worker_everywhere(everywhere, node, worker_id, fresh_s)
    tasks = [] if found.row is None else await worker_views.tasks_of(everywhere, node, found.row, visitor)
    return {"worker_id": worker_id, "row": found.row, "tasks": tasks, "visitor": visitor, "missing": found.missing}


@page("/workers/<worker>", "workers", "Page: a worker")
@page("/worker", "workers", "Page: a worker, whose id cannot stand in a path", query=(_ID,))
async def worker(site: Site, asked: Request) -> tuple[str, Values]:
    """A worker, and what it has."""
    worker_id: bytes | None = asked.path.get("worker", asked.query.get("id"))
    if worker_id is None:
        raise Problem(400, "missing parameter id: the id of a worker")
    values = await worker_values(site, worker_id, asked.visitor, fresh_s=0)
    row = values["row"]
    if row is None:
        hints = [(f"{one.sentence} It may have the worker.", "") for one in values["missing"]]
        shown = rendering.name(worker_id, 60)
        where = "any node that answers" if hints else "any node"
        raise MissingProblem(f"no worker {shown} on {where}: it has ended, or never was", "NOWORKER", hints=hints)
    return "worker.html", {**values, "ways": actions.on_worker(worker_id) if row.is_here else [],
                           "elsewhere": "" if row.is_here else _fail_line(site, row)}  # fmt: skip


def _fail_line(site: Site, row: WorkerRow) -> str:
    """The line that declares a worker of another node dead; empty while the address of that node is not known."""
    home = next((each for each in site.gateway.view.known_nodes() if each.id == row.home and each.host), None)
    return "" if home is None else redis_line([b"WORKER", b"FAIL", row.id], home.port, home.host)
