"""The checker of streams finds what is wrong with a history of groups, and nothing wrong with a good one."""

import pytest

from disqued.core.model.job import RETRY_NEVER_MS
from disqued.testing.checker import CHANCE_MS, GRACE_MS, LATE_MS, Request, body_of
from disqued.testing.groupstarts import AT, FIRST, FORGET, NOW, GroupStart
from disqued.testing.streamchecker import StreamChecker
from disqued.testing.streamrecords import Ack, Hold, StreamRules

ALICE, BOB = b"DI" + b"a" * 40 + b"05a0SQ", b"DI" + b"b" * 40 + b"05a0SQ"
EXACT = StreamRules(exact=True)
LIFE_MS = 1_200_000
FIGURES = {b"total": 4, b"inprogress": 1, b"redo": 1, b"done": 1, b"available": 1, b"consumers": 7}


class History:
    """Facts about one queue and a group of each kind, in the order of the calls; each takes a second."""

    def __init__(self, rules: StreamRules | None = None) -> None:
        self.checker = StreamChecker(
            rules or StreamRules(), acking=(b"g",), once=(b"once", b"strict"), strict=b"strict"
        )
        self.now = 0

    def pass_by(self, ms: int = 1_000) -> int:
        self.now += ms
        return self.now

    def ask(self, *, ttl_ms: int = LIFE_MS, delay_ms: int = 0, node: int = 0) -> int:
        number = self.checker.next_number()
        body = body_of(number, 20)
        self.checker.asked(
            Request(number, b"q", body, 1, RETRY_NEVER_MS, ttl_ms, delay_ms, node, "ann", self.pass_by())
        )
        return number

    def add(self, event_id: bytes = ALICE, **options: int) -> int:
        number = self.ask(**options)
        self.checker.answered(number, event_id, self.now, frozenset({0}))
        return number

    def give(
        self, number: int, group: bytes = b"g", who: str = "bob", *, event_id: bytes = ALICE, after_ms: int = 1_000
    ) -> None:
        lease_ms = 5_000 if group == b"g" else 0
        body = self.checker.requests[number].body
        self.checker.delivered(event_id, b"q", body, Hold(group, who, 0, self.pass_by(after_ms), lease_ms))

    def give_the_others(self, number: int, event_id: bytes = ALICE) -> None:
        """Let the groups that fetch with EX 0 have it."""
        self.give(number, b"once", event_id=event_id)
        self.give(number, b"strict", event_id=event_id)

    def send_ack(self, who: str = "bob", event_id: bytes = ALICE) -> list[Ack]:
        return self.checker.acking([event_id], b"g", who, self.pass_by())

    def begin_anew(self, kind: bytes = FIRST, at: int = 0, *, answered: bool = True) -> None:
        """Let the group begin anew; `at`: the number of an event."""
        beginning = GroupStart(b"q", b"g", kind, self.pass_by(), self.checker.requests[at] if at else None)
        self.checker.begins(beginning)
        if answered:
            self.checker.began(beginning, self.now)
            self.pass_by()

    def ack(self, count: int = 1, who: str = "bob") -> None:
        acks = self.send_ack(who)
        self.checker.acked([ALICE], b"g", acks, count, self.now)

    @property
    def wrong(self) -> str:
        """The first word or words of what is wrong; empty = nothing."""
        verdict = self.checker.verdict()
        return verdict[0].partition(":")[0] if verdict else ""


@pytest.mark.parametrize("rules", [StreamRules(), EXACT])
def test_an_event_that_every_group_is_done_with_is_fine(rules: StreamRules) -> None:
    history = History(rules)
    number = history.add()
    history.give(number)
    history.ack()
    history.give_the_others(number)
    assert not history.wrong


def test_an_event_that_nobody_was_promised_may_be_missing_and_may_come() -> None:
    history = History(EXACT)
    history.checker.refused(history.ask())
    unanswered = history.ask()
    assert not history.wrong
    history.give(unanswered)
    assert not history.wrong


