"""Daemons that begin with everything imported, for tests that start many: what Android's zygote does for its programs.

    test --words, variables, a folder, a log--> server --fork--> twistd disqued, which logs to that file
    test <--its process id--------------------- server
    test --has it ended?----------------------> server <--end--- twistd disqued
    test <--its exit status, or not yet-------- server

Importing is nine tenths of a start, and tests start hundreds of daemons.  What is imported is the same as in a process
that begins from nothing; those that a test names the program of begin so (`launch(program=DAEMON)`).

There is one server for each process that runs tests and each path that modules are found on, from the first daemon on.
"""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn

import attrs

from tests.limits import LIMIT

#: What a daemon imports before it has its reactor, and of what comes later all that needs none.
MODULES = (
    "twisted.scripts.twistd", "disqued.tap", "disqued.net.loop.reactor", "disqued.web.api.reads", "twisted.web.server",
    "jinja2", "werkzeug.routing",
)  # fmt: skip


class Server:
    """The process that daemons are forked from."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        """Start it with these environment variables, in `/`."""
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from tests.integration import forkserver; forkserver.serve()"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(variables), cwd="/",
        )  # fmt: skip
        self._lock = Lock()  #: one question at a time

    def ask(self, **question: Any) -> Any:
        """Send a question, and return the answer.  Raises AssertionError when the server is gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        assert answer, f"the server that daemons are forked from ended with {self._process.wait(LIMIT)}"
        return json.loads(answer)

    def close(self) -> None:
        """End it; daemons that are left go on."""
        self._process.communicate(timeout=LIMIT)


@attrs.define
class Forked:
    """A process that the server has forked, with what tests need of `subprocess.Popen`."""

    _server: Server
    args: Sequence[str]
    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, a signal as its negative number; None as long as it runs."""
        if self.returncode is None:
            self.returncode = self._server.ask(ended=self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, seconds at most.  Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            end = os.pidfd_open(self.pid)
            try:
                poller = select.poll()
                poller.register(end, select.POLLIN)
                if not poller.poll(None if timeout is None else timeout * 1_000):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
            finally:
                os.close(end)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


_servers: dict[str, Server] = {}  #: by PYTHONPATH, which says what they have imported


def _server(variables: Mapping[str, str]) -> Server:
    path = variables["PYTHONPATH"]
    if path not in _servers:
        _servers[path] = Server(variables)
        atexit.register(_servers[path].close)
    return _servers[path]


def fork(
    words: Sequence[str], variables: Mapping[str, str], folder: Path, log_file: Path,
    changes: Mapping[str, Mapping[str, Any]],
) -> Forked:  # fmt: skip
    """Start `twistd` with these words in a folder, its output at the end of a log file.

    `changes`: constants of modules that are others there, by module and name.
    """
    log_file.touch()
    server = _server(variables)
    question = {"words": words, "variables": variables, "folder": str(folder), "log": str(log_file), "changes": changes}
    return Forked(server, words, server.ask(start=question))


# In the server.


def serve() -> None:
    """Answer the questions of standard input, until there are no more."""
    for module in MODULES:
        import_module(module)
    for line in sys.stdin:
        question = json.loads(line)
        answer = _started(**question["start"]) if "start" in question else _ended(question["ended"])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _started(**start: Any) -> int:
    child = os.fork()
    if not child:
        _become(**start)
    return child


def _ended(child: int) -> int | None:
    number, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if number else None


def _become(
    words: list[str], variables: dict[str, str], folder: str, log: str, changes: dict[str, dict[str, Any]]
) -> NoReturn:
    """Be `twistd` from here on."""
    from twisted.scripts.twistd import run

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND), 1)
    os.dup2(1, 2)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    for module, constants in changes.items():
        vars(import_module(module)).update(constants)
    sys.argv = words
    sys.exit(run())
