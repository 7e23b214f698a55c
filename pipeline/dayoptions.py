"""Days (UTC) as options of verbs: what is none is refused before Spark starts."""

from typing import Any, Final

import click

from disqued.pipeline.days import is_day
from disqued.pipeline.errors import Misused


class DayOption(click.ParamType):  # type: ignore[type-arg]
    """An option that is a day."""

    name = "day"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Take a day as it is; refuse everything else."""
        text = str(value)
        if not is_day(text):
            self.fail(f"{text!r} is no day: days (UTC) are written YYYY-MM-DD, such as 2026-11-22", param, ctx)
        return text


DAY: Final = DayOption()


def check_order(since: str | None, until: str | None) -> None:
    """Raise Misused where the first day is behind the last one: no day is between them."""
    if since is not None and until is not None and since > until:
        raise Misused(f"--since {since} is behind --until {until}: the first day comes first, or is the same")


def of_days(since: str | None, until: str | None) -> str:
    """Say which days are looked at, for people; empty = all."""
    return "".join(f", {word} {day}" for word, day in (("since", since), ("until", until)) if day is not None)
