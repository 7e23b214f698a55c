"""Measure the structure of the code, and hold it against its goals.

``.venv/bin/python tools/measure_structure.py``            print the table
``.venv/bin/python tools/measure_structure.py --write``    put it into docs/architecture.md

Product code is every ``*.py`` file in the folders of `FOLDERS`.  The links inside disqued/ lead to four of them; a file
counts once, by its real path.  All figures but the last three are read off the sources; those come from
`benchmarks.path`, which runs a daemon.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "disqued"
FOLDERS = ("clients", "disqued", "persistence", "pipeline", "web", "twisted")
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- structure: begin -->", "<!-- structure: end -->"
BASE = "61190c6"  #: the commit that the goals were set at
LINES = 1_000  #: the count of lines is rounded up to so many, so that small changes do not change the table
SHOWN_CLASSES = 5
FOREIGN = {"clock"}  #: attributes that Twisted wants to be set from outside
#: Methods of the largest classes at that commit.
LARGEST_AT_BASE = (
    ("largest", 72),
    ("second largest", 54),
    ("third largest", 47),
    ("fourth largest", 46),
    ("fifth largest", 43),
)
PATH_FIGURES = ("calls", "files", "changes of file")
#: For each command these figures at that commit, and the most that each may be.
PATHS = {
    "addjob": ((86, 27, 55), (80, 22, 45)),
    "getjob": ((44, 16, 26), (43, 15, 25)),
    "ackjob": ((83, 23, 53), (82, 22, 52)),
}

Graph = dict[str, set[str]]


# Import graph.


def sources() -> dict[str, Path]:
    """Map each module of the product to its file; the links inside the package are followed."""
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
    """Yield the modules, of those given, that a source imports, under TYPE_CHECKING and in functions too."""
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
    """Return the module that names are imported from."""
    if not node.level:
        return node.module or ""
    above = module.split(".")[: -node.level + is_package or None]
    return ".".join([*above, *([node.module] if node.module else [])])


def graph_of(files: dict[str, Path]) -> Graph:
    """Map each module to the modules that it imports."""
    return {
        module: set(imports(module, path.read_text(), is_package=path.stem == "__init__", modules=files)) - {module}
        for module, path in files.items()
    }


def knots(graph: Graph) -> list[frozenset[str]]:
    """Return the groups of modules that import each other, by Tarjan's algorithm without recursion."""
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
    """Return the shortest import cycle within a knot."""
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


# Figures read off the sources.


@cache
def trees() -> dict[Path, ast.Module]:
    """Parse every file of the product, once each; links are left out."""
    files = (path for name in FOLDERS for path in (ROOT / name).rglob("*.py"))
    return {path: ast.parse(path.read_text("utf-8")) for path in sorted({path.resolve() for path in files})}


def lines() -> int:
    """Count lines, blank ones included."""
    return sum(len(path.read_bytes().splitlines()) for path in trees())


def command_calls() -> list[str]:
    """Name the places that use `command` of a node, as `file:line`."""
    return [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "command" and _last_name(node.value) in {"node", "_node"}
    ]


