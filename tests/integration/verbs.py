"""Verbs of the console script, run within the process of a test on real daemons.

What they print goes to no terminal, so that nothing of it is a control character.
"""

import json
from importlib import import_module
from typing import Any

from click.testing import CliRunner, Result

from tests.integration.daemon import Daemon


def run(verb: str, *words: object) -> Result:
    """Run a verb to its end; its `exit_code`, `stdout` and `stderr` are what a shell would see."""
    command = import_module(f"disqued.tools.{verb}").command
    result = CliRunner().invoke(command, [str(word) for word in words], prog_name=f"disqued {verb}")
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def done(verb: str, *words: object) -> str:
    """Run a verb that is to succeed, and return what it printed."""
    result = run(verb, *words)
    assert (result.exit_code, result.stderr) == (0, ""), result.stderr
    return result.stdout


def told(verb: str, *words: object) -> Any:
    """Run a verb that is to succeed and to print JSON, and read that."""
    return json.loads(done(verb, *words))


def refused(verb: str, *words: object, status: int = 1) -> str:
    """Run a verb that is to fail without a word on standard output, and return what it said in one line."""
    result = run(verb, *words)
    assert (result.exit_code, result.stdout) == (status, ""), (result.stdout, result.stderr)
    lines = [line for line in result.stderr.splitlines() if line and not line.startswith(("Usage:", "Try "))]
    assert len(lines) == 1, result.stderr
    return lines[0]


def at(daemon: Daemon) -> tuple[str, ...]:
    """The options that name a daemon."""
    return ("-p", str(daemon.port))


def address(daemon: Daemon) -> str:
    """The address of a daemon."""
    return f"127.0.0.1:{daemon.port}"