def test_a_promised_event_is_given_until_somebody_acknowledges_it() -> None:
    history = History()
    number = history.add()
    assert history.wrong == "at least once"
    history.give(number)
    assert history.wrong == "at least once"
    history.ack()
    assert not history.wrong


def test_a_refused_acknowledgement_leaves_the_event_to_be_done() -> None:
    history = History()
    history.give(history.add())
    history.ack(count=0)
    assert history.wrong == "at least once"


def test_an_acknowledgement_without_an_answer_may_have_been_heard() -> None:
    history = History()
    history.give(history.add())
    history.send_ack()
    assert not history.wrong


def test_an_answer_for_several_events_that_counts_some_tells_of_none() -> None:
    history = History()
    for event_id in (ALICE, BOB):
        history.give(history.add(event_id), event_id=event_id)
    acks = history.checker.acking([ALICE, BOB], b"g", "bob", history.pass_by())
    history.checker.acked([ALICE, BOB], b"g", acks, 1, history.now)
    assert [ack.accepted for ack in acks] == [None, None]
    assert not history.wrong


def test_groups_that_never_acknowledge_must_get_an_event_only_where_nothing_fails() -> None:
    for rules, wrong in ((StreamRules(), ""), (EXACT, "at least once")):
        history = History(rules)
        history.give(history.add())
        history.ack()
        assert history.wrong == wrong


def test_an_event_whose_holder_lost_its_memory_may_be_missing() -> None:
    history = History()
    history.add()
    history.checker.lost_memory(0, history.pass_by())
    assert not history.wrong


def test_an_event_whose_time_ends_before_it_has_a_chance_may_be_missing() -> None:
    for healed_at, wrong in ((61_000 - CHANCE_MS, "at least once"), (61_002 - CHANCE_MS, "")):
        history = History()
        history.add(ttl_ms=60_000)
        history.checker.healed(healed_at)
        assert history.wrong == wrong


@pytest.mark.parametrize("body", [b"99:x", b"nonsense"])
def test_what_nobody_added_is_noticed(body: bytes) -> None:
    history = History()
    history.add()
    history.checker.delivered(ALICE, b"q", body, Hold(b"g", "bob", 0, 5_000, 5_000))
    assert "has a body that nobody added" in history.checker.violations[0]


def test_figures_that_do_not_add_up_are_noticed() -> None:
    for change, wrong in (({}, ""), ({b"done": 2}, "counted"), ({b"done": -1, b"redo": 3}, "counted")):
        history = History()
        history.checker.figures(0, b"q", b"g", FIGURES | change, 0)
        assert history.wrong == wrong


def test_what_is_given_with_strict_is_given_once_unless_its_origin_forgot() -> None:
    history, forgetful = History(), History()
    for each in (history, forgetful):
        number = each.add()
        each.give(number)
        each.ack()
        each.give(number, b"strict")
        if each is forgetful:
            each.checker.lost_memory(0, each.now)
        each.give(number, b"strict")
    assert history.wrong == "at most once"
    assert not forgetful.wrong


@pytest.mark.parametrize(
    ("rules", "after_ms", "wrong"),
    [(EXACT, LATE_MS, ""), (EXACT, LATE_MS + 1, "exactly once"), (StreamRules(), LATE_MS + 1, "")],
)
@pytest.mark.parametrize("group", [b"g", b"once"])
def test_nobody_gets_what_the_group_is_done_with_where_nothing_fails(
    group: bytes, rules: StreamRules, after_ms: int, wrong: str
) -> None:
    history = History(rules)
    number = history.add()
    history.give_the_others(number)
    history.give(number)
    history.ack()
    if group == b"once":
        history.now = 2_000  # when that group had it
    history.give(number, group, "eve", after_ms=after_ms)
    assert history.wrong == wrong


def test_an_acknowledgement_outlasts_the_heal() -> None:
    for rules, after_ms, wrong in (
        (StreamRules(), GRACE_MS, ""), (StreamRules(), GRACE_MS + 1, "acks last"),
        (StreamRules(acks_last=False), 99_999, ""),
    ):  # fmt: skip
        history = History(rules)
        number = history.add()
        history.give(number)
        history.ack()
        history.checker.healed(history.now)
        history.give(number, after_ms=after_ms)
        assert history.wrong == wrong


