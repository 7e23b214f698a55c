"""Charts as SVG: lines over time, drawn without a script, for the page of a daemon and for a file that stands alone.

    +----+--------------------------------+
    | 40 |            ___                 |     Line("acks", "one", [3, 8, None, 12, ...])
    | 20 |   __   ___/   \\__              |     a value for each time; None = not known, and the line has a gap
    |  0 |__/  \\_/          \\_____        |
    +----+--------------------------------+
          10:00   12:00   14:00

Colours are classes (`c-one`, `c-grid`, ...) of the style sheet around it, so that they follow light and dark, and
nothing in it needs a style of its own, which a strict Content-Security-Policy would forbid.  Over each time lies a
strip with a title, which browsers show as a hint.  Times are unix seconds, UTC.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from math import ceil, floor, log10
from typing import Final

import attrs

WIDTH: Final = 560
HEIGHT: Final = 220
_LEFT: Final = 58
_RIGHT: Final = 10
_TOP: Final = 10
_BOTTOM: Final = 26
_ROWS: Final = 4  #: lines of the grid, about
_LABEL_PX: Final = 74  #: room for the label of a time

Values = Sequence[float | None]
Format = Callable[[float], str]

_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400
#: Between labels of times.
_STEPS: Final = (
    5 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE, _HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY,
    7 * _DAY, 14 * _DAY, 28 * _DAY, 56 * _DAY, 112 * _DAY, 364 * _DAY,
)  # fmt: skip


@attrs.frozen
class ChartLine:
    """One line of a chart."""

    label: str
    tone: str  #: one, two, three, four: the class of its colour is ``c-<tone>``
    values: Values  #: as many as there are times


@attrs.frozen
class Chart:
    """What is drawn."""

    title: str  #: what is read out in the place of the picture
    times: Sequence[int]  #: ascending, unix seconds
    lines: Sequence[ChartLine]
    form: Format  #: how a value is written
    step_s: int  #: between two times that follow each other
    limit: float | None = None  #: a target: a dashed line
    axis: Format | None = None  #: how a value is written beside the grid, if that is shorter
    steps: Sequence[float] = ()  #: between lines of the grid, ascending; below and beyond them 1, 2 and 5 times tens

    @property
    def svg(self) -> str:
        return _Drawing(self).svg()


def scale(highest: float, steps: Sequence[float] = ()) -> list[float]:
    """Values for the lines of a grid, from 0 to the highest or just beyond.

    They are one of the `steps` apart; below and beyond those 1, 2 or 5 times a power of ten.
    """
    if highest <= 0:
        return [0.0, 1.0]
    rough = highest / _ROWS * 0.999
    if steps and steps[0] < rough <= steps[-1]:
        step = next(step for step in steps if step >= rough)
    else:
        power = 10.0 ** floor(log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [round(step * number, 12) for number in range(ceil(highest / step - 1e-9) + 1)]


def time_step(span_s: int, room: float) -> int:
    """Seconds between labels of times, so that each has its room."""
    most = max(1, int(room // _LABEL_PX))
    return next((step for step in _STEPS if span_s / step <= most), _STEPS[-1])


def time_label(at: int, step_s: int) -> str:
    """A time as it stands below the chart: no finer than the step."""
    moment = datetime.fromtimestamp(at, UTC)
    if step_s >= _DAY:
        return moment.strftime("%d %b")
    return moment.strftime("%d %b" if at % _DAY == 0 else "%H:%M")


def time_name(at: int, step_s: int) -> str:
    """A time in full: a day, or a day and an hour."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d" if step_s >= _DAY else "%Y-%m-%d %H:%M")


