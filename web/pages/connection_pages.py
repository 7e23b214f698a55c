"""The pages of connections: the clients of all nodes, for those who may run CLIENT LIST, and what each has.

/connections    /client?node=...&id=...
"""

from typing import Any, Final
from urllib.parse import urlencode

import attrs

from disqued.web.http.exchange import QueryParameter, Request, Role
from disqued.web.http.problems import Problem
from disqued.web.pages import actions
from disqued.web.pages.render import Values, page
from disqued.web.site import Site
from disqued.web.views.connection_views import LARGEST_FIRST, SORTS, ConnectionQuery, connection_of
from disqued.web.views.consumer_views import TASKS_SHOWN, jobs_of_client

_VIEW: Final = (
    QueryParameter("q", "Part of node, address, name, user or command"),
    QueryParameter("sort", "Column", {"type": "string", "enum": list(SORTS)}),
    QueryParameter("page", "Which page of a hundred", {"type": "integer", "minimum": 1}),
)


@page("/connections", "connections", "Page: client connections", role=Role.ADMIN, query=_VIEW)
async def connections(site: Site, asked: Request) -> tuple[str, Values]:
    """A table of the client connections of all nodes."""
    query = asked.query
    view = ConnectionQuery(query.get("q", ""), query.get("sort", "node"), query.get("page", 1))
    cut = await view.cut(site.everywhere, site.gateway.view, site.gateway.turns)

    def link(**changes: Any) -> str:
        chosen = attrs.evolve(view, **{"page": 1, **changes})
        return "/connections?" + urlencode({"q": chosen.text, "sort": chosen.sort, "page": chosen.page})

    return "connections.html", {"view": view, "cut": cut, "link": link, "largest_first": LARGEST_FIRST,
                                "missing": cut.missing, "acts": actions.on_connections()}  # fmt: skip


_NODE: Final = QueryParameter("node", "Id of the node that it is connected to", {"type": "string", "format": "bytes"})
_ID: Final = QueryParameter("id", "Its number in CLIENT LIST of that node", {"type": "integer", "minimum": 1})


@page("/client", "connections", "Page: the jobs of a client", query=(_NODE, _ID))
async def client(site: Site, asked: Request) -> tuple[str, Values]:
    """The jobs that a client of a node has, of all queues; they outlast its connection."""
    node_id, number = asked.query.get("node"), asked.query.get("id")
    if node_id is None or number is None:
        raise Problem(400, "missing parameter: both node, the id of a node, and id, the number of a client, are needed")
    node = site.gateway.view
    if node_id != node.id and node_id not in {each.id for each in node.known_nodes()}:
        raise Problem(404, f"no node {node_id[:60].decode('utf-8', 'replace')}: allowed are the nodes of the overview")
    found = await jobs_of_client(site.everywhere, node, node_id, number, asked.visitor)
    connection = await connection_of(site.everywhere, node, node_id, number)
    return "client.html", {"node": node_id, "is_here": node_id == node.id, "number": number, "connection": connection,
                           "tasks": found.rows, "count": found.count, "missing": found.missing,
                           "most": TASKS_SHOWN}  # fmt: skip
