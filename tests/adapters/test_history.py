"""The history: what it remembers is what was, it costs little, and nothing at all where nothing happens."""

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import attrs
import pytest
import pytest_twisted
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock as Reactor

from disqued.commands.table import find, parse
from disqued.config import Config
from disqued.core.node import Node
from disqued.core.view import NodeView
from disqued.testing.clock import Clock
from disqued.web.views import history
from disqued.web.views.history import RANGE_MAX_S, History, default_step_s, last_of, means_of
from disqued.web.views.pulse import RESTING_S, RESTS_AFTER_S, Pulse
from disqued.web.views.rings import BYTES_MAX, MINUTES, SECONDS, Ring, Slot, Track
from tests.adapters.http import AtOnce, admin
from tests.adapters.inprocess import Running, wait_until

Launch = Callable[..., Running]


@attrs.define
class Bed:
    """A node whose time is told to pass, and its history."""

    reactor: Any = attrs.field(factory=Reactor)
    clock: Clock = attrs.field(factory=lambda: Clock(now=1_000_000))
    config: Any = attrs.field(factory=Config)
    loading: bool = False
    node: Any = None
    view: Any = None
    turns: Any = None
    history: Any = None

    def __attrs_post_init__(self) -> None:
        self.node = Node(b"a" * 40, self.clock, Random(1), maxmemory=1 << 40)
        self.view = NodeView(self.node)
        self.turns = AtOnce()
        self.history = History(self)  # type: ignore[arg-type]
        self.history.pulse.start()

    def pass_s(self, seconds: float) -> None:
        """Let time pass, an eighth of a second at a time, and the turns of the loop with it."""
        for _ in range(round(seconds * 8)):
            self.clock.advance(125)
            self.node.begin()
            self.node.tick()
            self.reactor.advance(0.125)
            self.turn()

    def turn(self) -> None:
        """Run turns of the loop until nothing is left that is due now."""
        while any(call.getTime() <= self.reactor.seconds() for call in self.reactor.getDelayedCalls()):
            self.reactor.advance(0)

    def add(self, name: bytes, count: int = 1) -> None:
        """Add jobs."""
        self.node.begin()
        options = self.node.state.shared.options(3_600_000, 600_000, 0, 1)
        for _ in range(count):
            self.node.additions.add("test", name, b"", options, maxlen=0, timeout_ms=0, asynchronous=False)

    def take(self, name: bytes, count: int = 1) -> list[bytes]:
        """Take jobs; returns their ids."""
        self.node.begin()
        queue = self.node.state.queues.by_name[name]
        return [unit.id for unit in self.node.delivery.fetch([queue], count)]

    def series(self, name: bytes, span: str = "hour") -> list[list[float]]:
        """Length, in, out, acked and oldest of a queue."""
        found = self.history.queue(name, span)
        assert found is not None
        assert len({len(column) for column in found.columns}) == 1
        return [list(column) for column in found.columns[1:]]


@pytest.fixture
def bed() -> Bed:
    return Bed()


def test_each_second_says_what_came_and_went(bed: Bed) -> None:
    bed.add(b"q", 5)
    bed.pass_s(1)
    ids = bed.take(b"q", 2)
    bed.pass_s(1)
    for job_id in ids:
        bed.node.acks.acknowledge(job_id)
    bed.pass_s(2)
    length, came, left, acked, oldest = bed.series(b"q")
    assert length == [5, 3, 3, 3]
    assert came == [5, 0, 0, 0]
    assert left == [0, 2, 0, 0]
    assert acked == [0, 0, 2, 0]
    assert oldest == pytest.approx([1, 2, 3, 4], abs=0.01)


def test_the_node_is_all_its_queues_together(bed: Bed) -> None:
    bed.add(b"a", 2)
    bed.add(b"b", 3)
    bed.pass_s(1)
    bed.take(b"b", 1)
    bed.pass_s(1)
    found = bed.history.node("hour")
    assert list(found.length) == [5, 4]
    assert list(found.in_rate) == [5, 0]
    assert list(found.out_rate) == [0, 1]


def test_the_events_of_a_log_are_its_length_and_no_jobs_that_the_node_has_waiting(bed: Bed) -> None:
    bed.node.begin()
    for body in (b"one", b"two"):
        words = [b"QADD", b"log", b"60", body]
        bed.node.command("test", parse(find(words), words))
    bed.pass_s(2)
    found = bed.history.queue(b"log", "hour")
    assert list(found.length) == [2, 2]
    assert list(found.oldest_s) == pytest.approx([1, 2], abs=0.2)
    together = bed.history.node("hour")
    assert set(together.length) == set(together.oldest_s) == {0}


