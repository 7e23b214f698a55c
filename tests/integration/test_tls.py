"""TLS with real daemons: the clients that people use, renewal, and a cluster whose nodes know each other by it."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import pytest_twisted
import redis

from disqued.client import NotTrusted, Tls, Unreachable
from disqued.tools import program
from tests.certificates import LIFE, Authority
from tests.integration.cluster import DURABLE, QUICK, Cluster, cluster_info, ends_well, wait_reached
from tests.integration.daemon import DAEMON, HOST, LIMIT, Daemon, environment, free_port, launch, wait_until

SCRIPTS = Path(__file__).parent / "node"
#: A client that does not go on trying.
SHORT = {"patience": 0.5, "reply_timeout": 5, "connect_timeout": 5}

Own = tuple[Path, Path]  #: key and certificate


def options(authority: Authority, own: Own, *more: str) -> list[str]:
    """Name the files to a daemon."""
    key, certificate = own
    files = ("--tls-key-file", key, "--tls-cert-file", certificate, "--tls-ca-cert-file", authority.file)
    return [*map(str, files), *more]


@attrs.define
class Secure:
    """A daemon with a port for TLS, and what is needed to get in there."""

    daemon: Daemon
    port: int
    authority: Authority
    client: Own
    stranger: Own  #: of another authority
    asked: str

    def redis(self, own: Own | None) -> redis.Redis:
        """Connect redis-py."""
        shown = {} if own is None else {"ssl_keyfile": str(own[0]), "ssl_certfile": str(own[1])}
        ca = str(self.authority.file)
        return redis.Redis(HOST, self.port, ssl=True, ssl_ca_certs=ca, retry=None, decode_responses=True, **shown)

    def redis_cli(self, own: Own | None, *words: str) -> str:
        """Run redis-cli, and return what it printed."""
        shown = () if own is None else ("--key", str(own[0]), "--cert", str(own[1]))
        argv = ["redis-cli", "--tls", "--cacert", str(self.authority.file), *shown, "-h", HOST, "-p", str(self.port)]
        done = subprocess.run([*argv, *words], capture_output=True, timeout=LIMIT, text=True, check=False)
        return done.stdout.strip()

    def node(self, own: Own | None, queue: str) -> Any:
        """Let a client for Node do its work, and return what it tells; None = it did not get in."""
        shown = () if own is None else map(str, own)
        done = subprocess.run(
            ["node", str(SCRIPTS / "tls.js"), str(self.port), queue, str(self.authority.file), *shown],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, check=False,
        )  # fmt: skip
        return json.loads(done.stdout) if done.returncode == 0 else None

    def tls(self, own: Own | None) -> Tls:
        """Say the same to the clients of the library."""
        key, certificate = own or (None, None)
        return Tls(ca=self.authority.file, key=key, certificate=certificate)

    @property
    def url(self) -> str:
        """Where the clients of the library find it."""
        return f"disqueds://{HOST}:{self.port}"


@pytest.fixture(scope="module", params=["yes", "optional", "no"])
def secure(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    """A daemon for each thing that it may ask of clients."""
    folder = tmp_path_factory.mktemp("secure")
    authority = Authority(folder)
    port = free_port()
    tls = ("--tls-port", str(port), "--tls-auth-clients", request.param, "--cluster-announce-port", str(port))
    running = launch(folder / "data", options(authority, authority.issue("node", HOST), *tls))
    stranger = Authority(folder, "another authority").issue("stranger")
    yield Secure(running, port, authority, authority.issue("client"), stranger, request.param)
    running.stop()


def shown_by(secure: Secure) -> list[Own | None]:
    """What gets in."""
    return {"yes": [secure.client], "optional": [secure.client, None], "no": [secure.client, secure.stranger, None]}[
        secure.asked
    ]


def refused_by(secure: Secure) -> list[Own | None]:
    """What does not."""
    return [own for own in (None, secure.stranger) if own not in shown_by(secure)]


def test_redis_py_gets_in_with_what_is_asked_for(secure: Secure, queue: str) -> None:
    for own in shown_by(secure):
        with secure.redis(own) as client:
            job = client.execute_command("ADDJOB", queue, "body", 0)
            assert client.execute_command("GETJOB", "FROM", queue) == [[queue, job, "body"]]
            assert client.execute_command("ACKJOB", job) == 1
    for own in refused_by(secure):
        with secure.redis(own) as client, pytest.raises(redis.ConnectionError):
            client.ping()


def test_large_bodies_and_pipelines_go_through_tls(secure: Secure, queue: str) -> None:
    body = "x" * 5_000_000
    with secure.redis(secure.client) as client:
        pipeline = client.pipeline(transaction=False)
        for number in range(200):
            pipeline.execute_command("ADDJOB", queue, f"{number}", 0)
        jobs = pipeline.execute()
        taken = client.execute_command("GETJOB", "COUNT", 200, "FROM", queue)
        assert [job[2] for job in taken] == [str(number) for number in range(200)]
        client.execute_command("ADDJOB", queue, body, 0)
        [[_, large, found]] = client.execute_command("GETJOB", "FROM", queue)
        assert found == body
        assert client.execute_command("ACKJOB", large, *jobs) == 201


def test_redis_cli_gets_in_with_what_is_asked_for(secure: Secure, queue: str) -> None:
    for own in shown_by(secure):
        job = secure.redis_cli(own, "ADDJOB", queue, "body", "0")
        assert len(job) == 48
        assert secure.redis_cli(own, "GETJOB", "FROM", queue).splitlines() == [queue, job, "body"]
        assert secure.redis_cli(own, "ACKJOB", job) == "1"
    for own in refused_by(secure):
        assert secure.redis_cli(own, "PING") == ""


def test_redis_for_node_gets_in_with_what_is_asked_for(secure: Secure, queue: str) -> None:
    assert (SCRIPTS / "node_modules").is_dir(), "the Node clients are not installed; `make test` installs them"
    for own in shown_by(secure):
        seen = secure.node(own, queue)
        assert seen["taken"] == [[queue, seen["job"], "to: ann"]]
        assert seen["acknowledged"] == 1
    for own in refused_by(secure):
        assert secure.node(own, queue) is None


@pytest_twisted.ensureDeferred
async def test_the_clients_of_the_library_get_in_with_what_is_asked_for(side: Any, secure: Secure, queue: str) -> None:
    for own in shown_by(secure):
        client = side.client(secure.url, tls=secure.tls(own))
        job_id = await client.add(queue, "x", retry=60)
        [job] = await client.get(queue)
        assert (job.id, await client.ack(job)) == (job_id, 1)
        assert client.node == f"{HOST}:{secure.port}", "HELLO names the port with TLS"
    for own in refused_by(secure):
        with pytest.raises((NotTrusted, Unreachable)):
            await side.client(secure.url, tls=secure.tls(own), **SHORT).add(queue, "x")


@pytest_twisted.ensureDeferred
async def test_a_consumer_that_waits_by_tls_is_woken_and_one_that_died_takes_nothing(
    side: Any, secure: Secure, queue: str
) -> None:
    waits = secure.redis(secure.client)
    connection = waits.connection_pool.get_connection()
    connection.send_command("GETJOB", "FROM", queue)
    secure.daemon.wait_blocked()
    # Not a word of farewell: only the kernel tells.
    os.close(os.dup(connection._sock.fileno()))
    connection._sock.shutdown(2)
    secure.daemon.call("ADDJOB", queue, "x", 0)
    client = side.client(secure.url, tls=secure.tls(secure.client))
    [job] = await client.get(queue)
    assert (job.body, job.additional_deliveries) == (b"x", 0)
    await client.ack(job)
    waits.close()


def test_a_renewed_certificate_is_taken_up_at_sighup(start: Callable[..., Daemon], tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    port = free_port()
    old = authority.issue("node", HOST, ends_in=LIFE / 2)
    daemon = start(*options(authority, old, "--tls-port", str(port), "--tls-auth-clients", "no"))

    def seconds() -> int:
        with daemon.redis() as client:
            return int(client.info("server")["tls_certificate_expires_in_seconds"])

    before = seconds()
    assert before < LIFE.total_seconds() / 2
    authority.issue("node", HOST, ends_in=60 * LIFE)
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: seconds() > 59 * LIFE.total_seconds(), "the new certificate")
    assert "SIGHUP: the certificate of tls-port was read anew" in daemon.log()
    with redis.Redis(HOST, port, ssl=True, ssl_ca_certs=str(authority.file)) as client:
        assert client.ping()


def test_a_check_of_the_node_warns_of_a_certificate_that_ends(
    start: Callable[..., Daemon], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    long, short = (authority.issue(name, HOST, ends_in=days * LIFE) for name, days in (("long", 90), ("short", 20)))
    tokens = tmp_path / "tokens"
    tokens.write_text("ann viewer 0123456789abcdef")
    tokens.chmod(0o600)
    key, certificate = short
    page = f"ssl:{free_port()}:interface={HOST}:privateKey={key}:certKey={certificate}"
    tls = ("--tls-port", str(free_port()), "--tls-auth-clients", "no")
    daemon = start(*options(authority, long, *tls), "--http-endpoint", page, "--http-token-file", str(tokens))
    assert program.run(["check", "node", "-p", str(daemon.port)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("NODE WARNING - the certificate of http-endpoint ends in 20.0 days (allowed: 30:) | ")
    assert re.search(r" certificate=(20|19\.999);30:;7:;0 ", said)
    assert "The certificate of http-endpoint expires soon, " in daemon.log()
    assert "The certificate of tls-port expires soon, " not in daemon.log()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tls-port", "1"), "command line: tls-port 1: TLS needs"),
        (("--tls-port", "1", "--tls-cert-file", "/nowhere", "--tls-key-file", "/nowhere", "--tls-auth-clients", "no"),
         "tls-cert-file /nowhere: No such file or directory"),
        (("--endpoint", "ssl:1:interface=127.0.0.1:privateKey=/nowhere"), "endpoint ssl:1:interface=127.0.0.1:"),
    ],
)  # fmt: skip
def test_wrong_files_stop_the_start_with_one_line_that_says_what(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    port = ("--port", str(free_port()), "--http-port", "0", "--dir", str(tmp_path))
    done = subprocess.run(
        [*DAEMON, *port, *words], capture_output=True, text=True, timeout=LIMIT, env=environment(), check=False
    )
    assert done.returncode == (2 if said.startswith("command line: ") else 1)
    assert f"disqued: {said}" in done.stdout + done.stderr


# The cluster.


@attrs.define
class Secured(Cluster):
    """Nodes that show each other certificates, each of an authority."""

    authorities: list[Authority] = attrs.field(kw_only=True)

    def launch(self, number: int, port: int = 0) -> Daemon:
        authority = self.authorities[number]
        own = authority.issue(f"node-{number}")
        more = options(authority, own, "--tls-cluster", "yes")
        return launch(self.directory / f"node-{number}", (*self.options, *more), port=port)


@pytest.mark.parametrize("secret", [(), ("--cluster-secret", "sesame")], ids=["certificates", "and a secret"])
def test_three_nodes_that_speak_tls_copy_jobs_and_find_each_other_again(
    tmp_path: Path, secret: tuple[str, ...]
) -> None:
    authority = Authority(tmp_path)
    own = [authority] * 3
    with ends_well(Secured(tmp_path, (*QUICK, *DURABLE, *secret), authorities=own)) as cluster:
        cluster.start(3)
        ids = [cluster.nodes[0].call("ADDJOB", "q", f"{number}", 0, "REPLICATE", 3) for number in range(20)]
        for daemon in cluster.nodes:
            assert len(daemon.call("JSCAN", 0, "COUNT", 100)[1]) == 20
        large = "x" * 3_000_000
        ids.append(cluster.nodes[1].call("ADDJOB", "q", large, 0, "REPLICATE", 3))
        cluster.kill(2)
        cluster.wait_lost(2)
        cluster.restart(2)
        cluster.wait_joined()
        taken = []
        while len(taken) < 21:
            taken += cluster.nodes[2].call("GETJOB", "TIMEOUT", 20_000, "COUNT", 21, "FROM", "q")
        assert {job[1] for job in taken} == set(ids)
        assert [job[2] for job in taken if job[1] == ids[-1]] == [large]
        cluster.nodes[2].call("ACKJOB", *ids)
        cluster.wait_empty()


def test_a_node_with_a_certificate_of_another_authority_is_kept_out_and_both_say_why(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path), Authority(tmp_path / "other", "another authority")
    with ends_well(Secured(tmp_path, QUICK, authorities=[authority, authority, other])) as cluster:
        for number in range(3):
            cluster.nodes.append(cluster.launch(number))
            cluster.started.append(cluster.nodes[-1])
        one, two, stranger = cluster.nodes
        assert one.call("CLUSTER", "MEET", HOST, two.port) == "OK"
        assert one.call("CLUSTER", "MEET", HOST, stranger.port) == "OK"
        assert stranger.call("CLUSTER", "MEET", HOST, two.port) == "OK"
        wait_reached(one, 1)
        wait_until(lambda: "no TLS: its certificate is of another authority" in one.log(), "why there is no link")
        wait_until(lambda: "no TLS: its certificate is of another authority" in stranger.log(), "the same, there")
        refused = "TLS with 127.0.0.1 comes to nothing: "
        wait_until(lambda: refused in two.log(), "who was refused")
        assert cluster_info(stranger)["cluster_known_nodes"] == "1"
        assert cluster_info(two)["cluster_known_nodes"] == "2"


def test_a_certificate_does_not_take_the_place_of_a_secret_that_is_asked_for(tmp_path: Path) -> None:
    with ends_well(Secured(tmp_path, QUICK, authorities=[Authority(tmp_path)] * 2)) as cluster:
        for number, secret in enumerate(("sesame", "open")):
            cluster.options = (*QUICK, "--cluster-secret", secret)
            cluster.nodes.append(cluster.launch(number))
            cluster.started.append(cluster.nodes[-1])
        one, two = cluster.nodes
        assert one.call("CLUSTER", "MEET", HOST, two.port) == "OK"
        wait_until(
            lambda: "refused there: the secret of the cluster is another one" in one.log(), "why there is no link"
        )
        assert cluster_info(two)["cluster_known_nodes"] == "1"


def test_a_node_without_tls_and_one_with_it_say_that_they_differ(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with ends_well(Secured(tmp_path, QUICK, authorities=[authority])) as cluster:
        plain, with_tls = launch(tmp_path / "plain", QUICK), cluster.launch(0)
        cluster.nodes += [plain, with_tls]
        cluster.started += [plain, with_tls]
        assert plain.call("CLUSTER", "MEET", HOST, with_tls.port) == "OK"
        assert with_tls.call("CLUSTER", "MEET", HOST, plain.port) == "OK"
        wait_until(lambda: "is not taken: TLS is spoken there, and not here; tls-cluster" in plain.log(), "A, called")
        wait_until(lambda: "TLS with 127.0.0.1 comes to nothing: it speaks no TLS" in with_tls.log(), "B, called")
        wait_until(lambda: "no TLS: it speaks no TLS" in with_tls.log(), "B, calling")
        wait_until(
            lambda: f"No link to 127.0.0.1 port {with_tls.port + 10_000}: TLS is spoken there" in plain.log(),
            "A, calling",
        )
