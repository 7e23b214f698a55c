"""`python -m benchmarks.plots REPORT FILE.svg [NAME ...]`: draw a report that `--json FILE` has written.

Each measure is a group of bars, disqued and what stands beside it, on a logarithmic scale; the goal is a line across
the bar that it is about.  Without names all measures are drawn that have something beside them.

`python -m benchmarks.plots REPORT FOLDER [NAME ...]` draws curves, the report of `benchmarks.growth`: growth-NAME.svg
for each thing that grows, with logarithmic axes.  Lines are medians, the areas around them the extremes of the rounds.
"""

import argparse
import json
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import amount
from disqued.testing.arguments import ExactParser

COLORS: Final = ("#1f6feb", "#8c959f", "#c2a500")  #: disqued, its yardstick, another one
INCHES_A_GROUP: Final = 0.72
GOAL_COLOR: Final = "#cf222e"
#: Figures of a curve, and what they are called above their panels.
PANELS: Final = (
    ("jobs_a_second", "jobs a second, each added, fetched, acknowledged"),
    ("p99_ms", "p99 of a request, ms, at a fixed rate"),
    ("cpu_us", "processor time a job, µs"),
    ("resident_mib", "resident memory of a node, MiB"),
)  # fmt: skip
#: The same report makes the same file.
SETTINGS: Final[Any] = {"svg.hashsalt": "disqued", "svg.fonttype": "none", "font.size": 9}


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = ExactParser(prog="python -m benchmarks.plots", description="Draw a report of benchmarks.")
    parser.add_argument("report", type=Path, help="what --json FILE has written")
    parser.add_argument("picture", type=Path, help="SVG to write; of curves, the folder for one of each")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of measures; else all with something beside them")
    return parser.parse_args(arguments)


def bars_of(row: dict[str, Any]) -> list[tuple[str, dict[str, float]]]:
    """Name the bars of a measure, and their medians and extremes."""
    named = (("disqued", row["ours"]), (row["yardstick"], row["theirs"]), (row["beside"], row["others"]))
    return [(name, figure) for name, figure in named if figure is not None]


def goal_of(row: dict[str, Any]) -> float | None:
    """Where the goal is on the bar of disqued; None = there is none, or it is no ratio to the yardstick."""
    if row["goal"] is None or row["goal"]["unit"] or row["theirs"] is None:
        return None
    bound: float = row["goal"]["bound"]
    median: float = row["theirs"]["median"]
    # Where less is better the ratio is that of the times, and so the other way round for rates.
    return median * bound if row["goal"]["at_least"] else median / bound