def test_two_consumers_of_a_group_do_not_have_an_event_at_a_time() -> None:
    for after_ms, wrong in ((5_000 - LATE_MS - 1, "one at a time"), (5_000 - LATE_MS, "")):
        history = History(EXACT)
        number = history.add()
        history.give(number)
        history.give(number, who="eve", after_ms=after_ms)
        history.ack(who="eve")
        history.give_the_others(number)
        assert history.wrong == wrong


def test_what_was_given_up_is_anybodys_at_once() -> None:
    history = History(EXACT)
    number = history.add()
    history.give(number)
    history.checker.given_up([ALICE], b"g", history.now)
    history.give(number, who="eve")
    history.ack(who="eve")
    history.give_the_others(number)
    assert not history.wrong


@pytest.mark.parametrize(("answered", "wrong"), [(True, "answers"), (False, "")])
def test_what_was_given_back_can_be_had(wrong: str, *, answered: bool) -> None:
    history = History(EXACT)
    number = history.add()
    history.give(number)
    history.checker.given_up([ALICE], b"g", history.now)
    if answered:
        history.checker.given_back([ALICE], b"g", history.pass_by())
    history.checker.nothing(b"q", b"g", history.now, history.pass_by(), waited=True)
    history.give(number, who="eve")
    history.ack(who="eve")
    history.give_the_others(number)
    assert history.wrong == wrong


@pytest.mark.parametrize(
    ("rules", "after_ms", "wrong"),
    [(EXACT, LATE_MS, ""), (EXACT, LATE_MS + 1, "on time"), (StreamRules(on_time_ms=2_000), 2_000, "")],
)
def test_an_event_does_not_come_after_its_time(rules: StreamRules, after_ms: int, wrong: str) -> None:
    history = History(rules)
    number = history.add(ttl_ms=10_000)
    history.give_the_others(number)
    history.give(number, after_ms=8_000 + after_ms)
    history.ack()
    assert history.wrong == wrong


@pytest.mark.parametrize(("after_ms", "wrong"), [(5_000 - LATE_MS - 1, "answers"), (5_000 - LATE_MS, "")])
def test_an_acknowledgement_in_time_is_not_refused(after_ms: int, wrong: str) -> None:
    history = History(EXACT)
    number = history.add(ttl_ms=100_000)
    history.give_the_others(number)
    history.give(number)
    history.pass_by(after_ms - 1_000)
    history.ack(count=0)
    # So nobody is done with it, and that is excused.
    history.checker.healed(100_000)
    assert history.wrong == wrong


def test_an_acknowledgement_too_late_is_accepted_only_while_somebody_has_the_event() -> None:
    for somebody, wrong in ((False, "answers"), (True, "")):
        history = History(EXACT)
        number = history.add()
        history.give(number)
        history.pass_by(6_000)
        if somebody:
            history.give(number, who="eve", after_ms=0)
        history.ack()
        history.give_the_others(number)
        assert history.wrong == wrong


def test_no_two_consumers_are_told_that_they_did_it() -> None:
    history = History(EXACT)
    number = history.add()
    history.give(number)
    history.ack()
    history.ack(who="eve")
    history.give_the_others(number)
    assert any("accepted twice" in line for line in history.checker.verdict())


@pytest.mark.parametrize(
    ("waited", "asked_after_ms", "given_after_ms", "wrong"),
    [
        (True, 0, LATE_MS + 1, "answers"),
        # Another one is on the way to get it.
        (True, 0, LATE_MS, ""),
        # It was not there yet when somebody asked who did not wait.
        (False, LATE_MS, LATE_MS + 1, ""),
        (False, LATE_MS + 1, LATE_MS + 1, "answers"),
    ],
)
def test_null_is_not_answered_while_there_is_an_event(
    asked_after_ms: int, given_after_ms: int, wrong: str, *, waited: bool
) -> None:
    history = History(EXACT)
    number = history.add()
    history.checker.nothing(b"q", b"g", history.now + asked_after_ms, history.pass_by(), waited=waited)
    history.give(number, after_ms=given_after_ms)
    history.ack()
    history.give_the_others(number)
    assert history.wrong == wrong


