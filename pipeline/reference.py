"""The reference of `disqued-spark`, as a page of markdown, written from its help.

    python -m disqued.pipeline.reference > docs/reference/disqued-spark.md

A test holds the page in the repository against it.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Final

import attrs
import click

from disqued.pipeline.command import PROGRAM, VERBS, main_group
from disqued.pipeline.run import RunLocation, place_options

COMMAND_LINE: Final = "python -m disqued.pipeline.reference > docs/reference/disqued-spark.md"

_NOWHERE: Final = click.Context(click.Command("any"))
_INTRODUCTION: Final = f"""\
# disqued-spark

<!-- Written by `{COMMAND_LINE}`: change the verbs, not this page. -->

    $ pip install "disqued[spark]"
    $ {PROGRAM} VERB [options]

Without an index that has disqued, see [how to install](../how-to/install.md).

Java 17 or newer has to be there. Started by itself it runs Spark on this machine, with all its cores; `spark-submit`
or `--master` say where else. What is done meanwhile, and after ten seconds without a word how many tasks
of Spark are done, is told on stderr; results on stdout.

| Exit status | When |
|---|---|
| 0 | done |
| 1 | something was found (`audit`, `doctor --fail`) |
| 2 | it cannot be run so, or failed: stderr says why |
| 130 | it was stopped, by Ctrl-C or SIGTERM |

Verbs that make [tables](tables.md) may be run as often as one likes: twice changes nothing, late catches up, and what
was killed is done again. On one machine two runs of the same verb on the same tables exclude each other; where tables
are on other file systems, see to it that one timer starts them.
"""


def page() -> Iterator[str]:
    """The page, block by block."""
    yield _INTRODUCTION
    yield "| Verb | What it makes or does |\n|---|---|\n" + "".join(
        f"| [`{verb}`](#{verb}) | {what} |\n" for verb, what in VERBS.items()
    )
    yield "## Options of most verbs\n"
    yield _options([option for option in _common() if isinstance(option, click.Option)])
    context = click.Context(main_group, info_name=PROGRAM)
    for verb in VERBS:
        command = main_group.get_command(context, verb)
        assert command is not None
        yield from _verb(verb, command)


def _common() -> list[click.Parameter]:
    """The options that `place_options` adds."""
    return click.command()(place_options(lambda **words: None)).params


def _verb(verb: str, command: click.Command) -> Iterator[str]:
    yield f"## {verb}\n"
    yield from map(_block, re.split(r"\n\n+", inspect.cleandoc(command.help or "")))
    if command.epilog:
        yield _linked(command.epilog) + "\n"
    arguments = [
        word.make_metavar(click.Context(command)) for word in command.params if isinstance(word, click.Argument)
    ]
    if arguments:
        yield f"    {PROGRAM} {verb} {' '.join(arguments)} [options]\n"
    common = {field.name for field in attrs.fields(RunLocation)}
    own = [option for option in command.params if isinstance(option, click.Option) and option.name not in common]
    if own:
        yield _options(own)


def _block(text: str) -> str:
    """A paragraph; one that is kept as it is (`\\b`) becomes a block of code."""
    if not text.startswith("\b"):
        return " ".join(text.split()) + "\n"
    return "\n".join(f"    {line}" for line in inspect.cleandoc(text.removeprefix("\b\n")).splitlines()) + "\n"


def _linked(text: str) -> str:
    return re.sub(r"docs/reference/(\S+?\.md)", r"[\1](\1)", " ".join(text.split()))


def _options(options: list[click.Option]) -> str:
    rows = ["| Option | Default | Meaning |", "|---|---|---|"]
    for option in options:
        names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
        value = "" if option.is_flag else f" `{option.make_metavar(_NOWHERE)}`".replace("|", "\\|")
        default = f"`{option.default}`" if option.show_default and option.default is not None else ""
        said = (option.help or "").replace("|", "\\|")
        if option.envvar:
            said += f" Or `{option.envvar}`."
        if option.required:
            said += " Has to be there."
        rows.append(f"| {names}{value} | {default} | {said} |".replace("|  |", "| |"))
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write("\n".join(page()))
