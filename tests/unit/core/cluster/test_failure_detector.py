"""Who answers: silence, suspicion and the opinion of most nodes."""

from disqued.core.model import messages as m
from disqued.core.model.peers import FAIL, LEAVING, PFAIL, TIMEOUT_MS
from tests.mesh_fixtures import Member, Mesh, acquainted, greeting_of, hear, pass_time, rumour_of

# Pings.


def test_a_node_is_asked_again_as_soon_as_it_has_a_link_to_answer_on() -> None:
    a = Member(1)
    a.node.greeted(greeting_of(2), "10.0.0.2", a.host)
    assert a.node.link_opened(a.membership.targets()[0], greeting_of(2), a.host)
    # It has no link to us yet, and cannot answer.
    a.node.outbox.messages.clear()
    for expected in ([m.PONG, m.VITALS, m.PING], [m.PONG, m.VITALS]):
        hear(a, 2, m.PING, 0, ())
        assert [message[0] for _, message in a.node.outbox.messages] == expected
        a.node.outbox.messages.clear()


def test_who_answers_for_the_first_time_hears_of_others_and_they_of_it() -> None:
    a = acquainted(2)
    a.node.greeted(greeting_of(3), "10.0.0.3", a.host)
    assert a.node.link_opened(a.membership.targets()[1], greeting_of(3), a.host)
    a.node.outbox.messages.clear()
    hear(a, 3, m.PONG, 0, ())
    assert a.node.outbox.messages == [
        (b"%040x" % 3, (m.PING, 0, (rumour_of(2),))),
        (b"%040x" % 2, (m.PING, 0, (rumour_of(3),))),
    ]
    a.node.outbox.messages.clear()
    hear(a, 3, m.PONG, 0, ())
    assert a.node.outbox.messages == []


def test_everybody_hears_within_a_second_that_this_node_leaves() -> None:
    a = acquainted(*range(2, 12))
    a.node.state.leaving = True
    pass_time(a, 1_000)
    told = {node_id for node_id, message in a.node.outbox.messages if message[:2] == (m.PING, m.NODE_LEAVING)}
    assert told == a.known


def test_a_node_that_most_others_accuse_has_failed_as_soon_as_this_one_suspects_it_too() -> None:
    a = acquainted(2, 3)
    hear(a, 2, m.PING, 0, (rumour_of(3, m.NODE_PFAIL),))
    while not a.peer(Member(3)).flags:
        pass_time(a, 250)
        hear(a, 2, m.PONG, 0, ())
    assert a.peer(Member(3)).flags == FAIL
    assert (b"%040x" % 2, (m.FAIL, b"%040x" % 3)) in a.node.outbox.messages


def test_a_suspected_node_that_says_that_it_leaves_stays_suspected_until_it_answers() -> None:
    a = acquainted(2)
    pass_time(a, TIMEOUT_MS + 2_000)
    peer = a.peer(Member(2))
    suspected = peer.flags
    assert suspected & (PFAIL | FAIL)
    hear(a, 2, m.PING, m.NODE_LEAVING, ())
    assert peer.flags == suspected | LEAVING
    hear(a, 2, m.PONG, m.NODE_LEAVING, ())
    assert peer.flags == LEAVING


def test_whoever_counts_copies_hears_when_the_reachable_nodes_change() -> None:
    a = acquainted(2)
    before = a.node.placement.epoch
    a.node.link_closed(b"%040x" % 2)
    assert a.node.placement.epoch != before


# Silence.


def test_a_node_alone_is_never_woken() -> None:
    assert Member(1).node.deadline() is None


def test_the_timer_outlives_a_flush() -> None:
    a = acquainted(2)
    assert a.node.deadline() is not None
    a.node.flush()
    at = a.node.deadline()
    assert at is not None
    assert at <= a.clock.now() + 1_000


