"""A daemon under a service manager, which the test plays: what it is told, and the sockets that it passes."""

import contextlib
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import redis

from tests.certificates import make_certificate
from tests.integration.cluster import Cluster, cluster_info, ends_well
from tests.integration.daemon import BUS_PORT_OFFSET, HOST, LIMIT, PLAIN, Daemon, free_port, launch, wait_until
from tests.integration.manager import Manager, listening, managing

AOF = ("--persistence", "aof")
JOBS = 300
SCRIPT = (sys.executable, "-m", "disqued.cli")  #: what the units start
#: A start that takes a turn of the loop for each record, and tells at each turn how far it is.
SLOW = "from disqued.net.process import loading, notify; loading.RECORDS_PER_SLICE, notify.LOOK_S = 1, 0"
SLOW_LOAD = (sys.executable, "-c", f"{SLOW}; from disqued.tap import main; main()")

Start = Callable[..., Daemon]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    with managing(tmp_path) as made:
        yield made


def ask(connection: socket.socket, *words: str) -> None:
    """Send a command."""
    text = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
    connection.sendall(f"*{len(words)}\r\n{text}".encode())


def connected(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=LIMIT)


def speaks_http(opened: socket.socket) -> bool:
    """Tell whether HTTP is answered where a socket listens."""
    with connected(opened.getsockname()) as browser:
        browser.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return browser.recv(64).startswith(b"HTTP/1.1 ")


# What the journal is given.


def test_each_line_of_the_log_has_its_priority_in_the_journal(manager: Manager, tmp_path: Path) -> None:
    (tmp_path / "disqued.conf").write_text("hz 10\n")  # without effect, which is a warning
    journal, stream = socket.socketpair()
    with journal, stream:
        daemon = manager.start("--config", str(tmp_path / "disqued.conf"), port=free_port(), journal=stream)
        manager.hear_until("READY")
        taken = manager.start(port=daemon.port, data="taken", journal=stream)
        wrong = manager.start("--loglevel", "loud", program=SCRIPT, data="wrong", journal=stream)
        assert (taken.wait_end(), wrong.wait_end()) == (1, 2)
        daemon.stop()
        stream.shutdown(socket.SHUT_WR)
        with journal.makefile() as told:
            lines = told.read().splitlines()
    assert "<6>[disqued.tap.Listener#info] Stopped" in lines
    assert [line for line in lines if line.startswith("<4>") and " hz" in line]
    errors = [line for line in lines if line.startswith("<3>")]
    assert [line for line in errors if "in use" in line]
    assert [line for line in errors if line.startswith("<3>disqued: ") and "loud" in line]
    assert all(line[:3] in ("<6>", "<4>", "<3>") for line in lines)


# What systemd hears.


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_ready_is_told_when_the_journal_is_loaded_and_not_before(tmp_path: Path, kind: str) -> None:
    with managing(tmp_path, "" if kind == "path" else f"@disqued-test-{os.getpid()}") as manager:
        daemon = manager.start(*AOF, port=free_port())
        assert "READY" in manager.hear_until("READY")[-1]
        with daemon.redis() as client:
            for number in range(JOBS):
                client.execute_command("ADDJOB", "q", number, 0)
        daemon.stop()
        manager.hear_until("STOPPING")

        again = manager.start(*AOF, port=daemon.port, program=SLOW_LOAD)
        *loading, ready = manager.hear_until("READY")
        assert ready["READY"] == "1"
        assert ready["STATUS"].startswith(f"Serves {JOBS} jobs in ")
        told = [heard["STATUS"] for heard in loading if "STATUS" in heard]
        loaded = [int(status.split()[3]) for status in told]
        assert any(0 < jobs < JOBS for jobs in loaded)
        assert loaded == sorted(loaded)
        assert all(status.startswith("Loading: ") for status in told)
        assert all(heard["EXTEND_TIMEOUT_USEC"] == "30000000" for heard in loading)
        # The ports were open before: this is the first attempt, and nobody waits for anything.
        connected((HOST, daemon.port + BUS_PORT_OFFSET)).close()
        assert again.call("INFO", "persistence")["loading"] == 0  # type: ignore[index]


