"""The glossary: each word once, and where one leads to a page, that page uses it."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
ROWS = re.findall(
    r"^\| (?!Word|---)(.+?) \| (.+) \|$", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE
)


def words() -> list[str]:
    """Each word of the first column, without its link."""
    return [re.sub(r"\[(.+?)\]\(.+?\)", r"\1", word) for cell, _ in ROWS for word in cell.split(", ")]


def test_each_word_stands_there_once() -> None:
    assert len(words()) > 70
    assert sorted(words()) == sorted(set(words()))


def test_a_word_leads_to_a_page_that_uses_it() -> None:
    links = [link for cell, _ in ROWS for link in re.findall(r"\[(.+?)\]\((.+?)\)", cell)]
    assert len(links) > 30
    assert [
        (word, page) for word, page in links if word.lower() not in (DOCS / page).read_text(encoding="utf-8").lower()
    ] == []
