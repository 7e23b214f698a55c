"""Draw the states of a job from the table that the core enforces.

``.venv/bin/python tools/draw_states.py``            print the diagram
``.venv/bin/python tools/draw_states.py --write``    put it into docs/architecture.md
"""

import sys
from pathlib import Path

from disqued.core.model.job import STATE_NAMES, TRANSITIONS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "architecture.md"
BEGIN, END = "<!-- states: begin -->", "<!-- states: end -->"


def diagram() -> str:
    """Return the diagram as a block of text: one line for each change, with what causes it."""
    names = {state: name.decode("ascii") for state, name in STATE_NAMES.items()}
    width = max(map(len, names.values()))
    lines = [
        f"{names[before]:<{width}} --> {names[after]:<{width}}  {cause}"
        for (before, after), cause in sorted(TRANSITIONS.items())
    ]
    return "\n".join(["```", *lines, "```"])


def shown(page: str) -> str:
    """Return the diagram that the page has."""
    return page.partition(BEGIN)[2].partition(END)[0].strip()


def main() -> None:
    """Print the diagram, or write it."""
    if sys.argv[1:] == ["--write"]:
        page = PAGE.read_text("utf-8")
        before, _, rest = page.partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{diagram()}\n\n{END}{rest.partition(END)[2]}", "utf-8")
    else:
        print(diagram())


if __name__ == "__main__":
    main()
