"""`disqued bench` on real daemons: what it sends, what it measures, and what it leaves."""

import asyncio
import contextlib
import csv
import io
import json
import os
import pty
import re
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from tests.certificates import Authority
from tests.integration.cluster import QUICK, Cluster, ends_well, registered
from tests.integration.daemon import LIMIT, Daemon, environment, wait_until
from tests.integration.verbs import at, done, refused, run, told
from tests.programs import Program

Start = Callable[..., Daemon]
PROGRAM = (sys.executable, "-c", "from disqued.tools.bench import command; command(prog_name='disqued bench')")


def calls(daemon: Daemon, command: str) -> int:
    """How often a node was sent a command."""
    with daemon.redis() as client:
        return int(client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0))


def row(report: dict[str, object], name: str) -> dict[str, float]:
    commands = report["commands"]
    assert isinstance(commands, list)
    (found,) = [each for each in commands if each["command"] == name]
    assert isinstance(found, dict)
    return found


def test_as_many_requests_are_sent_as_were_asked_for_in_the_shares_of_the_mix(start: Start) -> None:
    node = start()
    report = told("bench", *at(node), "-n", 1_001, "-c", 7, "-P", 3, "--mix", "addjob=3,qlen=1", "--json")
    assert (calls(node, "addjob"), calls(node, "qlen")) == (751, 250)
    assert (row(report, "addjob")["requests"], row(report, "qlen")["requests"]) == (751, 250)
    assert row(report, "all")["requests"] == 1_001
    times = [row(report, "all")[name] for name in ("p50_ms", "p99_ms", "p999_ms", "max_ms")]
    assert 0 < times[0] <= times[1] <= times[2] <= times[3]
    # The jobs were left, told, and are gone.
    assert report["left"] == 751
    wait_until(lambda: registered(node) == 0, "no job of the load")


def test_several_processes_share_a_load(start: Start) -> None:
    node = start()
    words = ("-n", 1_000, "-c", 5, "--processes", 3, "ADDJOB", "__queue__", "__body__", 0, "KEY", "k__n__")
    report = told("bench", *at(node), "--json", "-d", 10, *words)
    assert report["processes"] == 3
    assert row(report, "addjob")["requests"] == 1_000
    assert report["left"] == 1_000  # all numbers are different, or keys would have held jobs back


def test_jobs_that_are_handed_out_are_acknowledged(start: Start) -> None:
    node = start()
    report = told("bench", *at(node), "-n", 3_000, "-c", 4, "--queues", 3, "--json")
    assert row(report, "getjob")["requests"] >= 1_000
    acked = row(report, "ackjob")
    assert acked["requests"] > 900
    assert acked["requests"] + report["left"] == row(report, "addjob")["requests"]
    assert acked["errors"] == 0


def test_jobs_are_kept_when_that_is_asked_for(start: Start) -> None:
    node = start()
    words = ("-n", 100, "-c", 2, "--mix", "addjob", "-d", 5, "--queue", "mine")
    report = told("bench", *at(node), "--keep", "--json", *words)
    assert (report["left"], report["removed"]) == (100, False)
    assert node.call("QLEN", "mine") == 100
    assert node.call("QPEEK", "mine", 1)[0][2] == "xxxxx"
    said = refused("bench", *at(node), *words)
    assert "100 jobs are in mine already" in said
    assert node.call("QLEN", "mine") == 100
    assert "200 jobs were left, and are kept" in done("bench", *at(node), "--keep", *words)
    assert node.call("QLEN", "mine") == 200


def test_a_rate_is_kept(start: Start) -> None:
    node = start()
    report = told("bench", *at(node), "--rate", 200, "-n", 300, "-c", 5, "--json", "PING")
    assert row(report, "ping")["requests"] == 300
    assert 1.4 <= report["seconds"] <= 5  # the last is due after 299 / 200 s, and not before


