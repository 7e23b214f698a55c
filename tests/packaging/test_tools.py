"""The helpers of the Makefile: what is missing is named, not guessed at."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """Make the variables of a machine that has bash and little else: no apt-get, no Python."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "dirname", "id", "env"):
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    return {**os.environ, "PATH": str(programs)}


def run(variables: dict[str, str], tool: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a helper to its end."""
    argv = [str(TOOLS / tool), *map(str, words)]
    return subprocess.run(argv, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def test_programs_that_are_there_need_no_package(bare: dict[str, str]) -> None:
    done = run(bare, "debian-packages", "bash", "env=coreutils")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_packages_that_cannot_be_installed_are_named(bare: dict[str, str]) -> None:
    done = run(bare, "debian-packages", "bash", "redis-cli=redis-tools", "npm")
    assert done.returncode == 1
    assert "Missing Debian packages: redis-tools npm" in done.stderr
    assert "apt-get install redis-tools npm" in done.stderr


def test_a_python_that_is_too_old_is_not_taken(bare: dict[str, str], tmp_path: Path) -> None:
    old = tmp_path / "bin" / "python3"
    old.write_text("#!/usr/bin/env bash\nexit 1\n")
    old.chmod(0o755)
    done = run(bare, "virtualenv", tmp_path / "venv")
    assert done.returncode == 1
    assert "Python 3.11 or newer" in done.stderr
    assert not (tmp_path / "venv").exists()
