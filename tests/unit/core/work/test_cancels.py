"""Cancelling jobs, on one node and on several."""

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.messages import CANCEL, CANCELLED, FATE, SETACK
from disqued.core.model.outbox import JOB_ADDED
from disqued.core.recovery import Recovery, walk
from disqued.wire.jobdump import decode_record, encode_job
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import UNKNOWN_ID, Server, check


@pytest.fixture(name="server")
def make_server() -> Server:
    return Server()


def held(cluster: Cluster, *options: str | int) -> bytes:
    """A job that the first three nodes hold, queued on a."""
    a = cluster.members[0]
    a("ADDJOB", "q", "body", 0, "REPLICATE", 3, *options)
    (job_id,) = a.answers.pop("client")
    return bytes(job_id)


def cancelled(member: Member, *job_ids: bytes) -> list[bytes]:
    """What CANCEL answers, at once or when the other nodes have answered."""
    value = member("CANCEL", *job_ids, client="operator")
    return list(member.answers["operator"].pop() if value is BLOCKED else value)


def deliveries(cluster: Cluster) -> list[object]:
    """All that consumers of any node get of the queue."""
    return [taken for member in cluster for taken in member.get("q", count=10)]


# One node.


@pytest.mark.parametrize("options", [(), ("DELAY", 100), ("RESULT", 100), ("DELAY", 100, "RETRY", 0, "REPLICATE", 1)])
def test_a_job_that_no_consumer_has_ends_at_once(server: Server, options: tuple[str | int, ...]) -> None:
    job_id = server.add("q", "body", *options)
    assert server("CANCEL", job_id, UNKNOWN_ID) == [b"cancelled", b"unknown"]
    server.advance(200_000)
    assert server.get("q") == []
    check(server)


def test_said_again_it_is_answered_the_same_and_a_job_whose_time_is_over_is_done(server: Server) -> None:
    job_id, other = server.add(), server.add("q", "body", "TTL", 5, "RETRY", 1)
    assert [server("CANCEL", job_id) for _ in range(2)] == [[b"cancelled"]] * 2
    server.advance(6_000)
    assert server("CANCEL", job_id, other) == [b"cancelled", b"done"]
    server.node.flush()
    assert server("CANCEL", job_id, other) == [b"unknown", b"unknown"]


def test_those_who_wait_hear_that_a_job_is_cancelled(server: Server) -> None:
    job_id = server.add()
    server("WAITJOB", 0, job_id, client="anna")
    server("CANCEL", job_id)
    server.advance(1)
    assert server.answers["anna"] == [[[job_id, b"cancelled", None, 0, b"cancelled"]]]


def test_one_whose_result_would_be_kept_is_known_to_be_cancelled(server: Server) -> None:
    job_id = server.add("q", "body", "RESULT", 10)
    server("CANCEL", job_id)
    assert server("WAITJOB", 0, job_id) == [[job_id, b"cancelled", None, 0, b"cancelled"]]
    shown = server.show(job_id)
    assert shown is not None
    assert (shown["state"], shown["cancelled"]) == (b"acked", 1)
    assert server("CANCEL", job_id) == [b"cancelled"]
    server.advance(10_001)
    assert server.show(job_id) is None


def test_one_that_a_consumer_has_ends_instead_of_being_queued_again(server: Server) -> None:
    job_id = server.add("q", "body", "RETRY", 10)
    server.get("q")
    server("WAITJOB", 0, job_id, client="anna")
    assert server("CANCEL", job_id) == [b"cancelling"]
    assert server("CANCEL", job_id) == [b"cancelling"]
    assert server.refusal("WORKING", job_id) == "CANCELLED The job was cancelled: stop working on it."
    shown = server.show(job_id)
    assert shown is not None
    assert (shown["state"], shown["cancelled"]) == (b"active", 1)
    server.advance(10_001)
    assert server.show(job_id) is None
    assert server.get("q") == []
    assert server.answers["anna"] == [[[job_id, b"cancelled", None, 1, b"cancelled"]]]
    check(server)


@pytest.mark.parametrize("command", ["NACK", "ENQUEUE"])
def test_one_that_its_consumer_gives_back_ends(server: Server, command: str) -> None:
    job_id = server.add()
    server.get("q")
    server("CANCEL", job_id)
    server(command, job_id)
    assert server.get("q") == []
    assert server.show(job_id) is None


