"""Commands that are run without a prompt: one of the command line, or those that come by a pipe, one a line.

    words --> Runner.run --> link --> reply --form--> standard output
                 |
                 +-- MONITOR, SUBSCRIBE, PSUBSCRIBE: what comes is printed until Ctrl-C

A reply that is an error is printed like any other, and remembered for the exit status.
"""

import sys
import time
from collections.abc import Iterable, Sequence
from typing import BinaryIO, Final

import attrs

from disqued.client.errors import Uncertain
from disqued.tools.cli.command_lines import BadLine, split
from disqued.tools.cli.documents import Documents
from disqued.tools.cli.link import Link
from disqued.tools.cli.printing import Form
from disqued.tools.cli.replies import Reply, ReplyKind
from disqued.tools.program import DONE, FAILED

#: Commands behind which a connection tells what happens elsewhere.
LISTENING: Final = {b"MONITOR", b"SUBSCRIBE", b"PSUBSCRIBE"}
LEAVING: Final = {b"QUIT", b"EXIT"}
HELP: Final = {b"HELP", b"?"}
#: Replies that are texts of many lines, with their own ends of lines.  By the first words of the command.
TEXTS: Final = {(b"INFO",), (b"CLUSTER", b"INFO"), (b"CLUSTER", b"NODES"), (b"CLIENT", b"LIST"), (b"CLIENT", b"INFO")}
READING: Final = b"Reading messages... (press Ctrl-C to quit)\n"


@attrs.define
class Runner:
    """Runs commands on a link, and prints what comes."""

    link: Link
    form: Form
    out: BinaryIO
    #: Whether people are to be told what happens; programs read replies alone.
    for_people: bool = False
    #: Whether long texts (`TEXTS`) are printed as they came, whatever the form of the others.
    as_text: bool = True
    status: int = DONE

    def run(self, words: Sequence[bytes]) -> None:
        """Run a command and print its reply.  Raises Unreachable, Uncertain, NotTrusted, ServerError."""
        name = words[0].upper()
        if name in HELP:
            self._write(Documents.fetched(self.link).help(b" ".join(words[1:]).decode(errors="replace")).encode())
        elif name in LISTENING:
            self.listen(words)
        else:
            reply = self._ask(words)
            if reply is not None:
                self.show(reply, words)

    def _ask(self, words: Sequence[bytes]) -> Reply | None:
        """The reply; None for a node that was told to end, and has."""
        try:
            return self.link.call(words)
        except Uncertain:
            if words[0].upper() == b"SHUTDOWN":
                return None
            raise

    def show(self, reply: Reply, words: Sequence[bytes] = ()) -> None:
        """Print a reply, and remember whether it is an error."""
        if reply.kind is ReplyKind.ERROR:
            self.status = FAILED
        self._write(reply.text if self.as_text and _is_text(reply, words) else self.form(reply))

    def listen(self, words: Sequence[bytes]) -> None:
        """Print what comes until Ctrl-C, which closes the connection: nothing else ends that on every node."""
        self.link.make_ready()
        try:
            self.link.send(words)
            if self.for_people:
                self._write(READING)
            while True:
                reply = self.link.receive()
                self.show(reply)
                if reply.kind is ReplyKind.ERROR:
                    return
        finally:
            self.link.close()

    def _write(self, text: bytes) -> None:
        self.out.write(text)
        self.out.flush()


def _is_text(reply: Reply, words: Sequence[bytes]) -> bool:
    names = tuple(word.upper() for word in words[:2])
    return reply.kind is not ReplyKind.ERROR and (names in TEXTS or names[:1] in TEXTS)


def repeat(runner: Runner, words: Sequence[bytes], times: int, interval: float) -> None:
    """Run a command so often, -1 = until it is stopped, with a pause in between, in seconds."""
    while times:
        runner.run(words)
        times -= times > 0
        if interval and times:
            time.sleep(interval)


def run_lines(runner: Runner, lines: Iterable[bytes], times: int = 1, interval: float = 0.0) -> None:
    """Run the commands of a pipe, one a line, until it ends or one is QUIT."""
    for line in lines:
        try:
            words = split(line)
        except BadLine as error:
            sys.stderr.write(f"disqued cli: {line.decode(errors='replace').strip()}: {error}\n")
            runner.status = FAILED
            continue
        if not words:
            continue
        if words[0].upper() in LEAVING:
            return
        own, words = repetition(words)
        repeat(runner, words, own * times, interval)


def repetition(words: list[bytes]) -> tuple[int, list[bytes]]:
    """Take a number away that stands before a command: how often it is to be run."""
    if len(words) > 1 and words[0].isdigit() and int(words[0]):
        return int(words[0]), words[1:]
    return 1, words
