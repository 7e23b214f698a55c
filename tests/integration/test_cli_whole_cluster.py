"""Verbs of a queue in a cluster: what they show and change is that of all nodes, and a silent node is named."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import QUICK, Cluster, ends_well
from tests.integration.daemon import LIMIT, Daemon, wait_until
from tests.integration.terminal import Terminal
from tests.integration.verbs import address, at, done, refused, run, told
from tests.limits import seconds

TIMEOUT_S = round(seconds(2))  #: after which a node that stands still counts as away


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that know each other; each test has queues of its own."""
    with ends_well(Cluster(tmp_path_factory.mktemp("cluster"), QUICK)) as nodes:
        nodes.start(3)
        yield nodes


def add(node: Daemon, queue: str, *words: object) -> str:
    return str(node.call("ADDJOB", queue, f"of {node.port}", 0, "REPLICATE", 1, "RETRY", 600, *words))


def bury(node: Daemon, queue: str, reason: str, *words: object) -> str:
    """Add a job that is dead."""
    job_id = add(node, queue, *words)
    assert node.call("NACK", job_id, "DEAD", "REASON", reason) == 1
    return job_id


def test_jobs_that_wait_are_shown_from_all_nodes_oldest_first(cluster: Cluster) -> None:
    jobs = []
    for node in cluster.nodes * 2:
        jobs.append((add(node, "peeked"), address(node)))
        added_ms = time.time_ns() // 1_000_000
        wait_until(lambda: time.time_ns() // 1_000_000 > added_ms, "the next millisecond")  # noqa: B023 - called at once
    rows = [tuple(line.split()[:2]) for line in done("peek", "peeked", *at(cluster.nodes[1])).splitlines()[1:]]
    assert rows == jobs
    rows = [
        tuple(line.split()[:2])
        for line in done("peek", "peeked", "--newest", "--count", 4, *at(cluster.nodes[2])).splitlines()[1:]
    ]
    assert rows == jobs[:1:-1]


def test_an_event_of_a_stream_is_shown_once(cluster: Cluster) -> None:
    cluster.nodes[0].call("QADD", "events", 3_600, "body", "REPLICATE", 3)
    assert len(done("peek", "events", *at(cluster.nodes[1])).splitlines()) == 2


def test_dead_jobs_of_all_nodes_are_shown_and_counted_once(cluster: Cluster) -> None:
    alone = [bury(node, "dead", "no [such] host") for node in cluster.nodes]
    shared = str(cluster.nodes[0].call("ADDJOB", "dead", "x", 0, "REPLICATE", 3, "RETRY", 600))
    assert cluster.nodes[0].call("NACK", shared, "DEAD") == 1
    rows = done("dead", "dead", *at(cluster.nodes[2])).splitlines()[1:]
    assert sorted(row.split()[0] for row in rows) == sorted([*alone, shared])
    assert rows[0].startswith(shared), "which failed last"
    assert done("redrive", "dead", "--dry-run", *at(cluster.nodes[1])) == "4 dead jobs of dead would be queued again\n"


def test_a_queue_is_shown_node_by_node_and_its_pause_with_the_reason(cluster: Cluster) -> None:
    first, second, third = cluster.nodes
    for node in cluster.nodes:
        add(node, "parts")
    assert done("pause", "parts", "--node", "--only", "out", *at(second)) == (
        f"the pause of parts on {address(second)} is out\n"
    )
    rows = {line.split()[1]: line.split()[-1] for line in done("queues", "parts", "--by-node", *at(first)).splitlines()}
    assert rows.pop("node") == "paused"
    assert rows == {address(first): "0", address(second): "out", address(third): "0"}
    assert re.search(r"^parts +3 .* 3 in part *$", done("queues", "parts", *at(first)), re.MULTILINE)
    assert done("resume", "parts", "--node", *at(second)) == f"the pause of parts on {address(second)} is none\n"
    done("pause", "parts", "--reason", "smtp is down", *at(first))
    assert re.search(r"all: smtp is down *$", done("queues", "parts", *at(third)), re.MULTILINE)
    done("pause", "parts", "--node", "--only", "in", *at(second))
    assert done("resume", "parts", "--node", *at(second)) == f"the pause of parts on {address(second)} is all\n"
    done("pause", "parts", "--node", "--only", "in", *at(second))
    assert done("resume", "parts", "--cluster", *at(second)) == "the pause of parts is none\n"
    assert "exclude each other" in refused("pause", "parts", "--node", "--cluster", *at(first), status=2)
    assert "not with --node" in refused("pause", "parts", "--node", "--reason", "x", *at(first), status=2)


def test_queues_are_told_to_programs_sorted_and_with_rates(cluster: Cluster) -> None:
    for number, name in enumerate(("json-a", "json-b", "json-c")):
        for node in cluster.nodes[: number + 1]:
            add(node, name)
    shown = told("queues", "json-*", "--sort", "ready", "--json", *at(cluster.nodes[0]))
    assert [(row["name"], row["length"], row["in_s"]) for row in shown["queues"]] == [
        ("json-c", 3, None), ("json-b", 2, None), ("json-a", 1, None),
    ]  # fmt: skip
    assert {node["state"] for node in shown["nodes"]} == {"ok"}
    shown = told("queues", "json-*", "--reverse", "--interval", 0.1, "--json", *at(cluster.nodes[0]))
    assert [(row["name"], row["in_s"]) for row in shown["queues"]] == [("json-c", 0), ("json-b", 0), ("json-a", 0)]
    former, now = (
        [line.split()[0] for line in done("queues", "json-*", "--sort", word, *at(cluster.nodes[0])).splitlines()]
        for word in ("length", "ready")
    )
    assert former == now == ["queue", "json-c", "json-b", "json-a"]
    assert "'length'" not in refused("queues", "--sort", "size", *at(cluster.nodes[0]), status=2)


def test_a_job_is_requeued_on_the_node_that_has_it(cluster: Cluster) -> None:
    first, second, _ = cluster.nodes
    delayed = add(second, "later", "DELAY", 600)
    waits = add(second, "later")
    result = run("requeue", delayed, waits, *at(first))
    assert (result.exit_code, result.stdout) == (1, "1 of 2 jobs have been queued\n")
    assert result.stderr == f"{waits} waits already, on {address(second)}\n"
    assert second.call("QLEN", "later") == 2
    assert refused("requeue", "nonsense", *at(first)) == "disqued requeue: BADID Invalid Job ID format."
    assert "one of both is needed" in refused("requeue", *at(first), status=2)
    assert "one of both is needed" in refused("requeue", delayed, "--queue", "later", *at(first), status=2)
    assert "go with --queue" in refused("requeue", delayed, "--limit", 1, *at(first), status=2)


def test_dead_jobs_are_requeued_by_their_reason_after_they_were_counted(cluster: Cluster) -> None:
    wanted = [bury(node, "bulk", "connection refused") for node in cluster.nodes]
    bury(cluster.nodes[0], "bulk", "no such host")
    words = ("requeue", "--queue", "bulk", "--state", "dead", "--reason", "refused", *at(cluster.nodes[1]))
    assert done(*words, "--dry-run") == "3 dead jobs of bulk would be queued\n"
    assert refused(*words) == "disqued requeue: 3 dead jobs of bulk would be queued; --yes queues them"
    assert len(done("dead", "bulk", *at(cluster.nodes[0])).splitlines()) == 5
    assert done(*words, "--limit", 1, "--yes") == "1 of 1 jobs have been queued\n"
    peeked = done("peek", "bulk", *at(cluster.nodes[0]))
    assert wanted[0] in peeked, "the one that failed first"
    assert done(*words, "--failed-since", "1h", "--yes") == "2 of 2 jobs have been queued\n"
    assert done(*words, "--yes") == "0 jobs of bulk would be queued\n"
    assert len(done("dead", "bulk", *at(cluster.nodes[0])).splitlines()) == 2
    assert "is no time; 10m, 2h, 1d" in refused(*words, "--failed-since", "yesterday", status=2)
    assert "is still to come" in refused(*words, "--failed-since", "2999-01-01", status=2)


def test_jobs_in_flight_and_delayed_are_counted_requeued_and_end_by_themselves(cluster: Cluster) -> None:
    first, second, third = cluster.nodes
    copied = str(first.call("ADDJOB", "states", "x", 0, "REPLICATE", 3, "RETRY", 600))
    held = [add(second, "states"), add(third, "states")]
    for node in (second, third):
        assert node.call("GETJOB", "FROM", "states")
    put_off = [add(node, "states", "DELAY", 600) for node in (second, third)]
    (row,) = told("queues", "states", "--json", *at(first))["queues"]
    assert (row["length"], row["in_flight"], row["delayed"]) == (1, 2, 2)
    words = ("requeue", "--queue", "states", *at(first))
    assert done(*words, "--state", "delayed", "--limit", 1, "--yes") == "1 of 1 jobs have been queued\n"
    assert done(*words, "--state", "in-flight", "--dry-run") == "2 in-flight jobs of states would be queued\n"
    assert refused(*words, "--state", "in-flight", "--state", "delayed").startswith("disqued requeue: ")
    assert done("purge", "states", "--state", "delayed", "--yes", *at(first)) == "1 jobs of states have ended\n"
    result = run("purge", "states", "--state", "in-flight", "--yes", *at(first))
    assert result.stdout == "0 jobs of states have ended\n"
    assert result.stderr.startswith("2 jobs are with consumers, and end when ")
    peeked = done("peek", "states", *at(third))
    assert copied in peeked, "its copies are neither in flight nor delayed"
    assert sum(job_id in peeked for job_id in put_off) == 1
    assert not any(job_id in peeked for job_id in held)
    assert done("purge", "states", "--state", "ready", "--dry-run", *at(first)) == "2 jobs of states would end\n"


def test_jobs_end_by_their_reason_after_a_question(cluster: Cluster) -> None:
    for node in cluster.nodes:
        bury(node, "purged", "no such host")
    kept = bury(cluster.nodes[0], "purged", "connection refused")
    words = ("purge", "purged", "--reason", "no such host", *at(cluster.nodes[1]))
    assert done(*words, "--failed-since", "2001-01-01 00:00", "--dry-run") == "3 jobs of purged would end\n"
    assert refused(*words) == "disqued purge: 3 jobs of purged would end; --yes ends them"
    script = [sys.executable, "-m", "disqued.cli", *words]
    with Terminal(script) as terminal:
        terminal.expect(r"3 jobs of purged would end\. Go on\? \[y/N\]")
        terminal.type("n\r")
        assert terminal.wait_end() == 130
    assert done(*words, "--dry-run") == "3 jobs of purged would end\n"
    with Terminal(script) as terminal:
        terminal.expect(r"Go on\?")
        terminal.type("y\r")
        terminal.expect("3 jobs of purged have ended")
        assert terminal.wait_end() == 0
    rows = done("dead", "purged", *at(cluster.nodes[2])).splitlines()[1:]
    assert [row.split()[0] for row in rows] == [kept]


def test_consumers_of_all_nodes_are_shown_those_first_that_have_a_job(cluster: Cluster) -> None:
    first, second, third = cluster.nodes
    with first.redis(client_name="holder") as holder, second.redis(client_name="left") as left:
        add(first, "shared")
        assert holder.execute_command("GETJOB", "FROM", "shared")
        add(second, "shared")
        assert left.execute_command("GETJOB", "FROM", "shared")
    waiter = subprocess.Popen(
        ["redis-cli", "-p", str(third.port), "GETJOB", "FROM", "shared"], stdout=subprocess.PIPE
    )  # fmt: skip
    try:
        third.wait_blocked()
        shown = told("consumers", "shared", "--json", *at(second))["consumers"]
        rows = [line.split() for line in done("consumers", "shared", *at(first)).splitlines()]
    finally:
        add(third, "shared")
        waiter.communicate(timeout=LIMIT)
    assert {(row["consumer"], row["node"], row["jobs"], row["waiting_s"]) for row in shown[:2]} == {
        ("holder", address(first), 1, None), ("left", address(second), 1, None),
    }  # fmt: skip
    assert shown[0]["oldest_s"] >= shown[1]["oldest_s"] >= 0
    assert [(row["node"], row["jobs"], row["oldest_s"]) for row in shown[2:]] == [(address(third), 0, None)]
    assert shown[2]["waiting_s"] >= 0
    assert shown[2]["consumer"] == shown[2]["address"]
    assert rows[0] == ["consumer", "client", "node", "waiting", "jobs", "oldest"]
    assert sorted(row[0] for row in rows[1:3]) == ["holder", "left"]
    assert {row[0]: row[1] for row in rows}["left"] == "gone", "its connection has ended"
    assert rows[3][0] == shown[2]["address"]
    assert (rows[1][3], rows[3][5]) == ("-", "-")
    assert done("consumers", "nobody", *at(first)).split() == rows[0]


def test_jobs_that_wait_for_a_slot_are_counted_on_all_nodes(cluster: Cluster) -> None:
    for node in cluster.nodes:
        add(node, "calls")
    done("policy", "calls", "inflight=1", *at(cluster.nodes[0]))
    assert "waiting: 0 for a slot\n" in done("slots", "calls", *at(cluster.nodes[2]))
    assert done("slots", "nowhere", *at(cluster.nodes[0])) == "nowhere: no limits, and no such queue\n"


def test_a_node_that_does_not_answer_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    with ends_well(Cluster(tmp_path, QUICK)) as nodes:
        nodes.start(3)
        first, second, third = nodes.nodes
        for node in nodes.nodes:
            add(node, "mail")
            bury(node, "mail", "x")
        nodes.freeze(2)
        why = rf"{address(third)}.* nothing came within {TIMEOUT_S} s \(--timeout\)"
        silent = rf"disqued \w+: .*{why}; what it has is left out\n"
        for words, counted in (
            (("queues", "mail"), r"^mail +2 "), (("peek", "mail"), rf"(?s){address(first)}.*{address(second)}"),
            (("dead", "mail"), r"(?s)x *\n.*x *\n"), (("slots", "mail"), "mail has no limits"),
            (("requeue", "--queue", "mail", "--state", "dead", "--dry-run"), "^2 dead jobs of mail would be queued"),
        ):  # fmt: skip
            result = run(*words, "--timeout", TIMEOUT_S, *at(first))
            assert (result.exit_code, bool(re.fullmatch(silent, result.stderr))) == (0, True), result
            assert re.search(counted, result.stdout, re.MULTILINE), result
        states = [
            node["state"]
            for node in json.loads(run("queues", "--json", "--timeout", TIMEOUT_S, *at(first)).stdout)["nodes"]
        ]
        assert states.count("away") == 1
        assert f"{address(third)} was asked and did not reply" in refused("queues", "--timeout", TIMEOUT_S, *at(third))
        nodes.thaw(2)


def test_a_leaving_node_is_counted_until_its_jobs_are_elsewhere(tmp_path: Path) -> None:
    with ends_well(Cluster(tmp_path, QUICK)) as nodes:
        nodes.start(3)
        first, _, third = nodes.nodes
        for _ in range(20):
            add(third, "mail")
        done("cluster", "drain", address(third), *at(first))
        shown = told("queues", "mail", "--json", *at(first))
        assert shown["queues"][0]["length"] == 20
        assert [node["state"] for node in shown["nodes"] if node["address"] == address(third)] == ["left"]
        assert len(done("peek", "mail", "--count", 100, *at(first)).splitlines()) == 21
