"""`disqued purge`: the jobs of a queue end on all nodes of a cluster."""

import os
from typing import Final

import click

from disqued.core.model.job import ALL_STATES, STATE_NAMES
from disqued.tools.connecting import Target, node_options
from disqued.tools.console_text import short
from disqued.tools.values import Number

PURGE_S: Final = 600.0
STATES: Final = [word.decode() for state, word in STATE_NAMES.items() if ALL_STATES >> state & 1]


@click.command()
@click.argument("queue", metavar="QUEUE")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES),
              help="Only jobs in this state; may be given several times.  [default: all]")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say how many jobs would end, and end none.")
@click.option("--wait", "wait_s", type=Number(0), default=PURGE_S, show_default=True, metavar="SECONDS",
              help="How long it may take; the nodes go on after that.")  # fmt: skip
@node_options
def command(target: Target, queue: str, states: tuple[str, ...], *, dry_run: bool, wait_s: float) -> None:
    """End the jobs of QUEUE on all nodes of the cluster, so that no copy comes back.

    \b
    Examples:
      disqued purge mail --dry-run
      disqued purge mail --state queued
      disqued purge mail --state dead

    Jobs that consumers have, dead jobs, and jobs that are delivered at most once (RETRY 0) end as well.  A node that is
    away learns which jobs have ended when it is back; jobs that it alone holds stay, and so do jobs that are
    added meanwhile.
    """
    words = [word for state in states for word in ("STATE", state)]
    with target.node() as node:
        count = node.call("QPURGE", os.fsencode(queue), *words, *(["DRYRUN"] if dry_run else []), waits=wait_s)
    click.echo(f"{count} jobs of {short(queue)} {'would end' if dry_run else 'have ended'}")
