"""What two looks tell of nodes and queues, and how it is drawn."""

import io
from collections.abc import Mapping

import pytest
from rich.console import Console

from disqued.tools.connecting import Target
from disqued.tools.members import Member
from disqued.tools.top.node_views import NodeSnapshot, QueueSnapshot
from disqued.tools.top.screen import TopView, draw
from disqued.tools.top.table_rows import ORDERS, QueueRow, node_rows, queue_rows, rate

FACTS = {"used_memory": "10", "maxmemory": "100", "registered_jobs": "7", "cluster_known_nodes": "3"}


def look(number: int, at: float, queues: Mapping[str, QueueSnapshot] | None = None, **facts: str) -> NodeSnapshot:
    member = Member(f"{number}" * 40, Target(("127.0.0.1", 7710 + number)))
    named = {name.encode(): queue for name, queue in (queues or {}).items()}
    return NodeSnapshot(member, at, {**FACTS, "cluster_reachable_nodes": "2", **facts}, named)


def queue(name: str, length: int = 0, came: int = 0, went: int = 0, **more: object) -> QueueSnapshot:
    given: dict[str, object] = {"blocked": 0, "pause": "none", **more}
    return QueueSnapshot(name.encode(), length, came, went, **given)


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ({}, "ok"),
        ({"cluster_reachable_nodes": "1"}, "cut off"),
        ({"memory_level": "3"}, "full"),
        ({"cluster_leaving": "yes"}, "leaving"),
        ({"cluster_leaving": "yes", "cluster_safe_to_stop": "yes"}, "left"),
        ({"loading": "1"}, "loading"),
    ],
)
def test_the_state_of_a_node_is_one_word(facts: dict[str, str], state: str) -> None:
    (row,) = node_rows([look(1, 0, **facts)], [])
    assert row.state == state
    assert (row.memory, row.memory_limit, row.jobs, row.known) == (10, 100, 7, 2)


def test_a_node_that_does_not_answer_is_away() -> None:
    silent = NodeSnapshot(Member("1" * 40, Target()), 5, error="no node answers")
    (row,) = node_rows([silent], [look(1, 0)])
    assert (row.state, row.error, row.memory, row.commands_s) == ("away", "no node answers", None, None)


def test_a_node_that_answers_with_a_refusal_is_not_away_and_its_words_are_shown() -> None:
    said = "NOPERM User ann has no permissions to run the 'info' command"
    looks = [
        NodeSnapshot(Member("1" * 40, Target(("127.0.0.1", 7711))), 5, error=said, is_refused=True),
        NodeSnapshot(Member("2" * 40, Target(("127.0.0.1", 7712))), 5, error="no node answers"),
    ]
    rows = node_rows(looks, [])
    assert [row.state for row in rows] == ["refuses", "away"]
    text = drawn(TopView(rows, [], 0, "name", False))
    assert "1 of 2 nodes" in text
    assert f"127.0.0.1:7711: {said}\n" in text.replace(" \n", "\n")
    assert "127.0.0.1:7712: no node answers" in text


def test_rates_are_what_counters_have_grown_by() -> None:
    assert rate(10, 30, 2) == 10
    assert rate(100, 30, 2) == 15  # it has begun anew
    assert rate(10, 30, 0) == 0
    now = look(1, 12, total_commands_processed="50")
    assert node_rows([now], [look(1, 10, total_commands_processed="20")])[0].commands_s == 15
    assert node_rows([now], [])[0].commands_s is None
    assert node_rows([now], [NodeSnapshot(now.member, 10, error="away")])[0].commands_s is None


