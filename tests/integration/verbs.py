"""Verbs of the console script, run within the process of a test on real daemons.

What they print goes to no terminal, so that nothing of it is a control character.
"""

import contextlib
import io
import json
from typing import Any

import attrs

from disqued.tools import program
from tests.integration.daemon import Daemon


@attrs.frozen
class Result:
    """What a shell would see of a verb."""

    exit_code: int
    stdout: str
    stderr: str


def run(*words: object) -> Result:
    """Run a verb to its end."""
    said, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        status = program.run([str(word) for word in words])
    return Result(status, said.getvalue(), complained.getvalue())


def done(*words: object) -> str:
    """Run a verb that is to succeed, and return what it printed."""
    result = run(*words)
    assert (result.exit_code, result.stderr) == (0, ""), result.stderr
    return result.stdout


def told(*words: object) -> Any:
    """Run a verb that is to succeed and to print JSON, and read that."""
    return json.loads(done(*words))


def refused(*words: object, status: int = 1) -> str:
    """Run a verb that is to fail without a word on standard output, and return what it said in one line."""
    result = run(*words)
    assert (result.exit_code, result.stdout) == (status, ""), (result.stdout, result.stderr)
    (line,) = result.stderr.splitlines()
    return line


def at(daemon: Daemon) -> tuple[str, ...]:
    """The options that name a daemon."""
    return ("-p", str(daemon.port))


def address(daemon: Daemon) -> str:
    """The address of a daemon."""
    return f"127.0.0.1:{daemon.port}"