def _last_name(node: ast.expr) -> str:
    """Return the last name of a dotted expression: `b` of `a.b`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def classes() -> list[tuple[int, str]]:
    """Return each class with its number of methods, the largest first; properties and special methods count."""
    found = [
        (
            sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in node.body),
            f"{path.stem}.{node.name}",
        )
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    return sorted(found, key=lambda row: (-row[0], row[1]))


def _annotations(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the attributes that the classes of a file declare, in their bodies or on `self`, with their types."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    yield part.target.id, part.annotation
        for target in _targets(node):
            if _last_name(target.value) == "self":
                yield target.attr, node.annotation if isinstance(node, ast.AnnAssign) else None


def _targets(node: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the attributes that a statement assigns to."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets = [node.target]
    for target in targets:
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        yield from (part for part in parts if isinstance(part, ast.Attribute))


def hooks() -> list[str]:
    """Name the places that give an object of another module something to call.

    That is an assignment to `a.b` where `a` is not `self`, no class of the same file declares `b`, and a class of
    another file declares `b` as a Callable, as an alias of one, or as a Protocol.  Constants do not count, and neither
    does the clock of Twisted's LoopingCall.
    """
    callables = _callable_types()
    hooked = {
        name
        for tree in trees().values()
        for name, annotation in _annotations(tree)
        if annotation is not None
        and name not in FOREIGN
        and callables & set(re.findall(r"\w+", ast.unparse(annotation)))
    }
    found: list[str] = []
    for path, tree in trees().items():
        own = {name for name, _ in _annotations(tree)}
        found += [
            f"{path.relative_to(ROOT)}:{target.lineno} {ast.unparse(target)}"
            for node in ast.walk(tree)
            for target in _targets(node)
            if _last_name(target.value) != "self" and target.attr in hooked - own
            if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant))
        ]
    return found


def _callable_types() -> set[str]:
    """Name the types of things to call: Callable, its aliases, and the Protocols of the product."""
    found = {"Callable"}
    for tree in trees().values():
        for node in tree.body:
            if isinstance(node, ast.Assign) and "Callable[" in ast.unparse(node.value):
                found.add(_last_name(node.targets[0]))
            elif isinstance(node, ast.ClassDef) and "Protocol" in map(_last_name, node.bases):
                found.add(node.name)
    return found - {""}


def state_slots() -> int:
    """Count the slots of `core.model.state.State`."""
    [path] = [path for path in trees() if path.parts[-3:] == ("core", "model", "state.py")]
    [state] = [node for node in trees()[path].body if isinstance(node, ast.ClassDef) and node.name == "State"]
    [slots] = [
        node.value for node in state.body if isinstance(node, ast.Assign) and _last_name(node.targets[0]) == "__slots__"
    ]
    assert isinstance(slots, ast.Tuple)
    return len(slots.elts)


def uses_of_any() -> int:
    """Count how often the core says `Any`, imports left out."""
    core = ROOT / "disqued" / "core"
    return sum(
        isinstance(node, ast.Name) and node.id == "Any"
        for path, tree in trees().items()
        if path.is_relative_to(core)
        for node in ast.walk(tree)
    )


def repeated_names() -> list[str]:
    """Return the names that more than one module has; packages and `__main__` do not count."""
    names = Counter(path.stem for path in trees() if not path.stem.startswith("__"))
    return sorted(name for name, count in names.items() if count > 1)


# The table.


@attrs.frozen
class Row:
    """A figure: at the commit that the goals were set at, today, and what it may be at most."""

    name: str
    base: int
    today: int
    goal: int | None  #: None = watched without a goal
    where: str = ""  #: what the figure of today is that of

    def text(self) -> str:
        """Return the row in Markdown."""
        goal = "-" if self.goal is None else _number(self.goal)
        met = "-" if self.goal is None else "yes" if self.today <= self.goal else "**no**"
        today = f"{_number(self.today)} ({self.where})" if self.where else _number(self.today)
        return f"| {self.name} | {_number(self.base)} | {today} | {goal} | {met} |"


def _number(value: int) -> str:
    return f"{value:,}".replace(",", " ")


def source_rows() -> list[Row]:
    """Measure the sources."""
    cycles = knots(graph_of(sources()))
    largest = classes()[:SHOWN_CLASSES]
    return [
        Row("Lines of product code, rounded up to thousands", 82_000, -(-lines() // LINES) * LINES, 74_000),
        Row("Groups of modules that import each other, TYPE_CHECKING included", 11, len(cycles), 0),
        Row("Modules in these groups", 51, sum(map(len, cycles)), 0),
        Row("Places that use `node.command`", 3, len(command_calls()), 1),
        *(
            Row(f"Methods of the {word} class", base, count, 35, f"`{name}`")
            for (word, base), (count, name) in zip(LARGEST_AT_BASE, largest, strict=True)
        ),
        Row("Hook attributes set from another module", 35, len(hooks()), 0),
        Row("Slots of `State`", 43, state_slots(), 22),
        Row("Uses of `Any` in the core", 51, uses_of_any(), 0),
        Row("Module names used more than once", 55, len(repeated_names()), None),
    ]


def path_rows() -> list[Row]:
    """Run each command on a lone node with the store `aof`, and measure its path through the product."""
    from benchmarks.path import measure
    from benchmarks.profile import SUBJECTS

    rows: list[Row] = []
    for name, (base, goal) in PATHS.items():
        trip = measure(SUBJECTS[name])
        figures = zip(base, (trip.calls, trip.files, trip.changes), goal, strict=True)
        rows += [Row(f"{name.upper()}, {what}", *three) for what, three in zip(PATH_FIGURES, figures, strict=True)]
    return rows


def table(rows: Iterable[Row]) -> str:
    """Return the rows as a table in Markdown."""
    head = [f"| | At {BASE} | Today | Goal, at most | Met |", "|---|---:|---:|---:|---|"]
    return "\n".join([*head, *(row.text() for row in rows)])


def written(page: str, rows: Iterable[Row]) -> str:
    """Return a page with the table between its two marks."""
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    return f"{before}{BEGIN}\n\n{table(rows)}\n\n{END}{after}"


def main(words: list[str]) -> int:
    """Print the table, or write it into the page."""
    if words not in ([], ["--write"]):
        print(f"unknown arguments {' '.join(words)!r}; expected none, or --write", file=sys.stderr)
        return 2
    rows = [*source_rows(), *path_rows()]
    if words:
        PAGE.write_text(written(PAGE.read_text("utf-8"), rows), "utf-8")
    else:
        print(table(rows))
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
