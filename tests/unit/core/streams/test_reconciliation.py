"""Who is asked of an event that a consumer is done with, and what its node makes of the answers."""

from typing import Any

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.groups import Entry
from disqued.core.model.messages import (
    DELIVERED,
    FACTS,
    OUTCOME_DONE,
    OUTCOME_LATER,
    OUTCOME_REFUSED,
    OUTCOME_UNKNOWN,
    SETACK,
    SETTLE,
    SETTLED,
    UNSEEN,
)
from disqued.core.model.outbox import UNIT_DONE
from disqued.core.streams import reconciliation
from disqued.core.streams.reconciliation import AGAIN_MS, MARGIN_MS, PendingAck, Reconciliation
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import UNKNOWN_ID
from tests.unit.core.streams.test_readers import ack, add, answer, check, figures, get, healed, isolated

EX = ("EX", 500)


def asked(cluster: Cluster) -> list[Member]:
    """Nodes that were asked, in order."""
    return [flight.receiver for flight in cluster.sent(SETTLE)]


def begin(member: Member, *ids: bytes, verb: str = "QACK", client: str = "settler") -> None:
    """Acknowledge, or give back, what others have to decide of."""
    words = ("QACK", "q", "g") if verb == "QACK" else ("QGROUP", "RETURN", "q", "g")
    assert member(*words, *ids, client=client) is BLOCKED
    assert client not in member.answers


def ended(member: Member, client: str = "settler") -> Any:
    """What the one who settles was answered."""
    (value,) = member.answers.pop(client)
    return value


def patience_ms(member: Member) -> int:
    """How long it is waited for an answer."""
    return member.node.state.peers.timeout_ms + MARGIN_MS


def event_of(member: Member, event_id: bytes) -> Entry:
    event = member.state.jobs.get(event_id)
    assert isinstance(event, Entry)
    return event


class Case:
    """Node b asks c and d of an event whose maker, a, cannot be reached; these say what the test says."""

    def __init__(self, verb: str = "QACK") -> None:
        self.cluster = Cluster(4)
        self.a, self.b, self.c, self.d = self.cluster
        self.event_id = add(self.a)
        get(self.b, *EX)
        self.cluster.cut(self.a, self.b)
        for member in (self.c, self.d):
            self.cluster.hold(self.b, member)
        begin(self.b, self.event_id, verb=verb)
        self.number = self.b.state.numbers.questions

    def say(self, sender: Member, outcome: int) -> None:
        sender.say(self.b, (SETTLED, self.number, ((self.event_id, outcome),)))

    @property
    def answer(self) -> Any:
        """What the client was answered; None = nothing yet."""
        return ended(self.b) if "settler" in self.b.answers else None


# Who is asked.


def test_the_maker_of_an_event_that_is_not_here_is_asked_and_others_when_it_knows_nothing_of_it() -> None:
    cluster = Cluster(4)
    a, b, c, d = cluster
    event_id, gone = add(a), add(a)
    get(b)
    assert ack(b, event_id) == 1
    assert asked(cluster) == [a]
    a("DELJOB", gone)
    assert ack(b, gone) == 0
    assert asked(cluster) == [a, a, c, d]


def test_all_are_asked_of_an_event_whose_maker_cannot_be() -> None:
    case = Case()
    assert asked(case.cluster) == [case.c, case.d]


def test_of_a_copy_the_one_node_is_asked_that_hands_it_out() -> None:
    cluster = Cluster(4)
    a, b, *_ = cluster
    event_id = add(a, copies=4)
    get(b, *EX)
    assert ack(b, event_id) == 1
    assert asked(cluster) == [a]


def test_of_a_copy_whose_maker_has_failed_the_holder_is_asked_that_hands_it_out_now_and_nobody_else() -> None:
    cluster = Cluster(5)
    a, b, *others = cluster
    ids = [add(a, copies=5) for _ in range(4)]
    isolated(cluster, a)
    assert sorted(get(b, *EX)[0] for _ in ids) == sorted(ids)
    for event_id in ids:
        cluster.flights.clear()
        arbiter = b.node.streams.owners.of(event_of(b, event_id))
        assert ack(b, event_id) == 1
        assert [member.id for member in asked(cluster)] == [arbiter] * (arbiter != b.id)
    assert all(figures(member)[b"done"] == len(ids) for member in others)


@pytest.mark.parametrize("what", ["a job", "deleted"])
def test_of_what_this_node_knows_to_be_no_event_nobody_is_asked(what: str) -> None:
    cluster = Cluster(2)
    _, b = cluster
    if what == "a job":
        job_id = b.run("ADDJOB", "work", "x", 0, "REPLICATE", 1)
    else:
        job_id = add(b, copies=2)
        b("DELJOB", job_id)
    assert b("QACK", "q", "g", job_id) == 0
    assert not asked(cluster)


