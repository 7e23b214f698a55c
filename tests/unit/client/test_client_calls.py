"""What becomes of a command when nodes refuse, break and come back; nothing is sent here."""

from collections.abc import Callable
from random import Random

import pytest

from disqued.client import commands
from disqued.client.addresses import read_address
from disqued.client.calls import SLICE_S, Call, Patience, Send, Wait
from disqued.client.commands import Command, ConnectionUse
from disqued.client.errors import (
    AccessDenied,
    BadReply,
    NotTrusted,
    ServerError,
    Uncertain,
    Unreachable,
    server_error,
)
from disqued.client.job import Job
from disqued.client.nodes import Nodes
from disqued.client.outcomes import Outcome

ID = b"DI" + b"b" * 8 + b"0" * 32 + b"05a0SQ"
HELLO = [1, b"a" * 40, [b"a" * 40, b"", b"1", b"1"], [b"b" * 40, b"host", b"2", b"1"]]
BROKEN = ConnectionError("reset by peer")


class Way:
    """A command on its way, at a time that the test says."""

    def __init__(self, command: Command, *seeds: str, hello: bool = False) -> None:
        self.nodes = Nodes(map(read_address, seeds or ["host:1", "host:2"]), Random(3))
        self.hello = hello
        self.now = 0.0
        self.call = Call(command, self.nodes, Patience(), self.now)

    def ask(self) -> Send:
        """The next step, which asks a node; pauses are waited for."""
        for _ in range(1_000):
            step = self.call.next(self.now)
            if isinstance(step, Send) and (self.hello or step.words != (b"HELLO",)):
                return step
            if isinstance(step, Send):
                self.answer([1, b"", [b"", b"", b"0", b"1"]])
                continue
            self.now += step.seconds
        raise AssertionError("it pauses for ever")

    def never(self, fail: Callable[[], None]) -> None:
        """Let every attempt fail."""
        for _ in range(1_000):
            self.ask()
            fail()

    def answer(self, reply: object) -> bool:
        return self.call.answered(reply, self.now)

    def refuse(self, text: str) -> None:
        self.call.refused(server_error(text), self.now)


def test_the_nodes_are_asked_for_each_other_first() -> None:
    way = Way(commands.qlen("q"), "host:1", hello=True)
    assert way.ask().words == (b"HELLO",)
    assert not way.answer(HELLO)
    assert way.ask().words == (b"QLEN", b"q")
    assert way.answer(3)
    assert way.call.answer() == 3
    assert way.nodes.addresses() == {("host", 1), ("host", 2)}


@pytest.mark.parametrize("command", [commands.ack(ID), commands.working(ID), commands.qlen("q"), commands.get("q")])
def test_what_may_be_done_twice_is_sent_again_elsewhere_when_the_connection_breaks(command: Command) -> None:
    way = Way(command)
    first = way.ask()
    way.call.broken(BROKEN, way.now)
    second = way.ask()
    assert second.node is not first.node
    assert second.words == first.words


def test_an_addition_is_not_sent_again_and_the_error_says_why() -> None:
    way = Way(commands.add("q", "x"))
    way.ask()
    with pytest.raises(Uncertain, match=r"ADDJOB was answered: it may have been done \(reset by peer\); with a key"):
        way.call.broken(BROKEN, way.now)
    assert way.nodes.choose(0) is not way.call.node, "the next command goes elsewhere"


def test_an_addition_that_was_sent_is_uncertain_however_late_it_is() -> None:
    way = Way(commands.add("q", "x"))
    way.ask()
    way.now = 1_000.0
    with pytest.raises(Uncertain):
        way.call.broken(BROKEN, way.now)


def test_an_addition_is_sent_again_when_it_was_not_sent_or_may_be_done_twice() -> None:
    way = Way(commands.add("q", "x"))
    first = way.ask()
    way.call.not_sent(BROKEN, way.now)
    assert way.ask().node is not first.node
    for again in (commands.add("q", "x", retry_add=True), commands.add("q", "x", key="k")):
        second = Way(again)
        first = second.ask()
        second.call.broken(BROKEN, second.now)
        assert second.ask().node is not first.node


def test_an_unknown_command_is_not_sent_again_unless_the_caller_says_so() -> None:
    way = Way(commands.call("X"))
    way.ask()
    with pytest.raises(Uncertain):
        way.call.broken(BROKEN, way.now)
    again = Way(commands.call("X", repeatable=True))
    again.ask()
    again.call.broken(BROKEN, again.now)
    assert again.ask().words == (b"X",)


def test_an_addition_whose_hello_broke_was_not_sent() -> None:
    way = Way(commands.add("q", "x"), hello=True)
    assert way.ask().words == (b"HELLO",)
    way.call.broken(BROKEN, way.now)
    assert way.ask().words == (b"HELLO",)


