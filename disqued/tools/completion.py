"""`disqued completion`: what makes a shell complete the words of `disqued`, for its start-up file.

    eval "$(disqued completion bash)"     the shell asks us at each TAB, by a variable (`disqued.cli`)

What the shell is answered is click's; so is the program for bash.  That for zsh begins the completion of zsh where
nobody has yet, and fish has a program of our own: click's cuts what is said of a word at its first comma.
"""

import click
from click.shell_completion import FishComplete, ZshComplete, get_completion_class

from disqued.tools.verbs import COMPLETION_VARIABLE

SHELLS = ("bash", "zsh", "fish")

_ZSH_BEGINS = """
if [[ $zsh_eval_context[-1] != loadautofunc ]] && (( ! $+functions[compdef] )); then
    autoload -Uz compinit && compinit
fi
"""
_FISH = """\
function %(complete_func)s
    set -lx %(complete_var)s fish_complete
    set -lx COMP_WORDS (commandline -cp)
    set -lx COMP_CWORD (commandline -ct)
    for line in (%(prog_name)s)
        set -l answer (string split --max 1 , -- $line)
        switch $answer[1]
            case dir
                __fish_complete_directories $COMP_CWORD
            case file
                __fish_complete_path $COMP_CWORD
            case plain
                echo $answer[2]
        end
    end
end

complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


class Zsh(ZshComplete):
    """The program for zsh, which needs nothing to be loaded before."""

    def source(self) -> str:
        """Its text; the first line has to stay the first, for those who put it into a folder of `fpath`."""
        first, rest = super().source().split("\n", 1)
        return f"{first}\n{_ZSH_BEGINS}{rest}"


class Fish(FishComplete):
    """The program for fish."""

    source_template = _FISH


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

    kind = {"zsh": Zsh, "fish": Fish}.get(shell) or get_completion_class(shell)
    assert kind is not None
    click.echo(kind(program, {}, PROGRAM, COMPLETION_VARIABLE).source())
    return 0
