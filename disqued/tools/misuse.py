"""What a program answers to a wrong command line: what is wrong, the nearest right word, and how to see all.

    disqued cluster crate     there is no verb 'crate'; did you mean create? verbs are add, create, drain, status
    disqued top --onec        there is no option '--onec'; did you mean --once? disqued top --help names all options
    disqued check -p 1 node   the option -p stands behind the verb: disqued check node -p

One line each.  `disqued` and `disqued-spark` share it at every level of their verbs, by `VerbGroup`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import click

from disqued.suggestions import listed, near

#: What somebody reads who asks for help by the letter that is the host wherever there is one.
NO_HELP_LETTER: Final = "-h is the host, in verbs that talk to a node; the help is --help"


class VerbGroup(click.Group):
    """A group that explains an unknown verb."""

    #: What its verbs are called, in the singular.
    kind = "verb"

    def unknown(self, ctx: click.Context, word: str) -> str:
        """Say that a word is no verb, which one may be meant, and how to see all."""
        if word == "help":
            return f"the help is {ctx.command_path} --help"
        names = self.list_commands(ctx)
        return f"there is no {self.kind} '{word}'; {_choice(f'{self.kind}s', names, ctx, word)}"

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            raise click.UsageError(self.unknown(ctx, args[0]), ctx)
        return super().resolve_command(ctx, args)


def walk(root: click.Context, words: Iterable[str]) -> click.Context:
    """Return the context of the verb that the words name, each a verb of the one before.  Raises UsageError."""
    here = root
    for word in words:
        group = here.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"{here.command_path} has no verbs; its help is {here.command_path} --help", root)
        found = group.get_command(here, word)
        if found is None:
            raise click.UsageError(group.unknown(here, word) if isinstance(group, VerbGroup) else f"'{word}'", here)
        here = click.Context(found, info_name=word, parent=here)
    return here


def line_of(error: click.UsageError, root: click.Command, program: str, words: Sequence[str]) -> str:
    """Explain a wrong command line, or show the help of a group without a verb."""
    context = error.ctx or _context(root, program, words)
    if not error.format_message() or isinstance(error, click.exceptions.NoArgsIsHelpError):
        return context.get_help()
    return f"{context.command_path}: {explain(error, context, words)}"


def explain(error: click.UsageError, context: click.Context, words: Sequence[str]) -> str:
    """Explain a wrong command line without naming the program."""
    if isinstance(error, click.NoSuchOption):
        return _unknown_option(error.option_name, context, words)
    text = " ".join(error.format_message().split()).rstrip(".").replace("a valid integer range", "a whole number")
    if isinstance(context.command, click.Group):  # an unknown verb, whose group has said all
        return text
    return f"{text}; {_choice('options', _options(context), context)}"


def _context(root: click.Command, program: str, words: Sequence[str]) -> click.Context:
    """Return the context of the verb that a command line begins with; click leaves it out of some errors."""
    here = click.Context(root, info_name=program)
    for word in words:
        found = here.command.get_command(here, word) if isinstance(here.command, click.Group) else None
        if found is None:
            break
        here = click.Context(found, info_name=word, parent=here)
    return here


def _unknown_option(name: str, context: click.Context, words: Sequence[str]) -> str:
    group = context.command
    verbs: dict[str, list[str]] = {}
    if isinstance(group, click.Group):
        verbs = {verb: _options_of(group, context, verb) for verb in group.list_commands(context)}
        if verb := _having(verbs, name, words):
            return f"the option {name} stands behind the verb: {context.command_path} {verb} {name}"
    if name == "-h":
        return NO_HELP_LETTER
    names = _options(context)
    said = f"there is no option '{name}'; "
    if not verbs or near(name.lstrip("-"), [each.lstrip("-") for each in names]):
        return said + _choice("options", names, context, name)
    below = {each.lstrip("-"): each for options in verbs.values() for each in options}
    for meant in near(name.lstrip("-"), below):
        option = below[meant]
        where = f"{context.command_path} {_having(verbs, option, words)} {option}"
        return f"{said}did you mean {option}? it stands behind the verb: {where}"
    kind = f"{group.kind}s" if isinstance(group, VerbGroup) else "verbs"
    return f"{said}{_choice('options', names, context)}; {_choice(kind, list(verbs), context)}"


def _having(verbs: Mapping[str, Sequence[str]], option: str, words: Sequence[str]) -> str:
    """Return the verb among the words that has an option, else the first one that has it, else nothing."""
    having = [verb for verb, options in verbs.items() if option in options]
    return next((word for word in words if word in having), having[0] if having else "")


def _options_of(group: click.Group, context: click.Context, verb: str) -> list[str]:
    if context.parent is None:  # the modules of all verbs are not imported for a word of help
        return []
    command = group.get_command(context, verb)
    return [] if command is None else _options(click.Context(command, info_name=verb, parent=context))


def _options(context: click.Context) -> list[str]:
    options = [option for option in context.command.get_params(context) if isinstance(option, click.Option)]
    return sorted(name for option in options for name in (*option.opts, *option.secondary_opts))


def _choice(kind: str, names: Sequence[str], context: click.Context, word: str = "") -> str:
    """Say what there is: the nearest first where there is one, and all, or where all are named."""
    bare = {name.lstrip("-"): name for name in names}
    meant = [bare[each] for each in near(word.lstrip("-"), bare)] if word else []
    guess = f"did you mean {' or '.join(meant)}? " if meant else ""
    return guess + listed(kind, names, f"{context.command_path} --help")
