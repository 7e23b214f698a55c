"""Workers of a cluster: who holds what they have, who tells whom, and what becomes of it when nodes go."""

import json

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model import messages as m
from disqued.core.workers.worker_moves import MOVE_MS
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import check
from tests.unit.core.workers.test_workers_life import info

FAILED_MS = 60_000  #: after which a node that is silent is found to have failed


@pytest.fixture
def cluster():
    made = Cluster(3)
    yield made
    for member in made:
        check_workers(member)


def check_workers(member: Member) -> None:
    state = member.state
    for unit, worker in state.custody.bound.items():
        assert worker.leases.get(unit) is not None
        assert unit in state.queues.by_name[unit.queue].leased
    for job, home in state.custody.elsewhere.items():
        assert job in home.jobs
        assert state.jobs.get(job.id) is job
    for home in member.node.homes.known.values():
        assert all(state.custody.elsewhere.get(job) is home for job in home.jobs)


def start(node: Member, name: str = "w", *more) -> None:
    node("WORKER", "START", "ID", name, *more, client=name)
    node("WQ.WORK", "q", client=name)


def enqueue(cluster: Cluster, node: Member, *tasks: str, copies: int = 2) -> list[bytes]:
    """Add tasks with copies; returns the ids of their jobs."""
    before = len(node.answers["producer"])
    value = node("WQ.ENQUEUE", "q", "REPLICATE", copies, "TASKS", *tasks, client="producer")
    if value is BLOCKED and len(node.answers["producer"]) == before:
        cluster.advance(200)
    return list(node.answers["producer"][before]) if value is BLOCKED else list(value)


def dequeue(node: Member, name: str = "w", count: int = 1) -> list[bytes]:
    return [process for _, process, _ in node("WQ.DEQUEUE", "q", "COUNT", count, client=name) or []]


def listen(node: Member, *, listens: bool = True) -> None:
    """Let a client of a node begin, or end, to listen to events."""
    node.node.begin()
    node.node.notifications.set_listening(listens=listens)
    node.settle()
    node.cluster.settle()


def waiting(node: Member) -> list[bytes]:
    return list(node("WQ.TASKS", "q"))


def everywhere(cluster: Cluster) -> list[bytes]:
    return [task for node in cluster for task in waiting(node)]


