"""`disqued move`: the jobs of a queue go to another queue, or to another cluster (moving.py).

The other cluster is shown no password but what is given for it: that of this one may be nobody's business there.
"""

import math
import os
from contextlib import ExitStack
from typing import Final

import attrs
import click

from disqued.client.addresses import read_server
from disqued.client.errors import AccessDenied
from disqued.client.replies import read_number
from disqued.client.tls import Tls
from disqued.tools.connecting import Failed, Target, node_options, password_of
from disqued.tools.console_text import short
from disqued.tools.members import Member, members
from disqued.tools.moving import Mover, MoveRefused, RateLimit
from disqued.tools.program import INTERRUPTED
from disqued.tools.values import Number
from disqued.tools.waiting import Bar, Interrupt, bar, interruptible

BATCH: Final = 100
BATCH_MAX: Final = 2_000  #: jobs that one GETJOB gives
VARIABLE: Final = "DISQUED_TO_AUTH"


@click.command()
@click.argument("queue", metavar="FROM")
@click.argument("to", required=False, metavar="[TO]")
@click.option("--to", "there", metavar="NODE",
              help="Node of another cluster: host:port, or disqued://[user]:password@host:port.")  # fmt: skip
@click.option("--to-password-file", "to_file", type=click.Path(), metavar="FILE",
              help=f"File whose first line is the password of the other cluster; or {VARIABLE} has it.")  # fmt: skip
@click.option("--to-user", metavar="NAME", help="User whose password that is; without one the node's own.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Jobs to move at most.  [default: all]")
@click.option("--rate", type=Number(0, min_open=True), metavar="N", help="Jobs to move a second at most.")
@click.option("--batch", type=click.IntRange(1, BATCH_MAX), default=BATCH, show_default=True, metavar="N",
              help="Jobs that are taken at a time.")  # fmt: skip
@click.option("--replicate", type=click.IntRange(1, 65_535), metavar="N",
              help="Copies of each job there.  [default: as it has here]")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would be moved, and move nothing.")
@click.option("--wait", "wait_s", type=Number(0), default=30.0, show_default=True, metavar="SECONDS",
              help="How long the other side may be away.")  # fmt: skip
@node_options
@click.pass_context
def command(  # noqa: PLR0917 - click gives them by name
    context: click.Context, target: Target, queue: str, to: str | None, there: str | None, limit: int | None,
    to_file: str | None, to_user: str | None, rate: float | None, batch: int, replicate: int | None, dry_run: bool,
    wait_s: float,
) -> None:  # fmt: skip
    """Move the jobs that wait in the queue FROM, on all nodes of the cluster, to the queue TO, or to another cluster.

    \b
    Examples:
      disqued move mail-dead mail
      disqued move mail --to 10.1.0.1:7711 --rate 500
      disqued move mail old-mail --limit 10000 --dry-run

    The other cluster is sent no password but one that is given for it, in the URL or by --to-password-file.

    A job ends here once it has its copies there, and nobody else is given it meanwhile.  This may be stopped
    at any time and run again: jobs are added with the key move/ID, so that what is there already is not added twice, as
    long as it is there.  Jobs that are delivered at most once (RETRY 0) are taken before they are added, and lost if
    this is killed in between; --batch 1 makes that one job at most.

    A moved job has a new id, the rest of its TTL, and the same body, RETRY, REPLICATE, terms and key of its own; its
    counters start at zero.  A producer that waits for the result of the old one receives `cancelled`.  Jobs that are
    delayed, or with consumers, are not moved.  It ends when all queues are empty.

    Exit status 0 when that is so, or --limit is reached; 1 when jobs are refused there: these stay here, and no try
    is counted.
    """
    from_queue, to_queue = os.fsencode(queue), os.fsencode(queue if to is None else to)
    known = members(target)
    other = _other(target, there, to_file, to_user)
    _check_elsewhere(known, other, from_queue, to_queue)
    waiting = {member: _length(member, from_queue) for member in known}
    there_shown = f" of {other}" if other else ""
    if dry_run:
        count = min(sum(waiting.values()), limit or math.inf)
        click.echo(f"{count} jobs would be moved from {short(queue)} to {short(to or queue)}{there_shown}")
        for member, length in waiting.items():
            click.echo(f"  {member.address}: {length} wait")
        return
    size = min(batch, math.ceil(rate or batch))
    with bar(f"{short(queue)} to {short(to or queue)}") as drawn, interruptible() as interrupt:
        run = MoveRun(from_queue, to_queue, other, limit, RateLimit(rate), size, replicate, wait_s, interrupt)
        run.move(known, min(sum(waiting.values()), limit or math.inf), drawn)
    click.echo(f"{run.moved} jobs were moved from {short(queue)} to {short(to or queue)}{there_shown}")
    context.exit(INTERRUPTED if interrupt.came else 0)


