"""Cron lines: when they come, in which zone.

The instants were worked out by walking the clock (`tests/cron_oracle.py`), those of six fields and years by hand.
"""

from datetime import UTC, datetime
from itertools import pairwise

import pytest

from disqued.cron import CronCalendar

#: line, zone, after, instants that come next; all but the line in UTC.
TABLE = [
    ("* * * * *", "UTC", "2026-01-01T00:00", "2026-01-01T00:01 2026-01-01T00:02 2026-01-01T00:03"),
    ("0 * * * *", "UTC", "2026-01-01T00:30", "2026-01-01T01:00 2026-01-01T02:00"),
    ("15 3 * * *", "UTC", "2026-01-01T03:15", "2026-01-02T03:15 2026-01-03T03:15"),
    ("0 0 1 1 *", "UTC", "2025-06-01T00:00", "2026-01-01T00:00 2027-01-01T00:00"),
    ("59 23 31 12 *", "UTC", "2026-01-01T00:00", "2026-12-31T23:59"),
    # Steps, ranges, lists.
    ("*/20 * * * *", "UTC", "2026-01-01T00:05", "2026-01-01T00:20 2026-01-01T00:40 2026-01-01T01:00 2026-01-01T01:20"),
    ("7/20 * * * *", "UTC", "2026-01-01T00:05", "2026-01-01T00:07 2026-01-01T00:27 2026-01-01T00:47 2026-01-01T01:07"),
    ("10-30/10 * * * *", "UTC", "2026-01-01T00:05", "2026-01-01T00:10 2026-01-01T00:20 2026-01-01T00:30"),
    ("0 */7 * * *", "UTC", "2026-01-01T00:00", "2026-01-01T07:00 2026-01-01T14:00 2026-01-01T21:00 2026-01-02T00:00"),
    ("0 9-17/4 * * *", "UTC", "2026-01-01T00:00", "2026-01-01T09:00 2026-01-01T13:00 2026-01-01T17:00"),
    ("0,30 8,18 * * *", "UTC", "2026-01-01T08:10", "2026-01-01T08:30 2026-01-01T18:00 2026-01-01T18:30"),
    ("5-7 0 * * *", "UTC", "2026-01-01T00:05", "2026-01-01T00:06 2026-01-01T00:07 2026-01-02T00:05"),
    ("0 0 */10 * *", "UTC", "2026-02-01T00:00", "2026-02-11T00:00 2026-02-21T00:00 2026-03-01T00:00 2026-03-11T00:00"),
    ("0 0 10-20/5 * *", "UTC", "2026-02-01T00:00", "2026-02-10T00:00 2026-02-15T00:00 2026-02-20T00:00"),
    ("0 12 1,15 * *", "UTC", "2026-01-31T00:00", "2026-02-01T12:00 2026-02-15T12:00 2026-03-01T12:00"),
    ("0 0 1 */5 *", "UTC", "2026-01-01T00:00", "2026-06-01T00:00 2026-11-01T00:00 2027-01-01T00:00"),
    ("1-5/2,50 4 * * *", "UTC", "2026-01-01T04:01", "2026-01-01T04:03 2026-01-01T04:05 2026-01-01T04:50"),
    # Names.
    ("0 6 * * mon-fri", "UTC", "2026-01-02T06:00", "2026-01-05T06:00 2026-01-06T06:00"),
    ("0 6 * * SUN", "UTC", "2026-01-01T00:00", "2026-01-04T06:00 2026-01-11T06:00"),
    ("0 6 * * 0", "UTC", "2026-01-01T00:00", "2026-01-04T06:00 2026-01-11T06:00"),
    ("0 6 * * 7", "UTC", "2026-01-01T00:00", "2026-01-04T06:00 2026-01-11T06:00"),
    ("0 6 * * sat,sun", "UTC", "2026-01-01T00:00", "2026-01-03T06:00 2026-01-04T06:00 2026-01-10T06:00"),
    ("0 0 1 feb,aug *", "UTC", "2026-01-01T00:00", "2026-02-01T00:00 2026-08-01T00:00"),
    ("0 0 1 JAN-MAR *", "UTC", "2026-02-01T00:00", "2026-03-01T00:00 2027-01-01T00:00"),
    ("30 7 * oct-dec tue", "UTC", "2026-09-28T00:00", "2026-10-06T07:30 2026-10-13T07:30"),
    # Days of the month or of the week; with a star, and.
    ("0 0 13 * fri", "UTC", "2026-02-01T00:00", "2026-02-06T00:00 2026-02-13T00:00 2026-02-20T00:00 2026-02-27T00:00"),
    ("0 0 1-7 * mon", "UTC", "2026-06-05T00:00", "2026-06-06T00:00 2026-06-07T00:00 2026-06-08T00:00 2026-06-15T00:00"),
    ("0 0 */2 * mon", "UTC", "2026-06-01T00:00", "2026-06-15T00:00 2026-06-29T00:00 2026-07-13T00:00"),
    ("0 0 13 * */5", "UTC", "2026-01-01T00:00", "2026-02-13T00:00 2026-03-13T00:00"),
    # Ends of months.
    ("0 0 31 * *", "UTC", "2026-01-31T00:00", "2026-03-31T00:00 2026-05-31T00:00 2026-07-31T00:00"),
    ("0 0 30 * *", "UTC", "2026-01-30T00:00", "2026-03-30T00:00 2026-04-30T00:00"),
    ("0 0 L * *", "UTC", "2026-01-31T00:00", "2026-02-28T00:00 2026-03-31T00:00 2026-04-30T00:00"),
    ("0 0 L feb *", "UTC", "2027-01-01T00:00", "2027-02-28T00:00 2028-02-29T00:00"),
    ("0 0 LW * *", "UTC", "2026-01-01T00:00", "2026-01-30T00:00 2026-02-27T00:00 2026-03-31T00:00"),
    ("0 0 LW may *", "UTC", "2026-01-01T00:00", "2026-05-29T00:00"),
    ("0 0 15,L * *", "UTC", "2026-02-01T00:00", "2026-02-15T00:00 2026-02-28T00:00 2026-03-15T00:00"),
    # Leap days.
    ("0 0 29 2 *", "UTC", "2026-01-01T00:00", "2028-02-29T00:00 2032-02-29T00:00"),
    ("0 12 29 feb *", "UTC", "2024-02-29T12:00", "2028-02-29T12:00"),
    ("0 0 28-29 2 *", "UTC", "2028-02-28T00:00", "2028-02-29T00:00 2029-02-28T00:00"),
    ("0 0 29 2 *", "Asia/Tokyo", "2024-02-28T14:59", "2024-02-28T15:00"),
    # The nth and the last such day of the month.
    ("0 9 * * mon#1", "UTC", "2026-01-01T00:00", "2026-01-05T09:00 2026-02-02T09:00"),
    ("0 9 * * fri#5", "UTC", "2026-01-01T00:00", "2026-01-30T09:00 2026-05-29T09:00"),
    ("0 9 * * 2#2", "UTC", "2026-11-01T00:00", "2026-11-10T09:00 2026-12-08T09:00"),
    ("0 9 * * 5L", "UTC", "2026-01-01T00:00", "2026-01-30T09:00 2026-02-27T09:00 2026-03-27T09:00"),
    ("0 9 * * mon#1,mon#3", "UTC", "2026-03-03T00:00", "2026-03-16T09:00 2026-04-06T09:00 2026-04-20T09:00"),
    # Six fields.
    ("30 0 12 * * *", "UTC", "2026-01-01T12:00", "2026-01-01T12:00:30 2026-01-02T12:00:30"),
    ("*/20 59 23 31 12 *", "UTC", "2026-12-31T23:59:10", "2026-12-31T23:59:20 2026-12-31T23:59:40 2027-12-31T23:59:00"),
    ("10,50 * * * * *", "UTC", "2026-01-01T00:00:30", "2026-01-01T00:00:50 2026-01-01T00:01:10 2026-01-01T00:01:50"),
    ("0 0 0 1 * *", "UTC", "2026-01-01T00:00", "2026-02-01T00:00:00"),
    # Zones without clock changes.
    ("0 9 * * *", "Asia/Tokyo", "2026-01-01T00:00", "2026-01-02T00:00 2026-01-03T00:00"),
    ("30 5 * * *", "Asia/Kolkata", "2026-01-01T00:00", "2026-01-02T00:00 2026-01-03T00:00"),
    ("0 0 * * *", "Asia/Kathmandu", "2026-01-01T00:00", "2026-01-01T18:15"),
    # Times that a clock change skips: an hour, half an hour, an hour that begins the day.
    ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", "2026-03-29T01:00 2026-03-30T00:30"),
    ("0 3 * * *", "Europe/Berlin", "2026-03-28T12:00", "2026-03-29T01:00 2026-03-30T01:00"),
    ("0,15,30,45 2 * * *", "Europe/Berlin", "2026-03-29T00:30", "2026-03-29T01:00 2026-03-30T00:00"),
    ("0 2,3 * * *", "Europe/Berlin", "2026-03-29T00:30", "2026-03-29T01:00 2026-03-30T00:00"),
    ("30 * * * *", "Europe/Berlin", "2026-03-29T00:00", "2026-03-29T00:30 2026-03-29T01:00 2026-03-29T01:30"),
    ("30 2 * * *", "America/New_York", "2026-03-08T06:00", "2026-03-08T07:00 2026-03-09T06:30"),
    ("*/30 * * * *", "America/New_York", "2026-03-08T06:20", "2026-03-08T06:30 2026-03-08T07:00 2026-03-08T07:30"),
    ("10 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00", "2026-10-03T15:30 2026-10-04T15:10"),
    ("0 0 * * *", "America/Santiago", "2026-09-05T12:00", "2026-09-06T04:00 2026-09-07T03:00"),
    ("30 2 * * sun#1", "Australia/Sydney", "2026-10-01T00:00", "2026-10-03T16:00 2026-10-31T15:30"),
    # Times that come twice.
    ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", "2026-10-25T00:30 2026-10-26T01:30"),
    ("0 2 * * *", "Europe/Berlin", "2026-10-24T12:00", "2026-10-25T00:00 2026-10-26T01:00"),
    ("30 * * * *", "Europe/Berlin", "2026-10-24T23:00", "2026-10-24T23:30 2026-10-25T00:30 2026-10-25T02:30"),
    ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:45", "2026-10-26T01:30"),
    ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:15", "2026-10-26T01:30"),
    ("30 1 * * *", "America/New_York", "2026-10-31T12:00", "2026-11-01T05:30 2026-11-02T06:30"),
    ("*/30 * * * *", "America/New_York", "2026-11-01T05:10", "2026-11-01T05:30 2026-11-01T07:00 2026-11-01T07:30"),
    ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00", "2026-04-04T14:45 2026-04-05T15:15"),
    ("30 23 * * *", "America/Santiago", "2026-04-04T00:00", "2026-04-04T02:30 2026-04-05T02:30"),
    ("30 2 * * *", "Australia/Sydney", "2026-04-03T16:00", "2026-04-04T15:30 2026-04-05T16:30"),
    ("0 */2 * * *", "Europe/Berlin", "2026-10-24T21:00", "2026-10-24T22:00 2026-10-25T00:00 2026-10-25T03:00"),
    # A day that a zone skipped.
    ("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00", "2011-12-29T22:00 2011-12-30T10:00 2011-12-30T22:00"),
]  # fmt: skip
CALENDAR = CronCalendar()
LINES = "allowed are five fields (minute, hour, day of month, month, day of week), or six with seconds first"