def test_everybody_is_asked_at_least_once_in_half_a_time_out() -> None:
    mesh = Mesh(12)
    for member in mesh:
        member.sent.clear()
    mesh.advance(60_000)
    for member in mesh:
        for other in mesh:
            if other is not member:
                asked = [entry for entry in member.sent if entry[0] == other.id and entry[1][0] == m.PING]
                assert len(asked) >= 60_000 // (TIMEOUT_MS // 2 + 1_250)
                assert member.clock.now() - member.peer(other).pong_at <= TIMEOUT_MS // 2 + 1_250
    for member in mesh:
        # One each second, and those who were silent.
        assert sum(entry[1][0] == m.PING for entry in member.sent) < 60 + 12 * 9


def test_a_node_that_does_not_answer_is_suspected_after_the_time_out_and_not_before() -> None:
    a = acquainted(2)
    pass_time(a, TIMEOUT_MS)
    assert a.reachable
    pass_time(a, 10_000)
    assert a.peer(Member(2)).flags == PFAIL
    assert a.reachable == ()


def test_a_node_to_which_there_is_no_link_is_suspected_after_the_time_out() -> None:
    a = acquainted(2)
    a.node.link_closed(b"%040x" % 2)
    assert a.reachable == ()
    pass_time(a, TIMEOUT_MS)
    assert a.peer(Member(2)).flags == 0
    pass_time(a, 1_500)
    assert a.peer(Member(2)).flags == PFAIL


def test_a_link_on_which_nothing_comes_back_is_made_anew() -> None:
    a = acquainted(2)
    peer = a.peer(Member(2))
    pass_time(a, TIMEOUT_MS - 500)
    assert not peer.stale
    a.node.outbox.members_changed = False
    pass_time(a, 2_000)
    assert peer.stale
    assert a.node.outbox.members_changed
    [target] = a.membership.targets()
    a.node.link_closed(peer.id)
    assert a.node.link_opened(target, greeting_of(2), a.host)
    assert not peer.stale
    # The question that was not answered stays one.
    assert a.clock.now() - peer.ping_sent_at > TIMEOUT_MS // 2


def test_a_node_that_says_other_things_has_twice_the_time_to_answer() -> None:
    a = acquainted(2)
    peer = a.peer(Member(2))

    def pass_busy_time(ms: int) -> None:
        for _ in range(0, ms, 500):
            pass_time(a, 500)
            hear(a, 2, m.GOTJOB, b"D-" + b"0" * 40)

    pass_busy_time(TIMEOUT_MS)
    hear(a, 2, m.PONG, 0, ())
    pass_busy_time(TIMEOUT_MS - 500)
    assert not peer.stale
    pass_busy_time(2_500)
    assert peer.stale
    pass_busy_time(TIMEOUT_MS - 3_000)
    assert peer.flags == 0
    pass_busy_time(3_000)
    assert peer.flags == PFAIL


def test_a_question_that_got_lost_is_asked_again() -> None:
    a, b = mesh = Mesh(2)
    lost = [0]

    def lose_one(sender: Member, receiver: Member) -> bool:
        lost[0] += sender is a
        return sender is a and lost[0] == 1

    mesh.mute = lose_one
    mesh.dialed.clear()
    mesh.advance(30_000)
    assert lost[0] > 1
    assert not mesh.dialed
    assert a.reachable == (b.id,)
    assert a.peer(b).flags == 0


def test_a_node_that_was_stopped_for_a_while_suspects_nobody_for_it() -> None:
    a = acquainted(2)
    a.node.state.peers.by_id[b"%040x" % 2].ping_sent_at = a.clock.now()
    a.clock.advance(10 * TIMEOUT_MS)
    a.node.begin()
    a.node.tick()
    assert a.peer(Member(2)).flags == 0
    pass_time(a, TIMEOUT_MS + 2_000)
    assert a.peer(Member(2)).flags == PFAIL


# The opinion of most.


