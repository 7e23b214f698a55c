"""The checker finds what is wrong with a history, and nothing wrong with a good one."""

import pytest

from disqued.testing.checker import ASKED_MS, CHANCE_MS, GRACE_MS, LATE_MS, Checker, Request, Rules, body_of

ALICE, BOB = b"DI" + b"a" * 40 + b"05a0SQ", b"DI" + b"b" * 40 + b"05a0SQ"
WEEK_MS = 7 * 86_400_000
STRICT = Rules(all_acks_last=True, exactly_once=True, in_order=True, soon_ms=1_000, once_arrives=True, on_time=True)


class History:
    """Facts in the order of the calls; each takes a second."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.made_at: dict[bytes, int] = {}
        self.checker = Checker(rules, lambda job_id: self.made_at.get(job_id, 0))
        self.now = 0

    def _tick(self) -> int:
        self.now += 1_000
        return self.now

    def ask(
        self, *, replicate: int = 2, retry_ms: int = 5_000, ttl_ms: int = WEEK_MS, node: int = 0, **more: bool
    ) -> int:
        number = self.checker.next_number()
        body = body_of(number, 20)
        self.checker.asked(
            Request(number, b"q", body, replicate, retry_ms, ttl_ms, 0, node, "ann", self._tick(), **more)
        )
        return number

    def add(self, job_id: bytes = ALICE, holders: tuple[int, ...] | None = (0, 1), **options: int) -> int:
        number = self.ask(**options)
        self.checker.answered(number, job_id, self.now, None if holders is None else frozenset(holders))
        return number

    def deliver(self, number: int, job_id: bytes = ALICE, *, node: int = 0, after_ms: int = 0) -> None:
        self.now += after_ms
        self.checker.delivered(job_id, b"q", self.checker.requests[number].body, self._tick(), node)

    def ack(self, job_id: bytes = ALICE, *, known: bool = True, fast: bool = False) -> None:
        self.checker.ack_sent(job_id, fast=fast)
        if not fast:
            self.checker.acked(job_id, self._tick(), known=known)

    @property
    def wrong(self) -> str:
        """The first word or words of what is wrong; empty = nothing."""
        verdict = self.checker.verdict()
        return verdict[0].partition(":")[0] if verdict else ""


def test_a_job_that_is_added_delivered_and_acknowledged_is_fine() -> None:
    history = History(STRICT)
    number = history.add()
    history.deliver(number, after_ms=-500)
    history.ack()
    assert not history.wrong


def test_a_job_that_nobody_was_promised_may_be_missing_and_may_come() -> None:
    history = History()
    refused, unanswered = history.ask(), history.ask()
    history.checker.refused(refused)
    assert not history.wrong
    history.deliver(unanswered)
    assert not history.wrong


def test_a_purged_job_is_not_delivered_after_the_answer() -> None:
    history = History()
    number = history.add()
    history.ack()
    history.checker.purged[ALICE] = history.now + 1_000
    history.deliver(number)  # as the purge is answered
    assert not history.wrong
    history.deliver(number)
    assert history.wrong == "purged"


def test_a_purge_ends_what_was_added_up_to_its_answer_and_nothing_else() -> None:
    history = History()
    history.add()
    history.checker.purged_until[b"other"] = [history.now]
    assert history.wrong == "at least once"
    history.checker.purged_until[b"q"] = [0, history.now]
    assert not history.wrong
    history.add(BOB)
    assert history.wrong == "at least once"


def test_a_promised_job_is_delivered_until_it_is_acknowledged() -> None:
    history = History()
    number = history.add()
    assert history.wrong == "at least once"
    history.deliver(number)
    assert history.wrong == "at least once"
    history.ack()
    assert not history.wrong


@pytest.mark.parametrize(
    ("holders", "lost", "excused"),
    [
        ((0, 1), [0], False),
        ((0, 1), [0, 0], False),
        ((0, 1), [0, 2], False),
        ((0, 1), [0, 1], True),
        ((0, 1, 2), [0, 2], True),
        (None, [0], False),
        (None, [3, 4], True),
    ],
)
def test_as_many_holders_as_copies_must_lose_their_memory_before_a_job_may_be_lost(
    holders: tuple[int, ...] | None, lost: list[int], *, excused: bool
) -> None:
    history = History()
    history.add(holders=holders, replicate=2)
    for node in lost:
        history.checker.lost_memory(node, history.now + 1)
    assert (history.wrong == "") is excused


def test_memory_that_was_lost_before_a_job_came_excuses_nothing() -> None:
    history = History()
    history.checker.lost_memory(0, 0)
    history.checker.lost_memory(1, 0)
    history.add()
    assert history.wrong == "at least once"


def test_an_asynchronous_job_is_held_by_its_node_alone_for_sure() -> None:
    history = History()
    history.checker.answered(history.ask(replicate=3, waits_for_copies=False), ALICE, history.now, frozenset({0, 1, 2}))
    assert history.wrong == "at least once"
    history.checker.lost_memory(2, history.now)
    assert not history.wrong


def test_a_job_whose_time_ends_before_it_has_a_chance_may_be_missing() -> None:
    history = History()
    history.add(ttl_ms=60_000)
    assert history.wrong == "at least once"
    history.checker.healed(61_000 - CHANCE_MS)
    assert history.wrong == "at least once"
    history.checker.healed(61_002 - CHANCE_MS)
    assert not history.wrong


def test_an_at_most_once_job_may_be_lost_and_may_not_come_twice() -> None:
    history = History()
    number = history.add(retry_ms=0)
    assert not history.wrong
    history.deliver(number)
    assert not history.wrong
    history.deliver(number)
    assert history.wrong == "at most once"


def test_an_at_most_once_job_arrives_where_nothing_fails() -> None:
    history = History(Rules(once_arrives=True))
    history.add(retry_ms=0)
    assert history.wrong == "at least once"


@pytest.mark.parametrize(
    ("acked_ms", "again_ms", "wrong"),
    [
        (None, 5_000, ""),
        (None, 4_999, "one at a time"),
        (5_000, 5_001, "one at a time"),  # in time
        (5_001, 5_601, ""),  # late, and on its way
        (5_001, 5_602, "one at a time"),
        (1_000, 4_000, "one at a time"),
    ],
)
def test_a_job_comes_again_when_its_consumer_was_too_slow_and_only_then(
    acked_ms: int | None, again_ms: int, wrong: str
) -> None:
    checker = Checker(Rules(crossing_ms=600))
    number = checker.next_number()
    body = body_of(number, 20)
    checker.asked(Request(number, b"q", body, 2, 5_000, WEEK_MS, 0, 0, "ann", 0))
    checker.answered(number, ALICE, 0, None)
    checker.delivered(ALICE, b"q", body, 10_000, 0)
    if acked_ms is not None:
        checker.ack_sent(ALICE)
        checker.acked(ALICE, 10_000 + acked_ms, known=True)
    checker.delivered(ALICE, b"q", body, 10_000 + again_ms, 1)
    checker.ack_sent(ALICE)
    assert {text.partition(":")[0] for text in checker.verdict()} == ({wrong} if wrong else set())
    assert checker.requests[number].again_after_ack == (acked_ms is not None)


def test_a_job_that_may_come_again_does_not_where_nothing_fails() -> None:
    calm, rough = History(Rules(exactly_once=True)), History()
    for history in (calm, rough):
        number = history.add()
        history.deliver(number)
        history.deliver(number)
        history.ack()
    assert calm.wrong == "exactly once"
    assert not rough.wrong


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda body: body[:-1], "has a body"),
        (lambda body: body + b"!", "has a body"),
        (lambda body: b"99" + body, "has a body"),
        (lambda body: b"nonsense", "has a body"),
    ],
)
def test_a_body_that_is_not_what_was_added_is_noticed(change: object, wrong: str) -> None:
    history = History()
    number = history.add()
    assert callable(change)
    body = change(history.checker.requests[number].body)
    assert history.checker.delivered(ALICE, b"q", body, 9_000, 0) is None
    assert wrong in history.checker.violations[0]


def test_a_job_from_another_queue_is_noticed() -> None:
    history = History()
    number = history.add()
    history.checker.delivered(ALICE, b"r", history.checker.requests[number].body, 9_000, 0)
    assert "from queue b'r'" in history.checker.violations[0]


def test_one_id_for_two_jobs_and_two_ids_for_one_are_noticed() -> None:
    history = History()
    history.add(ALICE)
    history.add(ALICE)
    assert history.checker.violations[0].startswith("one id for two jobs")
    history = History()
    history.deliver(history.add(ALICE), BOB)
    assert history.checker.violations[0].startswith("two ids for one job")


def test_jobs_come_in_the_order_of_their_producer_at_its_node_alone() -> None:
    for node, wrong in ((0, "in order"), (1, "")):
        history = History(Rules(in_order=True))
        first, second = history.add(ALICE), history.add(BOB)
        history.deliver(second, BOB, node=node)
        history.deliver(first, ALICE, node=node)
        history.ack(ALICE)
        history.ack(BOB)
        assert history.wrong == wrong


def test_a_job_does_not_wait_long_where_consumers_do() -> None:
    for after_ms, wrong in ((0, ""), (1, "soon")):
        history = History(Rules(soon_ms=1_000))
        history.deliver(history.add(), after_ms=after_ms)
        history.ack()
        assert history.wrong == wrong


def test_a_job_does_not_come_after_its_time() -> None:
    for after_ms, wrong in ((LATE_MS, ""), (LATE_MS + 1, "on time")):
        history = History(Rules(on_time=True))
        history.deliver(history.add(ttl_ms=1_000), after_ms=after_ms)
        history.ack()
        assert history.wrong == wrong


@pytest.mark.parametrize(
    ("rules", "known", "fast", "wrong"),
    [
        (Rules(), True, False, "acks last"),
        (Rules(), False, False, ""),
        (Rules(all_acks_last=True), False, False, "acks last"),
        (Rules(acks_last=False), True, False, ""),
        (Rules(), True, True, ""),
    ],
)
def test_an_ack_outlasts_the_heal(rules: Rules, wrong: str, *, known: bool, fast: bool) -> None:
    for after_ms, expected in ((GRACE_MS - 1_000, ""), (GRACE_MS, wrong)):
        history = History(rules)
        number = history.add()
        history.deliver(number)
        history.ack(known=known, fast=fast)
        history.checker.healed(history.now + 1)
        history.deliver(number, after_ms=after_ms + 1)
        assert history.wrong == expected


def keyed(history: History) -> int:
    """Ask for a job that was said several times under one key, while nobody was apart."""
    number = history.ask(is_keyed=True)
    history.checker.requests[number].is_once = True
    return number


def test_two_jobs_of_one_key_are_wrong_whichever_was_answered() -> None:
    for answered in (ALICE, BOB):
        history = History()
        number = keyed(history)
        history.checker.answered(number, answered, history.now, frozenset((0, 1)))
        for job_id in (ALICE, BOB):
            history.deliver(number, job_id)
            history.ack(job_id)
        assert history.wrong == "one for each key"
        # It is no promise while somebody was apart.
        history.checker.requests[number].is_once = False
        assert not history.wrong


@pytest.mark.parametrize(
    ("generation", "node", "after_ms", "heals_at", "wrong"),
    [
        (1, 1, 4_999, 0, "redriven once"),
        (1, 1, 5_000, 0, ""),
        (1, 0, 4_999, 0, ""),
        (0, 1, 4_999, 0, ""),
        (1, 1, 4_999, GRACE_MS + 1, "redriven once"),
        (1, 1, 4_999, GRACE_MS + 2, ""),
        (1, 1, 4_999, None, ""),
    ],
)
def test_one_node_alone_delivers_a_redriven_job_within_its_retry_period(
    generation: int, node: int, after_ms: int, heals_at: int | None, wrong: str
) -> None:
    history = History()
    number = history.add(retry_ms=5_000)
    if heals_at is not None:
        history.checker.healed(heals_at)
    history.deliver(number)
    last_at = GRACE_MS + 1
    history.checker.tried(ALICE, 0, generation, 9, last_at)
    history.checker.tried(ALICE, node, generation, 9, last_at + after_ms)
    history.checker.tried(ALICE, 2, generation + 1, 9, last_at + after_ms)
    history.ack()
    assert history.wrong == wrong


def test_a_redriven_job_that_was_given_back_may_be_delivered_by_another_node_at_once() -> None:
    history = History()
    number = history.add(retry_ms=5_000)
    history.checker.healed(0)
    history.deliver(number)
    history.checker.tried(ALICE, 0, 1, 9, history.now)
    history.checker.given_back([ALICE])
    history.checker.tried(ALICE, 1, 1, 9, history.now)
    history.ack()
    assert not history.wrong


@pytest.mark.parametrize(
    ("tries", "nodes", "wrong", "wrong_where_nothing_fails"),
    [
        (3, (0, 1), "", ""), (2, (0, 1), "", "tries"), (4, (0, 1), "", "tries"), (1, (0, 1), "tries", "tries"),
        (1, (1,), "", "tries"), (0, (1,), "tries", "tries"), (0, (2,), "", "tries"), (0, (), "", "tries"),
    ],
)  # fmt: skip
def test_tries_are_no_fewer_than_one_node_delivered_and_all_deliveries_where_nothing_fails(
    tries: int, nodes: tuple[int, ...], wrong: str, wrong_where_nothing_fails: str
) -> None:
    for rules, expected in ((Rules(), wrong), (Rules(tries_are_deliveries=True), wrong_where_nothing_fails)):
        history = History(rules)
        number = history.add()
        for node in (0, 1, 0):
            history.deliver(number, node=node)
        history.ack()
        history.checker.over(ALICE, tries, nodes)
        assert history.wrong == expected


def test_a_node_that_lost_its_memory_may_have_forgotten_its_deliveries() -> None:
    history = History()
    number = history.add()
    history.deliver(number)
    history.ack()
    history.checker.lost_memory(0, history.now)
    history.checker.over(ALICE, 0, (0,))
    assert not history.wrong


def test_nothing_is_said_of_the_tries_of_a_job_that_nobody_has_heard_of() -> None:
    history = History(Rules(tries_are_deliveries=True))
    history.checker.over(ALICE, 1, (0,))
    assert not history.wrong


def test_a_key_is_free_when_its_job_was_done_before_the_answer_came() -> None:
    history = History()
    number = keyed(history)
    history.deliver(number, ALICE)
    history.ack(ALICE)
    history.checker.answered(number, BOB, history.now, frozenset((0, 1)))
    assert history.wrong == "at least once"
    history.deliver(number, BOB)
    history.ack(BOB)
    assert not history.wrong


@pytest.mark.parametrize(
    ("made_after_ms", "said_before_ms", "wrong"),
    [
        (1, ASKED_MS - 1, ""),
        (1, ASKED_MS, "one for each key"),
        (0, 1, "one for each key"),
        (-1, 1, "one for each key"),
    ],
)
def test_a_job_that_was_made_after_the_answer_is_a_double_unless_its_node_was_just_told_the_key(
    made_after_ms: int, said_before_ms: int, wrong: str
) -> None:
    history = History()
    number = keyed(history)
    history.checker.answered(number, ALICE, history.now, frozenset((0, 1)))
    made_at = history.now + made_after_ms
    history.checker.requests[number].said_at[BOB[2:10]] = made_at - said_before_ms
    history.made_at[BOB] = made_at
    for job_id in (ALICE, BOB):
        history.deliver(number, job_id)
        history.ack(job_id)
    assert history.wrong == wrong


def test_each_job_of_a_key_is_held_against_what_was_promised_of_it() -> None:
    history = History(Rules(exactly_once=True))
    number = keyed(history)
    history.checker.requests[number].is_once = False
    history.checker.answered(number, ALICE, history.now, frozenset((0, 1)))
    history.deliver(number, BOB)
    history.ack(BOB)
    assert history.wrong == "at least once"
    history.deliver(number, ALICE)
    history.ack(ALICE)
    assert not history.wrong
    history.deliver(number, ALICE)
    assert history.wrong == "exactly once"


def test_a_job_without_a_key_has_one_id() -> None:
    history = History()
    number = history.add(ALICE)
    history.deliver(number, BOB)
    assert history.wrong == "two ids for one job"