def test_the_last_sample_says_how_fast_it_goes(bed: Bed) -> None:
    bed.add(b"q", 5)
    queue = bed.node.state.queues.by_name[b"q"]
    assert (bed.history.last_rates(queue), bed.history.last_rates_of_node()) == (None, None)
    bed.pass_s(1)
    assert (bed.history.last_rates(queue), bed.history.last_rates_of_node()) == ((5, 0), (5, 0, 0))
    for job_id in bed.take(b"q", 2):
        bed.node.acks.acknowledge(job_id)
    bed.pass_s(1)
    assert (bed.history.last_rates(queue), bed.history.last_rates_of_node()) == ((0, 2), (0, 2, 2))
    bed.pass_s(1)
    assert (bed.history.last_rates(queue), bed.history.last_rates_of_node()) == ((0, 0), (0, 0, 0))


def test_the_first_look_at_a_queue_that_was_there_before_says_nothing_of_its_rates(bed: Bed) -> None:
    bed.add(b"q", 50)
    queue = bed.node.state.queues.by_name[b"q"]
    bed.clock.advance(10)
    bed.history.pulse.stop()
    bed.history = History(bed)  # type: ignore[arg-type]
    bed.history.pulse.start()
    bed.add(b"q", 3)
    bed.pass_s(1)
    assert bed.history.last_rates(queue) is None, "three of them came since, fifty before"
    bed.add(b"q", 4)
    bed.pass_s(1)
    assert bed.history.last_rates(queue) == (4, 0)


def test_a_queue_that_is_not_remembered_is_quiet_or_not_known(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "QUEUES_KEPT", 1)
    bed.add(b"other")
    bed.pass_s(1)
    for seconds, rates in ((1, None), (3, (0, 0))):
        bed.add(b"q" if rates is None else b"other")
        bed.pass_s(seconds)
        bed.add(b"other")
        assert bed.history.last_rates(bed.node.state.queues.by_name[b"q"]) == rates


def test_points_have_the_times_at_which_they_were(bed: Bed) -> None:
    bed.add(b"q")
    bed.pass_s(3)
    found = bed.history.queue(b"q", "hour")
    assert found.times[-1] == bed.clock.wall() // 1_000
    assert [later - before for before, later in zip(found.times, found.times[1:], strict=False)] == [1, 1]
    bed.clock.jump_wall(3_600_000)
    assert bed.history.queue(b"q", "hour").times[-1] == bed.clock.wall() // 1_000


def test_minutes_are_means_of_their_seconds(bed: Bed) -> None:
    for _ in range(130):
        bed.add(b"q", 2)
        bed.pass_s(1)
    length, came, left, _, _ = bed.series(b"q", "week")
    assert came == pytest.approx([118 / 60, 2], abs=0.01)
    assert length == pytest.approx([118, 238], abs=2)
    assert left == [0, 0]
    found = bed.history.queue(b"q", "week")
    assert found.times[1] - found.times[0] == 60


def test_a_job_that_is_dequeued_or_deleted_is_seen(bed: Bed) -> None:
    bed.add(b"q", 3)
    bed.pass_s(1)
    jobs = list(bed.node.state.jobs)
    bed.node.queueing.dequeue(jobs[0])
    bed.pass_s(1)
    bed.node.acks.delete(jobs[1].id)
    bed.pass_s(1)
    assert bed.series(b"q")[0] == [3, 2, 1]


def test_a_queue_that_is_gone_is_empty(bed: Bed) -> None:
    bed.add(b"q", 3)
    bed.pass_s(2)
    bed.node.flush()
    bed.pass_s(2)
    assert bed.series(b"q")[0][:2] == [3, 3]
    assert bed.series(b"q")[0][-1] == 0


def test_a_queue_that_comes_again_counts_from_nothing(bed: Bed) -> None:
    bed.add(b"q", 50)
    bed.pass_s(2)
    bed.node.flush()
    bed.add(b"q", 3)
    bed.pass_s(1)
    length, came, _, _, _ = bed.series(b"q")
    assert (length[-1], came[-1]) == (3, 3)


def test_nothing_is_remembered_of_what_is_not_known(bed: Bed) -> None:
    bed.pass_s(1)
    assert bed.history.queue(b"nobody", "hour") is None
    assert bed.history.node("hour").times == list(bed.history.node("hour").times)


