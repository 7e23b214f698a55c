"""The verbs of a queue on real daemons: what is in it, and what operators do with it."""

import re
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest

from tests.integration.cluster import QUICK, Cluster, ends_well
from tests.integration.daemon import Daemon, wait_until
from tests.integration.verbs import address, at, done, refused, run


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Daemon]:
    """A node that is alone."""
    with ends_well(Cluster(tmp_path, QUICK)) as nodes:
        nodes.start(1)
        yield nodes.nodes[0]


def bury(node: Daemon, queue: str) -> str:
    """Add a job that is dead."""
    job_id = str(node.call("ADDJOB", queue, "x", 0, "RETRY", 60))
    node.call("GETJOB", "FROM", queue)
    node.call("NACK", job_id, "DEAD", "REASON", "no [such] host")
    return job_id


def test_the_queues_of_a_cluster_are_shown_with_their_dead_and_failing_jobs(node: Daemon) -> None:
    bury(node, "mail")
    failing = node.call("ADDJOB", "mail", "x", 0, "RETRY", 60)
    node.call("GETJOB", "FROM", "mail")
    node.call("NACK", failing, "DELAY", 60)
    node.call("ADDJOB", "post", "x", 0)
    titles, mail, post = [line.split() for line in done("queues", *at(node)).splitlines()]
    assert titles == [
        "queue", "ready", "in-flight", "delayed", "failing", "dead", "oldest", "waiting", "nodes", "paused",
    ]  # fmt: skip
    assert (mail[:2], mail[3:]) == (["mail", "0"], ["1", "1", "1", "0", "1"])
    assert (post[:2], post[3:6], post[7:]) == (["post", "1"], ["0", "0", "0"], ["0", "1"])
    assert "mail" not in done("queues", "p*", *at(node))
    node.call("ADDJOB", "later", "x", 0, "DELAY", 600)
    _, later = [line.split() for line in done("queues", "l*", *at(node)).splitlines()]
    assert later == ["later", "0", "0", "1", "0", "0", "0", "1"]
    info = node.call("INFO", "jobs")
    assert (info["dead_jobs"], info["failing_jobs"]) == (1, 1)


def test_jobs_that_wait_are_shown_and_stay(node: Daemon) -> None:
    for number in range(3):
        node.call("ADDJOB", "mail", f"body {number}", 0)
    assert done("peek", "mail", "--count", 2, *at(node)).count("body") == 3, "the title, and two jobs"
    assert done("peek", "mail", *at(node)).split()[:3] == ["job", "node", "body"]
    assert "body 2" in done("peek", "mail", "--count", 1, "--newest", *at(node))
    assert node.call("QLEN", "mail") == 3


def test_jobs_that_may_not_be_handed_out_are_shown_with_the_reason(node: Daemon) -> None:
    node.call("QPOLICY", "calls", "SET", "GROUPINFLIGHT", 1)
    taken, waits, free = [
        str(node.call("ADDJOB", "calls", "x", 0, "GROUP", group, "RETRY", 60)) for group in ("acme", "acme", "bob")
    ]
    assert done("peek", "calls", *at(node)).split()[:3] == ["job", "node", "body"]
    assert "blocked" not in done("peek", "calls", *at(node))
    assert node.call("GETJOB", "FROM", "calls")[0][1] == taken  # type: ignore[index]
    titles, *rows = [line.split() for line in done("peek", "calls", *at(node)).splitlines()]
    assert titles == ["job", "node", "blocked", "body"]
    where = address(node)
    assert rows == [[waits, where, "group", "acme", "has", "its", "1", "running", "job", "x"], [free, where, "-", "x"]]


def test_dead_jobs_are_shown_counted_and_redriven(node: Daemon) -> None:
    first, second, third = (bury(node, "mail") for _ in range(3))
    shown = done("dead", "mail", *at(node))
    assert all(job_id in shown for job_id in (first, second, third))
    assert shown.count("no [such] host") == 3
    assert done("redrive", "mail", "--dry-run", *at(node)) == "3 dead jobs of mail would be queued again\n"
    assert node.call("QLEN", "mail") == 0
    assert done("redrive", "mail", second, *at(node)) == "1 jobs of mail have been queued again\n"
    assert done("redrive", "mail", "--count", 1, *at(node)) == "1 jobs of mail have been queued again\n"
    assert done("redrive", "mail", *at(node)) == "1 jobs of mail have been queued again\n"
    assert done("redrive", "mail", *at(node)) == "0 jobs of mail have been queued again\n"
    assert node.call("QLEN", "mail") == 3
    assert "--dry-run counts all dead jobs" in refused(
        "redrive", "mail", "--dry-run", "--count", 1, *at(node), status=2
    )


