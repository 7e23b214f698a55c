"""The reference of the commands, as a page of markdown, written from the table.

    python -m disqued.commands.reference > docs/reference/commands.md

Everything on the page is read off the commands themselves: the syntax line off the fields, the text off the docstring,
what is allowed and refused off the kinds of the arguments.  A test holds the page in the repository against it.
"""

import sys
from collections.abc import Iterable, Iterator

from disqued.commands import catalogue
from disqued.commands.table import FLAG_WORDS, TABLE, TWICE, Arg, Command, Container, Field

#: Groups in the order of the page, with their headings.
GROUPS = {
    "jobs": "Jobs",
    "queues": "Queues",
    "workers": "Workers and tasks",
    "lists": "Reliable lists and events",
    "logs": "Logs and groups of consumers",
    "connection": "Connections",
    "server": "The server",
    "cluster": "The cluster",
}

COMMAND_LINE = "python -m disqued.commands.reference > docs/reference/commands.md"

_INTRODUCTION = f"""\
# Commands

<!-- Written by `{COMMAND_LINE}`: change the commands, not this page. -->

Names and option words may be written in any case; queue names, bodies and job ids are bytes and kept as they are.
Options come in any order after the arguments in their places.  Of two of a kind the last one counts, or the second one
is refused where the errors of the command say so; those that may be given several times say that (HEADER, STATE).

In a syntax line, capitals are sent as they are, `[...]` may be left out, `a|b` is one of the two, and `name ...` is one
or more.  Whole numbers are decimals of 64 bits with an optional sign; where nothing stands, 0 is read.

A span of time, in seconds or milliseconds, may have a fraction and an exponent, as programs print numbers: `0.5`, `.5`,
`1e-3`, `4.998765432101234`.  It is rounded to the nearest millisecond, and one above 0 is never 0.  In replies, whole
seconds are integers and fractions are doubles (`0.5`), which RESP2 has as strings.  The time that is left of a span is
in whole seconds, rounded up, unless its name says milliseconds.

## Errors of every command

An error begins with a word in capitals that programs can rely on.  Besides those that stand with a command, any
command may answer:

| Error | When |
|---|---|
| `ERR unknown command '<name>'` | There is no such command. |
| `ERR wrong number of arguments for '<name>' command` | Fewer or more words than the arity says. |
| `ERR wrong number of arguments for '<name>' command: <n> words at most` | More words than have a place. |
| `ERR syntax error - unknown option '<word>'; expected <options>` | A word that is no option of the command. |
| `ERR syntax error - <option> without its value: allowed are <values>` | An option is the last word. |
| `ERR syntax error - needed as well: <word> <values>` | The values at the end are missing, such as FROM queue. |
| `NOAUTH Authentication required.` | A password is set and AUTH did not come first; AUTH, HELLO and QUIT do without. |
| `OOM command not allowed when used memory > 'maxmemory'.` | Memory is full; commands with the flag denyoom. |
| `MISCONF Errors writing to the AOF file: <reason>` | The journal failed; commands with the flag denyoom, and PING. |
| `LOADING Disque is loading the dataset in memory` | At the start; commands without the flag loading. |
| `UNBLOCKED client unblocked via CLIENT UNBLOCK` | CLIENT UNBLOCK with ERROR; commands that wait. |
| `ERR internal error` | A bug of this server: it is logged, and nothing else is lost. |
"""


def syntax(entry: Command) -> str:
    """How a command is written."""
    return " ".join((entry.name, *map(_written, _in_order(entry.fields))))


def _in_order(fields: tuple[Field, ...]) -> Iterator[Field]:
    """The fields as they are written: values in their places, then options, then the rest."""
    for styles in (("positional",), ("optional",), ("option", "flag"), ("rest",)):
        yield from (field for field in fields if field.arg.style in styles)


def _written(field: Field) -> str:
    arg = field.arg
    value = _placeholder(field)
    word = "" if arg.keyword is None else arg.keyword.decode()
    if arg.style == "positional":
        return value
    if arg.style == "flag":
        return f"[{word}]"
    if arg.style == "rest":
        text = f"{f'[{word}]' if arg.bare else word} {value} ...".strip()
        return text if arg.minimum or word else f"[{text}]"
    return f"[{word} {value}]".replace("[ ", "[") + (" ..." if arg.repeats else "")


