"""Days as options: what is none is refused before Spark starts."""

import pytest
from click.testing import CliRunner

from disqued.pipeline.command import main_group, run
from disqued.pipeline.days import is_day
from disqued.pipeline.history import days_from


@pytest.mark.parametrize("text", ["2026-11-22", "2024-02-29", "1970-01-01"])
def test_days_are_days(text: str) -> None:
    assert is_day(text)


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2026-11", "20261122", "2026-11-31", "2026-1-1", "2026-11-22 ", "2026-W01-1", "\u0662026-01-01"],
)
def test_what_is_no_day_is_none(text: str) -> None:
    assert not is_day(text)


@pytest.mark.parametrize(
    "words",
    [
        ["audit", "--since", "yesterday"],
        ["audit", "--until", "2026-11-31"],
        ["doctor", "--since", "foo"],
        ["lifecycle", "--again", "foo"],
    ],
)
def test_what_is_no_day_is_refused_and_the_text_says_what_is_allowed(words: list[str]) -> None:
    refused = CliRunner().invoke(main_group, [*words, "--tables", "nowhere"])
    assert refused.exit_code == 2
    assert f"'{words[-1]}' is no day: days (UTC) are written YYYY-MM-DD" in " ".join(refused.output.split())


def test_an_audit_from_a_day_until_one_before_it_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["audit", "--tables", "nowhere", "--since", "2026-11-23", "--until", "2026-11-01"]
    assert run(words) == 2
    assert "--since 2026-11-23 is behind --until 2026-11-01" in capsys.readouterr().err


def test_folders_that_are_named_after_no_day_are_no_days_to_compute() -> None:
    assert days_from("2026-11-02", ["2026-11-01", "2026-11-02", "garbage", "2026-99-99"]) == ["2026-11-02"]
