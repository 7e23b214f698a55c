"""The examples of bananaq's README, run as they are written there, give the replies that it documents.

Ids are of another form here.  Its sample of QSTATUS is of queues whose history it does not tell, which is made first.
The examples of okq's commands, which the same README lists, are of queues of work.
"""

import shlex

import pytest

from tests.unit.commands.test_streams import Bench


@pytest.fixture
def node() -> Bench:
    return Bench()


def typed(node: Bench, line: str) -> object:
    """Run a line as it stands behind the prompt of the README."""
    return node(*shlex.split(line))


def test_qadd_returns_the_id_and_ok_with_noblock(node: Bench) -> None:
    event_id = typed(node, "QADD queue 60 contents")
    assert isinstance(event_id, bytes)
    assert typed(node, "QADD queue 60 contents NOBLOCK") == b"OK"


def test_qget_returns_the_id_and_the_contents_and_nil_if_the_queue_is_empty(node: Bench) -> None:
    event_id = typed(node, 'QADD foo 60 "event contents to be consumed"')
    assert typed(node, "QGET foo cool-kids") == [event_id, b"event contents to be consumed"]
    assert typed(node, "QGET foo cool-kids") is None


@pytest.mark.parametrize("seconds", ["30", "0.5", "2.25"])
def test_ex_may_be_an_integer_or_a_float(node: Bench, seconds: str) -> None:
    typed(node, "QADD foo 60 x")
    assert typed(node, f"QGET foo cool-kids EX {seconds}")
    node.advance(int(float(seconds) * 1_000) + 1)
    assert typed(node, "QGET foo cool-kids")


def test_qack_returns_one_if_successful_and_zero_if_not(node: Bench) -> None:
    event_id = node.event("x", "foo")
    typed(node, "QGET foo cool-kids")
    assert typed(node, f"QACK foo cool-kids {event_id.decode()}") == 1
    assert typed(node, f"QACK foo cool-kids {event_id.decode()}") == 0


def test_qnotify_returns_the_name_of_the_queue_and_nil_after_the_timeout(node: Bench) -> None:
    node.event("x", "bar")
    assert typed(node, "QNOTIFY cool-kids 10 foo bar") == b"bar"
    typed(node, "QNOTIFY cool-kids 10 foo baz")
    node.advance(10_000)
    assert node.answers["client"] == [None]


def test_qflush_makes_it_as_if_the_queue_never_existed(node: Bench) -> None:
    node.event("x", "foo")
    assert typed(node, "QFLUSH foo") == b"OK"
    assert typed(node, "QSTATUS") == []


def the_history_of_the_sample(node: Bench) -> None:
    """Five events in foo and bar; one done, one with a consumer, two that came back, one that nobody had."""
    for name, group in (("foo", "consumerGroup1"), ("foo", "consumerGroup2"), ("bar", "consumerGroup")):
        if node("QLEN", name) == 0:
            for number in range(5):
                node.event(number, name, 600)
        for seconds in (0, 1, 1):
            node.take(group, "EX", seconds, queue=name)
        node("QGET", name, group, "EX", 500)
    node.advance(1_001)
    consumers = {("consumerGroup1", "foo"): 2, ("consumerGroup2", "foo"): 3, ("consumerGroup", "bar"): 4}
    for (group, queue), count in consumers.items():
        for number in range(count):
            node("QREGISTER", "GROUP", group, queue, client=(group, number))


def test_qstatus_has_the_layout_of_the_sample(node: Bench) -> None:
    the_history_of_the_sample(node)

    def figures(consumers: int) -> list[bytes | int]:
        return [
            b"total", 5, b"inprogress", 1, b"redo", 2, b"done", 1, b"available", 1, b"consumers", consumers,
        ]  # fmt: skip

    assert typed(node, "QSTATUS foo bar") == [
        [b"foo", [b"consumerGroup1", figures(2), b"consumerGroup2", figures(3)]],
        [b"bar", [b"consumerGroup", figures(4)]],
    ]


def test_qinfo_has_the_lines_of_the_sample(node: Bench) -> None:
    the_history_of_the_sample(node)
    assert typed(node, "QINFO foo bar") == [
        b"foo consumerGroup1 total:5 inprogress:1 redo:2 done:1 available:1 consumers:2",
        b"foo consumerGroup2 total:5 inprogress:1 redo:2 done:1 available:1 consumers:3",
        b"bar consumerGroup  total:5 inprogress:1 redo:2 done:1 available:1 consumers:4",
    ]


def test_an_event_is_only_handed_out_to_one_consumer_within_a_group(node: Bench) -> None:
    """The README's own scenario: A is done, foo has B; bar gets C."""
    ids = [node.event(body) for body in "ABCD"]
    node.take()
    node.ack(ids[0])
    assert node("QGET", "q", "g", client="foo")[1] == b"B"
    assert node("QGET", "q", "g", client="bar")[1] == b"C"