def test_a_queue_and_a_group_are_throttled_and_it_is_shown_for_how_long(node: Daemon) -> None:
    node.call("ADDJOB", "mail", "a1", 0, "GROUP", "acme")
    assert done("throttle", "mail", *at(node)) == "mail is not throttled\n"
    assert done("throttle", "mail", 3600, "--group", "acme", *at(node)) == (
        "group acme of mail hands nothing out for 3600 seconds\n"
    )
    assert node.call("GETJOB", "NOHANG", "FROM", "mail") is None
    assert done("throttle", "mail", *at(node)) == "mail is not throttled\n"
    assert done("throttle", "other", 0.5, *at(node)) == "other hands nothing out for 1 seconds\n", "rounded up"
    assert done("throttle", "mail", 60, *at(node)).startswith("mail hands nothing out for ")
    assert "86400" in refused("throttle", "mail", 86_401, *at(node), status=2)
    assert "fair" in done("policy", "mail", "fair", *at(node))
    facts = node.call("QSTAT", "mail", "FULL")
    assert dict(zip(facts[::2], facts[1::2], strict=True))["groups"] == 1


def test_jobs_are_cancelled_and_what_came_of_it_is_said(node: Daemon) -> None:
    waits, runs = (str(node.call("ADDJOB", queue, "x", 0, "RETRY", 60)) for queue in ("mail", "post"))
    node.call("GETJOB", "FROM", "post")
    unknown = f"DI{'0' * 40}05a0SQ"
    rows = [line.split() for line in done("cancel", waits, runs, unknown, *at(node)).splitlines()]
    assert rows == [["job", "is"], [waits, "cancelled"], [runs, "cancelling"], [unknown, "unknown"]]
    assert node.call("SHOW", waits) is None


def test_a_queue_is_paused_and_resumed_and_a_delayed_job_is_queued(node: Daemon) -> None:
    delayed = node.call("ADDJOB", "mail", "x", 0, "DELAY", 600)
    assert done("requeue", delayed, *at(node)) == "1 of 1 jobs have been queued\n"
    assert done("pause", "mail", "--reason", "smtp is down", *at(node)) == "the pause of mail is all\n"
    stat = node.call("QSTAT", "mail", "FULL")
    facts = dict(zip(stat[::2], stat[1::2], strict=True))
    assert facts["pause-reason"] == "smtp is down"
    assert re.fullmatch(r"address 127\.0\.0\.1:\d+", facts["pause-by"])
    assert node.call("GETJOB", "NOHANG", "FROM", "mail") is None
    assert done("resume", "mail", *at(node)) == "the pause of mail is none\n"
    assert done("pause", "mail", "--only", "in", *at(node)) == "the pause of mail is in\n"
    assert done("pause", "mail", "out", *at(node)) == "the pause of mail is out\n"
    assert "one of them is allowed" in refused("pause", "mail", "out", "--only", "in", *at(node), status=2)


def test_a_dead_or_unknown_job_is_not_requeued_and_that_is_said(node: Daemon) -> None:
    dead, unknown = bury(node, "mail"), f"DI{'0' * 40}05a0SQ"
    waits = str(node.call("ADDJOB", "mail", "x", 0))
    result = run("requeue", dead, unknown, waits, *at(node))
    assert (result.exit_code, result.stdout) == (1, "0 of 3 jobs have been queued\n")
    assert result.stderr.splitlines() == [
        f"{dead} is dead; `disqued redrive mail {dead}` queues it again",
        f"{unknown} is on no node that answers",
        f"{waits} waits already, on {address(node)}",
    ]
    assert done("redrive", "mail", dead, *at(node)) == "1 jobs of mail have been queued again\n"


def test_the_policy_of_a_queue_is_set_shown_and_taken_back(node: Daemon) -> None:
    done("policy", "mail", "maxtries=5", "backoff=10,600", *at(node))
    rows = [line.split()[:2] for line in done("policy", "mail", *at(node)).splitlines()[1:]]
    assert ["maxtries", "5"] in rows
    assert ["backoff", "10"] in rows
    assert "maxtries" not in done("policy", "mail", "--unset", "maxtries", *at(node))
    assert "maxtries is no FIELD=VALUE" in refused("policy", "mail", "maxtries", *at(node), status=2)
    for words in (("foo=1",), ("maxtries=1", "pause=all"), ("--unset", "foo")):
        told = " ".join(refused("policy", "mail", *words, *at(node), status=2).split())
        assert "is no field; allowed are " in told
        assert all(field in told for field in ("replicate", "maxtries", "backoff", "keepdead", "result"))


