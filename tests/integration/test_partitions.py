"""Real partitions: daemons on hosts of a network that is cut, one way and both ways, and healed.

Clients are where their nodes are, so no cut comes between them.
"""

from collections.abc import Iterator

import pytest
import redis

from tests.bank import Bank
from tests.integration.cluster import HostedCluster, ends_well, registered
from tests.integration.daemon import Daemon, wait_until
from tests.network import network

SEED = 12


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
