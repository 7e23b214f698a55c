"""Command blocks of pages that are about something else, typed on nodes and servers of their own."""

import re
import shlex
import shutil
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

import click
import pytest

from disqued.config import Config
from disqued.pipeline.command import main_group
from disqued.tools.program import program as disqued_verbs
from tests.disque_journal import RECORDED
from tests.integration.daemon import HOST, ROOT, Daemon, wait_until
from tests.integration.howto import Step, Terminal, fences, steps
from tests.pages import FENCE, FORMS, REMARK, RUN_BY, SPARK_LINES, following, part, shared_out
from tests.redis_server import RedisServer

Start = Callable[..., Daemon]


@pytest.fixture
def terminal(start: Start, tmp_path: Path) -> Terminal:
    return Terminal(start, tmp_path)


def unprompted(page: str, program: str) -> list[str]:
    """Lines of indented blocks that begin with a program, without what is said behind them."""
    text = FENCE.sub("", (ROOT / page).read_text())
    found = re.findall(rf"^    ({re.escape(program)}(?: .*)?)$", text, re.MULTILINE)
    return [REMARK.sub("", line) for line in found]


def typed(terminal: Terminal, line: str) -> list[str]:
    """Type a line that has to succeed."""
    *said, end = terminal.type(Step(f"set -o pipefail; {{ {line}; }} 2>said && echo && echo DONE", ()))
    assert end == "DONE", (line, said, end)
    return said


def test_the_daemons_of_the_readme_start(terminal: Terminal) -> None:
    terminal.words["/var/lib/disqued"] = "kept"
    of_readme = [line for line in unprompted("README.md", "disqued --port") if not line.endswith("&")]
    with following("README.md") as lines:
        for line in of_readme:
            daemon = terminal.begin(f"{line.removeprefix('disqued ')}")
            assert daemon.call("INFO", "persistence")["persistence"] == "aof"  # type: ignore[index]
            lines.ran(line)
        [line] = unprompted("README.md", "disqued check-aof")
        assert typed(terminal, line)[-1] == "The journal is whole."
        lines.ran(line)
        (terminal.folder / "disqued.conf").write_text("port nonsense\n")
        [line] = unprompted("README.md", "disqued --config")
        terminal.words["/etc/disqued.conf"] = str(terminal.folder / "disqued.conf")
        assert "port" in terminal.type(Step(line, ()))[-1], "it is this file that is read"
        lines.ran(line)


def test_a_controlled_restart_goes_as_the_page_on_persistence_says(terminal: Terminal) -> None:
    (terminal.folder / "data.conf").write_text("persistence aof\n")
    daemon = terminal.begin(f"--config {terminal.folder}/data.conf --dir data")
    job_id = daemon.call("ADDJOB", "mail", "once", 0, "RETRY", 0)
    lines = [*unprompted("docs/explanation/persistence.md", "CONFIG"), "SHUTDOWN REWRITE-AOF"]
    assert lines[-1] in unprompted("docs/explanation/persistence.md", "SHUTDOWN")
    assert [terminal.type(Step(line, (), "7711")) for line in lines] == [["OK"], ["OK"], []]
    daemon.wait_end()
    terminal.begin(f"--config {terminal.folder}/data.conf --dir data")
    assert terminal.nodes["7711"].call("GETJOB", "NOHANG", "FROM", "mail") == [["mail", job_id, "once"]]
    [line] = unprompted("docs/explanation/persistence.md", "disqued check-aof")
    assert typed(terminal, line.replace("[--repair] [--dir DIR | PATH]", "--dir data"))[-1] == "The journal is whole."
    with following("docs/explanation/persistence.md") as page:
        page.ran(*lines, line)


