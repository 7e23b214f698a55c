"""`disqued dead`: the dead jobs of a queue, and why they died."""

import os
from typing import Any

import click

from disqued.client.errors import ServerError
from disqued.client.replies import read_facts, read_jobs
from disqued.tools.connecting import Target, node_options
from disqued.tools.queue_verbs.field_tables import COUNT_MAX, moment, print_table


@click.command()
@click.argument("queue", metavar="QUEUE")
@click.option("--count", type=click.IntRange(1, COUNT_MAX), default=10, show_default=True, help="How many.")
@node_options
def command(target: Target, queue: str, count: int) -> None:
    """Show the dead jobs of QUEUE that a node holds, those first that failed last, and how they failed.

    \b
    Examples:
      disqued dead mail
      disqued dead mail --count 100

    `disqued redrive` lets those of all nodes begin again; each then waits on one node, which need not be this one.  To
    bury a job that waits here: `disqued cli NACK JOB DEAD REASON why`.
    """
    with target.node() as node:
        jobs = read_jobs(node.call("QPEEK", os.fsencode(queue), count, "DEAD"), b"")
        shown = node.call_all([("SHOW", job.id) for job in jobs])
    print_table(["job", "failed", "tries", "consumer", "reason"], [row for row in map(_row, shown) if row])


def _row(reply: Any) -> list[str]:
    """Write a line; none of a job that is gone by now."""
    facts: Any = None if isinstance(reply, ServerError) else read_facts(reply, b"")
    if facts is None:
        return []
    at, _, who, reason = facts["failures"][-1] if facts.get("failures") else (None, b"", b"", b"")
    tries = facts["nacks"] + facts["additional-deliveries"]
    return [facts["id"].decode(), "" if at is None else moment(at / 1_000), str(tries),
            who.decode("utf-8", "backslashreplace"), reason.decode("utf-8", "backslashreplace")]  # fmt: skip