def test_a_load_ends_when_its_time_is_over(start: Start) -> None:
    node = start()
    report = told("bench", *at(node), "--seconds", 0.5, "--rate", 100, "-c", 2, "--json", "PING")
    assert row(report, "ping")["requests"] == 50
    report = told("bench", *at(node), "--seconds", 0.5, "-c", 2, "--json", "PING")
    assert row(report, "ping")["requests"] > 10
    assert report["seconds"] < 5


def test_a_stall_is_seen_by_all_that_were_due_in_it(start: Start) -> None:
    node = start()

    def stall() -> None:
        """Freeze the node when the load has begun, for a second."""
        wait_until(lambda: calls(node, "ping") > 20, "a load")
        node.process.send_signal(signal.SIGSTOP)
        threading.Event().wait(1.0)
        node.process.send_signal(signal.SIGCONT)

    frozen = threading.Thread(target=stall)
    frozen.start()
    report = told("bench", *at(node), "--rate", 100, "--seconds", 4, "-c", 1, "--timeout", 30, "--json", "PING")
    frozen.join(LIMIT)
    # One request alone met the stall on its way; a hundred were due in it, and waited for half a second each.
    assert row(report, "ping")["requests"] == 400
    assert row(report, "ping")["max_ms"] >= 900
    assert row(report, "ping")["mean_ms"] >= 60


def test_a_bar_is_drawn_on_a_terminal_and_nowhere_else(start: Start) -> None:
    node = start()
    argv = [*PROGRAM, *at(node), "--rate", "100", "--seconds", "1", "-c", "2", "PING"]
    ours, theirs = pty.openpty()
    variables = {**environment(), "TERM": "xterm"}
    with Program(argv, stdout=subprocess.PIPE, stderr=theirs, text=True, env=variables) as bench:
        os.close(theirs)
        drawn = b""
        with contextlib.suppress(OSError):  # as a terminal says that nobody draws any more
            while data := os.read(ours, 65_536):
                drawn += data
        said, _ = bench.communicate(timeout=LIMIT)
    os.close(ours)
    assert b"requests" in drawn
    assert "ping" in said
    assert "\x1b" not in said


def test_errors_are_counted_and_told_and_are_no_success(start: Start) -> None:
    node = start()
    words = ("-n", 20, "-c", 2, "--mix", "bad=1,ping=1", "--command", "bad=QPEEK __queue__ many")
    result = run("bench", *at(node), *words, "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert row(report, "bad")["errors"] == 10
    error = "ERR value is not an integer or out of range - count takes whole numbers of 64 bits"
    assert report["error_texts"] == {"bad": {error: 10}}
    assert f"bad: 10 times {error}" in run("bench", *at(node), *words).stdout


def test_people_and_spreadsheets_read_the_same(start: Start) -> None:
    node = start()
    printed = done("bench", *at(node), "-n", 60, "-c", 2)
    assert re.search(
        r"^command +requests +errors +requests/s +p50 ms +p99 ms +p99\.9 ms +max ms$", printed, re.MULTILINE
    )
    assert re.search(r"^all +60 +0 ", printed, re.MULTILINE)
    lines = list(csv.DictReader(io.StringIO(done("bench", *at(node), "-n", 60, "-c", 2, "--csv"))))
    assert [line["command"] for line in lines] == ["addjob", "getjob", "ackjob", "all"]
    assert lines[-1]["requests"] == "60"


def test_a_node_that_says_nothing_ends_the_load(start: Start) -> None:
    node = start()

    def freeze() -> None:
        wait_until(lambda: calls(node, "ping") > 20, "a load")
        node.process.send_signal(signal.SIGSTOP)

    freezing = threading.Thread(target=freeze)
    freezing.start()
    try:
        said = refused("bench", *at(node), "--rate", 100, "--seconds", 60, "-c", 2, "--timeout", 1, "PING")
    finally:
        freezing.join(LIMIT)
        node.process.send_signal(signal.SIGCONT)
    assert said == f"disqued bench: 127.0.0.1:{node.port} said nothing for 1 s (--timeout)"


def test_a_node_that_goes_away_ends_the_load(start: Start) -> None:
    node = start()

    def kill() -> None:
        wait_until(lambda: calls(node, "ping") > 20, "a load")
        node.kill()

    killing = threading.Thread(target=kill)
    killing.start()
    said = refused("bench", *at(node), "--rate", 100, "--seconds", 60, "-c", 2, "--mix", "addjob,ping=10")
    killing.join(LIMIT)
    assert re.fullmatch(
        rf"disqued bench: the connection to 127.0.0.1:{node.port} broke: (the node has closed it|Connection reset .*)",
        said,
    )


@pytest.mark.parametrize("rate", ["100", "10000000"])
def test_an_interrupt_ends_the_load_and_shows_what_was_until_then(start: Start, rate: str) -> None:
    node = start()
    argv = [*PROGRAM, *at(node), "--rate", rate, "--seconds", "600", "-c", "2", "--mix", "addjob", "--json"]
    with Program(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as bench:
        wait_until(lambda: calls(node, "addjob") > 20, "a load")
        bench.send_signal(signal.SIGINT)
        said, complained = bench.communicate(timeout=LIMIT)
    assert (bench.returncode, complained) == (130, "")
    report = json.loads(said)
    assert report["interrupted"] is True
    assert report["left"] == row(report, "addjob")["requests"] == calls(node, "addjob")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-n", 1, "--seconds", 1), "one of them is allowed"),
        (("--json", "--csv"), "one of them is allowed"),
        (("--mix", "flyjob"), "the mix names 'flyjob', which is no command"),
        (("--mix", "ping", "PING"), "--mix and --command do not go with it"),
        (("--command", "nothing"), "--command 'nothing' is written NAME="),
        (("ADDJOB", "q-__n__", "b", "0"), "--keep allows that"),
        (("--rate", "0"), "0.0 is not in the range x>0"),
    ],
)
def test_a_load_that_cannot_be_is_a_misuse(words: tuple[object, ...], said: str) -> None:
    assert said in refused("bench", *words, status=2)


