"""`disqued peek`: jobs that wait in a queue of a node."""

import os
from typing import Any, Final

import click

from disqued.client.errors import ServerError
from disqued.client.replies import read_facts, read_jobs
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

    The column blocked says why a job may not be handed out now, as far as the node knows: the queue is paused or
    throttled, or its limits (disqued slots) hold the job back.  It is there if one of the jobs is blocked.

    Other nodes may have more: `disqued queues` counts those of all.
    """
    with target.node() as node:
        jobs = read_jobs(node.call("QPEEK", os.fsencode(queue), -count if newest else count), b"")
        blocked = [_blocked(shown) for shown in node.call_all([("SHOW", job.id) for job in jobs])] if jobs else []
    rows = [[job.id.decode(), text_of(job.body)] for job in jobs]
    if any(blocked):
        rows = [[*row, why or "-"] for row, why in zip(rows, blocked, strict=True)]
    print_table(["job", "body", "blocked"] if any(blocked) else ["job", "body"], rows)


def _blocked(shown: Any) -> str:
    """Read from SHOW why a job may not be handed out; empty for one that may, and one that has gone meanwhile."""
    if not shown or isinstance(shown, ServerError):  # not every user may call SHOW
        return ""
    facts: Any = read_facts(shown, b"")
    why: bytes = facts.get("blocked", b"")
    return why.decode("utf-8", "backslashreplace")


def text_of(body: bytes) -> str:
    """Write the beginning of a body."""
    text = body[: 4 * BODY_SHOWN].decode("utf-8", "backslashreplace")
    return text if len(text) <= BODY_SHOWN else text[: BODY_SHOWN - 1] + "…"
