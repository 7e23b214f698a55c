"""`disqued requeue`: jobs are queued at once."""

import os
from typing import Any

import click

from disqued.client.replies import read_facts
from disqued.tools.connecting import NodeConnection, Target, node_options
from disqued.tools.console_text import short


@click.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@node_options
def command(target: Target, jobs: tuple[str, ...]) -> None:
    """Queue each JOB of a node now that is delayed, put off, or with a consumer that has stopped.

    \b
    Examples:
      disqued requeue DI0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0SQ

    A job that a consumer still works on is delivered a second time; one whose last try that is (MAXTRIES) dies instead.
    For dead jobs there is `disqued redrive`.  The exit status is 1 if a job could not be queued.
    """
    with target.node() as node:
        count = node.call("ENQUEUE", *jobs)
        left = [] if count == len(jobs) else [why for job in jobs if (why := _hindrance(node, job))]
    click.echo(f"{count} of {len(jobs)} jobs have been queued")
    for why in left:
        click.echo(why, err=True)
    click.get_current_context().exit(1 if left else 0)


def _hindrance(node: NodeConnection, job: str) -> str:
    """Say that a job is dead, or not on this node; empty if neither is so."""
    facts: Any = read_facts(node.call("SHOW", job), b"")
    if not facts:
        return f"{job} is not on this node"
    if facts["state"] == b"dead":
        return f"{job} is dead; `disqued redrive {short(os.fsdecode(facts['queue']))} {job}` queues it again"
    return ""
