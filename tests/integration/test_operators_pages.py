"""The pages for operators go as they are written: each line that they show is typed, and answers what they say."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.disque_journal import RECORDED
from tests.integration.daemon import DAEMON, HOST, LIMIT, ROOT, Daemon, wait_until
from tests.integration.howto import Step, Terminal, fences, matches, steps
from tests.pages import following
from tests.redis_server import RedisServer

Start = Callable[..., Daemon]


def play(terminal: Terminal, page: str) -> list[Step]:
    """Type all of a page; daemons that it stops are expected to end."""
    typed = steps(page)
    with following(page) as terminal.lines:
        for step in typed:
            type_step(terminal, step)
    return typed


def type_step(terminal: Terminal, step: Step) -> None:
    """Type a line, which may be the end of a daemon."""
    if step.typed.endswith(" SHUTDOWN"):
        assert terminal.type(step) == []
        port = step.port or step.typed.split()[2]
        assert terminal.nodes[port].wait_end() == 0
        terminal.ran(step.typed)
    else:
        terminal.check(step)


def test_a_backup_is_made_and_restored_as_the_page_says(start: Start, tmp_path: Path) -> None:
    assert len(play(Terminal(start, tmp_path), "docs/how-to/backup.md")) == 26


def test_an_upgrade_goes_as_the_page_says(start: Start, tmp_path: Path) -> None:
    terminal, typed = Terminal(start, tmp_path), steps("docs/how-to/upgrade.md")
    (at_once,) = [step for step in typed if step.typed.startswith("disqued restart --all")]
    with following("docs/how-to/upgrade.md") as terminal.lines:
        for step in typed:
            if step is at_once:
                by_one_command(terminal, step)
            else:
                type_step(terminal, step)
    assert len(typed) == 18


def by_one_command(terminal: Terminal, step: Step) -> None:
    """Restart all nodes of a page; who is asked to start one by ssh starts the one that has ended."""
    first, *_ = nodes = list(terminal.nodes.values())
    terminal.words |= {"-h 10.0.0.1": f"-p {first.port}", "10.0.0.1:7711": f"{HOST}:{first.port}"}
    lines = [
        f"redis-cli -p {node.port} PING > /dev/null 2>&1 || {shlex.join(DAEMON)} --port {node.port} --http-port 0"
        f" --cluster-node-timeout 2000 --dir {shlex.quote(str(node.directory))} >> {node.log_file} 2>&1 &"
        for node in nodes
    ]
    terminal.stand_in("ssh", f'[ "$*" = "{HOST} systemctl start disqued" ] || exit 1\ncd /\n' + "\n".join(lines))
    terminal.check(step)
    for node in nodes:
        assert node.wait_end() == 0
        with node.redis() as client:
            number = int(client.info("server")["process_id"])
        os.kill(number, signal.SIGTERM)
        wait_until(lambda number=number: not Path(f"/proc/{number}").exists(), "the end of a process")


def test_a_node_is_monitored_as_the_page_says(start: Start, tmp_path: Path) -> None:
    assert len(play(Terminal(start, tmp_path), "docs/how-to/monitor.md")) == 12


def test_jobs_of_disque_come_over_as_the_page_says(start: Start, tmp_path: Path) -> None:
    shutil.copy(RECORDED, tmp_path / "disque.aof")
    assert len(play(Terminal(start, tmp_path), "docs/how-to/from-disque.md")) == 6


def test_prometheus_is_told_the_jobs_that_the_rules_ask_for() -> None:
    [text] = fences("docs/how-to/monitor.md", "yaml")
    settings = yaml.safe_load(text)
    jobs = {job["job_name"]: job for job in settings["scrape_configs"]}
    asked = set(re.findall(r'job="([^"]+)"', (ROOT / "docs/operations/alerts.yml").read_text()))
    assert asked <= set(jobs)
    assert [job.get("metrics_path", "/metrics") for job in jobs.values()] == ["/metrics", "/metrics/per-queue"]
    # The one of the reference is for a node on the same machine.
    [told] = fences("docs/operations/metrics.md", "yaml")
    for job in [*jobs.values(), *yaml.safe_load(told)["scrape_configs"]]:
        job.pop("static_configs")
        assert job == jobs[job["job_name"]]


def test_each_rule_that_wakes_somebody_up_is_named() -> None:
    page = (ROOT / "docs/how-to/monitor.md").read_text()
    rules = yaml.safe_load((ROOT / "docs/operations/alerts.yml").read_text())["groups"][0]["rules"]
    critical = {rule["alert"] for rule in rules if rule["labels"]["severity"] == "critical"}
    assert set(re.findall(r"`(Disqued\w+)`", page)) == critical


# What the page about lists does is looked at with a real Redis server.

LISTS = "docs/how-to/from-redis-lists.md"
ENTRIES = [f"entry {number}" for number in range(250)]
#: Ends the program as kill -9 does, before or after one of the times that it sends something.
DIES = """
import os, signal, redis
sent, real = 0, {owner}.{method}
def sending(self, *words, **more):
    global sent
    sent += 1
    if sent == {at} and not {after}:
        os.kill(os.getpid(), signal.SIGKILL)
    answer = real(self, *words, **more)
    if sent == {at}:
        os.kill(os.getpid(), signal.SIGKILL)
    return answer
{owner}.{method} = sending
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    (tmp_path / "redis").mkdir()
    running = RedisServer(tmp_path / "redis")
    running.start()
    yield running
    running.kill()


