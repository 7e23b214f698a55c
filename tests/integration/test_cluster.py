"""Nodes of a cluster as real processes: they find each other, share jobs, and come back."""

import signal
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest
import redis

from tests.integration.daemon import HOST, LIMIT, Daemon, wait_until
from tests.integration.test_daemon import refusal
from tests.limits import seconds

Start = Callable[..., Daemon]
QUICK = ("--cluster-node-timeout", f"{seconds(2) * 1_000:.0f}")


def facts(daemon: Daemon) -> dict[str, str]:
    """What CLUSTER INFO says."""
    said = str(daemon.call("CLUSTER", "INFO"))
    return dict(line.split(":", 1) for line in said.splitlines() if line)


def wait_joined(daemons: Sequence[Daemon]) -> None:
    """Wait until every node can give jobs to every other one."""
    others = str(len(daemons) - 1)
    for daemon in daemons:
        wait_until(lambda daemon=daemon: facts(daemon)["cluster_reachable_nodes"] == others, "all nodes reached")


def join(daemons: Sequence[Daemon]) -> None:
    """Make a cluster of nodes."""
    for daemon in daemons[1:]:
        assert daemons[0].call("CLUSTER", "MEET", HOST, daemon.port) == "OK"
    wait_joined(daemons)


def wait_forgotten(daemons: Iterable[Daemon]) -> None:
    """Wait until no node holds a job any more."""
    for daemon in daemons:
        wait_until(lambda daemon=daemon: daemon.call("INFO", "jobs")["registered_jobs"] == 0, "no job is left")


@pytest.fixture
def cluster(start: Start, tmp_path: Path) -> Callable[..., list[Daemon]]:
    """Start nodes and join them."""

    def start_some(count: int, *options: str) -> list[Daemon]:
        daemons = [start(*QUICK, *options, directory=tmp_path / f"node-{number}") for number in range(count)]
        join(daemons)
        return daemons

    return start_some


def test_three_nodes_keep_a_job_until_it_is_acknowledged_on_any_of_them(cluster: Callable[..., list[Daemon]]) -> None:
    first, second, third = daemons = cluster(3)
    ids = {first.call("ADDJOB", "q", f"body {number}", 5_000, "REPLICATE", 3) for number in range(20)}
    for daemon in daemons:
        assert daemon.call("INFO", "jobs")["registered_jobs"] == 20
    taken = {second.call("GETJOB", "TIMEOUT", 5_000, "FROM", "q")[0][1] for _ in range(20)}
    assert taken == ids
    assert third.call("ACKJOB", *ids) == 20
    wait_forgotten(daemons)
    for daemon in daemons:
        stats = daemon.call("INFO", "cluster")
        assert (stats["cluster_links_out"], stats["cluster_links_in"]) == (2, 2)
        assert stats["cluster_dropped_buffer_full"] == stats["cluster_frames_forged"] == 0


def test_large_bodies_are_copied_in_pieces(cluster: Callable[..., list[Daemon]]) -> None:
    # Two of three can agree that one has failed; of two nodes the one that is left would wait for many time-outs.
    first, second, third = cluster(3)
    body = "0123456789abcdef" * 100_000
    job_id = first.call("ADDJOB", "q", body, 10_000, "REPLICATE", 3, "RETRY", 1)
    assert second.call("SHOW", job_id)
    assert third.call("SHOW", job_id)
    first.kill()
    (job,) = second.call("GETJOB", "TIMEOUT", 30_000, "FROM", "q")
    assert job[1:] == [job_id, body]


def test_a_node_that_was_killed_finds_its_cluster_and_its_jobs_again(
    cluster: Callable[..., list[Daemon]], start: Start
) -> None:
    durable = ("--persistence", "aof", "--appendfsync", "always")
    first, second = cluster(2, *durable)
    job_id = first.call("ADDJOB", "q", "body", 5_000, "REPLICATE", 2)
    # As soon as the others see a node it is written down whom it knows.
    assert len((second.directory / "nodes.conf").read_bytes().splitlines()) == 2
    second.kill()
    wait_until(lambda: facts(first)["cluster_reachable_nodes"] == "0", "the loss was noticed")
    again = start(*QUICK, *durable, directory=second.directory, port=second.port)
    wait_joined([first, again])
    assert again.call("SHOW", job_id)
    assert again.call("ACKJOB", job_id) == 1
    wait_forgotten([first, again])


