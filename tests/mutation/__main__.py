"""Plant small mistakes into the sources, one at a time, and print those that no test notices.

    python -m tests.mutation disqued/core --minutes 10
    python -m tests.mutation --diff main

What was tried is in build/mutants.jsonl, so that the next run goes on where this one ends: mutants that were caught are
not tried again while their source is the same, those that survived are.
"""

import argparse
import ast
import difflib
import json
import re
import statistics
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import attrs

from disqued.testing.arguments import ExactParser

from . import choosing
from .grafting import ROOT
from .nursery import Nursery, Outcome
from .operators import Mutant, compiles
from .reach import Candidate, Reach

#: Tests that need no program of their own.  Simulated clusters execute nearly everything and take long: of these there
#: are mistakes of their own, in tests/simulation/mutants.py.
TESTS = ("tests/unit", "tests/property", "tests/adapters", "tests/contract", "tests/compat")
RESULTS = ROOT / "build" / "mutants.jsonl"
#: The mutants that change nothing that anyone could notice are in a table here, each with the reason.
PAGE = ROOT / "docs" / "explanation" / "mutation.md"
LIMIT_S = 180.0  #: what the tests for one mutant take when nothing else runs
_HANGS_S = 60.0  #: a test that takes longer when it is tried again, alone, hangs
_FIRST = 8  #: files of tests that are imported first for a mutant that takes effect at import


def main() -> int:
    options = _options()
    only = None
    paths = choosing.usual()
    try:
        if options.paths:
            paths = choosing.files(options.paths)
        if options.diff:
            only = choosing.changed_lines(options.diff)
    except FileNotFoundError as error:
        sys.exit(f"no such file or folder: {error}")
    order = choosing.chosen(paths, options.seed, only)
    _print(f"{len(order)} mutants of {len(paths)} files; seed {options.seed}")
    run = Run(order, options.count, time.monotonic() + options.minutes * 60)
    run.go(options.workers)
    _print(summary(run.done))
    return 1 if any(each["outcome"] == "survived" for each in run.done) else 0


