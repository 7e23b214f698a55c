"""Logs on a lone node: events that every group of consumers gets, and what groups make of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from disqued.commands.groups import NAMED_PER_PART
from disqued.commands.table import BLOCKED
from disqued.core.model.outbox import GROUP, JOB_ADDED, UNIT_DONE, UNIT_LEASED
from disqued.core.work.blocking import SERVED_AT_ONCE
from tests.core_fixtures import UNKNOWN_ID, Server, Word, check

FIGURES = ("total", "inprogress", "redo", "done", "available", "consumers")


class Bench(Server):
    """A node, spoken to in the words of logs."""

    def event(self, body: Word = "x", queue: Word = "q", seconds: Word = 60, *options: Word) -> bytes:
        """QADD; returns the id."""
        return bytes(self("QADD", queue, seconds, body, *options))

    def take(self, group: Word = "g", *options: Word, queue: Word = "q") -> list[bytes] | None:
        """QGET; returns id and body."""
        taken = self("QGET", queue, group, *options)
        assert taken is None or isinstance(taken, list)
        return taken

    def body(self, group: Word = "g", *options: Word, queue: Word = "q") -> bytes | None:
        """QGET; returns the body."""
        taken = self.take(group, *options, queue=queue)
        return None if taken is None else taken[1]

    def ack(self, event_id: bytes, group: Word = "g", queue: Word = "q") -> int:
        """QACK of one event."""
        return int(self("QACK", queue, group, event_id))

    def figures(self, group: Word = "g", queue: Word = "q") -> dict[str, int]:
        """QSTATUS of one group, by name."""
        [[_, [_, values]]] = self("QSTATUS", queue, "GROUPS", group)
        figures = {values[at].decode(): values[at + 1] for at in range(0, len(values), 2)}
        assert figures["total"] == sum(figures[name] for name in FIGURES[1:5])
        return figures


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    check(made)


def counts(bench: Bench, group: Word = "g") -> tuple[int, ...]:
    """In progress, redo, done, available."""
    return tuple(bench.figures(group)[name] for name in FIGURES[1:5])


# Adding.


def test_an_event_has_an_id_and_stays_for_as_long_as_it_was_given(bench: Bench) -> None:
    event_id = bench.event("x", "q", 5)
    assert len(event_id) == 48
    bench.advance(4_999)
    assert bench.figures()["total"] == 1
    bench.advance(1)
    assert bench.figures()["total"] == 0
    assert bench.show(event_id) is None


def test_an_event_ends_at_the_millisecond_that_a_fraction_says(bench: Bench) -> None:
    bench.event("x", "q", "0.25")
    bench.advance(249)
    assert bench.body("a", "EX", 0) == b"x"
    bench.advance(1)
    assert bench.body("b") is None


def test_an_event_can_be_given_the_moment_of_its_end(bench: Bench) -> None:
    bench.event("x", "q", f"@{(bench.clock.wall() + 2_500) / 1_000:.3f}")
    bench.advance(2_499)
    assert bench.figures()["total"] == 1
    bench.advance(1)
    assert bench.figures()["total"] == 0


@pytest.mark.parametrize("seconds", ["", "x", "nan", "inf", "1e3e", "1_0", " 1", "0x1", "--1", "@", "@x"])
def test_a_life_that_is_no_number_is_refused(bench: Bench, seconds: str) -> None:
    assert "expireSeconds must be a number of seconds" in bench.refusal("QADD", "q", seconds, "x")


@pytest.mark.parametrize("seconds", ["0", "-1", "0.0", "-0.5"])
def test_a_life_that_is_over_is_refused(bench: Bench, seconds: str) -> None:
    assert bench.refusal("QADD", "q", seconds, "x") == "ERR expireSeconds must be above 0 seconds"


def test_a_moment_that_is_over_is_refused_as_a_life(bench: Bench) -> None:
    assert bench.refusal("QADD", "q", "@1", "x") == "ERR expireSeconds names a moment that is over"


def test_a_life_too_long_for_any_record_is_refused(bench: Bench) -> None:
    assert bench.refusal("QADD", "q", 1 << 31, "x") == f"ERR expireSeconds must be below {1 << 31} seconds"
    assert "unix time" in bench.refusal("QADD", "q", "@999999999999", "x")


@pytest.mark.parametrize("word", ["NOWAIT", "noblocks", "1"])
def test_a_fourth_word_that_is_not_known_is_refused(bench: Bench, word: str) -> None:
    assert bench.refusal("QADD", "q", 60, "x", word) == (
        f"ERR syntax error - unknown option {word!r}; expected NOBLOCK, REPLICATE, DELAY or MAXLEN"
    )


def test_a_producer_who_does_not_wait_hears_ok(bench: Bench) -> None:
    assert bench("QADD", "q", 60, "x", "noblock") == b"OK"
    assert bench.body() == b"x"


def test_a_delayed_event_is_there_when_its_delay_is_over(bench: Bench) -> None:
    bench.event("later", "q", 60, "DELAY", "1.5")
    bench.event("now")
    assert bench.body() == b"now"
    assert bench.body() is None
    bench.advance(1_499)
    assert bench.body() is None
    bench.advance(1)
    assert bench.body() == b"later"


def test_a_delay_that_outlasts_the_event_is_refused(bench: Bench) -> None:
    assert "DELAY must be less" in bench.refusal("QADD", "q", 5, "x", "DELAY", 5)


def test_a_log_that_is_long_enough_takes_no_more(bench: Bench) -> None:
    for _ in range(3):
        bench.event("x", "q", 60, "MAXLEN", 3)
    assert bench.refusal("QADD", "q", 60, "x", "MAXLEN", 3).startswith("MAXLEN ")


def test_a_log_that_is_paused_in_takes_nothing_and_out_gives_nothing(bench: Bench) -> None:
    bench.event()
    bench("PAUSE", "q", "in")
    assert bench.refusal("QADD", "q", 60, "x").startswith("PAUSED ")
    bench("PAUSE", "q", "out")
    assert bench.take() is None
    assert bench("QGET", "q", "g", "BLOCK", 10, client="anna") is BLOCKED
    bench("PAUSE", "q", "none")
    assert [body for _, body in bench.answers["anna"]] == [b"x"]


def test_a_delayed_event_waits_for_the_end_of_a_pause(bench: Bench) -> None:
    bench.event("x", "q", 60, "DELAY", 1)
    bench("PAUSE", "q", "in")
    bench.advance(5_000)
    assert bench.take() is None
    bench("PAUSE", "q", "none")
    bench.advance(1_000)
    assert bench.body() == b"x"


# Groups.


def test_a_new_group_begins_at_the_oldest_event(bench: Bench) -> None:
    for body in "abc":
        bench.event(body)
    assert [bench.body() for _ in range(4)] == [b"a", b"b", b"c", None]
    assert [bench.body("other") for _ in range(4)] == [b"a", b"b", b"c", None]


def test_within_a_group_each_event_goes_to_one_consumer(bench: Bench) -> None:
    for body in "ab":
        bench.event(body)
    assert bench("QGET", "q", "g", client="anna")[1] == b"a"
    assert bench("QGET", "q", "g", client="ben")[1] == b"b"
    assert bench("QGET", "q", "g", client="cleo") is None


def test_groups_do_not_affect_each_other(bench: Bench) -> None:
    event_id = bench.event()
    bench.take("a")
    assert bench.ack(event_id, "a") == 1
    assert bench.ack(event_id, "b") == 0
    assert counts(bench, "a") == (0, 0, 1, 0)
    assert counts(bench, "b") == (0, 0, 0, 1)


def test_an_event_that_all_groups_are_done_with_is_still_there(bench: Bench) -> None:
    event_id = bench.event()
    for group in ("a", "b"):
        bench.take(group)
        bench.ack(event_id, group)
    assert bench.body("c") == b"x"


@pytest.mark.parametrize("name", ["", "available", ":", "0:g", "\x00\xff", "GROUPS", "-", "a b"])
def test_a_group_can_have_any_name(bench: Bench, name: str) -> None:
    event_id = bench.event()
    assert bench.body(name) == b"x"
    assert bench("QGROUP", "LIST", "q") == [name.encode()]
    assert bench.ack(event_id, name) == 1
    assert bench.body(name) is None
    assert bench.body("another") == b"x"


def test_a_group_whose_name_is_too_long_is_refused(bench: Bench) -> None:
    assert bench.refusal("QGET", "q", "g" * 65_001) == "ERR the name of a group has 65000 bytes at most"


def test_a_look_at_an_empty_queue_leaves_nothing_behind(bench: Bench) -> None:
    used = bench.state.memory.used
    assert bench.take() is None
    assert bench("QACK", "q", "g", UNKNOWN_ID) == 0
    assert bench("QSTATUS") == []
    assert bench.state.memory.used == used
    assert not len(bench.state.queues)


def test_a_group_is_forgotten_with_the_last_event_that_it_touched(bench: Bench) -> None:
    bench.event("x", "q", 5)
    bench.event("y", "q", 50)
    bench.take("g", "EX", 0)
    bench.advance(5_000)
    assert bench("QGROUP", "LIST", "q") == []
    assert counts(bench) == (0, 0, 0, 1)


# Deadlines.


def test_a_missed_deadline_brings_the_event_back_before_what_is_new(bench: Bench) -> None:
    for body in "abc":
        bench.event(body)
    bench.take("g", "EX", 10)
    bench.take("g", "EX", 1)
    bench.advance(1_001)
    assert counts(bench) == (1, 1, 0, 1)
    assert [bench.body(), bench.body()] == [b"b", b"c"]


def test_an_acknowledgement_at_the_deadline_is_accepted_and_one_later_is_not(bench: Bench) -> None:
    first, second = bench.event("a"), bench.event("b")
    bench.take("g", "EX", 1)
    bench.take("g", "EX", 1)
    bench.advance(1_000)
    assert bench.ack(first) == 1
    bench.clock.advance(1)
    assert bench.ack(second) == 0


def test_the_deadline_is_thirty_seconds_unless_the_consumer_says(bench: Bench) -> None:
    bench.event()
    bench.take()
    bench.advance(30_000)
    assert bench.figures()["inprogress"] == 1
    bench.advance(1)
    assert bench.figures()["redo"] == 1


@pytest.mark.parametrize("seconds", ["0.0001", "0.001"])
def test_a_deadline_that_is_not_zero_is_not_rounded_to_zero(bench: Bench, seconds: str) -> None:
    bench.event()
    bench.take("g", "EX", seconds)
    assert counts(bench) == (1, 0, 0, 0)
    bench.advance(2)
    assert counts(bench) == (0, 1, 0, 0)


def test_deadline_is_another_word_for_ex_and_may_be_a_moment(bench: Bench) -> None:
    bench.event()
    bench.take("g", "DEADLINE", f"@{(bench.clock.wall() + 2_000) / 1_000:.3f}")
    bench.advance(2_000)
    assert bench.figures()["inprogress"] == 1
    bench.advance(1)
    assert bench.figures()["redo"] == 1
    assert "give one of them" in bench.refusal("QGET", "q", "g", "EX", 1, "DEADLINE", 1)


def test_a_deadline_at_a_moment_that_is_over_is_a_missed_one(bench: Bench) -> None:
    bench.event()
    bench.take("g", "DEADLINE", "@1")
    bench.advance(2)
    assert counts(bench) == (0, 1, 0, 0)


def test_with_ex_zero_an_event_is_done_before_its_consumer_hears_of_it(bench: Bench) -> None:
    event_id = bench.event()
    assert bench.take("g", "EX", 0) == [event_id, b"x"]
    assert bench.journal[-1] == (UNIT_DONE, event_id, b"0:g")
    assert not [record for record in bench.journal if record[0] == UNIT_LEASED]
    assert bench.ack(event_id) == 0
    bench.advance(40_000)
    assert bench.take() is None


def test_while_the_journal_cannot_be_written_nothing_is_given_away_for_good(bench: Bench) -> None:
    bench.event()
    bench.state.durability.read_only = True
    assert bench.refusal("QGET", "q", "g", "EX", 0).startswith("MISCONF ")
    assert bench.body("g", "EX", 1) == b"x"


def test_who_comes_late_has_done_what_another_one_has_now(bench: Bench) -> None:
    event_id = bench.event()
    bench("QGET", "q", "g", "EX", 1, client="anna")
    bench.advance(1_001)
    bench("QGET", "q", "g", "EX", 5, client="ben")
    assert bench("QACK", "q", "g", event_id, client="anna") == 1
    assert bench("QACK", "q", "g", event_id, client="ben") == 0


def test_an_event_that_ends_in_progress_is_gone(bench: Bench) -> None:
    event_id = bench.event("x", "q", 2)
    bench.take("g", "EX", 10)
    bench.advance(2_000)
    assert bench.ack(event_id) == 0
    assert counts(bench) == (0, 0, 0, 0)


def test_an_event_that_ends_in_redo_is_never_served_again(bench: Bench) -> None:
    bench.event("x", "q", 2)
    bench.take("g", "EX", 1)
    bench.advance(1_500)
    assert counts(bench) == (0, 1, 0, 0)
    bench.advance(500)
    assert bench.take() is None


@pytest.mark.parametrize("name", ["NACK", "DEQUEUE", "WORKING"])
def test_what_is_for_work_alone_refuses_an_event(bench: Bench, name: str) -> None:
    event_id = bench.event()
    bench.take("g", "EX", 2)
    bench.advance(1_000)
    assert bench.refusal(name, event_id).startswith("WRONGTYPE")
    bench.advance(1_100)
    assert bench.take("g") is not None


def test_processes_of_a_log_are_refused(bench: Bench) -> None:
    bench.event()
    assert bench.refusal("WQ.PROCS", "QUEUE", "q").startswith("WRONGTYPE")


# Acknowledgement.


@pytest.mark.parametrize("who", ["never fetched", "done", "another queue", "another group", "unknown", "at once"])
def test_an_acknowledgement_that_is_refused_changes_nothing(bench: Bench, who: str) -> None:
    event_id = bench.event()
    if who == "done":
        bench.take()
        bench.ack(event_id)
    elif who == "at once":
        bench.take("g", "EX", 0)
    elif who != "never fetched":
        bench.take()
    journal, figures = list(bench.journal), bench.figures()
    queue = "other" if who == "another queue" else "q"
    group = "other" if who == "another group" else "g"
    assert bench.ack(UNKNOWN_ID if who == "unknown" else event_id, group, queue) == 0
    assert bench.journal == journal
    assert bench.figures() == figures


def test_a_refused_acknowledgement_leaves_the_event_to_be_done_again(bench: Bench) -> None:
    event_id = bench.event()
    bench.take("g", "EX", 1)
    bench.advance(1_001)
    journal = list(bench.journal)
    assert bench.ack(event_id) == 0
    assert bench.journal == journal
    assert bench.take() == [event_id, b"x"]


def test_several_events_are_acknowledged_at_once(bench: Bench) -> None:
    ids = [bench.event(body) for body in "abc"]
    bench("QGET", "q", "g", "COUNT", 2)
    assert bench("QACK", "q", "g", *ids) == 2


def test_an_id_that_is_none_is_an_error(bench: Bench) -> None:
    assert bench.refusal("QACK", "q", "g", "1_2").startswith("BADID ")


def test_an_event_cannot_be_called_done_for_everybody(bench: Bench) -> None:
    event_id = bench.event()
    assert bench.refusal("ACKJOB", event_id).startswith("WRONGTYPE ")
    assert bench.refusal("FASTACK", event_id).startswith("WRONGTYPE ")
    assert bench("ENQUEUE", event_id) == 0
    assert bench.body() == b"x"
    assert bench("DELJOB", event_id) == 1
    assert bench.ack(event_id) == 0
    assert bench.body("other") is None


# Several at once, and waiting.


def test_count_answers_an_array_of_events(bench: Bench) -> None:
    ids = [bench.event(body) for body in "abc"]
    assert bench("QGET", "q", "g", "COUNT", 2) == [[ids[0], b"a"], [ids[1], b"b"]]
    assert bench("QGET", "q", "g", "COUNT", 2) == [[ids[2], b"c"]]
    assert bench("QGET", "q", "g", "COUNT", 2) is None


def test_of_ten_who_wait_the_one_who_waits_longest_gets_the_event(bench: Bench) -> None:
    for number in range(10):
        assert bench("QGET", "q", "g", "BLOCK", 60, client=number) is BLOCKED
    event_id = bench.event()
    assert bench.answers == {0: [[event_id, b"x"]]}
    other = bench.event()
    assert bench.answers[1] == [[other, b"x"]]


def test_consumers_of_different_groups_who_wait_all_get_the_event(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        bench("QGET", "q", name, "BLOCK", 60, client=name)
    event_id = bench.event()
    assert bench.answers == {name: [[event_id, b"x"]] for name in ("a", "b", "c")}


def test_who_waits_in_vain_hears_null_when_the_time_is_up(bench: Bench) -> None:
    bench("QGET", "q", "g", "BLOCK", "1.5", client="anna")
    bench.advance(1_499)
    assert not bench.answers
    bench.advance(1)
    assert bench.answers["anna"] == [None]
    assert bench("QGET", "q", "g", "BLOCK", 0) is None


def test_who_waits_for_several_gets_as_many_as_there_are(bench: Bench) -> None:
    bench("QGET", "q", "g", "BLOCK", 60, "COUNT", 5, client="anna")
    event_id = bench.event()
    assert bench.answers["anna"] == [[[event_id, b"x"]]]


def test_who_is_told_of_events_has_none_of_them(bench: Bench) -> None:
    for number in range(10):
        assert bench("QNOTIFY", "g", 60, "q", "r", client=number) is BLOCKED
    bench.event("x", "r")
    assert bench.answers == {number: [b"r"] for number in range(10)}
    assert [bench.body(queue="r"), bench.body(queue="r")] == [b"x", None]


def test_who_asks_is_told_at_once_of_a_queue_that_has_something(bench: Bench) -> None:
    bench.event("x", "b")
    assert bench("QNOTIFY", "g", 0, "a", "b", "c") == b"b"
    assert bench("QNOTIFY", "g", 0, "a", "c") is None
    bench("QGET", "b", "g", "EX", 0)
    assert bench("QNOTIFY", "g", 0, "b") is None
    assert bench("QNOTIFY", "other", 0, "b") == b"b"


def test_a_busy_queue_does_not_hide_the_others(bench: Bench) -> None:
    for name in "abc":
        bench.event("x", name)
    assert {bench("QNOTIFY", "g", 0, "a", "b", "c") for _ in range(50)} == {b"a", b"b", b"c"}


def test_who_is_registered_is_told_of_its_queues(bench: Bench) -> None:
    assert bench("QREGISTER", "GROUP", "g", "a", "b") == b"OK"
    assert bench("QNOTIFY", "g", 60) is BLOCKED
    bench.event("x", "b")
    assert bench.answers["client"] == [b"b"]
    assert bench("QNOTIFY", "other", 0) is None
    bench("QREGISTER", "GROUP", "g", "c")
    assert bench("QNOTIFY", "g", 0) is None
    assert bench.refusal("QREGISTER", "GROUP") == (
        "ERR syntax error - GROUP without its value: expected GROUP group [queue ...]"
    )


def test_registrations_take_memory_while_they_last(bench: Bench) -> None:
    members = bench.node.streams.members
    bench("QREGISTER", "GROUP", "g", "a", "b")
    size = members.size
    assert size > 0
    for _ in range(3):
        bench("QREGISTER", "GROUP", "g", "c", "d")
    assert members.size == size
    bench("QREGISTER", "GROUP", "g", client="other")
    assert members.size == size
    bench.gone("client")
    assert members.size == 0


def test_very_many_groups_are_named_in_parts_and_in_order(bench: Bench) -> None:
    bench.event("x")
    names = [b"g%05d" % number for number in range(NAMED_PER_PART + 2)]
    for name in names:
        bench("QGROUP", "START", "q", name, "NOW")
    assert bench("QGROUP", "LIST", "q") is BLOCKED
    bench.advance(100)
    assert bench.answers["client"] == [names]


def test_who_is_registered_for_nothing_waits_in_vain(bench: Bench) -> None:
    bench("QNOTIFY", "g", "0.5", client="anna")
    bench.advance(500)
    assert bench.answers["anna"] == [None]


def test_very_many_groups_that_get_nothing_are_looked_at_in_parts(bench: Bench) -> None:
    for number in range(2 * SERVED_AT_ONCE):
        assert bench("QGET", "q", f"g{number}", "BLOCK", 60, client=f"c{number}") is BLOCKED
    state = bench.node.state
    state.ready[state.queues.by_name[b"q"]] = None
    bench.node.serve()
    assert len(state.unfinished) == 1
    bench.advance(1)
    assert len(state.unfinished) == 0


def test_a_negative_time_is_an_error(bench: Bench) -> None:
    assert bench.refusal("QNOTIFY", "g", -1, "q") == "ERR timeout must be at least 0 seconds"


# Kinds.


def test_commands_on_work_are_refused_on_a_queue_of_events(bench: Bench) -> None:
    bench.event("x", "q", 5)
    assert bench.refusal("ADDJOB", "q", "x", 0).startswith("WRONGTYPE ")
    assert bench.refusal("GETJOB", "NOHANG", "FROM", "q").startswith("WRONGTYPE ")
    for line in ("RQ.PUSH q x", "RQ.POP other q", "QLPUSH q id x", "QRPUSH q id x", "QRPOP q", "WQ.ENQUEUE q TASKS x"):
        assert bench.refusal(*line.split()).startswith("WRONGTYPE "), line
    bench.advance(5_000)
    bench.add("q", "work")
    assert bench.bodies() == [b"work"]


@pytest.mark.parametrize(
    "line",
    [
        "WQ.LEN q", "WQ.PEEK q", "WQ.TASKS q", "WQ.CANCEL q x", "WQ.DELETE q", "WQ.REQUEST q", "WQ.WORK other q",
        "WQ.DEQUEUE q", "WQ.DEQUEUE q BLOCK 100", "RQ.ACK q 1-1", "RQ.RECOVER q 1 0", "RQ.INSPECT q 0 1",
        "RQ.INSPECT q PENDING 0 1", "RQ.INFO q", "QLPEEK q", "QRPEEK q",
    ],
)  # fmt: skip
def test_commands_that_look_at_work_or_take_it_are_refused_on_a_queue_of_events(bench: Bench, line: str) -> None:
    bench("WORKER", "START", "ID", "w", client="anna")
    bench("WQ.WORK", "q", client="anna")
    bench.event()
    assert bench.refusal(*line.split(), client="anna").startswith("WRONGTYPE ")
    assert bench.figures()["available"] == 1


@pytest.mark.parametrize(
    "command",
    [
        ("QADD", "q", 60, "x"), ("QGET", "q", "g"), ("QACK", "q", "g", UNKNOWN_ID), ("QNOTIFY", "g", 0, "q"),
        ("QGROUP", "LIST", "q"), ("QGROUP", "START", "q", "g", "NOW"), ("QGROUP", "FORGET", "q", "g"),
    ],
)  # fmt: skip
def test_commands_on_logs_are_refused_on_a_queue_of_work(bench: Bench, command: tuple[Word, ...]) -> None:
    job_id = bench.add("q", "work")
    assert bench.refusal(*command).startswith("WRONGTYPE ")
    bench.get()
    assert bench.refusal(*command).startswith("WRONGTYPE ")
    bench("ACKJOB", job_id)
    bench(*command)


def test_consumers_of_work_go_on_waiting_while_a_queue_has_events(bench: Bench) -> None:
    bench("GETJOB", "FROM", "q", client="anna")
    bench("QGET", "q", "g", "BLOCK", 60, client="ben")
    bench.event("event", "q", 5)
    assert bench.answers.keys() == {"ben"}
    bench.advance(5_000)
    bench.add("q", "work")
    assert [row[2] for row in bench.answers["anna"][0]] == [b"work"]


# Figures.


def test_figures_come_by_queue_and_group_as_the_seed_shows_them(bench: Bench) -> None:
    for number in range(5):
        bench.event(number, "foo")
    for _ in range(2):
        bench.take("consumerGroup1", "EX", 1, queue="foo")
    bench.advance(1_001)
    bench.take("consumerGroup1", "EX", 0, queue="foo")
    bench.take("consumerGroup1", "EX", 9, queue="foo")
    bench.take("consumerGroup1", "EX", 9, queue="foo")
    names = [b"total", b"inprogress", b"redo", b"done", b"available", b"consumers"]
    wanted: list[Any] = []
    for name, value in zip(names, (5, 2, 0, 1, 2, 0), strict=True):
        wanted += [name, value]
    assert bench("QSTATUS", "foo") == [[b"foo", [b"consumerGroup1", wanted]]]


def test_lines_for_people_line_up(bench: Bench) -> None:
    bench.event("x", "foo")
    bench.event("x", "bar")
    bench.take("consumerGroup1", queue="foo")
    bench.take("consumerGroup", queue="bar")
    assert bench("QINFO", "foo", "bar") == [
        b"foo consumerGroup1 total:1 inprogress:1 redo:0 done:0 available:0 consumers:0",
        b"bar consumerGroup  total:1 inprogress:1 redo:0 done:0 available:0 consumers:0",
    ]
    assert [line.split()[0] for line in bench("QINFO")] == [b"bar", b"foo"]


def test_queues_and_groups_that_are_not_there_are_shown_with_zeros(bench: Bench) -> None:
    bench.event()
    assert counts(bench, "never seen") == (0, 0, 0, 1)
    assert bench.figures("g", "no queue")["total"] == 0
    [[name, [group, _]]] = bench("QSTATUS", "no queue")
    assert (name, group) == (b"no queue", b"-")
    assert bench("QSTATUS") == [[b"q", []]]


def test_who_waits_and_who_is_registered_counts_as_a_consumer(bench: Bench) -> None:
    bench("QGET", "q", "g", "BLOCK", 60, client="anna")
    bench("QNOTIFY", "g", 60, "q", client="ben")
    bench("QREGISTER", "GROUP", "g", "q", client="cleo")
    assert bench.figures()["consumers"] == 3
    for client in ("anna", "ben", "cleo"):
        bench.gone(client)
    assert bench.figures()["consumers"] == 0


def test_a_queue_of_work_is_shown_with_one_group(bench: Bench) -> None:
    for _ in range(3):
        bench.add("q")
    bench.get()
    assert bench("QINFO") == [b"q - total:3 inprogress:1 redo:0 done:0 available:2 consumers:0"]


def test_other_commands_look_at_logs_as_they_look_at_queues(bench: Bench) -> None:
    ids = [bench.event(body) for body in "abc"]
    assert bench("QLEN", "q") == 3
    assert [row[2] for row in bench("QPEEK", "q", 2)] == [b"a", b"b"]
    assert [row[2] for row in bench("QPEEK", "q", -2)] == [b"c", b"b"]
    assert bench("QSCAN", "MINLEN", 3) == [b"0", [b"q"]]
    assert sorted(bench("JSCAN", "QUEUE", "q")[1]) == sorted(ids)
    stat = bench.stat()
    assert stat is not None
    assert (stat["len"], stat["jobs-in"]) == (3, 3)
    shown = bench.show(ids[0])
    assert shown is not None
    assert (shown["state"], shown["body"], shown["next-requeue-within"]) == (b"queued", b"a", None)


# Whole groups.


def test_a_group_can_start_behind_all_that_is_there(bench: Bench) -> None:
    first = bench.event("old")
    bench.take("g", "EX", 100)
    bench("QGROUP", "START", "q", "g", "NOW")
    assert bench.ack(first) == 0
    assert counts(bench) == (0, 0, 1, 0)
    bench.event("new")
    assert [bench.body(), bench.body()] == [b"new", None]


def test_a_group_can_start_at_the_first_event_again_and_at_any(bench: Bench) -> None:
    ids = [bench.event(body) for body in "abcd"]
    for _ in ids:
        bench.take("g", "EX", 0)
    bench("QGROUP", "START", "q", "g", "first")
    assert bench.body() == b"a"
    bench("QGROUP", "START", "q", "g", ids[2])
    assert counts(bench) == (0, 0, 2, 2)
    assert [bench.body() for _ in range(3)] == [b"c", b"d", None]
    assert bench.refusal("QGROUP", "START", "q", "g", UNKNOWN_ID).startswith("NOJOB ")
    assert bench.refusal("QGROUP", "START", "q", "g", "LAST").startswith("ERR ")


def test_a_group_that_started_now_wakes_for_what_comes(bench: Bench) -> None:
    bench.event("old")
    bench("QGROUP", "START", "q", "g", "NOW")
    bench("QGET", "q", "g", "BLOCK", 60, client="anna")
    event_id = bench.event("new")
    assert bench.answers["anna"] == [[event_id, b"new"]]


def test_a_unit_can_be_given_back_at_once_before_all_others(bench: Bench) -> None:
    ids = [bench.event(body) for body in "abc"]
    bench("QGET", "q", "g", "COUNT", 2)
    assert bench("QGROUP", "RETURN", "q", "g", ids[1], ids[2]) == 1
    assert counts(bench) == (1, 1, 0, 1)
    assert bench("QGROUP", "RETURN", "q", "g", ids[1]) == 0
    assert bench("QGROUP", "RETURN", "q", "g", ids[0]) == 1
    assert [bench.body() for _ in range(4)] == [b"a", b"b", b"c", None]


def test_several_units_are_given_back_in_their_order(bench: Bench) -> None:
    ids = [bench.event(body) for body in "abc"]
    bench("QGET", "q", "g", "COUNT", 3)
    assert bench("QGROUP", "RETURN", "q", "g", *reversed(ids)) == 3
    assert [bench.body() for _ in range(3)] == [b"c", b"b", b"a"]


def test_a_unit_that_is_given_back_wakes_who_waits(bench: Bench) -> None:
    event_id = bench.event()
    bench.take()
    bench("QGET", "q", "g", "BLOCK", 60, client="anna")
    bench("QGROUP", "RETURN", "q", "g", event_id)
    assert bench.answers["anna"] == [[event_id, b"x"]]


def test_a_group_that_is_forgotten_is_a_new_one_when_it_comes_again(bench: Bench) -> None:
    ids = [bench.event(body) for body in "ab"]
    bench.take("g", "EX", 0)
    bench.take()
    assert bench("QGROUP", "FORGET", "q", "g") == 1
    assert bench("QGROUP", "LIST", "q") == []
    assert bench("QGROUP", "FORGET", "q", "g") == 0
    assert bench.ack(ids[1]) == 0
    assert [bench.body(), bench.body()] == [b"a", b"b"]


# Flushing.


def test_a_flush_ends_all_events_and_all_that_groups_made_of_them(bench: Bench) -> None:
    ids = [bench.event(body) for body in "abc"]
    bench.take()
    assert bench("QFLUSH", "q") == b"OK"
    assert bench.figures()["total"] == 0
    assert bench.ack(ids[0]) == 0
    assert bench.body() is None
    bench.advance(40_000)
    assert bench.body() is None
    assert not len(bench.state.jobs)
    bench.event("new")
    assert bench.body() == b"new"
    assert bench("QFLUSH", "no queue") == b"OK"


def test_who_waits_goes_on_waiting_after_a_flush(bench: Bench) -> None:
    bench.event("old")
    bench.take()
    bench("QGET", "q", "g", "BLOCK", 60, client="anna")
    bench("QNOTIFY", "other", 60, "q", "r", client="ben")
    bench.answers.clear()
    bench("QNOTIFY", "g", 60, "q", "r", client="cleo")
    bench("QFLUSH", "q")
    bench("QFLUSH", "r")
    event_id = bench.event("new")
    assert bench.answers["anna"] == [[event_id, b"new"]]
    assert bench.answers["cleo"] == [b"q"]
    # What was flushed is let go of a part at a time.
    bench.advance(10)


def test_after_a_flush_memory_is_what_it_was(bench: Bench) -> None:
    for number in range(3_000):
        bench.event(number)
    bench("QGET", "q", "g", "COUNT", 1_000)
    bench("QFLUSH", "q")
    bench.advance(400_000)
    assert not len(bench.state.queues)
    assert bench.state.memory.used == 0


def test_when_everything_has_ended_memory_is_what_it_was(bench: Bench) -> None:
    for number in range(100):
        bench.event(number, "q", 5 + number % 7)
        bench.take("a", "EX", number % 3)
        bench.take("b")
    bench.advance(20_000)
    bench.advance(400_000)
    assert bench.state.memory.used == 0


def test_a_flush_of_the_whole_node_takes_logs_along(bench: Bench) -> None:
    bench.event()
    bench.take()
    bench("QGET", "r", "g", "BLOCK", 60, client="anna")
    bench.event("y")
    bench("QFLUSH", "q")
    bench("DEBUG", "FLUSHALL")
    bench.advance(40_000)
    assert bench.state.memory.used == 0
    assert bench.take() is None


# Very many events.


def test_very_many_events_that_are_not_for_a_group_are_passed_over_bit_by_bit(bench: Bench) -> None:
    for number in range(12_000):
        bench.event(number)
    taken = 0
    while taken < 11_999:
        taken += len(bench("QGET", "q", "g", "EX", 0, "COUNT", 2_000)[: 11_999 - taken])
        if taken >= 10_000:
            break
    bench.state.queues.by_name[b"q"].stream.groups[b"g"].position = (-1, b"")  # type: ignore[union-attr]
    assert bench("QGET", "q", "g") is BLOCKED
    bench.advance(10)
    [[_, body]] = bench.answers["client"]
    assert int(body) == taken


# Records.


def test_the_journal_hears_of_events_leases_facts_and_beginnings(bench: Bench) -> None:
    event_id = bench.event()
    bench.take("g", "EX", 10)
    until = b"%d" % (bench.clock.wall() + 10_000)
    bench.ack(event_id)
    bench("QGROUP", "START", "q", "g", "FIRST")
    assert [record[0] for record in bench.journal] == [JOB_ADDED, UNIT_LEASED, UNIT_DONE, GROUP]
    assert bench.journal[1][1:] == (event_id, b"0:g", 1, until)
    assert bench.journal[2][1:] == (event_id, b"0:g")
    assert bench.journal[3][1:] == (b"q", b"1:g", ((b"01234567", 0),))


# Beside the commands of okq.


def test_one_word_behind_the_queue_acknowledges_an_event_of_okq(bench: Bench) -> None:
    bench("QLPUSH", "work", "id", "x")
    assert bench("QACK", "work", "id") == 1
    event_id = bench.event()
    bench.take()
    assert bench.refusal("QACK", "q", event_id).startswith("WRONGTYPE ")
    assert bench.ack(event_id) == 1


def test_a_consumer_is_a_member_of_a_group_or_of_none(bench: Bench) -> None:
    bench("QREGISTER", "q")
    bench("QREGISTER", "GROUP", "g", "q")
    assert [bench.figures()["consumers"], len(bench.node.consumers)] == [1, 0]
    bench("QREGISTER", "q")
    assert [bench.figures()["consumers"], len(bench.node.consumers)] == [0, 1]


def test_a_flush_of_work_leaves_events_of_other_queues_alone_and_the_other_way_round(bench: Bench) -> None:
    bench.event("x", "log")
    bench("QLPUSH", "work", "id", "x")
    bench("QFLUSH", "work")
    assert bench.figures("g", "log")["total"] == 1
    bench("QLPUSH", "work", "id", "x")
    bench("QFLUSH", "log")
    bench.advance(10)
    assert bench("QRPOP", "work") == [b"id", b"x"]


def test_what_a_lost_connection_never_saw_goes_back_to_its_group_at_once(bench: Bench) -> None:
    bench.event("a")
    bench.event("b")
    row = bench("QGET", "q", "g")
    bench.node.begin()
    bench.node.gone("client", [row.job_id])
    bench.settle()
    assert counts(bench) == (0, 0, 0, 2)
    assert bench.body() == b"a"
    row = bench("QGET", "q", "g", "EX", 0)
    bench.node.begin()
    bench.node.gone("client", [row.job_id])
    bench.settle()
    assert bench.take() is None


def test_an_event_is_shown_with_what_each_group_made_of_it(bench: Bench) -> None:
    event_id = bench("QADD", "q", 600, "x")
    assert dict(zip(*[iter(bench("SHOW", event_id))] * 2, strict=True))[b"groups"] == []
    for group in ("a", "b", "c"):
        bench("QGET", "q", group, "EX", 5)
    assert bench("QACK", "q", "b", event_id) == 1
    bench.advance(2_000)
    assert bench("QGROUP", "RETURN", "q", "c", event_id) == 1
    assert dict(zip(*[iter(bench("SHOW", event_id))] * 2, strict=True))[b"groups"] == [
        [b"a", b"in progress", 1, 3_000], [b"b", b"done", 0, 0], [b"c", b"redo", 1, 0],
    ]  # fmt: skip
    for late_ms in (3_000, 10):
        bench.clock.advance(late_ms)  # and nobody has looked at it yet
        assert dict(zip(*[iter(bench("SHOW", event_id))] * 2, strict=True))[b"groups"][0] == [
            b"a", b"in progress", 1, 0,
        ]  # fmt: skip
