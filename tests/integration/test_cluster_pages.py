"""Pages of one node about what others have: three real daemons, looked at over HTTP from the first."""

import http.client
import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.integration.cluster import QUICK, Cluster, ends_well
from tests.integration.daemon import HOST, LIMIT, Daemon, free_port, launch, wait_until


class WithPages(Cluster):
    """Nodes, each of which has its pages."""

    def launch(self, number: int, port: int = 0) -> Daemon:
        """Start a node, its pages at a port of its own."""
        self.ports = {**getattr(self, "ports", {}), number: free_port()}
        options = (*self.options, "--http-port", str(self.ports[number]))
        return launch(self.directory / f"node-{number}", options, port=port)

    def post(self, path: str, value: object, status: int = 200) -> Any:
        """Do through the API of the first node what a form of its pages does; returns the answer."""
        connection = http.client.HTTPConnection(HOST, self.ports[0], timeout=LIMIT)
        connection.request("POST", path, json.dumps(value), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        assert answer.status == status, text
        return json.loads(text)

    def html(self, path: str, status: int = 200) -> str:
        """A page of the first node."""
        connection = http.client.HTTPConnection(HOST, self.ports[0], timeout=LIMIT)
        connection.request("GET", path, headers={"Accept": "text/html"})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        assert answer.status == status, text
        return text

    def page(self, path: str, status: int = 200) -> str:
        """What a page of the first node says."""
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.html(path, status))).split())

    def press(self, path: str, label: str) -> Any:
        """Do what a button on a page does; returns the answer of the API."""
        forms = re.findall(r'<form class="action".*?</form>', self.html(path), re.DOTALL)
        (form,) = [each for each in forms if f">{label}</button>" in each]
        (action,) = re.findall(r'data-action="([^"]*)"', form)
        does = json.loads(unescape(action))
        return self.post(does["path"], does["fixed"])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[WithPages]:
    with ends_well(WithPages(tmp_path)) as nodes:
        nodes.start(3)
        yield nodes


def held_by_the_others(cluster: Cluster) -> str:
    """Add jobs to the second node until there is one of which the first has no copy; returns its id."""
    first, second, _ = cluster.nodes
    for _ in range(100):
        job_id = str(second.call("ADDJOB", "mail", "to: ann", 0, "REPLICATE", 2, "RETRY", 3_600))
        if first.call("SHOW", job_id) is None:
            return job_id
        second.call("ACKJOB", job_id)
    raise AssertionError("the first node has a copy of each job")


def test_a_job_that_this_node_does_not_have_is_shown_as_the_others_know_it(cluster: WithPages) -> None:
    job_id = held_by_the_others(cluster)
    _, second, third = (node_id[:8] for node_id in cluster.ids)
    said = cluster.page(f"/jobs/{job_id}")
    assert f"{second} ready" in said
    assert f"{third} elsewhere" in said
    assert "to: ann" in said
    waits = f"It waits in the queue of node {second}, at about place 1; no consumer on any node waits for jobs"
    assert waits in said
    assert f"In the queue of node {second}" in said.partition("Timeline")[2]
    assert f"redis-cli -h {HOST} -p {cluster.nodes[1].port} DEQUEUE {job_id}" in said
    cluster.nodes[1].call("GETJOB", "FROM", "mail")
    wait_until(lambda: f"{second} in-flight" in cluster.page(f"/jobs/{job_id}"), "a job in flight on the page")
    cluster.freeze(2)
    try:
        said = cluster.page(f"/jobs/{job_id}")
        assert f"{second} in-flight" in said
        silent = "has (a link, and has not answered|failed|no link)|does not answer, and was heard"
        assert re.search(rf"{third} may hold it, but ({silent})", said)
    finally:
        cluster.thaw(2)
    wait_until(lambda: f"{third} elsewhere" in cluster.page(f"/jobs/{job_id}"), "a word of the node that is back")
    assert cluster.nodes[0].call("ACKJOB", job_id) == 0


