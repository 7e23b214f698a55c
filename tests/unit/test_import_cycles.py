"""No module imports itself by way of others, not even for the sake of a type.

tools/measure_structure.py reads the graph off the sources: every import counts, those under TYPE_CHECKING and in
functions too.
"""

import pytest

from tools.measure_structure import Graph, graph_of, imports, knots, shortest_cycle, sources


@pytest.fixture(scope="module")
def graph() -> Graph:
    return graph_of(sources())


def test_no_module_imports_itself_by_way_of_others(graph: Graph) -> None:
    assert [" -> ".join(shortest_cycle(graph, knot)) for knot in knots(graph)] == []


# The reading itself.


def test_every_module_of_the_product_is_read(graph: Graph) -> None:
    assert {"disqued", "disqued.core.node", "disqued.web.site", "disqued.persistence.interface"} <= graph.keys()
    assert {"disqued.core.model.state", "disqued.core.model.messages"} <= graph["disqued.core.node"]
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
