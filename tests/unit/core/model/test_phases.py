"""Where a job is, in one word on each node; and the counts of a queue, which `check_phases` holds against a walk."""

from collections.abc import Callable
from typing import Any

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.job import JobState
from disqued.core.model.phases import PHASE_NAMES, PHASES_OF_WORD, count_phases, phase_of
from disqued.core.model.queues import Queues
from disqued.core.model.state import State
from disqued.core.recovery import Recovery
from disqued.core.work.delivery import Delivery
from disqued.core.work.replication import Replication
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import UNKNOWN_ID, Server, check_phases
from tests.simulation.mutants import CALM, Edit, Mutant
from tests.unit.core.work.test_deadletters import Disk

ACTIVE_WORDS = ("in-flight", "delayed", "elsewhere")


def phase(server: Server, job_id: bytes) -> str | None:
    """What SHOW says, which the counts of the queue and JSCAN have to agree with."""
    check_phases(server.state)
    shown = server.show(job_id)
    if shown is None:
        return None
    word = bytes(shown["phase"]).decode()
    for other in map(bytes.decode, PHASE_NAMES):
        assert (job_id in found(server, other)) == (other == word)
    return word


def found(server: Server, *states: str) -> list[bytes]:
    """What JSCAN finds in these states."""
    words = [word for state in states for word in ("STATE", state)]
    cursor, ids = server("JSCAN", 0, "BUSYLOOP", *words)
    assert cursor == b"0"
    return [bytes(job_id) for job_id in ids]


def phases(cluster: Cluster, job_id: bytes) -> list[str | None]:
    return [phase(member, job_id) for member in cluster]


def counted(server: Server, queue: bytes = b"q") -> dict[str, int]:
    """The counts of a queue that are not 0."""
    counts = zip(PHASE_NAMES, count_phases(server.state.queues, queue), strict=True)
    return {name.decode(): count for name, count in counts if count}


def test_each_state_is_one_phase_but_active_which_is_three() -> None:
    bits = {word.decode(): phases for word, phases in PHASES_OF_WORD.items()}
    assert bits["active"] == bits["in-flight"] | bits["delayed"] | bits["elsewhere"]
    assert (bits["queued"], bits["acked"]) == (bits["ready"], bits["done"])
    states = [state.name.lower().replace("_", "-") for state in JobState]
    assert sum(bits[state] for state in states) == sum(bits[name.decode()] for name in PHASE_NAMES) == 127


def test_the_phases_of_a_job_on_a_lone_node() -> None:
    server = Server()
    job_id = server.add("q", "x", "DELAY", 5, "RETRY", 60)
    assert phase(server, job_id) == "delayed"
    server.advance(5_000)
    assert phase(server, job_id) == "ready"
    server.get()
    assert phase(server, job_id) == "in-flight"
    server("NACK", job_id, "DELAY", 9)
    assert phase(server, job_id) == "delayed"
    server("ENQUEUE", job_id)
    assert phase(server, job_id) == "ready"
    server("DEQUEUE", job_id)
    assert phase(server, job_id) == "elsewhere"
    server("WORKING", job_id)
    assert phase(server, job_id) == "in-flight"
    server.advance(60_000)
    assert phase(server, job_id) == "ready"
    server("NACK", job_id, "DEAD")
    assert phase(server, job_id) == "dead"
    server("ACKJOB", job_id)
    assert phase(server, job_id) is None
    assert server.state.queues.counts.keys() == {b"q"}


def test_a_job_that_is_delivered_once_is_in_flight_until_it_ends() -> None:
    server = Server()
    kept, done, given_back = (server.add("q", body, "RETRY", 0, "TTL", 1_000) for body in "abc")
    server.get(count=3)
    assert counted(server) == {"in-flight": 3}
    server("ACKJOB", done)
    server("NACK", given_back, "DEAD")
    assert (counted(server), phase(server, kept)) == ({"in-flight": 1, "dead": 1}, "in-flight")
    # It is in no table of its queue, which is forgotten before it.
    server("ACKJOB", given_back)
    server.advance(400_000)
    assert b"q" not in server.state.queues.by_name
    assert (counted(server), phase(server, kept)) == ({"in-flight": 1}, "in-flight")
    server.advance(1_000_000)
    assert server.state.queues.counts == {}
    check_phases(server.state)


def test_one_that_is_taken_back_unseen_is_ready_again() -> None:
    server = Server()
    for retry in (0, 60):
        assert server("GETJOB", "FROM", "q", client="gone") is BLOCKED
        server.vanished = {"gone"}
        job_id = server.add("q", "x", "RETRY", retry)
        assert phase(server, job_id) == "ready"
        server("ACKJOB", job_id)
    assert counted(server) == {}


