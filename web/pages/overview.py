"""The overview: what needs attention, figures of the cluster and of this node, the nodes."""

from typing import Final

from disqued.web.http.exchange import Request
from disqued.web.pages import actions
from disqued.web.pages.render import Values, page
from disqued.web.site import Site
from disqued.web.turns import next_turn
from disqued.web.views.node_states import node_rows

#: What of the page moves: elements and their templates.
PARTS: Final = {
    "findings": "_findings.html", "cluster": "_cluster.html", "facts": "_facts.html", "nodes": "_nodes.html",
}  # fmt: skip


async def overview_values(site: Site, *, fresh_s: float, rest_s: float | None = None) -> Values:
    """What the overview shows; `fresh_s` and `rest_s` are those of `ClusterWatch.overview`."""
    gateway = site.gateway
    cluster = await site.cluster.overview(site.trouble, fresh_s, rest_s)
    await next_turn(gateway.turns)
    node, facts = gateway.view, gateway.facts()
    stats, server = facts.get("Stats", {}), facts.get("Server", {})
    return {
        "cluster": cluster,
        "nodes": node_rows(site.gateway.view, site.rates.of_node(), site.drains),
        "memory": {"used": node.memory.used, "limit": node.memory.limit, "level": node.memory.level,
                   "resident": facts.get("Memory", {}).get("used_memory_rss", 0)},
        "counts": {"jobs": node.job_count, "queues": node.queue_count, "blocked": node.blocked_count,
                   "acked": node.acked_count, "clients": facts.get("Clients", {}).get("connected_clients", 0)},
        "rates": {**site.rates.of_node(),
                  "commands": stats.get("instantaneous_ops_per_sec", 0),
                  "received": float(stats.get("instantaneous_input_kbps", 0)) * 1_024,
                  "sent": float(stats.get("instantaneous_output_kbps", 0)) * 1_024},
        "uptime_ms": int(server.get("uptime_in_seconds", 0)) * 1_000,
        "store": gateway.config.persistence,
    }  # fmt: skip


@page("/", "overview", "Page: the cluster, and this node")
async def overview(site: Site, asked: Request) -> tuple[str, Values]:
    """What needs attention, figures of the cluster and of this node, nodes."""
    return "overview.html", {**await overview_values(site, fresh_s=0), "trial": actions.add_job(None)}
