"""What workers took from reliable lists, in a cluster: who holds it, and what becomes of it when nodes go."""

from collections.abc import Iterator

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model import messages as m
from tests.cluster_fixtures import Cluster, Member
from tests.unit.core.test_lists_cluster import ask, check_but_journal, pending, pop_anywhere, push, recover, state_of
from tests.unit.core.workers.test_workers_cluster import FAILED_MS, check_workers
from tests.unit.core.workers.test_workers_life import info


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(3)
    yield made
    for member in made:
        check_workers(member)
        check_but_journal(member)


def begin(member: Member, name: str = "w") -> None:
    """Start a worker that lives as long as its connection, which has its name."""
    member("WORKER", "START", "ID", name, "TTL", 0, "BIND", client=name)


def take(member: Member, name: str = "w", count: int = 10) -> list[bytes]:
    return [body for _, _, body in member("RQ.POP", "COUNT", count, "WORKER", name, "q", client=name)]


def take_back(member: Member, name: str = "w", elapsed: int = 0, client: str = "other") -> list[bytes]:
    return [body for _, body in ask(member, "RQ.RECOVER", "q", 10, elapsed, "WORKER", name, client=client)]


def waiting(member: Member) -> list[bytes]:
    queue = member.state.queues.by_name.get(b"q")
    return [] if queue is None else [unit.body for unit in queue.units]


def die(member: Member, name: str = "w") -> None:
    member.gone(name)
    member.cluster.settle()


def test_all_holders_know_what_a_worker_has_as_delivered_and_as_its_own(cluster: Cluster) -> None:
    a, *others = cluster
    push(a, "x", "y")
    begin(a)
    assert take(a) == [b"x", b"y"]
    for member in others:
        assert pending(member) == [(b"x", 1), (b"y", 1)]
        [home] = {home.worker_id for home in member.state.custody.elsewhere.values()}
        assert home == b"w"
        assert len(member.state.custody.elsewhere) == 2


def test_all_holders_hear_that_it_came_back(cluster: Cluster) -> None:
    a, *others = cluster
    push(a, "x", "y")
    begin(a)
    take(a)
    die(a)
    assert waiting(a) == [b"x", b"y"]
    for member in others:
        assert pending(member) == []
        assert not member.state.custody.elsewhere


def test_a_copy_asks_after_what_came_back_though_it_did_not_hear_so(cluster: Cluster) -> None:
    a, b, c = cluster
    push(a, "x")
    begin(a)
    take(a)
    cluster.lose = lambda flight: flight.kind == m.QUEUED
    die(a)
    cluster.lose = lambda flight: False
    cluster.isolate(a)
    cluster.advance(200_000)
    assert sorted([*waiting(b), *waiting(c)]) == [b"x"]


def test_what_a_worker_had_on_a_node_that_fails_is_queued_in_front_by_others(cluster: Cluster) -> None:
    a, b, c = cluster
    push(a, "1", "2", "3")
    begin(a)
    take(a)
    for member in (b, c):
        member.add("q", "later", "REPLICATE", 1)
    cluster.isolate(a)
    cluster.advance(FAILED_MS)
    assert sorted(waiting(b)[:-1] + waiting(c)[:-1]) == [b"1", b"2", b"3"]
    for member in (b, c):
        assert waiting(member)[-1] == b"later"
        assert pending(member) == []


def test_what_a_consumer_without_a_worker_had_there_stays_delivered(cluster: Cluster) -> None:
    a, b, c = cluster
    push(a, "x")
    a("RQ.POP", "q")
    begin(a)
    cluster.isolate(a)
    cluster.advance(FAILED_MS)
    assert waiting(b) == waiting(c) == []
    assert pending(b) == [(b"x", 1)]


def test_a_holder_that_asks_hears_whose_it_is(cluster: Cluster) -> None:
    a, b, _ = cluster
    push(a, "x")
    cluster.lose = lambda flight: flight.kind in (m.DELIVERED, m.LEASED) and flight.receiver is b
    begin(a)
    take(a)
    cluster.lose = lambda flight: False
    assert not b.state.custody.elsewhere
    cluster.advance(70_000)
    assert pending(b) == [(b"x", 1)]
    assert len(b.state.custody.elsewhere) == 1


def test_what_somebody_recovers_on_the_same_node_is_known_to_be_the_workers_no_more(cluster: Cluster) -> None:
    a, b, _ = cluster
    push(a, "x")
    begin(a)
    take(a)
    assert recover(a) == [b"x"]
    assert not b.state.custody.elsewhere
    assert pending(b) == [(b"x", 2)]
    cluster.isolate(a)
    cluster.advance(FAILED_MS)
    assert waiting(b) == []


def test_what_a_worker_of_another_node_has_can_be_recovered_for_nobody(cluster: Cluster) -> None:
    a, b, _ = cluster
    push(a, "x")
    begin(a)
    take(a)
    assert recover(b) == [b"x"]
    assert info(a, "w")["processes"] == 0
    die(a)
    assert waiting(a) == []
    assert pending(a) == [(b"x", 2)]


