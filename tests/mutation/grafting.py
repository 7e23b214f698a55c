"""Two ways to give a process a mutant: when its module is imported, or in the functions that are already there."""

import gc
import os
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType

from .operators import Mutant

ROOT = Path(__file__).parents[2]


@cache
def below_root(path: str | Path) -> str:
    """Name a file by its real place in the project: folders are links, so it may have two paths."""
    return str(Path(path).resolve().relative_to(ROOT))


def compiled(mutant: Mutant) -> CodeType:
    """Compile the module of a mutant with its edit.  Raises SyntaxError."""
    source = (ROOT / mutant.path).read_bytes()
    return compile(mutant.source(source), str(ROOT / mutant.path), "exec", dont_inherit=True)


def at_import(mutant: Mutant) -> None:
    """Let this process import the mutant in the place of its module, which it has not imported yet."""
    real = os.path.realpath(ROOT / mutant.path)
    plain = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, name: str) -> CodeType | None:
        if os.path.realpath(self.get_filename(name)) == real:
            return compiled(mutant)
        return plain(self, name)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def functions() -> dict[str, dict[tuple[str, int], list[FunctionType]]]:
    """Find the functions of this process, by file and by name and line."""
    found: dict[str, dict[tuple[str, int], list[FunctionType]]] = {}
    real: dict[str, str] = {}
    for thing in gc.get_objects():
        if type(thing) is FunctionType:
            code = thing.__code__
            path = real.setdefault(code.co_filename, os.path.realpath(code.co_filename))
            found.setdefault(path, {}).setdefault((code.co_qualname, code.co_firstlineno), []).append(thing)
    return found


def in_place(mutant: Mutant, there: dict[str, dict[tuple[str, int], list[FunctionType]]]) -> bool:
    """Give the functions of a module the code of a mutant, and say whether one of them has it now."""
    source = (ROOT / mutant.path).read_bytes()
    before = compile(source, mutant.path, "exec", dont_inherit=True)
    known = there.get(os.path.realpath(ROOT / mutant.path), {})
    changed = False
    for old, new in _pairs(before, compiled(mutant)):
        for function in known.get((old.co_qualname, old.co_firstlineno), ()):
            try:
                function.__code__ = new
            except ValueError:  # it closes over other names
                return False
            changed = True
    return changed


def _pairs(old: CodeType, new: CodeType) -> list[tuple[CodeType, CodeType]]:
    """The code of functions in both modules, where it differs."""
    pairs: list[tuple[CodeType, CodeType]] = []
    olds, news = ([each for each in code.co_consts if isinstance(each, CodeType)] for code in (old, new))
    if len(olds) == len(news):
        for one, other in zip(olds, news, strict=True):
            if one.replace(co_filename="") != other.replace(co_filename=""):
                pairs += [(one, other), *_pairs(one, other)]
    return pairs
