"""Many commands on one connection: how many are under way, and in which order their replies come; no daemon."""

import gc
from collections.abc import Sequence
from typing import Any

import pytest
import redis

from disqued.client.errors import ServerError, Unreachable
from disqued.pipeline.connector.nodes import NodeLink, uncollected


class Wire:
    """A connection whose other end answers each command with what it says."""

    def __init__(self, most: int = 0) -> None:
        self.most = most  #: commands that are answered; 0 = all
        self.answered = 0
        self.under_way: list[Any] = []
        self.sent: list[int] = []  #: commands that were under way after each piece was sent
        self.is_closed = False

    def pack_commands(self, commands: Sequence[Any]) -> Sequence[Any]:
        return commands

    def send_packed_command(self, commands: Sequence[Any], check_health: bool) -> None:
        self.under_way += commands
        self.sent.append(len(self.under_way))

    def read_response(self, disable_decoding: bool) -> Any:
        if self.most and self.answered == self.most:
            raise redis.exceptions.ConnectionError("gone")
        self.answered += 1
        [word] = self.under_way.pop(0)
        if word == "refused":
            raise redis.exceptions.ResponseError("ERR refused")
        return word

    def disconnect(self) -> None:
        self.is_closed = True


def link_on(wire: Wire, pipeline: int) -> NodeLink:
    link = NodeLink.__new__(NodeLink)
    vars(link).update(address=("127.0.0.1", 7711), _pipeline=pipeline, _connection=wire)
    return link


@pytest.mark.parametrize("pipeline", [1, 2, 3, 10, 1_000])
@pytest.mark.parametrize("count", [0, 1, 2, 9, 10, 11, 95])
def test_replies_are_in_order_and_no_more_is_under_way_than_allowed(pipeline: int, count: int) -> None:
    wire = Wire()
    assert link_on(wire, pipeline).ask_all([[number] for number in range(count)]) == list(range(count))
    assert max(wire.sent, default=0) <= pipeline
    assert not wire.under_way


def test_the_node_has_the_next_piece_while_the_replies_to_one_are_read() -> None:
    wire = Wire()
    link_on(wire, 10).ask_all([[number] for number in range(30)])
    assert wire.sent == [5, 10, 10, 10, 10, 10]


def test_a_refusal_is_a_reply_and_what_comes_behind_it_is_read() -> None:
    first, refusal, last = link_on(Wire(), 2).ask_all([["a"], ["refused"], ["b"]])
    assert (first, last) == ("a", "b")
    assert isinstance(refusal, ServerError)


def test_a_connection_that_ends_in_the_midst_is_closed_and_told_of() -> None:
    wire = Wire(most=7)
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:7711 does not answer: gone"):
        link_on(wire, 10).ask_all([[number] for number in range(30)])
    assert (wire.answered, wire.sent) == (7, [5, 10, 10])
    assert wire.is_closed


def fail_uncollected() -> None:
    with uncollected():
        assert not gc.isenabled()
        raise ValueError("broken")


@pytest.mark.parametrize("is_on", [True, False])
def test_the_collector_is_what_it_was_before_whatever_happens(is_on: bool) -> None:
    before = gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        with pytest.raises(ValueError, match="broken"):
            fail_uncollected()
        assert gc.isenabled() is is_on
    finally:
        (gc.enable if before else gc.disable)()