def _placeholder(field: Field) -> str:
    arg = field.arg
    if arg.parts:
        return arg.written
    if arg.kind.words:
        return "|".join(arg.kind.words)
    same = arg.keyword is not None and arg.keyword.decode().lower() == field.label.replace("-", "")
    return "n" if same and arg.kind.name in {"integer", "double"} else field.label


def _argument_name(field: Field) -> str:
    """How the table of arguments calls one: by its word, where it has one."""
    keyword = field.arg.keyword
    return field.label if keyword is None else keyword.decode()


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _allowed(arg: Arg) -> str:
    return "" if arg.style == "flag" else arg.kind.allowed


def _arguments(entry: Command) -> Iterator[str]:
    if not entry.fields:
        return
    yield ""
    yield "| Argument | What it is | Allowed |"
    yield "|---|---|---|"
    for field in _in_order(entry.fields):
        yield f"| `{_argument_name(field)}` | {_cell(field.arg.doc)} | {_cell(_allowed(field.arg))} |"


def errors(entry: Command) -> list[str]:
    """Lines of the errors that a command may answer, beyond those of every command, each once."""
    lines = [line for field in entry.fields for line in field.arg.errors]
    lines += [f"ERR {field.arg.misuse}" for field in entry.fields if field.arg.words]
    once = [field.arg.keyword.decode() for field in entry.fields if field.arg.once and field.arg.keyword is not None]
    lines += [f"ERR {TWICE.format('<option>')}: {', '.join(once)}"] if once else []
    return list(dict.fromkeys((*lines, *entry.errors)))


def _facts(entry: Command) -> Iterator[str]:
    words = [word.decode() for one, word in FLAG_WORDS.items() if one in entry.flags]
    yield ""
    yield f"- Reply: {entry.reply.text}"
    yield f"- Cost: {entry.cost}"
    yield f"- Arity {entry.arity}; flags: {', '.join(words)}; since {entry.since}"
    lines = errors(entry)
    if lines:
        yield "- Errors:"
        yield from (f"    - `{line}`" for line in lines)


def _command(entry: Command, level: str) -> Iterator[str]:
    yield ""
    yield f"{level} {entry.name}"
    yield ""
    yield "```"
    yield syntax(entry)
    yield "```"
    yield ""
    yield entry.summary
    if entry.manual:
        yield ""
        yield entry.manual
    yield from _arguments(entry)
    yield from _facts(entry)


def _container(parent: Container) -> Iterator[str]:
    yield ""
    yield f"### {parent.name}"
    yield ""
    yield parent.summary
    yield ""
    known, unknown = parent.misuse("<subcommand>", True), parent.misuse("<subcommand>", False)
    also = "" if known == unknown else f",\na subcommand with the wrong words `ERR {known}`"
    yield f"Any other subcommand answers `ERR {unknown}`{also}."
    if parent.alone is not None:
        yield from _command(parent.alone, "####")
    for word in sorted(parent.children):
        yield from _command(parent.children[word], "####")


def _group(name: str, heading: str) -> Iterator[str]:
    yield ""
    yield f"## {heading}"
    for key in sorted(TABLE):
        entry = TABLE[key]
        if entry.group == name:
            yield from _command(entry, "###") if isinstance(entry, Command) else _container(entry)


def _index() -> Iterator[str]:
    for name, heading in GROUPS.items():
        names = (TABLE[key].name for key in sorted(TABLE) if TABLE[key].group == name)
        links = ", ".join(f"[{command}](#{command.lower()})" for command in names)
        yield f"- {heading}: {links}"


def page() -> str:
    """The whole page."""
    assert catalogue.MODULES  # the table is complete
    lines: Iterable[str] = (line for name, heading in GROUPS.items() for line in _group(name, heading))
    return "\n".join((_INTRODUCTION.rstrip(), "", "## All commands", "", *_index(), *lines, ""))


if __name__ == "__main__":
    sys.stdout.write(page())