@pytest.mark.parametrize("text", ["LEAVING x", "LOADING x", "OOM x", "MISCONF x", "ERR max number of clients reached"])
def test_another_node_is_asked_when_one_cannot(text: str) -> None:
    way = Way(commands.add("q", "x"))
    first = way.ask()
    way.refuse(text)
    assert way.ask().node is not first.node
    assert way.answer(ID)
    assert way.call.answer() == ID


@pytest.mark.parametrize("text", ["NOREPL x", "PAUSED x", "MAXLEN x", "ERR syntax error", "NOJOB x", "TRYAGAIN x"])
def test_other_refusals_are_raised_and_the_node_counts_as_sound(text: str) -> None:
    way = Way(commands.add("q", "x"))
    node = way.ask().node
    with pytest.raises(ServerError, match=text):
        way.refuse(text)
    assert node.failures == 0


@pytest.mark.parametrize("text", ["NOAUTH Authentication required.", "WRONGPASS x", "ERR invalid password"])
def test_a_wrong_password_is_not_tried_on_the_other_nodes(text: str) -> None:
    way = Way(commands.qlen("q"))
    way.ask()
    with pytest.raises(AccessDenied):
        way.refuse(text)


@pytest.mark.parametrize("text", ["OOM x", "MISCONF x"])
def test_what_every_node_refuses_is_raised_at_once(text: str) -> None:
    way = Way(commands.add("q", "x"))
    for _ in range(2):
        way.ask()
        way.refuse(text)
    with pytest.raises(ServerError, match=text):
        way.ask()
    assert way.now == 0.0


def test_nodes_that_load_are_waited_for() -> None:
    way = Way(commands.qlen("q"))
    for _ in range(6):
        way.ask()
        way.refuse("LOADING x")
    assert way.now > 0
    way.ask()
    assert way.answer(1)


def test_patience_ends() -> None:
    way = Way(commands.ack(ID))
    with pytest.raises(Unreachable, match=r"no node took ACKJOB \(host:1: reset by peer; host:2: reset by peer\)"):
        way.never(lambda: way.call.not_sent(BROKEN, way.now))
    assert 15 < way.now <= 30.1


def test_the_last_refusal_is_raised_when_patience_ends() -> None:
    way = Way(commands.qlen("q"))
    with pytest.raises(ServerError, match="LOADING x"):
        way.never(lambda: way.refuse("LOADING x"))


def test_a_client_pauses_while_no_node_is_open() -> None:
    way = Way(commands.qlen("q"), "host:1")
    way.ask()
    way.call.not_sent(BROKEN, way.now)
    step = way.call.next(way.now)
    assert isinstance(step, Wait)
    assert 0 < step.seconds <= 1


def test_a_fetch_is_asked_in_slices_until_its_time_is_over() -> None:
    way = Way(commands.get("q", timeout=12), "host:1")
    asked = []
    while True:
        ask = way.ask()
        asked.append(ask.words[2])
        way.now += int(ask.words[2]) / 1_000
        if way.answer(None):
            break
    assert asked == [b"5000", b"5000", b"2000"]
    assert way.call.answer() == []


PENDING, OVER = [ID, b"pending", None, 0, b""], [ID, b"acked", b"well", 1, b""]
MANY = [ID, b"DI" + b"c" * 44 + b"SQ"]


def rows(*states: bytes) -> list[object]:
    return [[job_id, state, None, 1, b""] for job_id, state in zip(MANY, states, strict=True)]


def test_a_job_is_waited_for_in_slices_until_it_is_over_or_time_is() -> None:
    way = Way(commands.outcome(ID, 7), "host:1")
    ask = way.ask()
    assert (ask.words, ask.lane) == ((b"WAITJOB", b"5000", ID), ConnectionUse.WAIT)
    way.now += SLICE_S
    assert not way.answer([PENDING])
    assert way.ask().words[1] == b"2000"
    way.now += 2.0
    assert way.answer([PENDING]), "the caller learns that it is pending"
    assert way.call.answer() == Outcome(ID, "pending")
    way = Way(commands.outcome(ID), "host:1")
    for _ in range(50):
        way.ask()
        way.now += SLICE_S
        assert not way.answer([PENDING])
    way.ask()
    assert way.answer([OVER])
    assert way.call.answer() == Outcome(ID, "acked", b"well", 1)


def test_several_jobs_are_waited_for_until_all_are_over_or_any() -> None:
    way = Way(commands.wait_jobs(MANY), "host:1")
    for answer in (rows(b"pending", b"pending"), rows(b"dead", b"pending")):
        assert way.ask().words[2:] == tuple(MANY)
        assert not way.answer(answer)
    way.ask()
    assert way.answer(rows(b"dead", b"unknown"))
    way = Way(commands.wait_jobs(MANY, any=True), "host:1")
    for answer in (rows(b"pending", b"pending"), []):
        assert way.ask().words[2] == b"ANY"
        assert not way.answer(answer)
    way.ask()
    assert way.answer(rows(b"pending", b"acked"))


