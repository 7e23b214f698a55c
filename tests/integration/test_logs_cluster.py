"""Logs of three real daemons: consumers on other nodes than producers, a node that is killed, one that is frozen."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.integration.cluster import Cluster, ends_well
from tests.integration.daemon import HOST, LIMIT, Daemon, wait_until

EVENTS = 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ends_well(Cluster(tmp_path)) as nodes:
        nodes.start(3)
        yield nodes


def add(daemon: Daemon, body: str, copies: int) -> str:
    return str(daemon.call("QADD", "q", 600, body, "REPLICATE", copies))


def figures(daemon: Daemon, group: str = "g") -> dict[str, int]:
    ((_, (_, shown)),) = daemon.call("QSTATUS", "q", "GROUPS", group)  # type: ignore[misc]
    return dict(zip(shown[::2], shown[1::2], strict=True))


def take_all(daemons: list[Daemon]) -> list[str]:
    """Ids of the events that a group gets from these nodes in turn, until none of them has any."""
    got: list[str] = []
    empty = 0
    while empty < len(daemons):
        daemon = daemons[len(got) % len(daemons)]
        row = daemon.call("QGET", "q", "g", "EX", 300)
        if row is None:
            empty = sum(each.call("QGET", "q", "g", "EX", 300, "COUNT", 1) is None for each in daemons)
            assert empty == len(daemons), "a node had an event that another one did not find"
        else:
            got.append(row[0])  # type: ignore[index]
    return got


def test_consumers_on_all_nodes_get_each_event_once_and_are_done_with_it_on_any(cluster: Cluster) -> None:
    ids = [add(cluster.nodes[number % 3], str(number), 1 + number % 3) for number in range(EVENTS)]
    got = take_all(cluster.nodes)
    assert sorted(got) == sorted(ids)
    for number, event_id in enumerate(got):
        assert cluster.nodes[(number + 1) % 3].call("QACK", "q", "g", event_id) == 1
    for daemon in cluster.nodes:
        wait_until(lambda daemon=daemon: figures(daemon)["done"] == figures(daemon)["total"], "that all is done")
        assert daemon.call("QACK", "q", "g", *ids) == 0


def test_a_consumer_that_waits_gets_what_is_added_on_another_node(cluster: Cluster) -> None:
    one, two, _ = cluster.nodes
    with redis.Redis(HOST, two.port, single_connection_client=True) as waiting:
        connection = waiting.connection
        assert connection is not None
        connection.send_command("QGET", "q", "g", "BLOCK", 60)
        wait_until(lambda: figures(two)["consumers"] == 1, "that the consumer waits")
        event_id = add(one, "hello", 1)
        assert connection.read_response() == [event_id.encode(), b"hello"]


def test_events_of_a_node_that_is_killed_come_from_the_others_and_what_is_done_stays_done(cluster: Cluster) -> None:
    one, two, three = cluster.nodes
    ids = [add(one, str(number), 3) for number in range(EVENTS)]
    done = [two.call("QGET", "q", "g")[0] for _ in range(10)]  # type: ignore[index]
    assert three.call("QACK", "q", "g", *done) == 10
    kept = [three.call("QGET", "q", "g", "EX", 300)[0] for _ in range(10)]  # type: ignore[index]
    cluster.kill(0)
    rest: list[str] = []

    def all_came() -> bool:
        for daemon in (two, three):
            row = daemon.call("QGET", "q", "g", "EX", 300)
            if row is not None:
                rest.append(row[0])  # type: ignore[index]
        return {*done, *kept, *rest} == set(ids)

    wait_until(all_came, "the events of the node that was killed")
    # That somebody has an event may not have been heard of by the time of the kill; that it is done has.
    assert not set(done) & set(rest)
    # What the node that is gone had handed out is acknowledged like all others.
    assert two.call("QACK", "q", "g", *{*kept, *rest}) == EVENTS - 10
    cluster.restart(0)
    cluster.wait_joined()
    again = cluster.nodes[0]
    wait_until(lambda: figures(again)["done"] == EVENTS, "that the node hears what was done meanwhile")
    assert again.call("QGET", "q", "g") is None


def test_an_acknowledgement_outlasts_a_node_that_is_frozen(cluster: Cluster) -> None:
    one, two, three = cluster.nodes
    event_id = add(one, "x", 2)
    assert three.call("QGET", "q", "g", "EX", 300) == [event_id, "x"]
    cluster.freeze(0)
    # The answer comes when the node is known to fail.
    assert three.call("QACK", "q", "g", event_id) == 1
    cluster.thaw(0)
    wait_until(lambda: figures(one)["done"] == 1, "that the node hears of it", LIMIT)
    assert two.call("QACK", "q", "g", event_id) == 0