@pytest.mark.reference
def test_very_many_are_asked_of_in_several_messages_and_nobody_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciliation, "IDS_AT_ONCE", 3)
    cluster = Cluster(2)
    _, b = cluster
    ids = [b"DIaaaaaaaa%032x000aSQ" % number for number in range(7)]
    cluster.lose = lambda flight: flight.kind == SETTLED
    begin(b, *ids)
    cluster.advance(4 * AGAIN_MS)
    assert [flight.message[5] for flight in cluster.sent(SETTLE)] == [
        tuple(ids[:3]), tuple(ids[3:6]), tuple(ids[6:]),
    ]  # fmt: skip


def test_what_this_node_has_handed_out_itself_it_decides_though_another_one_hands_it_out_now() -> None:
    cluster = Cluster(3)
    a, *_ = cluster
    event_id = add(a, copies=3)
    isolated(cluster, a)
    giver = next(member for member in cluster if member is not a and not event_of(member, event_id).elsewhere)
    get(giver, *EX)
    healed(cluster, a)
    assert event_of(giver, event_id).elsewhere
    cluster.flights.clear()
    assert ack(giver, event_id) == 1
    assert not asked(cluster)
    assert figures(a)[b"done"] == 1
    check(cluster)


def test_what_came_back_here_may_be_with_another_consumer_by_the_word_of_who_hands_it_out() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a, copies=2)
    isolated(cluster, a)
    get(b, "EX", 5)
    healed(cluster, a)
    cluster.advance(5_001)
    cluster.lose = lambda flight: flight.kind == DELIVERED
    assert get(a) == [event_id, b"x"]
    assert ack(b, event_id) == 1


# What is made of the answers.


def test_of_several_that_were_asked_one_that_says_done_is_enough() -> None:
    case = Case()
    case.say(case.c, OUTCOME_UNKNOWN)
    assert case.answer is None
    case.say(case.d, OUTCOME_DONE)
    assert case.answer == 1
    # It is over: nothing that is said later is heard, nor is anybody answered twice.
    case.say(case.c, OUTCOME_DONE)
    case.b("DEBUG", "FLUSHALL", client="operator")
    assert case.answer is None


def test_a_refusal_counts_when_all_who_were_asked_have_answered() -> None:
    case = Case()
    case.say(case.c, OUTCOME_REFUSED)
    assert case.answer is None
    case.say(case.d, OUTCOME_UNKNOWN)
    assert case.answer == 0


def test_who_says_done_is_believed_though_another_one_refused() -> None:
    case = Case()
    case.say(case.c, OUTCOME_REFUSED)
    case.say(case.d, OUTCOME_DONE)
    assert case.answer == 1


@pytest.mark.parametrize(("verb", "outcome"), [("QACK", 1), ("RETURN", 0)])
def test_a_refusal_is_worth_nothing_when_an_answer_of_another_one_was_lost(verb: str, outcome: int) -> None:
    """That one may have done it.  What was to be given back is left to its deadline."""
    case = Case(verb)
    case.say(case.c, OUTCOME_REFUSED)
    case.cluster.cut(case.b, case.d)
    assert case.answer is None
    case.cluster.advance(AGAIN_MS)
    assert case.answer == outcome
    assert len(case.b.node.reconciliation.orphans) == outcome


def test_a_link_that_breaks_on_which_nothing_was_asked_raises_no_doubt() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    event_id = add(a)
    cluster.hold(a, b)
    begin(b, event_id)
    cluster.cut(b, c)
    cluster.release(a, b)
    assert ended(b) == 0


def test_what_some_node_holds_is_asked_about_until_somebody_decides() -> None:
    case = Case()
    case.say(case.c, OUTCOME_LATER)
    case.say(case.d, OUTCOME_UNKNOWN)
    assert case.answer is None
    questions = len(case.cluster.sent(SETTLE))
    case.cluster.advance(4 * AGAIN_MS)
    assert len(case.cluster.sent(SETTLE)) > questions
    assert case.answer is None
    case.say(case.c, OUTCOME_DONE)
    assert case.answer == 1


def test_what_one_node_holds_is_not_refused_because_all_others_do_not() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    event_id = add(a)
    get(b, *EX)
    for member in (a, c):
        cluster.hold(b, member)
    begin(b, event_id)
    for member, outcome in ((a, OUTCOME_UNKNOWN), (c, OUTCOME_LATER), (c, OUTCOME_UNKNOWN)):
        member.say(b, (SETTLED, b.state.numbers.questions, ((event_id, outcome),)))
        cluster.advance(AGAIN_MS)
        assert "settler" not in b.answers
    c.say(b, (SETTLED, b.state.numbers.questions, ((event_id, OUTCOME_DONE),)))
    assert ended(b) == 1


