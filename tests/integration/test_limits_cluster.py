"""A limit of a queue on a cluster of real daemons: its steward is killed, and all nodes are restarted in order.

Consumers write down what they have, on all nodes; no node is asked.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from disqued.core.model.calendar import ranked
from tests.holdings import Limit
from tests.integration.cluster import NODE_TIMEOUT_MS, Cluster, ends_well
from tests.limitbank import LimitBank, set_limits

SEED = 13
QUEUE = b"three"
LIMITS = {QUEUE: Limit(in_flight=3)}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes that know each other, with journals that keep what they promise."""
    with ends_well(Cluster(tmp_path)) as nodes:
        nodes.start(3)
        yield nodes


def test_a_limit_holds_when_the_steward_is_killed_and_over_a_rolling_restart(cluster: Cluster) -> None:
    set_limits(cluster.nodes, LIMITS)
    with LimitBank(cluster.nodes, SEED, LIMITS) as bank:
        bank.wait_business()
        steward = cluster.ids.index(ranked(QUEUE, tuple(node_id.encode() for node_id in cluster.ids))[0].decode())
        with bank.fault("kill"), bank.crash(1):
            cluster.kill(steward)
            bank.wait_business()
        cluster.restart(steward)
        cluster.wait_joined()
        bank.wait_business()
        for number in range(len(cluster.nodes)):
            with bank.fault("restart"):
                cluster.stop(number)
                cluster.restart(number)
                cluster.wait_joined()
            bank.wait_business()
        bank.close()
        cluster.wait_empty()
        in_time_outs = 1_000 / NODE_TIMEOUT_MS
        for what, spans in bank.pauses(QUEUE).items():
            sys.stdout.write(f"{what}: pauses of {[round(span * in_time_outs, 2) for span in spans]} node time-outs\n")
        assert bank.verdict() == [], bank.line()
        assert bank.books[QUEUE].peak(forgets=True).in_flight == 3