FIELDS = ", with *, ranges from low to high, /steps and lists"


def stamp(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000


@pytest.mark.parametrize(("line", "zone", "after", "expected"), TABLE)
def test_a_line_comes_when_the_clock_of_its_zone_shows_a_time_that_it_names(
    line: str, zone: str, after: str, expected: str
) -> None:
    assert CALENDAR.misfit(line.encode(), zone.encode()) == ""
    instants = [stamp(text) for text in expected.split()]
    start, count = stamp(after), len(instants)
    assert CALENDAR.after(line.encode(), zone.encode(), start, count) == instants
    # The same ones, seen from the last one, from just before it, and fewer of them.
    last = instants[-1]
    assert CALENDAR.before(line.encode(), zone.encode(), start, last, count + 5) == instants
    assert CALENDAR.before(line.encode(), zone.encode(), start, last - 1, count) == instants[:-1]
    assert CALENDAR.before(line.encode(), zone.encode(), start, last + 999, 1) == instants[-1:]
    # From each instant on, the next one.
    for one, another in pairwise(instants):
        assert CALENDAR.after(line.encode(), zone.encode(), one, 1) == [another]
        assert CALENDAR.after(line.encode(), zone.encode(), another - 1, 1) == [another]


def test_the_table_has_what_it_is_to_have() -> None:
    assert len(TABLE) >= 60
    assert len({zone for _, zone, _, _ in TABLE}) >= 6


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "wrong number of fields"),
        ("* * * *", "wrong number of fields"),
        ("* * * * * * *", "wrong number of fields"),
        ("60 * * * *", "bad minute"),
        ("61 * * * * *", "bad second"),
        ("* 24 * * *", "bad hour"),
        ("* * 0 * *", "bad day-of-month"),
        ("* * 32 * *", "bad day-of-month"),
        ("* * 31 feb *", "bad day-of-month"),
        ("* * * 13 *", "bad month"),
        ("* * * * 8", "bad day-of-week"),
        ("* * * * friL", "bad day-of-week"),
        ("* * * * mon#6", "bad day-of-week"),
        ("* * * * 5L/2", "bad day-of-week"),
        ("*/0 * * * *", "bad minute"),
        ("30-10 * * * *", "bad minute"),
        ("@daily", "wrong number of fields"),
        ("\u00e4 * * * *", "a field that makes no sense"),
    ],
)
def test_a_line_that_means_nothing_is_refused_with_what_is_allowed(line: str, problem: str) -> None:
    misfit = CALENDAR.misfit(line.encode(), b"UTC")
    assert problem in misfit
    assert misfit.endswith(FIELDS if "bad" in problem else LINES)
    assert CALENDAR.after(line.encode(), b"UTC", 0, 1) == []
    assert CALENDAR.before(line.encode(), b"UTC", 0, 1 << 40, 1) == []


