"""How the core comes to be compiled, or not: setup.py's own words."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.packaging.building import copy_sources
from tests.packaging.test_install import modules

NO_COMPILER = {"CC": "/nowhere/cc", "LDSHARED": "/nowhere/cc"}


def build(tree: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Build a wheel with what is installed here."""
    argv = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-deps", "--no-build-isolation", "-w", "made", "."]
    known = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "DISQUED_COMPILE"}}
    return subprocess.run(argv, cwd=tree, env=known | variables, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_sources(tmp_path_factory.mktemp("tree"))


def test_without_a_compiler_the_core_is_installed_as_it_is_and_that_is_told(tree: Path) -> None:
    done = build(tree, **NO_COMPILER)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "disqued.core is installed as it is, since compiling it failed: " in done.stdout + done.stderr
    [wheel] = (tree / "made").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert modules() <= names
    assert not [name for name in names if name.endswith(".so")]


def test_who_wants_it_compiled_hears_that_it_cannot_be(tmp_path: Path) -> None:
    tree = copy_sources(tmp_path)
    # One module is enough: what comes before the compiler takes half a minute for all of them.
    for folder in ("core", "net", "wire"):
        for module in (tree / "disqued" / folder).glob("*.py"):
            if module.name != "__init__.py" and module != tree / "disqued" / "core" / "clock.py":
                module.unlink()
    done = build(tree, DISQUED_COMPILE="1", **NO_COMPILER)
    assert done.returncode
    assert "/nowhere/cc" in done.stdout + done.stderr


def test_a_wish_that_is_none_is_refused(tree: Path) -> None:
    done = build(tree, DISQUED_COMPILE="yes")
    assert done.returncode
    assert "DISQUED_COMPILE is 'yes'; allowed are 1 (compile, or fail) and 0 (do not)" in done.stdout + done.stderr
