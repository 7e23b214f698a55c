"""The pages for operators go as they are written: each line that they show is typed, and answers what they say."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.daemon import Daemon
from tests.integration.howto import Step, Terminal, matches, steps

Start = Callable[..., Daemon]


def play(terminal: Terminal, page: str) -> list[Step]:
    """Type all of a page; daemons that it stops are expected to end."""
    typed = steps(page)
    for step in typed:
        if step.typed.endswith(" SHUTDOWN"):
            assert terminal.type(step) == []
            port = step.port or step.typed.split()[2]
            assert terminal.nodes[port].wait_end() == 0
        else:
            terminal.check(step)
    return typed


def test_a_backup_is_made_and_restored_as_the_page_says(start: Start, tmp_path: Path) -> None:
    assert len(play(Terminal(start, tmp_path), "docs/how-to/backup.md")) == 24


@pytest.mark.parametrize(
    ("printed", "shown", "same"),
    [
        (["a", "b", "c"], ["a", "...", "c"], True),
        (["a", "c"], ["a", "...", "c"], True),
        (["a", "b"], ["a"], False),
        (["a"], ["a", "b"], False),
        (["took 17 s"], ["took ... s"], True),
        (["took 17 s."], ["took ... s"], False),
    ],
)
def test_what_is_printed_is_compared_with_what_is_shown(printed: list[str], shown: list[str], same: bool) -> None:
    assert matches(printed, shown) == same
