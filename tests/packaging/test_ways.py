"""Every way to install: in a fresh virtual environment, with the build isolated, with and without a compiler.

One module is compiled, which takes seconds.  That all of them can be is shown by `make compiled`, which builds a wheel
in isolation, too; test_install.py installs that.
"""

import os
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.daemon import launch
from tests.limits import BUILD_LIMIT
from tests.packaging.building import LOCKED, NO_COMPILER, WARNING, copy_of_one, run

BIN = Path(sys.executable).parent


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose builds compile one module."""
    tree = copy_of_one(tmp_path_factory.mktemp("checkout"))
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    run("git", "init", "--quiet", tree, cwd=tree)
    run("git", "add", "--all", cwd=tree)
    run("git", *identity, "commit", "--quiet", "--message", "Sources", cwd=tree)
    return tree


@pytest.fixture(scope="session")
def sdist(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "build", "--sdist", "--outdir", out, checkout, cwd=out, **LOCKED)
    [found] = out.glob("*.tar.gz")
    return found


@pytest.fixture
def clone(checkout: Path, tmp_path: Path) -> Path:
    """A checkout of its own: a build leaves files there."""
    run("git", "clone", "--quiet", checkout, tmp_path / "clone", cwd=tmp_path)
    return tmp_path / "clone"


def pip(place: Path, *what: object) -> list[object]:
    """The line of `pip install`, for an environment that needs no pip of its own."""
    return [sys.executable, "-m", "pip", "--python", place / "bin/python", "install", "-v", "--no-compile", *what]


def uv(place: Path, *what: object) -> list[object]:
    return [BIN / "uv", "pip", "install", "-v", "--python", place / "bin/python", *what]


def install(argv: list[object], cwd: Path, **variables: str) -> str:
    """Run an installer; returns all that it says, with `-v`."""
    known = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "DISQUED_COMPILE"}}
    done = subprocess.run(
        list(map(str, argv)), cwd=cwd, env=known | LOCKED | variables, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=BUILD_LIMIT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


def is_compiled(program: Path, cwd: Path) -> bool:
    """Whether the module that is to be compiled is, in the environment of the program."""
    python = program.resolve().with_name("python")
    return not run(python, "-c", "from disqued.core.model import glob; print(glob.__file__)", cwd=cwd).endswith(".py\n")


def works(program: Path, folder: Path) -> None:
    """Start a node, and see that it serves jobs and its page."""
    daemon = launch(folder, ["--http-port", "0"], program=(str(program),), inside=False)
    try:
        job = daemon.call("ADDJOB", "q", "body", 0)
        assert daemon.call("GETJOB", "FROM", "q") == [["q", job, "body"]]
    finally:
        daemon.stop()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    venv.create(tmp_path / "venv")
    return tmp_path / "venv"


@pytest.mark.parametrize("way", ["checkout", "sdist", "git", "uv"])
def test_it_is_compiled_wherever_it_is_installed_from(
    way: str, checkout: Path, request: pytest.FixtureRequest, place: Path, tmp_path: Path
) -> None:
    lines: dict[str, Callable[[], list[object]]] = {
        "checkout": lambda: pip(place, request.getfixturevalue("clone")),
        "sdist": lambda: pip(place, request.getfixturevalue("sdist")),
        "git": lambda: pip(place, f"git+file://{checkout}"),
        "uv": lambda: uv(place, request.getfixturevalue("clone")),
    }
    said = install(lines[way](), tmp_path)
    assert WARNING not in said
    assert is_compiled(place / "bin/disqued", tmp_path)
    works(place / "bin/disqued", tmp_path / "data")


def test_pipx_installs_it(clone: Path, tmp_path: Path) -> None:
    homes = {"PIPX_HOME": str(tmp_path / "home"), "PIPX_BIN_DIR": str(tmp_path / "bin"), "PIPX_MAN_DIR": str(tmp_path)}
    install([sys.executable, "-m", "pipx", "install", clone], tmp_path, **homes)
    assert is_compiled(tmp_path / "bin/disqued", tmp_path)


def test_an_editable_install_runs_the_source(clone: Path, place: Path, tmp_path: Path) -> None:
    said = install(pip(place, "--editable", clone), tmp_path)
    assert WARNING not in said
    assert not is_compiled(place / "bin/disqued", tmp_path)
    works(place / "bin/disqued", tmp_path / "data")


@pytest.mark.parametrize("installer", [pip, uv])
def test_without_a_compiler_it_works_as_source_and_one_warning_says_so(
    installer: Callable[..., list[object]], clone: Path, place: Path, tmp_path: Path
) -> None:
    said = install(installer(place, clone), tmp_path, **NO_COMPILER)
    assert said.count(WARNING) == 1
    assert not is_compiled(place / "bin/disqued", tmp_path)
    works(place / "bin/disqued", tmp_path / "data")


def test_the_sdist_has_what_git_has_of_the_package(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {"/".join(Path(name).parts[1:]) for name in archive.getnames()}
    assert {"setup.py", "disqued/core/node.py", "disqued/web/server.py"} <= names
