"""Verbs that do not come to their end: nobody reads on, the disk is full, Ctrl-C.

Each ends with a status that says so, and leaves nothing half made.
"""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from disqued.tools import waiting
from disqued.tools.connecting import Interrupted
from tests.integration.cluster import QUICK, Cluster, ends_well
from tests.integration.daemon import HOST, LIMIT, Daemon, environment, wait_until
from tests.integration.terminal import Terminal
from tests.integration.verbs import at
from tests.journals import small_journal
from tests.programs import Program

SCRIPT = (sys.executable, "-m", "disqued.cli")
BROKEN_PIPE, BY_CTRL_C = 141, 130
FULL = "what is printed cannot be written: No space left on device\n"
#: Verbs that print something; {port} is that of a node, {journal} a folder with a journal.
PRINTING = [
    "cli -p {port} INFO",
    "cli -p {port} --json INFO",
    "top -p {port} --once",
    "top -p {port} --once --json",
    "bench -p {port} -n 50",
    "check node -p {port}",
    "cluster status -p {port}",
    "cluster status -p {port} --json",
    "move -p {port} --dry-run one another",
    "export --persistence aof --dir {journal}",
    "check-aof --dir {journal}",
    "completion bash",
    "restart --help",
    "--help",
    "--version",
]


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("journal")
    small_journal(folder)
    return folder


def words(line: str, daemon: Daemon, journal: Path) -> list[str]:
    return [*SCRIPT, *line.format(port=daemon.port, journal=journal).split()]


