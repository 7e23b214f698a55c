"""`disqued requeue`: jobs are queued at once."""

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import click

from disqued.client.errors import ServerError
from disqued.client.replies import read_facts
from disqued.tools.connecting import NodeConnection, Target, node_options
from disqued.tools.console_text import short
from disqued.tools.members import Member
from disqued.tools.polling import ask_all
from disqued.tools.queue_verbs.selection import SelectedJob, Selection, chunks, confirm, select, selection_options

#: States that jobs are requeued from, as JSCAN calls them.
STATES: Final = ("delayed", "dead", "in-flight")
USUAL: Final = ("delayed", "dead")
REDRIVE_S: Final = 600.0  #: how long nodes may take over dead jobs


@click.command()
@click.argument("jobs", metavar="[JOB...]", nargs=-1)
@click.option("--queue", metavar="QUEUE", help="Jobs of this queue, instead of JOBs.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES),
              help="Only jobs in this state; may be given several times.  [default: delayed and dead]")  # fmt: skip
@selection_options
@node_options
def command(  # noqa: PLR0917 - click gives them by name
    target: Target, jobs: tuple[str, ...], queue: str | None, states: tuple[str, ...], failed_since: float | None,
    reason: str | None, limit: int | None, *, dry_run: bool, yes: bool,
) -> None:  # fmt: skip
    """Queue each JOB now that is delayed, put off, or with a consumer that has stopped; or jobs of a queue.

    \b
    Examples:
      disqued requeue DI0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0SQ
      disqued requeue --queue mail --state delayed --dry-run
      disqued requeue --queue mail --state dead --reason 'no such host' --failed-since 2h --limit 100

    With --queue it says first how many jobs would be queued, and asks; where there is no terminal, nothing is done
    without --yes.  Delays end now.  Dead jobs begin again, and their tries count afresh, as with `disqued redrive`.  A
    job that a consumer has (in-flight) is delivered a second time; one whose last try that is (MAXTRIES) dies instead.

    Each job is queued on a node that has it; it is looked for on all nodes of the cluster.  One that waits already
    stays where it is.  The exit status is 1 if a job could not be queued.
    """
    narrowed = bool(states or limit or dry_run or yes) or failed_since is not None or reason is not None
    if (queue is None) is (not jobs):
        raise click.UsageError("JOBs are named, or --queue names a queue; one of both is needed")
    if queue is None and narrowed:
        raise click.UsageError("--state, --failed-since, --reason, --limit, --dry-run and --yes go with --queue")
    if queue is None:
        problems = _queue_named(target, list(dict.fromkeys(jobs)))
    else:
        wanted = Selection(os.fsencode(queue), states or USUAL, failed_since, reason, limit)
        problems = _queue_selected(target, queue, wanted, dry_run=dry_run, yes=yes)
    for why in problems:
        click.echo(why, err=True)
    click.get_current_context().exit(1 if problems else 0)


# Jobs that are named.


def _queue_named(target: Target, jobs: Sequence[str]) -> list[str]:
    """Queue jobs, and return why others are not queued."""
    told = ask_all(target, lambda node: _shown(node, jobs))
    done, problems = 0, []
    for number, job in enumerate(jobs):
        holders = [(member, read_facts(replies[number], b"")) for member, replies in told if replies[number]]
        problem = _hindrance(job, holders) or _queue_on_one(job, [member for member, _ in holders])
        done += not problem
        problems += [problem] if problem else []
    click.echo(f"{done} of {len(jobs)} jobs have been queued")
    return problems


def _shown(node: NodeConnection, jobs: Sequence[str]) -> list[Any]:
    """Ask a node what it knows of jobs.  Raises ServerError, as for what is no id."""
    replies = node.call_all([("SHOW", job) for job in jobs])
    for reply in replies:
        if isinstance(reply, ServerError):
            raise reply
    return replies


def _hindrance(job: str, holders: Sequence[tuple[Member, Any]]) -> str:
    """Say why a job is not to be queued; empty for one that is active."""
    if not holders:
        return f"{job} is on no node that answers"
    for member, facts in holders:
        if facts["state"] == b"queued":
            return f"{job} waits already, on {member.address}"
    _, facts = holders[0]
    if facts["state"] == b"dead":
        return f"{job} is dead; `disqued redrive {short(os.fsdecode(facts['queue']))} {job}` queues it again"
    return "" if facts["state"] == b"active" else f"{job} is {facts['state'].decode()}, which no requeue changes"


def _queue_on_one(job: str, holders: Sequence[Member]) -> str:
    """Queue a job on a node that can; returns why none could."""
    for member in holders:
        with member.target.node() as node:
            if node.call("ENQUEUE", job):
                return ""
    return f"{job} cannot be queued: it has no try left (MAXTRIES), or is delivered at most once (RETRY 0)"


# Jobs that are selected.


def _queue_selected(target: Target, queue: str, wanted: Selection, *, dry_run: bool, yes: bool) -> list[str]:
    """Queue the jobs that are meant, and return why others are not queued."""
    found = select(target, wanted)
    would = f"{_counted(found)} of {short(queue)} would be queued"
    if dry_run or not found:
        click.echo(would)
        return []
    confirm(would, "queues them", yes=yes)
    done = 0
    dead = [job.id for job in found if job.state == "dead"]
    with target.node() as node:
        for some in chunks(dead):
            done += node.call("REDRIVE", wanted.queue, "ID", *some, waits=REDRIVE_S)
    for member in dict.fromkeys(job.member for job in found):
        with member.target.node() as node:
            done += _enqueue(node, [job.id for job in found if job.member == member and job.state != "dead"])
    click.echo(f"{done} of {len(found)} jobs have been queued")
    left = len(found) - done
    return [f"{left} jobs have been queued, or have ended, meanwhile, or have no try left"] if left else []


def _enqueue(node: NodeConnection, ids: Sequence[bytes]) -> int:
    return sum(node.call("ENQUEUE", *some) for some in chunks(ids))


def _counted(jobs: Sequence[SelectedJob]) -> str:
    """Count jobs by their states: `3 dead and 2 delayed jobs`."""
    counts = Counter(job.state for job in jobs)
    return f"{' and '.join(f'{count} {state}' for state, count in counts.items()) or 0} jobs"
