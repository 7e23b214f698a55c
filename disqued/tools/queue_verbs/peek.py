"""`disqued peek`: jobs that wait in a queue of a node."""

import os
from typing import Final

import click

from disqued.client.replies import read_jobs
from disqued.tools.connecting import Target, node_options
from disqued.tools.queue_verbs.field_tables import COUNT_MAX, print_table

BODY_SHOWN: Final = 200  #: characters


@click.command()
@click.argument("queue", metavar="QUEUE")
@click.option("--count", type=click.IntRange(1, COUNT_MAX), default=10, show_default=True, help="How many.")
@click.option("--newest", is_flag=True, help="The newest first.  [default: the oldest]")
@node_options
def command(target: Target, queue: str, count: int, *, newest: bool) -> None:
    """Show jobs that wait in QUEUE on a node, and take none.

    \b
    Examples:
      disqued peek mail
      disqued peek mail --count 100 --newest
    """
    with target.node() as node:
        jobs = read_jobs(node.call("QPEEK", os.fsencode(queue), -count if newest else count), b"")
    print_table(["job", "body"], [[job.id.decode(), text_of(job.body)] for job in jobs])


def text_of(body: bytes) -> str:
    """Write the beginning of a body."""
    text = body[: 4 * BODY_SHOWN].decode("utf-8", "backslashreplace")
    return text if len(text) <= BODY_SHOWN else text[: BODY_SHOWN - 1] + "…"
