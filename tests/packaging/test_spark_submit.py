"""`spark-submit` on a standalone cluster, a master and two workers, by interpreters that have nothing of this checkout.

    shipped     spark-submit --py-files disqued.zip     executors and driver have pyspark, pyarrow and pandas alone
    installed   spark-submit                            both have the wheel

Both read queues of three nodes, add to one, take one as a stream, and read the event logs of the nodes, which they have
shipped to a folder that all of them share.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests import builds
from tests.integration.cluster import Cluster, ends_well
from tests.integration.daemon import HOST, wait_until
from tests.packaging.building import COMPILED, build, wheel_in
from tests.torture.sparkcluster import OF_SPARK, SPARK_HOME, SparkCluster, environment, link_packages

#: What disqued needs beside what Spark needs.
OF_DISQUED = ("attr", "attrs", "mypy_extensions.py", "redis", "typing_extensions.py")
PROGRAM = Path(__file__).with_name("sparkprogram.py")
JOBS = 1_000  #: on each node
# What is compiled late, and in several threads, takes longer than these rows.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "WARN",
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


@attrs.frozen
class Place:
    """Three nodes with event logs, these logs in one folder, and a cluster of Spark."""

    folder: Path
    nodes: Cluster
    spark: SparkCluster

    @property
    def events(self) -> Path:
        """Where the event logs of all nodes are."""
        return self.folder / "events"

    def ship_events(self) -> None:
        """Have what is published of the event logs on the storage that executors read."""
        self.events.mkdir()
        for node in self.nodes.nodes:
            own = node.directory / "events"
            wait_until(lambda own=own: list(own.glob("*/*/events-*.jsonl")), "a published file")
            words = ["ship-events", str(self.events), "--from", str(own)]
            program = [sys.executable, "-c", "from disqued.cli import main; main()", *words]
            subprocess.run(program, env=environment(), check=True, stdout=subprocess.DEVNULL)

    def submit(self, python: Path, words: Sequence[str], *more: str) -> dict[str, Any]:
        """Run the program, and return what it found."""
        argv = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", self.spark.master]
        for name, value in SETTINGS.items():
            argv += ["--conf", f"{name}={value}"]
        address = ",".join(f"{HOST}:{node.port}" for node in self.nodes.nodes)
        argv += [*words, str(PROGRAM), address, str(self.events), str(self.folder / "tables"), *more]
        variables = environment(PYSPARK_PYTHON=str(python))
        for name in ("PYTHONPATH", "PYTHONSAFEPATH"):
            variables.pop(name, None)
        log = self.folder / "program.log"
        with log.open("wb") as errors:
            done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=errors, env=variables, cwd="/", check=False)
        assert done.returncode == 0, log.read_text(errors="replace") + done.stdout.decode(errors="replace")
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    # Nodes wait for their turn beside so many JVMs, and are not gone.
    own = ("--cluster-node-timeout", "5000", "--persistence", "aof", "--events", "all", "--events-file-seconds", "1")
    with ends_well(Cluster(tmp_path / "nodes", own)) as nodes:
        nodes.start(3)
        for node in nodes.nodes:
            with node.redis() as client:
                pipeline = client.pipeline(transaction=False)
                for number in range(JOBS):
                    pipeline.execute_command("ADDJOB", "there", number, 5_000, "REPLICATE", 2)
                pipeline.execute()
        with SparkCluster(tmp_path / "spark") as spark:
            there = Place(tmp_path, nodes, spark)
            there.ship_events()
            yield there


def interpreter(folder: Path, *modules: str) -> Path:
    """Make an interpreter that has these modules of ours and no others."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    link_packages(packages(folder), modules)
    return folder / "bin" / "python"


def packages(folder: Path) -> Path:
    """Where an interpreter has its packages."""
    return next(folder.glob("lib/python*/site-packages"))


def hold(found: dict[str, Any]) -> None:
    """Hold what the program found to what there was to find."""
    jobs, distinct, parts = found["read"]
    assert (jobs, distinct) == (3 * JOBS, 3 * JOBS), found
    assert parts >= 4, found
    assert found["stream"] == [1_000, 1_000], found
    assert found["executors"] == 2, found
    assert found["events"]["add"] >= 3 * JOBS, found


def test_a_program_that_is_submitted_with_the_zip_needs_nothing_of_disqued_on_the_cluster(place: Place) -> None:
    archive = place.folder / "disqued.zip"
    packed = [sys.executable, "-m", "disqued.pipeline.ship", str(archive)]
    subprocess.run(packed, env=environment(), cwd=place.folder, check=True)
    python = interpreter(place.folder / "shipped", *OF_SPARK)
    hold(place.submit(python, ["--py-files", str(archive)], "ship"))


def test_a_program_is_submitted_to_a_cluster_that_has_the_wheel(place: Place) -> None:
    python = interpreter(place.folder / "installed", *OF_SPARK, *OF_DISQUED)
    wheel = wheel_in(COMPILED if builds.COMPILED else build(place.folder / "tree"))
    shutil.unpack_archive(wheel, packages(place.folder / "installed"), "zip")
    hold(place.submit(python, []))