def test_a_pause_reaches_every_node_and_one_that_was_away_and_outlives_a_kill(
    cluster: Callable[..., list[Daemon]], start: Start
) -> None:
    durable = ("--persistence", "aof", "--appendfsync", "always")
    first, second, third = cluster(3, *durable)
    third.stop()
    assert first.call("PAUSE", "q", "in", "REASON", "deploy of billing") == "in"
    why = r"^PAUSED Queue paused in input, try later \(deploy of billing; by address 127\.0\.0\.1:\d+\)$"

    def is_refused(daemon: Daemon) -> None:
        wait_until(lambda: daemon.call("PAUSE", "q", "state") == "in", "the pause")
        began = time.monotonic()
        with pytest.raises(redis.ResponseError, match=why):
            daemon.call("ADDJOB", "q", "body", 0)
        assert time.monotonic() - began < seconds(2)

    is_refused(second)
    third = start(*QUICK, *durable, directory=third.directory, port=third.port)
    is_refused(third)
    for daemon in (first, second, third):
        daemon.kill()
    second = start(*QUICK, *durable, directory=second.directory, port=second.port)
    is_refused(second)
    first, third = (start(*QUICK, *durable, directory=each.directory, port=each.port) for each in (first, third))
    wait_joined([first, second, third])
    assert third.call("PAUSE", "q", "none") == "none"
    for daemon in (first, second):
        wait_until(lambda daemon=daemon: daemon.call("PAUSE", "q", "state") == "none", "the end of the pause")
    assert first.call("ADDJOB", "q", "body", 5_000, "REPLICATE", 3)


def test_a_throttle_reaches_every_node_and_one_that_was_away_and_outlives_a_kill(
    cluster: Callable[..., list[Daemon]], start: Start
) -> None:
    durable = ("--persistence", "aof", "--appendfsync", "always")
    first, second, third = cluster(3, *durable)
    third.stop()
    assert first.call("THROTTLE", "q", 3_600, "GROUP", "acme") == 3_600
    assert second.call("QPOLICY", "q", "SET", "FAIR") == "OK"

    def is_throttled(daemon: Daemon) -> None:
        wait_until(lambda: daemon.call("THROTTLE", "q", 0, "GROUP", "acme") > 3_000, "the throttle")
        assert daemon.call("GETJOB", "NOHANG", "FROM", "q") is None

    waiting = second.call("ADDJOB", "q", "acme 1", 5_000, "REPLICATE", 2, "GROUP", "acme")
    is_throttled(second)
    third = start(*QUICK, *durable, directory=third.directory, port=third.port)
    is_throttled(third)
    for daemon in (first, second, third):
        daemon.kill()
    second = start(*QUICK, *durable, directory=second.directory, port=second.port)
    is_throttled(second)
    first, third = (start(*QUICK, *durable, directory=each.directory, port=each.port) for each in (first, third))
    wait_joined([first, second, third])
    is_throttled(first)
    free = third.call("ADDJOB", "q", "zenith 1", 5_000, "REPLICATE", 3, "GROUP", "zenith")
    assert second.call("GETJOB", "TIMEOUT", 20_000, "FROM", "q") == [["q", free, "zenith 1"]]
    assert first.call("SHOW", waiting)
    assert [name for name, *_ in third.call("QPOLICY", "q")] == ["fair"]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("store", ["aof", "sqlite"])