def test_a_job_that_another_node_has_in_its_queue_is_not_queued_here_too(cluster: WithPages) -> None:
    first, second, _ = cluster.nodes
    job_id = str(second.call("ADDJOB", "mail", "x", 0, "REPLICATE", 3, "RETRY", 3_600, "DELAY", 3_600))
    wait_until(lambda: first.call("SHOW", job_id) is not None, "a copy on the first node")
    other = cluster.ids[1][:8]
    wait_words(cluster, f"/jobs/{job_id}", "It is delayed until", f"node {other} queues it then")
    assert cluster.post("/api/queue-now", {"id": job_id}) == {"changed": 1, "text": f"Queued on node {other}."}
    left = {"changed": 0, "text": f"Left alone: it is in the queue of node {other} already."}
    assert cluster.post("/api/queue-now", {"id": job_id}) == left
    assert [node.call("QLEN", "mail") for node in cluster.nodes] == [0, 1, 0]
    said = cluster.page(f"/jobs/{job_id}")
    assert "Queue now" not in said
    assert "Queued before its delay was over" in said


def test_workers_and_connections_of_all_nodes_are_on_the_pages_of_one(cluster: WithPages) -> None:
    clients = [redis.Redis(HOST, node.port, single_connection_client=True) for node in cluster.nodes]
    for number, client in enumerate(clients):
        client.execute_command("CLIENT", "SETNAME", f"client-of-{number}")
    home = clients[1]
    home.execute_command("WORKER", "START", "ID", "press-1", "NAME", "the old press")
    home.execute_command("WQ.WORK", "mail")
    home.execute_command("WQ.ENQUEUE", "mail", "TASKS", "to: bob")
    [[_, process, _]] = home.execute_command("WQ.DEQUEUE", "mail")
    said = cluster.page("/workers?q=*old*press")
    assert f"press-1 the old press {cluster.ids[1][:8]}" in said
    said = cluster.page("/workers/press-1")
    assert f"This worker runs on node {cluster.ids[1][:8]} ." in said
    assert "to: bob" in said
    assert f"-p {cluster.nodes[1].port} WORKER FAIL press-1" in said
    said = cluster.page("/connections?q=client-of")
    for number, node_id in enumerate(cluster.ids):
        assert re.search(rf"{node_id[:8]} (this node )?\d+ {re.escape(HOST)}:\d+ client-of-{number}", said), number
    assert home.execute_command("WQ.FINISH", process) >= 1
    for client in clients:
        client.close()


def test_jobs_in_flight_on_any_node_and_who_has_them_are_on_the_pages_of_one(cluster: WithPages) -> None:
    first, second, third = cluster.ids
    worker = redis.Redis(HOST, cluster.nodes[1].port, single_connection_client=True)
    worker.execute_command("CLIENT", "SETNAME", "worker-7")
    job_id = held_by_the_others(cluster)
    waits = re.compile(rf"Next jobs all nodes .*{job_id[:18]}… {second[:8]} .* 7 B to: ann")
    wait_until(lambda: waits.search(cluster.page("/queues/mail")), "the job that waits on the page of its queue")
    worker.execute_command("GETJOB", "FROM", "mail")
    in_flight = re.compile(rf"In flight all nodes, .*{job_id[:18]}… worker-7 \({HOST}:\d+\) {second[:8]} .* 1 ")
    wait_until(lambda: in_flight.search(cluster.page("/queues/mail")), "the job in flight on the page of its queue")
    number = worker.execute_command("CLIENT", "ID")
    assert re.search(
        rf"{second[:8]} {number} {HOST}:\d+ worker-7 .* CLIENT ID 1 ", cluster.page("/connections?q=worker-7")
    )
    said = cluster.page(f"/client?node={second}&id={number}")
    assert f"worker-7 number {number} of node {second[:8]}" in said
    assert re.search(rf"Jobs in flight 1, all queues .*{job_id[:18]}… mail .* to: ann", said)
    cluster.nodes[1].call("ADDJOB", "afar", "x", 0, "REPLICATE", 1)
    history = json.loads(cluster.html("/api/history?queue=afar"))
    assert history["time"] == [], "this node remembers nothing of a queue that another one has"
    assert "nothing is remembered of one" in cluster.html("/api/history?queue=nowhere", 404)
    cluster.freeze(1)
    try:
        said = cluster.page("/queues/mail")
        assert re.search(rf"Node {second[:8]} .* Its consumers, and what they have, are missing here\.", said)
        assert third[:8] in said
        assert first[:8] in said
        for path, filter_ in (("purge", {"queue": "mail"}), ("ack", {"queue": "mail"}), ("move", {"queue": "mail"})):
            dry = cluster.post(f"/api/bulk/{path}", {"filter": filter_, **({"to": "x"} if path == "move" else {})})
            (sentence,) = dry["incomplete"]
            assert re.match(
                rf"Node {second[:8]} .* It is not reached: jobs that it alone holds stay as they are", sentence
            )
        assert cluster.post("/api/bulk/delete", {"filter": {"queue": "mail"}})["incomplete"] == []
    finally:
        cluster.thaw(1)
    worker.close()


