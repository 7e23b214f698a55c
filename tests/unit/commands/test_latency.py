"""The latency monitor: samples, and what is made of them."""

import pytest

from disqued.commands.latency import LatencyMonitor

NOW = 1_700_000_000


def history(monitor, event):
    return [(sample.noted_at, sample.ms) for sample in monitor.events[event].samples]


def test_a_threshold_of_0_keeps_nothing():
    monitor = LatencyMonitor(0)
    monitor.note("command", 10**6, NOW)
    assert monitor.events == {}


def test_what_is_below_the_threshold_is_not_kept():
    monitor = LatencyMonitor(100)
    monitor.note("command", 99, NOW)
    monitor.note("command", 100, NOW)
    assert history(monitor, "command") == [(NOW, 100)]


def test_within_a_second_the_worst_counts():
    monitor = LatencyMonitor(1)
    for span in (5, 9, 7):
        monitor.note("command", span, NOW)
    monitor.note("command", 3, NOW + 1)
    assert history(monitor, "command") == [(NOW, 9), (NOW + 1, 3)]


def test_160_samples_are_kept_and_the_worst_is_remembered_for_ever():
    monitor = LatencyMonitor(1)
    monitor.note("command", 1_000, NOW)
    for second in range(1, 200):
        monitor.note("command", second, NOW + second)
    assert len(history(monitor, "command")) == 160
    assert history(monitor, "command")[0] == (NOW + 40, 40)
    assert monitor.events["command"].worst_ms == 1_000


def test_a_graph_has_a_column_per_sample_as_high_as_it_was_long():
    monitor = LatencyMonitor(1)
    for second, span in enumerate((10, 40, 30, 20)):
        monitor.note("command", span, NOW + second)
    lines = monitor.graph("command", NOW + 63).splitlines()
    assert lines[0] == "command - high 40 ms, low 10 ms (all time high 40 ms)"
    assert lines[2:6] == [" #", " ##", " ###", "####"]
    assert lines[-1] == "4 samples: oldest 1m ago, newest 1m ago"


def test_a_graph_of_equal_samples_is_full_and_one_of_many_shows_the_newest():
    monitor = LatencyMonitor(1)
    for second in range(100):
        monitor.note("command", 5, NOW + second)
    assert monitor.graph("command", NOW + 100).splitlines()[2:6] == ["#" * 80] * 4


def test_a_graph_survives_a_wall_clock_that_was_set_back():
    monitor = LatencyMonitor(1)
    monitor.note("command", 5, NOW)
    assert monitor.graph("command", NOW - 3_600).splitlines()[-1] == "1 samples: oldest 0s ago, newest 0s ago"


@pytest.mark.parametrize(
    ("later", "text"), [(0, "0s ago"), (59, "59s ago"), (120, "2m ago"), (7_200, "2h ago"), (172_800, "2d ago")]
)
def test_ages_are_told_in_the_largest_unit_that_fits(later, text):
    monitor = LatencyMonitor(1)
    monitor.note("command", 5, NOW)
    assert monitor.report(NOW + later).splitlines()[2].endswith(text)


def test_the_report_says_how_to_turn_the_monitor_on():
    assert "CONFIG SET latency-monitor-threshold" in LatencyMonitor(0).report(NOW)


def test_the_report_says_when_there_was_nothing():
    assert LatencyMonitor(100).report(NOW).startswith("Nothing took 100 ms or longer")


def test_the_report_names_each_event_and_gives_each_advice_once():
    monitor = LatencyMonitor(1)
    for second, span in enumerate((10, 20, 30)):
        monitor.note("aof-write", span, NOW + 2 * second)
    monitor.note("aof-write-alone", 5, NOW)
    monitor.note("fast-command", 5, NOW)
    monitor.note("unheard-of", 5, NOW)
    report = monitor.report(NOW + 4)
    assert (
        "- aof-write: 3 samples, one every 2.0 s; mean 20 ms, mean deviation 7 ms, worst ever 30 ms, last 30 ms 0s ago"
    ) in report
    assert report.count("journal") == 1
    assert "fast-command: 1 samples; mean" in report
    assert "always be quick" in report


def test_samples_are_still_reported_after_the_monitor_was_turned_off():
    monitor = LatencyMonitor(1)
    monitor.note("fork", 5, NOW)
    monitor.threshold_ms = 0
    assert "- fork: 1 samples" in monitor.report(NOW)


def test_reset_counts_the_events_that_had_samples():
    monitor = LatencyMonitor(1)
    monitor.note("a", 5, NOW)
    monitor.note("b", 5, NOW)
    assert monitor.reset(["a", "nope", "a"]) == 1
    assert list(monitor.events) == ["b"]
