"""`disqued purge`: jobs of a queue end on all nodes of a cluster."""

import os
from typing import Final

import click

from disqued.core.model.job import ALL_STATES, STATE_NAMES
from disqued.tools.connecting import NodeConnection, Target, node_options
from disqued.tools.console_text import short
from disqued.tools.queue_verbs.selection import Selection, chunks, confirm, select, selection_options
from disqued.tools.values import Number

PURGE_S: Final = 600.0
#: States that QPURGE takes, and what it calls them.
WHOLE: Final = {"ready": "queued"} | {
    word.decode(): word.decode() for state, word in STATE_NAMES.items() if ALL_STATES >> state & 1
}
#: And those whose jobs are looked for: they are active, as copies of jobs that wait on other nodes are.
SOUGHT: Final = ("in-flight", "delayed")
STATES: Final = (*WHOLE, *SOUGHT)


@click.command()
@click.argument("queue", metavar="QUEUE")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES),
              help="Only jobs in this state; may be given several times.  [default: all]")  # fmt: skip
@selection_options
@click.option("--wait", "wait_s", type=Number(0), default=PURGE_S, show_default=True, metavar="SECONDS",
              help="How long it may take; the nodes go on after that.")  # fmt: skip
@node_options
def command(  # noqa: PLR0917 - click gives them by name
    target: Target, queue: str, states: tuple[str, ...], failed_since: float | None, reason: str | None,
    limit: int | None, *, dry_run: bool, yes: bool, wait_s: float,
) -> None:  # fmt: skip
    """End the jobs of QUEUE on all nodes of the cluster, so that no copy comes back; or some of them.

    \b
    Examples:
      disqued purge mail --dry-run
      disqued purge mail --state ready
      disqued purge mail --state dead --reason 'no such host' --failed-since 2h --yes

    It says first how many jobs would end, and asks; where there is no terminal, nothing ends without --yes.

    Jobs that consumers have, dead jobs, and jobs that are delivered at most once (RETRY 0) end as well.  A node that is
    away learns which jobs have ended when it is back; jobs that it alone holds stay, and so do jobs that are
    added meanwhile.

    With --failed-since, --reason or --limit, and in the states in-flight and delayed, each job is cancelled for itself
    (disqued cancel): one that a consumer has ends when its consumer learns of it, or gives it back.  `active` is each
    job that is not in the queue of its node, also the copy of one that waits on another.
    """
    name, wanted = (
        os.fsencode(queue),
        Selection(os.fsencode(queue), states or [*dict.fromkeys(WHOLE.values())], failed_since, reason, limit),
    )
    if failed_since is None and reason is None and limit is None and not set(states) & set(SOUGHT):
        words = [word for state in states for word in ("STATE", WHOLE[state])]
        with target.node() as node:
            count = node.call("QPURGE", name, *words, "DRYRUN", waits=wait_s)
            if not _is_wanted(queue, count, dry_run=dry_run, yes=yes):
                return
            count = node.call("QPURGE", name, *words, waits=wait_s)
        click.echo(f"{count} jobs of {short(queue)} have ended")
        return
    ids = [job.id for job in select(target, wanted)]
    if _is_wanted(queue, len(ids), dry_run=dry_run, yes=yes):
        with target.node() as node:
            _cancel(node, queue, ids)


def _is_wanted(queue: str, count: int, *, dry_run: bool, yes: bool) -> bool:
    """Return whether so many jobs are to end.  Raises what `confirm` does."""
    would = f"{count} jobs of {short(queue)} would end"
    if dry_run or not count:
        click.echo(would)
        return False
    confirm(would, "ends them", yes=yes)
    return True


def _cancel(node: NodeConnection, queue: str, ids: list[bytes]) -> None:
    words = [word for some in chunks(ids) for word in node.call("CANCEL", *some)]
    click.echo(f"{words.count(b'cancelled')} jobs of {short(queue)} have ended")
    if running := words.count(b"cancelling"):
        click.echo(f"{running} jobs are with consumers, and end when these learn of it or give them back", err=True)
