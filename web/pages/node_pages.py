"""The page of a node: what it says of itself, and draining it, from whichever node the page is of.

/nodes/<node>
"""

from disqued.web.http.exchange import Request
from disqued.web.pages import actions
from disqued.web.pages.render import MissingProblem, Values, page
from disqued.web.site import Site
from disqued.web.views import rendering
from disqued.web.views.everywhere import FRESH_S
from disqued.web.views.node_states import node_details


async def node_values(site: Site, node_id: bytes, fresh_s: float = FRESH_S) -> Values | None:
    """What changes by itself on the page of a node; None = no such node is known, or no longer."""
    one = await node_details(site.drains, site.gateway.view, site.rates.of_node(), node_id, fresh_s)
    return None if one is None else {"shown_id": node_id, "one": one, "row": one.row}


@page("/nodes/<node>", "overview", "Page: a node")
async def node(site: Site, asked: Request) -> tuple[str, Values]:
    """A node of the cluster."""
    node_id = asked.path["node"]
    values = await node_values(site, node_id, fresh_s=0)
    if values is None:
        shown = rendering.name(node_id, 60)
        raise MissingProblem(
            f"no node {shown} is known to this node: its id is as CLUSTER NODES shows it, 40 hex digits", "ERR",
            hints=[("A node that was forgotten comes back with CLUSTER MEET.", "")],
        )  # fmt: skip
    one = values["one"]
    ways = () if one.missing else actions.on_node(node_id, is_leaving=one.is_leaving)  # a silent node does nothing
    return "node.html", {**values, "ways": ways}
