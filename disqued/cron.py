"""Cron lines and time zones: the calendar of the core (`core.model.clock.Calendar`), made of cronsim and zoneinfo.

    line --cronsim--> local times, which know no zone --> instants, here

Cron lines name local times.  A clock change skips some of them and brings others twice, and cronsim follows Debian
there: lines with a star for minute or hour go on by elapsed time.  Here each local time comes once, whatever the line:

    skipped      at the change; several that one change skips are one instant
    twice        the first time
    else         at its instant

Times are unix milliseconds; cron lines have whole seconds.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from disqued.core.model.calendar import LINE_MAX

_ALLOWED: Final = "allowed are five fields (minute, hour, day of month, month, day of week), or six with seconds first"
#: Fields of a line by the names that cronsim gives them, their greatest number, and what they may hold.
_FIELDS: Final = {
    "second": (59, "0 to 59"),
    "minute": (59, "0 to 59"),
    "hour": (23, "0 to 23"),
    "day-of-month": (31, "1 to 31, as many as the months have, L or LW"),
    "month": (12, "1 to 12, or jan to dec"),
    "day-of-week": (7, "0 to 7, or sun to sat, as in mon#2 or 5L"),
}
_FORMS: Final = "with *, ranges from low to high, /steps and lists"
#: Zones that mean another one on each host, or count leap seconds.
_OF_HOST: Final = ("localtime", "posixrules")
_OTHER_TREES: Final = ("posix/", "right/")
_SECOND: Final = timedelta(seconds=1)
_ANY_DAY: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - local times know no zone here


class CronCalendar:
    """The calendar of a node.

    What another node found sound and this one does not, whose tz database is older, has no instants here.
    """

    def misfit(self, line: bytes, zone: bytes) -> str:
        """Say what is wrong with a cron line or a time zone, and what is allowed; empty = they are sound."""
        return _misfit(line, zone)

    def after(self, line: bytes, zone: bytes, wall: int, count: int) -> list[int]:
        """Return the first instants after a time, in order; fewer when there are no more."""
        if _misfit(line, zone):
            return []
        place = _zone(zone)
        second = wall // 1_000
        local = _last_local(second, place)
        instants = (_instant(time, place) for time in CronSim(line.decode("ascii"), local))
        return [instant * 1_000 for instant in islice(_rising(instants, second), count)]

    def before(self, line: bytes, zone: bytes, since: int, wall: int, count: int) -> list[int]:
        """Return the last instants after `since` and not after `wall`, in order."""
        if _misfit(line, zone):
            return []
        place = _zone(zone)
        second = wall // 1_000
        found: list[int] = []
        for time in CronSim(line.decode("ascii"), _last_local(second, place) + _SECOND, reverse=True):
            instant = _instant(time, place)
            if instant * 1_000 <= since or (found and len(found) == count and instant != found[-1]):
                break
            if instant <= second and (not found or instant < found[-1]):
                found.append(instant)
        return [instant * 1_000 for instant in reversed(found)]


@lru_cache(maxsize=256)
def _misfit(line: bytes, zone: bytes) -> str:
    try:
        _zone(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return f"unknown time zone {_shown(zone)}; allowed are names of the tz database such as Europe/Berlin"
    if len(line) > LINE_MAX:
        return f"a cron line of {len(line)} bytes; allowed are {LINE_MAX}"
    try:
        ticks = CronSim(line.decode("ascii"), _ANY_DAY)
    except CronSimError as problem:
        what = str(problem).lower()
        _, allowed = _FIELDS.get(what.removeprefix("bad "), (0, ""))
        return f"cron line {_shown(line)}: {what}; " + (f"allowed are {allowed}, {_FORMS}" if allowed else _ALLOWED)
    except ValueError:
        return f"cron line {_shown(line)}: a field that makes no sense; {_ALLOWED}"
    misfit = _misfit_of_steps(line.decode("ascii").split())
    if misfit:
        return f"cron line {_shown(line)}: {misfit}"
    if next(ticks, None) is None:
        return f"cron line {_shown(line)} never comes; allowed are lines that come within 50 years"
    return ""


def _misfit_of_steps(fields: list[str]) -> str:
    """Say which step is longer than its field: it would mean the first value alone."""
    for text, (name, (most, _)) in zip(fields, list(_FIELDS.items())[-len(fields) :], strict=True):
        for part in text.split(","):
            _, _, step = part.partition("/")
            if step and int(step) > most:
                return f"bad {name}; allowed are steps of up to {most}"
    return ""


def _shown(text: bytes) -> str:
    return repr(text[:80].decode("utf-8", "backslashreplace"))


@lru_cache(maxsize=64)
def _zone(name: bytes) -> ZoneInfo:
    """Return a time zone.  Raises ZoneInfoNotFoundError, ValueError, OSError."""
    if not 0 < len(name) <= LINE_MAX:
        raise ValueError("the name of a time zone has 1 to 255 bytes")
    text = name.decode("ascii")
    if text in _OF_HOST or text.startswith(_OTHER_TREES):
        raise ValueError("the zone is not the same on each host")
    return ZoneInfo(text)


def _rising(instants: Iterator[int], last: int) -> Iterator[int]:
    """Yield the instants that are later than all before them, and than `last`."""
    for instant in instants:
        if instant > last:
            last = instant
            yield instant


def _last_local(second: int, zone: ZoneInfo) -> datetime:
    """Return the latest local time that has come by then, without a zone: what comes for the second time has come."""
    local = datetime.fromtimestamp(second, zone)
    if local.fold:
        length = _offset(local.replace(fold=0)) - _offset(local)
        change = _change(second - length, second, zone)
        local = datetime.fromtimestamp(change - 1, zone)
    return local.replace(tzinfo=None, fold=0)


def _instant(time: datetime, zone: ZoneInfo) -> int:
    """Return when a local time comes: the first time that it does, or the clock change that skips it."""
    local = time.replace(tzinfo=zone)
    second = int((local.replace(tzinfo=UTC) - _EPOCH).total_seconds())
    before, after = _offset(local), _offset(local.replace(fold=1))
    if after > before:
        return _change(second - after, second - before, zone)
    return second - before


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _offset(local: datetime) -> int:
    """Return how many seconds the clock of a zone is ahead of UTC."""
    offset = local.utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _change(low: int, high: int, zone: ZoneInfo) -> int:
    """Return the first second of another offset than at `low`, not after `high`, where there is one change."""
    offset = _offset(datetime.fromtimestamp(low, zone))
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(datetime.fromtimestamp(middle, zone)) == offset:
            low = middle
        else:
            high = middle
    return high
