"""Reliable lists after a crash and after a controlled restart: both lists, with order, times and counts."""

import pytest

from disqued.testing.clock import WALL_MS
from tests.core_fixtures import Server, check
from tests.lists_fixtures import Lasting


def filled() -> Lasting:
    """A list of which c and a are delivered, in this order, a twice, and b and d wait."""
    server = Lasting()
    server("RQ.PUSH", "q", "a", "c", "b", "d")
    server("RQ.POP", "q")
    server.advance(40)
    server("RQ.POP", "q")
    server.advance(60)
    server("RQ.RECOVER", "q", 1, 100)
    server.advance(500)
    return server


def lists(server: Server) -> tuple[list[bytes], list[tuple[bytes, int, int]]]:
    delivered = [(row[1], row[2] - WALL_MS, row[4]) for row in server("RQ.INSPECT", "q", "PENDING", 0, 10)]
    return [row[1] for row in server("RQ.INSPECT", "q", 0, 10)], delivered


@pytest.mark.parametrize("how", ["after_crash", "after_restart", "after_compaction"])
def test_both_lists_come_back_with_order_times_and_counts(how: str) -> None:
    server = filled()
    again = getattr(server, how)()
    assert lists(again) == ([b"b", b"d"], [(b"c", 40, 1), (b"a", 100, 2)]) == lists(server)
    check(server)


def test_both_lists_come_back_again_and_again() -> None:
    server = filled()
    expected = lists(server)
    for how in ("after_crash", "after_compaction", "after_restart", "after_crash"):
        server = getattr(server, how)()
        assert lists(server) == expected


def test_ids_are_kept_and_do_not_repeat_when_the_clock_was_set_back() -> None:
    server = Lasting()
    [one] = server("RQ.PUSH", "q", "a")
    server("RQ.POP", "q")
    server("RQ.ACK", "q", one)
    [two] = server("RQ.PUSH", "q", "b")
    again = server.after_crash(wall_jump_ms=-3_600_000)
    assert again("RQ.INSPECT", "q", 0, 9) == [(two, b"b")]
    [three] = again("RQ.PUSH", "q", "c")
    assert three not in (one, two)
    assert tuple(map(int, three.split(b"-"))) > tuple(map(int, two.split(b"-")))


@pytest.mark.parametrize("how", ["after_crash", "after_restart"])
def test_the_wait_of_an_element_counts_from_the_start_and_wakes_nobody(how: str) -> None:
    server = Lasting()
    server("RQ.PUSH", "q", "a")
    again = getattr(server, how)()
    before = again.ticks
    again.advance(1_500)
    assert again.ticks == before
    waited_ms = again.state.counters.waiting_ms
    again("RQ.POP", "q")
    assert again.state.counters.waiting_ms == waited_ms + 1_500


def test_what_was_acknowledged_stays_so() -> None:
    server = filled()
    ids = [row[0] for row in server("RQ.INSPECT", "q", "PENDING", 0, 10)]
    server("RQ.ACK", "q", *ids)
    assert lists(server.after_crash()) == ([b"b", b"d"], [])


def test_what_was_given_back_waits() -> None:
    server = filled()
    jobs = {job.body: job.id for job in server.state.jobs}
    server("NACK", jobs[b"c"])
    assert lists(server.after_crash()) == ([b"c", b"b", b"d"], [(b"a", 100, 2)])


def test_what_went_back_since_its_consumer_was_gone_waits() -> None:
    server = Lasting()
    server("RQ.POP", "BLOCK", -1, "q", client="anna")
    server.vanished.add("anna")
    server("RQ.PUSH", "q", "a")
    assert lists(server.after_crash()) == ([b"a"], [])


def test_time_that_the_node_was_down_counts_as_time_with_the_consumer() -> None:
    server = filled()
    again = server.after_crash(down_ms=10_000)
    rows = again("RQ.INSPECT", "q", "PENDING", 0, 10)
    assert [row[3] for row in rows] == [10_560, 10_500]
    assert [row[1] for row in again("RQ.RECOVER", "q", 9, 10_501)] == [b"c"]


def test_a_clock_that_went_back_makes_no_delivery_one_of_the_future() -> None:
    again = filled().after_crash(wall_jump_ms=-3_600_000)
    assert [row[3] for row in again("RQ.INSPECT", "q", "PENDING", 0, 10)] == [0, 0]
    assert len(again("RQ.RECOVER", "q", 9, 0)) == 2


def test_an_event_whose_time_with_its_consumer_is_set_is_there_at_once_after_a_crash() -> None:
    server = Lasting()
    server("QLPUSH", "q", "one", "a")
    server("QRPOP", "q", "EX", 30)
    again = server.after_crash()
    assert again("QRPOP", "q") == [b"one", b"a"]


def test_an_event_keeps_its_time_through_a_controlled_restart() -> None:
    server = Lasting()
    server("QLPUSH", "q", "one", "a")
    server("QLPUSH", "q", "two", "b")
    server("QRPOP", "q", "EX", 300)
    server.advance(100_000)
    again = server.after_restart()
    assert again("QRPOP", "q", "EX", 0) == [b"two", b"b"]
    again.advance(199_999)
    assert again("QRPOP", "q") is None
    again.advance(1)
    assert again("QRPOP", "q") == [b"one", b"a"]


def test_the_place_at_the_front_comes_back() -> None:
    server = Lasting()
    server("QLPUSH", "q", "one", "a")
    server("QRPUSH", "q", "two", "b")
    again = server.after_crash()
    assert again("QRPEEK", "q") == (b"two", b"b")
    assert again.refusal("QLPUSH", "q", "two", "x") == "ERR duplicate event two"


def test_a_push_is_one_step_so_that_no_id_is_taken_by_nothing() -> None:
    # Of okq: a crash between the two steps of a push leaves an id that cannot be used and is never served.
    server = Lasting()
    server("QLPUSH", "q", "one", "a")
    for length in range(len(server.written) + 1):
        server.written, kept = server.written[:length], server.written
        again = server.after_crash()
        server.written = kept
        served = again("QRPOP", "q", "EX", 0)
        assert served == ([b"one", b"a"] if length else None)
        assert again("QLPUSH", "q", "one", "b") == b"OK"