def test_a_limit_outlives_a_kill_of_all_nodes(
    cluster: Callable[..., list[Daemon]], start: Start, count: int, store: str
) -> None:
    durable = ("--persistence", store, "--appendfsync", "always")
    daemons = cluster(count, *durable)
    assert daemons[0].call("QPOLICY", "q", "SET", "INFLIGHT", 2) == "OK"
    for daemon in daemons:
        wait_until(lambda daemon=daemon: daemon.call("QPOLICY", "q"), "the limit")
    retry = ("RETRY", 3_600, "REPLICATE", 1)
    jobs = [daemons[-1].call("ADDJOB", "q", f"{number}", 5_000, *retry) for number in range(2)]
    taken = [daemons[0].call("GETJOB", "TIMEOUT", 20_000, "FROM", "q")[0][1] for _ in jobs]
    assert sorted(taken) == sorted(jobs)
    for daemon in daemons:
        daemon.kill()
    daemons = [start(*QUICK, *durable, directory=each.directory, port=each.port) for each in daemons]
    wait_joined(daemons)
    third = daemons[-1].call("ADDJOB", "q", "2", 5_000, *retry)
    # Longer, on a slow machine, than redis-py waits for a reply unless it is told.
    with daemons[0].redis(socket_timeout=LIMIT) as client:
        assert client.execute_command("GETJOB", "TIMEOUT", round(seconds(2) * 1_000), "FROM", "q") is None
    assert daemons[-1].call("ACKJOB", jobs[0]) == 1
    assert daemons[0].call("GETJOB", "TIMEOUT", 20_000, "FROM", "q") == [["q", third, "2"]]


def test_a_node_that_stands_still_is_done_without_and_catches_up(cluster: Callable[..., list[Daemon]]) -> None:
    first, second, third = daemons = cluster(3)
    job_id = first.call("ADDJOB", "q", "body", 5_000, "REPLICATE", 3)
    third.process.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: facts(first)["cluster_reachable_nodes"] == "1", "the silence was noticed")
        wait_until(lambda: facts(second)["cluster_reachable_nodes"] == "1", "the silence was noticed by both")
        assert first.call("ADDJOB", "other", "body", 5_000, "REPLICATE", 2)
        assert second.call("ACKJOB", job_id) == 1
        assert first.call("PING") is True
    finally:
        third.process.send_signal(signal.SIGCONT)
    wait_joined(daemons)
    ((_, taken, _),) = third.call("GETJOB", "TIMEOUT", 10_000, "FROM", "other")
    assert third.call("ACKJOB", taken) == 1
    wait_forgotten(daemons)


def test_a_node_with_another_secret_is_kept_out(start: Start, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("open sesame\n")
    secret.chmod(0o600)
    first = start(*QUICK, "--cluster-secret", "open sesame", directory=tmp_path / "first")
    second = start(*QUICK, "--cluster-secret-file", str(secret), directory=tmp_path / "second")
    stranger = start(*QUICK, "--cluster-secret", "guessed", directory=tmp_path / "stranger")
    assert stranger.call("CLUSTER", "MEET", HOST, first.port) == "OK"
    join([first, second])
    wait_until(lambda: first.call("INFO", "cluster")["cluster_handshakes_refused"] > 0, "a refusal")
    assert facts(stranger)["cluster_known_nodes"] == "1"
    assert facts(first)["cluster_known_nodes"] == "2"
    assert "cluster-secret has to be the same" in stranger.log()


def test_a_bus_that_others_could_misuse_stops_the_start(start: Start, tmp_path: Path) -> None:
    # An address for documentation (RFC 5737), which no machine has: nothing could be opened by mistake.
    assert "set cluster-secret" in refusal("--cluster-bind", "192.0.2.1", "--dir", tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("open sesame\n")
    secret.chmod(0o644)
    assert "every user of this machine may read it" in refusal("--cluster-secret-file", secret, "--dir", tmp_path)
    taken = start()
    other = tmp_path / "other"
    other.mkdir()
    bus_port = taken.port + 10_000
    said = refusal("--port", "0", "--unixsocket", tmp_path / "s", "--cluster-port", bus_port, "--dir", other)
    assert str(bus_port) in said
