"""Cron lines and clock changes: whatever the line and the zone, the calendar and a walk of the clock agree."""

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from disqued.cron import CronCalendar
from tests.cron_oracle import instants

CALENDAR = CronCalendar()
MINUTE = timedelta(minutes=1)
#: Days with a clock change in their zone, and one without.
CHANGES = [
    ("Europe/Berlin", "2026-03-29"), ("Europe/Berlin", "2026-10-25"), ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"), ("Australia/Lord_Howe", "2026-04-04"), ("Australia/Lord_Howe", "2026-10-03"),
    ("America/Santiago", "2026-04-05"), ("America/Santiago", "2026-09-06"), ("Africa/Casablanca", "2026-02-15"),
    ("Pacific/Apia", "2011-12-30"), ("UTC", "2026-01-01"),
]  # fmt: skip


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    # A span of one number and a step is to cronsim what the number and the step are without the dash.
    pairs = st.tuples(number, number).filter(lambda pair: pair[0] != pair[1])
    span = pairs.map(lambda pair: f"{min(pair)}-{max(pair)}")
    part = st.one_of(number.map(str), span, span.map("{}/2".format))
    return st.one_of(st.just("*"), st.integers(1, 30).map("*/{}".format), st.lists(part, min_size=1).map(",".join))


LINES = st.tuples(field(0, 59), field(0, 4), st.just("* * *")).map(" ".join)


@given(LINES, st.sampled_from(CHANGES), st.integers(0, 1_440))
@settings(max_examples=30, deadline=None)
def test_a_walk_of_the_clock_finds_the_same_instants(line: str, change: tuple[str, str], minutes: int) -> None:
    zone, day = change
    start = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(hours=12) + timedelta(minutes=minutes)
    until = start + timedelta(hours=8)
    wall, end = (int(moment.timestamp()) * 1_000 for moment in (start, until))
    expected = [int(moment.timestamp()) * 1_000 for moment in instants(line, zone, start, until, MINUTE)]
    found = CALENDAR.after(line.encode(), zone.encode(), wall, len(expected) + 1)
    assert [instant for instant in found if instant <= end] == expected
    assert CALENDAR.before(line.encode(), zone.encode(), wall, end, len(expected) + 1) == expected
