"""What is read of the nodes of a cluster, and what is found wrong in it."""

import click
import pytest

from disqued.tools.cluster.joining import check_addresses
from disqued.tools.cluster_views import NodeLine, NodeReport, problems, read_lines, unseen
from disqued.tools.connecting import Failed, Target
from disqued.tools.console_text import count, size, span
from disqued.tools.members import Member, named

A, B, C = "a" * 40, "b" * 40, "c" * 40


def view(id_: str, lines: str, **facts: str) -> NodeReport:
    return NodeReport(member(id_), read_lines(lines), {"cluster_leaving": "no"}, {"registered_jobs": "3", **facts})


def member(id_: str) -> Member:
    return Member(id_, Target(("127.0.0.1", 7000 + ord(id_[0]))))


def line(id_: str, flags: str = "noflags", link: str = "connected") -> str:
    return f"{id_} 127.0.0.1:{7000 + ord(id_[0])} {flags} 0 0 {link}\n"


def test_the_lines_of_the_nodes_are_read() -> None:
    text = f"{A} 127.0.0.1:7711 myself 0 0 connected\n{B} [::1]:7712@9000 fail?,leaving 1 2 disconnected\n"
    assert read_lines(text) == (
        NodeLine(A, "127.0.0.1:7711", frozenset({"myself"}), True),
        NodeLine(B, "[::1]:7712", frozenset({"fail?", "leaving"}), False),
    )


@pytest.mark.parametrize(
    ("shown", "is_sound"),
    [
        (line(B), True),
        (line(B, "leaving"), True),
        (line(B, link="disconnected"), False),
        (line(B, "fail?"), False),
        (line(B, "fail"), False),
        (line(B, "handshake"), False),
    ],
)
def test_a_node_is_seen_when_jobs_can_be_given_to_it(shown: str, is_sound: bool) -> None:
    views = [view(A, line(A, "myself") + shown), view(B, line(B, "myself") + line(A))]
    missing = [] if is_sound else ["127.0.0.1:7097 (aaaaaaaa) does not see 127.0.0.1:7098 (bbbbbbbb)"]
    assert unseen(views) == missing
    assert problems(views)[: len(missing)] == missing
    assert (problems(views) == []) is is_sound
    assert views[0].state == ("ok" if is_sound else "cut off")


def test_a_node_that_does_not_answer_is_one_problem_for_itself() -> None:
    views = [view(A, line(A, "myself")), NodeReport(member(B), error="no node answers")]
    assert problems(views) == ["127.0.0.1:7098 (bbbbbbbb): no node answers"]
    assert views[1].state == "away"


def test_a_node_that_answers_with_a_refusal_is_not_away() -> None:
    refused = NodeReport(member(B), error="NOPERM not for you", is_refused=True)
    assert refused.state == "refuses"
    assert problems([refused]) == ["127.0.0.1:7098 (bbbbbbbb): NOPERM not for you"]


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ({"loading": "1"}, "is loading its jobs"),
        ({"aof_last_write_status": "err"}, "its journal cannot be written"),
        ({"memory_level": "3"}, "its memory is full"),
    ],
)
def test_what_a_node_says_of_itself_is_a_problem(facts: dict[str, str], word: str) -> None:
    (found,) = problems([view(A, line(A, "myself"), **facts)])
    assert word in found


def test_a_node_that_one_does_not_tell_of_is_a_problem() -> None:
    (found,) = problems([view(A, line(A, "myself") + line(C))])
    assert found == "127.0.0.1:7099: is known to some nodes only"
    (found,) = problems([view(A, line(A, "myself") + line(C, "handshake"))])
    assert found == "127.0.0.1:7099: is being called and has not answered yet"


def test_a_node_of_this_machine_alone_is_not_joined_with_others() -> None:
    far = NodeReport(Member(C, Target(("10.0.0.2", 7711))))
    near = [view(A, ""), view(B, "")]
    with pytest.raises(click.UsageError, match="name each node as the others reach it"):
        check_addresses([*near, far])
    check_addresses(near)
    check_addresses([far, far])


def test_a_node_is_named_by_address_by_id_or_by_the_beginning_of_it() -> None:
    known = [member(A), member(B), Member("ab" + "0" * 38, Target(("127.0.0.1", 7300)))]
    assert named("127.0.0.1:7098", known) is known[1]
    assert named(A, known) is known[0]
    assert named("aaa", known) is known[0]
    for wrong, why in (("a", "names several nodes"), ("", "names no node"), ("127.0.0.1:1", "names no node")):
        with pytest.raises(Failed, match=why):
            named(wrong, known)


@pytest.mark.parametrize(
    ("write", "number", "text"),
    [
        (size, 0, "0B"), (size, 1023, "1023B"), (size, 1024, "1K"), (size, 1536, "1.5K"), (size, 20 << 20, "20M"),
        (size, (1 << 20) - 1, "1M"), (size, 5 << 50, "5120T"),
        (count, 999, "999"), (count, 1200, "1.2k"), (count, 35_000_000, "35M"), (count, 0.4, "0"),
        (span, 0.26, "0.3s"), (span, 42, "42s"), (span, 300, "5m"), (span, 10_800, "3h"), (span, 200_000, "2d"),
    ],
)  # fmt: skip
def test_numbers_are_short(write: object, number: float, text: str) -> None:
    assert callable(write)
    assert write(number) == text