def test_one_that_its_consumer_never_saw_ends(server: Server) -> None:
    job_id = server.add("q", "body", "RETRY", 10)
    server.get("q", client="anna")
    job = server.job(job_id)
    server("CANCEL", job_id)
    server.node.begin()
    server.node.delivery.give_back([job])
    server.settle()
    server.advance(1)
    assert server.show(job_id) is None
    assert server.get("q") == []


@pytest.mark.parametrize("words", [(), ("RESULT", "done")])
def test_an_acknowledgement_after_it_wins(server: Server, words: tuple[str, ...]) -> None:
    job_id = server.add("q", "body", "RESULT", 10)
    server.get("q")
    server("CANCEL", job_id)
    assert server("ACKJOB", job_id, *words) == 1
    result = b"done" if words else b""
    assert server("WAITJOB", 0, job_id) == [[job_id, b"acked", result, 1, b"acknowledged"]]
    assert server("CANCEL", job_id) == [b"done"]


def test_one_that_was_acknowledged_is_done_and_an_event_is_refused(server: Server) -> None:
    job_id = server.add("q", "body", "RESULT", 10)
    server("ACKJOB", job_id)
    assert server("CANCEL", job_id) == [b"done"]
    event = server("QADD", "log", 100, "event")
    other = server.add()
    assert server.refusal("CANCEL", other, event).startswith("WRONGTYPE")
    assert len(server.get("q")) == 1


def test_its_live_worker_is_told(server: Server) -> None:
    job_id = server.add()
    server("WORKER", "START", "ID", "w", client="w")
    server.state.demand.listeners[server.node.id] = None
    server("GETJOB", "NOHANG", "WORKER", "w", "FROM", "q", client="w")
    server("CANCEL", job_id)
    assert [event for event in server.events if event[1] == b"cancel"] == [(b"q", b"cancel", job_id + b":1", None)]


@pytest.mark.parametrize("restores", [True, False])
def test_a_restart_does_not_bring_it_back(server: Server, restores: bool) -> None:
    job_id = server.add("q", "body", "RETRY", 10)
    server.get("q")
    server("CANCEL", job_id)
    other = Server()
    recovery = Recovery(other.state, restores_queues=restores)
    offset = server.state.wall - server.state.now
    for record in walk(server.state):
        if record is not None and record[0] == JOB_ADDED:
            recovery.apply(decode_record(encode_job(record[1], offset)))  # type: ignore[arg-type]
    recovery.finish()
    other.advance(60_000)
    assert other.show(job_id) is None
    assert other.get("q") == []


# Several nodes.


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_it_ends_on_all_nodes_whichever_is_asked(place: int) -> None:
    cluster = Cluster(4)
    job_id = held(cluster, "RETRY", 5)
    assert cancelled(cluster.members[place], job_id, UNKNOWN_ID) == [b"cancelled", b"unknown"]
    cluster.advance(20_000)
    assert not any(member.holds(job_id) for member in cluster)
    assert deliveries(cluster) == []
    assert [cancelled(member, job_id) for member in cluster] == [[b"cancelled"]] * 4


@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_delayed_job_ends_whichever_node_is_asked(place: int) -> None:
    cluster = Cluster(4)
    job_id = held(cluster, "RETRY", 5, "DELAY", 50)
    assert cancelled(cluster.members[place], job_id) == [b"cancelled"]
    cluster.advance(100_000)
    assert not any(member.holds(job_id) for member in cluster)
    assert deliveries(cluster) == []


@pytest.mark.parametrize("place", [0, 1, 3])
def test_one_that_a_consumer_has_ends_on_all_nodes_when_its_time_is_over(place: int) -> None:
    cluster = Cluster(4)
    a = cluster.members[0]
    job_id = held(cluster, "RETRY", 10)
    cluster.advance(6_000)
    a.get("q")
    assert cancelled(cluster.members[place], job_id) == [b"cancelling"]
    # The copies are as old as the job, and their timers end while the consumer has it.
    cluster.advance(9_000)
    assert a.refusal("WORKING", job_id).startswith("CANCELLED ")
    assert a.show(job_id)["state"] == b"active"  # type: ignore[index]
    cluster.advance(2_000)
    assert not any(member.holds(job_id) for member in cluster)
    assert deliveries(cluster) == []


def test_an_acknowledgement_on_another_node_wins() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = held(cluster, "RETRY", 10, "RESULT", 100)
    a.get("q")
    assert cancelled(b, job_id) == [b"cancelling"]
    c("ACKJOB", job_id, "RESULT", "42")
    cluster.advance(20_000)
    for member in cluster:
        shown = member.show(job_id)
        assert shown is not None
        assert (shown["state"], shown["result"], shown["cancelled"]) == (b"acked", b"42", 1)