def test_only_queues_in_which_something_happened_cost_anything(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        bed.add(b"q%d" % number)
    bed.pass_s(2)
    noted: list[int] = []
    before = Track.note
    monkeypatch.setattr(Track, "note", lambda self, *more: (noted.append(self.identity[0]), before(self, *more)))
    bed.pass_s(5)
    assert noted == []
    bed.add(b"q7")
    bed.pass_s(1)
    assert sorted(noted) == [0, bed.node.state.queues.by_name[b"q7"].serial]


def test_no_turn_of_the_loop_looks_at_many_queues(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = [0]  # queues, by turn
    before = History._look_at

    def count() -> None:
        looked[-1] += 1

    def end_turn(reactor: Any, before: Any = history.next_turn) -> Any:
        looked.append(0)
        return before(reactor)

    monkeypatch.setattr(history, "next_turn", end_turn)
    monkeypatch.setattr(History, "_look_at", lambda self, *more: (count(), before(self, *more)))
    for number in range(1_050):
        bed.add(b"q%d" % number)
    bed.pass_s(1)
    assert sum(looked) == 1_050
    assert max(looked) <= history.LOOKED_AT


def test_more_queues_than_a_second_allows_are_met_in_the_next(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "WALKED_MAX", 2 * history.LOOKED_AT)
    count = 5 * history.LOOKED_AT
    for number in range(count):
        bed.add(b"q%d" % number)
    bed.pass_s(1)
    assert list(bed.history.node("hour").length) == [0]
    bed.pass_s(3)
    assert bed.history.node("hour").length[-1] == count


def test_so_many_queues_are_remembered_and_the_idlest_makes_room(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "QUEUES_KEPT", 3)
    for name in (b"a", b"b", b"c"):
        bed.add(name)
    bed.pass_s(1)
    bed.add(b"d")
    bed.pass_s(history.MAKES_ROOM_S)
    assert bed.history.queue(b"d", "hour") is None, "the others were used just now"
    bed.add(b"a")
    bed.pass_s(1)
    bed.add(b"d")
    bed.pass_s(1)
    known = {name for name in (b"a", b"b", b"c", b"d") if bed.history.queue(name, "hour") is not None}
    assert known == {b"a", b"c", b"d"}


def test_the_pulse_rests_when_nothing_happens_and_nobody_looks(bed: Bed) -> None:
    bed.add(b"q", 20)
    bed.pass_s(RESTS_AFTER_S + 2)
    beats = len(bed.history.pulse.lags)
    bed.history.pulse.lags.clear()
    assert beats == 60
    bed.pass_s(5 * RESTING_S)
    assert len(bed.history.pulse.lags) in (5, 6)
    bed.add(b"q", 30)
    bed.pass_s(RESTING_S + 1)
    length, came, _, _, _ = bed.series(b"q")
    assert length[-1] == 50
    assert sum(came[1:]) == pytest.approx(30), "what happened meanwhile is spread over the rest"


def test_who_looks_wakes_the_pulse(bed: Bed) -> None:
    bed.pass_s(RESTS_AFTER_S + 15)
    assert bed.history.pulse.is_resting
    bed.history.node("hour")
    bed.history.pulse.lags.clear()
    bed.pass_s(5)
    assert len(bed.history.pulse.lags) == 5


def test_nothing_is_sampled_while_the_jobs_are_loaded(bed: Bed) -> None:
    bed.loading = True
    bed.add(b"q")
    bed.pass_s(3)
    assert bed.history.queue(b"q", "hour") is None


def test_the_history_stops(bed: Bed) -> None:
    bed.history.pulse.stop()
    assert bed.reactor.getDelayedCalls() == []


def test_the_history_stops_within_a_walk(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    forever: Deferred[None] = Deferred()
    monkeypatch.setattr(history, "next_turn", lambda reactor: forever)
    for number in range(2 * history.LOOKED_AT):
        bed.add(b"q%d" % number)
    bed.pass_s(1)
    bed.history.pulse.stop()
    assert forever.called
    assert bed.reactor.getDelayedCalls() == []


def test_the_lag_is_how_late_a_beat_is() -> None:
    reactor: Any = Reactor()

    async def beat(slot: int) -> bool:
        return True

    pulse = Pulse(reactor, beat)
    pulse.start()
    reactor.advance(1)
    reactor.advance(1.4)
    reactor.advance(0.6)
    assert list(pulse.lags) == pytest.approx([0, 0.4, 0])
    pulse.stop()


def test_a_ring_keeps_its_newest_slots() -> None:
    ring = Ring(5, 1, 0)
    for number in range(1, 4):
        ring.put(Slot(number, 0, 0, 0, 0), number)
    assert list(ring.columns()[0]) == [1, 2, 3]
    ring.rest(3, 1.0, 6)
    ring.put(Slot(7, 0, 0, 0, 0), 7)
    assert list(ring.columns()[0]) == [3, 3, 3, 3, 7]
    assert list(ring.columns()[4]) == [0, 2, 3, 4, 0]
    ring.rest(7, 1.0, 1_000)
    assert list(ring.columns()[4]) == [990, 991, 992, 993, 994]


def test_a_track_takes_no_more_bytes_than_it_says() -> None:
    track = Track(0)
    track.note(1, 1, (1, 0, 0), 1, 0.0)
    few = sum(column.itemsize * len(column) for ring in (track.hour, track.week) for column in ring.columns())
    assert few < 100
    track.note(60 * MINUTES + 120, 1, (1, 0, 0), 2, 0.0)
    assert (len(track.hour), len(track.week)) == (SECONDS, MINUTES)
    columns = [*track.hour.columns(), *track.week.columns()]
    assert sum(column.itemsize * len(column) for column in columns) == BYTES_MAX


@pytest_twisted.ensureDeferred
async def test_charts_get_columns_by_name(launch: Launch) -> None:
    running = launch()
    await wait_until(lambda: not running.daemon.loading)
    client = admin(running)
    resp = await running.connect()
    await resp.call("ADDJOB", "a/b", "body", 0)
    await client.site.history.sample(1)
    answer = await client.get("/api/history?queue=a%2Fb")
    assert answer.status == 200
    assert answer.body.pop("time")
    assert answer.body.pop("oldest")[0] >= 0
    assert answer.body == {"range_s": 3600, "step_s": 5, "backlog": [1], "in": [1], "out": [0], "acked": [0]}
    nothing = {name: [] for name in ("time", "backlog", "in", "out", "acked", "oldest")}
    assert (await client.get("/api/history?range=7d")).body == {"range_s": 604_800, "step_s": 600, **nothing}
    assert (await client.get("/api/history?queue=nobody")).body["code"] == "NOQUEUE"
    assert (await client.get("/api/history?queue=")).status == 404, "the queue without a name"
    for query, told in (
        ("range=1y", "a whole number and s, m, h or d"), ("range=0m", "such as 15m"), ("range=8d", "7d at most"),
        ("step=5", "a whole number and s"), ("range=1m&step=2m", "up to the range, 60s"),
        ("range=2h&step=90s", "whole minutes"), ("span=hour", "allowed: queue, range, step"),
    ):  # fmt: skip
        wrong = await client.get(f"/api/history?{query}")
        assert (wrong.status, told in wrong.body["detail"]) == (400, True), wrong.body
    await client.stop()


def test_a_range_is_the_newest_part_in_steps_that_begin_at_multiples_of_their_length(bed: Bed) -> None:
    for _ in range(20):
        bed.add(b"q", 3)
        bed.pass_s(1)
    whole = bed.history.queue(b"q", "hour")
    part = whole.last(12)
    assert [list(column) for column in part.columns] == [list(column)[-12:] for column in whole.columns]
    starts = part.starts(5)
    assert (starts[0], starts[-1]) == (0, 12)
    assert all(part.times[at] % 5 == 0 for at in starts[1:-1])
    assert {end - at for at, end in pairwise(starts[1:-1])} == {5}
    assert means_of(part.in_rate, starts) == [3] * (len(starts) - 1)
    assert last_of(part.length, starts) == [3 * (8 + end) for end in starts[1:]]


def test_steps_of_minutes_add_up(bed: Bed) -> None:
    for number in range(11 * 60):
        bed.add(b"q", 1 + number % 2)
        bed.pass_s(1)
    week = bed.history.queue(b"q", "week").last(RANGE_MAX_S)
    starts = week.starts(300)
    sizes = [end - at for at, end in pairwise(starts)]
    assert (sum(sizes), max(sizes)) == (len(week.times), 5)
    assert sum(mean * size for mean, size in zip(means_of(week.in_rate, starts), sizes, strict=True)) == pytest.approx(
        sum(week.in_rate)
    )


def test_a_range_has_a_usual_step() -> None:
    ranges = (60, 900, SECONDS, SECONDS + 1, 6 * 3_600, 86_400, 3 * 86_400, RANGE_MAX_S)
    assert [default_step_s(range_s) for range_s in ranges] == [1, 1, 5, 60, 60, 60, 300, 600]
