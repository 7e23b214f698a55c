"""`disqued queues`: a table of the queues of a cluster."""

import fnmatch

import click

from disqued.tools.connecting import Target, node_options
from disqued.tools.console_text import console
from disqued.tools.top.node_views import ClusterWatch
from disqued.tools.top.table_rows import ORDERS, QueueRow, queue_rows


@click.command()
@click.argument("pattern", metavar="[PATTERN]", required=False)
@click.option("--sort", "order", type=click.Choice([*ORDERS]), default="name", show_default=True,
              help="Column to sort by, the largest first.")  # fmt: skip
@node_options
def command(target: Target, pattern: str | None, order: str) -> None:
    """Show the queues of all nodes of the cluster, a line each; of PATTERN, those whose names fit it.

    \b
    Examples:
      disqued queues
      disqued queues 'mail-*' --sort dead

    Waiting jobs are added up over the nodes.  Nodes that hold copies of a failing or dead job each count it, so that
    these figures are those of the node that has most of them.
    """
    from disqued.tools.top import screen

    looks = ClusterWatch(target).look(target.timeout)
    for look in looks:
        if look.error:
            click.echo(look.error, err=True)
    rows = [row for row in queue_rows(looks, (), order, reverse=False) if _fits(row, pattern)]
    console().print(screen.queue_table(rows, rates=False))
    if all(look.error for look in looks):
        raise SystemExit(1)


def _fits(row: QueueRow, pattern: str | None) -> bool:
    return pattern is None or fnmatch.fnmatchcase(row.name, pattern)
