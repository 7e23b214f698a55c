"""What a monitoring plugin says: a state, one line, and figures, by the rules that Nagios, Icinga and others share.

    QUEUE CRITICAL - mail: the oldest job is 300 s old (allowed: 120) | age=300s;60;120;0 length=3;;;0
    exit status 2

A threshold is a range, and an alert is what lies outside:

    10      0 to 10            10:     10 and more           ~:10    10 and less
    5:10    5 to 10            @5:10   an alert *within* 5 to 10

Source: the guidelines for the development of monitoring plugins.
"""

import math
from enum import IntEnum
from typing import Any, Final, Self

import attrs
import click


class CheckState(IntEnum):
    """What is reported; the value is the exit status."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


#: From harmless to bad.  What is not known is worse than nothing at all, and no alert of its own.
_ORDER: Final = (CheckState.OK, CheckState.UNKNOWN, CheckState.WARNING, CheckState.CRITICAL)


@attrs.frozen
class Range:
    """Values that are in order, or with `inside` those that are not."""

    text: str
    low: float = 0.0
    high: float = math.inf
    inside: bool = False

    @classmethod
    def of(cls, text: str) -> Self:
        """Read a threshold.  Raises ValueError."""
        inside = text.startswith("@")
        first, colon, last = text.removeprefix("@").partition(":")
        if not colon:
            first, last = "0", first
            if not last:
                raise ValueError("it is empty")
        low = -math.inf if first == "~" else float(first)
        high = float(last) if last else math.inf
        if math.isnan(low) or math.isnan(high) or low > high:
            raise ValueError("its end is below its begin")
        return cls(text, low, high, inside)

    def alerts(self, value: float) -> bool:
        """Tell whether a value is one to be alerted of."""
        return (self.low <= value <= self.high) is self.inside

    def __str__(self) -> str:
        return self.text


class Threshold(click.ParamType):  # type: ignore[type-arg]
    """A threshold on the command line."""

    name = "range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Range:
        if isinstance(value, Range):
            return value
        try:
            return Range.of(value)
        except ValueError:
            self.fail(f"{value!r} is no range; allowed are 10, 10:, ~:10, 5:10 and @5:10", param, ctx)


@attrs.define
class CheckResult:
    """What one check found."""

    what: str  #: NODE, QUEUE ...
    facts: str = ""  #: said when all is well
    state: CheckState = CheckState.OK
    _problems: list[str] = attrs.field(factory=list, init=False)
    _figures: list[str] = attrs.field(factory=list, init=False)

    def add(self, state: CheckState, problem: str) -> None:
        """Note something that is not in order."""
        self.state = max(self.state, state, key=_ORDER.index)
        self._problems.append(problem)

    def figure(
        self, label: str, value: float, unit: str = "", *, warning: Range | None = None, critical: Range | None = None,
        most: float | None = None, problem: str = "",
    ) -> None:  # fmt: skip
        """Note a figure; `problem` says in words what is wrong when it is beyond a threshold."""
        limits = [str(limit) if limit is not None else "" for limit in (warning, critical)]
        ends = ["0", "" if most is None else f"{most:g}"]
        self._figures.append(f"{label}={_number(value)}{unit};{';'.join([*limits, *ends])}".rstrip(";"))
        for state, limit in ((CheckState.CRITICAL, critical), (CheckState.WARNING, warning)):
            if limit is not None and limit.alerts(value):
                self.add(state, f"{problem} (allowed: {limit})")
                return

    def line(self) -> str:
        """The line to print."""
        said = ", ".join(self._problems) or self.facts
        line = f"{self.what} {self.state.name} - {_clean(said)}"
        return f"{line} | {' '.join(self._figures)}" if self._figures else line


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3f}".rstrip("0").rstrip(".")


def _clean(text: str) -> str:
    """Text without what begins the figures, or ends the line."""
    return " ".join(text.replace("|", "/").split())
