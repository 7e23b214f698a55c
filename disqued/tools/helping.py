"""`disqued help VERB`: what `disqued VERB --help` says."""

from typing import Any

import click
from click.shell_completion import CompletionItem

from disqued.tools.misuse import walk
from disqued.tools.program import program


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The verbs, or the verbs of the verb that stands before."""
    group: Any = program
    for word in ctx.params.get(parameter.name or "") or ():
        group = group.get_command(ctx, word)
    names = group.list_commands(ctx) if isinstance(group, click.Group) else []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command("help")
@click.argument("verb", nargs=-1, metavar="[VERB]...", shell_complete=_complete)
@click.pass_context
def command(ctx: click.Context, verb: tuple[str, ...]) -> None:
    """Show the help of a verb: what it does, its options, and examples.

    \b
    Examples:
      disqued help cli
      disqued help cluster create

    Without a verb it names all of them.  `disqued --help` shows the options that start a node, too.
    """
    click.echo(walk(ctx.parent or ctx, verb).get_help())