def test_what_nobody_holds_is_asked_about_once() -> None:
    """One node that cannot be reached may hold it, so that it is waited for."""
    case = Case()
    case.say(case.c, OUTCOME_UNKNOWN)
    case.say(case.d, OUTCOME_UNKNOWN)
    case.cluster.advance(8 * AGAIN_MS)
    for member in (case.c, case.d):
        assert [flight.kind for flight in case.cluster.held(case.b, member)].count(SETTLE) == 1
    assert case.answer is None


def test_what_all_others_do_not_hold_is_refused_when_the_last_one_is_forgotten() -> None:
    case = Case()
    case.say(case.c, OUTCOME_UNKNOWN)
    case.say(case.d, OUTCOME_UNKNOWN)
    for member in (case.c, case.d):
        case.cluster.release(case.b, member, order=lambda flights: [])
    case.b("CLUSTER", "FORGET", case.a.id, client="operator")
    case.cluster.advance(patience_ms(case.b))
    assert case.answer == 0
    assert not case.b.node.reconciliation.orphans


def test_a_node_that_does_not_answer_is_waited_for_until_it_would_have_failed() -> None:
    case = Case()
    for member in (case.c, case.d):
        case.cluster.release(case.b, member, order=lambda flights: [])
    case.cluster.advance(patience_ms(case.b) - 1)
    assert case.answer is None
    case.cluster.advance(1)
    assert case.answer == 1


def test_a_refusal_of_the_next_holder_is_final_when_the_first_one_was_never_asked() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    event_id = add(a, copies=3)
    cluster.isolate(a)
    other = next(member for member in (b, c) if event_of(member, event_id).elsewhere)
    begin(other, event_id)
    cluster.advance(patience_ms(other) - 1)
    assert ended(other) == 0


def test_a_node_that_has_lost_an_event_does_not_keep_its_acknowledgement_waiting() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a, copies=2)
    get(b, *EX)
    a.state.drop(a.job(event_id))
    begin(b, event_id)
    cluster.advance(4 * AGAIN_MS)
    assert ended(b) == 1
    assert event_of(b, event_id).done == [b"0:g"]


def test_one_that_was_unknown_to_who_hands_it_out_is_asked_about_again() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a, copies=2)
    get(b, *EX)
    cluster.hold(b, a)
    begin(b, event_id)
    for expected in (1, 2):
        questions = [flight for flight in cluster.held(b, a) if flight.kind == SETTLE]
        assert len(questions) == expected
        a.say(b, (SETTLED, b.state.numbers.questions, ((event_id, OUTCOME_UNKNOWN),)))
        cluster.advance(AGAIN_MS)
    # It is here, so that it is not one that nobody holds.
    while "settler" not in b.answers:
        a.say(b, (SETTLED, b.state.numbers.questions, ((event_id, OUTCOME_UNKNOWN),)))
        cluster.advance(AGAIN_MS)
    assert ended(b) == 1


def test_a_holder_that_cannot_write_its_journal_is_asked_again_and_not_doubted() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a, copies=2)
    get(b, *EX)
    a.state.durability.read_only = True
    begin(b, event_id)
    cluster.advance(8 * AGAIN_MS)
    assert "settler" not in b.answers
    assert len(asked(cluster)) > 4
    assert not cluster.sent(FACTS, sender=b)
    a.state.durability.read_only = False
    cluster.advance(AGAIN_MS)
    assert ended(b) == 1


# Acknowledgements that are facts by themselves.


def test_a_copy_whose_node_does_not_answer_is_done_here_and_told_to_the_other_holders() -> None:
    cluster = Cluster(3)
    a, b, _ = cluster
    event_id = add(a, copies=3)
    get(b, *EX)
    cluster.lose = lambda flight: flight.kind in (SETTLE, SETTLED)
    begin(b, event_id)
    cluster.advance(patience_ms(b))
    assert ended(b) == 1
    assert not b.node.reconciliation.orphans
    assert any(record[:3] == (UNIT_DONE, event_id, b"0:g") for record in b.journal)
    assert [figures(member)[b"done"] for member in cluster] == [1, 1, 1]
    check(cluster)


def test_an_acknowledgement_whose_answer_is_lost_though_its_fact_came_is_this_ones() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a, copies=2)
    get(b, *EX)
    cluster.lose = lambda flight: flight.kind == SETTLED
    begin(b, event_id)
    assert figures(b)[b"done"] == 1
    cluster.advance(patience_ms(b))
    assert ended(b) == 1


