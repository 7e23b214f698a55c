"""Spark, set up as the jobs need it.

What whoever starts the program has chosen (`spark-submit --conf`, `spark-defaults.conf`) is left as it is; the rest is
for one machine.  Times are UTC: a table has the same hours wherever it is read.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from disqued.pipeline.errors import Misused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Set where nobody has said otherwise.
DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What fails is told by this program, in a line; Spark would tell it several times, in hundreds.
    "spark.log.level": "FATAL",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.parquet.compression.codec": "zstd",
    # Where in these sources each column was written, for errors of people who write queries: five calls into the JVM.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # So many sketches are filled at once before rows are sorted, which takes longer than all the rest.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "2000",
}
#: What the jobs rely on: a part of a table is replaced alone, and hours are those of UTC.
NEEDED: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
LOCAL: Final = "local[*]"
MASTER: Final = re.compile(r"local(?:\[[\d*, ]+\])?|local-cluster\[[\d, ]+\]|yarn|(?:spark|k8s)://.+")
#: On one machine: nobody else has to reach this process.
ALONE: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@contextmanager
def spark_session(
    name: str, master: str | None = None, more: Mapping[str, str] | None = None
) -> Iterator["SparkSession"]:
    """Give the session of this process, and end it if it was not there before.

    `master` is that of `spark-submit`, and this machine if there is none; `more` are settings of Spark by name.
    """
    check_master(master)
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    there = SparkSession.getActiveSession()
    if there is not None:
        with settings(there, NEEDED):
            yield there
        return
    session = _start(name, master, more or {})
    try:
        yield session
    finally:
        _end(session)


@contextmanager
def settings(session: "SparkSession", wanted: Mapping[str, str]) -> Iterator[None]:
    """Let a session that others use, too, have these settings meanwhile."""
    before = {setting: session.conf.get(setting, None) for setting in wanted}
    for setting, value in wanted.items():
        session.conf.set(setting, value)
    try:
        yield
    finally:
        for setting, word in before.items():
            if word is None:
                session.conf.unset(setting)
            else:
                session.conf.set(setting, word)


def _end(session: "SparkSession") -> None:
    """Stop a session whose JVM may have ended already: some signals are for all processes of a group."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    with suppress(Py4JError, OSError):
        session.stop()


def _start(name: str, master: str | None, more: Mapping[str, str]) -> "SparkSession":
    """Start Spark.  Raises Misused where there is no Java that it runs on."""
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    conf = SparkConf()
    if master is not None:
        conf.setMaster(master)
    chosen = _chosen_in_file()
    defaults = {"spark.master": LOCAL, **DEFAULTS}
    if (conf.get("spark.master") or chosen.get("spark.master", LOCAL)).startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        defaults |= ALONE
    for setting, value in defaults.items():
        if setting not in chosen:
            conf.setIfMissing(setting, value)
    for setting, value in {**more, **NEEDED}.items():
        conf.set(setting, value)
    try:
        return SparkSession.builder.config(conf=conf).appName(f"disqued-spark {name}").getOrCreate()
    except (PySparkRuntimeError, FileNotFoundError) as error:
        if isinstance(error, FileNotFoundError) or "JAVA" in (error.getCondition() or ""):
            raise Misused(_why_not_started()) from None
        raise


def check_master(master: str | None) -> None:
    """Raise Misused for what is no master of Spark's, before that is started."""
    if master is not None and not MASTER.fullmatch(master):
        raise Misused(
            f"--master {master!r} is no master of Spark; allowed: local, local[4], local[*], spark://HOST:PORT, yarn "
            "or k8s://URL"
        )


def _why_not_started() -> str:
    """Tell why the Java that Spark runs on has not come up."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java"):
        return "Spark could not be started: why is said above.  It needs Java 17 or newer, and settings that it knows"
    if home:
        return f"Spark could not be started; it needs Java 17 or newer, and JAVA_HOME ({home}) has no bin/java"
    return "Spark could not be started; it needs Java 17 or newer: JAVA_HOME, or java on the PATH"


def _chosen_in_file() -> dict[str, str]:
    """Read `spark-defaults.conf`, which Spark itself asks only for what the program that starts it does not say."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and str(Path(home, "conf")))
    path = Path(folder or "", "spark-defaults.conf")
    if not folder or not path.is_file():
        return {}
    lines = (line.strip() for line in path.read_text(errors="replace").splitlines())
    words = (re.split(r"\s*[=:\s]\s*", line, maxsplit=1) for line in lines if line and line[0] not in "#!")
    return {name: value for name, *rest in words for value in rest}
