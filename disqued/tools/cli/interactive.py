"""The prompt of `disqued cli`: lines that are edited, completed, run, and remembered.

    127.0.0.1:7711> ADDJOB mail _ body timeout [REPLICATE replicate] ...      the hint is behind the cursor
    not connected> _                                                          the next command connects anew

Ctrl-C ends what runs, and with it the connection; Ctrl-D and `quit` end the session.  A command whose connection was
lost is not sent again: it may have been done.
"""

import sys
import time
from collections.abc import Callable, Iterable
from typing import Final

import attrs
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document as Text
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.shortcuts import clear
from prompt_toolkit.styles import Style

from disqued.client.errors import DisquedError
from disqued.tools.cli.batch import HELP, LEAVING, Runner, repetition
from disqued.tools.cli.command_lines import BadLine, split
from disqued.tools.cli.documents import Documents
from disqued.tools.cli.history import open_history
from disqued.tools.cli.link import Link

_STYLE: Final = Style.from_dict({"hint": "fg:ansibrightblack"})
LONG_S: Final = 0.5  #: how long a command takes that is told so


@attrs.define
class KnownCommands:
    """What is known of the node's commands, once it was asked."""

    documents: Documents = attrs.Factory(Documents)

    def learn(self, link: Link) -> None:
        """Ask the node, unless that is done.  Raises as `Documents.fetched` does."""
        if not self.documents.commands:
            self.documents = Documents.fetched(link)


def words_before(text: str) -> list[str] | None:
    """The words of a line that is not complete; None where a quote is open."""
    try:
        words = split(text.encode("utf-8", "surrogateescape"))
    except BadLine:
        return None
    return [word.decode(errors="replace") for word in words]


class CommandCompleter(Completer):
    """Completes commands, subcommands and options."""

    def __init__(self, known: KnownCommands) -> None:
        self._known = known

    def get_completions(self, document: Text, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        begun = "" if not text or text[-1].isspace() else text.split()[-1]
        words = words_before(text.removesuffix(begun))
        if words is None:
            return
        if words and words[0].isdigit():
            words = words[1:]
        for word, meaning in self._known.documents.completions(words, begun):
            yield Completion(word, -len(begun), display_meta=meaning)


class ArgumentHint(Processor):
    """Shows behind the cursor what the command still takes."""

    def __init__(self, known: KnownCommands) -> None:
        self._known = known

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        document, fragments = transformation_input.document, transformation_input.fragments
        if not document.is_cursor_at_the_end or get_app().is_done:  # what was typed stays on the screen without it
            return Transformation(fragments)
        hint = hint_of(self._known.documents, document.text)
        shown: StyleAndTextTuples = [*fragments, ("class:hint", hint)] if hint else fragments
        return Transformation(shown)


def hint_of(documents: Documents, text: str) -> str:
    """What a line that was typed until here still takes, with a space before it where one is needed."""
    words = words_before(text)
    if not words:
        return ""
    hint = documents.hint(words)
    return hint if not hint or text[-1].isspace() else f" {hint}"


def converse(runner: Runner) -> None:
    """Ask for commands and run them until somebody has enough."""
    link, known = runner.link, KnownCommands()
    session: PromptSession[str] = PromptSession(history=open_history(), completer=CommandCompleter(known),
                                                complete_while_typing=False, input_processors=[ArgumentHint(known)],
                                                style=_STYLE)  # fmt: skip
    _try(lambda: known.learn(link))
    while True:
        link.notice()
        try:
            line = session.prompt(f"{link.target}> " if link.is_open else "not connected> ")
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if not _run(runner, known, line):
            return


def _run(runner: Runner, known: KnownCommands, line: str) -> bool:
    """Run a line; False when it is the last."""
    try:
        words = split(line.encode("utf-8", "surrogateescape"))
    except BadLine as error:
        _say(f"Invalid argument(s): {error}")
        return True
    if not words:
        return True
    name = words[0].upper()
    if name in LEAVING:
        return False
    if name == b"CLEAR":
        clear()
    elif name in HELP:
        _try(lambda: known.learn(runner.link))
        runner.out.write(known.documents.help(b" ".join(words[1:]).decode(errors="replace")).encode())
        runner.out.flush()
    else:
        _try(lambda: _issue(runner, known, words))
    return True


def _issue(runner: Runner, known: KnownCommands, words: list[bytes]) -> None:
    """Run a command as often as it wants.  Raises Unreachable, Uncertain, NotTrusted, ServerError."""
    times, words = repetition(words)
    for _ in range(times):
        began = time.monotonic()
        runner.status = 0
        runner.run(words)
        spent = time.monotonic() - began
        if spent >= LONG_S and runner.for_people:
            _say(f"({spent:.2f}s)")
        if words[0].upper() == b"AUTH" and not runner.status and len(words) > 1:
            # What the next connection logs in with.
            user = words[-2] if len(words) > 2 else None
            runner.link.target = attrs.evolve(runner.link.target, user=user, password=words[-1])
    if runner.link.is_open:
        known.learn(runner.link)


def _try(action: Callable[[], object]) -> None:
    """Do something with the node, and say what went wrong."""
    try:
        action()
    except DisquedError as error:
        _say(str(error))
    except KeyboardInterrupt:
        sys.stdout.write("\n")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
