"""Clients that wait for something and go: what they waited for ends, at the same cost however many others wait."""

from collections.abc import Callable

import pytest

from disqued.commands.table import BLOCKED
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import Word
from tests.counting import lines_of

FEW, MANY = 10, 200
#: What a client waits for: the words of its command by its number.
WAITS: dict[str, Callable[[int], tuple[Word, ...]]] = {
    "copies": lambda number: ("ADDJOB", "q", f"body {number}", 0, "REPLICATE", 2),
    "copies of several jobs": lambda number: ("RQ.PUSH", "list", "REPLICATE", 2, f"a {number}", f"b {number}"),
    "one key": lambda number: ("ADDJOB", "q", "body", 0, "KEY", "key"),
    "keys": lambda number: ("ADDJOB", "q", "body", 0, "KEY", f"key {number}"),
    "event ids": lambda number: ("QLPUSH", "q", f"event {number}", "x"),
    "whether an event is done": lambda number: ("QACK", "q", f"event {number}"),
}


def waiting(words: Callable[[int], tuple[Word, ...]], count: int) -> Cluster:
    """A cluster with so many clients of its first node that wait for the second, which says nothing."""
    cluster = Cluster(2)
    a, b = cluster
    cluster.hold(b, a)
    for number in range(count):
        assert a(*words(number), client=f"client {number}") is BLOCKED
    return cluster


def what_waits(a: Member) -> list[object]:
    return [a.state.waiting.waits, a.node.replication.pending, a.node.keys.adding]


def leave(a: Member, number: int) -> int:
    """Let a client go; returns what it cost."""
    a.node.begin()
    return lines_of(lambda: a.node.gone(f"client {number}"))


@pytest.mark.parametrize("what", WAITS)
def test_a_client_that_goes_costs_the_same_however_many_wait(what: str) -> None:
    few, many = waiting(WAITS[what], FEW), waiting(WAITS[what], MANY)
    least = leave(few.members[0], FEW // 2)
    assert max(leave(many.members[0], number) for number in (0, MANY // 2, MANY - 1)) <= 1.2 * least + 10


@pytest.mark.parametrize("what", WAITS)
def test_nothing_is_left_of_clients_that_have_gone(what: str) -> None:
    cluster = waiting(WAITS[what], FEW)
    a, b = cluster
    for number in range(FEW):
        a.gone(f"client {number}")
    assert what_waits(a) == [{}, {}, {}]
    cluster.release(b, a)
    assert not any(a.answers.values())


@pytest.mark.parametrize("what", WAITS)
def test_a_client_that_waits_may_leave_after_a_flush_of_the_node(what: str) -> None:
    cluster = Cluster(2)
    a, b = cluster
    a("DEBUG", "FLUSHALL")
    cluster.hold(b, a)
    assert a(*WAITS[what](0), client="client") is BLOCKED
    a.gone("client")
    assert what_waits(a) == [{}, {}, {}]


@pytest.mark.parametrize("what", WAITS)
def test_nothing_is_left_of_clients_that_have_been_answered(what: str) -> None:
    cluster = waiting(WAITS[what], FEW)
    a, b = cluster
    cluster.release(b, a)
    assert [len(a.answers[f"client {number}"]) for number in range(FEW)] == [1] * FEW
    assert what_waits(a) == [{}, {}, {}]
