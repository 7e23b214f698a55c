"""The distribution disqued-client: pure Python, alone in an environment, and the same source as the server has."""

import configparser
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.integration.daemon import HOST, Daemon, launch
from tests.packaging.building import LOCKED, ROOT, run
from tests.pages import following

FOLDER = ROOT / "clients" / "python"
PACKAGE = FOLDER / "disqued_client"

PROGRAM = re.compile(r"```python\n(.*?)```\n\nIt prints:\n\n```\n(.*?)```", re.DOTALL)
#: What a program of each client does with a node; {port} is where it listens.
PROGRAMS = {
    "blocking": """
from disqued_client import Job
from disqued_client.blocking import Client, Worker

with Client("disqued://{host}:{port}") as client:
    client.add("threads", "to: ann")
    worker = Worker(client, ["threads"], lambda job: seen(job))
    def seen(job):
        assert isinstance(job, Job)
        print(job.body.decode())
        worker.stop()
    worker.run()
    print(client.qlen("threads"))
""",
    "aio": """
import asyncio
from disqued_client.aio import Client

async def main():
    async with Client("disqued://{host}:{port}") as client:
        await client.add("tasks", "to: bob")
        [job] = await client.get("tasks", timeout=60)
        print(job.body.decode())
        await client.ack(job)
        print(await client.qlen("tasks"))

asyncio.run(main())
""",
    "twisted": """
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import react
from disqued_client import Client

async def main(reactor):
    async with Client("disqued://{host}:{port}", reactor=reactor) as client:
        await client.add("deferreds", "to: eve")
        [job] = await client.get("deferreds", timeout=60)
        print(job.body.decode())
        await client.ack(job)
        print(await client.qlen("deferreds"))

react(lambda reactor: ensureDeferred(main(reactor)))
""",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist of a copy of the folder, and the wheel that is built from the sdist."""
    tree = tmp_path_factory.mktemp("tree") / "python"
    shutil.copytree(FOLDER, tree, ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-m", "build", "--outdir", tree / "dist", tree, cwd=tree, **LOCKED)
    return tree / "dist"


@pytest.fixture(scope="module")
def python(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and what it asks for."""
    place = tmp_path_factory.mktemp("place") / "venv"
    venv.create(place)
    [wheel] = built.glob("*.whl")
    install(place / "bin" / "python", str(wheel))
    return place / "bin" / "python"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Daemon]:
    daemon = launch(tmp_path / "data")
    yield daemon
    daemon.stop()


def install(python: Path, what: str) -> None:
    line = (sys.executable, "-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check", "install")
    run(*line, "--no-compile", what, cwd=python.parent, **LOCKED)


def modules() -> set[str]:
    return {str(file.relative_to(FOLDER)) for file in PACKAGE.rglob("*.py")}


def test_the_wheel_is_pure_and_holds_every_module(built: Path) -> None:
    [wheel] = built.glob("*.whl")
    assert wheel.name == f"disqued_client-{version('disqued')}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        facts = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    assert {name for name in names if ".dist-info/" not in name} == modules() | {"disqued_client/py.typed"}
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert "Requires-Dist: redis>=5.0\n" in facts
    assert "# disqued-client" in facts


def test_the_sdist_holds_what_the_wheel_is_built_from(built: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {"/".join(Path(member.name).parts[1:]) for member in archive if member.isfile()}
    assert modules() | {"pyproject.toml", "README.md", "LICENSE"} <= names


def test_nothing_in_it_imports_the_server() -> None:
    assert [
        file
        for file in PACKAGE.rglob("*.py")
        if "from disqued." in (text := file.read_text()) or "import disqued\n" in text
    ] == []


def test_its_bounds_are_those_of_the_server() -> None:
    facts = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    lines = settings["options"]["install_requires"] + "".join(settings["options.extras_require"].values())
    bounds = {each.name: each.specifier for each in map(Requirement, filter(str.strip, lines.splitlines()))}
    asked = [Requirement(line) for line in facts["dependencies"]]
    asked += [Requirement(line) for extra in facts["optional-dependencies"].values() for line in extra]
    assert len(asked) >= 8
    assert {each.name: each.specifier for each in asked} == {each.name: bounds[each.name] for each in asked}
    assert facts["requires-python"].removeprefix(">=") == settings["options"]["python_requires"].removeprefix(">=")


@pytest.mark.parametrize(("client", "says"), [("blocking", "to: ann\n0\n"), ("aio", "to: bob\n0\n")])
def test_it_works_without_the_server(client: str, says: str, python: Path, node: Daemon, tmp_path: Path) -> None:
    absent = run(
        python, "-c", "import importlib.util as u; print(u.find_spec('disqued'), u.find_spec('twisted'))", cwd=tmp_path
    )
    assert absent == "None None\n"
    program = PROGRAMS[client].format(host=HOST, port=node.port)
    assert run(python, "-W", "error", "-c", program, cwd=tmp_path) == says


def test_the_program_of_its_readme_runs(python: Path, node: Daemon, tmp_path: Path) -> None:
    [(program, printed)] = PROGRAM.findall((FOLDER / "README.md").read_text())
    with following("clients/python/README.md") as lines:
        assert "127.0.0.1:7711" in program
        said = run(python, "-c", program.replace("127.0.0.1:7711", f"{HOST}:{node.port}"), cwd=tmp_path)
        assert said == printed
        lines.ran(program)


def test_the_client_for_twisted_says_what_brings_it(python: Path, node: Daemon, tmp_path: Path) -> None:
    program = PROGRAMS["twisted"].format(host=HOST, port=node.port)
    only = "from disqued_client import Client"
    done = subprocess.run([python, "-c", only], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        'ImportError: disqued_client needs txredisapi: pip install "disqued-client[twisted]"'
    )
    install(python, "disqued-client[twisted]")
    assert run(python, "-c", program, cwd=tmp_path) == "to: eve\n0\n"
