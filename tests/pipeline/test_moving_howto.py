"""The page on moving jobs: its commands run as they stand there, one behind the other, and do what it says."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from disqued.pipeline import command
from tests.integration.daemon import HOST, ROOT, Daemon
from tests.pages import following

NAME = "docs/how-to/move-jobs.md"
PAGE = (ROOT / NAME).read_text()
COMMANDS = re.findall(r"^    \$ disqued-spark (.*)$", PAGE, re.MULTILINE)
CSV = re.findall(r"```csv\n(.*?)```", PAGE, re.DOTALL)[0]


def test_the_commands_of_the_page_do_what_it_says(
    spark: SparkSession,
    start: Callable[..., Daemon],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = tmp_path / "data"
    node = start("--persistence", "aof", "--appendfsync", "always", "--events", "all", directory=data)
    [[exported, variable, address]] = re.findall(r"^    \$ (export (\w+)=(.*))$", PAGE, re.MULTILINE)
    monkeypatch.setenv(variable, address.replace("127.0.0.1:7711", f"{HOST}:{node.port}"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mails.csv").write_text(CSV)
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "one.json").write_text('{"body":"one"}\n')
    node.call("ADDJOB", "mail-dead", "dead", 0)
    node.call("ADDJOB", "short", "short", 0, "TTL", 1)
    # Spark's own folder is that of the JVM: a name without a folder is one of there.
    named = re.compile(r"(?<= )(mails\.csv|incoming|import-state|jobs|mail-archive|stored|done|replayed)(?= |$)")

    def done(line: str) -> list[str]:
        here = named.sub(lambda name: str(tmp_path / name[1]), line.replace("/var/lib/disqued", str(data)))
        here = here.replace(f"--records {tmp_path}/", "--records ")
        assert command.run(shlex.split(here)) == 0, line
        said = capsys.readouterr()
        return [*said.err.splitlines(), *said.out.splitlines()]

    told = [done(line) for line in COMMANDS]
    with following(NAME) as lines:
        lines.ran(exported, *(f"disqued-spark {line}" for line in COMMANDS))
    assert [said[-1].split(" s  ")[1] for said in told[:-1]] == [
        "done: 2 jobs were added, or were there already",
        "done: 1 jobs were added, or were there already",
        f"done: 3 rows are in {tmp_path}/jobs",
        f"done: 3 jobs are in {tmp_path}/mail-archive",
        f"done: 1 rows are in {tmp_path}/stored",
        f"done: 3 rows are in {tmp_path}/done",
        "done: 1 jobs were added, or were there already",
        "done: 2 jobs are in mail",
        "1 jobs would be added",
        "done: 1 jobs were added, or were there already",
    ]
    assert node.call("GETJOB", "FROM", "short")[0][2] == "short"
    acknowledged = [line.split() for line in told[-1] if "Z " in line]
    assert sorted(words[2:4] for words in acknowledged) == [["ack", "mail"]] * 3 + [["ack", "mail-dead"]] * 2
