"""Real partitions: daemons on hosts of a network that is cut, one way and both ways, and healed.

Each host is a network namespace.  Clients come by a Unix socket, which no cut touches, as clients beside a node do.
"""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import pytest
import redis

from tests.bank import Bank
from tests.integration.cluster import Cluster, ends_well, registered
from tests.integration.daemon import DAEMON, HOST, Daemon, environment, wait_until
from tests.network import Network, network

SEED = 12
PORT = 7711  #: every host has its own
SECRET = "a bus that other hosts reach needs one"


@attrs.define
class HostedDaemon(Daemon):
    """A daemon on a host of its own."""

    def redis(self, **options: object) -> redis.Redis:
        """Connect from this host, which is not on that network."""
        path = str(socket_of(self.directory))
        return redis.Redis(unix_socket_path=path, **{"protocol": 2, "decode_responses": True, **options})


def socket_of(directory: Path) -> Path:
    """Name the socket of a node."""
    return directory.with_suffix(".socket")


@attrs.define
class HostedCluster(Cluster):
    """One node on each host of a network."""

    network: Network = attrs.field(kw_only=True)

    def address(self, number: int) -> str:
        """Name the address that other nodes reach."""
        return self.network.address(number)

    def launch(self, number: int, port: int = 0) -> Daemon:
        """Start a node on its host, where no port is taken."""
        directory = self.directory / f"node-{number}"
        directory.mkdir(exist_ok=True)
        log_file = directory.with_suffix(".log")
        argv = [*self.network.inside(number), *DAEMON, *self._settings(number, directory)]
        with log_file.open("ab") as log:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(), cwd="/"
            )
        return HostedDaemon(process, PORT, directory, log_file)

    def _settings(self, number: int, directory: Path) -> Sequence[str]:
        return (
            "--port", str(PORT), "--bind", HOST, "--unixsocket", str(socket_of(directory)), "--dir", str(directory),
            "--cluster-bind", self.address(number), "--cluster-secret", SECRET, *self.options,
        )  # fmt: skip


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedCluster]:
    """Three nodes that know each other, each on a host of its own."""
    # A short name, for that of a socket is limited.
    with network(3) as hosts, ends_well(HostedCluster(tmp_path_factory.mktemp("hosts"), network=hosts)) as nodes:
        nodes.start(3)
        yield nodes


def state(daemon: Daemon, job_id: object) -> object:
    """Tell what a job is on a node; None = not known there."""
    shown = daemon.call("SHOW", job_id)
    return None if shown is None else shown[shown.index("state") + 1]


def test_a_node_that_is_cut_off_works_on_alone_and_hears_after_the_heal_what_is_done(cluster: HostedCluster) -> None:
    alone, second, third = cluster.nodes
    known = alone.call("ADDJOB", "queue", "known to all", 5_000, "REPLICATE", 3, "RETRY", 3_600)
    cluster.network.split([0], [1, 2])
    cluster.wait_lost(0)
    cluster.wait_lost(1, [alone])
    cluster.wait_lost(2, [alone])
    with pytest.raises(redis.exceptions.ResponseError, match="NOREPL"):
        alone.call("ADDJOB", "queue", "too much is asked", 100, "REPLICATE", 2)
    added = alone.call("ADDJOB", "queue", "added alone", 5_000, "REPLICATE", 1, "RETRY", 3_600)
    assert second.call("ACKJOB", known) == 1
    wait_until(lambda: state(third, known) == "acked", "the ack on both nodes of the other side")
    assert state(alone, known) == "queued"
    cluster.network.heal()
    cluster.wait_joined()
    wait_until(lambda: state(alone, known) is None, "the ack on the node that was cut off")
    assert [job[1] for job in third.call("GETJOB", "TIMEOUT", 30_000, "FROM", "queue")] == [added]
    assert third.call("ACKJOB", added) == 1
    cluster.wait_empty()


def test_no_job_is_lost_and_none_is_left_when_the_network_is_cut_one_way_and_both_ways(cluster: HostedCluster) -> None:
    with Bank(cluster.nodes, SEED) as bank:
        bank.wait_business()
        cluster.network.split([0, 1], [2])
        cluster.wait_lost(2)
        bank.wait_business()
        cluster.network.heal()
        cluster.wait_joined()
        cluster.network.deafen(0, [1])
        cluster.wait_lost(0, [cluster.nodes[1]])
        cluster.wait_lost(1, [cluster.nodes[0]])
        bank.wait_business()
        cluster.network.heal()
        cluster.wait_joined()
        bank.close()
        cluster.wait_empty()
        assert bank.verdict() == [], bank.tally.line()
        assert [registered(daemon) for daemon in cluster.nodes] == [0, 0, 0]
