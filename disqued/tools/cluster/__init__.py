"""`disqued cluster`: make a cluster of nodes, look at it, and take nodes out of it.

joining.py    create, add: nodes come to know each other
draining.py   drain: a node hands on all that it holds
status.py     status: what each node says of itself and of the others
views.py      what they say, and what is wrong in that
"""

import click

from disqued.tools.cluster.draining import drain
from disqued.tools.cluster.joining import add, create
from disqued.tools.cluster.status import status


@click.group()
def command() -> None:
    """Make a cluster of nodes, look at it, and take nodes out of it.

    \b
    A cluster of three nodes, and a look at it:
      disqued cluster create 10.0.0.1:7711 10.0.0.2:7711 10.0.0.3:7711
      disqued cluster status -h 10.0.0.1
    """


for verb in (create, add, drain, status):
    command.add_command(verb)
