"""The page of connections: the clients of all nodes, for those who may run CLIENT LIST."""

from typing import Any, Final
from urllib.parse import urlencode

import attrs

from disqued.web.http.exchange import QueryParameter, Request, Role
from disqued.web.pages import actions
from disqued.web.pages.render import Values, page
from disqued.web.site import Site
from disqued.web.views.connection_views import SORTS, ConnectionQuery

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

    return "connections.html", {"view": view, "cut": cut, "link": link, "sorts": SORTS, "missing": cut.missing,
                                "kill": actions.kill_connection()}  # fmt: skip
