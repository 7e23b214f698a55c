"""Which mutants are tried: all of some files or of the lines of a change, in an order that a seed gives."""

import re
import subprocess
from collections.abc import Iterable
from hashlib import sha256

from .grafting import ROOT, below_root
from .operators import Mutant, each

#: What is mutated if nothing else is asked for: where a mistake loses, repeats or leaks something.
USUAL = (
    "disqued/core", "disqued/commands", "disqued/wire", "disqued/acl", "disqued/net/cluster",
    "disqued/net/process/secrets.py", "persistence", "web/http/auth.py",
)  # fmt: skip


def files(paths: Iterable[str]) -> list[str]:
    """Find the sources in some folders, by their real places below the root.  Raises FileNotFoundError."""
    found: set[str] = set()
    for path in paths:
        there = (ROOT / path).resolve()
        if not there.exists():
            raise FileNotFoundError(path)
        found.update(below_root(file) for file in ([there] if there.is_file() else there.rglob("*.py")))
    return sorted(found)


def usual() -> list[str]:
    return files(path for path in USUAL if (ROOT / path).exists())


def changed_lines(revision: str) -> dict[str, set[int]]:
    """Ask git for the lines that differ from a revision, by path.  Raises CalledProcessError."""
    answer = subprocess.run(
        ["git", "diff", "--unified=0", "--no-ext-diff", "--no-renames", revision, "--", "*.py"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return lines_of_diff(answer.stdout)


def lines_of_diff(diff: str) -> dict[str, set[int]]:
    """Read the lines that a diff without context adds, by path."""
    lines: dict[str, set[int]] = {}
    path = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = line[6:]
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(match[1]), int(match[2] or 1)
            lines.setdefault(path, set()).update(range(first, first + count))
    return {path: numbers for path, numbers in lines.items() if numbers}


def chosen(paths: Iterable[str], seed: int, only: dict[str, set[int]] | None = None) -> list[tuple[str, Mutant]]:
    """Put the mutants of files in the order in which they are tried.

    The first mutant of each line comes before the second one of any, so that a sample is spread over the files by
    their size.  The order of two mutants does not depend on what else there is.
    """
    lines: dict[tuple[str, int], list[tuple[str, Mutant]]] = {}
    for path in paths:
        wanted = None if only is None else only.get(path, set())
        for name, mutant in each(path, (ROOT / path).read_bytes()):
            if wanted is None or wanted & set(range(mutant.line, mutant.end_line + 1)):
                lines.setdefault((path, mutant.line), []).append((name, mutant))
    keyed = []
    for found in lines.values():
        # One operator has many more mutants of a line than another: each has its turn.
        found.sort(key=lambda pair: _draw(seed, pair[0]))
        turns: dict[str, int] = {}
        ranked = []
        for pair in found:
            turns[pair[1].operator] = turns.get(pair[1].operator, 0) + 1
            ranked.append((turns[pair[1].operator], _draw(seed, pair[1].operator + pair[0]), pair))
        ranked.sort(key=lambda each: each[:2])
        keyed += [(rank, _draw(seed, pair[0]), pair) for rank, (_, _, pair) in enumerate(ranked)]
    return [pair for _, _, pair in sorted(keyed, key=lambda each: each[:2])]


def _draw(seed: int, name: str) -> str:
    return sha256(f"{seed} {name}".encode()).hexdigest()
