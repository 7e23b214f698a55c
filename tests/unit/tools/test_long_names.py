"""Names of any length, and of any characters, in what people read."""

import io

import pytest
from rich.console import Console

from disqued.tools.bench.crew import CommandTally, LoadResult
from disqued.tools.bench.report import as_table
from disqued.tools.console_text import NAME_SHOWN, short
from disqued.tools.top.screen import TopView, draw
from disqued.tools.top.table_rows import NodeRow, QueueRow

LONG = 65_000  #: bytes that a name of a queue may have


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("mail", "mail"),
        ("", '""'),
        ("a" * NAME_SHOWN, "a" * NAME_SHOWN),
        ("a\nb\x1b[31m", "a\\nb\\x1b[31m"),
        ("head" + "x" * LONG + "-tail", "head" + "x" * 44 + "…" + "x" * 10 + "-tail"),
        ("\n" * 60, "\\n" * 24 + "…" + "n" + "\\n" * 7),
        ("\u65e5" * LONG, "\u65e5" * 48 + "…" + "\u65e5" * 15),
    ],
)
def test_a_name_is_escaped_and_cut_in_its_middle(name: str, seen: str) -> None:
    assert short(name) == seen
    assert len(short(name)) <= NAME_SHOWN


@pytest.mark.parametrize("width", [80, 400])
def test_a_long_name_leaves_the_table_of_queues_readable(width: int) -> None:
    node = NodeRow("0" * 40, "127.0.0.1:7711", "ok", "", 1, 2, 3, 4, 5, 6, 7.0, 0, 0)
    queues = [QueueRow(f"q{number}-" + "x" * LONG, 5, 1.0, 1.0, 1.0, 0, "none", 1) for number in range(50)]
    queues += [QueueRow("mail", 5, 1.0, 1.0, 1.0, 0, "none", 1)]
    written = io.StringIO()
    console = Console(file=written, width=width)
    console.print(draw(TopView([node], queues, len(queues), "queue", False), "127.0.0.1:7711", width, 100))
    lines = written.getvalue().splitlines()
    rows = [line for line in lines if line.startswith(("q", "mail"))]
    assert len(rows) == 1 + 51, "a line each, behind that of the columns"
    assert max(map(len, lines)) <= min(width, 140), "no wider than a name and the figures"
    assert all("…" in row for row in rows if row.startswith("q") and not row.startswith("queue"))
    assert all("5" in row.split() for row in rows[1:]), "no figure is cut"


def test_a_long_command_leaves_the_table_of_a_load_readable() -> None:
    written = io.StringIO()
    Console(file=written, width=400).print(as_table(LoadResult(("echo " + "x" * LONG,), (CommandTally(),), 2.0, False)))
    assert max(map(len, written.getvalue().splitlines())) <= 160
    assert "echo x" in written.getvalue()
