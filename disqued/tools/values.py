"""Values of options that click has no type for, and options that several verbs share."""

import math
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def options(*made: Callable[[F], F]) -> Callable[[F], F]:
    """Make one decorator of several options, in the order in which the help shows them."""

    def give(function: F) -> F:
        for option in reversed(made):
            function = option(function)
        return function

    return give


class Number(click.FloatRange):
    """A number within a range.  Not-a-number, which is beyond no bound, is refused, and so is what has no end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            float(value)
        except ValueError:
            self.fail(f"{value!r} is no number; a number like 10 or 0.5 is allowed", param, ctx)
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} cannot be counted with; a number like 10 or 0.5 is allowed", param, ctx)
        return number


class Seconds(click.FloatRange):
    """A span in seconds, more than 0, or from 0 on where `zero` means something of its own."""

    def __init__(self, most: float, *, zero: bool = False) -> None:
        super().__init__(0, most, min_open=not zero)
        self._allowed = f"allowed are {'0' if zero else 'spans of more than 0'} up to {most:.0f}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            seconds = super().convert(value, param, ctx)
        except click.BadParameter:
            seconds = math.nan
        if math.isnan(seconds):
            self.fail(f"{value!r} is no number of seconds; {self._allowed}", param, ctx)
        return seconds


_AGO: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Moment(click.ParamType[float]):
    """A moment that is over, in unix seconds: how long ago it was, or in the form of ISO 8601."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        now = time.time()
        if found := _AGO.fullmatch(value):
            return now - float(found[1]) * _UNITS_S[found[2]]
        try:
            moment = datetime.fromisoformat(value.removesuffix(" UTC"))
        except ValueError:
            self.fail(f"{value!r} is no time; 10m, 2h, 1d (before now) or '2026-11-22 10:15' (UTC) is allowed", param,
                      ctx)  # fmt: skip
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        if seconds > now:
            self.fail(f"{value!r} is still to come; a time before now is allowed", param, ctx)
        return seconds
