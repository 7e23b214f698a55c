"""Daemons and names of queues, for the tests of every folder that has real daemons."""

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.daemon import ROOT, Daemon, environment, launch

_names = itertools.count(1)


@pytest.fixture(scope="session", autouse=True)
def plugins_known() -> None:
    """Let Twisted note its plugins once, so that no two daemons write that file at the same time."""
    look = "import twisted.application.service as s, twisted.plugin as p; list(p.getPlugins(s.IServiceMaker))"
    subprocess.run([sys.executable, "-c", look], env=environment(), cwd=ROOT, capture_output=True, check=True)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for the tests of a module, which use queues of their own."""
    running = launch(tmp_path_factory.mktemp("daemon") / "data")
    yield running
    running.stop()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Start daemons for one test; all have ended, and ended well, when it is over."""
    started: list[Daemon] = []

    def start_one(*options: str, directory: Path = tmp_path / "data", **more: object) -> Daemon:
        started.append(launch(directory, options, **more))
        return started[-1]

    yield start_one
    for running in started:
        running.stop()


@pytest.fixture
def queue() -> str:
    """Name a queue that no other test uses."""
    return f"queue-{next(_names)}"
