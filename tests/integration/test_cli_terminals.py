"""Verbs at terminals of other kinds: narrow ones, those without colours, and where there is none."""

import re
import subprocess
import sys

import pytest

from disqued.tools.program import MISUSED
from tests.integration.daemon import LIMIT, Daemon, environment
from tests.integration.terminal import Terminal
from tests.integration.verbs import address, at, refused

SCRIPT = (sys.executable, "-m", "disqued.cli")
TABLES = [("cluster", "status"), ("top", "--once"), ("bench", "-n", "60")]
COLOURS = re.compile(r"\x1b\[[0-9;]*(?:3[0-7]|9[0-7]|38;[0-9;]*)m")


def drawn(words: tuple[str, ...], **variables: str) -> Terminal:
    """What a verb has drawn on a terminal, to its end."""
    with Terminal([*SCRIPT, *words], variables) as terminal:
        assert terminal.wait_end() == 0
    return terminal


@pytest.mark.parametrize("words", TABLES)
def test_a_narrow_terminal_breaks_lines_and_no_figure_is_cut(daemon: Daemon, words: tuple[str, ...]) -> None:
    text = drawn((*words, *at(daemon)), COLUMNS="30").text
    table = text[re.search(r"^(node|command) ", text, re.MULTILINE).start() :]  # type: ignore[union-attr]
    assert "…" not in table
    assert address(daemon) in text


def test_all_of_a_node_has_room_on_a_screen_of_eighty_columns(daemon: Daemon) -> None:
    with Terminal([*SCRIPT, "top", *at(daemon)], {"COLUMNS": "80"}) as terminal:
        terminal.expect(r"node +id +state +memory +of +jobs +queues +clients +waiting +ops/s +sees")
        terminal.expect(rf"{address(daemon)} [^…]* 0/0")
        terminal.type("q")
        assert terminal.wait_end() == 0


@pytest.mark.parametrize("words", [*TABLES, ("move", "nothing", "elsewhere")])
def test_no_color_is_heard(daemon: Daemon, words: tuple[str, ...]) -> None:
    assert not COLOURS.search(drawn((*words, *at(daemon)), NO_COLOR="1").raw)


def test_where_no_password_can_be_asked_for_a_file_is_named() -> None:
    done = subprocess.run(
        [*SCRIPT, "cli", "--askpass", "PING"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT,
        env=environment(), cwd="/", start_new_session=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (MISUSED, "")
    (line,) = done.stderr.splitlines()
    assert "--askpass asks at a terminal, and there is none; --password-file or DISQUED_AUTH give the password" in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("completion",), "Missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish;"),
        (("top", "--interval", "x"), "'x' is no number; a number like 10 or 0.5 is allowed;"),
        (("bench", "-n", "x"), "'x' is not a whole number;"),
    ],
)
def test_a_misuse_is_one_line_in_plain_words(words: tuple[str, ...], said: str) -> None:
    assert said in refused(*words, status=MISUSED)
