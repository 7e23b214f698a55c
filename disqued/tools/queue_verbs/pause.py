"""`disqued pause`: a queue of the whole cluster takes no jobs, or hands none out."""

import os

import click

from disqued.tools.connecting import Target, node_options
from disqued.tools.console_text import short


@click.command()
@click.argument("queue", metavar="QUEUE")
@click.argument("side", metavar="[in|out]", type=click.Choice(["in", "out"]), required=False)
@click.option("--only", type=click.Choice(["in", "out"]),
              help="in: take no jobs; out: hand none out.  [default: both]")  # fmt: skip
@click.option("--reason", metavar="TEXT", help="Why; everybody sees it.")
@node_options
def command(target: Target, queue: str, side: str | None, only: str | None, reason: str | None) -> None:
    """Pause QUEUE in the whole cluster, until `disqued resume`; this replaces an earlier pause and its reason.

    \b
    Examples:
      disqued pause mail --reason 'smtp is down'
      disqued pause mail --only out
      disqued pause mail out
    """
    if side and only:
        raise click.UsageError(f"{side} and --only {only}; one of them is allowed")
    words: list[bytes | str] = [] if reason is None else ["REASON", os.fsencode(reason)]
    with target.node() as node:
        state = node.call("PAUSE", os.fsencode(queue), only or side or "all", *words)
    click.echo(f"the pause of {short(queue)} is {state.decode()}")
