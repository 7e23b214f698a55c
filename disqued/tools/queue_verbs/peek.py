"""`disqued peek`: jobs that wait in a queue of the cluster."""

import os
from typing import Any, Final

import attrs
import click

from disqued.client.errors import ServerError
from disqued.client.replies import read_facts, read_jobs
from disqued.tools.connecting import NodeConnection, Target, node_options
from disqued.tools.polling import ask_all
from disqued.tools.queue_verbs.field_tables import COUNT_MAX, data_text, print_table

BODY_SHOWN: Final = 200  #: characters


@attrs.frozen
class WaitingJob:
    """A job that waits on a node."""

    id: bytes
    body: bytes
    created: int  #: unix nanoseconds; 0 if the user may not ask
    blocked: str  #: why it may not be handed out; empty for one that may


@click.command()
@click.argument("queue", metavar="QUEUE")
@click.option("--count", type=click.IntRange(1, COUNT_MAX), default=10, show_default=True, help="How many.")
@click.option("--newest", is_flag=True, help="The newest first.  [default: the oldest]")
@node_options
def command(target: Target, queue: str, count: int, *, newest: bool) -> None:
    """Show jobs that wait in QUEUE, on whatever node of the cluster, and take none.

    \b
    Examples:
      disqued peek mail
      disqued peek mail --count 100 --newest

    The oldest of all nodes come first, each with the node that has it.  A node that does not answer is named on
    standard error.

    The column blocked says why a job may not be handed out now, as far as its node knows: the queue is paused or
    throttled, or its limits (disqued slots) hold the job back.  It is there if one of the jobs is blocked.
    """
    name = os.fsencode(queue)
    # A stream has copies on several nodes.
    found: dict[bytes, tuple[WaitingJob, str]] = {}
    for member, jobs in ask_all(target, lambda node: _waiting(node, name, -count if newest else count)):
        for job in jobs:
            found.setdefault(job.id, (job, member.address))
    places = sorted(found.values(), key=lambda place: place[0].created, reverse=newest)[:count]
    is_blocked = any(job.blocked for job, _ in places)
    rows = [
        [job.id.decode(), address, *([job.blocked or "-"] if is_blocked else []), text_of(job.body)]
        for job, address in places
    ]
    print_table(["job", "node", *(["blocked"] if is_blocked else []), "body"], rows)


def _waiting(node: NodeConnection, queue: bytes, count: int) -> list[WaitingJob]:
    """Ask a node for the jobs at one end of a queue, in its order."""
    jobs = read_jobs(node.call("QPEEK", queue, count), b"")
    shown = node.call_all([("SHOW", job.id) for job in jobs])
    facts = [_facts(reply) for reply in shown]
    return [
        WaitingJob(job.id, job.body, known.get("ctime", 0), data_text(known.get("blocked", b"")))
        for job, known in zip(jobs, facts, strict=True)
    ]


def _facts(shown: Any) -> Any:
    """Read SHOW; nothing of a job that has gone meanwhile, or if the user may not call it."""
    return {} if not shown or isinstance(shown, ServerError) else read_facts(shown, b"")


def text_of(body: bytes) -> str:
    """Write the beginning of a body."""
    text = data_text(body[: 4 * BODY_SHOWN])
    return text if len(text) <= BODY_SHOWN else text[: BODY_SHOWN - 1] + "…"
