"""`disqued redrive`: dead jobs begin again."""

import os
from typing import Final

import click

from disqued.tools.connecting import Target, node_options
from disqued.tools.console_text import short
from disqued.tools.values import Number

REDRIVE_S: Final = 600.0


@click.command()
@click.argument("queue", metavar="QUEUE")
@click.argument("jobs", metavar="[JOB...]", nargs=-1)
@click.option("--count", type=click.IntRange(1), help="How many at most.  [default: all]")
@click.option("--rate", type=click.IntRange(1, 1_000_000), help="Jobs a second at most.  [default: as fast as it goes]")
@click.option("--dry-run", is_flag=True, help="Say how many dead jobs there are, and redrive none.")
@click.option("--wait", "wait_s", type=Number(0), default=REDRIVE_S, show_default=True, metavar="SECONDS",
              help="How long it may take; it ends after that.")  # fmt: skip
@node_options
def command(  # noqa: PLR0917 - the options of the command line
    target: Target, queue: str, jobs: tuple[str, ...], count: int | None, rate: int | None, wait_s: float, *,
    dry_run: bool,
) -> None:  # fmt: skip
    """Queue the dead jobs of QUEUE again, in the whole cluster, or each JOB alone; their tries count afresh.

    \b
    Examples:
      disqued redrive mail --dry-run
      disqued redrive mail --count 10
      disqued redrive mail --rate 50

    A node that is away keeps its dead jobs.  To run it again does no harm.
    """
    name = os.fsencode(queue)
    if dry_run and (jobs or count or rate):
        raise click.UsageError("--dry-run counts all dead jobs of a queue: it goes with no JOB, --count or --rate")
    with target.node() as node:
        if dry_run:
            dead = node.call("QPURGE", name, "STATE", "dead", "DRYRUN", waits=wait_s)
            click.echo(f"{dead} dead jobs of {short(queue)} would be queued again")
            return
        words: list[str | int] = []
        for word, value in (("COUNT", count), ("RATE", rate)):
            words += [] if value is None else [word, value]
        done = node.call("REDRIVE", name, *words, *(["ID", *jobs] if jobs else []), waits=wait_s)
    click.echo(f"{done} jobs of {short(queue)} have been queued again")
