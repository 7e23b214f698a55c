"""The console script as its users meet it: a node, and the tools beside it, each a process of its own."""

import configparser
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from pyarrow import parquet

from disqued.net.cluster.identity import Identity, IdentityError
from disqued.net.process.switching import StoreMarker
from disqued.tools.exportcolumns import COLUMNS
from disqued.tools.verbs import VERBS
from tests.disque_journal import NODE, RECORDED, DeletedJob, job_id, journal, loaded, moved, told
from tests.integration.daemon import LIMIT, ROOT, Daemon, environment, wait_until
from tests.integration.terminal import Terminal
from tests.integration.tools import Tools
from tests.programs import Program
from tests.redis_server import RedisServer

SCRIPT = (sys.executable, "-m", "disqued.cli")
AOF = ("--persistence", "aof")

Start = Callable[..., Daemon]


@pytest.fixture(scope="module", autouse=True)
def _tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Serve what `run` asks for."""
    with Tools(tmp_path_factory.mktemp("tools")) as tools:
        _serving.append(tools)
        yield
        _serving.clear()


_serving: list[Tools] = []


def run(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the console script to its end, in another folder than the checkout."""
    return _serving[0].run(*words)


def run_afresh(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """The same in a process that begins from nothing."""
    return subprocess.run(
        [*SCRIPT, *map(str, words)],
        env={**environment(), **variables},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def done(*words: object) -> str:
    """Run the console script, which is to succeed; returns what it printed."""
    process = run(*words)
    assert process.returncode == 0, process.stderr
    return process.stdout


def report(printed: str) -> dict[str, int]:
    """The figures of an import."""
    return {name: int(figure) for name, figure in (line.split(": ") for line in printed.splitlines())}


def imported(records: int, new: int, *, expired: int = 0, deleted: int = 0, known: int = 0) -> dict[str, int]:
    return {
        "records read": records, "jobs imported": new, "expired": expired, "deleted": deleted, "known already": known,
    }  # fmt: skip


def exported(folder: Path) -> list[dict[str, object]]:
    """The rows of the store in a folder."""
    return [json.loads(line) for line in done("export", *AOF, "--dir", folder).splitlines()]


def contents(folder: Path) -> dict[str, bytes]:
    """What is in a folder, but for what a node that has just started is writing still."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "nodes.conf.new"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder for the store of a node."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def recent(tmp_path: Path) -> Path:
    """The recorded journal, as if it had been written this minute."""
    path = tmp_path / "recorded.aof"
    path.write_bytes(moved(RECORDED.read_bytes(), int(time.time()) - told()["written_at"]))
    return path


def small(path: Path, *numbers: int, **fields: object) -> Path:
    """A journal of jobs that have an hour to live."""
    path.write_bytes(moved(journal(*(loaded(number, **fields) for number in numbers)), int(time.time()) - NOW_OF_JOBS))
    return path


NOW_OF_JOBS = told()["written_at"]


# The words.


def test_the_installed_script_is_this_one() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    assert "disqued = disqued.cli:main" in settings["options.entry_points"]["console_scripts"].split("\n")


def test_the_package_can_be_run_as_the_script() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "disqued", "export", "--help"],
        env=environment(), capture_output=True, text=True, timeout=LIMIT, check=True,
    ).stdout  # fmt: skip
    assert said == run_afresh("export", "--help").stdout


def test_the_help_names_every_tool_before_the_options_of_a_node() -> None:
    said = run_afresh("--help").stdout
    for name, (summary, _) in VERBS.items():
        assert f"disqued {name:<13} {summary}\n" in said
    assert said.index("check-aof") < said.index("--appendfsync")


@pytest.mark.parametrize("tool", VERBS)
def test_a_tool_has_a_help_of_its_own(tool: str) -> None:
    process = run_afresh(tool, "--help")
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith(f"Usage: disqued {tool} ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["improt"], "disqued: there is no verb 'improt'; did you mean import? "),
        (["import"], "disqued import: Missing argument 'FILE...'; options are --config, --dir, --dry-"),
        (["import", "x", "--dryrun"], "disqued import: there is no option '--dryrun'; did you mean --dry-run"),
        (["import", "x", "--dry"], "disqued import: there is no option '--dry'; did you mean"),
        (["export", "x"], "disqued export: Got unexpected extra argument (x); options are --config, --dir, --format, "),
        (["export", "--format", "csv"], "disqued export: Invalid value for '--format': 'csv' is not one of "),
        (["export", *AOF, "--format", "parquet"], "disqued export: Parquet is written to a file: --output FILE; "),
        (["export", "--persistence", "tape"], "disqued export: no store is called 'tape'; installed are aof, "),
        (["export", "--persistence", "a b"], "disqued export: command line: --persistence \"a b\": allowed are none, "),
        (["export", "--dir", "/no/such"], "disqued export: command line: --dir /no/such: there is no such folder"),
        (["export", "--config", "/no/such"], "disqued export: /no/such: cannot be read: No such file or directory"),
        (["export"], "disqued export: `persistence` is none, so that there is no store; name one with --persistence"),
        (["import", RECORDED], "disqued import: `persistence` is none, so that there is no store; name one with --pe"),
    ],
)  # fmt: skip
def test_what_there_is_not_is_told_in_a_line_with_what_there_is(words: Sequence[object], said: str) -> None:
    process = run(*words)
    assert process.returncode == 2
    assert process.stderr.startswith(said)
    assert process.stderr.count("\n") == 1
    assert process.stdout == ""


@pytest.mark.parametrize("kind", ["aof", "sqlite"])
def test_an_export_of_what_is_not_there_is_no_success(data: Path, kind: str) -> None:
    for more in ((), ("--output", data / "jobs.jsonl")):
        process = run("export", "--persistence", kind, "--dir", data, *more)
        assert (process.returncode, process.stdout) == (1, "")
        assert process.stderr == f"disqued export: there is no store of the kind {kind} in {data}\n"
    assert list(data.iterdir()) == []


@pytest.mark.parametrize("kind", ["aof", "sqlite"])
def test_an_export_of_a_store_without_jobs_is_empty(data: Path, start: Start, kind: str) -> None:
    start("--persistence", kind, directory=data)
    assert done("export", "--persistence", kind, "--dir", data) == ""


# What is imported.


def imported_by(words: Sequence[str], *, program: str = "from disqued.cli import main; main()") -> set[str]:
    """The modules of a process that runs the console script to its end."""
    tell = "import atexit, sys; atexit.register(lambda: sys.stderr.write('\\n' + ' '.join(sys.modules)))"
    process = subprocess.run(
        [sys.executable, "-c", f"{tell}; sys.argv = {['disqued', *words]!r}; {program}"],
        env=environment(), cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=True,
    )  # fmt: skip
    return set(process.stderr.splitlines()[-1].split())


def test_a_node_imports_nothing_of_the_verbs_but_their_names() -> None:
    through_script = imported_by(["--version"])
    alone = imported_by(["--version"], program="from disqued.tap import main; main()")
    assert through_script - alone == {"disqued.cli", "disqued.tools.stdio", "disqued.tools", "disqued.tools.verbs"}
    assert "twisted.internet.reactor" not in through_script
    twistd = imported_by(["disqued", "--version"], program="from twisted.scripts.twistd import run; run()")
    for modules in (through_script, twistd):
        assert "disqued.tap" in modules
        assert not modules & {"click", "rich", "prompt_toolkit", "redis"}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_imports_no_other_one_and_no_event_loop_to_tell_its_help(verb: str) -> None:
    modules = imported_by([verb, "--help"])
    shared = {"disqued.tools.top"} if verb in ("dead", "queues") else set()  # whose rows they show
    assert {module for _, module in VERBS.values()} & modules - shared == {VERBS[verb][1]} - shared
    assert not modules & {"twisted.internet.reactor", "disqued.tap", "rich", "redis", "prompt_toolkit"}


def test_every_verb_has_a_summary_and_examples_in_its_help() -> None:
    for verb in VERBS:
        said = run(verb, "--help").stdout
        assert "Examples:" in said, verb
        assert f"  disqued {verb}" in said, verb


# How far long work is.


def test_long_work_shows_at_a_terminal_how_far_it_is_and_nowhere_else(data: Path, tmp_path: Path) -> None:
    journal = small(tmp_path / "small.aof", *range(200))
    store = (*AOF, "--dir", data)
    events, shared = tmp_path / "events" / "date=2026-01-02" / "node=n", tmp_path / "shared"
    events.mkdir(parents=True)
    shared.mkdir()
    (events / "events-1.jsonl").write_text("{}\n" * 1_000)
    for words, said in (
        (("import", journal, *store), "jobs imported: 200"),
        (("export", *store), '"event":"added"'),
        (("check-aof", "--dir", data), "The journal is whole."),
        (("ship-events", "--from", tmp_path / "events", shared), "files shipped: 1 "),
    ):
        with Terminal([*SCRIPT, *words], output=tmp_path / "output") as terminal:
            assert terminal.wait_end() == 0, terminal.text
        assert re.search(rf"{words[0]}\b.*━", terminal.text), terminal.text
        assert said in (tmp_path / "output").read_text()
        assert said not in terminal.text
    with Terminal([*SCRIPT, "export", *store]) as terminal:
        assert terminal.wait_end() == 0
    assert "━" not in terminal.text
    assert len(terminal.text.splitlines()) == 200
    quiet = run_afresh("check-aof", "--dir", data)
    assert (quiet.returncode, quiet.stderr) == (0, "")


def test_without_rich_long_work_is_done_all_the_same(data: Path, tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("raise ImportError('No module named rich')\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    journal = small(tmp_path / "small.aof", 1)
    with Terminal([*SCRIPT, "import", journal, *AOF, "--dir", data], {"PYTHONPATH": path}) as terminal:
        assert terminal.wait_end() == 0, terminal.text
    assert "jobs imported: 1" in terminal.text
    assert "━" not in terminal.text


# A node, and the tools beside it.


def test_without_a_tool_it_is_a_node_whose_store_is_read_but_not_written_beside_it(
    start: Start, data: Path, recent: Path
) -> None:
    node = start(*AOF, program=SCRIPT, directory=data)
    job = node.call("ADDJOB", "mail", "to: ann", 0)
    [row] = exported(data)
    assert (row["event"], row["id"], row["queue"], b64decode(str(row["body"]))) == ("added", job, "mail", b"to: ann")
    refused = run("import", recent, *AOF, "--dir", data)
    assert refused.returncode == 1
    assert "nodes.conf.lock is locked: another disqued is running in this folder; end it first" in refused.stderr
    assert node.call("JSCAN") == ["0", [job]]


def test_an_export_tells_what_happened_to_jobs_and_queues(start: Start, data: Path) -> None:
    node = start(*AOF, directory=data)
    ids = [str(node.call("ADDJOB", "mail", f"body {number}", 0, "RETRY", 30)) for number in range(3)]
    node.call("ACKJOB", ids[0])
    node.call("DELJOB", ids[1])
    node.call("PAUSE", "mail", "out", "REASON", "deploy")
    node.call("PAUSE", "mail", "in", "node")
    rows = exported(data)
    assert [list(row) for row in rows] == [[column.name for column in COLUMNS]] * 7
    assert [(row["event"], row["id"], row["queue"], row["reason"], row["pause"]) for row in rows] == [
        *(("added", job, "mail", None, None) for job in ids),
        ("done", ids[0], None, None, None),
        ("gone", ids[1], None, "deleted", None),
        ("policy", None, "mail", "deploy", "out"),
        ("paused", None, "mail", None, "in"),
    ]
    now = time.time() * 1_000
    assert all(now - 3_600_000 < int(str(row["at"])) <= now + 1_000 for row in rows)
    assert (rows[0]["retry_ms"], rows[0]["ttl_ms"]) == (30_000, 86_400_000)
    # A deadline is kept by the other clock, whose milliseconds end at other moments.
    assert abs(int(str(rows[0]["expires"])) - int(str(rows[0]["at"])) - 86_400_000) < 1_000


def test_parquet_is_the_same_table(start: Start, data: Path, recent: Path, tmp_path: Path) -> None:
    done("import", recent, *AOF, "--dir", data)
    table = tmp_path / "table.parquet"
    assert done("export", *AOF, "--dir", data, "--format", "parquet", "--output", table) == ""
    rows = exported(data)
    for row in rows:
        row["body"] = b64decode(str(row["body"]))
    assert parquet.read_table(table).to_pylist() == rows
    assert len(rows) == len(told()["live"])
    assert not list(tmp_path.glob("*.part"))


def test_lines_can_be_written_to_a_file_which_is_there_when_it_is_whole(data: Path, recent: Path) -> None:
    done("import", recent, *AOF, "--dir", data)
    lines = data.parent / "lines.jsonl"
    lines.write_text("old")
    done("export", *AOF, "--dir", data, "--output", lines)
    assert [json.loads(line) for line in lines.read_text().splitlines()] == exported(data)
    (data / "disque.aof.manifest").write_text("broken")
    refused = run("export", *AOF, "--dir", data, "--output", lines)
    assert refused.returncode == 1
    assert "disque.aof.manifest: damaged" in refused.stderr
    assert len(lines.read_text().splitlines()) == len(told()["live"])
    assert not list(data.parent.glob("*.part"))


def test_settings_come_from_the_configuration_file_of_the_node(data: Path, recent: Path) -> None:
    config = data.parent / "node.conf"
    config.write_text(f"dir {data}\nappendonly yes\nappendfilename other.aof\nport 7799\n")
    done("import", recent, "--config", config)
    assert (data / "other.aof.manifest").exists()
    assert len(done("export", "--config", config).splitlines()) == len(told()["live"])


def test_a_reader_that_has_seen_enough_ends_an_export_quietly(data: Path) -> None:
    done("import", small(data.parent / "large.aof", *range(3_000), body=b"x" * 1_000), *AOF, "--dir", data)
    with Program(
        [*SCRIPT, "export", *AOF, "--dir", str(data)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["event"] == "added"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(LIMIT) == 128 + signal.SIGPIPE


def test_parquet_without_pyarrow_says_what_to_install(data: Path, tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ImportError('No module named pyarrow')\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    words = ("export", *AOF, "--dir", data, "--format", "parquet", "--output", tmp_path / "table")
    process = run_afresh(*words, PYTHONPATH=path)
    assert process.returncode == 1
    assert process.stderr.endswith("pip install 'disqued[parquet]'\n")
    assert process.stderr.count("\n") == 1
    assert not (tmp_path / "table").exists()


def test_check_aof_is_a_tool_too(data: Path, recent: Path) -> None:
    done("import", recent, *AOF, "--dir", data)
    assert run("check-aof", "--dir", data).returncode == 0
    [segment] = data.glob("*.incr")
    damaged = bytearray(segment.read_bytes())
    damaged[-1] ^= 1
    segment.write_bytes(damaged)
    assert run("check-aof", "--dir", data).returncode == 1
    assert run("check-aof", "--no-such").returncode == 2


# Import.


def shown(node: Daemon, job: str) -> dict[str, object]:
    """What SHOW says, by name."""
    with node.redis(encoding="latin-1") as client:
        fields = client.execute_command("SHOW", job)
    return dict(zip(fields[::2], fields[1::2], strict=True))


def test_the_recorded_journal_comes_back_as_after_a_crash(start: Start, data: Path, recent: Path) -> None:
    process = run("import", recent, *AOF, "--dir", data)
    assert process.returncode == 0
    assert report(process.stdout) == imported(20, 12, deleted=4)
    assert "1 of these jobs want at most one delivery and may have had it" in process.stderr
    node = start(*AOF, directory=data)
    later = int(time.time()) - told()["written_at"]
    for job in told()["live"]:
        now = shown(node, job["id"])
        same = {name: now[name] for name in ("id", "queue", "body", "repl", "retry", "delay")}
        assert same == {name: job[name] for name in same}
        assert 0 <= job["ttl"] - int(str(now["ttl"])) < LIMIT
        assert 0 <= later - (int(str(now["ctime"])) - job["ctime"]) // 10**9 < LIMIT
        assert now["state"] == "active"
        assert (now["nacks"], now["additional-deliveries"]) == (0, 0)
    for gone in told()["gone"]:
        assert node.call("SHOW", gone) is None
    # Delayed: for what is left of the day, and not for a retry period.
    [delayed] = [job for job in told()["live"] if job["delay"]]
    assert 86_000_000 < int(str(shown(node, delayed["id"])["next-requeue-within"])) < 86_400_000
    [once] = [job for job in told()["live"] if not job["retry"]]
    assert node.call("ENQUEUE", once["id"]) == 0


def test_queues_come_back_in_order_when_the_file_may_be_believed(start: Start, data: Path, recent: Path) -> None:
    process = run("import", recent, *AOF, "--dir", data, "--queues")
    assert (process.returncode, report(process.stdout)) == (0, imported(20, 12, deleted=4))
    assert "start the node with `aof-enqueue-jobs-once yes`" in process.stderr
    node = start(*AOF, "--aof-enqueue-jobs-once", "yes", directory=data)
    assert node.call("QLEN", "delayed") == 0
    got = node.call("GETJOB", "NOHANG", "COUNT", 9, "FROM", "many")
    assert [body for _, _, body in got] == [f"m{number}" for number in range(5)]
    [[_, once, _]] = node.call("GETJOB", "NOHANG", "FROM", "amo")
    assert once == next(job["id"] for job in told()["live"] if not job["retry"])
    assert node.call("GETJOB", "NOHANG", "FROM", "amo", "delayed") is None


def test_what_was_done_since_is_not_imported_again(start: Start, data: Path, recent: Path) -> None:
    done("import", recent, *AOF, "--dir", data)
    node = start(*AOF, directory=data)
    first = told()["live"][0]["id"]
    assert node.call("ACKJOB", first) == 1
    node.stop()
    assert report(done("import", recent, *AOF, "--dir", data)) == imported(20, 0, deleted=4, known=12)
    assert start(*AOF, directory=data).call("SHOW", first) is None


def test_what_was_flushed_can_be_imported_again(start: Start, data: Path, recent: Path) -> None:
    done("import", recent, *AOF, "--dir", data)
    node = start(*AOF, directory=data)
    node.call("DEBUG", "FLUSHALL")
    node.stop()
    assert report(done("import", recent, *AOF, "--dir", data)) == imported(20, 12, deleted=4)


def test_the_journals_of_several_nodes_give_each_job_once(start: Start, data: Path, tmp_path: Path) -> None:
    one = small(tmp_path / "one.aof", 1, 2, nodes=(NODE, b"f" * 40), replicate=2)
    other = small(tmp_path / "other.aof", 2, 3, nodes=(NODE, b"f" * 40), replicate=2)
    assert report(done("import", one, other, one, *AOF, "--dir", data, "--queues")) == imported(6, 3)
    node = start(*AOF, "--aof-enqueue-jobs-once", "yes", directory=data)
    assert [body for _, _, body in node.call("GETJOB", "NOHANG", "COUNT", 9, "FROM", "queue")] == [
        "body 1", "body 2", "body 3",
    ]  # fmt: skip


def test_a_job_that_came_back_after_its_deletion_counts(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "again.aof"
    entries = journal(loaded(1, body=b"old"), DeletedJob(job_id(1)), loaded(1, body=b"new"), loaded(1, body=b"late"))
    path.write_bytes(moved(entries, int(time.time()) - NOW_OF_JOBS))
    assert report(done("import", path, *AOF, "--dir", data)) == imported(4, 1, deleted=1)
    assert [b64decode(str(row["body"])) for row in exported(data)] == [b"new"]


def test_jobs_of_the_first_release_keep_their_ids(start: Start, data: Path, tmp_path: Path) -> None:
    path = small(tmp_path / "first.aof", 1, first=True)
    done("import", path, *AOF, "--dir", data)
    assert start(*AOF, directory=data).call("JSCAN") == ["0", [job_id(1, first=True).decode()]]


def test_what_is_over_is_counted_and_left_behind(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "old.aof"
    # Of the jobs of the recorded journal the longest lives for 30 days.
    path.write_bytes(moved(RECORDED.read_bytes(), int(time.time()) - told()["written_at"] - 20 * 86_400))
    assert report(done("import", path, *AOF, "--dir", data)) == imported(20, 1, expired=11, deleted=4)


def test_a_dry_run_counts_and_changes_nothing(data: Path, recent: Path, tmp_path: Path) -> None:
    done("import", small(tmp_path / "other.aof", 1), *AOF, "--dir", data)
    before = contents(data)
    first, rest = done("import", recent, *AOF, "--dir", data, "--dry-run").split("\n", 1)
    assert first == "dry run: nothing was written"
    assert report(rest) == imported(20, 12, deleted=4)
    assert contents(data) == before


def test_a_torn_file_is_imported_only_when_that_is_wanted(data: Path, recent: Path) -> None:
    recent.write_bytes(recent.read_bytes()[:-70])
    torn = run("import", recent, *AOF, "--dir", data)
    assert torn.returncode == 1
    assert "the file ends within record 20, 85 bytes after it begins; the first 7840 bytes are whole" in torn.stderr
    assert "--truncated-ok" in torn.stderr
    assert contents(data) == {}
    wanted = run("import", recent, *AOF, "--dir", data, "--truncated-ok")
    assert (wanted.returncode, report(wanted.stdout)) == (0, imported(19, 11, deleted=4))
    assert "only the first 7840 bytes are imported" in wanted.stderr


def test_damage_is_told_by_its_byte_and_nothing_is_written(data: Path, recent: Path) -> None:
    damaged = bytearray(recent.read_bytes())
    damaged[7_003] ^= 1
    recent.write_bytes(damaged)
    process = run("import", recent, *AOF, "--dir", data, "--truncated-ok")
    assert process.returncode == 1
    assert "recorded.aof: damaged at byte 7003, in record 14 that begins at byte 7001: " in process.stderr
    assert process.stderr.count("\n") == 1
    assert contents(data) == {}


def test_files_that_are_not_there_or_not_to_be_read_are_named(data: Path) -> None:
    missing = run("import", data / "missing.aof", *AOF, "--dir", data)
    assert (missing.returncode, missing.stderr) == (
        1, f"disqued import: {data / 'missing.aof'}: No such file or directory\n",
    )  # fmt: skip


def test_a_file_in_the_place_of_the_nodes_own_journal_has_to_move(data: Path, recent: Path) -> None:
    recent.rename(data / "disque.aof")
    process = run("import", data / "disque.aof", *AOF, "--dir", data)
    assert process.returncode == 1
    assert "this is where the node's own journal goes; move the file away" in process.stderr


def test_queues_are_not_mixed_with_jobs_whose_place_is_not_known(data: Path, recent: Path, tmp_path: Path) -> None:
    done("import", small(tmp_path / "other.aof", 1), *AOF, "--dir", data)
    before = contents(data)
    process = run("import", recent, *AOF, "--dir", data, "--queues")
    assert process.returncode == 1
    assert (
        "the store holds 1 jobs, whose place in the queues would be lost: with --queues it has to be empty"
        in process.stderr
    )
    assert contents(data) == before


def test_a_store_that_is_to_restore_its_queues_is_left_alone(start: Start, data: Path, recent: Path) -> None:
    node = start(*AOF, directory=data)
    node.call("ADDJOB", "mine", "once", 0, "RETRY", 0)
    with node.redis() as client:
        client.execute_command("CONFIG", "SET", "aof-enqueue-jobs-once", "yes")
        client.connection_pool.disconnect()
    end_with_queues(node)
    process = run("import", recent, *AOF, "--dir", data)
    assert process.returncode == 1
    assert "the store was left by SHUTDOWN REWRITE-AOF and tells where each job was queued" in process.stderr
    again = start(*AOF, "--aof-enqueue-jobs-once", "yes", directory=data)
    assert again.call("QLEN", "mine") == 1


def end_with_queues(node: Daemon) -> None:
    """Shut a node down so that its queues come back."""
    with node.redis(retry=None) as client:
        client.connection_pool.get_connection().send_command("SHUTDOWN", "REWRITE-AOF")
        assert node.wait_end() == 0


# Every kind of store.


@pytest.fixture(params=["aof", "redis", "sqlite"])
def node_conf(request: pytest.FixtureRequest, data: Path, tmp_path: Path) -> Iterator[Path]:
    """The configuration file of a node with a store of each kind."""
    config = tmp_path / "node.conf"
    lines = [f"dir {data}", f"persistence {request.param}", "appendfsync always"]
    if request.param != "redis":
        config.write_text("\n".join(lines))
        yield config
        return
    server = RedisServer(tmp_path)
    server.start()
    config.write_text("\n".join([*lines, f"redis-url {server.url}"]))
    yield config
    server.kill()


def test_every_store_takes_jobs_and_gives_rows(node_conf: Path, start: Start, data: Path, recent: Path) -> None:
    store = ("--config", node_conf)
    assert report(done("import", recent, *store)) == imported(20, 12, deleted=4)
    node = start("--config", str(node_conf), directory=data)
    ids = {job["id"] for job in told()["live"]}
    assert set(node.call("JSCAN", "COUNT", 100)[1]) == ids
    busy = run("import", recent, *store)
    assert busy.returncode == 1
    assert "nodes.conf.lock is locked" in busy.stderr
    finished = told()["live"][0]["id"]
    assert node.call("ACKJOB", finished) == 1
    rows = [json.loads(line) for line in done("export", *store).splitlines()]
    assert [row["id"] for row in rows if row["event"] == "done"] == [finished]
    assert {row["id"] for row in rows} == ids
    node.stop()
    assert report(done("import", recent, *store)) == imported(20, 0, deleted=4, known=12)


@pytest.mark.parametrize("node_conf", ["redis"], indirect=True)
def test_a_store_that_a_node_in_another_folder_uses_is_refused(
    node_conf: Path, start: Start, data: Path, recent: Path, tmp_path: Path
) -> None:
    node = start("--config", str(node_conf), directory=data)
    other = tmp_path / "other"
    other.mkdir()
    busy = run("import", recent, "--config", node_conf, "--dir", other)
    assert busy.returncode == 1
    assert re.search("renewed its lease", busy.stderr), busy.stderr
    assert StoreMarker(other).read() is None
    assert node.call("JSCAN") == ["0", []]


def test_every_store_takes_queues(node_conf: Path, start: Start, data: Path, recent: Path) -> None:
    assert report(done("import", recent, "--config", node_conf, "--queues")) == imported(20, 12, deleted=4)
    left_alone = run("import", recent, "--config", node_conf)
    assert left_alone.returncode == 1
    assert "the store was left by SHUTDOWN REWRITE-AOF" in left_alone.stderr
    node = start("--config", str(node_conf), "--aof-enqueue-jobs-once", "yes", directory=data)
    got = node.call("GETJOB", "NOHANG", "COUNT", 9, "FROM", "many", "amo", "delayed")
    assert [body for _, _, body in got] == ["m0", "once", "m1", "m2", "m3", "m4"]


# Which store holds the jobs: the word in the data folder.


def ids_of(lines: str) -> set[object]:
    """The jobs of an export."""
    return {json.loads(line)["id"] for line in lines.splitlines()}


def test_the_next_start_finds_what_was_imported_whatever_it_is_configured_for(
    start: Start, data: Path, recent: Path
) -> None:
    done("import", recent, *AOF, "--dir", data)
    assert (data / "store.conf").read_text() == "persistence aof\n"
    node = start("--persistence", "sqlite", directory=data)
    wait_until(lambda: StoreMarker(data).read() == "sqlite", "jobs that are moved to the configured store")
    ids = {job["id"] for job in told()["live"]}
    assert set(node.call("JSCAN", "COUNT", 100)[1]) == ids
    assert ids_of(done("export", "--dir", data)) == ids


def test_only_the_store_that_the_next_start_loads_is_filled(start: Start, data: Path, recent: Path) -> None:
    config = data.parent / "node.conf"
    config.write_text(f"dir {data}\nappendonly yes\n")
    start("--persistence", "sqlite", directory=data).stop()
    before = contents(data)
    for words in ((*AOF, "--dir", data), ("--config", config), ("--config", config, "--dry-run")):
        refused = run("import", recent, *words)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr == (
            f"disqued import: the jobs of {data} are in the store sqlite (store.conf): import into that with"
            " --persistence sqlite, or start the node once so that it moves them; nothing was imported\n"
        )
        assert contents(data) == before
    assert report(done("import", recent, "--config", config, "--persistence", "sqlite")) == imported(20, 12, deleted=4)
    node = start("--config", str(config), directory=data)
    assert set(node.call("JSCAN", "COUNT", 100)[1]) == {job["id"] for job in told()["live"]}


def test_a_node_in_the_folder_refuses_an_import_into_a_store_that_it_does_not_use(
    start: Start, data: Path, recent: Path
) -> None:
    start("--persistence", "none", directory=data)
    before = contents(data)
    refused = run("import", recent, *AOF, "--dir", data)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"disqued import: {data / 'nodes.conf.lock'} is locked: another disqued is running in this folder;"
        " end it first\n"
    )
    assert contents(data) == before
    assert report(done("import", recent, *AOF, "--dir", data, "--dry-run").split("\n", 1)[1])["jobs imported"] == 12
    assert contents(data) == before


def test_an_export_follows_a_node_that_has_changed_its_store(start: Start, data: Path) -> None:
    config = data.parent / "node.conf"
    config.write_text(f"dir {data}\nappendonly yes\n")
    node = start("--config", str(config), directory=data)
    first = node.call("ADDJOB", "mail", "first", 0)
    plain = run("export", "--config", config)
    assert (ids_of(plain.stdout), plain.stderr) == ({first}, "")
    node.call("CONFIG", "SET", "persistence", "sqlite")
    wait_until(lambda: "persistence_changing_to" not in node.call("INFO", "persistence"), "another store")
    second = node.call("ADDJOB", "mail", "second", 0)
    followed = run("export", "--config", config)
    assert (followed.returncode, ids_of(followed.stdout)) == (0, {first, second})
    assert followed.stderr == (
        f"disqued export: the jobs of {data} are in the store sqlite (store.conf); it is read, although `persistence`"
        " is aof\n"
    )
    old = run("export", "--config", config, *AOF)
    assert (old.returncode, ids_of(old.stdout)) == (0, {first})
    assert old.stderr == (
        f"disqued export: the jobs of {data} are in the store sqlite (store.conf); --persistence asks for aof, which"
        " is read instead\n"
    )
    same = run("export", "--config", config, "--persistence", "sqlite")
    assert (ids_of(same.stdout), same.stderr) == ({first, second}, "")


@pytest.mark.parametrize("word", [b"", b"sqlite\n", b"persistence \xff\n", b"persistence none\n"])
@pytest.mark.parametrize("words", [("import", RECORDED, *AOF), ("export", *AOF), ("export",)])
def test_a_word_that_is_damaged_ends_a_tool(data: Path, words: Sequence[object], word: bytes) -> None:
    (data / "store.conf").write_bytes(word)
    process = run(*words, "--dir", data)
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr.startswith(f"disqued {words[0]}: {data / 'store.conf'}")
    assert process.stderr.count("\n") == 1
    assert contents(data) == {"store.conf": word}


def test_a_word_that_names_a_store_that_is_not_installed_ends_an_export_that_would_follow_it(data: Path) -> None:
    StoreMarker(data).write("tape")
    process = run("export", "--dir", data)
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr.startswith(
        f"disqued export: {data / 'store.conf'}: no store is called 'tape'; installed are aof, "
    )


# A store that answers later, from another package.

PLUGIN = """
import os
from twisted.internet import reactor
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import deferLater
from zope.interface import implementer
from disqued.persistence.interface import IStoreFactory, StoreFailed
from disqued.persistence.null import NullStore


class Slow(NullStore):
    records = True
    commits = 0

    def load(self):
        yield Deferred() if self.kind == "hanging" else deferLater(reactor, 0.01)

    def open(self):
        print("open", flush=True)
        if self.kind == "meddling":
            os.truncate(os.environ["JOURNAL"], 1_000)

    def append(self, records):
        print(*(record[1].body.decode() for record in records), flush=True)

    def commit(self):
        self.commits += 1
        if self.kind == "failing" and self.commits == 2:
            return fail(StoreFailed("the server is away", final=False))
        return deferLater(reactor, 0.01, print, "committed", flush=True)

    def close(self):
        return deferLater(reactor, 0.01, print, "closed", flush=True)


@implementer(IStoreFactory)
class Factory:
    def __init__(self, name):
        self.name = name

    def create(self, config, reactor, clock):
        store = Slow(config, clock=clock)
        store.kind = self.name
        return store

    def peek(self, config):
        yield deferLater(reactor, 0.01)
        yield (4, b"queue", 1, 5)
        yield deferLater(reactor, 0.01)


slow, hanging, failing, meddling = map(Factory, ("slow", "hanging", "failing", "meddling"))
"""


@pytest.fixture
def plugins(tmp_path: Path) -> str:
    """A package with stores of its own; returns where Python is to look for modules."""
    folder = tmp_path / "package" / "twisted" / "plugins"
    folder.mkdir(parents=True)
    (folder / "slow_stores.py").write_text(textwrap.dedent(PLUGIN).lstrip())
    return os.pathsep.join([str(folder.parents[1]), str(ROOT)])


def test_a_store_that_answers_later_is_waited_for(plugins: str, data: Path, tmp_path: Path) -> None:
    path = small(tmp_path / "small.aof", *range(1_001))
    store = ("--persistence", "slow", "--dir", data)
    process = run_afresh("import", path, *store, PYTHONPATH=plugins)
    assert process.returncode == 0, process.stderr
    opened, first, once, second, twice, closed, *figures = process.stdout.splitlines()
    assert (opened, once, twice, closed) == ("open", "committed", "committed", "closed")
    assert len(first.split()) == 2_000
    assert second == "body 1000"
    assert report("\n".join(figures)) == imported(1_001, 1_001)
    lines = run_afresh("export", *store, PYTHONPATH=plugins).stdout.splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["paused"]


def test_a_store_that_fails_on_the_way_tells_how_far_it_came(plugins: str, data: Path, tmp_path: Path) -> None:
    path = small(tmp_path / "small.aof", *range(1_500))
    process = run_afresh("import", path, "--persistence", "failing", "--dir", data, PYTHONPATH=plugins)
    assert process.returncode == 1
    assert process.stderr == (
        "disqued import: the server is away; 1000 jobs were imported before, and a second run imports the others\n"
    )
    assert process.stdout.splitlines()[-1] == "closed"
    assert StoreMarker(data).read() is None


def test_a_word_that_cannot_be_written_is_told_with_what_was_imported(plugins: str, data: Path, tmp_path: Path) -> None:
    (data / "store.conf.new").mkdir()
    path = small(tmp_path / "small.aof", 1)
    process = run_afresh("import", path, "--persistence", "slow", "--dir", data, PYTHONPATH=plugins)
    assert process.returncode == 1
    assert process.stderr == (
        f"disqued import: {data / 'store.conf'} cannot be written: Is a directory; 1 jobs were imported, and a second"
        " run writes the file\n"
    )


def test_a_file_that_changes_while_it_is_read_is_noticed(plugins: str, data: Path, tmp_path: Path) -> None:
    path = small(tmp_path / "small.aof", *range(1_500))
    store = ("--persistence", "meddling", "--dir", data)
    process = run_afresh("import", path, *store, PYTHONPATH=plugins, JOURNAL=str(path))
    assert process.returncode == 1
    assert "small.aof: the file changed while it was read; end the Disque that writes to it" in process.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_import_that_waits_and_lets_go_of_store_and_folder(
    plugins: str, data: Path, tmp_path: Path, number: signal.Signals
) -> None:
    path = small(tmp_path / "small.aof", 1)
    with Program(
        [*SCRIPT, "import", str(path), "--persistence", "hanging", "--dir", str(data)],
        env={**environment(), "PYTHONPATH": plugins},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        wait_until(lambda: process.stdout is not None and process.stdout.readline() == "open\n", "an open store")
        with pytest.raises(IdentityError, match="is locked"):
            Identity.load(data / "nodes.conf", 7711, Random(1))
        process.send_signal(number)
        said, complained = process.communicate(timeout=LIMIT)
        assert (process.returncode, said, complained) == (
            130,
            "closed\n",
            "disqued import: interrupted: nothing was imported\n",
        )
    assert StoreMarker(data).read() is None
    Identity.load(data / "nodes.conf", 7711, Random(1)).release()
