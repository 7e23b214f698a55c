"""Leaving before the end: when a node does, how long it waits, and what ends that."""

from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from disqued.net.process.drain import LOOK_S, TOLD_EVERY_S, Drain


class Daemon:
    """As much of a daemon as is looked at; it has another node, and jobs that never get there."""

    def __init__(self, timeout: int = 10) -> None:
        self.reactor = Clock()
        self.config = SimpleNamespace(cluster_leave_timeout=timeout)
        self.identity = SimpleNamespace(hides_leaving=False)
        self.loading = self.ending = False
        leaving = SimpleNamespace(is_safe=False, facts=lambda: {"cluster_leaving_jobs_left": "7"})
        state = SimpleNamespace(leaving=False, peers=SimpleNamespace(reachable=(b"other",)))
        self.node = SimpleNamespace(leaving=leaving, state=state)

    def leave(self) -> None:
        """CLUSTER LEAVING yes."""
        self.node.state.leaving = True

    def stop(self, told: list[str]) -> list[None]:
        """Begin to stop; what is returned holds something when the node may stop."""
        over: list[None] = []
        of: Any = self
        self.farewell = Drain(of, told.append)
        Deferred.fromCoroutine(self.farewell.say()).addCallback(over.append)
        return over


def test_a_node_that_need_not_leave_stops_at_once() -> None:
    daemon = Daemon(timeout=0)
    assert daemon.stop([])
    assert not daemon.node.state.leaving


def test_it_waits_until_nothing_is_lost_by_a_stop_and_tells_how_far_it_is() -> None:
    daemon, told = Daemon(), list[str]()
    over = daemon.stop(told)
    assert daemon.node.state.leaving
    daemon.reactor.pump([LOOK_S] * round(3.5 * TOLD_EVERY_S / LOOK_S))
    assert told == ["Leaving before the stop: 7 jobs to be handed on"] * 4
    assert not over
    daemon.node.leaving.is_safe = True
    daemon.reactor.advance(LOOK_S)
    assert over


def test_it_waits_for_its_time_at_most() -> None:
    daemon = Daemon(timeout=10)
    over = daemon.stop([])
    daemon.reactor.pump([LOOK_S] * round(9.8 / LOOK_S))
    assert not over
    daemon.reactor.pump([LOOK_S] * 4)
    assert over


def stops(daemon: Daemon) -> None:
    daemon.ending = True


def has_no_time(daemon: Daemon) -> None:
    daemon.config.cluster_leave_timeout = 0


def is_alone(daemon: Daemon) -> None:
    daemon.node.state.peers.reachable = ()


def is_hurried(daemon: Daemon) -> None:
    daemon.farewell.hurry()


@pytest.mark.parametrize("happens", [stops, has_no_time, is_alone, is_hurried])
def test_the_waiting_ends_when_it_is_of_no_use_or_not_wanted_any_more(happens: Any) -> None:
    daemon = Daemon()
    over = daemon.stop([])
    daemon.reactor.pump([LOOK_S] * 5)
    assert not over
    happens(daemon)
    daemon.reactor.advance(LOOK_S)
    assert over


def test_the_file_of_a_node_that_leaves_to_stop_does_not_say_so_and_that_of_one_that_left_before_does() -> None:
    daemon = Daemon()
    daemon.stop([])
    assert daemon.identity.hides_leaving
    other = Daemon()
    other.leave()
    other.stop([])
    assert not other.identity.hides_leaving


def test_a_node_that_still_loads_has_nothing_to_hand_on() -> None:
    daemon = Daemon()
    daemon.loading = True
    assert daemon.stop([])