def fail(cluster: WithPages, number: int, queue: str, *how: str | int) -> str:
    """Add a job to a node, which two nodes hold, and let a consumer there return it; returns its id."""
    node = cluster.nodes[number]
    job_id = str(node.call("ADDJOB", queue, "x", 0, "REPLICATE", 2, "RETRY", 600, "MAXTRIES", 3))
    node.call("GETJOB", "FROM", queue)
    node.call("NACK", job_id, *how)
    return job_id


def wait_words(cluster: WithPages, path: str, *texts: str) -> str:
    """Wait until a page says all of some texts; returns what it says."""
    wait_until(lambda: all(text in cluster.page(path) for text in texts), f"{texts} on {path}")
    return cluster.page(path)


def test_failing_and_dead_jobs_of_all_nodes_are_listed_once_and_redriven(cluster: WithPages) -> None:
    failing = [fail(cluster, number, "mail", "DELAY", 600, "REASON", f"failure-{number}") for number in range(3)]
    dead = [fail(cluster, number, "mail", "DEAD", "REASON", f"death-{number}") for number in range(3)]
    said = wait_words(cluster, "/failing?queue=mail", "Failing jobs 3, all nodes")
    for number in range(3):
        assert said.count(f"failure-{number}") == 1, said
        row = rf"1 of 3 failure-{number} \S+ \S+ \S+ \S+ in (10 min|9 min \d+ s) \w+ and [12] more"
        assert re.search(row, said), said
    said = wait_words(cluster, "/dead?queue=mail", "Dead jobs 3, all nodes")
    assert [said.count(f"death-{number}") for number in range(3)] == [1, 1, 1]
    # Of one that this node holds no copy of the others tell as well.
    away = next((one for one in dead if cluster.nodes[0].call("SHOW", one) is None), dead[1])
    act = {"filter": {"ids": [away]}, "dry_run": False, "token": None}
    assert cluster.post("/api/dead/redrive", act) == {"dry_run": False, "matched": 1, "done": 1, "failed": []}
    wait_words(cluster, "/dead?queue=mail", "Dead jobs 2, all nodes")
    wait_until(lambda: any(node.call("QLEN", "mail") for node in cluster.nodes), "the job to wait again")
    # It has failed, and is tried again.
    wait_words(cluster, "/failing?queue=mail", "Failing jobs 4, all nodes", "waits in its queue")
    asked = {"filter": {"ids": failing}, "dry_run": False, "token": None}
    assert cluster.post("/api/failing/retry", {**asked, "dry_run": True})["matched"] == 3
    assert cluster.post("/api/failing/retry", asked) == {"dry_run": False, "matched": 3, "done": 3, "failed": []}
    cluster.freeze(2)
    try:
        said = wait_words(
            cluster, "/dead?queue=mail", f"Node {cluster.ids[2][:8]} ", "Jobs that it alone holds are missing."
        )
        assert "Dead jobs 2, all nodes" in said or "Dead jobs 1, all nodes" in said
    finally:
        cluster.thaw(2)
    wait_until(lambda: "are missing" not in cluster.page("/dead?queue=mail"), "a word of the node that is back")
    assert cluster.post("/api/dead/purge", {"filter": {"queue": "ma*"}, "dry_run": False, "token": None})["done"] == 2
    wait_words(cluster, "/dead", "Dead jobs 0, all nodes")