def test_a_node_that_was_away_learns_it_before_it_delivers() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = held(cluster, "RETRY", 5)
    cluster.isolate(a)
    assert cancelled(b, job_id) == [b"cancelling"]
    cluster.heal(a, b)
    cluster.heal(a, c)
    cluster.advance(10)
    assert not any(member.get("q") for member in cluster)
    cluster.advance(60_000)
    assert not any(member.holds(job_id) for member in cluster)
    assert deliveries(cluster) == []


@pytest.mark.parametrize("kind", [FATE, SETACK])
def test_a_lost_word_is_said_again(kind: int) -> None:
    cluster = Cluster(3)
    a, b, _ = cluster
    job_id = held(cluster, "RETRY", 50)
    a.get("q")
    lost: list[object] = []

    def lose(flight: object) -> bool:
        if flight.kind in (kind, CANCEL) and len(lost) < 4:  # type: ignore[attr-defined]
            lost.append(flight)
            return True
        return False

    cluster.lose = lose  # type: ignore[assignment]
    b("CANCEL", job_id, client="operator")
    cluster.advance(12_000)
    assert lost
    assert b.answers["operator"] == [[b"cancelling"]]
    assert a.refusal("WORKING", job_id).startswith("CANCELLED ")


def test_nodes_that_say_nothing_are_waited_for_two_seconds() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    cluster.lose = lambda flight: flight.kind == CANCELLED and flight.sender is c
    a("CANCEL", UNKNOWN_ID, client="operator")
    cluster.advance(1_999)
    assert a.answers["operator"] == []
    cluster.advance(2)
    assert a.answers["operator"] == [[b"unknown"]]
    a("CANCEL", UNKNOWN_ID, client="gone")
    a.gone("gone")
    b("CANCEL", UNKNOWN_ID, client="cut")
    cluster.isolate(c)
    assert b.answers["cut"] == [[b"unknown"]]
    cluster.advance(3_000)
    assert not a.state.waiting.waits


def test_one_that_is_on_its_way_to_another_node_is_not_queued_there() -> None:
    cluster = Cluster(2)
    a, b = cluster
    a("ADDJOB", "q", "body", 0, "REPLICATE", 2, "RETRY", 5)
    (job_id,) = a.answers.pop("client")
    cluster.hold(a, b)
    b.wait("consumer")
    cluster.advance(3_000)
    # It is in the queue of neither, and a knows no consumer of it.
    a("CANCEL", job_id, client="operator")
    cluster.release(a, b, order=reversed)
    cluster.advance(30_000)
    assert b.answered("consumer") == []
    assert not any(member.holds(job_id) for member in cluster)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("options", [(), ("BACKOFF", 30)])
def test_a_job_that_is_put_off_ends_at_once_on_all_holders(place: int, options: tuple[str | int, ...]) -> None:
    cluster = Cluster(2)
    a, _ = cluster
    a("ADDJOB", "q", "body", 0, "REPLICATE", 2, "RETRY", 60, *options)
    (job_id,) = a.answers.pop("client")
    a.get("q")
    assert a("NACK", job_id, *(() if options else ("DELAY", 30))) == 1
    cluster.advance(1)
    assert cancelled(cluster.members[place], job_id) == [b"cancelled"]
    cluster.advance(1)
    assert not any(member.holds(job_id) for member in cluster)


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize("options", [(), ("RESULT", 60), ("MAXTRIES", 3), ("DELAY", 60)])
@pytest.mark.parametrize("steps", [(), ("get",), ("get", "NACK"), ("get", "NACK DELAY 30"), ("get", "NACK DEAD")])
def test_a_cancelled_job_counts_once_whoever_is_asked(
    place: int, options: tuple[str | int, ...], steps: tuple[str, ...]
) -> None:
    cluster = Cluster(4)
    a = cluster.members[0]
    a("ADDJOB", "q", "body", 0, "REPLICATE", 3, "RETRY", 60, *options)
    (job_id,) = a.answers.pop("client")
    for step in () if "DELAY" in options else steps:
        word, *words = step.split()
        assert a.get() if word == "get" else a(word, job_id, *words)
    cluster.advance(1)
    cluster.members[place]("CANCEL", job_id, client="rosa")
    cluster.advance(100)
    a("NACK", job_id)
    cluster.advance(100)
    counters = [member.state.counters for member in cluster]
    assert sum(each.cancelled - each.cancels_heard for each in counters) == 1
    assert sum(each.acked for each in counters) == 0