def test_a_schedule_is_set_shown_paused_fired_and_deleted(node: Daemon) -> None:
    words = ("0 2 * * *", "TZ", "Europe/Berlin", "QUEUE", "reports", "BODY", "sales")
    tried = done("schedule", "nightly", *words, "DRYRUN", *at(node))
    assert "there is no schedule" in refused("schedule", "nightly", *at(node), status=1)
    shown = done("schedule", "nightly", *words, *at(node))
    assert shown.endswith(f"\n{tried}")
    assert shown.count("next: ") == 5
    assert "Europe/Berlin" in shown
    titles, nightly = done("schedule", *at(node)).splitlines()
    assert titles.split() == ["name", "when", "queue", "state", "next", "last", "became", "error"]
    assert nightly.startswith("nightly  0 2 * * *  reports  active")
    job_id = done("schedule", "nightly", "--fire", *at(node)).strip()
    assert node.call("GETJOB", "FROM", "reports") == [["reports", job_id, "sales"]]
    assert done("schedule", "nightly", "--pause", *at(node)) == "OK\n"
    assert "next: " not in done("schedule", "nightly", *at(node))
    assert done("schedule", "nightly", "--resume", *at(node)) == "OK\n"
    assert done("schedule", "nightly", "--delete", *at(node)) == "1\n"
    assert "there is no schedule nightly" in refused("schedule", "nightly", *at(node), status=1)
    assert "allowed are five fields" in refused("schedule", "x", "* *", "QUEUE", "q", "BODY", "b", *at(node), status=1)
    assert "unknown option 'bad'" in refused("schedule", "x", "bad", *at(node), status=1)
    assert "go with the NAME of a schedule" in refused("schedule", "--pause", *at(node), status=2)


def test_a_schedule_is_changed_in_one_way_at_a_time(node: Daemon) -> None:
    node.call("SCHEDULE", "SET", "nightly", "0 2 * * *", "QUEUE", "reports", "BODY", "sales")
    for verbs in (("--fire", "--delete"), ("--pause", "--resume")):
        assert "at a time" in refused("schedule", "nightly", *verbs, *at(node), status=2)
    [row] = node.call("SCHEDULE", "LIST")
    assert row[3] == "active"
    assert node.call("QLEN", "reports") == 0
    assert "there is no schedule nope" in refused("schedule", "nope", "--delete", *at(node), status=1)


def test_the_last_runs_of_a_schedule_are_shown_with_what_became_of_them(node: Daemon) -> None:
    assert "run: " not in done("schedule", "beat", "EVERY", 1, "QUEUE", "q", "BODY", "b", "RETRY", 600, *at(node))
    ((_, job_id, _),) = node.call("GETJOB", "TIMEOUT", 10_000, "FROM", "q")
    assert node.call("SCHEDULE", "PAUSE", "beat") == "OK"
    runs = [line.split() for line in done("schedule", "beat", *at(node)).splitlines() if line.startswith("run: ")]
    assert ["running", job_id] in [words[-2:] for words in runs]
    node.call("ACKJOB", job_id)
    runs = [line.split() for line in done("schedule", "beat", *at(node)).splitlines() if line.startswith("run: ")]
    assert ["acked", job_id] in [words[-2:] for words in runs]
    _, row = done("schedule", *at(node)).splitlines()
    assert row.split()[-1] in ("acked", "queued")


def test_a_schedule_whose_jobs_are_refused_says_why(node: Daemon) -> None:
    done("schedule", "beat", "EVERY", 1, "QUEUE", "q", "BODY", "b", "REPLICATE", 5, *at(node))
    wait_until(lambda: "NOREPL" in done("schedule", *at(node)), "no error is told")
    lines = done("schedule", "beat", *at(node)).splitlines()
    facts = {words[0]: words[1] for words in (line.split(None, 1) for line in lines) if len(words) > 1}
    assert facts["error"].startswith("NOREPL Not enough reachable nodes")
    assert facts["error-instant"].startswith("20")
    assert len(facts["error-node"].strip()) == 40


