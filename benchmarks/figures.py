"""Medians, ratios, goals, and how they are told.

A row is one measure.  Its figure stands beside a yardstick where there is one: the same load on another server, in
turns (A B A B ...), so that whatever else the machine does meanwhile meets both.  The ratio is that of each pair of
neighbours; its median is held against the goal.
"""

import json
from collections.abc import Sequence
from statistics import median
from typing import Any

import attrs


@attrs.frozen
class Spread:
    """Figures of several rounds: the middle one, and the extremes."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Summarise the figures of at least one round."""
    return Spread(median(values), min(values), max(values))


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Summarise ours / theirs, round by round."""
    return spread([mine / other for mine, other in zip(ours, theirs, strict=True)])


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of the values that is not below `percent` per cent of them."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


@attrs.frozen
class Goal:
    """What a figure shall reach."""

    bound: float
    at_least: bool = False  #: the figure shall not be smaller; otherwise it shall not be larger
    unit: str = ""  #: empty for a ratio, which is then what counts

    def is_met(self, figure: float) -> bool:
        """Hold a figure against it."""
        return figure >= self.bound if self.at_least else figure <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}{self.unit and ' ' + self.unit}"


@attrs.frozen
class Row:
    """One measure."""

    name: str  #: as `--only` names it
    title: str
    unit: str
    ours: Spread | None = None  #: None: not measured, `note` says why
    yardstick: str = ""
    theirs: Spread | None = None
    ratio: Spread | None = None
    goal: Goal | None = None
    rounds: int = 1
    seed: int | None = None  #: of the random numbers, where any were drawn
    note: str = ""
    beside: str = ""  #: another yardstick, which no goal is about
    others: Spread | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is met; None when there is none, or nothing to hold against it."""
        figure = self.ours if self.goal is None or self.goal.unit else self.ratio
        if self.goal is None or figure is None:
            return None
        return self.goal.is_met(figure.median)


def amount(value: float) -> str:
    """A number with as many digits as mean something."""
    if value >= 1_000:
        return f"{value:,.0f}".replace(",", " ")
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def told(figure: Spread, unit: str = "") -> str:
    """A spread in words: median, unit, extremes."""
    text = amount(figure.median) + (unit and f" {unit}")
    if figure.low == figure.high:
        return text
    return f"{text} ({amount(figure.low)} to {amount(figure.high)})"


def describe(row: Row, stamp: str) -> str:
    """A row for people, with what its figures depend on."""
    lines = [f"{row.name}: {row.title}"]
    if row.ours is None:
        lines.append(f"  not measured: {row.note}")
    else:
        lines.append(f"  disqued {told(row.ours, row.unit)}")
        if row.theirs is not None:
            lines.append(f"  {row.yardstick} {told(row.theirs, row.unit)}")
        if row.others is not None:
            lines.append(f"  {row.beside} {told(row.others, row.unit)}")
        lines.append(f"  {_verdict(row)}")
        if row.note:
            lines.append(f"  {row.note}")
    seed = "" if row.seed is None else f"; seed {row.seed}"
    lines.append(f"  [{stamp}; {row.rounds} round{'s' if row.rounds > 1 else ''}{seed}]")
    return "\n".join(lines)


def _verdict(row: Row) -> str:
    ratio = "" if row.ratio is None else f"ratio {told(row.ratio)}, "
    if row.goal is None:
        return f"{ratio}no goal is set"
    return f"{ratio}goal {row.goal}: {'met' if row.is_met else 'NOT MET'}"


def conclude(rows: Sequence[Row]) -> str:
    """The last line of a report."""
    judged = [row for row in rows if row.is_met is not None]
    missed = [row.name for row in judged if not row.is_met]
    unmeasured = [row.name for row in rows if row.ours is None]
    text = f"{len(judged) - len(missed)} of {len(judged)} goals met"
    if missed:
        text += f"; not met: {', '.join(missed)}"
    if unmeasured:
        text += f"; not measured: {', '.join(unmeasured)}"
    return text


def as_json(rows: Sequence[Row], facts: dict[str, Any]) -> str:
    """The report for programs; each row carries what its figures depend on."""
    told_rows = [{**attrs.asdict(row), "is_met": row.is_met, "machine": facts} for row in rows]
    return json.dumps(told_rows, indent=2, ensure_ascii=False) + "\n"
