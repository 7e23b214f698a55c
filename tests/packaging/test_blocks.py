"""Every line that a page shows to be typed is run by a test, or has its reason; tests/pages.py says by which."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from disqued.config import SETTINGS, Config
from tests import pages
from tests.pages import NOT_RUN, RUN_BY, Command, Following, all_commands, commands, following, part

TESTS = sorted({test for tests in RUN_BY.values() for test in tests})
NEW = """# New

    $ redis-cli PING
    PONG

```python
import redis
redis.Redis()
```

    QLEN mail

```
disqued --port 1     # one
```
"""


def unrun(found: list[Command]) -> list[Command]:
    """Those that no test runs and no reason excuses."""
    return [command for command in found if not command.test and not command.excused]


def test_every_line_of_every_page_is_that_of_a_test_or_has_a_reason() -> None:
    found = all_commands()
    assert len(found) > 600
    assert unrun(found) == []


def test_lines_of_a_new_page_are_noticed() -> None:
    planted = list(commands("docs/how-to/new.md", NEW))
    assert sorted(command.line for command in planted) == [
        "QLEN mail", "disqued --port 1", "import redis\nredis.Redis()", "redis-cli PING",
    ]  # fmt: skip
    assert unrun(planted) == planted


@pytest.fixture
def page(tmp_path: object, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A page whose lines are for the test that asks for it."""
    name = "docs/how-to/new.md"
    this = request.node.nodeid.partition("[")[0]
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setitem(RUN_BY, name, {this: ""})
    path = pages.ROOT / name
    path.parent.mkdir(parents=True)
    path.write_text(NEW)
    return name


def test_a_page_all_of_whose_lines_were_run_is_read(page: str) -> None:
    with following(page) as lines:
        lines.ran("redis-cli PING", "import redis\nredis.Redis()\n", "QLEN mail", "disqued --port 1")


def test_a_line_that_was_not_run_fails_the_test_of_its_page(page: str) -> None:
    with pytest.raises(AssertionError, match="has not run"), following(page) as lines:
        lines.ran("redis-cli PING", "QLEN mail", "disqued --port 1")
    assert lines.left == ["import redis\nredis.Redis()"]


def test_a_line_that_stands_twice_is_to_be_run_twice(page: str) -> None:
    path = pages.ROOT / page
    path.write_text(path.read_text() + "\n    $ redis-cli PING\n")
    with pytest.raises(AssertionError, match="has not run"), following(page) as lines:
        lines.ran("redis-cli PING", "import redis\nredis.Redis()\n", "QLEN mail", "disqued --port 1")
    assert lines.left == ["redis-cli PING"]


def test_a_line_that_is_not_there_cannot_have_been_run(page: str) -> None:
    with pytest.raises(AssertionError, match="is no line of"):
        Following(page, "test", ["PING"]).ran("PONG")


def test_who_runs_some_lines_leaves_none_of_those(page: str) -> None:
    [test] = RUN_BY[page]
    with pytest.raises(AssertionError, match="has not run"), following(page, ["QLEN mail"]):
        pass
    pages.shared_out(page, test, part(page, test))
    with pytest.raises(AssertionError):
        pages.shared_out(page, test, part(page, test)[1:])


def test_a_failure_in_between_is_not_covered_by_what_is_left(page: str) -> None:
    with pytest.raises(ZeroDivisionError), following(page):
        raise ZeroDivisionError


@cache
def functions(file: str) -> dict[str, str]:
    """The functions of a file of tests, by name, each as it is written."""
    text = (pages.ROOT / file).read_text(encoding="utf-8")
    found = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    return {node.name: ast.get_source_segment(text, node) or "" for node in found}


def called(file: str, name: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
    """What a function of a file is, and what it calls of the same file."""
    text = functions(file)[name]
    yield text
    for other in set(re.findall(r"\b(\w+)\(", text)) & set(functions(file)) - seen - {name}:
        yield from called(file, other, seen | {name})


@pytest.mark.parametrize("test", TESTS)
def test_a_test_that_is_named_reads_its_lines(test: str) -> None:
    file, _, name = test.partition("::")
    text = "".join(called(file, name))
    assert "following(" in text, f"{test} does not tell which lines it ran"
    if re.search(r"following\([^()]*,", text):
        assert "shared_out(" in (pages.ROOT / file).read_text(encoding="utf-8"), "who runs the others?"


@pytest.mark.parametrize(("page", "test"), [(page, test) for page, tests in RUN_BY.items() for test in tests])
def test_there_is_something_to_be_typed_for_each_test(page: str, test: str) -> None:
    assert part(page, test) != []


def test_no_reason_is_left_over() -> None:
    used = {key for command in all_commands() for key in command.excused}
    assert set(NOT_RUN) - used == set()


def settings() -> Iterator[tuple[str, str]]:
    """Blocks of pages that are parts of a configuration file: page and text."""
    for path in pages.PAGES:
        text = path.read_text(encoding="utf-8")
        blocks = [block for language, block in pages.FENCE.findall(text) if not language]
        for block in [*blocks, *pages.INDENTED.findall(pages.FENCE.sub("", text))]:
            lines = [pages.REMARK.sub("", line.strip()) for line in block.splitlines()]
            if lines and all(line.partition(" ")[0] in SETTINGS for line in lines):
                yield path.relative_to(pages.ROOT).as_posix(), "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize(("page", "text"), list(settings()))
def test_settings_that_a_page_shows_are_such_as_a_node_takes(page: str, text: str) -> None:
    Config.from_text(text)


def test_the_settings_of_pages_are_found() -> None:
    assert len(list(settings())) >= 17
