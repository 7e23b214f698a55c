"""The tools of the console script, for tests that run many of them: processes that begin with everything imported.

    test --words, and two files--> server --fork--> a tool, its output in these files
    test <--exit status----------- server <--end---

Importing is most of what a tool does.  What is imported is the same as in a process that begins from nothing, so that
a few of these are enough to show that they do.
"""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

import attrs

from disqued import cli
from disqued.persistence.plugins import find_store
from disqued.tools.verbs import VERBS
from tests.integration.daemon import LIMIT, environment


@attrs.define
class Tools:
    """The server, which runs one tool at a time."""

    directory: Path  #: of the files that tools write to
    _server: "subprocess.Popen[str]" = attrs.field(init=False)

    def __enter__(self) -> Self:
        self._server = subprocess.Popen(
            [sys.executable, "-c", "from tests.integration import tools; tools.serve()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(), cwd="/",
        )  # fmt: skip
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.communicate(timeout=LIMIT)

    def run(self, *words: object) -> "subprocess.CompletedProcess[str]":
        """Run the console script to its end, in another folder than the checkout."""
        request = list(map(str, words))
        files = [self.directory / "stdout", self.directory / "stderr"]
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps([request, *map(str, files)]) + "\n")
        self._server.stdin.flush()
        status = int(self._server.stdout.readline())
        said, complained = (file.read_text() for file in files)
        return subprocess.CompletedProcess(request, status, said, complained)


def serve() -> None:
    """Run what each line of standard input asks for, until there is no more."""
    for _, module in VERBS.values():
        import_module(module)
    import_module("twisted.internet.epollreactor")  # which is not installed before a tool needs it
    find_store("none")
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _become(*json.loads(line))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _become(words: list[str], *files: str) -> NoReturn:
    """Be the console script from here on."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), descriptor)
    sys.argv = ["disqued", *words]
    cli.main()
    raise SystemExit
