"""Which tests execute which line, kept from one run to the next.

What a file of tests executes is recorded again when that file has changed.  When a source has changed, the lines that
are still the same are found again; for the others those tests count that execute anything of the same function.
"""

import difflib
import pickle
from collections.abc import Callable, Iterable
from hashlib import sha256

import attrs

from .grafting import ROOT
from .nursery import Nursery, Reached
from .operators import Mutant

KEPT = ROOT / "build" / "mutants-reach.pickle"
_FILE_S = 300.0  #: for one file of tests


@attrs.define
class _Recorded:
    """What a file of tests executed, and what it was when it did."""

    digest: str
    sources: dict[str, str]  #: digest of each source at that time, by path
    tests: list[Reached]


@attrs.frozen
class Candidate:
    """A test that may notice a mutant."""

    test: str
    seconds: float


class Reach:
    """Answers which tests to run for a mutant, quickest first and of each file some."""

    def __init__(self) -> None:
        self._files: dict[str, _Recorded] = {}
        self._texts: dict[str, str] = {}
        self._lines: dict[str, dict[int, list[Candidate]]] = {}
        #: Lines that run when modules are imported, by path.
        self.imported: dict[str, set[int]] = {}
        if KEPT.exists():
            self._files, self._texts, self.imported = pickle.loads(KEPT.read_bytes())

    def update(self, nursery: Nursery, tell: Callable[[str], None]) -> None:
        """Record what is new or changed among the tests of a nursery."""
        self.imported |= nursery.imported
        files: dict[str, list[str]] = {}
        for test in nursery.tests:
            files.setdefault(test.partition("::")[0], []).append(test)
        digests = {path: _digest((ROOT / path).read_bytes()) for path in files}
        new = [path for path in files if path not in self._files or self._files[path].digest != digests[path]]
        for turn, path in enumerate(new, 1):
            reached = nursery.reach(files[path], _FILE_S)
            tell(f"{turn}/{len(new)} {path}: {len(reached)} of {len(files[path])} tests, "
                 f"{sum(each.seconds for each in reached):.1f} s")  # fmt: skip
            self._files[path] = _Recorded(digests[path], self._remember(reached), reached)
            if turn % 20 == 0:
                self._keep()
        self._files = {path: self._files[path] for path in files}
        self._keep()

    def _remember(self, reached: list[Reached]) -> dict[str, str]:
        sources = {}
        for path in {path for each in reached for path in each.lines}:
            if (ROOT / path).is_file():
                text = (ROOT / path).read_text()
                sources[path] = _digest(text.encode())
                self._texts[sources[path]] = text
        return sources

    def _keep(self) -> None:
        KEPT.parent.mkdir(exist_ok=True)
        aside = KEPT.with_suffix(".new")
        aside.write_bytes(pickle.dumps((self._files, self._texts, self.imported)))
        aside.replace(KEPT)

    def candidates(self, mutant: Mutant, lines: Iterable[int], function: Iterable[int]) -> list[Candidate]:
        """Find the tests that execute one of these lines of a mutant's file; if none does, any of its function's."""
        known = self._of_file(mutant.path)
        return _ordered(known, lines) or _ordered(known, function)

    def of_lines(self, path: str, lines: Iterable[int]) -> list[Candidate]:
        return _ordered(self._of_file(path), lines)

    def _of_file(self, path: str) -> dict[int, list[Candidate]]:
        if path not in self._lines:
            self._lines[path] = self._by_line(path)
        return self._lines[path]

    def _by_line(self, path: str) -> dict[int, list[Candidate]]:
        now = (ROOT / path).read_text()
        moved: dict[str, dict[int, int] | None] = {_digest(now.encode()): None}
        found: dict[int, list[Candidate]] = {}
        for recorded in self._files.values():
            digest = recorded.sources.get(path)
            if digest is None:
                continue
            if digest not in moved:
                moved[digest] = _moves(self._texts[digest], now)
            where = moved[digest]
            for each in recorded.tests:
                if each.passed:
                    candidate = Candidate(each.test, each.seconds)
                    for line in each.lines.get(path, ()):
                        if (there := line if where is None else where.get(line)) is not None:
                            found.setdefault(there, []).append(candidate)
        return found


def _moves(before: str, after: str) -> dict[int, int]:
    """Where lines of a text are in another one, counted from 1."""
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    return {a + n + 1: b + n + 1 for a, b, size in matcher.get_matching_blocks() for n in range(size)}


def _ordered(known: dict[int, list[Candidate]], lines: Iterable[int]) -> list[Candidate]:
    """Each test once: what costs little first, and not all of one file before the first one of another."""
    found = {each.test: each for line in lines for each in known.get(line, ())}
    ranks: dict[str, int] = {}
    keyed = []
    for each in sorted(found.values(), key=lambda each: (each.seconds, each.test)):
        file = each.test.partition("::")[0]
        ranks[file] = ranks.get(file, 0) + 1
        keyed.append((max(each.seconds, 0.002) * ranks[file], each.test, each))
    return [each for _, _, each in sorted(keyed, key=lambda key: key[:2])]


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]