def test_failing_jobs_of_which_this_node_has_no_copy_are_tried_now_and_buried(cluster: WithPages) -> None:
    failing: dict[int, list[str]] = {1: [], 2: []}
    for number in (1, 1, 2, 2):
        node = cluster.nodes[number]
        job_id = str(node.call("ADDJOB", "mail", "x", 0, "REPLICATE", 1, "RETRY", 600, "MAXTRIES", 3))
        node.call("GETJOB", "FROM", "mail")
        node.call("NACK", job_id, "DELAY", 600, "REASON", "no such host")
        assert cluster.nodes[0].call("SHOW", job_id) is None
        failing[number].append(job_id)
    tried, buried = zip(*failing.values(), strict=True)
    wait_words(cluster, "/failing?queue=mail", "Failing jobs 4, all nodes")

    asked: dict[str, Any] = {"filter": {"ids": tried}}
    dry = cluster.post("/api/failing/retry", asked)
    assert (dry["matched"], sorted(dry["sample"])) == (2, sorted(tried))
    assert "elsewhere" not in dry
    act = {"dry_run": False, "token": dry["token"]}
    assert cluster.post("/api/failing/retry", {**asked, **act}) == {
        "dry_run": False, "matched": 2, "done": 2, "failed": []
    }  # fmt: skip
    assert [node.call("QLEN", "mail") for node in cluster.nodes] == [0, 1, 1]

    act = {"filter": {"ids": buried}, "why": "hopeless", "dry_run": False, "token": None}
    cluster.freeze(2)
    try:
        done = cluster.post("/api/failing/bury", act)
    finally:
        cluster.thaw(2)
    # The silent node was asked neither for its jobs nor to bury them, and the list says so.
    assert (done["matched"], done["done"], done["failed"]) == (1, 1, [])
    wait_words(cluster, "/failing?queue=mail", "Failing jobs 3, all nodes")
    assert cluster.post("/api/failing/bury", act)["done"] == 1
    for number, job_id in enumerate(buried, 1):
        words: Any = cluster.nodes[number].call("SHOW", job_id)
        shown = dict(zip(words[::2], words[1::2], strict=True))
        assert (shown["state"], shown["failures"][-1][3]) == ("dead", "hopeless"), job_id
        assert shown["failures"][-1][2] == f"node {cluster.ids[0]}"