@attrs.define
class MoveRun:
    """Moving until there is no more, or as many as were asked for."""

    queue: bytes
    to: bytes
    other: Target | None  #: a node of another cluster; None = each job stays on its node
    limit: int | None
    pace: RateLimit
    batch: int
    replicate: int | None
    patience: float
    interrupt: Interrupt  #: ends it with the batch that is under way
    moved: int = 0

    def move(self, known: list[Member], expected: float, drawn: Bar) -> None:
        """Move what every node has, until none has more.  Raises Failed."""
        drawn.show(0, expected, "")
        with ExitStack() as opened:
            movers = [self._mover(member, opened) for member in known]
            while sum([self._empty(mover, expected, drawn) for mover in movers]):
                pass

    def _mover(self, member: Member, opened: ExitStack) -> Mover:
        here = opened.enter_context(member.target.node())
        there = opened.enter_context(self.other.node()) if self.other else here
        return Mover(here, there, self.queue, self.to, replicate=self.replicate, patience=self.patience)

    def _empty(self, mover: Mover, expected: float, drawn: Bar) -> int:
        """Move what one node has; returns how many jobs."""
        before = self.moved
        while not self.interrupt.came and (room := self._room):
            try:
                moved = mover.move(room)
            except MoveRefused as refusal:
                self.moved += refusal.moved
                raise Failed(
                    f"{self.moved} jobs were moved; the next were refused there, and are where they were: {refusal}"
                ) from None
            if moved is None:
                break
            self.moved += moved
            drawn.show(self.moved, max(expected, self.moved), "")
            self.pace.wait(self.moved)
        return self.moved - before

    @property
    def _room(self) -> int:
        return self.batch if self.limit is None else min(self.batch, self.limit - self.moved)


def _other(target: Target, name: str | None, file: str | None, user: str | None) -> Target | None:
    """The node of another cluster; TLS and times are as for the first one unless its name says otherwise.

    Raises click.UsageError, Failed for a file of no use.
    """
    if name is None:
        if file or user:
            raise click.UsageError("--to-password-file and --to-user are of another cluster, and --to names none")
        return None
    try:
        server = read_server(name)
        tls = target.tls if server.by_tls is None else Tls.of_words(server.options) if server.by_tls else None
    except ValueError as error:
        raise click.UsageError(f"--to: {error}") from None
    if server.password and (file or user):
        raise click.UsageError(
            "the URL of --to has a user's password: --to-password-file and --to-user do not go with it"
        )
    name_there, secret = user or server.user, server.password.encode()
    if not secret:
        secret = password_of(file) if file else os.fsencode(os.environ.get(VARIABLE, ""))
    if user and not secret:
        raise click.UsageError(f"--to-user is given without a password: --to-password-file or {VARIABLE} give one")
    return attrs.evolve(
        target, address=server.address, user=os.fsencode(name_there) or None, password=secret or None, tls=tls
    )


def _check_elsewhere(known: list[Member], other: Target | None, queue: bytes, to: bytes) -> None:
    """Raise click.UsageError when jobs would go to where they are, Failed when the other cluster lets nobody in."""
    there = known if other is None else _members_there(other)
    if queue == to and {member.id for member in there} & {member.id for member in known}:
        raise click.UsageError(
            "the jobs are there already: name another queue (disqued move FROM TO), or a node of another cluster (--to)"
        )


def _members_there(other: Target) -> list[Member]:
    try:
        return members(other)
    except AccessDenied as error:
        raise Failed(
            f"{other}: {error}; its password is given by --to-password-file, {VARIABLE}, or a URL as --to"
        ) from None


def _length(member: Member, queue: bytes) -> int:
    with member.target.node() as node:
        return read_number(node.call("QLEN", queue), b"")