def _options() -> argparse.Namespace:
    parser = ExactParser(prog="python -m tests.mutation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="*", help="files and folders to mutate; by default what may lose or leak jobs")
    parser.add_argument("--diff", metavar="REVISION", help="only lines that differ from this revision")
    parser.add_argument("--minutes", type=float, default=10, help="time to try mutants for (default 10)")
    parser.add_argument("--count", type=int, help="number of mutants to try (default: as many as time allows)")
    parser.add_argument("--seed", type=int, default=1, help="which sample is drawn (default 1)")
    parser.add_argument("--workers", type=int, default=1, help="mutants to try at once (default 1)")
    return parser.parse_args()


# ---- one run


class Run:
    """Tries mutants until the time or the list is over."""

    def __init__(self, order: Sequence[tuple[str, Mutant]], count: int | None, until: float) -> None:
        self._order = iter(order)
        self._left = count if count is not None else len(order)
        self._until = until
        self._lock = threading.Lock()
        self._reach = Reach()
        self._trusted: dict[str, bool] = {}
        self._before = _results()
        self._equivalent = equivalent()
        self.done: list[dict[str, Any]] = []

    def go(self, workers: int) -> None:
        nursery = Nursery(TESTS, traces=not self._reach.imported)
        if not nursery.tests:
            sys.exit("the tests cannot be collected: `pytest --collect-only` says why")
        spent = time.monotonic()
        self._reach.update(nursery, lambda text: _print(f"recording what tests execute: {text}"))
        self._until += time.monotonic() - spent
        with ThreadPoolExecutor(workers) as pool:
            others = [pool.submit(Nursery, TESTS) for _ in range(workers - 1)]
            all_of_them = [nursery, *(other.result() for other in others)]
            for finished in [pool.submit(self._work, each) for each in all_of_them]:
                finished.result()
        for each in all_of_them:
            each.close()

    def _next(self) -> tuple[str, Mutant] | None:
        with self._lock:
            for name, mutant in self._order:
                if self._left <= 0 or time.monotonic() > self._until:
                    return None
                if not compiles(mutant, _source(mutant.path)):
                    continue
                self._left -= 1
                known = self._before.get(name)
                if name in self._equivalent:
                    self.done.append(_record(name, mutant, "equivalent"))
                elif known and known["outcome"] == "caught" and known["digest"] == _digest(mutant.path):
                    self.done.append(known)
                else:
                    return name, mutant
            return None

    def _work(self, nursery: Nursery) -> None:
        while (pair := self._next()) is not None:
            name, mutant = pair
            tests = self._tests(mutant)
            outcome = self._try(nursery, mutant, tests)
            record = _record(name, mutant, "caught" if outcome.killer else "survived")
            record |= {"killer": outcome.killer, "how": outcome.how, "ran": outcome.ran, "of": len(tests),
                       "seconds": round(outcome.seconds, 2), "tests": [each.test for each in tests[:20]]}  # fmt: skip
            with self._lock:
                self.done.append(record)
                with RESULTS.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                _print(_line(record))
                if not outcome.killer:
                    _print(f"{record['diff']}\n  tests: {', '.join(record['tests'][:5]) or 'none'}")

    def _try(self, nursery: Nursery, mutant: Mutant, tests: list[Candidate]) -> Outcome:
        """Try a mutant with the tests that reach it, until one that can be trusted notices it."""
        if not tests:
            return Outcome(None, "unreached", 0, 0.0)
        outcome = Outcome(None, "import", 0, 0.0)
        if not mutant.at_import:
            outcome = self._attempt(nursery, nursery, mutant, tests)
            if outcome.killer is None and self._runs_at_import(mutant):
                outcome = attrs.evolve(outcome, how="import")
        if outcome.how != "import":
            return outcome
        files = list(dict.fromkeys(each.test.partition("::")[0] for each in tests))
        for some in filter(None, (files[:_FIRST], files[_FIRST:])):
            own = Nursery(some, mutant)
            try:
                if not own.tests:
                    return Outcome(some[0], "not collected", 0, 0.0)
                part = _there(own, [each for each in tests if each.test.partition("::")[0] in some])
                outcome = self._attempt(own, nursery, None, part)
                if outcome.killer:
                    return outcome
            finally:
                own.close()
        return outcome

    def _attempt(self, nursery: Nursery, plain: Nursery, mutant: Mutant | None, tests: list[Candidate]) -> Outcome:
        while True:
            left = [each for each in tests if self._trusted.get(each.test, True)]
            limits = [(each.test, max(20.0, 30 * each.seconds)) for each in left]
            # The limit is for the time of an idle machine, the clock here for one that has other things to do.
            outcome = nursery.attempt(mutant, limits, 4 * LIMIT_S)
            if outcome.killer is None:
                return outcome
            if outcome.how == "hung":
                again = nursery.attempt(mutant, [(outcome.killer, _HANGS_S)], _HANGS_S)
                if again.killer is None and again.how == "passed":  # it was slow, for other reasons
                    tests = [each for each in left if each.test != outcome.killer]
                    continue
            if self._trust(plain, outcome.killer):
                return outcome

    def _trust(self, nursery: Nursery, test: str) -> bool:
        """Say whether a test passes alone, as no mutant is caught by one that fails anyway."""
        if test not in self._trusted:
            self._trusted[test] = nursery.attempt(None, [(test, 300.0)], 300.0).killer is None
            if not self._trusted[test]:
                _print(f"{test} fails alone: it is left out")
        return self._trusted[test]

    def _tests(self, mutant: Mutant) -> list[Candidate]:
        """The tests for a mutant, as many as the limit has time for."""
        found = self._reaching(mutant)
        spent = 0.0
        for turn, each in enumerate(found):
            spent += each.seconds
            if spent > LIMIT_S:
                return found[:turn]
        return found

    def _reaching(self, mutant: Mutant) -> list[Candidate]:
        if mutant.names:
            used = {each.test: each for path, lines in _uses(mutant.path, mutant.names) for each in
                    self._reach.of_lines(path, lines)}  # fmt: skip
            # A use may run at import, or be in a test itself: tests of the whole module follow.
            whole = {each.test: each for each in self._reach.of_lines(mutant.path, _all_lines(mutant.path))}
            found = sorted(used.values(), key=lambda each: each.seconds)
            found += [each for each in whole.values() if each.test not in used]
            if found:
                return found
        lines, function = _around(mutant)
        if mutant.at_import:
            lines = function
        found = self._reach.candidates(mutant, lines, function)
        if not found and self._runs_at_import(mutant):  # a decorator of the table, say: it matters to all of the file
            found = self._reach.of_lines(mutant.path, _all_lines(mutant.path))
        return found

    def _runs_at_import(self, mutant: Mutant) -> bool:
        at_import = self._reach.imported.get(mutant.path, set())
        return not at_import.isdisjoint(range(mutant.line, mutant.end_line + 1))


def _there(nursery: Nursery, tests: list[Candidate]) -> list[Candidate]:
    """The tests as they are called with a mutant: a constant may be in the name of a case."""
    there, known = set(nursery.tests), {each.test for each in tests}
    found = []
    for each in tests:
        if each.test in there:
            found.append(each)
        else:
            begins = each.test.partition("[")[0] + "["
            found += [attrs.evolve(each, test=test) for test in nursery.tests
                      if test.startswith(begins) and test not in known]  # fmt: skip
    return list({each.test: each for each in found}.values())


# ---- what is said about mutants


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def equivalent() -> set[str]:
    """Read the names of the mutants that the page calls equivalent."""
    return set(re.findall(r"^\| `([0-9a-f]{8})`", PAGE.read_text(), re.MULTILINE)) if PAGE.exists() else set()


def summary(done: Iterable[dict[str, Any]]) -> str:
    """Return a table of what became of the mutants, by folder."""
    folders: dict[str, list[dict[str, Any]]] = {}
    every = list(done)
    for each in every:
        folders.setdefault(str(Path(each["path"]).parent), []).append(each)
    lines = [
        "| Folder | Mutants | Caught | Equivalent | Survived | Caught of the others | Seconds, median |",
        "|---|" + "--:|" * 6,
    ]
    for folder, some in [*sorted(folders.items()), ("all", every)]:
        counts = {what: sum(each["outcome"] == what for each in some) for what in ("caught", "equivalent", "survived")}
        rest = len(some) - counts["equivalent"]
        times = [each["seconds"] for each in some if "seconds" in each]
        lines.append(
            f"| `{folder}` | {len(some)} | {counts['caught']} | {counts['equivalent']} | {counts['survived']} | "
            f"{100 * counts['caught'] / rest if rest else 100:.1f} % | {statistics.median(times) if times else 0:.1f} |"
        )
    return "\n".join(lines)


def _line(record: dict[str, Any]) -> str:
    by = f" by {record['killer']} ({record['how']})" if record["killer"] else f" ({record['how']})"
    return (f"{record['outcome']:9} {record['id']} {record['path']}:{record['line']} {record['operator']}{by}, "
            f"{record['ran']} of {record['of']} tests, {record['seconds']} s")  # fmt: skip


def _record(name: str, mutant: Mutant, outcome: str) -> dict[str, Any]:
    return {
        "id": name, "outcome": outcome, "path": mutant.path, "line": mutant.line, "function": mutant.function,
        "operator": mutant.operator, "digest": _digest(mutant.path), "diff": diff(mutant, _source(mutant.path)),
    }  # fmt: skip


def diff(mutant: Mutant, source: bytes) -> str:
    """Return a mutant as a unified diff."""
    before, after = (text.decode().splitlines() for text in (source, mutant.source(source)))
    return "\n".join(difflib.unified_diff(before, after, mutant.path, mutant.function, n=1, lineterm=""))


def _results() -> dict[str, dict[str, Any]]:
    RESULTS.parent.mkdir(exist_ok=True)
    if not RESULTS.exists():
        return {}
    return {record["id"]: record for record in map(json.loads, RESULTS.read_text().splitlines())}


# ---- sources


@cache
def _source(path: str) -> bytes:
    return (ROOT / path).read_bytes()


@cache
def _digest(path: str) -> str:
    return sha256(_source(path)).hexdigest()[:16]


@cache
def _tree(path: str) -> ast.Module:
    return ast.parse(_source(path))


def _around(mutant: Mutant) -> tuple[range, range]:
    """The lines of the statement that a mutant is in, without its blocks, and those of its function or class."""
    statement = function = range(1, len(_source(mutant.path).splitlines()) + 1)
    for node in ast.walk(_tree(mutant.path)):
        if not isinstance(node, ast.stmt) or not node.lineno <= mutant.line <= (node.end_lineno or node.lineno):
            continue
        whole = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and len(whole) <= len(function):
            function = whole
        if len(whole) <= len(statement):
            statement = whole
            body = getattr(node, "body", None)
            if (
                isinstance(node, ast.If | ast.While | ast.For | ast.With | ast.Try)
                and body
                and mutant.line < body[0].lineno
            ):
                statement = range(node.lineno, max(body[0].lineno, node.lineno + 1))
    return range(min(statement.start, mutant.line), max(statement.stop, mutant.end_line + 1)), function


def _all_lines(path: str) -> range:
    return range(1, len(_source(path).splitlines()) + 1)


@cache
def _uses(defined_in: str, names: tuple[str, ...]) -> list[tuple[str, list[int]]]:
    """Where names of a module are used: there, and in the sources that import them or the module.

    Another module may give the same name to something else.
    """
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    found = []
    for path in choosing.files(("clients", "disqued", "persistence", "web")):
        lines = [n for n, line in enumerate(_source(path).decode().splitlines(), 1) if pattern.search(line)]
        if lines and (path == defined_in or imports(_tree(path), Path(defined_in).stem, names)):
            found.append((path, lines))
    return found


def imports(tree: ast.Module, module: str, names: Iterable[str]) -> bool:
    """Return whether a source imports a module, called by the last part of its name, or one of these names of it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            is_of_module = (node.module or "").rpartition(".")[2] == module
            if any(alias.name == module or (is_of_module and alias.name in names) for alias in node.names):
                return True
    return False


if __name__ == "__main__":
    sys.exit(main())
