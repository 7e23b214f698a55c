"""What is built holds everything, and runs outside the checkout as it does inside."""

import configparser
import re
import subprocess
import sys
import tarfile
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

from tests import builds
from tests.integration.daemon import HOST, free_port, launch
from tests.limits import LIMIT
from tests.packaging.building import COMPILED, LOCKED, ROOT, build, run, wheel_in

#: Folders whose code lies elsewhere, and as which part of the package it is imported.
LINKED = {
    "clients/python/disqued_client": "disqued/client",
    "persistence": "disqued/persistence",
    "pipeline": "disqued/pipeline",
    "web": "disqued/web",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """The wheel of the build that is tested."""
    return wheel_in(COMPILED if builds.COMPILED else built)


def modules() -> set[str]:
    """Name every Python file of the sources as it is imported."""
    found = {"pyspark_disqued.py"}
    for top, name in {"disqued": "disqued", "twisted": "twisted", **LINKED}.items():
        for file in (ROOT / top).rglob("*.py"):
            inside = Path(name, file.relative_to(ROOT / top))
            if top != "disqued" or f"{inside.parts[0]}/{inside.parts[1]}" not in LINKED.values():
                found.add(str(inside))
    return found


def files_of_pages() -> set[str]:
    """Name the files that the pages need, as they lie in the package."""
    inside = {f"disqued/{top}": ROOT / top for top in ("web/pages", "pipeline/reports")}
    inside["disqued/reports"] = ROOT / "disqued" / "reports"
    return {
        f"{name}/{file.relative_to(place)}"
        for name, place in inside.items()
        for kind in ("templates", "static")
        for file in (place / kind).rglob("*")
        if file.is_file()
    }


def machine_code() -> set[str]:
    """Name the modules that are compiled, and the one that holds the code of all of them."""
    core = {str(file.relative_to(ROOT).with_suffix("")) for file in (ROOT / "disqued" / "core").rglob("*.py")}
    return (
        core
        | {f"disqued/commands/{name}" for name in ("dispatch", "parse_cache", "runnable")}
        | {
            f"disqued/wire/{name}"
            for name in (
                "brief",
                "eventlines",
                "fields",
                "frames",
                "jobdump",
                "messages",
                "pieces",
                "questionmessages",
                "requests",
                "slotmessages",
                "streammessages",
            )
        }
        | {
            f"disqued/net/{name}"
            for name in (
                "clients/connection",
                "clients/input_queue",
                "clients/pending_replies",
                "clients/traffic",
                "cluster/linkinbox",
                "cluster/linkqueue",
                "loop/clock",
                "loop/handles",
                "loop/rounds",
                "loop/turns",
                "process/driver",
            )
        }
        | {"disqued_core__mypyc"}
    )


def units() -> set[str]:
    """Name the files for systemd, as they lie in the package."""
    return {f"disqued/systemd/{file.name}" for file in (ROOT / "systemd").iterdir()}


def test_every_package_of_the_tree_is_listed() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    listed = settings["options"]["packages"].split()
    assert listed == sorted(listed)
    assert set(listed) == {str(Path(module).parent).replace("/", ".") for module in modules() if "/" in module}


def test_the_links_inside_disqued_lead_to_the_folders_beside_it() -> None:
    for folder, name in {**LINKED, "systemd": "disqued/systemd"}.items():
        link = ROOT / name
        assert link.is_symlink()
        assert link.readlink() == Path("..") / folder


def test_the_plugins_folder_leaves_the_package_of_twisted_whole() -> None:
    assert not list((ROOT / "twisted").rglob("__init__.py"))


def test_the_wheel_holds_every_module_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    beside = {name for name in names if ".data/" in name}
    assert {name.partition(".data/")[2] for name in beside} == {"data/share/man/man1/disqued.1"}
    names -= beside
    assert {name for name in names if name.endswith(".py")} == modules()
    machine = {name for name in names if name.endswith(".so")}
    assert {name.split(".")[0] for name in machine} == (machine_code() if builds.COMPILED else set())
    assert wheel.name.endswith("-none-any.whl") is not builds.COMPILED
    names -= machine
    assert {name.split("/")[0] for name in names} == {"disqued", "pyspark_disqued.py", "twisted"}
    assert "disqued/py.typed" in names
    assert {name for name in names if not name.endswith((".py", "py.typed"))} == files_of_pages() | units()


def test_the_sdist_holds_what_the_wheel_is_built_from(built: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {"/".join(Path(member.name).parts[1:]) for member in archive if member.isfile()}
    assert (
        modules() | files_of_pages() | units() | {"setup.py", "setup.cfg", "pyproject.toml", "LICENSE", "man/disqued.1"}
        <= names
    )


def test_an_installed_wheel_starts_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "venv"
    venv.create(place)
    python, console = place / "bin" / "python", str(place / "bin" / "disqued")
    # By the pip that there is; what is imported is compiled then, and the rest of the packages is not.
    pip = (sys.executable, "-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check", "install")
    run(*pip, "--no-compile", wheel, cwd=tmp_path, **LOCKED)
    where = run(python, "-c", "import disqued.persistence as p; print(p.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(place)

    core = "compiled" if builds.COMPILED else "source"
    assert run(console, "--version", cwd=tmp_path).splitlines()[0].endswith(f", core: {core}")
    for number, program in enumerate((("disqued",), ("twistd", "--nodaemon", "--pidfile=", "disqued"))):
        name, *words = program
        daemon = launch(tmp_path / f"data{number}", program=(str(place / "bin" / name), *words), inside=False)
        try:
            job = daemon.call("ADDJOB", "q", "body", 0)
            assert daemon.call("GETJOB", "FROM", "q") == [["q", job, "body"]]
            assert daemon.call("INFO", "server")["core_build"] == core
        finally:
            daemon.stop()

    run(console, "install-units", "--root", tmp_path / "root", "--program", "/bin/true", cwd=tmp_path)
    assert (place / "share/man/man1/disqued.1").read_text() == (ROOT / "man" / "disqued.1").read_text()
    assert "/bin/true --config" in (tmp_path / "root/etc/systemd/system/disqued.service").read_text()
    spark = subprocess.run([place / "bin" / "disqued-spark"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (spark.returncode, spark.stderr.split(",")[0]) == (2, "disqued-spark needs the packages of disqued[spark]")
    serves_its_page(console, tmp_path / "data")

    # Whoever has removed a package, or left all of them out, is shown the line that brings them, from any index.
    run(sys.executable, "-m", "pip", "--python", python, "uninstall", "--yes", "--quiet", "klein", cwd=tmp_path)
    said = subprocess.run(
        [console, "--port", "0", "--unixsocket", "s", "--http-port", "1"],
        cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=LIMIT,
    )  # fmt: skip
    assert said.returncode == 1
    told = "disqued: http-port: No module named 'klein'; the packages of the page: pip install \"disqued[admin]\"\n"
    assert said.stderr.endswith(told)
    run(*pip, "--no-compile", "disqued[admin]", cwd=tmp_path, **LOCKED)
    serves_its_page(console, tmp_path / "data")


def serves_its_page(console: str, folder: Path) -> None:
    """Start a node, and look at the page as it is installed."""
    port = free_port()
    daemon = launch(folder, ["--http-port", str(port)], program=(console,), inside=False)
    try:
        page = read(port, "/")
        assert b"<title>" in page
        [style] = re.findall(rb'href="(/static/[^"]+/disqued[^"]*[.]css)"', page) or [b""]
        assert b"{" in read(port, style.decode())
    finally:
        daemon.stop()


def read(port: int, path: str) -> bytes:
    """Fetch a file of the admin side that has to be there."""
    with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=LIMIT) as answer:
        text: bytes = answer.read()
    return text
