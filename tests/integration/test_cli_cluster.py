"""`disqued cluster` on real daemons: nodes are joined, looked at and drained."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import QUICK, Cluster, cluster_info, ends_well, registered
from tests.integration.daemon import Daemon, wait_until
from tests.integration.verbs import address, at, done, refused, run, told

Start = Callable[..., Daemon]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes that know each other."""
    with ends_well(Cluster(tmp_path, QUICK)) as nodes:
        nodes.start(3)
        yield nodes


@pytest.fixture
def apart(start: Start, tmp_path: Path) -> list[Daemon]:
    """Three nodes that stand alone."""
    return [start(*QUICK, directory=tmp_path / f"apart-{number}") for number in range(3)]


def test_nodes_that_stand_alone_become_one_cluster(apart: list[Daemon]) -> None:
    assert done("cluster", "create", *map(address, apart)) == "3 nodes are one cluster\n"
    assert [cluster_info(node)["cluster_reachable_nodes"] for node in apart] == ["2", "2", "2"]
    # Once more: what is there stays.
    assert done("cluster", "create", *map(address, apart)) == "3 nodes are one cluster\n"


def test_a_node_with_jobs_is_joined_only_when_that_is_asked_for(apart: list[Daemon]) -> None:
    apart[1].call("ADDJOB", "mail", "one", 0)
    said = refused("cluster", "create", *map(address, apart))
    assert re.fullmatch(
        rf"disqued cluster create: {address(apart[1])} \([0-9a-f]{{8}}\) holds 1 jobs, which would be those of the "
        r"whole cluster: disqued cluster create --yes joins it all the same",
        said,
    )
    assert cluster_info(apart[0])["cluster_known_nodes"] == "1"
    done("cluster", "create", "--yes", *map(address, apart))
    assert cluster_info(apart[0])["cluster_reachable_nodes"] == "2"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["create", "127.0.0.1:1"], 2, "a cluster is made of two nodes or more"),
        (["create", "127.0.0.1:1", "127.0.0.1:2"], 1, "no node answers at 127.0.0.1:1: connection refused"),
        (["create", "127.0.0.1:1", "nonsense:port"], 1, "no node answers at 127.0.0.1:1"),
        (["add", "-p", "1", "127.0.0.1:2"], 1, "no node answers at 127.0.0.1:1"),
        (["status", "-p", "1"], 1, "no node answers at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(words: list[str], status: int, said: str) -> None:
    assert said in refused("cluster", *words, status=status)


def test_one_node_is_no_cluster_under_two_names(start: Start) -> None:
    node = start()
    assert "have one id" in refused("cluster", "create", address(node), f"localhost:{node.port}")


def test_a_node_joins_a_cluster_and_one_of_another_cluster_only_when_that_is_asked_for(
    cluster: Cluster, apart: list[Daemon]
) -> None:
    first, *strangers = apart
    assert done("cluster", "add", *at(cluster.nodes[1]), address(first)) == "4 nodes are one cluster, 1 of them new\n"
    assert [cluster_info(node)["cluster_reachable_nodes"] for node in (*cluster.nodes, first)] == ["3"] * 4
    # It is there already.
    assert done("cluster", "add", *at(cluster.nodes[1]), address(first)) == "4 nodes are one cluster, 0 of them new\n"
    done("cluster", "create", *map(address, strangers))
    said = refused("cluster", "add", *at(first), address(strangers[0]))
    assert f"belongs to a cluster with {address(strangers[1])} already" in said


def test_nodes_that_do_not_see_each_other_in_time_are_named(apart: list[Daemon]) -> None:
    said = refused("cluster", "create", "--wait", 0, *map(address, apart))
    assert "not so after 0 s (--wait)" in said
    assert f"{address(apart[1])} (" in said
    assert "does not see" in said


def test_the_status_of_a_sound_cluster_is_0(cluster: Cluster) -> None:
    shown = told("cluster", "status", "--json", *at(cluster.nodes[2]))
    assert shown["ok"] is True
    assert shown["problems"] == []
    assert shown["nodes"][0]["id"] == cluster.ids[2]
    assert {node["id"] for node in shown["nodes"]} == set(cluster.ids)
    assert [(node["state"], node["sees"], node["known"]) for node in shown["nodes"]] == [("ok", 2, 2)] * 3
    printed = done("cluster", "status", *at(cluster.nodes[0]))
    assert printed.endswith("all 3 nodes are in order\n")
    for node, node_id in zip(cluster.nodes, cluster.ids, strict=True):
        assert re.search(rf"^{address(node)} +{node_id[:8]} +ok +2/2 ", printed, re.MULTILINE)


def test_the_status_of_a_cluster_with_a_dead_node_is_1_and_names_it(cluster: Cluster) -> None:
    cluster.kill(2)
    cluster.wait_lost(2, [cluster.nodes[0], cluster.nodes[1]])
    result = run("cluster", "status", "--json", *at(cluster.nodes[0]))
    assert result.exit_code == 1
    assert f"{address(cluster.nodes[2])} ({cluster.ids[2][:8]}): no node answers" in result.stdout
    printed = run("cluster", "status", *at(cluster.nodes[0]))
    assert printed.exit_code == 1
    assert re.search(rf"^{address(cluster.nodes[2])} +{cluster.ids[2][:8]} +away", printed.stdout, re.MULTILINE)
    cluster.restart(2)
    wait_until(lambda: run("cluster", "status", *at(cluster.nodes[0])).exit_code == 0, "a cluster in order again")


def test_a_drained_node_holds_nothing_that_is_only_there(cluster: Cluster) -> None:
    leaving, other = cluster.nodes[2], cluster.nodes[0]
    for number in range(50):
        leaving.call("ADDJOB", "mail", f"body {number}", 0, "REPLICATE", 1)
    assert registered(other) == 0
    name = cluster.ids[2][:10]
    assert done("cluster", "drain", name, *at(other)) == (
        f"{address(leaving)} is drained: nothing is lost when it is stopped\n"
    )
    assert cluster_info(leaving)["cluster_safe_to_stop"] == "yes"
    shown = told("cluster", "status", "--json", *at(other))
    assert [node["state"] for node in shown["nodes"] if node["id"] == cluster.ids[2]] == ["left"]
    cluster.kill(2)
    bodies: set[str] = set()

    def all_there() -> bool:
        for node in (cluster.nodes[0], cluster.nodes[1]):
            for _, job_id, body in node.call("GETJOB", "NOHANG", "COUNT", 50, "FROM", "mail") or []:
                bodies.add(body)
                node.call("ACKJOB", job_id)
        return len(bodies) == 50

    wait_until(all_there, "all jobs on the nodes that are left")


def test_a_node_that_is_to_stay_stays(cluster: Cluster) -> None:
    node = cluster.nodes[1]
    done("cluster", "drain", address(node))
    assert done("cluster", "drain", "--cancel", address(node)) == f"{address(node)} stays\n"
    assert node.call("CLUSTER", "LEAVING") == "no"


def test_what_cannot_be_drained_is_refused(cluster: Cluster, start: Start) -> None:
    alone = start()
    assert "stands alone" in refused("cluster", "drain", address(alone), *at(alone))
    assert alone.call("CLUSTER", "LEAVING") == "no"
    said = refused("cluster", "drain", "none", *at(cluster.nodes[0]))
    assert "'none' names no node of this cluster; they are " in said
    assert "no node answers at 127.0.0.1:9" in refused("cluster", "drain", "127.0.0.1:9", *at(cluster.nodes[0]))
    assert "is no address of a node" in refused("cluster", "drain", "a:b", *at(cluster.nodes[0]))


def test_a_drain_that_takes_too_long_says_what_is_left(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    node.call("ADDJOB", "mail", "once", 0, "RETRY", 0, "REPLICATE", 1)
    node.call("PAUSE", "mail", "out")
    said = refused("cluster", "drain", address(node), "--wait", 3, *at(node))
    assert "not so after 3 s (--wait): 1 jobs are left on it; there are at-most-once jobs in a queue" in said
