"""The admin side of a real daemon: its ports, TLS, Unix sockets, tokens, limits, and its log of actions."""

import contextlib
import http.client
import json
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.integration.daemon import DAEMON, HOST, LIMIT, Daemon, environment, free_port, hasty, wait_until

Start = Callable[..., Daemon]
TOKEN, OTHER = "a-token-of-an-admin-0123", "another-token-of-an-admin"


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=LIMIT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(LIMIT)
        self.sock.connect(str(self._path))


def ask(
    connection: http.client.HTTPConnection, path: str, value: Any = None, token: str = "", method: str = ""
) -> tuple[int, Any]:
    """Send a request and close; returns status and JSON."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    body = None
    if value is not None:
        headers["Content-Type"] = "application/json"
        body = json.dumps(value)
    try:
        connection.request(method or ("GET" if value is None else "POST"), path, body, headers)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    finally:
        connection.close()


def plain(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(HOST, port, timeout=LIMIT)


def refused_start(directory: Path, *options: str, status: int = 1) -> str:
    """Start a daemon that must not start; returns what it says."""
    directory.mkdir(exist_ok=True)
    port = free_port()
    argv = [*DAEMON, "--port", str(port), "--dir", str(directory), *options]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, check=False, env=environment(), cwd="/")
    assert ended.returncode == status, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"ada admin bodies {TOKEN}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def open_daemon(start: Start, port: int) -> Iterator[Daemon]:
    return start("--http-port", str(port))


# Ports.


def test_it_is_open_on_loopback_and_ends_with_the_daemon(start: Start, port: int) -> None:
    daemon = start("--http-port", str(port))
    assert ask(plain(port), "/api/commands/ADDJOB", {"queue": "q", "body": "b", "timeout": 0})[0] == 200
    assert daemon.call("QLEN", "q") == 1
    idle = plain(port)
    idle.request("GET", "/healthz")
    assert idle.getresponse().read()
    daemon.stop()
    assert idle.sock.recv(1) == b""
    idle.close()


@pytest.mark.parametrize(
    "options", [("--http-bind", "0.0.0.0"), ("--http-bind", "127.0.0.1 192.0.2.1"), ("--http-endpoint", "tcp:1")]
)
def test_beyond_loopback_it_does_not_start_without_tokens(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert "a token is needed where not only this machine reaches the admin side" in refused_start(
        tmp_path / "data", *options, status=2
    )


def test_a_port_in_use_stops_the_start_if_it_was_asked_for(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = str(taken.getsockname()[1])
        said = refused_start(tmp_path / "data", "--http-port", port)
    assert "disqued: http-port: Couldn't listen on 127.0.0.1:" in said


def test_the_default_port_in_use_is_only_told(tmp_path: Path) -> None:
    port, directory = free_port(), tmp_path / "data"
    directory.mkdir()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((HOST, 7780))
            taken.listen()
        except OSError:
            pass  # somebody else has it: as good
        log = tmp_path / "log"
        with log.open("wb") as file:
            argv = [*DAEMON, "--port", str(port), "--dir", str(directory)]
            process = subprocess.Popen(argv, stdout=file, stderr=file, env=environment(), cwd="/")
        daemon = Daemon(process, port, directory, log)
        try:
            daemon.wait_ready()
            assert "There is no admin page: Couldn't listen on 127.0.0.1:7780" in daemon.log()
        finally:
            daemon.stop()


# Tokens.


def test_tokens_are_asked_for_and_can_be_changed_while_it_runs(start: Start, port: int, tokens: Path) -> None:
    daemon = start("--http-port", str(port), "--http-token-file", str(tokens))
    assert ask(plain(port), "/api/info")[0] == 401
    assert ask(plain(port), "/healthz")[0] == 200
    assert ask(plain(port), "/api/info", token=TOKEN)[0] == 200
    tokens.write_text(f"ada admin {OTHER}\n")
    # Asked for with the old one, which is right until then: wrong ones are slowed down.
    wait_until(lambda: ask(plain(port), "/api/info", token=TOKEN)[0] == 401, "the old token holds no more")
    assert ask(plain(port), "/api/info", token=OTHER)[0] == 200
    tokens.write_text("broken\n")
    wait_until(
        lambda: ask(plain(port), "/api/info", token=OTHER) and "the tokens stay as they were" in daemon.log(),
        "the log names the broken file",
    )
    assert ask(plain(port), "/api/info", token=OTHER)[0] == 200


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        ("ann boss 0123456789abcdef", 0o600, "tokens, line 1: there is no role 'boss'; allowed are viewer, operator"),
        (f"ann viewer {TOKEN}", 0o644, "every user of this machine may read it (mode 644)"),
    ],
)  # fmt: skip
def test_a_bad_token_file_stops_the_start(tmp_path: Path, tokens: Path, text: str, mode: int, says: str) -> None:
    tokens.write_text(text)
    tokens.chmod(mode)
    said = refused_start(tmp_path / "data", "--http-token-file", str(tokens))
    assert "disqued: http-token-file" in said
    assert says in said
    assert "Traceback" not in said


def test_wrong_tokens_are_slowed_down(start: Start, port: int, tokens: Path) -> None:
    daemon = start("--http-port", str(port), "--http-token-file", str(tokens))
    statuses = [ask(plain(port), "/api/info", token="x" * 20)[0] for _ in range(12)]
    assert statuses[0] == 401
    assert statuses[-1] == 429
    assert "A wrong token on the admin side, from 127.0.0.1" in daemon.log()


# TLS and Unix sockets.


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A key and its own certificate for localhost."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    key_file, pem_file = folder / "node.key", folder / "node.pem"
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    pem_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return key_file, pem_file


def test_tls_is_an_endpoint(start: Start, tmp_path: Path, port: int, tokens: Path) -> None:
    key, pem = make_certificate(tmp_path)
    endpoint = f"ssl:{port}:interface=127.0.0.1:privateKey={key}:certKey={pem}"
    start("--http-endpoint", endpoint, "--http-token-file", str(tokens))
    trust = ssl.create_default_context(cafile=str(pem))
    assert ask(http.client.HTTPSConnection("localhost", port, timeout=LIMIT, context=trust), "/api/info")[0] == 401
    connection = http.client.HTTPSConnection("localhost", port, timeout=LIMIT, context=trust)
    connection.request("POST", "/login", json.dumps({"token": TOKEN}), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 204
    assert "; Secure" in answer.headers["Set-Cookie"]
    answer.close()
    connection.close()


def test_a_missing_key_stops_the_start(tmp_path: Path, tokens: Path) -> None:
    endpoint = f"ssl:0:privateKey={tmp_path}/none.key"
    said = refused_start(tmp_path / "data", "--http-endpoint", endpoint, "--http-token-file", str(tokens))
    assert f"disqued: http-endpoint {endpoint}: " in said
    assert "No such file or directory" in said
    assert "Traceback" not in said


def test_a_unix_socket_is_an_endpoint(start: Start, tmp_path: Path, tokens: Path) -> None:
    path = tmp_path / "http.sock"
    daemon = start("--http-endpoint", f"unix:{path}:mode=600", "--http-token-file", str(tokens))
    assert ask(UnixConnection(path), "/api/info")[0] == 401
    assert ask(UnixConnection(path), "/api/commands/PING", {}, TOKEN)[0] == 200
    assert ask(UnixConnection(path), "/login", {"token": TOKEN})[0] == 204
    daemon.stop()
    assert not path.exists()


# Limits.


def test_a_client_that_sends_its_headers_slowly_is_dropped(start: Start, port: int) -> None:
    # How long it is without that is shown on a clock that is told to move.
    start("--http-port", str(port), program=hasty("disqued.web.http.input_timer", HEADER_S=1.0))
    with socket.create_connection((HOST, port), LIMIT) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n")
        slow.settimeout(0.1)
        heard = b""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            try:
                slow.sendall(b"X: y\r\n")
                data = slow.recv(65_536)
            except TimeoutError:
                continue
            except OSError:
                break
            heard += data
            if not data:
                break
        assert heard.startswith(b"HTTP/1.1 408 ")
    assert ask(plain(port), "/api/info")[0] == 200


def test_a_body_that_is_too_large_is_refused_and_the_client_reads_why(open_daemon: Daemon, port: int) -> None:
    size = 200 << 20
    with socket.create_connection((HOST, port), LIMIT) as large:
        head = (
            f"POST /api/add HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n"
        )
        large.sendall(head.encode() + b"\r\n" + b"x" * (1 << 20))
        assert large.recv(65_536).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_is_killed_waits_for_no_job(open_daemon: Daemon, port: int) -> None:
    waiting = plain(port)
    body = json.dumps({"queues": ["q"]})
    waiting.request("POST", "/api/commands/GETJOB", body, {"Content-Type": "application/json"})
    open_daemon.wait_blocked()
    waiting.close()
    open_daemon.wait_blocked(0)
    open_daemon.call("ADDJOB", "q", "b", 0)
    wait_until(lambda: open_daemon.call("QLEN", "q") == 1, "the job is still there")


# The log of actions.


def test_the_log_of_actions_survives_rotation_and_holds_no_secret(start: Start, port: int, tokens: Path) -> None:
    daemon = start("--http-port", str(port), "--http-token-file", str(tokens))
    path = daemon.directory / "disqued-audit.jsonl"
    job = {"queue": "q", "body": "a body to keep secret", "timeout": 0}
    assert ask(plain(port), "/api/commands/ADDJOB", job, TOKEN)[0] == 200
    assert ask(plain(port), "/api/commands/ADDJOB", job)[0] == 401
    assert path.stat().st_mode & 0o777 == 0o600
    old = path.rename(path.with_suffix(".1"))
    assert ask(plain(port), "/api/config", {"name": "requirepass", "value": "hunter2-hunter2"}, TOKEN)[0] == 200
    before = [json.loads(line) for line in old.read_text().splitlines()]
    assert [(entry["who"], entry["status"]) for entry in before] == [("ada", 200), ("nobody", 401)]
    (after,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert after["path"] == "/api/config"
    for text in (old.read_text(), path.read_text(), daemon.log()):
        assert "a body to keep secret" not in text
        assert "hunter2" not in text
        assert TOKEN not in text


def test_shutdown_through_http_ends_the_daemon(start: Start, port: int) -> None:
    daemon = start("--http-port", str(port))
    with contextlib.suppress(http.client.HTTPException, ConnectionError):  # it may be gone before it has answered
        ask(plain(port), "/api/commands/SHUTDOWN", {})
    assert daemon.wait_end() in (0, -signal.SIGTERM)