class _Drawing:
    """One chart as it is drawn: pixels of a box of `WIDTH` by `HEIGHT`, which browsers scale."""

    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        values = [value for line in chart.lines for value in line.values if value is not None]
        self._rows = scale(max([*values, chart.limit or 0.0], default=0.0), chart.steps)
        self._top = self._rows[-1]
        first, last = (chart.times[0], chart.times[-1]) if chart.times else (0, 1)
        # A single time stands in the middle.
        self._first, self._last = (first, last) if last > first else (first - chart.step_s, first + chart.step_s)

    def svg(self) -> str:
        """Everything, the grid first."""
        chart = self._chart
        parts = [f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title)}">',
                 *self._grid(), *self._times(), *self._limit(),
                 *(part for line in chart.lines for part in self._line(line)), *self._strips(), "</svg>"]  # fmt: skip
        return "".join(parts)

    def _x(self, at: float) -> float:
        return _LEFT + (at - self._first) / (self._last - self._first) * (WIDTH - _LEFT - _RIGHT)

    def _y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - min(value / self._top, 1.0) * (HEIGHT - _TOP - _BOTTOM)

    def _grid(self) -> list[str]:
        parts, form = [], self._chart.axis or self._chart.form
        for value in self._rows:
            y = self._y(value)
            parts.append(f'<path class="c-grid" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>')
            parts.append(f'<text class="c-label c-end" x="{_LEFT - 6}" y="{y + 4:.1f}">{escape(form(value))}</text>')
        return parts

    def _times(self) -> list[str]:
        step = time_step(self._last - self._first, WIDTH - _LEFT - _RIGHT)
        parts = []
        # Weeks begin on Mondays, as the first day of 1970 was a Thursday.
        shift = 4 * _DAY if step >= 7 * _DAY else 0
        at = self._first + (shift - self._first) % step
        while at <= self._last:
            x = self._x(at)
            anchor = "c-end" if x > WIDTH - _LABEL_PX / 2 else "c-mid"
            x = min(x, WIDTH - 2)
            parts.append(f'<path class="c-tick" d="M{x:.1f} {HEIGHT - _BOTTOM}v4"/>')
            parts.append(f'<text class="c-label {anchor}" x="{x:.1f}" y="{HEIGHT - 8}">{time_label(at, step)}</text>')
            at += step
        return parts

    def _limit(self) -> list[str]:
        chart = self._chart
        if chart.limit is None:
            return []
        y = self._y(chart.limit)
        text = escape(f"target {chart.form(chart.limit)}")
        right = WIDTH - _RIGHT
        # Above the line, or below it where there is no room.
        place = f'x="{right - 2}" y="{y - 4 if y > _TOP + 14 else y + 13:.1f}"'
        return [
            f'<path class="c-limit" d="M{_LEFT} {y:.1f}H{right}"/>',
            f'<text class="c-label c-end c-limit-label" {place}>{text}</text>',
        ]

    def _line(self, line: ChartLine) -> list[str]:
        """A path, and a dot for each value that has no neighbour to be joined with."""
        path, dots = [], []
        joined = False
        values = [*line.values, None]
        for number, at in enumerate(self._chart.times):
            value = values[number]
            if value is None or (number and at - self._chart.times[number - 1] > self._chart.step_s):
                joined = False
            if value is None:
                continue
            x, y = self._x(at), self._y(value)
            has_next = values[number + 1] is not None and self._is_next(number)
            if not joined and not has_next:
                dots.append(f'<circle class="c-dot c-{line.tone}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>')
            path.append(f"{'L' if joined else 'M'}{x:.1f} {y:.1f}")
            joined = True
        return [f'<path class="c-line c-{line.tone}" d="{"".join(path)}"/>', *dots] if path else []

    def _is_next(self, number: int) -> bool:
        times = self._chart.times
        return number + 1 < len(times) and times[number + 1] - times[number] <= self._chart.step_s

    def _strips(self) -> list[str]:
        """What each time is about, shown where the pointer rests."""
        chart = self._chart
        width = (WIDTH - _LEFT - _RIGHT) * chart.step_s / (self._last - self._first)
        parts = []
        for number, at in enumerate(chart.times):
            said = [
                f"{line.label} {chart.form(value)}"
                for line in chart.lines
                if (value := line.values[number]) is not None
            ]
            if said:
                text = escape(f"{time_name(at, chart.step_s)}: {', '.join(said)}")
                x = max(_LEFT, self._x(at) - width / 2)
                wide = min(x + width, WIDTH - _RIGHT) - x
                parts.append(
                    f'<rect class="c-strip" x="{x:.1f}" y="{_TOP}" width="{max(wide, 1):.1f}"'
                    f' height="{HEIGHT - _TOP - _BOTTOM}"><title>{text}</title></rect>'
                )
        return parts


def spark(values: Values, title: str) -> str:
    """A small line without axes, for a cell of a table."""
    width, height = 120, 22
    highest = max((value for value in values if value is not None), default=0.0) or 1.0
    path, joined = [], False
    for number, value in enumerate(values):
        if value is not None:
            x = 1 + number / max(1, len(values) - 1) * (width - 2)
            path.append(f"{'L' if joined else 'M'}{x:.1f} {height - 2 - value / highest * (height - 4):.1f}")
        joined = value is not None
    return (
        f'<svg class="spark" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
        f'<path class="c-line c-one" d="{"".join(path) or "M0 0"}"/></svg>'
    )