def test_a_database_is_asked_as_the_page_on_sqlite_says(terminal: Terminal) -> None:
    daemon = terminal.begin("--port 7711 --dir data --persistence sqlite --appendfsync always")
    for _ in range(2):
        daemon.call("ADDJOB", "mail", "to: ann", 0)
    [[_, job_id, _]] = daemon.call("GETJOB", "FROM", "mail")  # type: ignore[misc]
    daemon.call("ACKJOB", job_id)
    terminal.words["disque.sqlite"] = "data/disque.sqlite"
    rows, means, leases = [step.typed for step in steps("docs/explanation/sqlite.md") if "sqlite-utils" in step.typed]
    wait_until(lambda: '"queue": "mail"' in " ".join(typed(terminal, means)), "a job that is done")
    assert '"body": "to: ann"' in " ".join(typed(terminal, rows))
    assert typed(terminal, leases) == ["[]"]
    with following("docs/explanation/sqlite.md") as lines:
        lines.ran(rows, means, leases)


def test_a_redis_server_is_asked_as_its_page_says(terminal: Terminal) -> None:
    (terminal.folder / "redis").mkdir()
    server = RedisServer(terminal.folder / "redis")
    server.start()
    try:
        daemon = terminal.begin(f"--port 7711 --persistence redis --redis-url {server.url} --appendfsync always")
        for _ in range(2):
            daemon.call("ADDJOB", "mail", "to: ann", 0)
        [[_, job_id, _]] = daemon.call("GETJOB", "FROM", "mail")  # type: ignore[misc]
        daemon.call("ACKJOB", job_id)
        terminal.stand_in("redis-cli", f'exec {shutil.which("redis-cli")} --no-raw -h {HOST} -p {server.port} "$@"')
        done, jobs = [step.typed for step in steps("docs/explanation/redis.md")]
        wait_until(lambda: str(job_id) in " ".join(typed(terminal, done)), "a job that is done")
        assert typed(terminal, jobs) == ["(integer) 1"]
        with following("docs/explanation/redis.md") as lines:
            lines.ran(done, jobs)
        daemon.stop()
    finally:
        server.kill()


def test_the_admin_side_is_opened_as_its_page_says(terminal: Terminal) -> None:
    page = "docs/how-to/admin.md"
    token, file, asked = [
        step.typed for step in steps(page) if step.typed.startswith(("python3", "install", "curl -H"))
    ]
    [plain] = [step.typed for step in steps(page) if step.typed.startswith("curl http")]
    secret = typed(terminal, token)[0]
    terminal.words |= {"-o disqued": "", "/etc/disqued/tokens": str(terminal.folder / "tokens")}
    typed(terminal, file)
    terminal.words["Zp4v0vQXkJ3mYdT8..."] = secret
    [named] = re.findall(r"^    (ann .*)$", (ROOT / page).read_text(), re.MULTILINE)
    [started] = [step.typed for step in steps(page) if step.typed.startswith("disqued")]
    assert started == "disqued", "it has its page on the port of the lines that follow unless it is told otherwise"
    assert Config().http_port == 7780
    open_ = terminal.begin("--port 7711 --http-port 7780")
    assert "process_id" in typed(terminal, plain)[-1]
    open_.stop()
    (terminal.folder / "tokens").write_text(f"{terminal.translated(named)}\n")
    guarded = terminal.begin(f"--port 7711 --http-port 7780 --http-token-file {terminal.folder}/tokens")
    guarded.call("ADDJOB", "mail", "body", 0)
    assert '"name":"mail"' in typed(terminal, asked)[-1]
    assert "this token is not known" in typed(terminal, asked.replace("Zp4v0vQXkJ3mYdT8...", "wrong-wrong-wrong"))[-1]
    with following(page) as lines:
        lines.ran(started, plain, token, file, asked)


