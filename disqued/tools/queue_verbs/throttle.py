"""`disqued throttle`: a queue of the whole cluster, or a group of it, hands nothing out for a while."""

import os

import click

from disqued.core.model.gates import THROTTLE_MAX_S
from disqued.tools.connecting import Target, node_options
from disqued.tools.console_text import short
from disqued.tools.values import Seconds


@click.command()
@click.argument("queue", metavar="QUEUE")
@click.argument("seconds", metavar="[SECONDS]", type=Seconds(THROTTLE_MAX_S, zero=True), default=0.0)
@click.option("--group", metavar="NAME", help="Only jobs of this group.")
@node_options
def command(target: Target, queue: str, seconds: float, group: str | None) -> None:
    """Let QUEUE hand nothing out for so many SECONDS in the whole cluster, or show how long that lasts.

    The latest end counts: a shorter time changes nothing.

    \b
    Examples:
      disqued throttle mail 30
      disqued throttle mail 0.5 --group acme
      disqued throttle mail
    """
    words: list[bytes | str] = [] if group is None else ["GROUP", os.fsencode(group)]
    with target.node() as node:
        left = node.call("THROTTLE", os.fsencode(queue), f"{seconds:.15g}", *words)
    what = short(queue) if group is None else f"group {short(group)} of {short(queue)}"
    click.echo(f"{what} hands nothing out for {left} seconds" if left else f"{what} is not throttled")