def test_a_node_that_does_not_start_tells_why(manager: Manager) -> None:
    with listening() as taken:
        daemon = manager.start(port=taken.getsockname()[1])
        [heard] = manager.hear_until("STATUS")
        assert heard["STATUS"].startswith("The node does not start: ")
        assert "in use" in heard["STATUS"]
        assert daemon.wait_end() == 1


def test_stopping_is_the_first_word_of_the_end(manager: Manager) -> None:
    daemon = manager.start(*AOF, port=free_port())
    manager.hear_until("READY")
    with daemon.redis() as client:
        client.execute_command("ADDJOB", "q", "body", 0)
    daemon.process.send_signal(signal.SIGTERM)
    heard = manager.hear()
    assert (heard["STOPPING"], heard["STATUS"]) == ("1", "Stopping, asked by a signal")
    assert daemon.wait_end() == -signal.SIGTERM


def test_a_shutdown_is_told_as_well(manager: Manager) -> None:
    daemon = manager.start(port=free_port())
    manager.hear_until("READY")
    with daemon.redis() as client, contextlib.suppress(redis.exceptions.ConnectionError):
        client.execute_command("SHUTDOWN")
    assert manager.hear()["STATUS"] == "Stopping, asked by a command"
    assert daemon.wait_end() == 0


def test_the_watchdog_hears_nothing_of_a_loop_that_is_blocked(manager: Manager) -> None:
    daemon = manager.start(port=free_port(), WATCHDOG_USEC="100000")
    manager.hear_until("READY")
    heard = [manager.hear_until("WATCHDOG")[-1].at]
    assert daemon.call("DEBUG", "SLEEP", 2)
    # Those that were sent since, and before the sleep, wait in the socket.
    while max((late - early for early, late in pairwise(heard)), default=0) < 1.9:
        heard.append(manager.hear_until("WATCHDOG")[-1].at)
        assert len(heard) < 100, "pings came while the loop was blocked"