def test_a_node_that_is_gone_has_failed_for_everybody_and_is_fine_once_it_answers() -> None:
    a, b, c = mesh = Mesh(3)
    c.is_up = False
    mesh.advance(TIMEOUT_MS + 5_000)
    assert (a.peer(c).flags, b.peer(c).flags) == (FAIL, FAIL)
    assert a.reachable == (b.id,)
    c.is_up = True
    mesh.advance(1_000)
    assert (a.peer(c).flags, b.peer(c).flags) == (0, 0)
    assert a.reachable == (b.id, c.id)


def test_the_smaller_part_of_a_cluster_suspects_and_does_not_sentence() -> None:
    mesh = Mesh(5)
    few, many = mesh.members[:2], mesh.members[2:]
    mesh.separate(few, many)
    mesh.advance(TIMEOUT_MS + 10_000)
    assert {member.peer(other).flags for member in few for other in many} == {PFAIL}
    assert {member.peer(other).flags for member in many for other in few} == {FAIL}
    mesh.heal()
    mesh.advance(1_000)
    assert all(len(member.reachable) == 4 for member in mesh)


def test_a_sentence_is_believed_by_who_suspects_the_node_and_by_nobody_else_without_a_majority() -> None:
    a = acquainted(2, 3, 4, 5)
    fine, suspected = a.peer(Member(3)), a.peer(Member(4))
    suspected.flags = PFAIL
    hear(a, 2, m.FAIL, fine.id)
    assert fine.flags == 0
    hear(a, 2, m.FAIL, suspected.id)
    assert suspected.flags == FAIL
    for number in (4, 5):
        hear(a, number, m.FAIL, fine.id)
    assert fine.flags == FAIL
    hear(a, 3, m.PONG, 0, ())
    assert fine.flags == 0


def test_who_finds_that_a_node_has_failed_tells_everybody() -> None:
    a = acquainted(2, 3, 4)
    a.peer(Member(4)).flags = PFAIL
    hear(a, 2, m.PING, 0, (rumour_of(4, m.NODE_PFAIL),))
    assert a.peer(Member(4)).flags == PFAIL
    a.node.outbox.messages.clear()
    hear(a, 3, m.PING, 0, (rumour_of(4, m.NODE_PFAIL),))
    told = [node_id for node_id, message in a.node.outbox.messages if message == (m.FAIL, b"%040x" % 4)]
    assert told == [b"%040x" % 2, b"%040x" % 3, b"%040x" % 4]


def test_a_sentence_on_ourselves_on_its_sender_or_on_nobody_changes_nothing() -> None:
    a = acquainted(2, 3)
    for node_id in (a.id, b"%040x" % 2, b"%040x" % 77):
        hear(a, 2, m.FAIL, node_id)
    assert a.reachable == (b"%040x" % 2, b"%040x" % 3)


def test_reports_are_counted_and_taken_back_and_grow_old() -> None:
    a = acquainted(2, 3, 4)
    subject = b"%040x" % 4
    reports = a.membership.detector.failure_reports
    assert reports(subject) == 0
    hear(a, 2, m.PING, 0, (rumour_of(4, m.NODE_PFAIL),))
    hear(a, 3, m.PING, 0, (rumour_of(4, m.NODE_FAIL),))
    assert reports(subject) == 2
    hear(a, 3, m.PING, 0, (rumour_of(4),))
    assert reports(subject) == 1
    pass_time(a, 2 * TIMEOUT_MS)
    assert reports(subject) == 1
    pass_time(a, 250)
    assert reports(subject) == 0
    assert reports(b"f" * 40) is None


def test_reports_of_nodes_that_are_not_known_any_more_do_not_count() -> None:
    a = acquainted(2, 3)
    hear(a, 2, m.PING, 0, (rumour_of(3, m.NODE_PFAIL),))
    assert a.membership.forget(b"%040x" % 2)
    assert a.membership.detector.failure_reports(b"%040x" % 3) == 0
