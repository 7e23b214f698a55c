"""What strangers make the log tell."""

from twisted.internet.task import Clock

from disqued.net.loop.lograte import EVENTS_MAX, PERIOD_S, LogRate


def test_the_same_is_told_once_an_hour() -> None:
    clock = Clock()
    news = LogRate(clock.seconds)
    assert [news.is_new(event) for event in ("one", "other", "one")] == [True, True, False]
    clock.advance(PERIOD_S - 1)
    assert not news.is_new("one")
    clock.advance(1)
    assert news.is_new("one")
    assert not news.is_new("one")


def test_in_an_hour_there_are_so_many_lines_at_most() -> None:
    clock = Clock()
    news = LogRate(clock.seconds)
    assert sum(news.is_new(f"event {number}") for number in range(2 * EVENTS_MAX)) == EVENTS_MAX
    clock.advance(PERIOD_S)
    assert news.is_new("event 0")
