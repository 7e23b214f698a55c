"""Folders that cannot be what they are named as are refused before Spark starts."""

from pathlib import Path

import pytest

from disqued.pipeline.command import run
from disqued.pipeline.files import here


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing says that names without a scheme mean another file system, and Spark is not started."""
    for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_HOME", "DISQUED_TABLES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("disqued.pipeline.run.spark_session", lambda *words: pytest.fail("Spark was started"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rollup",), "the folder of the tables is missing: --tables DIR"),
        (("slo", "--tables", "/no/such"), "there is no folder /no/such: --tables names the folder"),
        (("lifecycle", "--tables", "file:///no/such"), "there is no folder file:///no/such: --tables names the folder"),
        (("audit",), "the folder of the tables is missing: --tables DIR"),
        (("audit", "--tables", "/no/such"), "there is no folder /no/such: --tables names the folder"),
        (("audit", "--events", "/no/such"), "there is no folder /no/such: --events names the one"),
        (("doctor", "--tables", "/no/such"), "there is no folder /no/such: --tables names the folder"),
        (("ingest", "--events", "/", "--tables", "/etc/passwd"), "/etc/passwd is a file: --tables names"),
        (("ingest", "--events", "/no/such", "--tables", "/tmp"), "there is no folder /no/such: --events names the one"),
        (("ingest", "--events", "/etc/passwd", "--tables", "/tmp"), "/etc/passwd is a file: --events names the"),
    ],
)
def test_folders_are_looked_at_before_spark_starts(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert capsys.readouterr().err.startswith(f"disqued-spark: {said}")


@pytest.mark.parametrize(
    ("verb", "option"),
    [
        ("lifecycle", "--clock-skew"), ("ingest", "--every"), ("consume", "--every"), ("audit", "--clock-skew"),
        ("audit", "--patience"), ("doctor", "--stuck"), ("doctor", "--idle"),
    ],
)  # fmt: skip
def test_what_is_no_number_of_seconds_is_refused(verb: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("nan", "inf"):
        assert run([verb, option, word]) == 2
        assert f"Invalid value for '{option}'" in capsys.readouterr().err


def test_what_names_mean_is_known_where_nothing_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert here("file:///x/y") == here("file:/x/y") == here("/x/y") == Path("/x/y")
    assert here("s3a://x/y") is here("/x", ("spark.hadoop.fs.defaultFS=hdfs://x",)) is None
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert here("/x") is None
    assert here("file:/x") == Path("/x")
