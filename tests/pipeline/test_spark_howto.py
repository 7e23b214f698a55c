"""The page on Spark: its program runs as it stands there, and prints what it says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import ROOT, Daemon

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (ROOT / "docs/how-to/spark.md").read_text()
#: A program, one line of text, and what it prints.
PROGRAM = re.compile(r"```python\n(.*?)```\n\n[^\n]*prints:\n\n```\n(.*?)```", re.DOTALL)
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


def test_the_program_that_reads_a_store_prints_what_it_says(
    spark: "SparkSession", start: Callable[..., Daemon], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, printed = PROGRAM.findall(PAGE)[1]
    node = start("--persistence", "aof", "--appendfsync", "always", directory=tmp_path / "data")
    for queue, body in (("mail", "to: ann"), ("mail", "to: bob"), ("letters", "to: eve")):
        node.call("ADDJOB", queue, body, 0)
    node.call("ACKJOB", node.call("GETJOB", "FROM", "mail")[0][1])
    exec(program.removesuffix(LAST).replace("/var/lib/disqued", str(tmp_path / "data")), {})
    assert capsys.readouterr().out.strip() == printed.strip()
