"""What a distribution is built from, and the distributions that tests try."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMPILED = ROOT / "build" / "wheel"  #: where `make compiled` has its wheel
#: A module that is compiled, and from whose classes no other inherits: it has none.
ONE = "core/model/glob.py"
#: What the build says once where it goes on without the compiled core.
WARNING = "WARNING: disqued is installed without its compiled core, and so runs more slowly, since "
NO_COMPILER = {"CC": "/nowhere/cc", "LDSHARED": "/nowhere/cc"}
HOUSE = ROOT / "build" / "wheelhouse"
#: The locked versions, as `make test` has fetched them, are all that pip, pipx and uv find: for what is installed, and
#: for what builds it.
LOCKED = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(HOUSE), "UV_NO_INDEX": "1", "UV_FIND_LINKS": str(HOUSE)}
SOURCES = (
    "clients",
    "disqued",
    "persistence",
    "web",
    "pipeline",
    "systemd",
    "man",
    "pyspark_disqued.py",
    "twisted",
    "setup.py",
    "setup.cfg",
    "pyproject.toml",
    "LICENSE",
    "README.md",
)


def run(*argv: object, cwd: Path, **variables: str) -> str:
    """Run a program that is expected to succeed, and that no variable leads to this checkout."""
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    done = subprocess.run(
        list(map(str, argv)),
        cwd=cwd,
        env=outside,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copy_sources(tree: Path) -> Path:
    """Copy what a distribution is built from."""
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "dropin.cache")
            shutil.copytree(source, tree / name, symlinks=True, ignore=ignore)
        else:
            shutil.copy(source, tree / name)
    return tree


def copy_of_one(tree: Path) -> Path:
    """Copy what a distribution is built from; only one module of it is compiled, which takes seconds."""
    copy_sources(tree)
    script = tree / "setup.py"
    text, count = re.subn(r"(?ms)^COMPILED = \(\n.*?^\)\n", f"COMPILED = ({ONE!r},)\n", script.read_text())
    assert count == 1
    script.write_text(text)
    return tree


def build(tree: Path) -> Path:
    """Build an sdist from a copy of the sources, and a wheel from the sdist; the core in it is not compiled."""
    copy_sources(tree)
    run(sys.executable, "-m", "build", "--outdir", tree / "dist", tree, cwd=tree, DISQUED_COMPILE="0")
    return tree / "dist"


def wheel_in(folder: Path) -> Path:
    """The one wheel in a folder."""
    [found] = folder.glob("*.whl")
    return found
