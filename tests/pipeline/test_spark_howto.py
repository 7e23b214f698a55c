"""The page on Spark: its program runs as it stands there, and prints what it says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import ROOT, Daemon
from tests.pages import following, shared_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "docs/how-to/spark.md"
PAGE = (ROOT / NAME).read_text()
#: A program, one line of text, and what it prints.
PROGRAM = re.compile(r"```python\n((?:(?!```).)*)```\n\n[^\n]*prints:\n\n```\n(.*?)```", re.DOTALL)
STREAMS = [program for program in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "readStream" in program]
LAST = "spark.stop()\n"


def test_the_program_of_the_page_prints_what_it_says(
    spark: "SparkSession", daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    program, printed = PROGRAM.findall(PAGE)[0]
    assert program.count("127.0.0.1:7711") == 1
    assert program.endswith(LAST)
    # Its session is the one that is there; other tests go on with that.
    exec(program.removesuffix(LAST).replace("127.0.0.1:7711", f"127.0.0.1:{daemon.port}"), {})
    assert capsys.readouterr().out.strip() == printed.strip()
    assert daemon.call("QLEN", "letters") == 1
    assert daemon.call("GETJOB", "FROM", "letters")[0][2] == "to: eve"
    with following(NAME) as lines:
        lines.ran(program)


def test_the_program_that_reads_dead_jobs_prints_what_it_says(
    spark: "SparkSession", daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    program, printed = PROGRAM.findall(PAGE)[1]
    daemon.call("DEBUG", "FLUSHALL")  # other programs of the page have added jobs
    for queue, reason in (("mail", "no host"), ("mail", "no host"), ("letters", "no road")):
        job_id = daemon.call("ADDJOB", queue, "x", 0, "MAXTRIES", 2)
        daemon.call("GETJOB", "FROM", queue)
        daemon.call("NACK", job_id, "REASON", "too early")
        daemon.call("GETJOB", "FROM", queue)
        daemon.call("NACK", job_id, "REASON", reason)
    exec(program.replace("127.0.0.1:7711", f"127.0.0.1:{daemon.port}"), {"spark": spark})
    assert capsys.readouterr().out.strip() == printed.strip()
    with following(NAME) as lines:
        lines.ran(program)


def test_the_program_that_reads_a_store_prints_what_it_says(
    spark: "SparkSession", start: Callable[..., Daemon], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, printed = PROGRAM.findall(PAGE)[2]
    node = start("--persistence", "aof", "--appendfsync", "always", directory=tmp_path / "data")
    for queue, body in (("mail", "to: ann"), ("mail", "to: bob"), ("letters", "to: eve")):
        node.call("ADDJOB", queue, body, 0)
    node.call("ACKJOB", node.call("GETJOB", "FROM", "mail")[0][1])
    exec(program.removesuffix(LAST).replace("/var/lib/disqued", str(tmp_path / "data")), {})
    assert capsys.readouterr().out.strip() == printed.strip()
    with following(NAME) as lines:
        lines.ran(program)


@pytest.mark.parametrize("program", STREAMS, ids=["to-a-queue", "of-a-queue", "of-a-log"])
def test_a_stream_of_the_page_moves_what_it_says(
    spark: "SparkSession", daemon: Daemon, tmp_path: Path, program: str
) -> None:
    """What is there is moved, and no more is waited for."""
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "one.txt").write_text("to: ann\n")
    daemon.call("ADDJOB", "mail", "to: bob", 0)
    daemon.call("QADD", "news", 600, "to: eve")
    assert program.count(".start().awaitTermination()") == 1
    here = program.replace("127.0.0.1:7711", f"127.0.0.1:{daemon.port}")
    here = re.sub(r'"(incoming|state|mail-archive|news-state|news-archive)"', rf'"{tmp_path}/\1"', here)
    exec(here.replace(".start()", ".trigger(availableNow=True).start()"), {"spark": spark})
    if "incoming" in program:
        assert daemon.call("GETJOB", "FROM", "lines")[0][2] == "to: ann"
    else:
        [archive] = tmp_path.glob("*-archive")
        rows = spark.read.parquet(str(archive)).selectExpr("CAST(body AS STRING)").collect()
        assert ("to: bob" if "mail" in program else "to: eve") in {row.body for row in rows}
    with following(NAME, [program]) as lines:
        lines.ran(program)


def test_each_stream_of_the_page_is_run() -> None:
    moving = test_a_stream_of_the_page_moves_what_it_says.__name__
    shared_out(NAME, f"tests/pipeline/test_spark_howto.py::{moving}", STREAMS)
