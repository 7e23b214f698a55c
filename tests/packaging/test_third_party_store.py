"""A store that somebody else wrote: installed from a package of its own, and used by its name."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.daemon import DAEMON, ROOT, Daemon, launch, wait_until
from tests.limits import LIMIT

PACKAGE = Path(__file__).with_name("tinystore")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package into a folder of its own, from a copy: building leaves files behind."""
    place = tmp_path_factory.mktemp("site")
    copy = tmp_path_factory.mktemp("source") / "tinystore"
    subprocess.run(["cp", "-r", str(PACKAGE), str(copy)], check=True)
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    done = subprocess.run(
        [*command, "--no-deps", "--target", str(place), str(copy)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place


@pytest.fixture
def start(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Daemon]]:
    """Start daemons on the same data, one after the other."""
    path = f"{installed}{os.pathsep}{ROOT}"
    monkeypatch.setattr("tests.integration.daemon.environment", lambda: {**os.environ, "PYTHONPATH": path})
    started: list[Daemon] = []

    def begin() -> Daemon:
        started.append(launch(tmp_path / "data", ("--persistence", "tiny")))
        return started[-1]

    yield begin
    for daemon in started:
        daemon.stop()


def test_a_store_of_another_package_is_found_by_its_name_and_keeps_jobs(start: Callable[[], Daemon]) -> None:
    daemon = start()
    kept, done = daemon.call("ADDJOB", "q", "body", 0, "RETRY", 1), daemon.call("ADDJOB", "q", "over", 0)
    assert daemon.call("ACKJOB", done) == 1
    daemon.call("PAUSE", "other", "out")
    assert daemon.call("INFO", "persistence")["tiny_path"] == str(daemon.directory / "jobs.tiny")
    daemon.kill()
    again = start()
    assert again.call("GETJOB", "FROM", "q") == [["q", kept, "body"]]
    assert again.call("PAUSE", "other", "state") == "out"

    # It can be changed for one of ours, and back, without a word to either.
    for name in ("aof", "tiny"):
        again.call("CONFIG", "SET", "persistence", name)
        wait_until(lambda name=name: again.call("INFO", "persistence")["persistence"] == name, f"the store is {name}")
    again.kill()
    assert start().call("SHOW", kept)[1] == kept


def test_a_store_that_is_not_installed_stops_the_start_with_those_that_are(tmp_path: Path) -> None:
    done = subprocess.run(
        [*DAEMON, "--dir", str(tmp_path), "--persistence", "tiny"],
        capture_output=True, text=True, check=False, cwd="/", env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=LIMIT,
    )  # fmt: skip
    assert done.returncode != 0
    assert "no store is called 'tiny'; installed are aof, none" in done.stdout + done.stderr