def test_a_queue_that_stands_still_says_why_until_the_lost_node_is_forgotten(tmp_path: Path) -> None:
    with ends_well(Cluster(tmp_path)) as nodes:
        nodes.start(3)
        first, second, lost = nodes.nodes[0], nodes.nodes[1], nodes.ids[2]
        nodes.nodes[0].call("QPOLICY", "calls", "SET", "INFLIGHT", 3)
        first.call("ADDJOB", "calls", "x", 0, "RETRY", 60)
        assert first.call("GETJOB", "FROM", "calls")
        nodes.kill(1, 2)
        wait_until(lambda: "no majority" in run("slots", "calls", *at(first)).stdout, "no majority is told")
        nodes.kill(0)
        nodes.restart(0, 1)
        first, second = nodes.nodes[:2]
        waits = str(first.call("ADDJOB", "calls", "y", 0, "RETRY", 60))
        assert first.call("GETJOB", "TIMEOUT", 1_000, "FROM", "calls") is None
        told = [run("slots", "calls", *at(daemon)).stdout for daemon in (first, second)]
        assert all("nothing is handed out: the steward" in text for text in told), told
        assert f"waits for node {lost[:8]}" in "".join(told)
        assert "steward" in run("peek", "calls", *at(first)).stdout
        for daemon in (first, second):
            assert daemon.call("CLUSTER", "FORGET", lost) == "OK"
        ((_, job_id, _),) = first.call("GETJOB", "TIMEOUT", 20_000, "FROM", "calls")
        assert job_id == waits
        assert "nothing is handed out" not in done("slots", "calls", *at(first))


def test_a_schedule_is_fired_by_a_cluster_once_each_time_and_outlives_kills(tmp_path: Path) -> None:
    def taken(count: int) -> list[str]:
        """Take so many jobs of schedules, from nodes in turn."""
        found: list[str] = []
        for number in cycle(range(3)):
            rows = nodes.nodes[number].call("GETJOB", "TIMEOUT", 1_000, "COUNT", 9, "WITHHEADERS", "FROM", "q") or []
            for _, job_id, _, _, headers, *_ in rows:
                found.append(headers[3])
                assert nodes.nodes[number].call("ACKJOB", job_id) == 1
            if len(found) >= count:
                break
        return found

    with ends_well(Cluster(tmp_path)) as nodes:
        nodes.start(3)
        nodes.nodes[0].call(
            "SCHEDULE", "SET", "beat", "EVERY", 1, "QUEUE", "q", "BODY", "x", "RETRY", 600, "CATCHUP", 9
        )
        before = taken(5)
        assert len(set(before)) == len(before), "each instant once"
        nodes.kill(0, 1, 2)
        nodes.restart(0, 1, 2)
        nodes.wait_joined()
        after = taken(5)
        assert set(before).isdisjoint(after)
        assert len(set(after)) == len(after)
        assert nodes.nodes[2].call("SCHEDULE", "DEL", "beat") == 1


def test_limits_are_set_and_who_has_slots_is_shown(node: Daemon) -> None:
    told = done("policy", "calls", "inflight=1", "rate=10/1s:50", "grouprate=5/60", "partition=available", *at(node))
    assert [line.split()[:5] for line in told.splitlines()[1:] if "rate" in line] == [
        ["rate", "10", "PER", "1", "BURST"], ["grouprate", "5", "PER", "60", told.splitlines()[3].split()[4]],
    ]  # fmt: skip
    assert "available" in told
    assert "3 PER 0.5 BURST 1" in done("policy", "calls", "rate=3/0.5s:1", "ttl=90.5", *at(node))
    assert ["ttl", "90.5"] in [line.split()[:2] for line in done("policy", "calls", *at(node)).splitlines()]
    done("policy", "calls", "--unset", "rate", "--unset", "grouprate", "--unset", "ttl", *at(node))
    steward = str(node.call("CLUSTER", "MYID"))[:8]
    assert done("slots", "calls", *at(node)).splitlines() == [
        "limits:  inflight 1, partition available", "in use:  0 of 1", "waiting: 0 for a slot",
        f"steward: {steward}",
    ], "before its first job"  # fmt: skip
    job_id = str(node.call("ADDJOB", "calls", "x", 0, "GROUP", "acme", "RETRY", 60))
    node.call("GETJOB", "FROM", "calls")
    *told_of, titles, slot = [line.split() for line in done("slots", "calls", *at(node)).splitlines()]
    assert told_of == [
        ["limits:", "inflight", "1,", "partition", "available"], ["in", "use:", "1", "of", "1"],
        ["waiting:", "0", "for", "a", "slot"], ["steward:", steward],
    ]  # fmt: skip
    assert done("slots", "nowhere", *at(node)) == "nowhere: no limits, and no such queue\n"
    node.call("ADDJOB", "plain", "x", 0)
    assert done("slots", "plain", *at(node)) == "plain has no limits\n"
    assert titles == ["job", "group", "client", "node", "ends", "within"]
    assert slot[:2] == [job_id, "acme"]
    assert slot[2].startswith("127.0.0.1:")
    assert slot[3] == steward
    assert "rate" in refused("policy", "calls", "rate=10", *at(node), status=2)
