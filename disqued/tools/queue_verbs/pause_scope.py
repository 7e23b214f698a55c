"""Where a pause is: the options that `disqued pause` and `disqued resume` share."""

import click

from disqued.tools.values import options

#: Give a verb the options that say where the pause is.
scope_options = options(
    click.option("--cluster", "in_cluster", is_flag=True, help="In the whole cluster: the default."),
    click.option("--node", "on_node", is_flag=True, help="Only on the node that -h and -p name."),
)


def check_scope(*, in_cluster: bool, on_node: bool) -> None:
    """Raise UsageError for both."""
    if in_cluster and on_node:
        raise click.UsageError("--cluster and --node exclude each other")
