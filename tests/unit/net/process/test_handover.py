"""A handover commits to the successor, says when it holds everything, and lets the turn go on when that is done."""

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import capturedLogs

from disqued.net.process.handover import Handover
from disqued.persistence.interface import StoreFailed


class Turn:
    """A turn that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda: self.asked.append(name)


class Successor:
    """A store whose commit has this outcome."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    def commit(self) -> Any:
        if isinstance(self.outcome, StoreFailed):
            raise self.outcome
        return self.outcome


def handed_over(outcome: Any, named: Any = None) -> tuple[Handover, Turn, list[Any]]:
    """Let a store take over; returns what is told."""
    turn: Any = Turn()
    told: list[Any] = []
    handover = Handover(turn, lambda: None)
    successor: Any = Successor(outcome)
    handover.successor = successor

    def done(error: StoreFailed | None) -> Any:
        told.append(error)
        return named

    handover.hand_over(done)
    assert handover.is_due
    handover.commit()
    return handover, turn, told


def test_nothing_is_acknowledged_until_the_new_store_counts() -> None:
    named: Deferred[None] = Deferred()
    handover, turn, told = handed_over(None, named)
    assert told == [None]
    assert turn.asked == ["rest_soon", "occupy"]
    assert handover.pending is not None
    named.callback(None)
    assert handover.pending is None
    assert not handover.is_due
    assert turn.asked[2:] == ["vacate", "go_on"]


def test_a_commit_that_fails_is_told_however_it_fails() -> None:
    reason = StoreFailed("full")
    for outcome in (reason, fail(reason)):
        handover, turn, told = handed_over(outcome)
        assert told == [reason]
        assert handover.pending is None
        assert turn.asked[-1] == "go_on"


def test_a_bug_of_the_store_is_told_and_logged() -> None:
    with capturedLogs() as events:
        _, turn, told = handed_over(succeed(None).addCallback(lambda _: 1 // 0))
    assert str(told[0]) == "internal error: integer division or modulo by zero"
    assert [event["log_namespace"] for event in events] == ["disqued.net.process.driver.Driver"]
    assert turn.asked[-1] == "go_on"


def test_a_successor_that_is_dropped_does_not_take_over() -> None:
    changes: list[bool] = []
    turn: Any = Turn()
    handover = Handover(turn, lambda: changes.append(True))
    handover.hand_over(lambda error: None)
    handover.drop()
    assert not handover.is_due
    assert handover.successor is None
    assert changes == [True]
