"""`disqued consumers`: who waits for the jobs of a queue, and who has some, in the whole cluster."""

import json
import os
from typing import Any

import attrs
import click

from disqued.client.replies import read_facts
from disqued.tools.connecting import NodeConnection, Target, node_options
from disqued.tools.console_text import span
from disqued.tools.polling import ask_all
from disqued.tools.queue_verbs.field_tables import COUNT_MAX, data_text, print_table


@attrs.frozen
class ConsumerRow:
    """A consumer of a queue on one node; times are seconds until now."""

    node: str  #: address
    consumer: str | None  #: its name, or its address without one; None = the node does not know who has the jobs
    address: str
    client: int  #: number in CLIENT LIST
    connected: bool
    worker: str  #: id of the live worker; "" = it is none
    group: str  #: of a stream; "" of a queue of jobs
    waiting_s: float | None  #: None = it does not wait
    jobs: int
    oldest_s: float | None  #: how long it has the oldest of its jobs; None = it has none

    @property
    def rank(self) -> tuple[float, float]:
        """Who has a job for the longest time comes first, then who waits for the longest time."""
        return (-(self.oldest_s or 0), -(self.waiting_s or 0))


@click.command()
@click.argument("queue", metavar="QUEUE")
@click.option("--count", type=click.IntRange(1, COUNT_MAX), default=100, show_default=True, help="How many at most.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
@node_options
def command(target: Target, queue: str, count: int, *, as_json: bool) -> None:
    """Show who waits for jobs of QUEUE and who has some, on whatever node of the cluster, and for how long.

    \b
    Examples:
      disqued consumers mail
      disqued consumers mail --json | jq '.consumers[] | select(.oldest_s > 600) | .consumer'

    A consumer is shown by its name (CLIENT SETNAME), or else its address; client is its number in CLIENT LIST of the
    node, and gone stands there for one whose connection has ended.  A dash is a consumer that the node does not know
    any more, after a restart.  Who has a job for the longest time comes first, then who waits for the longest time.

    Jobs that are delivered at most once (RETRY 0) are not counted: nobody awaits their acknowledgement.  The columns
    worker and group are there if one of the consumers is a live worker, or reads a stream.
    """
    name = os.fsencode(queue)
    told = ask_all(target, lambda node: _consumers(node, name, count))
    rows = sorted((row for _, some in told for row in some), key=lambda row: row.rank)[:count]
    if as_json:
        click.echo(json.dumps({"queue": queue, "consumers": list(map(attrs.asdict, rows))}))
        return
    more = [title for title in ("worker", "group") if any(getattr(row, title) for row in rows)]
    texts = [
        [row.consumer or "-", str(row.client) if row.connected else "gone" if row.client else "-", row.node,
         _span(row.waiting_s), str(row.jobs), _span(row.oldest_s), *(getattr(row, title) or "-" for title in more)]
        for row in rows
    ]  # fmt: skip
    print_table(["consumer", "client", "node", "waiting", "jobs", "oldest", *more], texts)


def _span(seconds: float | None) -> str:
    return "-" if seconds is None else span(seconds)


def _consumers(node: NodeConnection, queue: bytes, count: int) -> list[ConsumerRow]:
    return [_row(str(node), read_facts(row, b"")) for row in node.call("QCONSUMERS", queue, "COUNT", count)]


def _row(node: str, facts: Any) -> ConsumerRow:
    """Read a row of QCONSUMERS."""
    consumer = facts["consumer"]
    return ConsumerRow(
        node, None if consumer is None else data_text(consumer), data_text(facts["address"]), facts["client"],
        bool(facts["connected"]), data_text(facts["worker"]), data_text(facts["group"]), _seconds(facts["waiting-for"]),
        facts["jobs"], _seconds(facts["oldest-for"]),
    )  # fmt: skip


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1_000