def test_null_is_answered_while_events_are_with_others_or_wait_for_their_time() -> None:
    history = History(EXACT)
    for event_id, delay_ms in ((ALICE, 60_000), (BOB, 0)):
        number = history.add(event_id, delay_ms=delay_ms)
        history.give_the_others(number, event_id)
        if not delay_ms:
            history.give(number, event_id=event_id)
    history.checker.nothing(b"q", b"g", history.now, history.pass_by(), waited=True)
    assert not any("null" in line for line in history.checker.verdict())


def test_what_was_flushed_may_be_missing_and_does_not_come_again() -> None:
    for node, wrong in ((0, "flushed"), (1, "")):
        history = History(EXACT)
        number = history.add()
        flush = history.checker.flushes.begin(b"q", node, history.pass_by())
        flush.answered_at = history.now
        assert not history.wrong
        history.give(number)
        assert history.wrong == wrong


def test_what_is_added_after_a_flush_is_not_flushed() -> None:
    history = History()
    history.checker.flushes.begin(b"q", 0, 0).answered_at = 1_000 - LATE_MS - 1
    number = history.add()
    assert history.wrong == "at least once"
    history.give(number)
    history.ack()
    assert not history.wrong


def test_no_command_fails_where_nothing_does() -> None:
    for rules, wrong in ((EXACT, "answers"), (StreamRules(), "")):
        history = History(rules)
        history.checker.failed(b"QGET", "NOREPL", 5)
        assert history.wrong == wrong


# Groups that begin anew.


@pytest.mark.parametrize("kind", [FIRST, FORGET])
def test_a_group_that_begins_anew_gets_and_does_everything_again(kind: bytes) -> None:
    history = History(EXACT)
    number = history.add()
    history.give_the_others(number)
    history.give(number)
    history.ack()
    assert not history.wrong
    history.begin_anew(kind)
    assert history.wrong == "at least once"
    history.give(number)
    history.ack()
    assert not history.wrong


def test_who_had_an_event_before_its_group_began_anew_is_refused() -> None:
    for accepted, wrong in ((0, "at least once"), (1, "answers")):
        history = History(EXACT)
        number = history.add()
        history.give_the_others(number)
        history.give(number)
        history.begin_anew()
        history.ack(accepted)
        assert history.wrong == wrong


def test_a_group_gets_nothing_that_it_began_behind_and_all_that_comes_after() -> None:
    for kind in (NOW, AT):
        history = History(EXACT)
        number, later = history.add(), history.add(BOB)
        history.give_the_others(number)
        history.give_the_others(later, BOB)
        history.begin_anew(kind, later if kind == AT else 0)
        if kind == AT:
            assert history.wrong == "at least once"
            history.give(later, event_id=BOB)
            acks = history.checker.acking([BOB], b"g", "bob", history.pass_by())
            history.checker.acked([BOB], b"g", acks, 1, history.now)
        assert not history.wrong
        history.give(number)
        assert history.wrong == "begins"


def test_what_is_added_after_a_group_began_anew_is_given_to_it() -> None:
    history = History(EXACT)
    history.begin_anew(NOW)
    number = history.add()
    history.give_the_others(number)
    assert history.wrong == "at least once"
    history.give(number)
    history.ack()
    assert not history.wrong


def test_what_is_added_while_a_group_begins_anew_may_be_given_to_it_or_not() -> None:
    for given in (False, True):
        history = History(EXACT)
        beginning = history.checker.begins(GroupStart(b"q", b"g", NOW, history.pass_by()))
        number = history.add()
        history.checker.began(beginning, history.pass_by())
        history.give_the_others(number)
        if given:
            history.give(number)
        assert not history.wrong


