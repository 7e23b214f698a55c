"""Spark's standalone cluster: a master and workers, which start executors; and processes that belong to one another.

    master <-- worker --> executor (JVM) --> pyspark.daemon --> one Python worker for each task

Everything listens on 127.0.0.1, on free ports; the pages of master and workers cannot be turned off, and get any port.
Source: docs of Spark, "Spark Standalone Mode".  Times are seconds.
"""

import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import attrs
import pyspark

from tests.integration.daemon import HOST, ROOT, free_port, wait_until
from tests.limits import LIMIT

SPARK_HOME = Path(pyspark.__file__).parent
STARTED = 120.0  #: that a master or a worker may need on a busy machine
EXECUTOR = "CoarseGrainedExecutorBackend"
#: What a cluster has beside Python.
OF_SPARK = ("pyspark", "py4j", "pyarrow", "numpy", "numpy.libs", "pandas", "dateutil", "pytz", "six.py", "tzdata")
#: Executors that are killed are no reason to end an application.
MASTER_OPTS = "-Dspark.deploy.maxExecutorRetries=-1 -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def environment(**more: str) -> dict[str, str]:
    """Make the variables of Spark's programs; they run this interpreter, and know no other Spark."""
    own = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": sys.executable}
    return {**os.environ, "PYTHONPATH": str(ROOT), **own, **more}


def link_packages(place: Path, modules: Sequence[str]) -> None:
    """Let a folder have these modules of ours, those of them that there are."""
    for name in modules:
        there = Path(sysconfig.get_path("purelib")) / name
        if there.exists():
            (place / name).symlink_to(there)


def children(pid: int) -> list[int]:
    """Name the processes that a process has started and that are there."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found


def descendants(pid: int) -> dict[int, str]:
    """Name the processes that a process has started, and those that these have, with their command lines."""
    found: dict[int, str] = {}
    for child in children(pid):
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{child}/cmdline").read_bytes()
            found[child] = line.replace(b"\0", b" ").decode(errors="replace")
            found |= descendants(child)
    return found


def kill(pid: int) -> bool:
    """End a process at once; say whether it was there."""
    assert pid > 0, f"{pid} is no process: 0 and less stand for groups of them, -1 for all that there are"
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@attrs.define
class SparkCluster:
    """A master and two workers of one core each, in a folder."""

    place: Path
    port: int = attrs.field(factory=free_port)
    _processes: list[subprocess.Popen[bytes]] = attrs.field(factory=list)

    @property
    def master(self) -> str:
        """The URL for drivers."""
        return f"spark://{HOST}:{self.port}"

    def __enter__(self) -> Self:
        try:
            words = ("--host", HOST, "--port", str(self.port), "--webui-port", "0")
            self._start("master.Master", *words, SPARK_DAEMON_JAVA_OPTS=MASTER_OPTS)
            wait_until(lambda: "I have been elected leader" in self.log(0), "a master", STARTED)
            for number in (1, 2):
                work = str(self.place / f"work-{number}")
                words = ("--host", HOST, "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", work)
                self._start("worker.Worker", *words, self.master, SPARK_DAEMON_MEMORY="256m")
            for number in (1, 2):
                wait_until(
                    lambda number=number: "Successfully registered with master" in self.log(number), "a worker", STARTED
                )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            below = descendants(process.pid)
            process.kill()
            process.wait(LIMIT)
            for pid in below:
                kill(pid)

    def _start(self, name: str, *words: str, **variables: str) -> None:
        argv = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
        self.place.mkdir(parents=True, exist_ok=True)
        # Executors inherit these: what is importable for them is for the driver to say.
        own = {name: value for name, value in environment(**variables).items() if name != "PYTHONPATH"}
        with (self.place / f"{len(self._processes)}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=own, cwd=self.place)
            )

    def log(self, number: int) -> str:
        """What the master (0) or a worker (1, 2) has said so far."""
        assert self._processes[number].poll() is None, (self.place / f"{number}.log").read_text()
        return (self.place / f"{number}.log").read_text(errors="replace")

    def executors(self) -> list[int]:
        """Process ids of the executors that run."""
        return [pid for pid, line in self._below() if EXECUTOR in line]

    def python_workers(self) -> list[int]:
        """Process ids of what runs Python for executors: the daemons, and the workers that they have forked."""
        return [pid for pid, line in self._below() if "pyspark.daemon" in line]

    def _below(self) -> Iterator[tuple[int, str]]:
        for process in self._processes[1:]:
            yield from descendants(process.pid).items()
