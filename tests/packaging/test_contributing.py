"""Every path that CONTRIBUTING.md and the architecture page name is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Pages, and where the paths that they name begin.
PAGES = {"CONTRIBUTING.md": (ROOT,), "docs/architecture.md": (ROOT, ROOT / "disqued")}
PATH = re.compile(r"`([\w.*-]+(?:/[\w.*-]+)*/?)`")
#: What is no path: generated in the data folder, or made by `make run`.
ELSEWHERE = {"crash-*.txt", "data/", "store.conf"}


def named(text: str) -> list[str]:
    """The paths that a page names: code with a folder, or with the suffix of a file."""
    found = PATH.findall(text)
    return [word for word in found if ("/" in word or re.search(r"\.(py|md|cfg|txt|conf|html)$", word))]


def missing(text: str, places: tuple[Path, ...]) -> list[str]:
    """Those that are not there, below the folders that the heading of their part names either."""
    gone: list[str] = []
    for part in re.split(r"^(?=##)", text, flags=re.MULTILINE):
        heading = part.partition("\n")[0]
        folders = [ROOT / name for name in named(heading)] if heading.startswith("###") else []
        gone += [
            name
            for name in named(part)
            if name not in ELSEWHERE and not any([*place.glob(name)] for place in (*places, *folders))
        ]
    return gone


@pytest.mark.parametrize("page", PAGES)
def test_the_paths_that_a_page_names_are_there(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    assert len(named(text)) > 40
    assert missing(text, PAGES[page]) == []


def test_a_path_that_is_not_there_is_found() -> None:
    text = "`disqued/core/node.py` `disqued/core/nodes.py` `web/gone/` `state.now` `tests/unit/test_s*.py` `a_b`"
    assert missing(text, (ROOT,)) == ["disqued/core/nodes.py", "web/gone/"]
    below = "### Work: `disqued/core/`\n`work/acks.py` `work/none.py`\n### More\n`work/acks.py`"
    assert missing(below, (ROOT,)) == ["work/none.py", "work/acks.py"]


@pytest.mark.parametrize(
    ("page", "link"),
    [
        ("README.md", "CONTRIBUTING.md"),
        ("docs/index.md", "contributing.md"),
        ("docs/architecture.md", "contributing.md"),
    ],
)
def test_newcomers_are_led_to_it(page: str, link: str) -> None:
    assert f"]({link})" in (ROOT / page).read_text("utf-8")
    assert "{include} ../CONTRIBUTING.md" in (ROOT / "docs/contributing.md").read_text("utf-8")
