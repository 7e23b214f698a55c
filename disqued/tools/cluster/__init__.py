"""`disqued cluster`: make a cluster of nodes, look at it, and take nodes out of it.

joining.py    create, add: nodes come to know each other
draining.py   drain: a node hands on all that it holds
status.py     status: what each node says of itself and of the others

What they say of each other is read in `cluster_views`, and what takes time is waited for in `cluster_waits`.
"""

import click

from disqued.tools.cluster.draining import drain
from disqued.tools.cluster.joining import add, create
from disqued.tools.cluster.status import status
from disqued.tools.misuse import VerbGroup


@click.group(cls=VerbGroup)
def command() -> None:
    """Make a cluster of nodes, look at it, and take nodes out of it.

    \b
    Examples:
      disqued cluster create 10.0.0.1:7711 10.0.0.2:7711 10.0.0.3:7711
      disqued cluster add -h 10.0.0.1 10.0.0.4:7711
      disqued cluster drain 10.0.0.2:7711
      disqued cluster status -h 10.0.0.1
    """


for verb in (create, add, drain, status):
    command.add_command(verb)
