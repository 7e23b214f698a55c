"""What goes wrong is told in one line, if whoever gave the command can mend it; no JVM is needed for that."""

import pytest

from disqued.client.errors import ServerError
from disqued.pipeline import command
from disqued.pipeline.errors import Misused
from disqued.pipeline.failures import sentence, told
from disqued.pipeline.jobs.portable import NO_BASE64
from disqued.pipeline.session import spark_session

WORKER = """[PYTHON_DATA_SOURCE_ERROR] Failed to generate: Traceback (most recent call last):
  File "/x/read.py", line 44, in partitions
    nodes = find_nodes(self._options)
            ^^^^^^^^^^^^^^^^^^^^^^^^^
{}
 SQLSTATE: 38000"""
ABORTED = """org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 41.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.runJob(DAGScheduler.scala:1549)
Caused by: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed. SQLSTATE: 58030
\tat org.apache.spark.X
Caused by: {}
\tat java.base/X
\t... 1 more
"""


@pytest.mark.parametrize(
    ("said", "trace", "line"),
    [
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/nope.csv. SQLSTATE: 42K03",
            "",
            "Path does not exist: file:/nope.csv.",
        ),
        (WORKER.format("disqued.client.errors.Unreachable: no node: refused."), "", "no node: refused."),
        ("", ABORTED.format(WORKER.format("ValueError: the option delay")), "the option delay"),
        (WORKER.format("AttributeError: 'NoneType' object"), "", None),
        (
            ABORTED,
            ABORTED.format("java.io.IOException: Mkdirs failed to create file:/proc/zz"),
            "Mkdirs failed to create file:/proc/zz",
        ),
        (
            ABORTED,
            ABORTED.format("java.lang.RuntimeException: x.csv is not a Parquet file. It"),
            "x.csv is not a Parquet file. It",
        ),
        (ABORTED, ABORTED.format("java.net.UnknownHostException: nohost"), "UnknownHostException: nohost"),
        (ABORTED, ABORTED.format("java.lang.NullPointerException"), None),
        (ABORTED, ABORTED.format("java.lang.ClassCastException: class A cannot be cast"), None),
        ("[INTERNAL_ERROR] The plan is wrong", "", None),
        (
            "org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for s3 here",
            "",
            "No FileSystem for s3 here",
        ),
    ],
)
def test_the_innermost_cause_is_told_and_errors_of_programs_are_not(said: str, trace: str, line: str | None) -> None:
    assert sentence(said, trace) == line


def test_bodies_that_are_no_base64_are_told_with_what_to_do() -> None:
    cause = f"org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] {NO_BASE64} SQLSTATE: P0001"
    assert "--body text says" in str(sentence("", ABORTED.format(cause)))


def test_errors_of_python() -> None:
    assert told(NotADirectoryError(20, "Not a directory", "/etc/passwd/x")) == "/etc/passwd/x: Not a directory"
    assert told(ServerError("ERR no")) == "ERR no"
    assert told(KeyError("x")) is None


@pytest.mark.parametrize(("error", "lines"), [(OSError(28, "No space", "/x"), 1), (KeyError("a bug"), 4)])
def test_a_program_says_one_line_and_shows_all_there_is_of_a_bug(
    error: Exception, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*words: object, **more: object) -> None:
        raise error

    monkeypatch.setattr(command.main_group, "main", fail)
    assert command.run([]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) >= lines
    assert (said == ["disqued-spark: /x: No space"]) == (lines == 1)


@pytest.mark.parametrize("master", ["foo", "local[x]", "spark://", ""])
def test_what_is_no_master_is_refused_before_spark_is_started(master: str) -> None:
    with pytest.raises(Misused, match="is no master of Spark; allowed: local"), spark_session("test", master):
        pass


def test_a_missing_java_is_told_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from disqued.pipeline import session

    monkeypatch.setenv("JAVA_HOME", "/no/such")
    assert "JAVA_HOME (/no/such) has no bin/java" in session._why_not_started()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setattr("shutil.which", lambda *words, **more: None)
    assert "JAVA_HOME, or java on the PATH" in session._why_not_started()
    monkeypatch.setattr("shutil.which", lambda *words, **more: "/usr/bin/java")
    assert "why is said above" in session._why_not_started()
