"""Page of the cluster and of this node: addresses, memory, rates, and what an operator should know at once."""

from disqued.web.http.exchange import Request
from disqued.web.pages import actions
from disqued.web.pages.render import Values, page
from disqued.web.site import Site
from disqued.web.views.node_states import node_rows


def overview_values(site: Site) -> Values:
    """What the overview shows, now."""
    gateway = site.gateway
    node, facts = gateway.view, gateway.facts()
    stats, server = facts.get("Stats", {}), facts.get("Server", {})
    return {
        "nodes": _node_rows(site),
        "memory": {"used": node.memory.used, "limit": node.memory.limit, "level": node.memory.level,
                   "resident": facts.get("Memory", {}).get("used_memory_rss", 0)},
        "counts": {"jobs": node.job_count, "queues": node.queue_count, "blocked": node.blocked_count,
                   "acked": node.acked_count, "clients": facts.get("Clients", {}).get("connected_clients", 0)},
        "rates": {**site.rates.of_node(),
                  "commands": stats.get("instantaneous_ops_per_sec", 0),
                  "received": float(stats.get("instantaneous_input_kbps", 0)) * 1_024,
                  "sent": float(stats.get("instantaneous_output_kbps", 0)) * 1_024},
        "uptime_ms": int(server.get("uptime_in_seconds", 0)) * 1_000,
        "store": gateway.config.persistence, "trouble": _trouble(site),
    }  # fmt: skip


def _node_rows(site: Site) -> list[Values]:
    """Rows of this node, then of the others with what they told of themselves, then the addresses that are tried."""
    return node_rows(site.gateway.view, site.rates.of_node(), site.drains)


def _trouble(site: Site) -> list[str]:
    """What an operator should know at once."""
    gateway, found = site.gateway, []
    if site.access.complaint:
        found.append("The token file is invalid, so the previous tokens stay in effect. The log says why.")
    if site.audit.failures:
        found.append(f"Audit log entries that could not be written: {site.audit.failures}.")
    if gateway.loading:
        found.append("The node is loading its data and answers commands with LOADING.")
    if gateway.paused:
        found.append("Commands are suspended by CLIENT PAUSE, or because the node is stopping.")
    if gateway.store_failure:
        found.append(f"No jobs can be added: {gateway.store_failure}")
    if gateway.view.memory.level >= 2:
        found.append("Memory is nearly full. The node evicts what it may drop.")
    if gateway.view.is_leaving:
        found.append("The node is leaving the cluster: it drains its jobs and accepts no new ones.")
    return found


@page("/", "overview", "Page: the cluster, and this node")
async def overview(site: Site, asked: Request) -> tuple[str, Values]:
    """Nodes, facts, rates."""
    return "overview.html", {**overview_values(site), "trial": actions.add_job(None)}
