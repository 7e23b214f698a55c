"""No module imports itself by way of others, not even for the sake of a type.

The graph is read off the sources: every import counts, those under TYPE_CHECKING and in functions too.  Cycles that
are there from before stand in KNOWN, which only shrinks: a module that is in a cycle no more is taken out.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "disqued"
Graph = dict[str, set[str]]


def tied(package: str, modules: str) -> frozenset[str]:
    """Modules of a package that reach each other by their imports."""
    return frozenset(f"{PACKAGE}.{package}.{module}" for module in modules.split())


KNOWN: tuple[frozenset[str], ...] = (
    tied("core", "groups job memory queues units worker"),
    tied("commands", "jobs recalled"),
    tied("net", "bus links"),
    tied(
        "net",
        "access callers clients daemon driver parting pubsub statistics storekeeper strangers switching traffic turns",
    ),
    tied("testing", "eventlog network server"),
    tied("testing", "faults loglife world"),
)


# Reading the graph.


def sources() -> dict[str, Path]:
    """Every module of the product by its name; the links inside the package are followed."""
    found: dict[str, Path] = {}

    def walk(folder: Path, package: str) -> None:
        for entry in sorted(folder.iterdir()):
            if entry.is_dir() and (entry / "__init__.py").exists():
                walk(entry, f"{package}.{entry.name}")
            elif entry.suffix == ".py":
                found[package if entry.stem == "__init__" else f"{package}.{entry.stem}"] = entry

    walk(ROOT / PACKAGE, PACKAGE)
    return found


def imports(module: str, source: str, *, is_package: bool, modules: Iterable[str]) -> Iterator[str]:
    """Names of the modules, of those given, that a source imports."""
    known = set(modules)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, module, is_package=is_package)
            for alias in node.names:
                named = f"{base}.{alias.name}"
                yield from (name for name in ([named] if named in known else [base]) if name in known)


def _base(node: ast.ImportFrom, module: str, *, is_package: bool) -> str:
    """The module that names are imported from."""
    if not node.level:
        return node.module or ""
    above = module.split(".")[: -node.level + is_package or None]
    return ".".join([*above, *([node.module] if node.module else [])])


def graph_of(files: dict[str, Path]) -> Graph:
    return {
        module: set(imports(module, path.read_text(), is_package=path.stem == "__init__", modules=files)) - {module}
        for module, path in files.items()
    }


def knots(graph: Graph) -> list[frozenset[str]]:
    """Groups of modules that reach each other, by Tarjan's algorithm without recursion."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[frozenset[str]] = []
    for start in sorted(graph):
        if start in number:
            continue
        path = [(start, iter(sorted(graph[start])))]
        number[start] = lowest[start] = len(number)
        stack.append(start)
        while path:
            module, left = path[-1]
            following = next(left, None)
            if following is None:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[module])
                if lowest[module] == number[module]:
                    at = stack.index(module)
                    if len(stack) - at > 1:
                        found.append(frozenset(stack[at:]))
                    del stack[at:]
            elif following not in number:
                number[following] = lowest[following] = len(number)
                stack.append(following)
                path.append((following, iter(sorted(graph[following]))))
            elif following in stack:
                lowest[module] = min(lowest[module], number[following])
    return found


def shortest_cycle(graph: Graph, knot: frozenset[str]) -> list[str]:
    """The shortest way from a module of a knot back to itself."""
    best: list[str] = []
    for start in sorted(knot):
        ways = [[start]]
        seen = {start}
        while ways and (not best or len(ways[0]) < len(best) - 1):
            way = ways.pop(0)
            following = graph[way[-1]] & knot
            if start in following:
                best = [*way, start]
                break
            new = sorted(following - seen)
            seen.update(new)
            ways += [[*way, module] for module in new]
    return best


# What holds.


@pytest.fixture(scope="module")
def graph() -> Graph:
    return graph_of(sources())


def test_no_module_imports_itself_by_way_of_others(graph: Graph) -> None:
    new = [knot for knot in knots(graph) if not any(knot <= known for known in KNOWN)]
    assert not new, [" -> ".join(shortest_cycle(graph, knot)) for knot in new]


def test_cycles_that_are_gone_are_known_no_more(graph: Graph) -> None:
    in_cycles = frozenset[str]().union(*knots(graph))
    untied = sorted(frozenset[str]().union(*KNOWN) - in_cycles)
    assert not untied, f"in no cycle any more, take them out of KNOWN: {untied}"


def test_the_admin_side_is_free_of_cycles() -> None:
    assert not [module for known in KNOWN for module in known if module.startswith(f"{PACKAGE}.web")]


# The reading itself.


def test_every_module_of_the_product_is_read(graph: Graph) -> None:
    assert {"disqued", "disqued.core.node", "disqued.web.site", "disqued.persistence.interface"} <= graph.keys()
    assert {"disqued.core.state", "disqued.core.messages"} <= graph["disqued.core.node"]
    assert len(graph) > 300


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("import a.b", ["a.b"]),
        ("import a.b as c", ["a.b"]),
        ("import os, a.c", ["a.c"]),
        ("from a import b, c", ["a.b", "a.c"]),
        ("from a import name", ["a"]),
        ("from a.b import name, other", ["a.b", "a.b"]),
        ("from . import b", ["a.b"]),
        ("from .b import name", ["a.b"]),
        ("from .. import b", []),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a.b import name", ["a.b"]),
        ("def late():\n    from a import b", ["a.b"]),
        ("import os\nfrom json import dumps", []),
    ],
)
def test_an_import_is_found_however_it_is_written(line: str, found: list[str]) -> None:
    assert list(imports("a.here", line, is_package=False, modules=["a", "a.b", "a.c"])) == found


def test_a_package_imports_from_itself() -> None:
    assert list(imports("a", "from . import b\nfrom .c import x", is_package=True, modules=["a.b", "a.c"])) == [
        "a.b", "a.c",
    ]  # fmt: skip
    assert list(imports("a.d", "from .. import b", is_package=True, modules=["a.b", "a.d"])) == ["a.b"]


def test_knots_are_found_with_their_shortest_cycle() -> None:
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"b"}, "e": {"a", "f"}, "f": set()}
    assert knots(graph) == [frozenset("abcd")]
    assert shortest_cycle(graph, frozenset("abcd")) == ["b", "d", "b"]
    assert knots({"a": {"b"}, "b": set(), "c": {"a"}}) == []
