"""Names in a cluster: what is taken on one node is taken on all, and who says that it is done may be on any."""

from typing import Any

import pytest

from disqued.acl.user import Pattern, User
from disqued.commands.table import BLOCKED
from disqued.core.model.job import NamedJob
from disqued.core.model.messages import ACK_ONE, FOUND, INQUIRE, NOT_KNOWN, PENDING, PING, REPLJOB, SOON
from disqued.core.work.inquiries import INQUIRY_MS, Inquiries
from disqued.errors import CommandError
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import UNKNOWN_ID, Word


def answer(member: Member, *words: Word, client: str = "client") -> Any:
    """Run a command that may have to hear from other nodes first; its answer.  Raises CommandError."""
    value = member.run(*words, client=client)
    if value is BLOCKED:
        assert client in member.answers, f"{words} waits"
        (value,) = member.answers.pop(client)
        if isinstance(value, CommandError):
            raise value
    return value


def push(member: Member, event_id: str, *words: Word, client: str = "client") -> Any:
    return answer(member, "QLPUSH", "q", event_id, "x", "REPLICATE", 1, *words, client=client)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(3)


def test_an_event_id_that_is_taken_on_another_node_is_refused_until_the_event_is_done(cluster: Cluster) -> None:
    a, b, c = cluster
    assert push(a, "one") == b"OK"
    with pytest.raises(CommandError, match="duplicate event one"):
        push(b, "one")
    assert answer(b, "QLPUSH", "another queue", "one", "x", "REPLICATE", 1) == b"OK"
    assert answer(c, "QACK", "q", "one") == 1
    assert answer(c, "QACK", "q", "one") == 0
    assert push(b, "one") == b"OK"


def test_in_the_background_a_taken_id_is_counted_and_nobody_waits(cluster: Cluster) -> None:
    a, b, _ = cluster
    push(a, "one")
    assert b("QLPUSH", "q", "one", "x", "NOBLOCK") == b"OK"
    assert b.state.counters.background_failed == 1
    assert b("QLPUSH", "q", "two", "x", "NOBLOCK") == b"OK"
    assert (b.state.counters.background_failed, b.node.lists.background) == (1, 0)
    assert b("QLEN", "q") == 1
    assert not b.answers


def test_of_two_nodes_that_add_the_same_id_at_the_same_time_one_does(cluster: Cluster) -> None:
    a, b, c = cluster
    for sender, receiver in ((a, b), (b, a)):
        cluster.hold(sender, receiver)
    assert a("QLPUSH", "q", "one", "x", "REPLICATE", 1) is BLOCKED
    assert b("QLPUSH", "q", "one", "y", "REPLICATE", 1) is BLOCKED
    with pytest.raises(CommandError, match="duplicate event one"):
        push(a, "one", client="another")
    cluster.release(a, b)
    cluster.release(b, a)
    answers = {member.name: member.answers.pop("client")[0] for member in (a, b)}
    assert answers["b"] == b"OK"
    assert "duplicate event one" in str(answers["a"])
    assert [member("QLEN", "q") for member in cluster] == [0, 1, 0]
    assert c("QLEN", "q") == 0