def test_a_node_that_is_away_is_said_in_one_line() -> None:
    assert refused("bench", "-p", 1) == "disqued bench: no node answers at 127.0.0.1:1: connection refused"


def test_a_password_and_a_socket_are_enough_to_get_in(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "disqued.socket"
    start("--unixsocket", str(path)).call("CONFIG", "SET", "requirepass", "secret")
    report = told("bench", "-s", path, "-a", "secret", "-n", 50, "-c", 2, "--json", "PING")
    assert row(report, "ping")["requests"] == 50
    assert "NOAUTH" in refused("bench", "-s", path, "-n", 50, "PING")


class TlsFront(threading.Thread):
    """A port with TLS in front of a daemon, for the time of a `with`."""

    def __init__(self, port: int, key: Path, certificate: Path) -> None:
        super().__init__(daemon=True)
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificate, key)
        self._behind = port
        self._is_ready = threading.Event()
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        self._is_ready.wait(LIMIT)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self.join(LIMIT)

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0, ssl=self._context)
        self.port = server.sockets[0].getsockname()[1]
        self._is_ready.set()
        await self._over.wait()
        server.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind = await asyncio.open_connection("127.0.0.1", self._behind)
        await asyncio.gather(self._pass_on(reader, behind[1]), self._pass_on(behind[0], writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
        writer.close()


def test_a_load_goes_by_tls(start: Start, tmp_path: Path) -> None:
    node = start()
    authority = Authority(tmp_path)
    with TlsFront(node.port, *authority.issue("node", "127.0.0.1")) as front:
        words = ("-p", front.port, "--tls", "-n", 50, "-c", 2, "--json", "PING")
        report = told("bench", "--cacert", authority.file, *words)
        assert row(report, "ping")["requests"] == 50
        assert "certificate" in refused("bench", *words)


def test_the_jobs_of_a_load_are_removed_on_every_node(tmp_path: Path) -> None:
    with ends_well(Cluster(tmp_path, QUICK)) as cluster:
        cluster.start(3)
        report = told("bench", *at(cluster.nodes[0]), "-n", 200, "-c", 4, "--mix", "addjob", "--json")
        assert report["left"] == 200
        cluster.wait_empty()