@pytest.mark.parametrize(
    "zone",
    [
        b"",
        b"Europe",
        b"Europe/Nowhere",
        b"../etc/passwd",
        b"/etc/localtime",
        b"x" * 256,
        b"\xff",
        b"CET\0",
        b"localtime",
        b"posixrules",
        b"right/Europe/Berlin",
        b"posix/Europe/Berlin",
    ],
)
def test_a_zone_that_there_is_not_is_refused_with_what_is_allowed(zone: bytes) -> None:
    misfit = CALENDAR.misfit(b"* * * * *", zone)
    assert misfit.startswith("unknown time zone")
    assert misfit.endswith("allowed are names of the tz database such as Europe/Berlin")
    assert CALENDAR.after(b"* * * * *", zone, 0, 1) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("30-10 * * * *", "bad minute; allowed are 0 to 59, with *,"),
        ("0 0 30 2 *", "bad day-of-month; allowed are 1 to 31, as many as the months have, L or LW, with *,"),
        ("*/61 * * * *", "bad minute; allowed are steps of up to 59"),
        ("0,1-5/60 * * * * *", "bad second; allowed are steps of up to 59"),
        ("0 */24 * * *", "bad hour; allowed are steps of up to 23"),
    ],
)
def test_a_field_that_means_nothing_is_refused_with_what_it_may_hold(line: str, problem: str) -> None:
    assert f"cron line '{line}': {problem}" in CALENDAR.misfit(line.encode(), b"UTC")
    assert CALENDAR.misfit(b"*/59 */23 */31 */12 */7", b"UTC") == ""


def test_a_line_that_is_too_long_or_never_comes_is_refused() -> None:
    assert CALENDAR.misfit(b"0," * 150 + b"0 * * * *", b"UTC").endswith("allowed are 255")
    never = CALENDAR.misfit(b"0 0 */30 feb mon#5", b"UTC")
    assert never == "cron line '0 0 */30 feb mon#5' never comes; allowed are lines that come within 50 years"


def test_seconds_that_come_twice_come_once_and_none_is_left_out_afterwards() -> None:
    start = stamp("2026-10-25T00:59:58")
    second = 1_000
    found = CALENDAR.after(b"* * * * * *", b"Europe/Berlin", start, 3)
    assert found == [start + second, stamp("2026-10-25T02:00:00"), stamp("2026-10-25T02:00:01")]
    within = stamp("2026-10-25T01:30:00")
    assert CALENDAR.after(b"* * * * * *", b"Europe/Berlin", within, 1) == [stamp("2026-10-25T02:00:00")]
    assert CALENDAR.before(b"* * * * * *", b"Europe/Berlin", start, within, 9) == [start + second]