def alive(cluster: Cluster, ms: int, node: Member, name: str = "w", client: str = "") -> None:
    """Let time pass while a worker gives signs of life."""
    for _ in range(ms // 1_000):
        cluster.advance(1_000)
        node("PING", client=client or name)


def holder(cluster: Cluster, home: Member, job_id: bytes) -> Member:
    [other] = [node for node in cluster if node is not home and node.holds(job_id)]
    return other


# Adding.


def test_tasks_with_copies_are_answered_when_all_copies_are_made(cluster):
    a, *_ = cluster
    cluster.lose = lambda flight: flight.kind == m.REPLJOB and len(cluster.lost) < 1
    assert a("WQ.ENQUEUE", "q", "REPLICATE", 2, "TASKS", "x", "y", client="p") is BLOCKED
    assert waiting(a) == []
    cluster.advance(200)
    assert len(a.answers["p"][0]) == 2
    assert waiting(a) == [b"x", b"y"]


def test_tasks_of_which_one_finds_no_copies_are_not_added(cluster):
    a, *_ = cluster
    cluster.lose = lambda flight: flight.kind == m.REPLJOB and flight.message[1].body == b"y"
    assert a("WQ.ENQUEUE", "q", "REPLICATE", 3, "TASKS", "x", "y", client="p") is BLOCKED
    cluster.advance(6_000)
    assert a.answers["p"][0].line.startswith(b"NOREPL")
    cluster.lose = lambda flight: False
    cluster.advance(10_000)
    assert everywhere(cluster) == []
    assert not any(len(node.state.jobs) for node in cluster)


# Hints.


def test_other_holders_are_told_whose_a_task_is_in_one_message(cluster):
    a, b, c = cluster
    ids = enqueue(cluster, a, "x", "y", copies=3)
    start(a)
    dequeue(a, count=2)
    for other in (b, c):
        [flight] = cluster.sent(m.LEASED, a, other)
        assert [held.job_id for held in flight.message[4]] == ids
        assert sorted(job.id for job in other.state.custody.elsewhere) == sorted(ids)


def test_jobs_of_nobody_are_not_told(cluster):
    a, *_ = cluster
    enqueue(cluster, a, "x", copies=3)
    a.get()
    start(a)
    assert dequeue(a) == []
    assert cluster.sent(m.LEASED) == []


def test_a_task_is_nowhere_delivered_again_while_its_worker_lives(cluster):
    a, *_ = cluster
    value = a("WQ.ENQUEUE", "q", "REPLICATE", 3, "RETRY", 5, "TASKS", "x", client="p")
    assert value is BLOCKED
    start(a)
    [process] = dequeue(a)
    alive(cluster, 60_000, a)
    assert everywhere(cluster) == []
    assert a("WQ.FINISH", process, client="w") == 1
    cluster.advance(1_000)
    assert not any(len(node.state.jobs) for node in cluster)


@pytest.mark.parametrize(("retries", "period_ms"), [((9,), 3_000), ((30, 9), 3_000), ((9, 30), 3_000), ((30,), 10_000)])
def test_the_leases_of_a_worker_are_renewed_after_a_third_of_its_shortest_retry_period(cluster, retries, period_ms):
    a, b, _ = cluster
    start(a, "w", "TTL", 600_000)
    for retry in retries:
        a("ADDJOB", "q", b'{"args": [], "kwargs": {}}', 500, "REPLICATE", 3, "RETRY", retry, client="producer")
    cluster.advance(100)
    units = list(a.state.jobs)
    assert len(units) == len(retries)
    assert len(dequeue(a, count=len(retries))) == len(retries)
    worker = a.node.workers.by_id[b"w"]
    assert set(worker.leases) == set(units)
    assert worker.renew_at == a.state.now + period_ms
    cluster.flights.clear()
    for turn in range(1, 4):
        cluster.advance(period_ms - 1)
        before = len(cluster.sent(m.LEASED, a, b))
        cluster.advance(1)
        assert len(cluster.sent(m.LEASED, a, b)) == before + 1
        assert [unit.requeue_at for unit in units] == [a.state.now + unit.options.retry_ms for unit in units], turn
    assert not cluster.sent(m.WILLQUEUE)
    for unit in units:
        a("ACKJOB", unit.id, client="w")
    cluster.advance(period_ms)
    assert worker.renew_at == 0


def test_a_job_whose_timer_ends_before_it_is_renewed_stays_with_its_worker(cluster):
    a, _, _ = cluster
    start(a, "w", "TTL", 600_000)
    job = a.job(a.add("q", "x", "REPLICATE", 1, "RETRY", 9))
    assert len(dequeue(a)) == 1
    for _ in range(3):
        job.requeue_at = a.state.now + 1
        a.node.queueing.reschedule(job)
        cluster.advance(1)
        assert a.node.queueing.is_leased(job)
        assert job.requeue_at == a.state.now + 9_000
    assert job.additional_deliveries == 0


def test_other_holders_forget_whose_a_task_was_when_it_comes_back(cluster):
    a, b, c = cluster
    enqueue(cluster, a, "x", copies=3)
    start(a)
    dequeue(a)
    cluster.advance(3_000)
    assert waiting(a) == [b"x"]
    assert not b.state.custody.elsewhere
    assert not c.state.custody.elsewhere


def test_a_finish_on_another_holder_is_known_at_home(cluster):
    a, b, _ = cluster
    enqueue(cluster, a, "x", copies=3)
    start(a)
    [process] = dequeue(a)
    assert b("WQ.FINISH", process) == 1
    assert a("WQ.FINISH", process, client="w") == 0
    assert info(a, "w")["processes"] == 0


def test_a_task_from_another_node_dies_with_the_worker_that_fetched_it(cluster):
    a, b, _ = cluster
    enqueue(cluster, a, "x", copies=1)
    start(b)
    assert b("WQ.DEQUEUE", "q", "BLOCK", 0, client="w") is BLOCKED
    cluster.advance(100)
    [[(_, _, task)]] = b.answers["w"]
    assert task == b"x"
    b("WORKER", "FAIL", "w")
    assert waiting(b) == [b"x"]


def test_a_finish_that_is_faster_than_the_word_of_the_delivery_is_not_late(cluster):
    a, b, _ = cluster
    enqueue(cluster, a, "x", copies=3)
    start(a)
    cluster.hold(a, b)
    [process] = dequeue(a)
    assert b("WQ.FINISH", process, "STRICT") == 1
    cluster.release(a, b)
    assert info(a, "w")["processes"] == 0
    cluster.advance(1_000)
    assert not any(len(node.state.jobs) for node in cluster)


def test_a_finish_of_what_came_back_is_late_on_every_holder(cluster):
    a, b, _ = cluster
    for told in (a, b):
        enqueue(cluster, a, "x", copies=3)
        start(a)
        [process] = dequeue(a)
        a("WQ.RETURN", process)
        assert told("WQ.FINISH", process) == 2
        assert everywhere(cluster) == []


def test_a_finish_of_what_was_put_off_is_late(cluster):
    a, *_ = cluster
    enqueue(cluster, a, "x", copies=3)
    start(a)
    [process] = dequeue(a)
    a("WQ.RETURN", process, "DELAY", 60)
    assert a("WQ.FINISH", process) == 2


def test_a_finish_where_no_copy_is_is_answered_0_and_done(cluster):
    a, b, _ = cluster
    enqueue(cluster, a, "x", copies=1)
    start(a)
    [process] = dequeue(a)
    assert b("WQ.FINISH", process) == 0
    assert info(a, "w")["processes"] == 0
    assert a("WQ.FINISH", process, client="w") == 0


# Giving back on another node.


@pytest.mark.parametrize("how", [(), ("BACK",)])
def test_what_is_given_back_on_another_holder_is_taken_from_its_worker(cluster, how):
    a, b, c = cluster
    [job_id] = enqueue(cluster, a, "x", copies=3)
    start(a)
    [process] = dequeue(a)
    b.add("q", "waits", "REPLICATE", 1)
    assert b("WQ.RETURN", process, *how) == 1
    assert info(a, "w")["processes"] == 0
    assert waiting(b) == ([b"waits", b"x"] if how else [b"x", b"waits"])
    assert a("WQ.PROCS") == b("WQ.PROCS") == c("WQ.PROCS") == []
    alive(cluster, 310_000, a)
    assert everywhere(cluster).count(b"x") == 1
    start(b, "v", "TTL", 0)
    rows = b("WQ.DEQUEUE", "q", "COUNT", 2, client="v")
    assert (b"q", job_id + b":2", b"x") in rows
    assert a("WQ.RETURN", process) == 0


def test_what_is_given_back_on_another_holder_goes_to_who_waits_anywhere(cluster):
    a, b, c = cluster
    [job_id] = enqueue(cluster, a, "x", copies=3)
    start(a)
    [process] = dequeue(a)
    start(c, "v", "TTL", 0)
    assert c("WQ.DEQUEUE", "q", "BLOCK", 0, client="v") is BLOCKED
    assert b("WQ.RETURN", process) == 1
    alive(cluster, 2_000, a)
    assert c.answers["v"] == [[(b"q", job_id + b":2", b"x")]]
    assert a("WQ.FINISH", process, "STRICT", client="w") == 0
    assert c("WQ.FINISH", job_id + b":2", client="v") == 1


def test_what_is_given_back_on_another_holder_for_later_is_queued_then(cluster):
    a, b, _ = cluster
    enqueue(cluster, a, "x", copies=3)
    start(a)
    [process] = dequeue(a)
    assert b("WQ.RETURN", process, "DELAY", 60) == 1
    assert info(a, "w")["processes"] == 0
    alive(cluster, 58_000, a)
    assert everywhere(cluster) == []
    alive(cluster, 3_000, a)
    assert everywhere(cluster) == [b"x"]


def test_a_job_of_a_worker_is_given_back_on_another_holder(cluster):
    a, b, _ = cluster
    a("ADDJOB", "q", "x", 0, "REPLICATE", 3, "RETRY", 5)
    a("WORKER", "START", "ID", "w", client="w")
    [[_, job_id, _]] = a("GETJOB", "WORKER", "w", "FROM", "q", client="w")
    assert b("WQ.RETURN", job_id) == 1
    alive(cluster, 20_000, a)
    assert info(a, "w")["processes"] == 0
    assert everywhere(cluster) == [b"x"]


def test_a_process_is_given_back_where_nothing_is_known_of_it_to_no_effect(cluster):
    a, *_ = cluster
    [job_id] = enqueue(cluster, a, "x", copies=2)
    start(a)
    [process] = dequeue(a)
    [third] = [node for node in cluster if not node.holds(job_id)]
    assert third("WQ.RETURN", process) == 0
    assert info(a, "w")["processes"] == 1


# A node that fails.


@pytest.mark.parametrize("copies", [2, 3])
def test_tasks_of_a_home_that_fails_come_back_to_the_front_in_their_order(cluster, copies):
    a, b, c = cluster
    enqueue(cluster, a, "1", "2", "3", copies=3)
    start(a)
    dequeue(a, count=3)
    for node in (b, c):
        node.add("q", "later", "REPLICATE", 1)
    cluster.isolate(a)
    cluster.advance(FAILED_MS)
    for node in (b, c):
        tasks = waiting(node)
        assert tasks[-1] == b"later"
        assert tasks[:-1] == sorted(tasks[:-1])
    assert sorted(waiting(b)[:-1] + waiting(c)[:-1]) == [b"1", b"2", b"3"]


def test_they_come_back_one_ttl_after_the_failure_is_known(cluster):
    a, b, c = cluster
    enqueue(cluster, a, "x", copies=3)
    start(a, "w", "TTL", 10_000)
    dequeue(a)
    cluster.isolate(a)
    while not cluster.sent(m.FAIL) and not b.state.peers.by_id[a.id].flags & 2:
        cluster.advance(100)
    cluster.advance(9_800)
    assert waiting(b) + waiting(c) == []
    cluster.advance(1_500)
    assert waiting(b) + waiting(c) == [b"x"]


def test_a_worker_that_comes_to_another_node_in_time_keeps_its_tasks(cluster):
    a, b, c = cluster
    enqueue(cluster, a, "x", "y", copies=3)
    start(a)
    processes = dequeue(a, count=2)
    cluster.isolate(a)
    cluster.advance(1_000)
    assert b("WORKER", "KEEPALIVE", "w", 1, client="w") == 3_000
    alive(cluster, FAILED_MS + 20_000, b)
    assert waiting(b) + waiting(c) == []
    assert info(b, "w")["processes"] == 2
    assert info(b, "w")["epoch"] == 2
    assert [b("WQ.FINISH", process, client="w") for process in processes] == [1, 1]


def test_the_holder_to_which_it_did_not_come_hands_over_what_it_knows(cluster):
    a, b, c = cluster
    cluster.lose = lambda flight: flight.kind == m.REPLJOB and flight.receiver is b
    enqueue(cluster, a, "x", copies=2)
    cluster.lose = lambda flight: False
    start(a)
    [process] = dequeue(a)
    job_id = process.partition(b":")[0]
    assert c.holds(job_id)
    cluster.isolate(a)
    b("WORKER", "KEEPALIVE", "w", client="w")
    assert info(b, "w")["processes"] == 1
    b("WORKER", "FAIL", "w")
    assert waiting(b) == [b"x"]


def test_a_node_that_answers_again_in_time_is_left_its_tasks(cluster):
    a, b, c = cluster
    enqueue(cluster, a, "x", copies=3)
    start(a, "w", "TTL", 60_000)
    dequeue(a)
    cluster.isolate(a)
    for _ in range(40):
        cluster.advance(1_000)
        a("PING", client="w")
    for other in (b, c):
        cluster.heal(a, other)
    alive(cluster, 120_000, a)
    assert everywhere(cluster) == []


# Moving.


def test_a_worker_moves_with_its_queues_and_what_it_has(cluster):
    a, b, _ = cluster
    enqueue(cluster, a, "x", copies=1)
    start(a)
    dequeue(a)
    assert b("WORKER", "KEEPALIVE", "w", 1, client="w") is BLOCKED
    assert b.answers["w"] == [3_000]
    assert a("WORKER", "LIST") == []
    assert info(b, "w")["queues"] == [b"q"]
    assert info(b, "w")["processes"] == 1
    assert a.refusal("WQ.DEQUEUE", "q", client="w").startswith("STALE")
    alive(cluster, 10_000, b)
    b("WORKER", "FAIL", "w")
    assert waiting(b) == [b"x"]


def test_what_came_with_a_worker_is_with_it_from_then_on(cluster):
    a, b, _ = cluster
    enqueue(cluster, a, "x", copies=3)
    start(a)
    dequeue(a)
    cluster.advance(500)
    b("WORKER", "KEEPALIVE", "w", 1, client="w")
    worker = b.node.workers.by_id[b"w"]
    assert list(worker.leases.values()) == [b.state.now]


def test_the_end_of_a_worker_is_for_its_home_to_tell(cluster):
    a, b, c = cluster
    start(a)
    assert c.node.homes.known[b"w"].node_id == a.id
    b.say(c, (m.LIVES, (m.WorkerStatus(b"w", 7, 0, False),)))
    assert c.node.homes.known[b"w"].node_id == a.id
    a.say(c, (m.LIVES, (m.WorkerStatus(b"w", 0, 0, False),)))  # of an epoch before
    assert b"w" in c.node.homes.known
    a.say(c, (m.LIVES, (m.WorkerStatus(b"w", 1, 0, False),)))
    assert b"w" not in c.node.homes.known


def test_the_highest_epoch_of_a_worker_is_remembered_wherever_it_goes(cluster):
    a, b, c = cluster
    start(a)
    for epoch, node in ((2, b), (3, a), (4, b)):
        assert node("WORKER", "START", "ID", "w", client=f"client {epoch}")[:2] == [b"w", epoch]
        home = c.node.homes.known[b"w"]
        assert (home.node_id, home.epoch, home.highest) == (node.id, epoch, epoch)
    assert c("WORKER", "START", "ID", "w", client="last")[:2] == [b"w", 5]
    a.say(b, (m.LIVES, (m.WorkerStatus(b"w", 3, 3_000, True),)))  # a word from before changes nothing
    home = b.node.homes.known[b"w"]
    assert (home.node_id, home.epoch, home.highest) == (c.id, 5, 5)


def test_very_much_moves_in_several_messages(cluster):
    a, b, _ = cluster
    count = 3 * m.JOBS_PER_MESSAGE + 5
    enqueue(cluster, a, *map(str, range(count)), copies=1)
    start(a)
    assert len(dequeue(a, count=count)) == count
    b("WORKER", "KEEPALIVE", "w", client="w")
    cluster.advance(10)
    assert b.answers["w"] == [3_000]
    assert info(b, "w")["processes"] == count


def test_who_comes_and_whose_old_home_says_nothing_goes_on_without(cluster):
    a, b, _ = cluster
    start(a)
    cluster.lose = lambda flight: flight.kind == m.HANDOVER
    assert b("WORKER", "KEEPALIVE", "w", client="w") is BLOCKED
    cluster.advance(MOVE_MS)
    assert b.answers["w"] == [3_000]


def test_an_id_that_is_started_on_another_node_is_taken_over(cluster):
    a, b, _ = cluster
    enqueue(cluster, a, "x", copies=1)
    start(a)
    [process] = dequeue(a)
    assert b("WORKER", "START", "ID", "w", client="new")[:2] == [b"w", 2]
    assert info(b, "w")["processes"] == 1
    assert a.refusal("WORKER", "KEEPALIVE", client="w").startswith("STALE")
    assert b("WQ.FINISH", process, client="new") == 1


def test_who_comes_with_an_old_epoch_is_stale(cluster):
    a, b, c = cluster
    start(a)
    b("WORKER", "START", "ID", "w", client="new")
    assert c.refusal("WORKER", "KEEPALIVE", "w", 1, client="w").startswith("STALE")


def test_an_epoch_that_never_was_is_refused_on_every_node_and_changes_nothing(cluster):
    a, b, _ = cluster
    start(a)
    for epoch in (2, 2**63 - 1):
        for node in (a, b):
            assert node.refusal("WORKER", "KEEPALIVE", "w", epoch, client="other").startswith("ERR no epoch as high")
        assert a.refusal("WORKER", "KEEPALIVE", "w", epoch, client="w").startswith("ERR no epoch as high")
    assert info(a, "w")["epoch"] == 1
    assert b("WORKER", "START", "ID", "w", client="new")[:2] == [b"w", 2]
    assert a("WORKER", "START", "ID", "w", client="newer")[:2] == [b"w", 3]
    assert b.refusal("WORKER", "KEEPALIVE", "w", 2, client="new").startswith("STALE")
    assert b.refusal("WORKER", "KEEPALIVE", "w", 4, client="new").startswith("ERR no epoch as high")


def test_an_epoch_that_was_given_before_its_node_was_started_again_is_still_heard_of(cluster):
    a, b, _ = cluster
    start(a)
    a("WORKER", "START", "ID", "w", client="second")
    a.say(b, (m.LIVES, (m.WorkerStatus(b"w", 1, 10_000, lives=True),)))
    assert b("WORKER", "KEEPALIVE", "w", 2, client="second") is BLOCKED
    assert b.answers["second"] == [10_000]
    assert info(b, "w")["epoch"] == 3


def test_workers_of_all_nodes_are_listed_and_those_that_ended_are_not(cluster):
    a, b, c = cluster
    start(a, "v")
    start(b, "w")
    assert c("WORKER", "LIST", "CLUSTER") == [b"v", b"w"]
    assert c.refusal("WORKER", "INFO", "w").startswith("NOWORKER it lives on node " + b.id.decode())
    a("WORKER", "STOP", client="v")
    cluster.advance(3_000)
    assert c("WORKER", "LIST", "CLUSTER") == []
    assert c.refusal("WORKER", "KEEPALIVE", "w").startswith("NOWORKER")


def test_of_two_homes_that_could_not_hear_each_other_one_lets_go(cluster):
    a, b, c = cluster
    enqueue(cluster, a, "x", copies=3)
    start(a, "w", "TTL", 3_600_000)
    [process] = dequeue(a)
    cluster.isolate(a)
    b("WORKER", "KEEPALIVE", "w", client="w")
    assert a("WORKER", "LIST") == b("WORKER", "LIST") == [b"w"]
    for other in (b, c):
        cluster.heal(a, other)
    cluster.advance(1_000)
    assert a("WORKER", "LIST") == []
    assert b("WORKER", "LIST") == [b"w"]
    assert everywhere(cluster) == []
    assert b("WQ.FINISH", process, client="w") == 1


def test_a_worker_whose_end_got_lost_is_forgotten_when_its_node_names_the_others(cluster):
    a, b, c = cluster
    start(a, "v")
    start(a, "w", "TTL", 0)
    cluster.cut(a, b)
    a("WORKER", "STOP", client="v")
    assert b("WORKER", "LIST", "CLUSTER") == [b"v", b"w"]
    cluster.heal(a, b)
    cluster.advance(20_000)
    assert b("WORKER", "LIST", "CLUSTER") == c("WORKER", "LIST", "CLUSTER") == [b"w"]


# Two deliveries.


def test_a_task_that_two_workers_have_is_left_to_one(cluster):
    a, b, c = cluster
    [job_id] = enqueue(cluster, a, "x", copies=3)
    start(a, "one", "TTL", 3_600_000)
    [first] = dequeue(a, "one")
    for node in (a, b, c):
        listen(node)
    cluster.isolate(a)
    b("ENQUEUE", job_id)
    start(b, "two", "TTL", 3_600_000)
    dequeue(b, "two")
    for other in (b, c):
        cluster.heal(a, other)
    a.events.clear()
    cluster.advance(400_000)
    kept = [node for node in (a, b) if node.state.custody.bound]
    assert kept == [b]
    assert [content for _, kind, content, _ in a.events if kind == b"cancel"] == [first]
    assert everywhere(cluster) == []


def test_a_worker_whose_task_is_finished_on_another_node_hears_of_it(cluster):
    a, b, _ = cluster
    enqueue(cluster, a, "x", copies=3)
    start(a)
    [process] = dequeue(a)
    listen(a)
    b("ACKJOB", process.partition(b":")[0])
    assert (b"q", b"cancel", process, None) in a.events


@pytest.mark.parametrize(("producer", "alive"), [("w", [b"w"]), ("somebody", [])])
def test_a_worker_that_waits_for_copies_is_alive(cluster, producer, alive):
    a, _, _ = cluster
    start(a)
    cluster.lose = lambda flight: flight.kind == m.GOTJOB
    assert a("ADDJOB", "other", "x", 0, "REPLICATE", 2, client=producer) is BLOCKED
    cluster.advance(60_000)
    assert a("WORKER", "LIST") == alive
    cluster.lose = lambda flight: False
    cluster.advance(2_000)
    assert len(a.answers[producer]) == 1


# Events.


def test_events_reach_who_listens_on_other_nodes_and_nobody_else(cluster):
    a, b, c = cluster
    listen(b)
    cluster.flights.clear()
    a.add("q", "x", "REPLICATE", 1)
    assert b.events == [(b"q", b"work", b"1", None)]
    assert c.events == []
    assert len(cluster.sent(m.EVENT)) == 1
    listen(b, listens=False)
    a.add("q", "y", "REPLICATE", 1)
    assert len(cluster.sent(m.EVENT)) == 1


def test_who_gets_a_link_later_hears_that_somebody_listens(cluster):
    a, b, _ = cluster
    cluster.isolate(b)
    listen(b)
    cluster.heal(a, b)
    start(a)
    a.add("q", "x", "REPLICATE", 1)
    [process] = dequeue(a)
    a("WQ.FINISH", process, "RESULT", "fine", client="w")
    [content] = [content for _, kind, content, _ in b.events if kind == b"done"]
    assert json.loads(content)["result"] == "fine"


def test_a_job_that_moves_is_announced_again_where_it_comes_to_alone(cluster):
    a, b, c = cluster
    for node in cluster:
        listen(node)
    a.add("q", "x", "REPLICATE", 1)
    for node in cluster:
        node.events.clear()
    start(b)
    assert b("WQ.DEQUEUE", "q", client="w") is None
    assert [event[:3] for event in b.events] == [(b"q", b"work", b"1")]
    assert a.events == c.events == []


def test_a_lone_node_is_checked_like_any_other():
    alone = Cluster(1)
    [server] = alone
    start(server)
    enqueue(alone, server, "x", copies=1)
    dequeue(server)
    check(server)
