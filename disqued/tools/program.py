"""`disqued VERB`: a verb is found, imported and run; what went wrong becomes one line, and an exit status.

    words --> Verbs --> module of the verb --> its command --> exit status
                |
                +-- click.UsageError      2, with what is allowed (misuse.py)
                +-- click.ClickException  its own status, mostly 1
                +-- Ctrl-C                130, as a shell says it
                +-- a reader that has gone (`| head`)  141, quietly (`disqued.tools.stdio`)

A package that a verb needs and that is not there is told with the extra to install.  Anything else that escapes is a
bug and keeps its traceback.
"""

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from disqued.suggestions import near
from disqued.tools.misuse import VerbGroup, line_of
from disqued.tools.verbs import VERBS, VERBS_OF

PROGRAM: Final = "disqued"
DONE: Final = 0
FAILED: Final = 1
MISUSED: Final = 2
INTERRUPTED: Final = 130  #: 128 and the number of the signal, as a shell tells it
#: Packages that a plain installation is without, by the names that they are imported by, and the extra that has them.
EXTRAS: Final = {"prompt_toolkit": "cli", "redis": "cli", "rich": "cli"}
#: Where the context of a completion has the last word before the one that is completed.
_LAST: Final = "disqued.last"
#: Words that other programs start a server by.
STARTING: Final = frozenset({"start", "run", "serve", "server", "daemon", "up", "node"})


class ReaderGone(Exception):
    """Nobody reads what a verb prints; not as the OSError that it was, of which click makes a failure of the verb."""


class Verbs(VerbGroup):
    """The verbs of `VERBS`; the module of one is imported when it is asked for."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGone from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(VERBS[cmd_name][1]).command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:
            ctx.meta[_LAST] = args[-1] if args else ""
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The verbs and the settings of a node that begin so; or the values of the setting that stands before."""
        if ctx.meta[_LAST].startswith("--"):
            return values_of(ctx.meta[_LAST], incomplete)
        words = {name: summary for name, (summary, _) in VERBS.items()}
        if incomplete.startswith("-"):
            words = dict(daemon_options())
        return [CompletionItem(word, help=said) for word, said in words.items() if word.startswith(incomplete)]

    def unknown(self, ctx: click.Context, word: str) -> str:
        """Say that a word is no verb, which one may be meant, and how to see all."""
        what, all_of_them = f"there is no verb '{word}'", f"{PROGRAM} --help names all verbs"
        if word.lower() in STARTING:
            return f"{what}; options alone start a node, such as {PROGRAM} --port 7711; {all_of_them}"
        if hint := _of_another_kind(word):
            return f"{what}; {hint}; {all_of_them}"
        paths = {below: f"{verb} {below}" for verb, below in VERBS_OF} | {verb: verb for verb in VERBS}
        meant = [paths[word]] if word in paths else [paths[name] for name in near(word, paths)]
        guess = f"did you mean {' or '.join(meant)}? " if meant else ""
        return f"{what}; {guess}{all_of_them}; options alone start a node"

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, summary) for name, (summary, _) in VERBS.items()])


def values_of(option: str, incomplete: str) -> list[CompletionItem]:
    """What may stand behind an option that starts a node, as far as there are words for it."""
    from disqued.config import SETTINGS
    from disqued.config.kinds import Choice, FilePath, Folder, FolderPath, StoreName, YesNo

    setting = SETTINGS.get(option.removeprefix("--"))
    kind = setting.kind if setting else None
    if isinstance(kind, (Folder, FolderPath)):
        return [CompletionItem(incomplete, type="dir")]
    if option == "--config" or isinstance(kind, FilePath):
        return [CompletionItem(incomplete, type="file")]
    words: tuple[str, ...] = ()
    if isinstance(kind, YesNo):
        words = ("yes", "no")
    elif isinstance(kind, Choice):
        words = kind.words
    elif isinstance(kind, StoreName):
        words = kind.known
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def daemon_options() -> Iterator[tuple[str, str]]:
    """The options that start a node, each with what it is for."""
    from disqued.config import SETTINGS, Status

    yield "--config", "Configuration file to read."
    for name, setting in SETTINGS.items():
        if setting.status is not Status.OBSOLETE:
            yield f"--{name}", setting.summary
    yield "--version", "Show the versions of disqued and of what it runs on."
    yield "--help", "Show all of these, with their defaults."


program: Final = Verbs(
    PROGRAM,
    help="A distributed, in-memory, replicated job queue: a node, when options alone are given, or one of the verbs.",
    context_settings={"max_content_width": 110},
)


def run(words: Sequence[str]) -> int:
    """Run what a command line asks for, and return its exit status; what went wrong is told on stderr.

    Raises BrokenPipeError when nobody reads what is printed.
    """
    try:
        status: Any = program.main(list(words), prog_name=PROGRAM, standalone_mode=False)
    except click.UsageError as error:
        sys.stderr.write(line_of(error, program, PROGRAM, words) + "\n")
        return MISUSED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except ReaderGone as gone:
        raise gone.__cause__ or gone from None
    except ImportError as error:
        sys.stderr.write(f"{PROGRAM} {words[0]}: {missing(error)}\n")
        return FAILED
    return status if isinstance(status, int) else DONE


def end_echo() -> None:
    """End the line in which a terminal shows ^C, before something is said."""
    if sys.stderr.isatty():
        sys.stderr.write("\n")


def _of_another_kind(word: str) -> str:
    """Say how a word is used that is a command or a setting of a node."""
    from disqued.commands import catalogue  # noqa: F401 - completes the table
    from disqued.commands.table import TABLE
    from disqued.config import SETTINGS

    if word.upper().encode() in TABLE:
        return f"it is a command of a node: {PROGRAM} cli {word}"
    if word.removeprefix("--") in SETTINGS:
        return f"it is a setting of a node: {PROGRAM} --{word.removeprefix('--')} VALUE"
    return ""


def missing(error: ImportError) -> str:
    """Say which extra has a package that is not there.  Raises the error where it is about something else."""
    if not is_extra(error):
        raise error
    package = _package(error)
    return f'{package} is not installed, which this verb needs: pip install "{PROGRAM}[{EXTRAS[package]}]"'


def is_extra(error: ImportError) -> bool:
    """Tell whether what is missing comes with an extra."""
    return _package(error) in EXTRAS


def _package(error: ImportError) -> str:
    return (error.name or "").partition(".")[0]
