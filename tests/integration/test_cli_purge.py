"""`disqued purge` on real daemons: the jobs of a queue end on every node."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import QUICK, Cluster, ends_well
from tests.integration.daemon import wait_until
from tests.integration.verbs import at, done, refused


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes that know each other."""
    with ends_well(Cluster(tmp_path, QUICK)) as nodes:
        nodes.start(3)
        yield nodes


def test_the_jobs_of_a_queue_are_counted_and_end_on_every_node(cluster: Cluster) -> None:
    a, b, c = cluster.nodes
    for number in range(300):
        a.call("ADDJOB", "mail", number, 5_000, "REPLICATE", 3, "RETRY", 1)
    for number in range(10):
        b.call("ADDJOB", "mail", number, 0, "REPLICATE", 1, "RETRY", 0)
    held = a.call("GETJOB", "COUNT", 5, "FROM", "mail")
    assert done("purge", "mail", "--dry-run", *at(c)) == "310 jobs of mail would end\n"
    assert done("purge", "mail", "--state", "queued", "--dry-run", *at(c)) == "305 jobs of mail would end\n"
    assert refused("purge", "mail", *at(c)) == "disqued purge: 310 jobs of mail would end; --yes ends them"
    assert done("purge", "mail", "--dry-run", *at(c)) == "310 jobs of mail would end\n", "none has ended"
    assert done("purge", "mail", "--yes", *at(c)) == "310 jobs of mail have ended\n"
    assert done("purge", "mail", *at(c)) == "0 jobs of mail would end\n"
    for node in (a, b, c):
        wait_until(lambda node=node: node.call("JSCAN", 0, "COUNT", 1_000)[1] == [], "no copy to be left")
    assert held
    assert b.call("GETJOB", "TIMEOUT", 2_500, "FROM", "mail") is None


def test_a_log_is_refused(cluster: Cluster) -> None:
    a = cluster.nodes[0]
    a.call("QADD", "log", 60, "event")
    assert "WRONGTYPE" in refused("purge", "log", *at(a))
