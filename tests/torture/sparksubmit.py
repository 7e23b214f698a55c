"""`python -m tests.torture.sparksubmit`: `spark-submit` on a standalone cluster, in an interpreter without disqued.

    shipped     spark-submit --py-files disqued.zip     executors and driver have pyspark, pyarrow and pandas alone
    installed   spark-submit                            both have the wheel

Both read queues of three nodes, add to one, take one as a stream, and read the event logs of the nodes, which write
them to a folder that all of them share, or have them shipped there.  Exit status 0: all of it gave what it should.
"""

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.integration.cluster import Cluster, ends_well
from tests.integration.daemon import HOST, ROOT, wait_until
from tests.torture.sparkcluster import SPARK_HOME, SparkCluster, environment

#: What a cluster has beside Python, and what disqued needs more.
OF_SPARK = ("pyspark", "py4j", "pyarrow", "numpy", "numpy.libs", "pandas", "dateutil", "pytz", "six.py", "tzdata")
OF_DISQUED = ("attr", "attrs", "mypy_extensions.py", "redis", "typing_extensions.py")
SOURCES = ("disqued", "persistence", "web", "pipeline", "pyspark_disqued.py", "twisted", "setup.cfg", "pyproject.toml")
JOBS = 2_000
LOCAL = "local[2]"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "WARN",
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
}


def interpreter(place: Path, *modules: str) -> Path:
    """Make an interpreter that has these modules of ours and no others."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    link_packages(next(place.glob("lib/python*/site-packages")), modules)
    return place / "bin" / "python"


def link_packages(place: Path, modules: Sequence[str]) -> None:
    """Let a folder have these modules of ours, those of them that there are."""
    for name in modules:
        there = Path(sysconfig.get_path("purelib")) / name
        if there.exists():
            (place / name).symlink_to(there)


def build_wheel(place: Path) -> Path:
    """Build the wheel of this checkout."""
    tree = place / "tree"
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tree / name)
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    argv = [sys.executable, "-m", "build", "--wheel", "--outdir", str(place), str(tree)]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return next(place.glob("*.whl"))


def submit(master: str, python: Path, words: Sequence[str], place: Path) -> dict[str, Any]:
    """Run the program, and return what it found."""
    argv = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master]
    for name, value in SETTINGS.items():
        argv += ["--conf", f"{name}={value}"]
    argv += words
    log = place.with_suffix(".log")
    variables = environment(PYSPARK_PYTHON=str(python))
    del variables["PYTHONPATH"]
    with log.open("wb") as errors:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=errors, env=variables, cwd="/", check=False)
    assert done.returncode == 0, log.read_text(errors="replace") + done.stdout.decode(errors="replace")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Run both variants and print what each took."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.sparksubmit", description="spark-submit, twice.")
    parser.add_argument("--variant", choices=["shipped", "installed", "both"], default="both")
    parser.add_argument("--local", action="store_true", help="Spark in the driver's process, without executors")
    options = parser.parse_args()
    variants = ["shipped", "installed"] if options.variant == "both" else [options.variant]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        place = Path(folder)
        shared = place / "shared"
        shared.mkdir()
        own = (
            "--cluster-node-timeout",
            "5000",
            "--persistence",
            "aof",
            "--events",
            "all",
            "--events-file-seconds",
            "1",
        )
        nodes = stack.enter_context(ends_well(Cluster(place / "nodes", own)))
        nodes.start(3)
        spark = None if options.local else stack.enter_context(SparkCluster(place / "spark"))
        say(
            f"three nodes{'' if options.local else ', a master and two workers'} after {time.monotonic() - began:.0f} s"
        )
        for variant in variants:
            began = time.monotonic()
            found = run(variant, nodes, spark, place, shared)
            say(f"{variant}, {time.monotonic() - began:.0f} s: {json.dumps(found)}")
    return 0


def run(variant: str, nodes: Cluster, spark: SparkCluster | None, place: Path, shared: Path) -> dict[str, Any]:
    """Run one variant, and hold it to what it should find."""
    added = fill(nodes)
    if variant == "shipped":
        python = interpreter(place / variant, *OF_SPARK)
        words = ["--py-files", str(place / "disqued.zip")]
        packed = [sys.executable, "-m", "disqued.pipeline.ship", str(place / "disqued.zip")]
        subprocess.run(packed, env=environment(), check=True)
    else:
        python = interpreter(place / variant, *OF_SPARK, *OF_DISQUED)
        shutil.unpack_archive(build_wheel(place), next((place / variant).glob("lib/python*/site-packages")), "zip")
        words = []
    ship_events(nodes, shared)
    address = ",".join(f"{HOST}:{node.port}" for node in nodes.nodes)
    words += [str(ROOT / "tests/torture/sparkprogram.py"), address, str(shared), str(place / f"{variant}-tables")]
    found = submit(
        spark.master if spark else LOCAL,
        python,
        [*words, "ship"] if variant == "shipped" else words,
        place / f"{variant}-program",
    )
    jobs, distinct, parts = found["read"]
    assert (jobs, distinct) == (added, added), found
    assert parts >= 4, found
    assert found["stream"] == [1_000, 1_000], found
    assert spark is None or found["executors"] == 2, found
    assert found["events"]["add"] > 0, found
    return found


def fill(nodes: Cluster) -> int:
    """Put jobs on all nodes, if there are none; returns how many there are."""
    if not nodes.nodes[0].call("QLEN", "there"):
        for node in nodes.nodes:
            with node.redis() as client:
                pipeline = client.pipeline(transaction=False)
                for number in range(JOBS // 2):
                    pipeline.execute_command("ADDJOB", "there", number, 5_000, "REPLICATE", 2)
                pipeline.execute()
    return JOBS // 2 * len(nodes.nodes)


def ship_events(nodes: Cluster, shared: Path) -> None:
    """Have what is published of the event logs on the storage that executors read."""
    for node in nodes.nodes:
        events = node.directory / "events"
        wait_until(lambda events=events: list(events.glob("*/*/events-*.jsonl")), "a published file")
        words = ["ship-events", str(shared), "--from", str(events)]
        shipped = "from disqued.cli import main; main()"
        subprocess.run(
            [sys.executable, "-c", shipped, *words], env=environment(), check=True, stdout=subprocess.DEVNULL
        )


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
