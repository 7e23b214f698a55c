"""What two looks tell of nodes and queues, and how it is drawn."""

import io
import re
from collections.abc import Mapping

import attrs
import pytest
from rich.console import Console

from disqued.tools.connecting import Target
from disqued.tools.members import Member
from disqued.tools.top import WatchedCluster
from disqued.tools.top.keyboard import read_keys
from disqued.tools.top.node_views import NodeSnapshot, QueueChoice, QueueSnapshot
from disqued.tools.top.screen import TopView, draw, draw_help, queue_lines, queue_table
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
    text = drawn(TopView(rows, [], 0, "queue", False))
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
    (row,) = queue_rows(now, before, "ready", reverse=False)
    # Of the second node it is new: all that it counted came since.
    assert row == QueueRow("mail", 10, 9.0, 6.0, 1.0, 3, "in part", 2)
    (row,) = queue_rows(now, [], "ready", reverse=False)
    assert (row.in_s, row.out_s) == (None, None)


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("ready", "bac"), ("oldest", "cba"), ("in/s", "abc"), ("out/s", "cab"), ("waiting", "acb"), ("queue", "abc"),
        ("in-flight", "cab"), ("delayed", "abc"), ("failing", "bca"),
    ],
)  # fmt: skip
def test_queues_are_sorted_by_any_of_the_keys(order: str, names: str) -> None:
    before = [look(1, 0, {name: queue(name) for name in "abc"})]
    now = [
        look(1, 1, {
            "c": queue("c", 1, 1, 9, blocked=2, oldest_s=30.0, in_flight=7, delayed=0, failing=2),
            "b": queue("b", 9, 5, 1, blocked=1, oldest_s=20.0, in_flight=0, delayed=1, failing=3, pause="all"),
            "a": queue("a", 5, 9, 5, blocked=3, oldest_s=None, in_flight=5, delayed=2, failing=0),
        })
    ]  # fmt: skip
    assert [row.name for row in queue_rows(now, before, order, reverse=False)] == list(names)
    assert [row.name for row in queue_rows(now, before, order, reverse=True)] == list(reversed(names))
    assert len({column.key for column in ORDERS.values()}) == len(ORDERS), "a key of its own for each"


def drawn(view: TopView, lines: int = 10, width: int = 200, height: int | None = None) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(draw(view, "title", width, lines, height))
    return file.getvalue()


def test_names_of_queues_are_shown_as_they_are() -> None:
    strange = ["[red]mail", "tab\there", "\x1b[31m", "", "[/]"]
    now = [look(1, 0, {name: queue(name) for name in strange})]
    text = drawn(TopView(node_rows(now, []), queue_rows(now, [], "queue", reverse=False), 5, "queue", False))
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
    view = TopView(node_rows(now, []), queue_rows(now, [], "queue", reverse=False), 2, "queue", False)
    for width, titles in (
        (80, "ready in-flight delayed dead oldest in/s out/s waiting paused"),
        (200, "ready in-flight delayed failing dead oldest in/s out/s waiting nodes paused"),
    ):
        lines = drawn(view, width=width).splitlines()
        (heading,) = [line for line in lines if line.startswith("queue ")]
        rows = {line[:4]: line.split()[1:] for line in lines if line.startswith(("mail", "xxxx"))}
        assert heading.split()[1:] == titles.split()
        assert rows["mail"][0] == "77"
        assert "9.0s" in rows["mail"]
        assert rows["xxxx"][0] == "123k"
        assert max(map(len, lines)) <= width


def test_what_does_not_fit_is_counted() -> None:
    now = [look(1, 0, {f"q{number}": queue(f"q{number}") for number in range(5)})]
    view = TopView(node_rows(now, []), queue_rows(now, [], "queue", reverse=False), 9, "queue", False)
    text = drawn(view, lines=2)
    assert "queues 1-2 of 5" in text
    assert "q1" in text
    assert "q2" not in text
    assert "(9 on nodes, not all are looked at)" in text
    assert "queues 3-4 of 5 that match q*" in drawn(attrs.evolve(view, first=2, pattern="q*"), lines=2)


