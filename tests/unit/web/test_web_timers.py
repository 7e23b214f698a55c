"""How long a client may take to send its request, and to read its answer."""

from twisted.internet.task import Clock

from disqued.web.http.input_timer import HEADER_S, LINGER_S, PROGRESS_BYTES, PROGRESS_S, InputTimer
from disqued.web.http.problems import Problem
from disqued.web.http.unread import LOOK_S, QUIET, READ_BYTES_S, READ_S, UnreadAnswers


def test_a_head_has_its_time_however_often_it_is_watched() -> None:
    clock, told = Clock(), list[Problem]()
    timer = InputTimer(clock)
    timer.watch_head(told.append)
    clock.advance(HEADER_S - 1)
    timer.watch_head(told.append)
    assert not told
    clock.advance(1)
    assert [problem.status for problem in told] == [408]


def test_a_body_goes_on_while_it_grows() -> None:
    clock, told = Clock(), list[Problem]()
    timer = InputTimer(clock)
    timer.watch_body(told.append)
    for _ in range(3):
        timer.note(PROGRESS_BYTES)
        clock.advance(PROGRESS_S)
    assert timer.in_body
    assert not told
    timer.note(PROGRESS_BYTES - 1)
    clock.advance(PROGRESS_S)
    assert [problem.status for problem in told] == [408]


def test_a_refused_connection_is_cut_after_a_while_unless_it_has_ended() -> None:
    clock, cut = Clock(), list[int]()
    timer = InputTimer(clock)
    timer.linger(lambda: cut.append(1))
    timer.stop()
    clock.advance(LINGER_S)
    assert not cut
    timer.linger(lambda: cut.append(2))
    clock.advance(LINGER_S)
    assert cut == [2]
    timer.stop()


def test_a_client_that_does_not_read_is_cut_later_where_more_was_written() -> None:
    clock, reports, cut = Clock(), list[int](), list[float]()
    unread = UnreadAnswers(clock)
    unread.count(QUIET * 10)
    assert unread.held == 0
    unread.count(1)
    unread.watch(None, lambda: reports.append(unread.held), lambda: cut.append(clock.seconds()))
    assert unread.held == QUIET + 1
    clock.pump([LOOK_S] * 40)
    assert READ_S + QUIET / READ_BYTES_S <= cut[0] <= READ_S + QUIET / READ_BYTES_S + 2 * LOOK_S
    assert set(reports) == {QUIET + 1}
    assert not unread.is_watched
