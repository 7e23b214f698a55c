"""When cron lines come, found out by walking the clock: another way than that of `disqued.cron`, to compare with.

Each step of the wall clock in a zone shows local times that were not there before: one, several when the clock is put
forward, none when it is put back.  A line comes at the steps that show a local time which it names.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
BOUNDS = [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]


def _number(word: str, place: int) -> int:
    names = MONTHS if place == 4 else DAYS if place == 5 else []
    if word in names:
        return names.index(word) + (place == 4)
    return int(word)


def _is_plain(word: str) -> bool:
    """Return whether a word names numbers, and not a day by where it is in its month."""
    return "#" not in word and not (word[-1:] == "l" and word[:-1].isdigit()) and word not in ("l", "lw")


def _numbers(text: str, place: int) -> set[int]:
    """The plain numbers that a field names."""
    found: set[int] = set()
    for part in filter(_is_plain, text.split(",")):
        span, _, step = part.partition("/")
        low, high = BOUNDS[place]
        if span != "*":
            first, dash, last = span.partition("-")
            low = _number(first, place)
            high = _number(last, place) if dash else high if step else low
        found.update(range(low, high + 1, int(step or 1)))
    return {number % 7 for number in found} if place == 5 else found


def _is_last(day: datetime, days: int = 1) -> bool:
    return (day + timedelta(days=days)).month != day.month


def _fits_day(day: datetime, of_month: str, of_week: str) -> bool:
    by_date = day.day in _numbers(of_month, 3)
    for word in of_month.split(","):
        if word == "l":
            by_date |= _is_last(day)
        if word == "lw":
            later = [day + timedelta(days=n) for n in range(1, 4)]
            by_date |= day.weekday() < 5 and not any(
                other.month == day.month and other.weekday() < 5 for other in later
            )  # fmt: skip
    number = day.isoweekday() % 7
    by_week = number in _numbers(of_week, 5)
    for word in of_week.split(","):
        if "#" in word:
            name, _, nth = word.partition("#")
            by_week |= _number(name, 5) % 7 == number and (day.day - 1) // 7 + 1 == int(nth)
        elif not _is_plain(word):
            by_week |= _number(word[:-1], 5) % 7 == number and _is_last(day, 7)
    if of_month.startswith("*") or of_week.startswith("*"):
        return by_date and by_week
    return by_date or by_week


def fits(line: str, local: datetime) -> bool:
    """Return whether a line names a local time, which has no zone."""
    fields = line.lower().split()
    fields = fields if len(fields) == 6 else ["0", *fields]
    parts = (local.second, local.minute, local.hour, None, local.month)
    if any(part is not None and part not in _numbers(fields[place], place) for place, part in enumerate(parts)):
        return False
    return _fits_day(local, fields[3], fields[5])


def instants(line: str, zone: str, after: datetime, until: datetime, step: timedelta) -> Iterator[datetime]:
    """Walk from `after` to `until` by steps of the clock, and yield the instants of a line in UTC."""
    place = ZoneInfo(zone)
    # Times that come twice may have come before.
    now = after - timedelta(hours=2)
    shown = now.astimezone(place).replace(tzinfo=None)
    while now < until:
        now += step
        local = now.astimezone(place).replace(tzinfo=None)
        comes = False
        while shown < local:
            shown += step
            comes |= fits(line, shown)
        if comes and now > after:
            yield now.astimezone(UTC)
