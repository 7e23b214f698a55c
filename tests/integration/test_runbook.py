"""The runbook, symptom by symptom: a node is given the trouble, and what the page shows is typed, to the end of it."""

import contextlib
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
import redis
import yaml

from tests.certificates import Authority
from tests.integration.cluster import wait_reached
from tests.integration.daemon import HOST, LIMIT, ROOT, Daemon, free_port, wait_until
from tests.integration.howto import Step, Terminal, steps
from tests.pages import following, shared_out
from tests.redis_server import RedisServer
from tests.small_disk import small_disk

PAGE = "docs/operations/runbook.md"
STEPS = steps(PAGE)
JOB: Final = "DI8349a51e0e957ee1f6aeb937c5978622612689b505a0SQ"
LOST: Final = "5d2c8f0a7be14963d1f08a5c2e7b9464f3a1c0d8"  #: a node that does not come back
TROUBLE: dict[str, Callable[[Terminal, ExitStack], None]] = {}
#: Nothing is typed there: what a test cannot bring about.
UNTYPED = {"The clock jumped"}

Start = Callable[..., Daemon]
Trouble = Callable[[Terminal, ExitStack], None]


def trouble(heading: str) -> Callable[[Trouble], Trouble]:
    """Register what makes the symptom of a heading."""

    def register(make: Trouble) -> Trouble:
        TROUBLE[heading] = make
        return make

    return register


@trouble("A node does not start")
def _damaged(terminal: Terminal, over: ExitStack) -> None:
    daemon = terminal.begin("--port 7711 --dir data --persistence aof --appendfsync always")
    for name in ("ann", "bob", "eve"):
        daemon.call("ADDJOB", "mail", f"to: {name}", 0)
    daemon.stop()
    path = daemon.directory / "disque.aof.1.incr"
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 1  # in the first of the three
    path.write_bytes(damaged)
    # No other port is opened beside those of the test.
    terminal.words["--dir data --persistence"] = "--http-port 0 --dir data --persistence"


@trouble("NOREPL: too few nodes")
def _alone(terminal: Terminal, over: ExitStack) -> None:
    terminal.begin("--port 7711")


@trouble("OOM, or NOREPL: memory")
def _full(terminal: Terminal, over: ExitStack) -> None:
    daemon = terminal.begin("--port 7711 --maxmemory 1mb")
    for _ in range(8):
        daemon.call("ADDJOB", "big", "x" * 100_000, 0)


@trouble("MISCONF: the journal cannot be written, or the disk is full")
def _disk(terminal: Terminal, over: ExitStack) -> None:
    disk = over.enter_context(small_disk(terminal.folder / "disk", 4 << 20))
    daemon = terminal.begin("--port 7711 --dir disk/data --persistence aof --appendfsync always")
    terminal.words["/var/lib/core.4711"] = str(disk.path / "filler")
    disk.fill()
    wait_until(lambda: _is_refused(daemon), "the disk is full")


def _is_refused(daemon: Daemon) -> bool:
    with contextlib.suppress(redis.ResponseError):
        daemon.call("ADDJOB", "q", "x" * 4_000, 0)
        return False
    return True


@trouble("LOADING for long")
def _loading(terminal: Terminal, over: ExitStack) -> None:
    (terminal.folder / "redis").mkdir()
    server, port = RedisServer(terminal.folder / "redis"), free_port()
    over.callback(server.kill)
    terminal.words["7711"] = str(port)
    options = ("--persistence", "redis", "--redis-url", server.url)
    beginning = threading.Thread(target=lambda: terminal.start(*options, port=port))
    beginning.start()
    terminal.beginning.append(beginning)
    (terminal.folder / "redis.wanted").unlink(missing_ok=True)
    terminal.stand_in("systemctl", f'[ "$*" = "start redis-server" ] && touch {terminal.folder}/redis.wanted')

    def serve() -> None:
        wait_until((terminal.folder / "redis.wanted").exists, "the operator starts the server")
        server.start()

    serving = threading.Thread(target=serve)
    serving.start()
    over.callback(serving.join, LIMIT)
    wait_until(lambda: is_open(port), "the node listens")


def is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
        return True
    return False


@trouble("PAUSED, or LEAVING")
def _paused(terminal: Terminal, over: ExitStack) -> None:
    terminal.begin("--port 7711").call("PAUSE", "mail", "in")


