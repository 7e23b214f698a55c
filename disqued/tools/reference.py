r"""The reference of the command line, written from the help of its verbs: a page of markdown, and the page of `man`.

    python -m disqued.tools.reference markdown > docs/reference/command-line.md
    python -m disqued.tools.reference man > man/disqued.1

    verbs --walk--> Entry(path, help, arguments, options) --+--> markdown
                                                            +--> roff: .TH .SH .TP, \- and \& where roff wants them

Tests hold both in the repository against this.
"""

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Final

import attrs
import click

from disqued.tools.connecting import OPTION_NAMES, node_options
from disqued.tools.program import DONE, MISUSED, PROGRAM, daemon_options, program
from disqued.tools.verbs import VERBS

_INTRODUCTION: Final = """\
`disqued` with options alone starts a node; its settings are [a page of their own](configuration.md). With a verb it
does one thing, and is over. `disqued VERB --help` and `disqued help VERB` show what stands here, `man disqued` all of
it. Options are typed in full.

| Exit status | When |
|---|---|
| 0 | done |
| 1 | not done, for the reason on standard error; of `cli`: a reply was an error |
| 2 | it was asked for something that there is not; a node ends so, too, for a wrong option or setting |
| 130 | it was stopped by Ctrl-C |
| 141 | nobody reads what it prints, as behind `head`; nothing is said of that |

The statuses of `check` are those of monitoring plugins: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
"""


@attrs.frozen
class Entry:
    """One verb, or one of the verbs that a verb has."""

    path: str  #: as it is typed: `disqued check node`
    blocks: list[str]  #: of its help: paragraphs, and `\b` blocks that are kept as they are
    arguments: str
    options: list[click.Option]
    #: Whether it takes the options that say which node is meant, which are told once for all.
    connects: bool


def entries() -> Iterator[Entry]:
    """All verbs, each followed by its own."""
    context = click.Context(program, info_name=PROGRAM)
    for name in VERBS:
        command = program.get_command(context, name)
        assert command is not None
        yield from _entries(f"{PROGRAM} {name}", command)


def _entries(path: str, command: click.Command) -> Iterator[Entry]:
    context = click.Context(command, info_name=path)
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    connects = {option.name for option in options} >= set(OPTION_NAMES)
    words = [word.make_metavar(context) for word in command.params if isinstance(word, click.Argument)]
    yield Entry(
        path,
        re.split(r"\n\n+", inspect.cleandoc(command.help or "")),
        " ".join(["VERB"] if isinstance(command, click.Group) else words),
        [option for option in options if not connects or option.name not in OPTION_NAMES],
        connects,
    )
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _entries(f"{path} {name}", inner)


def connecting_options() -> list[click.Option]:
    """The options that say which node is meant."""
    made = click.command()(node_options(lambda **words: None))
    return [option for option in made.params if isinstance(option, click.Option)]


def _synopsis(entry: Entry) -> str:
    return " ".join(filter(None, (entry.path, "[OPTIONS]", entry.arguments)))


def _names(option: click.Option) -> tuple[str, str]:
    """The names of an option, and what stands behind them."""
    value = "" if option.is_flag else option.make_metavar(click.Context(click.Command("any")))
    return ", ".join((*option.opts, *option.secondary_opts)), value


def _said(option: click.Option) -> str:
    """What an option is for."""
    words = [option.help or ""]
    if option.show_default and option.default is not None:
        words.append(f"Default: {option.default}.")
    if option.envvar:
        words.append(f"Or {option.envvar}.")
    return " ".join(words)


# Markdown.


def markdown() -> Iterator[str]:
    """The page of markdown, block by block."""
    yield "# The command line\n"
    yield (
        "<!-- Written by `python -m disqued.tools.reference markdown > docs/reference/command-line.md`: change the"
        " verbs, not this page. -->\n"
    )
    yield _INTRODUCTION
    rows = [f"| [`{name}`](#{PROGRAM}-{name}) | {summary} |" for name, (summary, _) in VERBS.items()]
    yield "\n".join(["| Verb | What it does |", "|---|---|", *rows, ""])
    yield "## Which node\n"
    yield "Options of every verb that talks to one. `-h` is the host, as in redis-cli.\n"
    yield _table(connecting_options())
    for entry in entries():
        yield f"{'#' * len(entry.path.split())} {entry.path}\n"
        yield f"    {_synopsis(entry)}\n"
        for block in entry.blocks:
            yield _markdown_block(block)
        if entry.connects:
            yield "And the options that say [which node](#which-node) is meant.\n"
        if entry.options:
            yield _table(entry.options)