def draw(rows: Sequence[dict[str, Any]], picture: Path) -> None:
    """Draw measures into a file."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    with mpl.rc_context(SETTINGS):
        figure, axes = plt.subplots(figsize=(8, 1.2 + INCHES_A_GROUP * len(rows)))
        told: dict[str, Any] = {}
        for place, row in enumerate(rows):
            bars = bars_of(row)
            height = 0.8 / len(bars)
            for number, (name, spread) in enumerate(bars):
                at = place + (number - (len(bars) - 1) / 2) * height
                off = [[spread["median"] - spread["low"]], [spread["high"] - spread["median"]]]
                color = COLORS[number]
                bar = axes.barh(at, spread["median"], height * 0.9, xerr=off, color=color, error_kw={"lw": 0.8})
                label: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
                axes.annotate(amount(spread["median"]), (spread["high"], at), fontsize=7, color="#57606a", **label)
                told.setdefault(name, bar)
                if number == 0 and (goal := goal_of(row)) is not None:
                    line = axes.vlines(goal, at - height / 2, at + height / 2, color=GOAL_COLOR, lw=1.6)
                    told.setdefault("goal", line)
        axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_xlabel(", ".join(dict.fromkeys(row["unit"] for row in rows)))
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.12, y=0.02)
        figure.legend(told.values(), told.keys(), loc="outside upper center", ncols=len(told), frameon=False)
        figure.tight_layout(rect=(0, 0, 1, 1 - 0.4 / figure.get_figheight()))
        figure.savefig(picture, format="svg", metadata={"Date": None})
        plt.close(figure)


# ---- Curves.


def families_of(curves: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """What is drawn into one picture: the curves whose names begin alike, as `nodes` and `nodes-3` do."""
    found: dict[str, list[dict[str, Any]]] = {}
    for curve in curves:
        found.setdefault(curve["name"].partition("-")[0], []).append(curve)
    return found


def draw_curves(curves: Sequence[dict[str, Any]], picture: Path) -> None:
    """Draw curves of one family into a file: a panel for each figure."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    with mpl.rc_context(SETTINGS):
        figure, panels = plt.subplots(2, 2, figsize=(8, 4.6), sharex=True)
        for axes, (key, title) in zip(panels.flat, PANELS, strict=True):
            for number, curve in enumerate(curves):
                _draw_line(axes, curve["points"], key, COLORS[number])
            axes.set_title(title, fontsize=9, loc="left")
            axes.set_xscale("log")
            axes.set_yscale("log")
            _label(axes.yaxis, axes.get_ylim(), axes.set_ylim)
            _label(axes.xaxis, axes.get_xlim(), axes.set_xlim)
            axes.grid(visible=True, which="major", lw=0.4, color="#d0d7de")
            axes.spines[["top", "right"]].set_visible(False)
        for axes in panels[1]:
            axes.set_xlabel(curves[0]["unit"])
        lines = panels.flat[0].get_lines()
        titles = [curve["title"] for curve in curves]
        figure.legend(lines, titles, loc="outside upper center", ncols=len(titles), frameon=False)
        figure.tight_layout(rect=(0, 0, 1, 0.94))
        figure.savefig(picture, format="svg", metadata={"Date": None})
        plt.close(figure)


def _label(axis: Any, limits: tuple[float, float], set_limits: Any) -> None:
    """Write numbers at an axis, and let it span a decade at least, so that what is flat looks flat."""
    from matplotlib import ticker

    low, high = limits
    if high < 10 * low:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(10), middle * math.sqrt(10)
        set_limits(low, high)
    steps = (1.0, 2.0, 5.0) if high < 200 * low else (1.0,)
    axis.set_major_locator(ticker.LogLocator(10, steps, numticks=12))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _short(value)))
    axis.set_minor_formatter(ticker.NullFormatter())


def _short(value: float) -> str:
    for size, sign in ((1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:g}{sign}"
    return f"{value:g}"


def _draw_line(axes: Any, points: Sequence[dict[str, Any]], key: str, color: str) -> None:
    places = [point["at"] for point in points]
    figures = [point[key] for point in points]
    if not isinstance(figures[0], dict):
        axes.plot(places, figures, "o-", ms=3, lw=1.4, color=color)
        return
    axes.plot(places, [each["median"] for each in figures], "o-", ms=3, lw=1.4, color=color)
    low, high = [each["low"] for each in figures], [each["high"] for each in figures]
    axes.fill_between(places, low, high, color=color, alpha=0.2, lw=0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw; returns 2 when a measure is not in the report."""
    options = read_options(arguments)
    report = json.loads(options.report.read_text())
    if report and "points" in report[0]:
        families = families_of(report)
        if _are_known(options.names, families, "not in the report"):
            for name in options.names or families:
                draw_curves(families[name], options.picture / f"growth-{name}.svg")
            return 0
    else:
        rows = {row["name"]: row for row in report if row["theirs"] is not None}
        if _are_known(options.names, rows, "not in the report, or with nothing beside it"):
            draw([rows[name] for name in options.names or rows], options.picture)
            return 0
    return 2


def _are_known(names: Sequence[str], known: Collection[str], otherwise: str) -> bool:
    """Say of which names nothing can be drawn."""
    missing = [name for name in names if name not in known]
    if missing:
        print(f"{otherwise}: {', '.join(missing)}; there are {', '.join(known)}")
    return not missing


if __name__ == "__main__":
    raise SystemExit(main())