@trouble("NOAUTH, WRONGPASS or NOPERM")
def _password(terminal: Terminal, over: ExitStack) -> None:
    daemon = terminal.begin("--port 7711")
    daemon.call("ACL", "SETUSER", "mailer", "on", ">mailers-password", "~mail", "+qlen")
    daemon.call("CONFIG", "SET", "requirepass", "a-password-for-clients")


@trouble("TLS: nobody is let in")
def _ended(terminal: Terminal, over: ExitStack) -> None:
    authority, port = Authority(terminal.folder, "ca"), free_port()
    authority.issue("node", HOST, ends_in=-timedelta(hours=1))
    authority.issue("renewed", HOST)
    files = {"cert": "node.pem", "key": "node.key", "ca-cert": "ca.pem"}
    options = " ".join(f"--tls-{what}-file {terminal.folder / name}" for what, name in files.items())
    daemon = terminal.begin(f"--port 7711 --tls-port {port} {options} --tls-auth-clients no")
    terminal.words["7713"] = str(port)
    terminal.stand_in("systemctl", f'[ "$*" = "reload disqued" ] && kill -HUP {daemon.process.pid}')


@trouble("A queue grows")
def _grown(terminal: Terminal, over: ExitStack) -> None:
    daemon = terminal.begin("--port 7711")
    for name in ("ann", "bob", "eve"):
        daemon.call("ADDJOB", "mail", f"to: {name}", 0)


@trouble("Jobs are delivered again")
def _again(terminal: Terminal, over: ExitStack) -> None:
    daemon = terminal.begin("--port 7711")
    daemon.call("ADDJOB", "mail", "to: ann", 0, "RETRY", 1)
    for _ in range(2):
        [[_, job_id, _]] = daemon.call("GETJOB", "FROM", "mail")  # type: ignore[misc]
    # The second one came of the retry time.
    daemon.call("NACK", job_id)


@trouble("Jobs are dead")
def _dead(terminal: Terminal, over: ExitStack) -> None:
    daemon = terminal.begin("--port 7711")
    terminal.words[JOB] = job_id = str(daemon.call("ADDJOB", "mail", "to: ann", 0, "MAXTRIES", 1))
    daemon.call("GETJOB", "FROM", "mail")
    daemon.call("NACK", job_id, "REASON", "smtp is down")


@trouble("A job is stuck")
def _stuck(terminal: Terminal, over: ExitStack) -> None:
    daemon = terminal.begin("--port 7711")
    terminal.words[JOB] = str(daemon.call("ADDJOB", "mail", "to: ann", 0))
    daemon.call("GETJOB", "FROM", "mail")


@trouble("Consumers get nothing")
def _nothing(terminal: Terminal, over: ExitStack) -> None:
    daemon = terminal.begin("--port 7711")
    daemon.call("ADDJOB", "mail", "to: ann", 0)
    daemon.call("PAUSE", "mail", "out")


@trouble("Jobs of a limited queue are not handed out")
def _limited(terminal: Terminal, over: ExitStack) -> None:
    first, second, lost = joined(terminal)
    first.call("QPOLICY", "mail", "SET", "INFLIGHT", 3)
    wait_until(lambda: bool(second.call("QPOLICY", "mail")), "the limit is known on the node that comes back")
    terminal.words[LOST] = str(lost.call("CLUSTER", "MYID"))
    lost.kill()
    second.kill()
    terminal.words[JOB] = str(first.call("ADDJOB", "mail", "to: ann", 0, "REPLICATE", 1))


@trouble("A schedule does not fire")
def _late(terminal: Terminal, over: ExitStack) -> None:
    daemon = terminal.begin("--port 7711")
    daemon.call("PAUSE", "mail", "in")
    daemon.call("SCHEDULE", "SET", "beat", "EVERY", 5, "QUEUE", "mail", "BODY", "x")
    wait_until(lambda: daemon.call("INFO", "schedules")["refused_schedules"] == 1, "a firing is refused")  # type: ignore[index]


def joined(terminal: Terminal) -> list[Daemon]:
    """Start the three nodes of the page, which know each other."""
    options = "--persistence aof --cluster-node-timeout 2000"
    nodes = [
        terminal.begin(f"--port {port} --dir {folder} {options}")
        for port, folder in (("7711", "a"), ("7712", "b"), ("7713", "c"))
    ]
    for other in nodes[1:]:
        nodes[0].call("CLUSTER", "MEET", HOST, other.port)
    for node in nodes:
        wait_reached(node, 2)
    return nodes