@pytest.mark.parametrize("replicate", [2, 3])
def test_a_worker_recovers_what_consumers_of_other_nodes_have_and_then_has_it(cluster: Cluster, replicate: int) -> None:
    a, b, c = cluster
    a.node.lists.replicate = replicate
    push(a, "x", "y")
    a("RQ.POP", "COUNT", 2, "q")
    holder = b if b.state.jobs.get(next(iter(a.state.jobs)).id) is not None else c
    begin(holder)
    assert take_back(holder) == [b"x", b"y"]
    assert info(holder, "w")["processes"] == 2
    assert pending(a) == pending(holder) == [(b"x", 2), (b"y", 2)]
    assert len(a.state.custody.elsewhere) == 2
    die(holder)
    assert waiting(holder) == [b"x", b"y"]
    assert waiting(a) == []
    assert not a.state.custody.elsewhere


def test_a_worker_recovers_from_a_worker_of_another_node(cluster: Cluster) -> None:
    a, b, _ = cluster
    push(a, "x")
    begin(a)
    begin(b, "v")
    take(a)
    assert take_back(b, "v") == [b"x"]
    assert [info(a, "w")["processes"], info(b, "v")["processes"]] == [0, 1]
    die(a)
    assert waiting(a) == waiting(b) == []
    die(b, "v")
    assert waiting(b) == [b"x"]


def test_a_worker_that_dies_while_other_nodes_are_asked_gets_nothing(cluster: Cluster) -> None:
    a, b, _ = cluster
    push(a, "x")
    a("RQ.POP", "q")
    begin(b)
    cluster.hold(a, b)
    assert b("RQ.RECOVER", "q", 10, 0, "WORKER", "w", client="other") is BLOCKED
    die(b)
    cluster.release(a, b)
    cluster.advance(3_000)
    [refusal] = b.answers["other"]
    assert refusal.line.startswith(b"NOWORKER")
    assert [*waiting(a), *waiting(b)] == [b"x"]


def test_a_node_that_has_not_heard_of_the_worker_gives_it_nothing(cluster: Cluster) -> None:
    a, b, _ = cluster
    push(a, "x")
    a("RQ.POP", "q")
    cluster.lose = lambda flight: flight.kind == m.LIVES
    begin(b)
    cluster.lose = lambda flight: False
    assert take_back(b) == []
    assert pending(a) == [(b"x", 1)]


def test_a_worker_recovers_what_a_node_had_that_is_gone(cluster: Cluster) -> None:
    a, b, _ = cluster
    push(a, "x")
    a("RQ.POP", "q")
    cluster.isolate(a)
    begin(b)
    assert take_back(b) == [b"x"]
    die(b)
    assert waiting(b) == [b"x"]


def test_elements_follow_their_worker_to_another_node(cluster: Cluster) -> None:
    a, b, _ = cluster
    push(a, "x", "y")
    begin(a)
    take(a)
    b("WORKER", "KEEPALIVE", "w", client="again")
    assert info(b, "w")["processes"] == 2
    assert pending(a) == pending(b) == [(b"x", 1), (b"y", 1)]
    b("WORKER", "FAIL", "w")
    assert waiting(b) == [b"x", b"y"]
    assert waiting(a) == []


def test_an_event_stays_with_a_worker_that_moves_until_its_deadline(cluster: Cluster) -> None:
    a, b, _ = cluster
    event_id = ask(a, "QADD", "log", 3_600, "x", "REPLICATE", 1)
    begin(a)
    assert a("QGET", "log", "g", "EX", 10, "WORKER", "w", client="w")[1] == b"x"
    b("WORKER", "KEEPALIVE", "w", client="again")
    b("WORKER", "FAIL", "w")
    assert ask(a, "QGET", "log", "g") is None
    cluster.advance(10_001)
    assert a("QGET", "log", "g")[0] == event_id


def test_the_time_of_a_fetch_ends_for_all_holders_though_its_worker_lives(cluster: Cluster) -> None:
    a, b, c = cluster
    assert ask(a, "QLPUSH", "q", "1", "x", "REPLICATE", 3) == b"OK"
    begin(a)
    assert a("QRPOP", "q", "EX", 10, "WORKER", "w", client="w")[1] == b"x"
    cluster.advance(10_000)
    assert waiting(a) == [b"x"]
    assert [state_of(member, b"x") for member in (b, c)] == ["active", "active"]
    cluster.isolate(a)
    cluster.advance(100_000)
    assert pop_anywhere(b, c) == [b"x"]


def test_a_time_of_a_fetch_ends_on_another_holder_when_its_node_is_cut_off(cluster: Cluster) -> None:
    a, b, c = cluster
    assert ask(a, "QLPUSH", "q", "1", "x", "REPLICATE", 3) == b"OK"
    begin(a)
    a("QRPOP", "q", "EX", 5, "WORKER", "w", client="w")
    cluster.isolate(a)
    cluster.advance(25_000)
    assert sorted([*waiting(b), *waiting(c)]) == [b"x"]


def test_what_two_workers_took_apart_comes_back_with_the_second_death(cluster: Cluster) -> None:
    a, b, c = cluster
    push(a, "x")
    cluster.isolate(a)
    cluster.advance(70_000)
    other = b if waiting(b) else c
    begin(a)
    begin(other, "v")
    assert take(a) == take(other, "v") == [b"x"]
    for member in (b, c):
        cluster.heal(a, member)
    die(a)
    assert waiting(a) == []
    assert info(other, "v")["processes"] == 1
    die(other, "v")
    assert sorted(body for member in cluster for body in waiting(member)) == [b"x"]