def test_a_job_is_waited_for_on_another_node_when_one_goes_away() -> None:
    way = Way(commands.outcome(ID))
    first = way.ask()
    way.call.broken(BROKEN, way.now)
    assert way.ask().node is not first.node


def test_a_fetch_without_end_goes_on_and_on() -> None:
    way = Way(commands.get("q"), "host:1")
    for _ in range(50):
        ask = way.ask()
        assert ask.limit > SLICE_S
        way.now += SLICE_S
        assert not way.answer(None)
    way.ask()
    assert way.answer([[b"q", ID, b"x"]])
    assert way.call.answer() == [Job(b"q", ID, b"x")]


def test_a_fetch_that_does_not_wait_is_answered_once() -> None:
    way = Way(commands.get("q", nohang=True), "host:1")
    assert way.ask().words[1] == b"NOHANG"
    assert way.answer(None)


def test_a_fetch_that_has_long_waited_still_has_all_its_patience() -> None:
    way = Way(commands.get("q"), "host:1")
    for _ in range(20):
        way.ask()
        way.now += SLICE_S
        way.answer(None)
    way.ask()
    way.call.broken(BROKEN, way.now)
    way.ask()


def test_jobs_are_counted_by_where_they_come_from() -> None:
    nodes = Nodes([("host", 1)], Random(1))
    now = 0.0
    for _ in range(70):
        call = Call(commands.get("q"), nodes, Patience(), now)
        while isinstance(step := call.next(now), Send) and step.words == (b"HELLO",):
            call.answered(HELLO, now)
        assert call.answered([[b"q", ID, b"x"]], now)
    assert nodes.current is not None
    assert nodes.current.address == ("host", 2)


def test_a_walk_stays_on_its_node_and_ends_with_it() -> None:
    way = Way(commands.scan_queues())
    node = way.ask().node
    way.answer([b"7", []])
    call = Call(commands.scan_queues(b"7"), way.nodes, Patience(), 0.0, node)
    way.nodes.leaves(node)
    step = call.next(0.0)
    assert isinstance(step, Send)
    assert step.node is node
    with pytest.raises(Unreachable, match="the node that QSCAN has to ask went away"):
        call.broken(BROKEN, 0.0)


def test_another_node_is_asked_when_one_is_not_trusted() -> None:
    way = Way(commands.add("q", "x"))
    first = way.ask()
    way.call.unfit(NotTrusted("expired"), way.now)
    assert way.ask().node is not first.node
    assert way.answer(ID)


def test_that_no_node_is_trusted_is_raised_at_once() -> None:
    way = Way(commands.qlen("q"))
    for _ in range(2):
        way.ask()
        way.call.unfit(NotTrusted("expired"), way.now)
    with pytest.raises(NotTrusted, match="expired"):
        way.ask()
    assert way.now == 0.0


def test_a_node_that_cannot_be_reached_is_waited_for_though_another_is_not_trusted() -> None:
    way = Way(commands.qlen("q"))
    way.ask()
    way.call.unfit(NotTrusted("expired"), way.now)
    with pytest.raises(Unreachable, match=r"host:\d: expired"):
        way.never(lambda: way.call.not_sent(BROKEN, way.now))
    assert way.now > 15


def test_a_walk_ends_when_its_node_is_trusted_no_more() -> None:
    way = Way(commands.scan_queues())
    call = Call(commands.scan_queues(b"7"), way.nodes, Patience(), 0.0, way.ask().node)
    call.next(0.0)
    with pytest.raises(NotTrusted):
        call.unfit(NotTrusted("expired"), 0.0)


def test_a_server_that_is_no_node_is_passed_over_for_another_one() -> None:
    way = Way(commands.qlen("q"), hello=True)
    first = way.ask()
    assert not way.answer([b"server", b"redis", b"version", b"8.0"])
    second = way.ask()
    assert (second.words, second.node is not first.node) == ((b"HELLO",), True)
    way.answer(HELLO)
    assert way.ask().words == (b"QLEN", b"q")


@pytest.mark.parametrize("reply", ["ERR unknown command 'HELLO'", [b"server", b"redis"]])
def test_that_no_server_is_a_node_is_raised_at_once_and_again(reply: object) -> None:
    way = Way(commands.add("q", "x"), "host:1", hello=True)
    for call in (way.call, Call(commands.add("q", "y"), way.nodes, Patience(), 0.0)):
        way.call = call
        assert way.ask().words == (b"HELLO",), "nothing else is said to a stranger"
        way.refuse(reply) if isinstance(reply, str) else way.answer(reply)
        with pytest.raises(BadReply, match=r"HELLO answered .* which is none of disqued"):
            way.ask()
