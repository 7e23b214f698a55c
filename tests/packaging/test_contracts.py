"""The import contracts hold, and they bite: a wrong import in a copy of the tree is found."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINTER = Path(sys.executable).with_name("lint-imports")
SOURCES = ("clients", "disqued", "persistence", "web", "pipeline")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Copy what the contracts are about, links as links."""
    for name in SOURCES:
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "setup.cfg", tmp_path)
    return tmp_path


def lint(folder: Path) -> tuple[int, str]:
    """Check the contracts of a tree."""
    done = subprocess.run([LINTER, "--no-cache"], cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_contracts_hold(copy: Path) -> None:
    status, said = lint(copy)
    assert status == 0, said


@pytest.mark.parametrize(
    ("file", "line", "chain"),
    [
        ("disqued/core/node.py", "import time", "disqued.core.node -> time"),
        ("disqued/core/node.py", "from twisted.internet import defer", "disqued.core.node -> twisted"),
        ("disqued/wire/replies.py", "import zope.interface", "disqued.wire.replies -> zope"),
        ("disqued/commands/jobs.py", "from socket import socket", "disqued.commands.jobs -> socket"),
        ("disqued/core/node.py", "import disqued.wire.replies", "disqued.core.node -> disqued.wire.replies"),
        ("persistence/__init__.py", "import disqued.net", "disqued.persistence -> disqued.net"),
        ("disqued/net/__init__.py", "import disqued.pipeline", "disqued.net -> disqued.pipeline"),
        ("web/__init__.py", "import pyspark", "disqued.web -> pyspark"),
        ("web/http/heads.py", "import disqued.web.site", "disqued.web.http.heads -> disqued.web.site"),
        ("web/api/acts.py", "import disqued.web.pages.render", "disqued.web.api.acts -> disqued.web.pages.render"),
        ("web/site.py", "import disqued.core.node", "disqued.web.site -> disqued.core.node"),
    ],
)
def test_a_wrong_import_breaks_a_contract(copy: Path, file: str, line: str, chain: str) -> None:
    with (copy / file).open("a") as source:
        source.write(f"\n{line}\n")
    status, said = lint(copy)
    assert status != 0
    assert chain in " ".join(said.split())


def test_an_import_by_way_of_another_module_breaks_a_contract(copy: Path) -> None:
    (copy / "disqued" / "innocent.py").write_text("import os\n")
    with (copy / "disqued/core/node.py").open("a") as source:
        source.write("\nimport disqued.innocent\n")
    status, said = lint(copy)
    assert status != 0
    assert "disqued.innocent -> os" in " ".join(said.split())
