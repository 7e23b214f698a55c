"""`disqued resume`: the end of a pause."""

import os

import click

from disqued.tools.connecting import Target, node_options
from disqued.tools.console_text import short


@click.command()
@click.argument("queue", metavar="QUEUE")
@node_options
def command(target: Target, queue: str) -> None:
    """End the pause of QUEUE in the whole cluster.

    \b
    Examples:
      disqued resume mail
    """
    with target.node() as node:
        state = node.call("PAUSE", os.fsencode(queue), "none")
    click.echo(f"the pause of {short(queue)} is {state.decode()}")
