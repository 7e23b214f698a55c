"""`disqued cluster status`: what the nodes say of themselves and of each other, as a table or as JSON."""

import json
from typing import TYPE_CHECKING, Any

import click

from disqued.tools.cluster_views import NodeReport, look_at_all, problems
from disqued.tools.connecting import Target, node_options
from disqued.tools.console_text import console, size
from disqued.tools.members import ID_SHOWN, members

if TYPE_CHECKING:
    from rich.table import Table

NOT_OK = 1


@click.command(short_help="what the nodes say of themselves and of each other")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
@node_options
@click.pass_context
def status(context: click.Context, target: Target, *, as_json: bool) -> None:
    """Show every node of a cluster, and what is not in order.

    \b
    Examples:
      disqued cluster status
      disqued cluster status -h 10.0.0.1 --json | jq '.problems[]'

    Every node is asked for itself.  Exit status 0 when all answer, all see each other and none is full or loading; 1
    when something is not so, each with a line of its own.  A node that answers with a refusal `refuses`, one that does
    not answer is `away`.  A node that is being drained is no problem.
    """
    views = look_at_all(members(target))
    found = problems(views)
    if as_json:
        click.echo(json.dumps({"ok": not found, "nodes": [row(view) for view in views], "problems": found}))
    else:
        console().print(table(views))
        click.echo("\n".join(found) if found else f"all {len(views)} nodes are in order")
    context.exit(NOT_OK if found else 0)


def row(view: NodeReport) -> dict[str, Any]:
    """What is known of a node, by name; null for what it has not said."""
    answers = not view.error
    return {
        "id": view.id,
        "address": view.member.address,
        "state": view.state,
        "jobs": view.jobs if answers else None,
        "memory": int(view.facts["used_memory"]) if answers else None,
        "clients": int(view.facts["connected_clients"]) if answers else None,
        "sees": sum(line.is_sound for line in view.others) if answers else None,
        "known": len(view.others) if answers else None,
        "leaving_jobs_left": int(view.cluster["cluster_leaving_jobs_left"]) if answers else None,
        "version": view.facts.get("disqued_version") if answers else None,
        "uptime_s": int(view.facts["uptime_in_seconds"]) if answers else None,
    }


def table(views: list[NodeReport]) -> "Table":
    """The nodes as a table."""
    from rich.table import Table

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("node", "id", "state"):
        drawn.add_column(name, no_wrap=True)
    for name in ("sees", "jobs", "memory", "clients"):
        drawn.add_column(name, justify="right", no_wrap=True)
    drawn.add_column("version")
    for view in views:
        facts = row(view)
        if view.error:
            drawn.add_row(facts["address"], view.id[:ID_SHOWN], f"[red]{view.state}[/red]")
            continue
        drawn.add_row(facts["address"], view.id[:ID_SHOWN], facts["state"], f"{facts['sees']}/{facts['known']}",
                      str(facts["jobs"]), size(facts["memory"]), str(facts["clients"]), facts["version"])  # fmt: skip
    return drawn
