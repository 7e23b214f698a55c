"""Questions of views to all nodes: who shares an answer, what is missing, and walks to the end."""

from collections.abc import Coroutine
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.task import Clock

from disqued.errors import CommandError
from disqued.web.views.everywhere import FRESH_S, ClusterReply, Everywhere, NodeReply, total

A, B, C = b"a" * 40, b"b" * 40, b"c" * 40


@attrs.define
class Node:
    """The daemon, as far as questions need it: each call waits to be answered by the test."""

    reactor: Clock = attrs.field(factory=Clock)
    calls: list[tuple[list[bytes], Deferred[Any]]] = attrs.field(factory=list)

    @property
    def clients(self) -> "Node":
        return self

    def call(self, words: list[bytes], *, address: str) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self.calls.append((words, answer))
        return answer

    def answer(self, *rows: tuple[bytes, bytes, Any]) -> list[bytes]:
        words, answer = self.calls.pop(0)
        answer.callback(list(rows))
        return words


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def everywhere(node: Node) -> Everywhere:
    return Everywhere(node)


def heard(work: Coroutine[Any, Any, Any]) -> list[Any]:
    """What it returned, or the exception, once there is either."""
    outcome: list[Any] = []
    ensureDeferred(work).addCallbacks(outcome.append, lambda failure: outcome.append(failure.value))
    return outcome


def test_those_who_ask_the_same_share_an_answer(node: Node, everywhere: Everywhere) -> None:
    first, second = heard(everywhere.ask(b"QLEN", b"q")), heard(everywhere.ask(b"QLEN", b"q"))
    assert node.answer((A, b"ok", 1)) == [b"CLUSTER", b"ASK", b"*", b"QLEN", b"q"]
    third = heard(everywhere.ask(b"QLEN", b"q"))
    assert not node.calls
    assert first[0] is second[0] is third[0]
    node.reactor.advance(FRESH_S + 0.1)
    heard(everywhere.ask(b"QLEN", b"q"))
    assert len(node.calls) == 1


def test_another_question_or_node_is_asked_for_itself(node: Node, everywhere: Everywhere) -> None:
    heard(everywhere.ask(b"QLEN", b"q"))
    heard(everywhere.ask(b"QLEN", b"other"))
    heard(everywhere.ask(b"QLEN", b"q", node_id=A))
    assert [words[2:] for words, _ in node.calls] == [
        [b"*", b"QLEN", b"q"], [b"*", b"QLEN", b"other"], [A, b"QLEN", b"q"]
    ]  # fmt: skip


def test_a_refusal_reaches_all_who_wait_and_is_not_kept(node: Node, everywhere: Everywhere) -> None:
    first, second = heard(everywhere.ask(b"QLEN", b"q")), heard(everywhere.ask(b"QLEN", b"q"))
    node.calls.pop(0)[1].errback(CommandError("no"))
    assert [str(outcome[0]) for outcome in (first, second)] == ["no", "no"]
    heard(everywhere.ask(b"QLEN", b"q"))
    assert len(node.calls) == 1


def test_one_who_has_gone_does_not_take_the_answer_along(node: Node, everywhere: Everywhere) -> None:
    gone = ensureDeferred(everywhere.ask(b"QLEN", b"q"))
    stays = heard(everywhere.ask(b"QLEN", b"q"))
    gone.addErrback(lambda failure: None)
    gone.cancel()
    node.answer((A, b"ok", 1))
    assert stays[0].answered[0].value == 1


def test_a_walk_goes_on_on_each_node_to_its_end(node: Node, everywhere: Everywhere) -> None:
    outcome = heard(everywhere.walk(b"QSCAN", b"REPLY", b"all", count=2))
    assert node.answer((A, b"ok", [b"7", [1, 2]]), (B, b"ok", [b"0", [5]]), (C, b"silent", None)) == [
        b"CLUSTER", b"ASK", b"*", b"QSCAN", b"0", b"REPLY", b"all", b"COUNT", b"2"
    ]  # fmt: skip
    assert node.answer((A, b"ok", [b"9", [3]]))[2:5] == [A, b"QSCAN", b"7"]
    node.answer((A, b"ok", [b"0", [4]]))
    ((reply, found),) = outcome
    assert found == {A: [1, 2, 3, 4], B: [5]}
    assert [each.node_id for each in reply.missing] == [C]


def test_a_node_that_falls_silent_within_a_walk_leaves_what_it_said(node: Node, everywhere: Everywhere) -> None:
    outcome = heard(everywhere.walk(b"QSCAN"))
    node.answer((A, b"ok", [b"7", [1, 2]]))
    node.answer((A, b"away", None))
    ((reply, found),) = outcome
    assert found == {A: [1, 2]}
    assert [each.status for each in reply.missing] == [b"away"]


def test_pages_of_a_walk_are_not_kept(node: Node, everywhere: Everywhere) -> None:
    for _ in range(2):
        heard(everywhere.walk(b"QSCAN"))
        if len(node.calls) == 1 and node.calls[0][0][4] == b"0":
            node.answer((A, b"ok", [b"7", [1]]))
        assert node.answer((A, b"ok", [b"0", [2]]))[4] == b"7", "the first page is shared, the others are asked for"


def test_fields_are_read_by_name_and_added_up() -> None:
    replies = [
        NodeReply(A, b"ok", [b"len", 2, b"done", 1]), NodeReply(B, b"ok", [b"len", 3]), NodeReply(C, b"away", None),
    ]  # fmt: skip
    reply = ClusterReply(0.0, replies)
    rows = [each.fields for each in reply.replies]
    assert rows == [{"len": 2, "done": 1}, {"len": 3}, {}]
    assert (total(rows, "len"), total(rows, "done")) == (5, 1)
    assert NodeReply(A, b"ok", None).fields == {}
