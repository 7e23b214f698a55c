"""The tool of mutation testing: which mutants it finds, how it draws a sample, and that it sees what tests notice."""

import ast
import types

import pytest

from tests.mutation import choosing, grafting, operators
from tests.mutation.__main__ import imports, summary
from tests.mutation.reach import Candidate, _moves, _ordered

TOY = b'''"""A docstring with 1 < 2."""

import zlib

_LASTING = {"held", "back"}


def first(a: int, b: int) -> int:
    """Return the smaller one, 0 for none."""
    if a < b and b > 0:
        return min(a, b)
    return 0


class Log:
    written: int = 0
    durable: int = 0

    def __repr__(self) -> str:
        return "a" + "b"

    def mark(self, data: bytes) -> None:
        try:
            self.written += len(data)
        except TypeError:
            self.durable = zlib.crc32(data)
            raise
        for each in data[1:5]:
            if not each:
                break
            self.keep(each, self.durable)

    def keep(self, one: int, other: int) -> None:
        raise ValueError("no such thing", 17)
'''


def found(operator: str) -> set[str]:
    """The lines that mutants of one operator make, without what surrounds them."""
    made = set()
    for mutant in operators.mutants("toy.py", TOY):
        if mutant.operator == operator:
            changed = mutant.source(TOY).decode().splitlines()
            made.add(" ".join(changed[mutant.line - 1].split()))
    return made


@pytest.mark.parametrize(
    ("operator", "lines"),
    [
        ("comparison", {
            "if (a <= b) and b > 0:", "if (a >= b) and b > 0:", "if a < b and (b >= 0):", "if a < b and (b <= 0):",
        }),
        ("and and or", {"if (a < b or b > 0):"}),
        ("condition left out", {"if (b > 0):", "if (a < b):"}),
        ("condition negated", {"if not (a < b and b > 0):", "if not (not each):"}),
        ("not left out", {"if (each):"}),
        ("function taken for another", {"return max(a, b)"}),
        ("arguments swapped", {
            "self.keep(self.durable, each)", "raise ValueError(17, 'no such thing')",
        }),
        ("returns nothing", {"return None"}),
        ("element left out", {"_LASTING = {'back'}", "_LASTING = {'held'}"}),
        ("word", {"_LASTING = {'held_', \"back\"}", "_LASTING = {\"held\", 'back_'}"}),
        ("only the first 64 KiB", {"self.durable = zlib.crc32((data)[:65536])"}),
        ("exception swallowed", {"pass"}),
        ("exception not handled", {"raise"}),
        ("break and continue", {"continue"}),
        ("assignment left out", {"pass"}),
        ("early return", set()),
        ("arithmetic", {"self.written -= len(data)"}),
        ("bound of a slice", {
            "for each in data[:5]:", "for each in data[1:]:",
            "for each in data[(1) + 1:5]:", "for each in data[1:(5) + 1]:",
        }),
        ("one name for another", {
            "if b < b and b > 0:", "if a < a and b > 0:", "if a < b and a > 0:", "return min(b, b)", "return min(a, a)",
            "self.keep(each, self.written)",
        }),
    ],
)  # fmt: skip
def test_each_operator_makes_its_mistakes(operator, lines):
    assert found(operator) == lines


def test_every_mutant_is_a_program_of_one_edit_and_most_are_another_one():
    made = operators.mutants("toy.py", TOY)
    for mutant in made:
        changed = mutant.source(TOY)
        ast.parse(changed)
        assert changed[: mutant.start] == TOY[: mutant.start]
        assert changed.endswith(TOY[mutant.end :])
    assert sum(operators.compiles(mutant, TOY) for mutant in made) > len(made) * 0.9


def test_texts_for_people_are_left_alone():
    lines = TOY.decode().splitlines()
    changed = {lines[mutant.line - 1].strip() for mutant in operators.mutants("toy.py", TOY)}
    assert not changed & {'"""A docstring with 1 < 2."""', 'return "a" + "b"', "import zlib"}
    assert "no such thing_" not in {mutant.text for mutant in operators.mutants("toy.py", TOY)}


def test_what_takes_effect_at_import_is_marked_and_names_what_it_gives_a_value():
    made = {mutant.text: mutant for mutant in operators.mutants("toy.py", TOY)}
    assert made["{'held'}"].at_import
    assert made["{'held'}"].names == ("_LASTING",)
    assert not made["max"].at_import


def test_logging_and_blocks_for_types_have_no_mutants():
    source = (
        b"if TYPE_CHECKING:\n    import x\n    y = 1\n\n\ndef f(a):\n    log.info('it', n=1 + a)\n    assert a > 1\n"
    )
    assert operators.mutants("toy.py", source) == []


