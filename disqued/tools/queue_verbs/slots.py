"""`disqued slots`: which jobs of a queue with limits are with consumers."""

import os

import click

from disqued.client.policies import read_slots
from disqued.tools.connecting import Target, node_options
from disqued.tools.console_text import span
from disqued.tools.queue_verbs.field_tables import COUNT_MAX, print_table


@click.command()
@click.argument("queue", metavar="QUEUE")
@click.option("--count", type=click.IntRange(1, COUNT_MAX), default=100, show_default=True, help="How many at most.")
@node_options
def command(target: Target, queue: str, count: int) -> None:
    """Show which jobs of QUEUE, a queue with limits, are with consumers in the whole cluster.

    \b
    Examples:
      disqued slots mail
      disqued slots mail --count 1000

    The table is what the node knows, which may be some moments old.  A slot ends with ACKJOB or NACK of its job, and by
    itself when the time in the last column is over.
    """
    with target.node() as node:
        found = read_slots(node.call("SLOTS", os.fsencode(queue), "COUNT", count), b"")
    rows = [
        [slot.job_id.decode(), slot.group.decode("utf-8", "backslashreplace"), slot.node[:8].decode(),
         span(slot.seconds_left)]
        for slot in found
    ]  # fmt: skip
    print_table(["job", "group", "node", "ends within"], rows)
