"""`disqued requeue`: jobs are queued at once."""

import click

from disqued.tools.connecting import Target, node_options


@click.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@node_options
def command(target: Target, jobs: tuple[str, ...]) -> None:
    """Queue each JOB of a node now that is delayed, put off, or with a consumer that has stopped.

    \b
    Examples:
      disqued requeue DI0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0SQ

    A job that a consumer still works on is delivered a second time.  For dead jobs there is `disqued redrive`.
    """
    with target.node() as node:
        count = node.call("ENQUEUE", *jobs)
    click.echo(f"{count} of {len(jobs)} jobs have been queued")