@pytest.mark.parametrize("line", PRINTING)
def test_a_reader_who_has_gone_ends_a_verb_quietly(daemon: Daemon, journal: Path, line: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        done = subprocess.run(
            words(line, daemon, journal), stdout=gone, stderr=subprocess.PIPE, env=environment(), cwd="/", text=True,
            timeout=LIMIT, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (BROKEN_PIPE, "")


def test_a_reader_of_errors_who_has_gone_ends_a_verb_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        done = subprocess.run(
            [*SCRIPT, "cli", "-p", "1", "PING"], stdout=subprocess.PIPE, stderr=gone, env=environment(), cwd="/",
            timeout=LIMIT, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (BROKEN_PIPE, b"")


def on_a_full_disk(argv: Sequence[str]) -> tuple[int, str]:
    """Run a command whose standard output takes nothing; returns its status, and what it says on standard error."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            argv, stdout=full, stderr=subprocess.PIPE, env=environment(), cwd="/", text=True, timeout=LIMIT, check=False
        )
    return done.returncode, done.stderr


@pytest.mark.parametrize("line", ["check node -p {port}", "check node -p 1", "check", "check nothing", "check --help"])
def test_a_check_whose_line_cannot_be_written_is_unknown(daemon: Daemon, journal: Path, line: str) -> None:
    assert on_a_full_disk(words(line, daemon, journal)) == (3, f"disqued check: {FULL}")


def test_a_check_without_a_standard_output_has_its_status(daemon: Daemon, journal: Path) -> None:
    closed = ["sh", "-c", 'exec "$@" >&-', "sh"]
    for line, status in (("check node -p {port}", 0), ("check nothing", 3)):
        done = subprocess.run(
            [*closed, *words(line, daemon, journal)], stderr=subprocess.PIPE, env=environment(), cwd="/", text=True,
            timeout=LIMIT, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (status, "")


@pytest.mark.parametrize("line", ["cli -p {port} INFO", "cluster status -p {port}", "--version", "bench --help"])
def test_a_disk_that_is_full_is_told_in_one_line(daemon: Daemon, journal: Path, line: str) -> None:
    assert on_a_full_disk(words(line, daemon, journal)) == (1, f"disqued: {FULL}")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("line", ["cli -p {port} PING", "cluster status -p {port}", "--version"])
def test_a_stream_that_is_closed_is_one_that_nobody_reads(
    daemon: Daemon, journal: Path, line: str, closed: str
) -> None:
    program = shlex.join(words(line, daemon, journal))
    done = subprocess.run(
        ["sh", "-c", f"{program} {closed}"], capture_output=True, env=environment(), cwd="/", text=True, timeout=LIMIT,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) == (">&-" not in closed.split())


def test_no_file_takes_the_place_of_a_stream_that_is_closed() -> None:
    look = "import os; from disqued.tools.stdio import open_missing; open_missing(); found = os.open('/', os.O_RDONLY)"
    program = shlex.join([sys.executable, "-c", f"{look}; raise SystemExit(found)"])
    done = subprocess.run(["sh", "-c", f"{program} <&- >&- 2>&-"], env=environment(), timeout=LIMIT, check=False)
    assert done.returncode > 2


# Ctrl-C.


def interrupted(program: Sequence[Any], marker: Path | str) -> str:
    """Start a verb, press Ctrl-C when something is there, and return what it complained."""
    process = Program(
        list(map(str, program)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd="/", text=True
    )
    with process:
        wait_until(lambda: Path(marker).exists() or process.poll() is not None, f"{marker} of {program}")
        process.send_signal(signal.SIGINT)
        said, complained = process.communicate(timeout=LIMIT)
    assert (process.returncode, said) == (BY_CTRL_C, ""), (said, complained)
    return complained


def endless(module: str, marker: Path, patch: str) -> list[str]:
    """A verb in which something is made to go on for ever, and to say when it has begun."""
    begin = f"from pathlib import Path; mark = Path({str(marker)!r}).touch; import {module} as module\n"
    return [sys.executable, "-c", f"{begin}{patch}\nfrom disqued.cli import main\nmain()"]


def test_an_export_leaves_no_file_and_says_how_far_it_got(journal: Path, tmp_path: Path) -> None:
    patch = """
real = module.steps
async def steps(reactor, items):
    async for record in real(reactor, items):
        yield record
    mark()
    from twisted.internet.defer import Deferred
    await Deferred()
module.steps = steps
"""
    program = endless("disqued.tools.export", tmp_path / "begun", patch)
    words = ["export", "--persistence", "aof", "--dir", journal, "--output", tmp_path / "jobs.jsonl"]
    complained = interrupted([*program, *words], tmp_path / "begun")
    assert complained == ("disqued export: interrupted after 6 records; a file is made of all of them, or not at all\n")
    assert [path.name for path in tmp_path.iterdir()] == ["begun"]


def test_what_does_not_let_go_is_left_at_the_second_interrupt(journal: Path, tmp_path: Path) -> None:
    patch = """
async def steps(reactor, items):
    from twisted.internet.defer import CancelledError, Deferred
    mark()
    try:
        await Deferred()
    except CancelledError:
        Path(sys.argv[-1] + ".let").touch()
        await Deferred()
    yield
import sys
module.steps = steps
"""
    program = endless("disqued.tools.export", tmp_path / "begun", patch)
    words = ["export", "--persistence", "aof", "--dir", journal, "--output", tmp_path / "jobs.jsonl"]
    with Program(
        list(map(str, [*program, *words])), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd="/",
        text=True,
    ) as process:  # fmt: skip
        wait_until((tmp_path / "begun").exists, "the first wait")
        process.send_signal(signal.SIGINT)
        wait_until((tmp_path / "jobs.jsonl.let").exists, "the second one")
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=LIMIT) == ("", "")
    assert process.returncode == BY_CTRL_C
    assert sorted(path.name for path in tmp_path.iterdir()) == ["begun", "jobs.jsonl.let"]


@pytest.mark.parametrize("options", [(), ("--repair",)])
def test_an_examination_that_is_interrupted_leaves_the_journal_as_it_is(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    small_journal(folder)
    (folder / "disque.aof.lock").unlink()
    before = {path: path.read_bytes() for path in folder.iterdir()}
    patch = """
def note(self, record):
    mark()
    import time
    time.sleep(600)
module.CheckReport.note = note
"""
    program = endless("disqued.persistence.check", tmp_path / "begun", patch)
    complained = interrupted([*program, "check-aof", "--dir", folder, *options], tmp_path / "begun")
    assert complained.startswith("disqued check-aof: interrupted: ")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_shipment_that_is_interrupted_leaves_whole_files(tmp_path: Path) -> None:
    source, target = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    target.mkdir()
    patch = """
def ship(source, target, *, remove):
    mark()
    import time
    time.sleep(600)
module.ship = ship
"""
    program = endless("disqued.tools.ship_events", tmp_path / "begun", patch)
    complained = interrupted([*program, "ship-events", "--from", source, target], tmp_path / "begun")
    assert complained == (
        f"disqued ship-events: interrupted: each file in {target} is whole, and a second run ships the others\n"
    )


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Cluster]:
    with ends_well(Cluster(tmp_path, QUICK)) as nodes:
        nodes.start(2)
        yield nodes


def test_a_drain_that_is_interrupted_says_what_is_left_and_that_it_goes_on(pair: Cluster) -> None:
    node = pair.nodes[0]
    node.call("ADDJOB", "mail", "once", 0, "RETRY", 0, "REPLICATE", 1)
    node.call("PAUSE", "mail", "out")
    with Terminal([*SCRIPT, "cluster", "drain", *at(node), f"{HOST}:{node.port}"]) as terminal:
        wait_until(lambda: node.call("CLUSTER", "LEAVING") == "yes", "a node that leaves")
        terminal.expect("hands its jobs on")
        terminal.type("\x03")
        said = terminal.expect(f"drain --cancel {HOST}:{node.port}\r\n")
        assert terminal.wait_end() == BY_CTRL_C
    told = said.splitlines()[-1]
    assert told.startswith("disqued cluster drain: interrupted")
    assert told.endswith(f"; it goes on leaving, until disqued cluster drain --cancel {HOST}:{node.port}")
    assert node.call("CLUSTER", "LEAVING") == "yes"


def test_what_is_waited_for_is_told_when_the_waiting_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def press(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", press)
    with pytest.raises(Interrupted, match=r"^interrupted: all .*: not so yet: a does not see b$"):
        waiting.wait_until(lambda: "a does not see b", LIMIT, "all nodes see each other")
