"""The bank test: a cluster of real daemons under load whose nodes are killed, frozen and drained; no job is lost.

It is one test, since starting daemons is what costs time here.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bank import Bank
from tests.integration.cluster import Cluster, cluster_info, ends_well
from tests.integration.daemon import wait_until

SEED = 11


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes that know each other, with journals that keep what they promise."""
    with ends_well(Cluster(tmp_path)) as nodes:
        nodes.start(3)
        yield nodes


def test_no_job_is_lost_and_none_is_left_when_nodes_are_killed_frozen_and_drained(cluster: Cluster) -> None:
    with Bank(cluster.nodes, SEED) as bank:
        bank.wait_business()
        kill(cluster, bank)
        kill_all(cluster, bank)
        freeze(cluster, bank)
        leave(cluster, bank)
        cluster.wait_joined()
        bank.close()
        cluster.wait_empty()
        assert bank.verdict() == [], bank.tally.line()


def kill(cluster: Cluster, bank: Bank) -> None:
    """The rest works on without the node that is killed, and with it when it is back."""
    cluster.kill(0)
    bank.wait_business([1, 2])
    cluster.restart(0)
    bank.wait_business([0])


def kill_all(cluster: Cluster, bank: Bank) -> None:
    """One is lost with its disk, and then the rest is killed: second copies are in journals, and nowhere else."""
    cluster.kill(1)
    bank.lost(1)
    bank.wait_business([0, 2])
    cluster.kill(0, 2)
    cluster.restart(0, 2)
    cluster.replace(1)
    bank.wait_business()


def freeze(cluster: Cluster, bank: Bank) -> None:
    """A process that stands still is given up by the others, and goes on where it was."""
    cluster.freeze(1)
    cluster.wait_lost(1)
    bank.wait_business([0, 2])
    cluster.thaw(1)
    cluster.wait_joined()
    bank.wait_business()


def leave(cluster: Cluster, bank: Bank) -> None:
    """A node that leaves says when it can be stopped, and is still leaving when it is started again."""
    leaver = cluster.nodes[2]
    assert leaver.call("CLUSTER", "LEAVING", "yes") == "OK"
    wait_until(lambda: cluster_info(leaver)["cluster_safe_to_stop"] == "yes", "a node that is safe to stop")
    cluster.stop(2)
    bank.wait_business([0, 1])
    cluster.restart(2)
    again = cluster.nodes[2]
    assert again.call("CLUSTER", "LEAVING") == "yes"
    assert again.call("CLUSTER", "LEAVING", "no") == "OK"
    bank.wait_business()