@trouble("A node is `fail?` or `fail`")
def _away(terminal: Terminal, over: ExitStack) -> None:
    joined(terminal)[2].kill()


@trouble("Two halves after a partition")
def _halves(terminal: Terminal, over: ExitStack) -> None:
    """The third node cannot be heard: for the others that is what a cut network is."""
    nodes = joined(terminal)
    nodes[2].process.send_signal(signal.SIGSTOP)


@trouble("Everything is slow")
def _slow(terminal: Terminal, over: ExitStack) -> None:
    daemon = terminal.begin("--port 7711 --http-port 7780 --persistence aof")
    # redis-cli asks for COMMAND DOCS, which may take some milliseconds.
    daemon.call("CONFIG", "SET", "slowlog-log-slower-than", 400_000)
    daemon.call("DEBUG", "SLEEP", "0.5")


@trouble("The process grows")
def _grows(terminal: Terminal, over: ExitStack) -> None:
    terminal.begin("--port 7711").call("ADDJOB", "mail", "to: ann", 0)


@trouble("No more connections")
def _connections(terminal: Terminal, over: ExitStack) -> None:
    daemon = terminal.begin("--port 7711 --http-port 7780 --maxclients 2")
    for _ in range(2):
        client = over.enter_context(socket.create_connection((HOST, daemon.port), LIMIT))
        wait_until(lambda client=client: _pong(client), "the connection is one of the two")


def _pong(client: socket.socket) -> bool:
    client.sendall(b"PING\r\n")
    return client.recv(100) == b"+PONG\r\n"


@trouble("The admin page cannot be reached")
def _page(terminal: Terminal, over: ExitStack) -> None:
    terminal.begin("--port 7711 --http-port 7780")


@trouble("The event log stopped")
def _events(terminal: Terminal, over: ExitStack) -> None:
    daemon = terminal.begin("--port 7711 --events all")
    folder = daemon.directory / "events"
    daemon.call("ADDJOB", "mail", "first", 0)
    wait_until(lambda: daemon.call("INFO", "events")["events_written"] > 0, "events are written")  # type: ignore[index]
    folder.rename(daemon.directory / "moved")
    folder.touch()
    wait_until(lambda: _loses(daemon), "events are lost")


def _loses(daemon: Daemon) -> bool:
    daemon.call("ADDJOB", "mail", "lost", 0)
    return "Not a directory" in str(daemon.call("INFO", "events"))


@pytest.fixture
def over() -> Iterator[ExitStack]:
    """What is to be put away when the daemons have ended."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def terminal(over: ExitStack, start: Start, tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(start, tmp_path)
    yield made
    # What has begun is known to those who end it.
    for beginning in made.beginning:
        beginning.join(LIMIT)


def sections() -> Iterator[tuple[str, str]]:
    """The parts of the page: heading and text."""
    for part in re.split(r"^## ", (ROOT / PAGE).read_text(), flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        yield heading, text


@pytest.mark.parametrize("heading", TROUBLE)
def test_a_symptom_is_seen_and_mended_as_the_runbook_says(terminal: Terminal, over: ExitStack, heading: str) -> None:
    typed: list[Step] = [step for step in STEPS if step.heading == heading.strip("# ")]
    assert typed
    TROUBLE[heading](terminal, over)
    with following(PAGE, [step.typed for step in typed]) as terminal.lines:
        for step in typed:
            if heading.startswith("Two halves") and step.shown == ("cluster_reachable_nodes:2",):
                terminal.nodes["7713"].process.send_signal(signal.SIGCONT)
            terminal.check(step)


def test_every_alert_leads_somewhere() -> None:
    rules = yaml.safe_load((ROOT / "docs/operations/alerts.yml").read_text())["groups"][0]["rules"]
    rows = re.findall(r"^\| (`Disqued.*?) \|", (ROOT / PAGE).read_text(), re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(rule["alert"] for rule in rules)


def test_every_symptom_is_tried_and_every_part_is_complete() -> None:
    found = dict(sections())
    assert set(found) == set(TROUBLE) | UNTYPED
    assert {step.heading for step in STEPS} == set(TROUBLE)
    symptom = test_a_symptom_is_seen_and_mended_as_the_runbook_says.__name__
    shared_out(PAGE, f"tests/integration/test_runbook.py::{symptom}", [step.typed for step in STEPS])
    parts = ("**why", "**do", "**over")
    assert [(heading, part) for heading, text in found.items() for part in parts if part not in text.lower()] == []
