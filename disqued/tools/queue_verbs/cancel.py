"""`disqued cancel`: jobs are cancelled in the whole cluster."""

import click

from disqued.tools.connecting import Target, node_options
from disqued.tools.queue_verbs.field_tables import print_table


@click.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@node_options
def command(target: Target, jobs: tuple[str, ...]) -> None:
    """Cancel each JOB in the whole cluster, and say what came of that.

    \b
    Examples:
      disqued cancel DI0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0SQ

    cancelled: it waited, and has ended.  cancelling: a consumer has it, learns of it, and the job ends instead of being
    queued again.  done: it had ended.  unknown: no node that answers knows it.
    """
    with target.node() as node:
        words = node.call("CANCEL", *jobs)
    print_table(["job", "is"], [[job, word.decode()] for job, word in zip(jobs, words, strict=True)])