def test_work_with_lists_is_done_here_as_the_page_says(start: Start, tmp_path: Path) -> None:
    terminal = Terminal(start, tmp_path)
    terminal.begin("--port 7711")
    assert [step.typed.split()[0] for step in steps(LISTS)].count("GETJOB") == 3
    with following(LISTS) as terminal.lines:
        for step in steps(LISTS):
            terminal.check(step)


def run_mover(server: RedisServer, daemon: Daemon, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run the program of the page on the list `mail`."""
    [program] = fences(LISTS, "python")
    program = program.replace("port=6379", f"port={server.port}").replace("port=7711", f"port={daemon.port}")
    argv = [sys.executable, "-c", before + program, "mail", "letters"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, check=False)


def bodies(daemon: Daemon, queue: str) -> list[str]:
    """What is in a queue, in its order."""
    with daemon.redis() as client:
        return [body for _, _, body in client.execute_command("QPEEK", queue, 2000)]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("method", ["Redis.execute_command", "client.Pipeline.execute"])
def test_a_mover_that_is_killed_loses_no_entry_and_doubles_none(
    server: RedisServer, start: Start, method: str, after: bool
) -> None:
    """Killed at its first call, its second, and so on, and run to its end after that."""
    daemon = start()
    for entry in ENTRIES:
        server.call("LPUSH", "mail", entry)
    owner, _, name = f"redis.{method}".rpartition(".")
    killed = 0
    for at in range(1, 50):
        done = run_mover(server, daemon, DIES.format(owner=owner, method=name, at=at, after=after))
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        killed += 1
    assert killed >= 3
    assert (run_mover(server, daemon).stdout, server.call("EXISTS", "mail", "mail:moving")) == ("0 entries moved\n", 0)
    assert bodies(daemon, "letters") == ENTRIES


def test_what_is_refused_stays_in_the_list(server: RedisServer, start: Start) -> None:
    daemon = start()
    server.call("LPUSH", "mail", "one", "two")
    daemon.call("PAUSE", "letters", "in")
    done = run_mover(server, daemon)
    assert (done.returncode, "PAUSED" in done.stderr) == (1, True)
    assert server.call("LLEN", "mail:moving") == 2
    server.call("LPUSH", "mail", "three")
    daemon.call("PAUSE", "letters", "none")
    assert [run_mover(server, daemon).stdout for _ in range(2)] == ["2 entries moved\n", "1 entries moved\n"]
    assert bodies(daemon, "letters") == ["one", "two", "three"]
    with following(LISTS) as lines:
        lines.ran(*fences(LISTS, "python"))


@pytest.mark.parametrize(
    ("printed", "shown", "same"),
    [
        (["a", "b", "c"], ["a", "...", "c"], True),
        (["a", "c"], ["a", "...", "c"], True),
        (["a", "b"], ["a"], False),
        (["a"], ["a", "b"], False),
        (["took 17 s"], ["took ... s"], True),
        (["took 17 s."], ["took ... s"], False),
    ],
)
def test_what_is_printed_is_compared_with_what_is_shown(printed: list[str], shown: list[str], same: bool) -> None:
    assert matches(printed, shown) == same