def test_reloading_is_told_and_over_when_files_are_read_anew(manager: Manager, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("first\n")
    secret.chmod(0o600)
    daemon = manager.start("--requirepass-file", str(secret), port=free_port())
    manager.hear_until("READY")
    with daemon.redis(password="first") as before:
        assert before.ping()
        secret.write_text("second\n")
        daemon.process.send_signal(signal.SIGHUP)
        reloading, ready = manager.hear(), manager.hear()
        assert reloading["RELOADING"] == "1"
        assert int(reloading["MONOTONIC_USEC"]) > 0
        assert ready.fields == {"READY": "1"}
        with daemon.redis(password="second") as after:
            assert after.ping()
        with daemon.redis(password="first") as late, pytest.raises(redis.exceptions.AuthenticationError):
            late.ping()
        assert before.ping()  # who was let in stays
    secret.chmod(0o644)
    daemon.process.send_signal(signal.SIGHUP)
    assert "RELOADING" in manager.hear()
    assert "READY" in manager.hear()
    assert "the password stays as it is: requirepass-file" in daemon.log()
    with daemon.redis(password="second") as after:
        assert after.ping()


def test_a_manager_that_does_not_read_or_is_gone_hurts_nobody(manager: Manager) -> None:
    daemon = manager.start(port=free_port(), WATCHDOG_USEC="2000")
    daemon.wait_ready()
    # The socket is full of what was said before; this waits for its turn.
    daemon.process.send_signal(signal.SIGHUP)
    assert daemon.call("ADDJOB", "q", "body", 0)
    manager.hear_until("READY")
    manager.hear_until("RELOADING")
    manager.hear_until("READY")
    manager.vanish()
    wait_until(lambda: "systemd cannot be told how this node is" in daemon.log(), "a line about it")
    daemon.process.send_signal(signal.SIGHUP)
    assert daemon.call("ADDJOB", "q", "body", 0)
    daemon.stop()
    assert daemon.log().count("systemd cannot be told") == 1


def test_a_notify_socket_that_never_was_hurts_nobody(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/notify")
    daemon = start()
    assert daemon.call("PING")
    assert "systemd cannot be told how this node is: No such file or directory" in daemon.log()


# Sockets that it passes.


def test_who_connects_before_the_start_and_between_two_of_them_is_answered(manager: Manager) -> None:
    with listening() as opened:
        address = opened.getsockname()
        with connected(address) as early:
            ask(early, "PING")
            first = manager.start(*AOF, passed={"disqued.socket": opened}, port=address[1])
            assert early.recv(64) == b"+PONG\r\n"
        manager.hear_until("READY")
        assert "a socket of systemd" in first.log()
        first.stop()
        with connected(address) as meanwhile, connected(address) as another:
            ask(meanwhile, "ADDJOB", "q", "body", "0")
            ask(another, "PING")
            second = manager.start(*AOF, passed={"disqued.socket": opened}, port=address[1])
            assert another.recv(64) == b"+PONG\r\n"
            assert meanwhile.recv(64).startswith(b"+DI")
        assert second.call("QLEN", "q") == 1


def test_every_port_may_be_one_that_was_passed(manager: Manager, tmp_path: Path) -> None:
    path = tmp_path / "clients.sock"
    with listening() as clients, listening() as bus, listening() as http, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(path))
        path.chmod(0o622)
        local.listen()
        ports = [opened.getsockname()[1] for opened in (clients, bus, http)]
        daemon = manager.start(
            "--unixsocket", str(path), "--cluster-port", str(ports[1]), "--http-port", str(ports[2]),
            passed={"a": clients, "b": bus, "c": http, "d": local}, port=ports[0],
        )  # fmt: skip
        manager.hear_until("READY")
        assert daemon.call("PING")
        with redis.Redis(unix_socket_path=str(path), **PLAIN) as client:  # type: ignore[arg-type]
            assert client.ping()
        for port in ports[1:]:
            connected((HOST, port)).close()
        assert cluster_info(daemon)["cluster_state"] == "ok"
        daemon.stop()
        # The unit's file is the unit's, as it was.
        assert path.stat().st_mode & 0o777 == 0o622
        # None of them is closed for those who come later.
        for opened in (clients, bus, http, local):
            with socket.socket(opened.family) as late:
                late.settimeout(LIMIT)
                late.connect(opened.getsockname())


@pytest.mark.parametrize(("word", "names"), [("name=web", None), ("index=1", "")], ids=["by name", "by place"])
def test_an_http_endpoint_of_twisted_takes_the_socket_that_it_means(
    manager: Manager, tmp_path: Path, word: str, names: str | None
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("ann admin a-token-of-an-admin-0123\n")
    tokens.chmod(0o600)
    with listening() as clients, listening() as http:
        manager.start(
            "--http-endpoint", f"systemd:domain=INET:{word}", "--http-token-file", str(tokens),
            passed={"clients": clients, "web": http}, names=names, port=clients.getsockname()[1],
        )  # fmt: skip
        manager.hear_until("READY")
        assert speaks_http(http)


def test_a_socket_that_no_setting_asks_for_stops_the_start(manager: Manager) -> None:
    with listening() as stray:
        daemon = manager.start(passed={"disqued.socket": stray}, port=free_port())
        said = manager.hear_until("STATUS")[-1]["STATUS"]
        port = stray.getsockname()[1]
        assert f"systemd passes sockets that no setting asks for: 127.0.0.1, port {port} (disqued.socket)" in said
        assert "allowed are those of port and bind" in said
        assert daemon.wait_end() == 1


def test_sockets_without_names_are_taken_by_their_addresses(manager: Manager) -> None:
    with listening() as clients, listening() as http:
        ports = [opened.getsockname()[1] for opened in (clients, http)]
        daemon = manager.start(
            "--http-port", str(ports[1]), passed={"a": clients, "b": http}, names="", port=ports[0]
        )  # fmt: skip
        manager.hear_until("READY")
        assert daemon.call("PING")
        assert "a socket of systemd" in daemon.log()
        assert speaks_http(http)


def test_a_socket_without_a_name_that_no_setting_asks_for_stops_the_start(manager: Manager) -> None:
    with listening() as stray:
        daemon = manager.start(passed={"a": stray}, names="", port=free_port())
        assert daemon.wait_end() == 1
        assert f"no setting asks for: 127.0.0.1, port {stray.getsockname()[1]} (unknown)" in daemon.log()


def test_names_that_are_not_as_many_as_the_sockets_stop_the_start(manager: Manager) -> None:
    with listening() as one, listening() as other:
        daemon = manager.start(passed={"a": one, "b": other}, names="a:b:c", port=one.getsockname()[1])
        assert daemon.wait_end() == 1
        assert "2 sockets are passed (LISTEN_FDS), with 3 names (LISTEN_FDNAMES is 'a:b:c'); allowed" in daemon.log()


def test_a_datagram_socket_stops_the_start(manager: Manager) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wrong:
        wrong.bind((HOST, 0))
        daemon = manager.start(passed={"odd": wrong}, port=free_port())
        assert daemon.wait_end() == 1
        assert "odd is no socket that can be listened on; allowed in a socket unit are ListenStream=" in daemon.log()


def test_sockets_meant_for_another_process_are_none_of_ours(manager: Manager) -> None:
    with listening() as others:
        daemon = manager.start(passed={"others": others}, port=free_port(), LISTEN_PID="1")
        manager.hear_until("READY")
        assert daemon.call("PING")
        assert "a socket of systemd" not in daemon.log()


# Secrets that it loads.


def test_secrets_are_read_from_the_folder_of_credentials(manager: Manager, tmp_path: Path) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir()
    make_certificate(folder / "disqued.tls-key", tmp_path / "node.pem")
    (folder / "disqued.requirepass").write_text("open sesame\n")
    (folder / "disqued.cluster-secret").write_text("a secret of the cluster\n")
    (folder / "disqued.http-tokens").write_text("ann admin a-token-of-an-admin-0123\n")
    for file in folder.iterdir():
        file.chmod(0o400)
    port, config = free_port(), tmp_path / "disqued.conf"
    config.write_text(
        "requirepass-file ${CREDENTIALS_DIRECTORY}/disqued.requirepass\n"
        "cluster-secret-file ${CREDENTIALS_DIRECTORY}/disqued.cluster-secret\n"
        "http-token-file ${CREDENTIALS_DIRECTORY}/disqued.http-tokens\n"
        f"http-endpoint ssl:{port}:interface=127.0.0.1:privateKey=${{CREDENTIALS_DIRECTORY}}/disqued.tls-key"
        f":certKey={tmp_path}/node.pem\n"
    )
    before = config.read_text()
    daemon = manager.start("--config", str(config), port=free_port(), CREDENTIALS_DIRECTORY=str(folder))
    manager.hear_until("READY")
    with daemon.redis() as stranger, pytest.raises(redis.exceptions.AuthenticationError):
        stranger.ping()
    with daemon.redis(password="open sesame") as client:
        assert client.config_get("requirepass*") == {
            "requirepass": "", "requirepass-file": "${CREDENTIALS_DIRECTORY}/disqued.requirepass",
        }  # fmt: skip
        for value in ("other", ""):
            with pytest.raises(redis.exceptions.ResponseError, match="requirepass"):
                client.config_set("requirepass", value)
        assert client.config_set("timeout", 100)
        assert client.config_rewrite()
        assert config.read_text().startswith(before)
        assert "open sesame" not in config.read_text()
    trusting = ssl.create_default_context(cafile=tmp_path / "node.pem")
    with connected((HOST, port)) as plain, trusting.wrap_socket(plain, server_hostname=HOST) as browser:
        browser.sendall(
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Authorization: Bearer a-token-of-an-admin-0123\r\n\r\n"
        )
        assert browser.recv(64).startswith(b"HTTP/1.1 200 ")


def test_a_password_from_a_file_is_one_beyond_loopback_too(manager: Manager, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("open sesame\n")
    (tmp_path / "password").chmod(0o600)
    manager.start("--bind", "0.0.0.0", "--requirepass-file", str(tmp_path / "password"), port=free_port())
    assert "READY" in manager.hear_until("READY")[-1]


@pytest.mark.parametrize(
    ("options", "said", "status"),
    [
        (
            ("--requirepass-file", "${CREDENTIALS_DIRECTORY}/x"),
            "requirepass-file ${CREDENTIALS_DIRECTORY}/x: there is no CREDENTIALS_DIRECTORY in the environment", 2,
        ),
        (("--requirepass-file", "/nowhere/x"), "requirepass-file /nowhere/x: No such file or directory", 1),
        (("--requirepass-file", "x", "--requirepass", "y"), "there is a requirepass, too; give one of the two", 2),
    ],
)  # fmt: skip
def test_a_password_that_cannot_be_read_stops_the_start(
    manager: Manager, options: tuple[str, ...], said: str, status: int
) -> None:
    daemon = manager.start(*options, port=free_port())
    assert daemon.wait_end() == status
    assert said in daemon.log()


# A stop.


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Cluster]:
    with ends_well(Cluster(tmp_path)) as cluster:
        cluster.start(2)
        yield cluster


def test_a_node_that_is_to_leave_hands_its_jobs_on_before_it_stops(pair: Cluster) -> None:
    leaving, staying = pair.nodes
    jobs = {str(leaving.call("ADDJOB", "q", number, 0, "REPLICATE", 1, "RETRY", 0)) for number in range(50)}
    assert leaving.call("CONFIG", "SET", "cluster-leave-timeout", 60) == "OK"
    leaving.process.send_signal(signal.SIGTERM)
    assert leaving.wait_end() == -signal.SIGTERM
    assert "All that this node held is on other nodes" in leaving.log()
    taken = staying.call("GETJOB", "COUNT", 100, "FROM", "q")
    assert {job for _, job, _ in taken} == jobs  # type: ignore[attr-defined]
    pair.restart(0)
    assert pair.nodes[0].call("CLUSTER", "LEAVING") == "no"


def test_a_stop_alone_moves_nothing(pair: Cluster) -> None:
    stopped, other = pair.nodes
    stopped.call("ADDJOB", "q", "body", 0, "REPLICATE", 1, "RETRY", 0)
    pair.stop(0)
    assert other.call("QLEN", "q") == 0
    pair.restart(0)


def test_a_shutdown_ends_a_leaving(pair: Cluster) -> None:
    leaving = pair.nodes[0]
    leaving.call("ADDJOB", "q", "body", 0, "REPLICATE", 1, "RETRY", 0)
    leaving.call("CONFIG", "SET", "cluster-node-timeout", 3_600_000)
    leaving.call("CONFIG", "SET", "cluster-leave-timeout", 86_400)
    pair.freeze(1)  # it is there, and takes nothing
    leaving.process.send_signal(signal.SIGTERM)
    wait_until(lambda: cluster_info(leaving)["cluster_leaving"] == "yes", "a node that leaves")
    with leaving.redis() as client, contextlib.suppress(redis.exceptions.ConnectionError):
        client.execute_command("SHUTDOWN")
    leaving.wait_end()
    pair.thaw(1)
    assert "Stopping before all was handed on: 1 jobs are left here" in leaving.log()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_leaving_and_the_stop_is_in_order(pair: Cluster, number: signal.Signals) -> None:
    leaving = pair.nodes[0]
    leaving.call("CONFIG", "SET", "cluster-node-timeout", 3_600_000)
    leaving.call("CONFIG", "SET", "cluster-leave-timeout", 86_400)
    pair.freeze(1)  # it is there, and takes nothing
    jobs = {leaving.call("ADDJOB", "q", number, 0, "REPLICATE", 1) for number in range(20)}
    leaving.process.send_signal(signal.SIGTERM)
    wait_until(lambda: cluster_info(leaving)["cluster_leaving"] == "yes", "a node that leaves")
    assert "another SIGTERM or SIGINT stops without the rest of it" in leaving.log()
    leaving.process.send_signal(number)
    leaving.process.send_signal(number)  # of no use, and of no harm
    assert leaving.wait_end() == -signal.SIGTERM
    pair.thaw(1)
    for said in ("Asked to stop once more", "Stopping before all was handed on", '"message": "Stopped"'):
        assert said in leaving.log()
    assert "Traceback" not in leaving.log()
    pair.restart(0)
    # What the other one was sent and took in the end may be there as well.
    back, other = (set(node.call("JSCAN", "COUNT", 99)[1]) for node in pair.nodes)  # type: ignore[index]
    assert back | other == jobs


def test_signals_that_come_together_are_a_stop_without_a_leaving(pair: Cluster) -> None:
    leaving = pair.nodes[0]
    leaving.call("ADDJOB", "q", "body", 0, "REPLICATE", 1)
    leaving.call("CONFIG", "SET", "cluster-node-timeout", 3_600_000)
    leaving.call("CONFIG", "SET", "cluster-leave-timeout", 86_400)
    pair.freeze(1)
    leaving.process.send_signal(signal.SIGSTOP)
    leaving.process.send_signal(signal.SIGTERM)
    leaving.process.send_signal(signal.SIGINT)
    leaving.process.send_signal(signal.SIGCONT)
    assert leaving.wait_end() in (-signal.SIGTERM, -signal.SIGINT)
    pair.thaw(1)
    assert "Asked to stop once more" in leaving.log()
    assert '"message": "Stopped"' in leaving.log()
    pair.restart(0)


def test_where_nobody_takes_jobs_a_node_stops_at_once(start: Start) -> None:
    daemon = start("--cluster-leave-timeout", "86400")
    daemon.call("ADDJOB", "q", "body", 0)
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.wait_end() == -signal.SIGTERM


def test_a_bug_in_leaving_keeps_no_node_from_its_end(tmp_path: Path) -> None:
    bug = "async def say(self): 1 / 0\nfrom disqued import tap\ntap.Drain.say = say\ntap.main()"
    daemon = launch(tmp_path / "data", AOF, program=(sys.executable, "-c", bug))
    try:
        daemon.call("ADDJOB", "q", "body", 0)
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.wait_end() == -signal.SIGTERM
        assert "Internal error while leaving" in daemon.log()
        assert '"message": "Stopped"' in daemon.log()
    finally:
        daemon.process.kill()
        daemon.process.wait(LIMIT)


@pytest.mark.parametrize("reads_late", [False, True])
def test_a_stop_answers_all_that_it_made_durable(manager: Manager, reads_late: bool) -> None:
    daemon = manager.start(*AOF, "--appendfsync", "always", port=free_port())
    manager.hear_until("READY")
    with connected((HOST, daemon.port)) as client, client.makefile("rb") as replies:
        # More than is taken at a time: some of these run before the end, and some never.
        client.sendall(b"ADDJOB q body 0\r\n" * 20_000)
        answered = [replies.readline()]
        daemon.process.send_signal(signal.SIGTERM)
        if reads_late:
            daemon.wait_end()
        answered += iter(replies.readline, b"")
    assert daemon.wait_end() == -signal.SIGTERM
    assert all(reply.startswith(b"+DI") and reply.endswith(b"\r\n") for reply in answered)
    again = manager.start(*AOF, port=daemon.port)
    manager.hear_until("READY")
    with again.redis() as other:
        assert other.info("jobs")["registered_jobs"] == len(answered)
