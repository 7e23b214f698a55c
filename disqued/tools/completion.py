"""`disqued completion`: what makes a shell complete the words of `disqued`, for its start-up file.

eval "$(disqued completion bash)"     the shell asks us at each TAB, by a variable (`disqued.cli`)
"""

import click
from click.shell_completion import get_completion_class

from disqued.tools.verbs import COMPLETION_VARIABLE

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> int:
    """Print the program that makes a shell complete verbs, options and settings at TAB.

    \b
    Examples:
      eval "$(disqued completion bash)"                                             in ~/.bashrc
      eval "$(disqued completion zsh)"                                              in ~/.zshrc
      disqued completion fish > ~/.config/fish/completions/disqued.fish             once
    """
    from disqued.tools.program import PROGRAM, program

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(program, {}, PROGRAM, COMPLETION_VARIABLE).source())
    return 0