def test_a_node_is_drained_from_the_page_of_another_one(cluster: WithPages) -> None:
    first, second, _ = cluster.nodes
    node_id = cluster.ids[1]
    path = f"/nodes/{node_id}"
    assert f'href="{path}"' in cluster.html("/")
    said = cluster.page(path)
    assert "healthy The node answers and takes jobs." in said
    assert f"Address {HOST}:{second.port}" in said
    # At-most-once jobs in a queue that is paused for what goes out stay where they are: the drain cannot end.
    stuck = [second.call("ADDJOB", "stuck", f"s{n}", 0, "RETRY", 0, "REPLICATE", 1) for n in range(3)]
    second.call("PAUSE", "stuck", "out")
    jobs = {str(second.call("ADDJOB", "mail", f"m{n}", 0, "RETRY", 3_600, "REPLICATE", 1)) for n in range(200)}

    assert cluster.press(path, "Drain this node") == {"leaving": True}
    assert second.call("CLUSTER", "LEAVING") == "yes"
    assert first.call("CLUSTER", "LEAVING") == "no"
    wait_until(lambda: "leaving Leaving: 3 of " in cluster.page(path), "three jobs that are left")
    wait_until(lambda: "at-most-once jobs in a queue that is paused out" in cluster.page(path), "a reason")
    wait_until(lambda: "leaving: 3 of " in cluster.page("/"), "the drain on the overview")
    assert "Stop draining" in cluster.page(path)
    assert "Drain this node" not in cluster.page(path)
    # What moved to other nodes was not delivered, and nobody consumes it.
    assert second.call("QLEN", "mail") == 0
    assert "Queued total 400 Delivered total 0 " in cluster.page("/queues/mail")
    wait_until(lambda: "Out/s 0 " in cluster.page("/queues/mail"), "a rate of delivery")
    wait_until(lambda: "mail : 200 ready jobs" in cluster.page("/"), "a queue without consumers")

    assert cluster.press(path, "Stop draining") == {"leaving": False}
    assert "healthy The node answers and takes jobs." in cluster.page(path)
    wait_until(lambda: "leaving" not in cluster.page("/"), "a node that stays, on the overview")

    asked = [
        entry["asked"]
        for entry in json.loads(cluster.html("/api/audit?count=9"))["entries"]
        if entry["path"] == "/api/drain"
    ]
    assert sorted(asked, key=str) == [{"leaving": False, "node": node_id}, {"leaving": True, "node": node_id}]

    assert cluster.press(path, "Drain this node") == {"leaving": True}
    second.call("PAUSE", "stuck", "none")
    done = "drained Drained: the node may be stopped, and nothing is lost."
    wait_until(lambda: done in cluster.page(path), "the end of the drain")
    wait_until(lambda: "leaving: may be stopped" in cluster.page("/"), "the end of the drain on the overview")
    cluster.stop(1)
    found = set()
    while len(found) < len(jobs) + len(stuck):
        found |= {
            job_id
            for _, job_id, _ in first.call(
                "GETJOB", "TIMEOUT", int(LIMIT * 1_000), "COUNT", 100, "FROM", "mail", "stuck"
            )
        }
    assert found == jobs | set(map(str, stuck))


def test_a_node_that_is_away_says_so_on_its_page_and_cannot_be_drained(cluster: WithPages) -> None:
    node_id = cluster.ids[2]
    path = f"/nodes/{node_id}"
    wait_until(lambda: "Jobs" in cluster.page(path), "the page of a node")
    cluster.nodes[2].kill()
    why = "(failed|no link|not answering)", "(has failed|has no link to this node|does not answer)"
    said = rf"{why[0]} Node {node_id[:8]} \({HOST}:\d+\) {why[1]}, and was heard .* ago\."
    wait_until(lambda: re.search(said, cluster.page(path)) is not None, "a node that is away")
    assert re.search(r"It was heard last at \d", cluster.page(path))
    assert f"CLUSTER FORGET {node_id}" in cluster.page(path)
    lost = "(failed, not heard|not answering) for "
    wait_until(lambda: re.search(lost, cluster.page("/")) is not None, "the same on the overview")
    refused = cluster.post("/api/drain", {"leaving": True, "node": node_id}, status=503)
    assert refused["detail"] == f"node {node_id} has no link to this node: try again when it is back"
    unknown = cluster.page("/nodes/" + "f" * 40, status=404)
    assert "is known to this node" in unknown


