"""`disqued pause`: a queue takes no jobs, or hands none out, in the whole cluster or on one node."""

import os

import click

from disqued.tools.connecting import Target, node_options
from disqued.tools.console_text import short
from disqued.tools.queue_verbs.pause_scope import check_scope, scope_options


@click.command()
@click.argument("queue", metavar="QUEUE")
@click.argument("side", metavar="[in|out]", type=click.Choice(["in", "out"]), required=False)
@click.option("--only", type=click.Choice(["in", "out"]),
              help="in: take no jobs; out: hand none out.  [default: both]")  # fmt: skip
@click.option("--reason", metavar="TEXT", help="Why; everybody sees it, and producers hear it.")
@scope_options
@node_options
def command(
    target: Target, queue: str, side: str | None, only: str | None, reason: str | None, *, in_cluster: bool,
    on_node: bool,
) -> None:  # fmt: skip
    """Pause QUEUE in the whole cluster, until `disqued resume`; this replaces an earlier pause and its reason.

    \b
    Examples:
      disqued pause mail --reason 'smtp is down'
      disqued pause mail --only out
      disqued pause mail out
      disqued pause mail --node -h 10.0.0.2

    A pause of one node (--node) has no reason, and counts besides that of the cluster until the next pause or resume of
    the cluster.  `disqued queues` shows the pauses, and with --by-node where they are.
    """
    check_scope(in_cluster=in_cluster, on_node=on_node)
    if side and only:
        raise click.UsageError(f"{side} and --only {only}; one of them is allowed")
    if on_node and reason is not None:
        raise click.UsageError("--reason goes with a pause of the whole cluster, and not with --node")
    words: list[bytes | str] = [] if reason is None else ["REASON", os.fsencode(reason)]
    with target.node() as node:
        state = node.call("PAUSE", os.fsencode(queue), only or side or "all", *(["node"] if on_node else []), *words)
    click.echo(f"the pause of {short(queue)}{f' on {target}' if on_node else ''} is {state.decode()}")
