"""`disqued slots`: the limits of a queue, how much of them is in use, and which jobs are with consumers."""

import os
from typing import Any, Final

import click

from disqued.client.policies import read_slots
from disqued.tools.connecting import NodeConnection, Target, node_options
from disqued.tools.console_text import short, span
from disqued.tools.polling import ask_all
from disqued.tools.queue_verbs.field_tables import COUNT_MAX, data_text, print_table

#: Fields of QPOLICY that are limits, and what QSTAT FULL calls them.
FIELDS: Final = {
    b"inflight": b"inflight", b"groupinflight": b"group-inflight", b"rate": b"rate", b"grouprate": b"group-rate",
    b"partition": b"partition",
}  # fmt: skip


@click.command()
@click.argument("queue", metavar="QUEUE")
@click.option("--count", type=click.IntRange(1, COUNT_MAX), default=100, show_default=True, help="How many at most.")
@node_options
def command(target: Target, queue: str, count: int) -> None:
    """Show the limits of QUEUE, how much of them is in use, and which jobs are with consumers in the whole cluster.

    \b
    Examples:
      disqued slots mail
      disqued slots mail --count 1000

    Slots are as the node knows them, which may be some moments old.  Jobs wait for a slot when their node has asked for
    one for a consumer; those of all nodes that answer are counted.  The steward is the node that gives slots.  The
    client that has a job is shown by the id of its worker, or by its name or address.  A slot ends with ACKJOB or NACK
    of its job, and by itself when the time in the last column is over.  If no job of the queue can be handed out at
    present, the last line above the table says why: no majority of the nodes can be reached, or the steward waits for
    other nodes.
    """
    name = os.fsencode(queue)
    with target.node() as node:
        found = read_slots(node.call("SLOTS", name, "COUNT", count), b"")
    told = [facts for _, facts in ask_all(target, lambda node: _facts(node, name)) if facts]
    awaited = sum(facts[b"slots-awaited"] for facts in told)
    click.echo("\n".join(summary(queue, {**told[0], b"slots-awaited": awaited} if told else {})))
    rows = [
        [slot.job_id.decode(), data_text(slot.group), "-" if slot.client is None else data_text(slot.client),
         slot.node[:8].decode(), "-" if slot.seconds_left < 0 else span(slot.seconds_left)]
        for slot in found
    ]  # fmt: skip
    if rows:
        print_table(["job", "group", "client", "node", "ends within"], rows)


def _facts(node: NodeConnection, queue: bytes) -> dict[bytes, Any]:
    """Ask a node for QSTAT FULL; nothing if it does not know the queue."""
    told = node.call("QSTAT", queue, "FULL")
    return {} if told is None else dict(zip(told[::2], told[1::2], strict=True))


def limits_of(facts: dict[bytes, Any]) -> list[tuple[bytes, bytes]]:
    """Return the limits that QSTAT FULL tells, as QPOLICY GET does."""
    values = [(field, facts[statistic]) for field, statistic in FIELDS.items()]
    return [(field, value if isinstance(value, bytes) else b"%d" % value) for field, value in values if value]


def summary(queue: str, facts: dict[bytes, Any]) -> list[str]:
    """Say what limits a queue, and what QSTAT FULL tells of it, which is nothing without limits and jobs."""
    if not facts:
        return [f"{short(queue)}: no limits, and no such queue"]
    limits = limits_of(facts)
    if not limits:
        return [f"{short(queue)} has no limits"]
    words = ", ".join(f"{field.decode()} {value.decode()}" for field, value in limits)
    most = f" of {facts[b'inflight']}" if facts[b"inflight"] else ""
    lines = [
        f"limits:  {words}",
        f"in use:  {facts[b'slots']}{most}",
        f"waiting: {facts[b'slots-awaited']} for a slot",
        f"steward: {facts[b'steward'][:8].decode()}",
    ]
    blocked = facts.get(b"slots-blocked", b"").decode()
    return [*lines, f"nothing is handed out: {blocked}"] if blocked else lines
