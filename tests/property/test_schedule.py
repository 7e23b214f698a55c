"""The schedule against the simplest thing that does the same: a dict of deadlines, sorted when it is asked."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from disqued.core.model.schedule import STALE_MIN, WIDTH_MS, Schedule, Timed

#: Near enough to share a bucket, a few buckets away, and far away.
SPANS = st.one_of(st.integers(0, 2 * WIDTH_MS), st.integers(0, 20 * WIDTH_MS), st.integers(0, 100_000_000))
LIMITS = st.one_of(st.integers(1, 3), st.just(2_000))


def timed() -> Timed:
    """Something with a deadline."""
    item = Timed()
    item.awake_at = 0
    return item


class AgainstASortedList(RuleBasedStateMachine):
    items = Bundle("items")

    @initialize(start=st.one_of(st.integers(1, 200), st.integers(1, 10**12)))
    def begin(self, start: int) -> None:
        self.now = start
        self.schedule = Schedule()
        self.due_at: dict[Timed, int] = {}
        self.came = 0
        self.places: dict[Timed, int] = {}  #: when each came, while its place among equals is promised

    @rule(target=items, span=SPANS)
    def add(self, span: int) -> Timed:
        self.came += 1
        item = timed()
        self.places[item] = self.came
        self.due_at[item] = self.now + span
        self.schedule.add(item, self.now + span)
        return item

    @rule(item=items)
    def cancel(self, item: Timed) -> None:
        """Whether or not it is scheduled."""
        self.due_at.pop(item, None)
        self.schedule.cancel(item)

    @rule(item=items, span=SPANS)
    def move(self, item: Timed, span: int) -> None:
        """Whether or not it is scheduled."""
        self.places.pop(item, None)
        self.due_at[item] = self.now + span
        self.schedule.move(item, self.now + span)

    @rule(item=consumes(items), spans=st.lists(SPANS, min_size=1, max_size=40))
    def move_often(self, item: Timed, spans: list[int]) -> None:
        for span in spans:
            self.move(item, span)

    @rule(span=SPANS, limit=LIMITS)
    def let_time_pass(self, span: int, limit: int) -> None:
        self.now += span
        expected = sorted(at for at in self.due_at.values() if at <= self.now)
        popped = self.schedule.pop_due(self.now, limit)
        assert all(item.awake_at == 0 for item in popped)
        assert [self.due_at.pop(item) for item in popped] == expected[:limit]
        self.check_order(popped, expected[:limit])

    def check_order(self, popped: list[Timed], times: list[int]) -> None:
        """Among those that were never moved, equals come in the order in which they were added."""
        places = [(at, self.places[item]) for at, item in zip(times, popped, strict=True) if item in self.places]
        assert places == sorted(places)

    @rule()
    def wake_when_told(self) -> None:
        """A driver that sleeps until `next_at` meets each deadline in its very millisecond."""
        at = self.schedule.next_at()
        if at is not None:
            self.now = max(self.now, at)
            for item in self.schedule.pop_due(self.now, 2_000):
                assert self.due_at.pop(item) <= self.now

    @invariant()
    def next_is_never_late_and_at_most_a_bucket_early(self) -> None:
        at = self.schedule.next_at()
        if not self.due_at:
            assert at is None
        else:
            assert at is not None
            first = min(self.due_at.values())
            assert first - WIDTH_MS < at <= first

    @invariant()
    def items_know_their_deadline(self) -> None:
        assert all(item.awake_at == at for item, at in self.due_at.items())

    def teardown(self) -> None:
        """Once everything is cancelled, nothing of it is kept for longer than one bucket's time."""
        if hasattr(self, "schedule"):
            for item in self.due_at:
                self.schedule.cancel(item)
            assert self.schedule.next_at() is None
            assert self.schedule.pop_due(self.now + WIDTH_MS, 1) == []
            assert self.schedule.entries == 0


TestAgainstASortedList = AgainstASortedList.TestCase


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 6)), max_size=400))
def test_stale_entries_never_outnumber_the_live_ones_by_much(steps: list[tuple[int, int]]) -> None:
    schedule = Schedule()
    items = [timed() for _ in range(10)]
    for number, span in steps:
        if span:
            schedule.move(items[number], span * 10 * WIDTH_MS)
        else:
            schedule.cancel(items[number])
        live = sum(item.awake_at > 0 for item in items)
        used = len({item.awake_at // WIDTH_MS for item in items if item.awake_at})
        assert schedule.entries <= 4 * live / 3 + used * (STALE_MIN + 1)
