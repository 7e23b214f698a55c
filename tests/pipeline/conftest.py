"""Daemons, queues, and the one Spark session of the tests that need one."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest.runner import runtestprotocol

from tests.integration.cluster import QUICK, Cluster, ends_well
from tests.integration.daemon import ROOT
from tests.integration.fixtures import daemon, plugins_known, queue, start
from tests.pipeline.trio import Trio

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["daemon", "plugins_known", "queue", "spark", "start"]


#: What Spark says when a process of Python that it has started is not there after 10 s.  A busy machine exceeds that,
#: and no setting of Spark 4 changes it (`PythonWorkerFactory.createSimpleWorker`).
GAVE_UP = "Python worker failed to connect back"
ATTEMPTS = 3


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run a test, and again where Spark has given its own process too little time."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for attempt in range(ATTEMPTS):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if attempt == ATTEMPTS - 1 or not gave_up(reports):
            break
        item._initrequest()  # type: ignore[attr-defined] - as pytest-rerunfailures does
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def gave_up(reports: Sequence[pytest.TestReport]) -> bool:
    """Whether a test has failed by Spark's own limit."""
    return any(report.failed and GAVE_UP in report.longreprtext + report.capstderr for report in reports)


@pytest.fixture(scope="session", autouse=True)
def quick_spark() -> Iterator[None]:
    """Let whatever starts Spark find the settings of these tests, programs too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(Path(__file__).with_name("conf")))
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """Start Spark once: two threads of this machine, no page, nothing that others can reach."""
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[2]").appName("disqued")
    for name, value in settings.items():
        builder = builder.config(name, value)
    # Its workers are other processes: of this interpreter, and with the sources of this checkout.  What they inherit is
    # what there is now; tests that follow have an environment of their own.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes with journals."""
    with ends_well(Cluster(tmp_path_factory.mktemp("trio"), (*QUICK, "--persistence", "aof"))) as nodes:
        nodes.start(3)
        yield nodes


@pytest.fixture
def trio(cluster: Cluster) -> Iterator[Trio]:
    """The nodes in the order of their ids, in which tasks take them; those that were killed come back afterwards."""
    yield Trio(cluster)
    ended = [number for number, node in enumerate(cluster.nodes) if node.ended]
    cluster.restart(*ended)
    cluster.wait_joined()
