"""The tutorial goes as it is written: nodes, a shop, tables, an audit, questions and charts."""

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from disqued.pipeline.command import main_group
from tests.integration.daemon import HOST, LIMIT, ROOT, Daemon, free_port, wait_until
from tests.integration.test_docs import run
from tests.pages import following

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "docs/tutorial-history.md"
PAGE = (ROOT / NAME).read_text()
#: A line that is typed into a shell, or a cell of Python and what it prints, if that is said.
STEP = re.compile(
    r"^ +\$ ([^\n]*)$|^```python\n(.*?)^```\n(?:\nIt prints:\n\n```\n(.*?)```)?", re.MULTILINE | re.DOTALL
)


def test_the_tutorial_goes_as_it_is_written(
    spark: "SparkSession",
    start: Callable[..., Daemon],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    reader = Reader(start, tmp_path)
    names: dict[str, Any] = {}
    with following(NAME) as lines:
        for typed, program, printed in STEP.findall(PAGE):
            if typed:
                reader.type(typed)
                if not typed.startswith("pip "):
                    lines.ran(typed)
                continue
            exec(reader.translated(program), names)
            shown = capsys.readouterr().out
            if printed:
                assert shown.strip() == printed.strip()
            else:
                assert re.search(r"^90 %  #{40} \d+\.\d s$", shown, re.MULTILINE), shown
            lines.ran(program)
    assert reader.verbs == ["ingest", "lifecycle", "rollup", "slo", "audit", "report"]
    page = reader.page("/reports")
    assert ("pictures" in page, "clean" in page) == (True, True)
    assert "<svg" in (tmp_path / "report.html").read_text()


class Reader:
    """Somebody who types what the page says; the ports are those of this run."""

    def __init__(self, start: Callable[..., Daemon], folder: Path) -> None:
        self.verbs: list[str] = []
        self._start = start
        self._folder = folder
        self._nodes: dict[str, Daemon] = {}
        self._http = free_port()

    def type(self, line: str) -> None:
        """Type a line into the shell."""
        words = self._expanded(line.removesuffix(" &"))
        if words[0] == "mkdir":
            subprocess.run(words, cwd=self._folder, check=True)
        elif words[0] == "disqued":
            self._begin(dict(zip(words[1::2], words[2::2], strict=True)))
        elif words[0] == "redis-cli":
            assert run(self._nodes[words[2]], self.translated(shlex.join(words[3:]))) == ["OK"]
            wait_until(self._is_whole, "all nodes know each other", LIMIT)
        elif words[0] == "disqued-spark":
            if not self.verbs:
                wait_until(self._is_published, "what happened is published", LIMIT)
            self.verbs.append(words[1])
            # Spark was started elsewhere, and would look for them there.
            words = [str(self._folder / word) if word in ("events", "tables") else word for word in words]
            done = CliRunner().invoke(main_group, words[1:], catch_exceptions=False)
            assert done.exit_code == 0, done.output
            if words[1] == "audit":
                assert "clean" in done.stdout
        else:
            assert words[:2] == ["pip", "install"]

    def translated(self, text: str) -> str:
        """Put the ports and the tables of this run for those of the page."""
        for port, node in self._nodes.items():
            text = text.replace(port, str(node.port))
        return text.replace('"tables/', f'"{self._folder}/tables/')

    def page(self, path: str) -> str:
        """What the admin page of the first node shows."""
        with urlopen(f"http://{HOST}:{self._http}{path}", timeout=LIMIT) as answer:
            text: str = answer.read().decode()
            return text

    def _expanded(self, line: str) -> list[str]:
        """The words of a line as the shell gives them to a program."""
        shell = ["bash", "-c", f"printf '%s\\0' {line}"]
        return subprocess.run(shell, cwd=self._folder, check=True, stdout=PIPE, text=True).stdout.split("\0")[:-1]

    def _begin(self, options: dict[str, str]) -> None:
        port, folder = options.pop("--port"), self._folder / options.pop("--dir")
        assert folder.is_dir(), "a node makes none"
        if options["--http-port"] != "0":
            options["--http-port"] = str(self._http)
        more = [word for pair in options.items() for word in pair]
        self._nodes[port] = self._start(*more, directory=folder)

    def _is_whole(self) -> bool:
        # Until the second one was met, two know each other.
        known = [len(node.call("HELLO")) - 2 for node in self._nodes.values()]
        return known in ([2, 2, 1], [3, 3, 3])

    def _is_published(self) -> bool:
        events = [
            json.loads(line)["event"]
            for path in (self._folder / "events").rglob("events-*.jsonl")
            for line in path.read_text().splitlines()
        ]
        return events.count("add") == 200 and list((self._folder / "events").rglob("_open-*")) == []