def test_a_name_lasts_when_other_lines_change():
    names = {name for name, _ in operators.each("toy.py", TOY)}
    assert len(names) == len(list(operators.each("toy.py", TOY)))
    moved = TOY.replace(b"import zlib", b"import os\nimport zlib")
    assert {name for name, _ in operators.each("toy.py", moved)} == names
    changed = TOY.replace(b"b > 0", b"b > 7")
    assert 0 < len({name for name, _ in operators.each("toy.py", changed)} & names) < len(names)


def test_a_mutant_replaces_the_functions_that_are_there():
    module = types.ModuleType("toy")
    path = "tests/mutation/__init__.py"
    before, after = b"def f(a):\n    return [a + 1 for _ in (1,)]\n", b"def f(a):\n    return [a - 1 for _ in (1,)]\n"
    exec(compile(before, path, "exec"), module.__dict__)
    kept = module.f
    for old, new in grafting._pairs(compile(before, path, "exec"), compile(after, path, "exec")):
        if old.co_qualname == "f":
            kept.__code__ = new
    assert module.f(5) == [4]


# ---- samples


DIFF = """\
diff --git a/disqued/core/work/acks.py b/disqued/core/work/acks.py
--- a/disqued/core/work/acks.py
+++ b/disqued/core/work/acks.py
@@ -3 +3,2 @@ class Acks:
-x
+y
+z
@@ -9,2 +10,0 @@
-gone
-gone
--- a/gone.py
+++ /dev/null
@@ -1 +0,0 @@
-x
"""


def test_the_lines_of_a_change_are_those_that_it_adds():
    assert choosing.lines_of_diff(DIFF) == {"disqued/core/work/acks.py": {3, 4}}


def test_a_sample_is_the_same_each_time_and_spread_over_the_lines():
    paths = ["tests/mutation/reach.py", "tests/mutation/choosing.py"]
    order = choosing.chosen(paths, 1)
    assert order == choosing.chosen(list(reversed(paths)), 1)
    assert order != choosing.chosen(paths, 2)
    lines = {(mutant.path, mutant.line) for _, mutant in order}
    assert {(mutant.path, mutant.line) for _, mutant in order[: len(lines)]} == lines
    some = choosing.chosen(
        paths, 1, {"tests/mutation/reach.py": {min(line for path, line in lines if "reach" in path)}}
    )
    assert {(mutant.path, mutant.line) for _, mutant in some} < lines
    assert [pair for pair in order if pair in some] == some


def test_a_folder_and_a_link_to_it_are_the_same_files():
    assert choosing.files(["disqued/persistence/aof"]) == choosing.files(["persistence/aof"])
    with pytest.raises(FileNotFoundError):
        choosing.files(["persistence/nothing"])


# ---- which tests


def test_lines_are_found_again_when_others_changed():
    assert _moves("a\nb\nc\n", "x\na\nc\n") == {1: 2, 3: 3}


@pytest.mark.parametrize(
    ("source", "does"),
    [
        ("from disqued.commands.queues import STATISTICS", True),
        ("from disqued.commands.queues import STATISTICS as NAMES", True),
        ("from disqued.commands import okq, queues", True),
        ("from . import queues", True),
        ("from disqued.commands.queues import statistics", False),
        ("from disqued.commands.okq import STATISTICS", False),
        ("STATISTICS = (1,)", False),
    ],
)
def test_a_name_is_that_of_a_module_where_it_is_imported_from_there(source, does):
    assert imports(ast.parse(source), "queues", ("STATISTICS",)) is does


def test_quick_tests_come_first_and_those_of_other_files_before_the_rest_of_one():
    known = {1: [Candidate("a::1", 0.1), Candidate("a::2", 0.1), Candidate("b::1", 0.15)], 2: [Candidate("a::1", 0.1)]}
    assert [each.test for each in _ordered(known, (1, 2))] == ["a::1", "b::1", "a::2"]


def test_the_summary_counts_what_is_not_equivalent():
    done = [
        {"path": "disqued/core/x.py", "outcome": outcome, "seconds": 1} for outcome in ("caught", "caught", "survived")
    ]
    done.append({"path": "web/http/auth.py", "outcome": "equivalent"})
    assert summary(done).splitlines()[2:] == [
        "| `disqued/core` | 3 | 2 | 0 | 1 | 66.7 % | 1.0 |",
        "| `web/http` | 1 | 0 | 1 | 0 | 100.0 % | 0.0 |",
        "| `all` | 4 | 2 | 1 | 1 | 66.7 % | 1.0 |",
    ]