def test_what_somebody_else_has_done_meanwhile_is_refused_to_one_who_could_ask_nobody() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    event_id = add(a, copies=3)
    get(c, *EX)
    cluster.cut(a, b)
    begin(b, event_id)
    assert ack(c, event_id) == 1
    c.say(b, (SETACK, event_id, b"0:g", False, frozenset({a.id, b.id, c.id})))
    assert figures(b)[b"done"] == 1
    cluster.advance(patience_ms(b))
    assert ended(b) == 0


def test_holders_that_can_be_reached_hear_of_an_acknowledgement_that_nobody_decided() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    cluster.cut(a, b)
    event_id = add(a, copies=2)
    assert c.holds(event_id)
    get(c, *EX)
    cluster.isolate(a)
    cluster.lose = lambda flight: flight.kind in (SETTLE, SETTLED)
    begin(b, event_id)
    cluster.advance(patience_ms(b))
    assert ended(b) == 1
    assert figures(c)[b"done"] == 1


@pytest.mark.parametrize("is_there", ["nothing", "an empty queue", "a log", "a group"])
def test_an_acknowledgement_is_of_the_epoch_in_which_its_group_is_as_far_as_is_known(is_there: str) -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    event_id = add(a)
    scope = b"0:g"
    if is_there == "an empty queue":
        job_id = c.run("ADDJOB", "q", "x", 0, "REPLICATE", 1)
        c("ACKJOB", job_id)
        assert c.state.queues.by_name[b"q"].stream is None
    elif is_there == "a log":
        add(c)
    elif is_there == "a group":
        add(c)
        a("QGROUP", "FORGET", "q", "g")
        scope = b"1:g"
    get(b, *EX)
    isolated(cluster, a)
    begin(c, event_id)
    cluster.advance(patience_ms(c))
    assert ended(c) == 1
    assert list(c.node.reconciliation.orphans) == [(event_id, scope)]
    healed(cluster, a)
    assert event_of(a, event_id).done == [scope]


@pytest.mark.reference
def test_as_many_acknowledgements_are_kept_as_the_limit_says_each_as_long_as_its_event_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciliation, "ORPHANS_KEPT", 2)
    cluster = Cluster(2)
    a, b = cluster
    ids = [add(a) for _ in range(4)]
    isolated(cluster, a)
    for event_id, outcome in zip(ids[:3], (1, 1, 0), strict=True):
        begin(b, event_id)
        cluster.advance(patience_ms(b))
        assert ended(b) == outcome
    assert len(b.node.reconciliation.orphans) == 2
    cluster.advance(700_000)
    begin(b, ids[3])
    cluster.advance(patience_ms(b))
    assert ended(b) == 1
    assert [event_id for event_id, _ in b.node.reconciliation.orphans] == [ids[3]]
    cluster.advance(700_000)
    healed(cluster, a)
    assert not b.node.reconciliation.orphans


def test_after_a_flush_of_the_node_no_acknowledgement_is_left() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a)
    isolated(cluster, a)
    begin(b, event_id)
    cluster.advance(patience_ms(b))
    assert ended(b) == 1
    b("DEBUG", "FLUSHALL")
    assert not b.node.reconciliation.orphans


# Clients and other nodes.


def test_a_client_that_is_gone_is_forgotten_and_another_one_is_answered() -> None:
    cluster = Cluster(2)
    a, b = cluster
    first, second = add(a), add(a)
    get(b, *EX)
    get(b, *EX)
    cluster.hold(a, b)
    begin(b, first, client="gone")
    begin(b, second, client="stays")
    b.gone("gone")
    cluster.release(a, b)
    assert b.answers == {"stays": [1]}


def test_who_has_been_answered_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[PendingAck] = []
    monkeypatch.setattr(Reconciliation, "due", lambda self, this: seen.append(this))
    cluster = Cluster(2)
    a, b = cluster
    event_id, other = add(a), add(a)
    get(b)
    assert ack(b, event_id) == 1
    cluster.hold(a, b)
    begin(b, other, client="gone")
    b.gone("gone")
    cluster.advance(8 * AGAIN_MS)
    assert not seen
    assert not b.node.reconciliation._open


def test_what_nobody_has_cannot_be_given_back_from_another_node() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a)
    assert answer(b, "QGROUP", "RETURN", "q", "g", event_id) == 0


def test_what_was_never_seen_is_taken_back_without_an_answer_and_what_is_not_here_is_nothing() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a)
    get(b)
    b.say(a, (SETTLE, b"", b"0:g", 0, UNSEEN, (UNKNOWN_ID, event_id)))
    assert figures(a)[b"available"] == 1
    assert not cluster.sent(SETTLED)
