"""The structure of the code gets no worse: what tools/measure_structure.py reads off the sources is held.

The table in docs/architecture.md is what is held.  A figure that grows fails, and so does one that has shrunk until
the table says so: `.venv/bin/python tools/measure_structure.py --write`.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import measure_structure
from tools.measure_structure import PAGE, PATH_FIGURES, PATHS, Row, source_rows, table, written

WRITE = "run .venv/bin/python tools/measure_structure.py --write"


def held(page: str) -> dict[str, int]:
    """The figures of today that the table of a page has."""
    rows = re.findall(r"^\| ([^|]+) \| [\d ]+ \| (\d[\d ]*)[^|]*\| [^|]+ \| [^|]+ \|$", page, re.MULTILINE)
    return {name: int(today.replace(" ", "")) for name, today in rows}


def slips(page: str, rows: list[Row]) -> list[str]:
    """What is not as the table of a page has it."""
    table_has = held(page)
    return [
        f"{row.name}: {row.today}, the table has {table_has.get(row.name)}"
        for row in rows
        if row.today != table_has.get(row.name)
    ]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return source_rows()


def test_the_structure_is_what_the_table_says(rows: list[Row]) -> None:
    told = slips(PAGE.read_text("utf-8"), rows)
    assert not told, f"{'; '.join(told)}; where it is better than that, {WRITE}"


def test_every_figure_of_the_table_is_one_that_is_measured(rows: list[Row]) -> None:
    paths = {f"{name.upper()}, {what}" for name in PATHS for what in PATH_FIGURES}
    assert held(PAGE.read_text("utf-8")).keys() == paths | {row.name for row in rows}


# The measuring itself, on a product of two files.


@pytest.fixture
def product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout whose only product code is what a test writes."""
    (tmp_path / "disqued/core/model").mkdir(parents=True)
    (tmp_path / "disqued/__init__.py").touch()
    monkeypatch.setattr(measure_structure, "ROOT", tmp_path)
    measure_structure.trees.cache_clear()
    yield tmp_path / "disqued"
    measure_structure.trees.cache_clear()


def test_a_file_that_a_link_leads_to_counts_once(product: Path) -> None:
    (product.parent / "web").mkdir()
    (product.parent / "web/__init__.py").write_text("one = 1\n\n")
    (product / "web").symlink_to("../web")
    assert measure_structure.lines() == 2
    assert measure_structure.sources().keys() == {"disqued", "disqued.web"}


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("node.command(one, two)", 1),
        ("run = self.node.command", 1),
        ("self._node.command()", 1),
        ("node.commands()", 0),
        ("table.command()", 0),
    ],
)
def test_uses_of_the_nodes_command_are_found(product: Path, line: str, count: int) -> None:
    (product / "a.py").write_text(f"{line}\n")
    assert len(measure_structure.command_calls()) == count


DECLARING = """
from collections.abc import Callable
from typing import Protocol
Heard = Callable[[], None]
class Ear(Protocol): ...
class A:
    in_body: Heard
    def __init__(self) -> None:
        self.hook: Callable[[], None] = print
        self.ear: Ear | None = None
        self.size: int = 0
        self.clock: Ear = Ear()
        self.hook = self.size
"""


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("a.hook = run", 1),
        ("self.a.hook = self.run", 1),
        ("a.in_body = run", 1),
        ("a.ear = b", 1),
        ("a.ear, a.hook = b, c", 2),
        ("a.hook = None", 0),
        ("a.size = 3", 0),
        ("a.clock = b", 0),
        ("self.hook = run", 0),
        ("print(a.hook)", 0),
    ],
)
def test_hooks_are_what_another_file_gives_an_object_to_call(product: Path, line: str, count: int) -> None:
    (product / "a.py").write_text(DECLARING)
    (product / "b.py").write_text(f"{line}\n")
    assert len(measure_structure.hooks()) == count


def test_methods_slots_any_and_names_are_counted(product: Path) -> None:
    (product / "core/model/state.py").write_text(
        "from typing import Any\n"
        "class State:\n"
        '    __slots__ = ("a", "b")\n'
        "    def one(self, x: Any) -> dict[str, Any]: ...\n"
        "    async def two(self) -> None: ...\n"
    )
    (product / "state.py").write_text("from typing import Any\nx: Any = 1\n")
    (product / "core/__init__.py").touch()
    assert measure_structure.classes() == [(2, "state.State")]
    assert measure_structure.state_slots() == 2
    assert measure_structure.uses_of_any() == 2
    assert measure_structure.repeated_names() == ["state"]


# The table.


def test_a_row_says_whether_its_goal_is_met() -> None:
    assert Row("a", 9, 5, 5).text() == "| a | 9 | 5 | 5 | yes |"
    assert Row("a", 9, 6, 5).text() == "| a | 9 | 6 | 5 | **no** |"
    assert Row("a", 82_000, 6_000, None, "here").text() == "| a | 82 000 | 6 000 (here) | - | - |"


def test_the_table_is_put_between_its_marks_and_read_back() -> None:
    rows = [Row("a thing", 9, 81_000, 5), Row("another", 1, 2, None, "`x.Y`")]
    page = f"before\n{measure_structure.BEGIN}\nold\n{measure_structure.END}\nafter\n"
    new = written(page, rows)
    assert new.startswith("before\n") and new.endswith("\nafter\n") and "old" not in new  # noqa: PT018
    assert table(rows) in new
    assert written(new, rows) == new
    assert held(new) == {"a thing": 81_000, "another": 2}
    assert slips(new, rows) == []
    assert slips(new, [Row("another", 1, 3, None)]) == ["another: 3, the table has 2"]


def test_unknown_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert measure_structure.main(["--wrote"]) == 2
    assert capsys.readouterr().err == "unknown arguments '--wrote'; expected none, or --write\n"
