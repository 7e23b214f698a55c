"""`disqued resume`: the end of a pause."""

import os

import click

from disqued.tools.connecting import Target, node_options
from disqued.tools.console_text import short
from disqued.tools.queue_verbs.pause_scope import check_scope, scope_options


@click.command()
@click.argument("queue", metavar="QUEUE")
@scope_options
@node_options
def command(target: Target, queue: str, *, in_cluster: bool, on_node: bool) -> None:
    """End the pause of QUEUE in the whole cluster, or with --node that of one node alone.

    \b
    Examples:
      disqued resume mail
      disqued resume mail --node -h 10.0.0.2

    It ends pauses of single nodes, too.  With --node a pause of the whole cluster goes on, and is what is printed.
    """
    check_scope(in_cluster=in_cluster, on_node=on_node)
    with target.node() as node:
        state = node.call("PAUSE", os.fsencode(queue), "none", *(["node"] if on_node else []))
    click.echo(f"the pause of {short(queue)}{f' on {target}' if on_node else ''} is {state.decode()}")
