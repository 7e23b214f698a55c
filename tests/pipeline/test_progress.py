"""What a job of `disqued-spark` tells while Spark computes."""

import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

from disqued.pipeline import progress
from disqued.pipeline.progress import telling
from disqued.pipeline.run import RunLocation, running
from tests.integration.daemon import LIMIT, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET_S", 0.02)


def compute_until(spark: "SparkSession", path: Path) -> None:
    """Let Spark compute until there is a file, in two tasks of which the first is done at once."""
    name, end = str(path), time.time() + LIMIT

    def wait(number: int) -> int:
        while number and not Path(name).exists() and time.time() < end:
            time.sleep(0.01)
        return number

    spark.sparkContext.parallelize(range(2), 2).map(wait).collect()


def test_how_far_spark_is_is_told_where_the_job_says_nothing(spark: "SparkSession", tmp_path: Path) -> None:
    told: list[str] = []

    def say(text: str) -> None:
        told.append(text)
        if text == "1 of 2 tasks are done":
            (tmp_path / "go").touch()

    with telling(spark, lambda: 1.0, say):
        compute_until(spark, tmp_path / "go")
    assert (tmp_path / "go").exists()
    assert all(re.fullmatch("[012] of 2 tasks are done", text) for text in told), told


def test_nothing_is_told_while_the_job_tells_itself_nor_while_spark_is_idle(spark: "SparkSession") -> None:
    told: list[str] = []
    asked: list[float] = []

    def silent_s() -> float:
        asked.append(0.0 if len(asked) < 3 else 1.0)
        return asked[-1]

    with telling(spark, silent_s, told.append):
        wait_until(lambda: len(asked) > 5, "it was asked six times")
    assert told == []


def test_a_run_tells_unless_it_is_to_be_quiet(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def told(spark: Any) -> str:
        said.append("1 of 2")
        return "1 of 2"

    monkeypatch.setattr(progress, "how_far", told)
    with running("rollup", RunLocation(tables=str(tmp_path), quiet=True)):
        assert "progress" not in [thread.name for thread in threading.enumerate()]
    assert said == []
    with running("rollup", RunLocation(tables=str(tmp_path))) as run:
        wait_until(lambda: len(said) > 2, "it was told")
    assert re.fullmatch(r"(rollup +\d+\.\d s  1 of 2\n)+", capsys.readouterr().err)
    assert run.silent_s() < LIMIT


def test_where_spark_has_ended_nothing_more_is_told_nor_thrown() -> None:
    class Gone:
        asked = 0

        @property
        def sparkContext(self) -> Any:
            self.asked += 1
            raise Py4JNetworkError("the JVM is gone")

    gone: Any = Gone()
    with telling(gone, lambda: 1.0, lambda text: None):
        wait_until(lambda: gone.asked, "it was asked")
    assert gone.asked == 1
