"""The page on histories: its commands and programs run as they stand there, on a real daemon."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from disqued.pipeline.command import run
from disqued.reports.reading import ReportFilter, reading
from tests.integration.daemon import ROOT, Daemon, wait_until
from tests.pages import following

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "docs/how-to/history.md"
PAGE = (ROOT / NAME).read_text()
LINES = re.findall(r"^    \$ (.*)$", PAGE, re.MULTILINE)
COMMANDS = [shlex.split(line) for line in LINES]
PROGRAMS = re.findall(r"```python\n(.*?)```(?:\n\nIt prints:\n\n```\n(.*?)```)?", PAGE, re.DOTALL)
LAST = "spark.stop()\n"


def of(program: str) -> list[list[str]]:
    """The words behind a program, of all commands that begin with it."""
    return [words[1:] for words in COMMANDS if words[0] == program]


def test_the_page_does_what_it_says(
    spark: "SparkSession",
    start: Callable[..., Daemon],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [words] = of("disqued")[:1]
    daemon = start(*words[words.index("--events") :], directory=tmp_path / "data")

    def here(text: str) -> str:
        """The same, where this test has its daemon and its folders."""
        for old, new in (("/var/lib/disqued", daemon.directory), ("/srv/history", tmp_path), ("7711", daemon.port)):
            text = text.replace(old, str(new))
        return text

    [(work, _), *programs] = PROGRAMS
    exec(here(work), {})
    for [word] in of("export"):
        name, _, value = word.partition("=")
        monkeypatch.setenv(name, here(value))
    wait_until(lambda: [*daemon.directory.glob("events/date=*/node=*/events-*")], "a file is published")
    # What is shown of other ways is for other times and places.
    for words in of("disqued-spark")[:4]:
        assert run(words) == 0
    assert "done: 3 rows of 1 days" in capsys.readouterr().err
    assert len(programs) == 2
    for program, printed in programs:
        exec(here(program.removesuffix(LAST)), {})
        assert capsys.readouterr().out.strip() == printed.strip()
    reports = tmp_path / "reports.sqlite"
    before = rows_of(reports)
    assert all(before)
    assert run(["report", "--reports", str(reports), "--output", str(tmp_path / "report.html")]) == 0
    # A file that was taken away is filled again with all that the tables have.
    reports.unlink()
    for words in of("disqued-spark")[2:4]:
        assert run(words) == 0
    assert rows_of(reports) == before
    with following(NAME) as lines:
        lines.ran(*(program for program, _ in PROGRAMS))
        # Those of `disqued-spark` that are for other times and places are held to its options elsewhere.
        ours = [line for line in LINES if line.startswith("disqued-spark ")][:4]
        lines.ran(*(line for line in LINES if line.startswith(("disqued --", "export "))), *ours)


def rows_of(reports: Path) -> tuple[list[dict[str, Any]], ...]:
    """What reports tell of queues, but for when it was computed."""
    with reading(reports) as reader:
        found = [reader.queues(ReportFilter()), reader.slo(ReportFilter())]
    return tuple([{**row, "computed_at": ""} for row in each.rows] for each in found)