def test_what_hangs_because_a_node_was_lost_is_said_before_it_is_back_and_after(cluster: WithPages) -> None:
    first, second, third = cluster.nodes
    first.call("QPOLICY", "limited", "SET", "INFLIGHT", 1)
    for queue in ("limited", "plain"):
        third.call("ADDJOB", queue, "x", int(LIMIT * 1_000), "REPLICATE", 3, "RETRY", 3_600)
    wait_until(lambda: third.call("GETJOB", "NOHANG", "FROM", "limited"), "a slot for the job")
    cluster.kill(2)
    second.call("ADDJOB", "limited", "waits", 0, "REPLICATE", 1)

    def hangs() -> bool:
        assert not second.call("GETJOB", "NOHANG", "FROM", "limited")
        said = cluster.page("/")
        slots = "1 queue has slots of nodes that are gone limited : 1 slot of a node that is gone or began anew"
        return slots in said and "jobs that no node hands out" in said and "plain : at least 2 copies of jobs" in said

    wait_until(hangs, "what hangs")
    assert re.search("(failed|no link|not answering) .*CLUSTER FORGET", cluster.page(f"/nodes/{cluster.ids[2]}"))
    cluster.options = QUICK  # without its store
    cluster.restart(2)
    cluster.wait_joined()
    wait_until(lambda: "does not answer" not in cluster.page("/"), "all nodes on the overview")
    wait_until(hangs, "the same, as it came back with nothing")
    lost = "Copies elsewhere 2 .*Slots of nodes that are gone 1:"
    wait_until(lambda: re.search(lost, cluster.page("/queues/limited")), "the same on the page of the queue")


def test_the_overview_of_one_node_says_what_is_wrong_in_the_cluster(cluster: WithPages) -> None:
    first, second, third = cluster.nodes
    wait_until(lambda: "Sums over 3 nodes" in cluster.page("/"), "figures of all nodes")
    assert "does not answer" not in cluster.page("/")
    second.call("ADDJOB", "paused-queue", "x", 0)
    second.call("PAUSE", "paused-queue", "all", "REASON", "smtp is down")
    second.call("ADDJOB", "unconsumed-queue", "x", 0)
    job_id = second.call("ADDJOB", "failing-queue", "x", 0, "RETRY", 3_600)
    second.call("GETJOB", "FROM", "failing-queue")
    second.call("NACK", job_id, "DELAY", 3_600, "REASON", "no such file")
    address = f"{HOST}:{third.port}"
    cluster.freeze(2)
    try:
        wait_until(lambda: "1 node does not answer" in cluster.page("/"), "a silent node on the overview")
        said = cluster.page("/")
        assert re.search(rf"error 1 node does not answer Node {cluster.ids[2][:8]} \({address}\) (has|is)", said), said
    finally:
        cluster.thaw(2)
    cluster.kill(2)
    lost = rf"Node {cluster.ids[2][:8]} \({address}\) has failed, and was heard .* ago\."
    wait_until(lambda: re.search(lost, cluster.page("/")), "a lost node on the overview")
    wait_until(lambda: "unconsumed-queue : 1 ready job" in cluster.page("/"), "a queue without consumers")
    said = cluster.page("/")
    assert re.search(rf"Sums over 2 nodes, .* s old\. Without the figures of node {cluster.ids[2][:8]}\.", said)
    assert re.search("queues? (has|have) ready jobs and no consumer on any node that answers", said), said
    assert "paused-queue : 1 ready job" not in said, "of a queue that is paused it is no wonder"
    assert re.search(
        "1 queue is paused paused-queue : Adds and delivery are paused on all nodes by [^:]*:[0-9]+: smtp is down. ",
        said,
    )
    assert re.search("1 queue has failing jobs failing-queue : [12] failing jobs?, each copy counted.", said)
    assert "Nothing needs attention" not in said
    first.call("PAUSE", "paused-queue", "none")
    wait_until(lambda: "is paused" not in cluster.page("/"), "a queue that goes on")
    cluster.restart(2)
    cluster.wait_joined()
    wait_until(lambda: "does not answer" not in cluster.page("/"), "all nodes on the overview")