def test_events_are_ready_for_their_groups_once_their_delay_is_over() -> None:
    server = Server()
    now, later = bytes(server("QADD", "log", 600, "x")), bytes(server("QADD", "log", 600, "y", "DELAY", 5))
    assert (phase(server, now), phase(server, later)) == ("ready", "delayed")
    server("QGET", "log", "g", "EX", 5)
    assert counted(server, b"log") == {"ready": 1, "delayed": 1}
    server.advance(5_000)
    assert counted(server, b"log") == {"ready": 2}
    server("QFLUSH", "log")
    server.advance(100)
    check_phases(server.state)
    assert counted(server, b"log") == {}


def test_a_job_is_ready_on_one_node_and_elsewhere_on_the_holders_of_its_copies() -> None:
    cluster = Cluster(3)
    a, b, _ = cluster
    job_id = add(a, "REPLICATE", 3, "RETRY", 60)
    assert phases(cluster, job_id) == ["ready", "elsewhere", "elsewhere"]
    a.get()
    assert phases(cluster, job_id) == ["in-flight", "elsewhere", "elsewhere"]
    a("NACK", job_id, "DELAY", 60)
    assert phases(cluster, job_id) == ["delayed", "delayed", "delayed"]
    a("ENQUEUE", job_id)
    assert phases(cluster, job_id) == ["ready", "elsewhere", "elsewhere"]
    b("ENQUEUE", job_id)
    assert sorted(str(word) for word in phases(cluster, job_id)) == ["elsewhere", "elsewhere", "ready"]
    a("NACK", job_id, "DEAD")
    assert phases(cluster, job_id) == ["dead", "dead", "dead"]


def add(member: Member, *options: Any) -> bytes:
    """Add a job that has copies."""
    reply = member("ADDJOB", "q", "x", 0, *options)
    return bytes(member.answers.pop("client")[0] if reply is BLOCKED else reply)


def test_a_delay_of_addjob_is_counted_by_the_node_that_queues_the_job() -> None:
    cluster = Cluster(3)
    job_id = add(cluster.members[0], "REPLICATE", 3, "RETRY", 60, "DELAY", 5)
    assert phases(cluster, job_id) == ["delayed", "elsewhere", "elsewhere"]
    # On the others the queue is not there: they count all the same.
    assert [counted(member) for member in cluster] == [{"delayed": 1}, {"elsewhere": 1}, {"elsewhere": 1}]
    cluster.advance(5_000)
    assert phases(cluster, job_id) == ["ready", "elsewhere", "elsewhere"]


@pytest.mark.parametrize("delay", [0, 5])
def test_a_job_whose_producer_waits_is_nothing_but_that(delay: int) -> None:
    cluster = Cluster(2)
    a, b = cluster
    cluster.hold(b, a)
    assert a("ADDJOB", "q", "x", 0, "REPLICATE", 2, "DELAY", delay) is BLOCKED
    (job,) = a.state.jobs
    assert phase(a, job.id) == "wait-repl"
    assert counted(a) == {"wait-repl": 1}
    cluster.release(b, a)
    assert phases(cluster, job.id) == ["delayed" if delay else "ready", "elsewhere"]


def test_a_job_whose_producer_gives_up_is_not_counted_any_more() -> None:
    cluster = Cluster(2)
    a, b = cluster
    cluster.hold(b, a)
    assert a("ADDJOB", "q", "x", 500, "REPLICATE", 2) is BLOCKED
    cluster.advance(500)
    assert counted(a) == {}
    check_phases(a.state)


def test_a_result_is_done_on_each_holder_until_its_time_is_over() -> None:
    cluster = Cluster(2)
    a, _ = cluster
    job_id = add(a, "REPLICATE", 2, "RESULT", 30)
    a.get()
    a("ACKJOB", job_id, "RESULT", "42")
    assert phases(cluster, job_id) == ["done", "done"]
    assert a.stat()["done"] == 1  # type: ignore[index]
    cluster.advance(31_000)
    assert phases(cluster, job_id) == [None, None]
    assert [counted(member) for member in cluster] == [{}, {}]


def test_the_ack_of_a_job_that_is_not_known_is_done() -> None:
    cluster = Cluster(2)
    a, b = cluster
    cluster.cut(a, b)
    assert a("ACKJOB", UNKNOWN_ID) == 0
    job = a.job(UNKNOWN_ID)
    assert PHASE_NAMES[phase_of(a.state.queues, job)] == b"done"
    check_phases(a.state)


