"""`disqued dead`: the dead jobs of a queue, and why they died."""

import os
from typing import Any

import attrs
import click

from disqued.client.errors import ServerError
from disqued.client.replies import read_facts, read_jobs
from disqued.tools.connecting import NodeConnection, Target, node_options
from disqued.tools.polling import ask_all
from disqued.tools.queue_verbs.field_tables import COUNT_MAX, data_text, moment, print_table


@click.command()
@click.argument("queue", metavar="QUEUE")
@click.option("--count", type=click.IntRange(1, COUNT_MAX), default=10, show_default=True, help="How many.")
@node_options
def command(target: Target, queue: str, count: int) -> None:
    """Show the dead jobs of QUEUE in the whole cluster, those first that failed last, and how they failed.

    \b
    Examples:
      disqued dead mail
      disqued dead mail --count 100

    `disqued redrive` lets them begin again, and `disqued requeue` and `disqued purge` those of a reason or a time
    alone.  To bury a job that waits: `disqued cli NACK JOB DEAD REASON why`.
    """
    name = os.fsencode(queue)
    found = {row.id: row for _, rows in ask_all(target, lambda node: _dead(node, name, count)) for row in rows}
    rows = sorted(found.values(), key=lambda row: -row.at)[:count]
    print_table(
        ["job", "failed", "tries", "consumer", "reason"],
        [[row.id, moment(row.at / 1_000) if row.at else "", str(row.tries), row.consumer, row.reason] for row in rows],
    )


@attrs.frozen
class DeadJob:
    """A dead job, and its last failure."""

    id: str
    tries: int
    at: int = 0  #: unix milliseconds; 0 = no failure is known
    consumer: str = ""
    reason: str = ""


def _dead(node: NodeConnection, queue: bytes, count: int) -> list[DeadJob]:
    """Ask a node for dead jobs; every holder of one has it."""
    jobs = read_jobs(node.call("QPEEK", queue, count, "DEAD"), b"")
    return [job for reply in node.call_all([("SHOW", job.id) for job in jobs]) for job in _read(reply)]


def _read(reply: Any) -> list[DeadJob]:
    """Read SHOW; nothing of a job that is gone by now."""
    facts: Any = None if isinstance(reply, ServerError) else read_facts(reply, b"")
    if facts is None:
        return []
    tries = facts["nacks"] + facts["additional-deliveries"]
    if not facts.get("failures"):
        return [DeadJob(facts["id"].decode(), tries)]
    at, _, who, reason = facts["failures"][-1]
    return [DeadJob(facts["id"].decode(), tries, at, data_text(who), data_text(reason))]
