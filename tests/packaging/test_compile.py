"""How the core comes to be compiled, or not: setup.py's own words."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.limits import BUILD_LIMIT
from tests.packaging.building import NO_COMPILER, ONE, WARNING, copy_of_one
from tests.packaging.test_install import modules

#: A compiler that gives up at what is not the probe, once a part of the others is there.
UNSURE = """#!/bin/sh
case "$*" in *-c*native*glob*) echo "cc: out of memory" >&2; exit 1 ;; esac
exec cc "$@"
"""


def build(tree: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Build a wheel with what is installed here."""
    argv = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-deps", "--no-build-isolation", "-w", "made", "."]
    known = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "DISQUED_COMPILE"}}
    return subprocess.run(
        argv, cwd=tree, env=known | variables, capture_output=True, text=True, check=False, timeout=BUILD_LIMIT
    )


def without_a_compiler(tree: Path) -> dict[str, str]:
    return NO_COMPILER


def with_an_error_in_a_type(tree: Path) -> dict[str, str]:
    """Let mypy refuse the source, as it does where it knows another version of a package."""
    with (tree / "disqued" / ONE).open("a") as module:
        module.write('\nWRONG: int = "no number"\n')
    return {}


def with_a_broken_mypyc(tree: Path) -> dict[str, str]:
    """Let the import of mypyc fail, as where there is none."""
    (tree / "broken").mkdir()
    (tree / "broken" / "mypyc.py").write_text("raise RuntimeError('mypyc is broken')\n")
    return {"PYTHONPATH": str(tree / "broken")}


def with_a_compiler_that_gives_up(tree: Path) -> dict[str, str]:
    compiler = tree / "cc"
    compiler.write_text(UNSURE)
    compiler.chmod(0o755)
    return {"CC": str(compiler)}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return copy_of_one(tmp_path)


REASONS = {
    without_a_compiler: "there is no C compiler that works with the headers of Python",
    with_an_error_in_a_type: "mypyc has not translated it",
    with_a_broken_mypyc: "mypyc has not translated it (mypyc is broken",
    with_a_compiler_that_gives_up: "compiling it failed: ",
}


@pytest.mark.parametrize(("prepare", "reason"), REASONS.items(), ids=[each.__name__ for each in REASONS])
def test_what_cannot_be_compiled_is_installed_as_it_is_with_one_warning_or_refused(
    prepare: Callable[[Path], dict[str, str]], reason: str, tree: Path
) -> None:
    variables = prepare(tree)
    done = build(tree, **variables)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert said.count(WARNING) == 1
    assert reason in said
    [wheel] = (tree / "made").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert modules() <= names
    assert not [name for name in names if name.endswith(".so")]
    assert build(tree, DISQUED_COMPILE="1", **variables).returncode


def test_what_an_earlier_build_left_behind_is_in_no_wheel(tree: Path) -> None:
    assert build(tree, DISQUED_COMPILE="0").returncode == 0
    stale = tree / "build" / "lib" / "disqued" / "removed.py"
    assert (stale.parent / "cli.py").exists()
    stale.touch()
    assert build(tree, DISQUED_COMPILE="0").returncode == 0
    [wheel] = (tree / "made").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert "disqued/removed.py" not in archive.namelist()


def test_a_wish_that_is_none_is_refused(tree: Path) -> None:
    done = build(tree, DISQUED_COMPILE="yes")
    assert done.returncode
    assert "DISQUED_COMPILE is 'yes'; allowed are 1 (compile, or fail) and 0 (do not)" in done.stdout + done.stderr
