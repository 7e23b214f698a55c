"""Each principle of docs/explanation/principles.md names tests, and these are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "principles.md"
ROWS = re.findall(r"^\| ([A-H]\d) \| (.*) \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
EXPECTED = [f"{letter}{number}" for letter, count in zip("ABCDEFGH", (7, 5, 9, 8, 4, 5, 4, 4), strict=True)
            for number in range(1, count + 1)]  # fmt: skip
#: What is read by users: no other words are promises.
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_every_principle_is_there_once_and_in_order() -> None:
    assert [name for name, _, _ in ROWS] == EXPECTED


@pytest.mark.parametrize(("name", "held_by"), [(name, held_by) for name, _, held_by in ROWS])
def test_the_tests_that_hold_it_exist(name: str, held_by: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", held_by)
    assert named, f"{name} names no test"
    for path, function in named:
        text = (ROOT / path).read_text("utf-8")
        assert re.search(rf"^(async )?def {function}\(", text, re.MULTILINE), f"{name}: {path} has no {function}"


def test_nobody_claims_that_a_job_is_done_exactly_once() -> None:
    for path in TEXTS:
        for sentence in re.split(r"(?<=[.|])\s", path.read_text("utf-8")):
            if re.search(r"exactly[ -]once", sentence, re.IGNORECASE):
                denied = re.search(r"\b(no|not|never|nothing|nobody|cannot|without)\b", sentence, re.IGNORECASE)
                assert denied, f"{path.relative_to(ROOT)}: {sentence!r}"