def test_a_figure_that_one_node_does_not_tell_is_not_shown_at_all() -> None:
    looks = [
        look(1, 0, {"mail": queue("mail", in_flight=3, delayed=1), "post": queue("post", in_flight=2, delayed=0)}),
        look(2, 0, {"mail": queue("mail", delayed=4)}),
    ]
    mail, post = queue_rows(looks, [], "queue", reverse=False)
    assert (mail.in_flight, mail.delayed) == (None, 5)
    assert (post.in_flight, post.delayed) == (2, 0)
    text = drawn(TopView([], [mail, post], 2, "queue", False))
    assert re.search(r"^mail +0 +- +5 ", text, re.MULTILINE)


def test_a_queue_that_was_left_out_of_the_look_before_has_no_rate() -> None:
    before = [look(1, 0, {"mail": queue("mail", 0, 100, 0)})]
    now = [look(1, 2, {"post": queue("post", 0, 5_000, 0, age_s=600), "new": queue("new", 0, 10, 0, age_s=1)})]
    rows = {row.name: row.in_s for row in queue_rows(now, before, "queue", reverse=False)}
    assert rows == {"post": None, "new": 5}


def test_paused_queues_come_first_when_queues_are_sorted_by_that() -> None:
    now = [look(1, 0, {"a": queue("a"), "b": queue("b", pause="out"), "c": queue("c", pause="all")})]
    assert [row.name for row in queue_rows(now, [], "paused", reverse=False)] == ["b", "c", "a"]


def test_each_node_has_a_row_of_its_own_when_that_is_asked_for() -> None:
    looks = [look(1, 0, {"mail": queue("mail", 5)}), look(2, 0, {"mail": queue("mail", 7, pause="in")})]
    rows = queue_rows(looks, [], "ready", reverse=False, by_node=True)
    assert [(row.node, row.length, row.pause, row.nodes) for row in rows] == [
        ("127.0.0.1:7712", 7, "in", 1), ("127.0.0.1:7711", 5, "none", 1),
    ]  # fmt: skip
    heading = drawn(TopView([], rows, 2, "ready", False, by_node=True)).splitlines()[4]
    assert heading.split()[:3] == ["queue", "node", "ready"]
    assert "nodes" not in heading


@pytest.mark.parametrize("width", [80, 120])
def test_the_reason_of_a_pause_has_the_room_that_is_left(width: int) -> None:
    reason = "the provider has asked us to wait until the invoice of november is paid"
    rows = [
        QueueRow("mail", 1, 2.0, None, None, 0, "all", 3, pause_reason=reason),
        QueueRow("a-name-of-thirty-two-characters-", 1, 2.0, None, None, 0, "none", 3),
    ]
    file = io.StringIO()
    Console(file=file, width=width).print(queue_table(rows, width, rates=False))
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert ("all: the provider has a" in lines[1]) is (width == 120)
    assert "all: t" in lines[1]
    assert ("a-name-of-thirty-two-characters-" in lines[2]) is (width == 120)
    assert "a-name-of-" in lines[2]


def test_nodes_leave_room_for_queues_on_a_low_screen_and_those_with_trouble_are_shown() -> None:
    looks = [look(number, 0) for number in range(1, 10)]
    looks[8] = NodeSnapshot(looks[8].member, 0, error="no node answers at 127.0.0.1:7719")
    rows = [QueueRow(f"q{number:02}", 1, 2.0, None, None, 0, "none", 3) for number in range(50)]
    view = TopView(node_rows(looks, []), rows, 50, "queue", False)
    page = queue_lines(view.nodes, 24)
    lines = drawn(view, page, 80, 24).splitlines()
    assert len(lines) == 24
    assert sum(line.startswith("q") and line[1].isdigit() for line in lines) == page >= 8
    assert any("away" in line for line in lines)
    assert any(re.match(r"\d nodes more", line) for line in lines)
    assert lines[-1].startswith("q quit  h help")


