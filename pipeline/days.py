"""Days (UTC) as options of verbs and as names of folders: YYYY-MM-DD, and nothing else.

Days are compared as texts, which is their order only where each of them is written so: before Spark starts it is
certain that they are.
"""

import re
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import click

from disqued.pipeline.errors import Misused

if TYPE_CHECKING:
    from pyspark.sql import Column

#: As the names of folders have it; whether there is such a day in the calendar is looked at in Python.
WRITTEN: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_WRITTEN: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def is_day(text: str) -> bool:
    """Tell whether a text is a day of the calendar, written YYYY-MM-DD."""
    if not _WRITTEN.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


class Day(click.ParamType):  # type: ignore[type-arg]
    """An option that is a day."""

    name = "day"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Take a day as it is; refuse everything else."""
        text = str(value)
        if not is_day(text):
            self.fail(f"{text!r} is no day: days (UTC) are written YYYY-MM-DD, such as 2026-11-22", param, ctx)
        return text


DAY: Final = Day()


def check_order(since: str | None, until: str | None) -> None:
    """Raise Misused where the first day is behind the last one: no day is between them."""
    if since is not None and until is not None and since > until:
        raise Misused(f"--since {since} is behind --until {until}: the first day comes first, or is the same")


def of_days(since: str | None, until: str | None) -> str:
    """Say which days are looked at, for people; empty = all."""
    return "".join(f", {word} {day}" for word, day in (("since", since), ("until", until)) if day is not None)


def has_day() -> "Column":
    """Tell rows whose folder `date=` is named as a day from those of other folders."""
    from pyspark.sql import functions as f

    return f.coalesce(f.col("date").rlike(WRITTEN), f.lit(False))
