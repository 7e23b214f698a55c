"""`disqued queues`: a table of the queues of a cluster."""

import json
import time

import click

from disqued.tools.connecting import Target, node_options
from disqued.tools.console_text import NARROW, console, fitting_width, short
from disqued.tools.polling import Answer, answered
from disqued.tools.top import QueueColumn
from disqued.tools.top.node_views import ClusterWatch, NodeSnapshot, QueueChoice
from disqued.tools.top.table_rows import ORDERS, as_object, node_rows, queue_rows
from disqued.tools.values import Number
from disqued.wire.texts import shown


@click.command()
@click.argument("pattern", metavar="[PATTERN]", default="*")
@click.option("--sort", "order", type=QueueColumn(), default="queue", show_default=True, metavar="COLUMN",
              help=f"Column to sort by, the largest first: {', '.join(ORDERS)}.")  # fmt: skip
@click.option("--reverse", is_flag=True, help="The other way round.")
@click.option("--by-node", is_flag=True, help="One line for each queue and node.")
@click.option("--interval", type=Number(0.1, 3_600), metavar="SECONDS",
              help="Look twice, with this time between, and show the rates: in/s and out/s.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
@node_options
def command(  # noqa: PLR0917 - click gives them by name
    target: Target, pattern: str, order: str, reverse: bool, by_node: bool, interval: float | None, as_json: bool
) -> None:
    """Show the queues of all nodes of the cluster, a line each; of PATTERN, those whose names match it.

    \b
    Examples:
      disqued queues
      disqued queues 'mail-*' --sort dead
      disqued queues mail --by-node
      disqued queues --interval 5 --json | jq '.queues[] | select(.in_s > .out_s) | .name'

    Columns: jobs that are ready, in flight (consumers have them), delayed, failing and dead; age of the oldest that is
    ready; consumers that wait; nodes that have the queue or jobs of it; its pause, with the reason.  A narrow terminal
    shows fewer.

    Figures are added up over the nodes, but for failing and dead jobs: each holder of one counts it, and the figure is
    that of the node that has most of them.  A job that a NACK or a back-off has put off is counted by each holder, too,
    so that delayed may be too many.  `in part` is a pause that differs from node to node; --by-node shows where
    it is.  A dash stands for what a node of an older version does not tell.  A node that does not answer is named on
    standard error, and its jobs are in no figure.
    """
    watch = ClusterWatch(target, QueueChoice(pattern))
    before: list[NodeSnapshot] = []
    looks = watch.look()
    if interval is not None:
        time.sleep(interval)
        before, looks = looks, watch.look()
    rows = queue_rows(looks, before, order, reverse=reverse, by_node=by_node)
    answered([Answer(look.member, look, look.error, look.is_refused) for look in looks])
    if as_json:
        click.echo(json.dumps(as_object(node_rows(looks, before), rows)))
        return
    from disqued.tools.top import screen

    width = fitting_width()
    console().print(screen.queue_table(rows, width, rates=interval is not None, by_node=by_node))
    if width < NARROW:  # reasons have hardly any room in the table
        for row in rows:
            if row.pause_reason:
                click.echo(f"{short(row.name)} is paused ({row.pause}): {shown(row.pause_reason)}")