@pytest.mark.parametrize(
    ("typed", "keys", "rest"),
    [
        ("q", ["q"], ""),
        ("\x1b[A\x1bOB\x1b[5~\x1b[6~\x1b[H\x1b[4~", ["up", "down", "page-up", "page-down", "home", "end"], ""),
        ("\x1b[1;5A\x1b[15~x", ["x"], ""),  # keys that mean nothing here
        ("\x1b", [], "\x1b"),
        ("a\x1b[5", ["a"], "\x1b[5"),
        ("\x1bq", ["escape", "q"], ""),
        ("/\u00e9\x7f\x15\r", ["/", "\u00e9", "backspace", "clear", "enter"], ""),
    ],
)
def test_what_a_terminal_sends_is_read_as_keys(typed: str, keys: list[str], rest: str) -> None:
    assert read_keys(typed) == (keys, rest)


def watched(count: int = 50) -> WatchedCluster:
    """A cluster with so many queues, of which each has one job more than the one before."""
    cluster = WatchedCluster(Target(), 2, QueueChoice())
    cluster.note([look(1, 0, {f"q{number:02}": queue(f"q{number:02}", number) for number in range(count)})])
    return cluster


def test_keys_scroll_no_further_than_there_are_queues() -> None:
    cluster = watched()
    page = queue_lines(cluster.view().nodes, 24)
    for key, first in (
        ("up", 0), ("down", 1), ("j", 2), ("k", 1), ("page-down", 1 + page), (" ", 1 + 2 * page), ("end", 50 - page),
        ("page-down", 50 - page), ("page-up", 50 - 2 * page), ("home", 0), ("page-up", 0), ("x", 0),
    ):  # fmt: skip
        assert not cluster.press(key, 24)
        assert min(cluster.first, 50 - page) == first, key  # the end stays the end, whatever comes
    assert cluster.press("q", 24)


def test_keys_change_the_column_that_queues_are_sorted_by() -> None:
    cluster = watched()
    seen = []
    for _ in ORDERS:
        cluster.press("s", 24)
        seen.append(cluster.order)
    assert sorted(seen) == sorted(ORDERS)
    assert cluster.order == "ready"
    cluster.press(">", 24)
    assert cluster.order == "in-flight"
    cluster.press("<", 24)
    assert cluster.order == "ready"
    cluster.press("end", 24)
    cluster.press("n", 24)
    assert (cluster.order, cluster.first) == ("queue", 0)
    cluster.press("r", 24)
    assert cluster.view().queues[0].name == "q49"


def test_a_pattern_is_typed_taken_or_left() -> None:
    cluster = watched()
    for key in "/q4x":
        cluster.press(key, 24)
    cluster.press("backspace", 24)
    cluster.press("*", 24)
    assert len(cluster.view().queues) == 50, "before enter"
    cluster.press("enter", 24)
    assert [row.name for row in cluster.view().queues] == [f"q{number}" for number in range(49, 39, -1)]
    assert (cluster.choice.pattern, cluster.typed) == ("q4*", None)
    for key in ("/", "clear", "z", "escape"):
        cluster.press(key, 24)
    assert cluster.choice.pattern == "q4*"
    for key in ("/", "clear", "enter"):
        cluster.press(key, 24)
    assert cluster.choice.pattern == "*"


def test_help_is_shown_until_any_key_and_says_each_key() -> None:
    cluster = watched()
    assert not cluster.press("?", 24)
    assert cluster.helps
    assert not cluster.press("x", 24)
    assert not cluster.helps
    file = io.StringIO()
    Console(file=file, width=80).print(draw_help())
    for key in [*(column.key for column in ORDERS.values()), "PgUp", "Home", "/", "r", "m", "s, >, <"]:
        assert re.search(rf"(^|[ ,]){re.escape(key)}", file.getvalue(), re.MULTILINE), key
    assert len(file.getvalue().splitlines()) <= 24