def _markdown_block(text: str) -> str:
    if not text.startswith("\b"):
        return _plain(" ".join(text.split())) + "\n"
    first, *lines = text.removeprefix("\b\n").splitlines()
    body = inspect.cleandoc("\n".join(lines)).splitlines()
    return f"{first.strip()}\n\n" + "\n".join(f"    {line}" for line in body) + "\n"


def _plain(text: str) -> str:
    """Text in which nothing is a sign of markdown."""
    return text.replace("*", "\\*").replace("<", "\\<").replace("__", "\\_\\_")


def _table(options: Sequence[click.Option]) -> str:
    rows = ["| Option | Meaning |", "|---|---|"]
    for option in options:
        names, value = _names(option)
        shown = ", ".join(f"`{name}`" for name in names.split(", ")) + (f" `{value}`" if value else "")
        rows.append(f"| {shown} | {_plain(_said(option))} |".replace("[1", "\\[1"))
    return "\n".join(rows) + "\n"


# The page of man.


def man() -> Iterator[str]:
    """The page of man, line by line."""
    yield f'.\\" Written by `python -m disqued.tools.reference man > man/{PROGRAM}.1`: change the verbs, not this page.'
    yield f'.TH {PROGRAM.upper()} 1 "" "disqued" "User Commands"'
    yield ".SH NAME"
    yield _roff(f"{PROGRAM} - a distributed, in-memory, replicated job queue")
    yield ".SH SYNOPSIS"
    yield f".B {PROGRAM}\n.RI [ OPTIONS ]\n.br\n.B {PROGRAM}\n.I VERB\n.RI [ OPTIONS ]"
    yield ".SH DESCRIPTION"
    yield _roff(
        "With options alone a node is started, in the foreground. With a verb one thing is done, and it is over:"
    )
    for name, (summary, _) in VERBS.items():
        yield from _item(name, "", summary)
    yield ".SH OPTIONS OF A NODE"
    yield _roff("Options win over the configuration file, whose settings have the same names.")
    for name, said in daemon_options():
        yield from _item(name, "", said)
    yield ".SH WHICH NODE"
    yield _roff("Options of every verb that talks to a node:")
    yield from _items(connecting_options())
    for entry in entries():
        yield f".SH {_roff(entry.path.removeprefix(f'{PROGRAM} ').upper())}"
        yield f".B {_roff(_synopsis(entry))}"
        for block in entry.blocks:
            yield from _roff_block(block)
        if entry.connects:
            yield ".PP\n" + _roff("And the options that say which node is meant, above.")
        yield from _items(entry.options)
    yield ".SH EXIT STATUS"
    for status, when in (("0", "Done."),
                         ("1", "Not done, for the reason on standard error; of cli: a reply was an error."),
                         ("2", "It was asked for something that there is not."), ("130", "It was stopped by Ctrl-C."),
                         ("141", "Nobody reads what it prints; nothing is said of that.")):  # fmt: skip
        yield from _item(status, "", when)
    yield ".PP\n" + _roff("Of check: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.")


def _items(options: Sequence[click.Option]) -> Iterator[str]:
    for option in options:
        yield from _item(*_names(option), _said(option))


def _item(term: str, value: str, said: str) -> Iterator[str]:
    yield ".TP"
    yield f"\\fB{_roff(term)}\\fR" + (f" \\fI{_roff(value)}\\fR" if value else "")
    yield _roff(said)


def _roff_block(text: str) -> Iterator[str]:
    if not text.startswith("\b"):
        yield f".PP\n{_roff(' '.join(text.split()))}"
        return
    first, *lines = text.removeprefix("\b\n").splitlines()
    yield f".PP\n{_roff(first.strip())}\n.PP\n.nf\n.RS"
    yield from map(_roff, inspect.cleandoc("\n".join(lines)).splitlines())
    yield ".RE\n.fi"


def _roff(text: str) -> str:
    """Text as roff prints it: no dash becomes a hyphen, and no line a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def main(words: Sequence[str]) -> int:
    """Print one of the two; returns the exit status."""
    forms = {"markdown": markdown, "man": man}
    if len(words) != 1 or words[0] not in forms:
        sys.stderr.write(f"usage: python -m disqued.tools.reference {'|'.join(forms)}\n")
        return MISUSED
    text = "\n".join(forms[words[0]]())
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    return DONE


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
