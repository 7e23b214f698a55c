"""The package that travels with a program: what is in the zip, and the class that finds it; no JVM."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from pyspark import cloudpickle

from disqued.pipeline import ship
from tests.integration.daemon import HOST
from tests.torture.sparkcluster import OF_SPARK, link_packages

#: What a process of Spark does that knows pyspark, and not disqued: it gets the class, then gives its object on.
ELSEWHERE = """
import importlib.util, pickle, sys
sys.path.append(sys.argv[2])
sys.modules |= dict.fromkeys(["twisted", "zope.interface"])  # they cannot be imported
assert importlib.util.find_spec("disqued") is None, "this is to be found in the zip alone"
from pyspark import cloudpickle
with open(sys.argv[1], "rb") as file:
    kind = pickle.load(file)
assert kind.name() == "disqued"
source = kind({"address": "127.0.0.1:7711", "queues": "q"})
assert "disqued" not in sys.modules, "whoever only passes it on needs no zip"
again = pickle.loads(cloudpickle.dumps(source))
reader = again.streamReader(schema=again.schema())
print(sys.modules[type(reader).__module__].__file__)
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shipped") / "disqued.zip"
    ship.pack(path)
    return path


def test_the_zip_has_what_the_connector_is_made_of_and_nothing_of_the_daemon_s_pages(archive: Path) -> None:
    names = set(zipfile.ZipFile(archive).namelist())
    wanted = {"disqued/__init__.py", "disqued/pipeline/connector/source.py", "disqued/persistence/interface.py"}
    assert wanted | {"pyspark_disqued.py", "redis/__init__.py", "attr/__init__.py", "attrs/__init__.py"} <= names
    assert not [name for name in names if name.startswith(("disqued/web/", "disqued/testing/"))]
    assert all(name.endswith(".py") for name in names)


def test_the_same_files_make_the_same_zip(archive: Path, tmp_path: Path) -> None:
    ship.pack(tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()


def test_the_class_travels_as_code_and_finds_the_zip_where_disqued_is_not_installed(
    archive: Path, tmp_path: Path
) -> None:
    (tmp_path / "class").write_bytes(cloudpickle.dumps(ship.carrier_of(str(archive))))
    packages = tmp_path / "packages"
    packages.mkdir()
    link_packages(packages, OF_SPARK)
    # Without `site` nothing else is found, and no .pth file leads to this checkout.
    argv = [sys.executable, "-I", "-S", "-c", ELSEWHERE, str(tmp_path / "class"), str(packages)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{archive}/disqued/pipeline/connector/stream.py"


def test_the_class_is_the_source_itself_where_disqued_is_installed() -> None:
    carrier = ship.carrier_of("/there/is/no.zip")({"address": HOST, "queus": "q"})
    with pytest.raises(ValueError, match="disqued has no option 'queus'"):
        carrier.schema()


def test_the_command_writes_the_zip_or_says_how_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["ship", str(tmp_path / "x.zip")])
    ship.main()
    assert zipfile.is_zipfile(tmp_path / "x.zip")
    monkeypatch.setattr(sys, "argv", ["ship"])
    with pytest.raises(SystemExit) as ended:
        ship.main()
    assert ended.value.code == 2