def test_a_node_that_is_silent_keeps_nobody_for_long(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.hold(b, a)
    assert a("QLPUSH", "q", "one", "x", "REPLICATE", 1) is BLOCKED
    cluster.advance(INQUIRY_MS - 1)
    assert "client" not in a.answers
    cluster.advance(1)
    assert a.answers.pop("client") == [b"OK"]
    assert a("QACK", "q", "two") is BLOCKED
    cluster.cut(a, b)
    assert a.answers.pop("client") == [0]


def test_a_node_that_goes_is_not_waited_for_and_the_others_still_are(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.hold(b, a)
    cluster.hold(c, a)
    assert a("QLPUSH", "q", "one", "x", "REPLICATE", 1) is BLOCKED
    cluster.cut(a, b)
    assert "client" not in a.answers
    cluster.release(c, a)
    assert a.answers.pop("client") == [b"OK"]


def test_who_has_been_answered_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(Inquiries, "due", lambda self, this: seen.append(this.number))
    cluster = Cluster(2)
    a, b = cluster
    assert push(a, "one") == b"OK"
    cluster.hold(b, a)
    assert a("QLPUSH", "q", "two", "x", client="gone") is BLOCKED
    a.gone("gone")
    cluster.advance(2 * INQUIRY_MS)
    assert not seen


def test_an_answer_that_nobody_waits_for_changes_nothing(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.hold(c, a)
    assert a("QLPUSH", "q", "one", "x", "REPLICATE", 1) is BLOCKED
    (answered,) = cluster.sent(FOUND, sender=b, receiver=a)
    assert answered.message[2] == ((NOT_KNOWN, b""),)
    # It has answered: what it says now is about nothing that is asked.
    number = a.state.numbers.questions
    for said in (number, number + 1):
        b.say(a, (FOUND, said, ((PENDING, UNKNOWN_ID),)))
    cluster.release(c, a)
    assert a.answers.pop("client") == [b"OK"]


def test_an_answer_that_says_less_or_more_than_was_asked_is_heard_as_far_as_it_goes(cluster: Cluster) -> None:
    a, *others = cluster
    for member in others:
        cluster.hold(member, a)
    assert a("QLPUSH", "q", "one", "x", "REPLICATE", 1) is BLOCKED
    for member, what in zip(others, [(), ((NOT_KNOWN, b""), (PENDING, UNKNOWN_ID))], strict=True):
        cluster.release(member, a, order=lambda flights: [])
        member.say(a, (FOUND, a.state.numbers.questions, what))
    assert a.answers.pop("client") == [b"OK"]


def test_an_id_that_is_being_added_is_taken_in_its_queue_alone(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.hold(c, a)
    assert a("QLPUSH", "q", "one", "x", "REPLICATE", 1) is BLOCKED
    assert answer(b, "QLPUSH", "another", "one", "x", "REPLICATE", 1) == b"OK"
    cluster.release(c, a)
    assert a.answers.pop("client") == [b"OK"]


def test_who_acknowledges_an_id_does_not_take_it(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.hold(c, a)
    assert a("QACK", "q", "one") is BLOCKED
    assert push(b, "one") == b"OK"
    cluster.release(c, a)
    assert a.answers.pop("client") == [0]


@pytest.mark.parametrize("anywhere", [False, True])
def test_a_unique_task_that_another_node_is_adding_is_taken_as_far_as_its_scope_goes(
    cluster: Cluster, anywhere: bool
) -> None:
    a, b, c = cluster
    for member in cluster:
        member.node.tasks.unique_anywhere = anywhere
    cluster.hold(c, a)
    assert a("WQ.ENQUEUE", "q", "UNIQUE", "REPLICATE", 1, "TASKS", "t") is BLOCKED
    if anywhere:
        with pytest.raises(CommandError, match="being added by another client"):
            answer(b, "WQ.ENQUEUE", "another", "UNIQUE", "REPLICATE", 1, "TASKS", "t")
    else:
        assert answer(b, "WQ.ENQUEUE", "another", "UNIQUE", "REPLICATE", 1, "TASKS", "t")
    cluster.release(c, a)
    ((job_id,),) = a.answers.pop("client")
    assert a.holds(job_id)


def test_who_waits_for_copies_when_the_others_have_answered_is_answered_once(cluster: Cluster) -> None:
    a = cluster.members[0]
    cluster.lose = lambda flight: flight.kind == REPLJOB
    assert a("QLPUSH", "q", "one", "x", "REPLICATE", 3) is BLOCKED
    assert "client" not in a.answers
    cluster.lose = lambda flight: False
    cluster.advance(3_000)
    assert a.answers.pop("client") == [b"OK"]


def test_who_asks_a_little_later_hears_of_the_one_that_is_being_added(cluster: Cluster) -> None:
    """Also when that node comes first by its id, and has already said that it has nothing."""
    a, b, c = cluster
    cluster.hold(c, a)
    assert a("QLPUSH", "q", "one", "x", "REPLICATE", 1) is BLOCKED
    with pytest.raises(CommandError, match="duplicate event one"):
        push(b, "one")
    cluster.release(c, a)
    assert a.answers.pop("client") == [b"OK"]
    assert [member("QLEN", "q") for member in cluster] == [1, 0, 0]


def test_a_name_that_is_too_long_for_any_job_is_asked_of_nobody(cluster: Cluster) -> None:
    a, _, _ = cluster
    for words in (("QACK", "q", "x" * 70_000), ("RQ.ACK", "q", "x" * 70_000)):
        assert a(*words) in (0, None)
    assert not cluster.sent(INQUIRE)


def test_both_sides_of_a_partition_may_take_an_id(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.isolate(a)
    assert push(a, "one") == push(b, "one") == b"OK"


def test_a_client_that_is_gone_adds_nothing(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.hold(b, a)
    assert a("QLPUSH", "q", "one", "x", "REPLICATE", 1) is BLOCKED
    assert a("QACK", "q", "two", client="another") is BLOCKED
    a.gone("client")
    cluster.release(b, a)
    assert a("QLEN", "q") == 0
    assert a.answers == {"another": [0]}
    assert push(a, "one") == b"OK"


@pytest.mark.parametrize(("scope", "elsewhere"), [("queue", "q"), ("global", "another")])
def test_a_unique_task_is_refused_on_every_node(cluster: Cluster, scope: str, elsewhere: str) -> None:
    a, b, _ = cluster
    for member in cluster:
        member.node.tasks.unique_anywhere = scope == "global"
    (job_id,) = answer(a, "WQ.ENQUEUE", "q", "UNIQUE", "REPLICATE", 1, "TASKS", "t")
    with pytest.raises(CommandError) as caught:
        answer(b, "WQ.ENQUEUE", elsewhere, "UNIQUE", "REPLICATE", 1, "TASKS", "s", "t")
    assert caught.value.line == b"DUPLICATE " + job_id
    assert b("WQ.LEN", elsewhere) == 0
    # One that does not want to be the only one is not asked about.
    before = len(cluster.sent(INQUIRE))
    assert answer(b, "WQ.ENQUEUE", elsewhere, "REPLICATE", 1, "TASKS", "t")
    assert len(cluster.sent(INQUIRE)) == before


class Limited(str):
    """A client whose user may not touch all queues."""

    __slots__ = ()
    user = User(b"ann", queues=(Pattern(b"another"),))


def test_other_nodes_are_asked_about_the_named_queue_alone_for_who_may_not_see_all(cluster: Cluster) -> None:
    a, b, _ = cluster
    for member in cluster:
        member.node.tasks.unique_anywhere = True
    answer(a, "WQ.ENQUEUE", "q", "UNIQUE", "REPLICATE", 1, "TASKS", "t")
    limited = Limited("client")
    assert answer(b, "WQ.ENQUEUE", "another", "UNIQUE", "REPLICATE", 1, "TASKS", "t", client=limited)
    with pytest.raises(CommandError, match="DI"):
        answer(a, "WQ.ENQUEUE", "another", "UNIQUE", "REPLICATE", 1, "TASKS", "t", client=limited)


def test_a_unique_task_that_is_just_being_added_is_refused_in_words(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.hold(b, a)
    assert a("WQ.ENQUEUE", "q", "UNIQUE", "REPLICATE", 1, "TASKS", "t") is BLOCKED
    with pytest.raises(CommandError, match="being added by another client"):
        answer(a, "WQ.ENQUEUE", "q", "UNIQUE", "REPLICATE", 1, "TASKS", "t", client="second")


def test_elements_are_acknowledged_on_any_node(cluster: Cluster) -> None:
    a, b, c = cluster
    names = answer(a, "RQ.PUSH", "q", "x", "y", "z")
    taken = [row[1] for row in answer(a, "RQ.POP", "COUNT", 2, "q")]
    assert taken == names[:2]
    # What nobody has is not there to be acknowledged.
    assert answer(c, "RQ.ACK", "q", *names, "never-given") == taken
    assert answer(b, "RQ.ACK", "q", *names) in (None, [])
    assert answer(a, "RQ.ACK", "q", *names) == []
    assert len(cluster.sent(FOUND)) == len(cluster.sent(INQUIRE)) > 0


def test_an_element_is_done_on_another_node_once_somebody_has_it_and_of_two_of_a_name_one_is(cluster: Cluster) -> None:
    a, b, _ = cluster
    (name,) = answer(a, "RQ.PUSHX", "q", "REPLICATE", 1, "ELEMS", "x")
    assert answer(b, "RQ.ACK", "q", name) is None
    answer(a, "RQ.POP", "q")
    (element,) = (job for job in a.state.jobs if isinstance(job, NamedJob))
    # As nodes that could not hear each other give names: another one has the same.
    twin = NamedJob(UNKNOWN_ID, b"q", b"y", element.ctime + 1, element.options, alias=element.alias)
    twin.flags = element.flags
    a.state.register(twin)
    assert answer(b, "RQ.ACK", "q", name) == [name]
    assert list(a.state.jobs) == [twin]
    assert answer(b, "RQ.ACK", "q", name) == [name]
    assert answer(b, "RQ.ACK", "q", name) is None


def test_a_flush_lets_those_who_wait_go_on_with_what_is_known(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.hold(b, a)
    assert a("QACK", "q", "one") is BLOCKED
    a("DEBUG", "FLUSHALL", client="operator")
    assert a.answers.pop("client") == [0]


# Nodes that are asked before their own link is open.


def test_who_could_not_answer_is_asked_once_more_when_its_link_opens(cluster: Cluster) -> None:
    a, b, c = cluster
    assert push(b, "one") == b"OK"
    cluster.cut_one_way(b, a)
    assert a("QLPUSH", "q", "one", "x", "REPLICATE", 1) is BLOCKED
    assert a("QLPUSH", "q", "two", "x", "REPLICATE", 1, client="second") is BLOCKED
    assert not cluster.sent(FOUND, sender=b)
    before = len(cluster.sent(INQUIRE, sender=a, receiver=b))
    cluster.heal_one_way(b, a)
    # No time has passed.
    assert "duplicate event one" in str(a.answers.pop("client")[0])
    assert a.answers.pop("second") == [b"OK"]
    assert len(cluster.sent(INQUIRE, sender=a, receiver=b)) == before + 2
    assert len(cluster.sent(INQUIRE, sender=a, receiver=c)) == 2


def test_a_node_that_does_not_know_yet_that_its_link_is_open_is_not_asked_in_vain(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.cut_one_way(b, a)
    assert a("QLPUSH", "q", "one", "x", "REPLICATE", 1) is BLOCKED
    cluster.greet(b, a)
    assert len(cluster.sent(INQUIRE, sender=a, receiver=b)) == 1
    # A question of this moment would not be answered, either.
    assert a("QLPUSH", "q", "two", "x", "REPLICATE", 1, client="second") is BLOCKED
    cluster.heal_one_way(b, a)
    assert (a.answers.pop("client"), a.answers.pop("second")) == ([b"OK"], [b"OK"])


def test_a_node_is_asked_again_at_its_first_word_and_not_at_each(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.hold(b, a)
    assert a("QLPUSH", "q", "one", "x", "REPLICATE", 1) is BLOCKED
    ping = (PING, 0, ())
    for pings, asked in ((0, 1), (1, 2), (2, 2)):
        if pings == 1:
            cluster.greet(b, a)
        if pings:
            a.node.begin()
            a.node.message(b.id, ping)
            a.settle()
            cluster.settle()
        assert len(cluster.sent(INQUIRE, sender=a, receiver=b)) == asked
    cluster.release(b, a)
    # It was answered twice, and its client once.
    assert len(cluster.sent(FOUND, sender=b, receiver=a)) == 2
    assert a.answers.pop("client") == [b"OK"]
    assert a("QLEN", "q") == 1


def test_a_node_that_has_answered_is_not_asked_again(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.hold(c, a)
    assert a("QLPUSH", "q", "one", "x", "REPLICATE", 1) is BLOCKED
    cluster.cut_one_way(b, a)
    cluster.heal_one_way(b, a)
    assert len(cluster.sent(INQUIRE, sender=a, receiver=b)) == 1
    cluster.release(c, a)
    assert a.answers.pop("client") == [b"OK"]


def test_the_link_of_a_node_that_is_not_known_is_no_reason_to_ask(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.hold(b, a)
    assert a("QLPUSH", "q", "one", "x", "REPLICATE", 1) is BLOCKED
    a.node.begin()
    a.node.greeted(b.greeting._replace(id=b"5" * 40, meets=False), "127.0.0.9", "127.0.0.1")
    a.node.message(b"5" * 40, (PING, 0, ()))
    a.settle()
    assert a.state.peers.refused == 1
    assert len(cluster.sent(INQUIRE, sender=a)) == 2


def test_the_acknowledgement_of_every_job_of_a_name_is_asked_for_again_and_that_of_one_is_not(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.cut_one_way(b, a)
    cluster.lose = lambda flight: flight.kind == INQUIRE and flight.receiver is b
    (name,) = answer(b, "RQ.PUSHX", "elements", "REPLICATE", 1, "ELEMS", "x")
    answer(b, "RQ.POP", "elements")
    assert push(b, "one") == b"OK"
    assert a("QACK", "q", "one") is BLOCKED
    assert a("RQ.ACK", "elements", name, client="second") is BLOCKED
    cluster.lose = lambda flight: False
    cluster.heal_one_way(b, a)
    assert a.answers.pop("client") == [1]
    assert "second" not in a.answers
    assert not [flight for flight in cluster.sent(INQUIRE, receiver=b) if flight.message[3] == ACK_ONE]
    cluster.advance(INQUIRY_MS)
    assert a.answers.pop("second") == [None]


def test_of_two_nodes_that_ask_for_one_id_one_adds_it_though_one_of_them_asks_twice(cluster: Cluster) -> None:
    a, b, c = cluster
    for sender, receiver in ((a, b), (b, a), (c, a), (c, b)):
        cluster.hold(sender, receiver)
    assert a("QLPUSH", "q", "one", "x", "REPLICATE", 1) is BLOCKED
    assert b("QLPUSH", "q", "one", "y", "REPLICATE", 1) is BLOCKED
    # That of b goes first, by its id, and a has heard so; what a has said to b is lost.
    cluster.release(a, b)
    cluster.lose = lambda flight: flight.kind == FOUND and flight.sender is a
    cluster.release(b, a)
    (lost,) = cluster.lost
    assert lost.message[2] == ((NOT_KNOWN, b""),)
    cluster.lose = lambda flight: False
    cluster.cut_one_way(a, b)
    cluster.heal_one_way(a, b)
    cluster.release(c, a)
    cluster.release(c, b)
    assert "duplicate event one" in str(a.answers.pop("client")[0])
    assert b.answers.pop("client") == [b"OK"]
    assert [member("QLEN", "q") for member in cluster] == [0, 1, 0]


def test_a_node_that_says_twice_that_it_adds_the_job_of_a_key_is_asked_no_more(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.lose = lambda flight: flight.kind == REPLJOB
    assert b("ADDJOB", "q", "x", 0, "KEY", "k", "REPLICATE", 3) is BLOCKED
    assert a("ADDJOB", "q", "x", 0, "KEY", "k", "REPLICATE", 3) is BLOCKED
    before = len(cluster.sent(INQUIRE))
    (said,) = cluster.sent(FOUND, sender=b, receiver=a)
    assert said.message[2] == ((SOON, b""),)
    b.say(a, said.message)
    assert len(cluster.sent(INQUIRE)) == before
    cluster.lose = lambda flight: False
    cluster.advance(3_000)
    ((job_id,), (same_id,)) = (member.answers.pop("client") for member in (a, b))
    assert job_id == same_id
    assert c.holds(job_id)