def test_while_something_fails_nobody_knows_where_a_group_begins() -> None:
    for kind, answered, wrong in ((NOW, True, ""), (NOW, False, ""), (FORGET, True, "at least once")):
        history = History()
        number = history.add()
        history.begin_anew(kind, answered=answered)
        assert history.wrong == wrong
        history.give(number)
        history.ack()
        history.checker.healed(history.now)
        history.give(number, after_ms=GRACE_MS + 1)
        assert not history.wrong


def test_where_a_group_begins_after_the_heal_is_known() -> None:
    for kind, wrong in ((NOW, ""), (FORGET, "at least once")):
        history = History()
        number = history.add()
        history.begin_anew(NOW)
        history.give(number)
        history.ack()
        history.checker.healed(history.now)
        history.pass_by(GRACE_MS)
        history.begin_anew(kind)
        assert history.wrong == wrong
        history.give(number)
        history.ack()
        assert history.wrong == ("begins" if kind == NOW else "")


def test_a_beginning_that_is_refused_changes_nothing() -> None:
    history = History(EXACT)
    number = history.add()
    history.give_the_others(number)
    history.give(number)
    history.ack()
    history.checker.begins_not(history.checker.begins(GroupStart(b"q", b"g", FORGET, history.pass_by())))
    assert not history.wrong
    history.give(number, after_ms=1_000)
    assert history.wrong == "exactly once"


# Workers.


@pytest.mark.parametrize(("given_after_ms", "wrong"), [(2_000 + LATE_MS, ""), (2_000 + LATE_MS + 1, "answers")])
def test_what_a_dead_worker_had_can_be_had(given_after_ms: int, wrong: str) -> None:
    history = History(EXACT)
    number = history.add()
    history.give_the_others(number)
    history.give(number, who="worker")
    died_at = history.now
    history.checker.left([ALICE], b"g", "worker", died_at, died_at + 2_000)
    history.checker.nothing(b"q", b"g", died_at, died_at + given_after_ms, waited=True)
    history.give(number, who="eve", after_ms=given_after_ms + LATE_MS + 1)
    history.ack(who="eve")
    assert history.wrong == wrong


def test_what_a_live_worker_has_nobody_else_gets() -> None:
    for who, wrong in (("worker", ""), ("another", "one at a time")):
        history = History(EXACT)
        number = history.add()
        history.give_the_others(number)
        history.give(number, who="worker")
        history.checker.left([ALICE], b"g", who, history.now, history.now)
        history.give(number, who="eve")
        history.ack(who="eve")
        assert history.wrong == wrong


# Lengths.


@pytest.mark.parametrize(("maxlen", "wrong"), [(1, ""), (2, "capped")])
def test_an_event_is_refused_only_when_there_are_so_many(maxlen: int, wrong: str) -> None:
    history = History()
    number = history.add()
    history.give(number)
    history.ack()
    refused = history.ask()
    history.checker.caps[refused] = maxlen
    history.checker.too_long(history.checker.requests[refused], history.now)
    assert history.wrong == wrong
    history.give(refused, event_id=BOB)
    assert history.wrong == "capped"


@pytest.mark.parametrize(
    ("maxlen", "options", "wrong"),
    [(1, {}, "capped"), (2, {}, ""), (1, {"node": 1}, ""), (1, {"delay_ms": 5_000}, ""), (1, {"ttl_ms": 1_000}, "")],
)
def test_an_event_is_taken_only_when_its_node_has_made_fewer(maxlen: int, options: dict[str, int], wrong: str) -> None:
    history = History()
    history.give(history.add(**options))
    history.ack()
    number = history.ask()
    history.checker.caps[number] = maxlen
    history.checker.answered(number, BOB, history.now, frozenset({0}))
    history.give(number, event_id=BOB)
    acks = history.checker.acking([BOB], b"g", "bob", history.pass_by())
    history.checker.acked([BOB], b"g", acks, 1, history.now)
    assert history.wrong == wrong
