"""The page on the command line: its commands run as they stand there, and print what it shows."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from disqued.tools.verbs import VERBS
from tests.integration.daemon import LIMIT, ROOT, Daemon, environment, launch
from tests.integration.test_docs import ID, sessions
from tests.pages import following

NAME = "docs/how-to/command-line.md"
PAGE = (ROOT / NAME).read_text()
COMMAND = re.compile(r"^    \$ (.*)\n((?:    (?!\$ |127\S*>).*\n|\n(?=    [^$\s]))*)", re.MULTILINE)
COMMANDS = [
    (line, [said.strip() for said in shown.splitlines() if said.strip()]) for line, shown in COMMAND.findall(PAGE)
]
#: Verbs that are about queues and jobs.
OF_QUEUES = [name for name, (_, module) in VERBS.items() if "queue_verbs" in module]
#: What differs from run to run: ids, moments, addresses, beginnings of node ids, spans, the width of addresses.
MASKS = (
    (ID, "<id>"), (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"), "<moment>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<address>"), (re.compile(r"\b[0-9a-f]{8}$"), "<node>"),
    (re.compile(r" +[\d.]+s "), " <span> "), (re.compile(r" +[\d.]+s$"), " <span>"),
    (re.compile(r"\bnode +"), "node "),
)  # fmt: skip
#: The console script, which talks to the node of the test where nothing else is said.
SCRIPT = """\
#!/bin/sh
case "$1" in
    cli) shift; set -- cli -p {port} "$@" ;;
    check) verb=$2; shift 2; set -- check "$verb" -p {port} "$@" ;;
    {verbs}) verb=$1; shift; set -- "$verb" -p {port} "$@" ;;
esac
exec {python} -m disqued.cli "$@"
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    running = launch(tmp_path_factory.mktemp("howto") / "data")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, node: Daemon) -> Path:
    """A folder with the program."""
    made = tmp_path_factory.mktemp("bin")
    script = made / "disqued"
    script.write_text(SCRIPT.format(port=node.port, python=shlex.quote(sys.executable), verbs="|".join(OF_QUEUES)))
    script.chmod(0o755)
    return made


def run(folder: Path, line: str, typed: str = "") -> list[str]:
    """What a line prints in a bash, without spaces around and empty lines."""
    variables = environment()
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env={**variables, "PATH": f"{folder}:{variables['PATH']}"}, input=typed,
        capture_output=True, text=True, timeout=LIMIT, check=True,
    )  # fmt: skip
    return [said.strip() for said in done.stdout.splitlines() if said.strip()]


def masked(lines: list[str]) -> list[str]:
    for pattern, name in MASKS:
        lines = [pattern.sub(name, line) for line in lines]
    return lines


def test_the_page_goes_as_it_shows(folder: Path) -> None:
    lines = COMMANDS
    assert len(lines) >= 15
    asked = list(sessions(NAME))
    assert len(asked) == 2
    with following(NAME) as page:
        for line, shown in lines:
            assert masked(run(folder, line)) == masked(shown), line
            page.ran(line)
        for line, shown in asked:
            printed = run(folder, "disqued cli --no-raw", f"{line}\n")
            assert masked(printed) == masked([said for said in shown if said]), line
            page.ran(line)


def test_the_page_names_every_verb_of_its_kind_and_an_extra_that_there_is() -> None:
    assert "\ncli =\n" in (ROOT / "setup.cfg").read_text()
    for verb in OF_QUEUES:
        assert f"$ disqued {verb} " in PAGE
    for option in ("-h", "-p", "-s", "--tls", "--cacert", "--cert", "--key", "-a", "--password-file", "--askpass"):
        assert f"`{option}" in PAGE
