"""`python -m benchmarks.plots REPORT FILE.svg [NAME ...]`: draw a report that `--json FILE` has written.

Each measure is a group of bars, disqued and what stands beside it, on a logarithmic scale; the goal is a line across
the bar that it is about.  Without names all measures are drawn that have something beside them.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import amount

COLORS: Final = ("#1f6feb", "#8c959f", "#c2a500")  #: disqued, its yardstick, another one
INCHES_A_GROUP: Final = 0.72
GOAL_COLOR: Final = "#cf222e"
#: The same report makes the same file.
SETTINGS: Final[Any] = {"svg.hashsalt": "disqued", "svg.fonttype": "none", "font.size": 9}


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plots", description="Draw a report of benchmarks.")
    parser.add_argument("report", type=Path, help="what --json FILE has written")
    parser.add_argument("picture", type=Path, help="SVG to write")
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw; returns 2 when a measure is not in the report."""
    options = read_options(arguments)
    known = {row["name"]: row for row in json.loads(options.report.read_text()) if row["theirs"] is not None}
    missing = [name for name in options.names if name not in known]
    if missing:
        print(f"not in the report, or with nothing beside it: {', '.join(missing)}; there are {', '.join(known)}")
        return 2
    draw([known[name] for name in options.names or known], options.picture)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