def test_a_queue_is_one_row_whichever_nodes_have_a_part_of_it() -> None:
    before = [look(1, 0, {"mail": queue("mail", 5, 10, 1)}), look(2, 0)]
    now = [
        look(1, 2, {"mail": queue("mail", 6, 20, 3, blocked=1, oldest_s=7.0)}),
        look(2, 2, {"mail": queue("mail", 4, 2, 0, blocked=2, oldest_s=9.0, pause="in")}),
    ]
    (row,) = queue_rows(now, before, "length", reverse=False)
    # Of the second node it is new: all that it counted came since.
    assert row == QueueRow("mail", 10, 9.0, 6.0, 1.0, 3, "in part", 2)
    (row,) = queue_rows(now, [], "length", reverse=False)
    assert (row.in_s, row.out_s) == (None, None)


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("length", "bac"), ("age", "cba"), ("in", "abc"), ("out", "cab"), ("blocked", "acb"), ("name", "abc"),
    ],
)  # fmt: skip
def test_queues_are_sorted_by_any_of_the_keys(order: str, names: str) -> None:
    before = [look(1, 0, {name: queue(name) for name in "abc"})]
    now = [
        look(1, 1, {
            "c": queue("c", 1, 1, 9, blocked=2, oldest_s=30.0),
            "b": queue("b", 9, 5, 1, blocked=1, oldest_s=20.0),
            "a": queue("a", 5, 9, 5, blocked=3, oldest_s=None),
        })
    ]  # fmt: skip
    assert [row.name for row in queue_rows(now, before, order, reverse=False)] == list(names)
    assert [row.name for row in queue_rows(now, before, order, reverse=True)] == list(reversed(names))
    assert set(ORDERS) == {"length", "age", "in", "out", "blocked", "dead", "name"}


def drawn(view: TopView, lines: int = 10, width: int = 200) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(draw(view, "title", lines, keys=True))
    return file.getvalue()


def test_names_of_queues_are_shown_as_they_are() -> None:
    strange = ["[red]mail", "tab\there", "\x1b[31m", "", "[/]"]
    now = [look(1, 0, {name: queue(name) for name in strange})]
    text = drawn(TopView(node_rows(now, []), queue_rows(now, [], "name", reverse=False), 5, "name", False))
    for shown in ("[red]mail", "tab\\there", "\\x1b[31m", '""', "[/]"):
        assert shown in text
    assert "\x1b" not in text


def test_the_dead_jobs_of_a_queue_are_those_of_the_node_that_has_most_of_them() -> None:
    looks = [
        look(1, 0, {"mail": queue("mail", dead=3, failing=1), "post": queue("post", failing=9)}),
        look(2, 0, {"mail": queue("mail", dead=2, failing=4)}),
    ]
    rows = queue_rows(looks, [], "dead", reverse=False)
    assert [(row.name, row.dead, row.failing) for row in rows] == [("mail", 3, 4), ("post", 0, 9)]


def test_a_long_name_of_a_queue_is_cut_and_no_figure_of_it_or_of_others() -> None:
    now = [look(1, 0, {"x" * 60_000: queue("x" * 60_000, 123456), "mail": queue("mail", 77, oldest_s=9.0)})]
    view = TopView(node_rows(now, []), queue_rows(now, [], "name", reverse=False), 2, "name", False)
    for width in (80, 200):
        lines = drawn(view, width=width).splitlines()
        (heading,) = [line for line in lines if line.startswith("queue ")]
        rows = {line[:4]: line.split()[1:] for line in lines if line.startswith(("mail", "xxxx"))}
        assert heading.split()[1:] == [
            "length",
            "oldest",
            "in/s",
            "out/s",
            "failing",
            "dead",
            "waiting",
            "paused",
            "nodes",
        ]
        assert rows["mail"][:2] == ["77", "9.0s"]
        assert rows["xxxx"][0] == "123k"
        assert max(map(len, lines)) <= width


def test_what_does_not_fit_is_counted() -> None:
    now = [look(1, 0, {f"q{number}": queue(f"q{number}") for number in range(5)})]
    view = TopView(node_rows(now, []), queue_rows(now, [], "name", reverse=False), 9, "name", False)
    text = drawn(view, lines=2)
    assert "3 queues more" in text
    assert "q1" in text
    assert "q2" not in text
    assert "(9 on nodes, not all are looked at)" in text