def test_journals_of_disque_are_imported_and_stores_exported_as_their_page_says(terminal: Terminal) -> None:
    page = "docs/how-to/import-export.md"
    (terminal.folder / "disque").mkdir()
    for target in ("disque/disque.aof", "disque.aof"):
        shutil.copy(RECORDED, terminal.folder / target)
    terminal.words |= {"/var/lib/disqued": "kept", "/var/lib/disque": "disque"}
    plain, queues = unprompted(page, "disqued import")
    for line in (plain, queues):
        shutil.rmtree(terminal.folder / "kept", ignore_errors=True)
        (terminal.folder / "kept").mkdir()
        said = typed(terminal, line)
        assert [word for word in said if word.startswith("records read")] == ["records read: 20"]
    [started] = unprompted(page, "disqued --persistence")
    terminal.begin(f"--port 7711 {started.removeprefix('disqued ')}").call("ADDJOB", "mail", "to: ann", 0)
    (terminal.folder / "its.conf").write_text("persistence aof\ndir kept\n")
    terminal.words["/etc/disqued.conf"] = "its.conf"
    exported = unprompted(page, "disqued export")
    for line in exported:
        said = typed(terminal, line)
    assert (terminal.folder / "jobs.parquet").stat().st_size > 0
    with following(page) as lines:
        lines.ran(plain, queues, started, *exported)


def test_the_program_about_a_simulated_cluster_runs(capsys: pytest.CaptureFixture[str]) -> None:
    [program] = fences("docs/explanation/simulation.md", "python")
    exec(program, {})
    assert len(capsys.readouterr().out.splitlines()) > 1_000
    with following("docs/explanation/simulation.md") as lines:
        lines.ran(program)


def lines_of(test: str) -> list[tuple[str, str]]:
    """All that pages show of a program whose lines only the program itself can judge: page and line."""
    return [(page, line) for page, tests in RUN_BY.items() if test in tests for line in part(page, test)]


def words_of(line: str) -> list[list[str]]:
    """The words of the programs that a shell starts for a line, without where it sends what they print."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[list[str]] = []
    begins = True
    for word in lexer:
        if begins:
            found.append([])
        begins = word in ("|", "&&")
        found[-1].append(word)
    return [list(takewhile(lambda word: not set(word) <= set("|&<>"), words)) for words in found]


def takes(group: click.Group, words: list[str]) -> None:
    """Hold the words of a line to the options of its verb."""
    context = click.Context(group)
    command: click.Command | None = group
    while isinstance(command, click.Group):
        verb, *words = words
        command = command.get_command(context, verb)
    assert command is not None, words
    command.make_context("it", words)


@pytest.mark.parametrize(("page", "line"), lines_of(SPARK_LINES))
def test_a_line_of_disqued_spark_is_one_that_it_takes(monkeypatch: pytest.MonkeyPatch, page: str, line: str) -> None:
    """Whichever hosts it needs; what each verb does is shown in tests/pipeline."""
    monkeypatch.setenv("DISQUED_EVENTS", "events")
    monkeypatch.setenv("DISQUED_ADDRESS", "127.0.0.1:7711")
    with following(page, [line]) as lines:
        for program, *words in words_of(line):
            if program == "disqued-spark":
                takes(main_group, words)
        lines.ran(line)


@pytest.mark.parametrize(("page", "line"), lines_of(FORMS))
def test_a_line_of_disqued_is_one_that_it_takes(page: str, line: str) -> None:
    """Whichever hosts and files it needs; what each verb does is shown by tests of its own."""
    with following(page, [line]) as lines:
        [_, *words], *_ = words_of(line)
        takes(disqued_verbs, words)
        lines.ran(line)


@pytest.mark.parametrize(
    ("test", "group", "verb"), [(SPARK_LINES, main_group, "doctor"), (FORMS, disqued_verbs, "top")]
)
def test_a_line_that_a_program_does_not_take_is_noticed(test: str, group: click.Group, verb: str) -> None:
    for page in {page for page, _ in lines_of(test)}:
        shared_out(page, test, [line for other, line in lines_of(test) if other == page])
    with pytest.raises(click.UsageError, match="No such option"):
        takes(group, [verb, "--nonsense"])