@pytest.mark.parametrize("controlled", [False, True])
def test_a_restart_counts_what_it_restores(controlled: bool) -> None:
    server = Server()
    ready, held, off, once = (
        server.add("q", body, "RETRY", retry) for body, retry in (("a", 60), ("b", 60), ("c", 60), ("d", 0))
    )
    server.get(count=4)
    server("NACK", off, "DELAY", 50)
    server("NACK", ready)
    server = Disk(server).restart(controlled=controlled)
    if controlled:
        assert [phase(server, job_id) for job_id in (ready, held, off, once)] == [
            "ready", "elsewhere", "delayed", "elsewhere",
        ]  # fmt: skip
    else:
        # A consumer may have the first one; the last one is done to the journal.
        assert [phase(server, job_id) for job_id in (ready, held, off, once)] == [
            "elsewhere", "elsewhere", "delayed", None,
        ]  # fmt: skip
    server.advance(60_000)
    assert counted(server)["ready"] == 3


def test_jscan_takes_the_old_words_and_the_new_ones() -> None:
    server = Server()
    ready, held, off, out = (server.add("q", body, "RETRY", 60) for body in "abcd")
    server("DEQUEUE", ready, out)
    server.get(count=2)
    server("NACK", off, "DELAY", 50)
    server("ENQUEUE", ready)
    assert set(found(server, "active")) == set(found(server, *ACTIVE_WORDS)) == {held, off, out}
    assert found(server, "queued") == found(server, "READY") == [ready]
    assert set(found(server, "queued", "delayed")) == {ready, off}
    assert server.refusal("JSCAN", "STATE", "waiting") == (
        "ERR Invalid job state name - allowed are wait-repl, active, queued, acked, dead, ready, in-flight, delayed,"
        " elsewhere, done"
    )


def test_qstat_counts_each_job_once() -> None:
    server = Server()
    ids = [server.add("q", str(number), "RETRY", 60) for number in range(6)]
    server("DEQUEUE", ids[5])
    server.get(count=3)
    server("NACK", ids[1], "DELAY", 50)
    server("NACK", ids[2], "DEAD")
    stat = server.stat()
    assert stat is not None
    assert {name: stat[name] for name in ("len", "in-flight", "delayed", "elsewhere", "dead", "done")} == {
        "len": 2, "in-flight": 1, "delayed": 1, "elsewhere": 1, "dead": 1, "done": 0,
    }  # fmt: skip


# What is above notices mistakes.

MISTAKES = [
    (
        Edit(Delivery, "_delivered_once", (("state.queues.counts[job.queue].once += 1", "pass"),)),
        test_a_job_that_is_delivered_once_is_in_flight_until_it_ends,
    ),
    (
        Edit(State, "end_lease", (("self.queues.counts[unit.queue].once -= 1", "pass"),)),
        test_a_job_that_is_delivered_once_is_in_flight_until_it_ends,
    ),
    (
        Edit(State, "let_go", (("counts.done -= 1", "pass"),)),
        test_a_result_is_done_on_each_holder_until_its_time_is_over,
    ),
    (
        Edit(State, "let_go", (("self.queues.stop_counting(job.queue)", "pass"),)),
        test_a_job_that_is_delivered_once_is_in_flight_until_it_ends,
    ),
    (
        Edit(Queues, "end_delay", (("self.counts[unit.queue].delayed -= 1", "pass"),)),
        test_the_phases_of_a_job_on_a_lone_node,
    ),
    (
        Edit(Replication, "_wait_no_more", (("state.queues.counts[pending.job.queue].waiting -= 1", "pass"),)),
        lambda: test_a_job_whose_producer_waits_is_nothing_but_that(0),
    ),
    (
        Edit(Replication, "begin", (("list_delayed(state.queues, job)", "pass"),)),
        lambda: test_a_job_whose_producer_waits_is_nothing_but_that(5),
    ),
    (
        Edit(Recovery, "_add", (("counts[name].known += 1", "pass"),)),
        lambda: test_a_restart_counts_what_it_restores(True),
    ),
]


@pytest.mark.reference
@pytest.mark.parametrize(("edit", "test"), MISTAKES)
def test_a_wrong_count_or_phase_is_noticed(edit: Edit, test: Callable[[], None]) -> None:
    with Mutant("a wrong count", CALM, (edit,)).applied(), pytest.raises(AssertionError):
        test()
    test()
