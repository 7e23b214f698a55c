"""Suggestions for unknown names in errors: all names while they are few, else the most similar ones.

    few     verbs are add, create, drain
    many    did you mean import or export? disqued --help names all verbs

Only the first characters of a name are compared, so that a long one costs no more.
"""

import difflib
from collections.abc import Iterable
from typing import Final

FEW: Final = 10  #: names that are read at a glance
NEAR: Final = 3  #: suggestions at most
LONGEST: Final = 64  #: characters of a name that are compared


def near(name: str, known: Iterable[str]) -> list[str]:
    """Return the `NEAR` names most similar to an unknown one, the most similar first; case is ignored."""
    by_case = {one.lower(): one for one in known}
    return [by_case[one] for one in difflib.get_close_matches(name.lower()[:LONGEST], by_case, n=NEAR)]


def listed(kind: str, known: Iterable[str], where: str, name: str = "") -> str:
    """Name what exists: `kind` is its plural, `where` lists all of it, `name` is the unknown name that was given."""
    names = list(known)
    if len(names) <= FEW:
        return f"{kind} are {', '.join(names)}"
    all_of_them = f"{where} names all {kind}"
    meant = near(name, names) if name else []
    return f"did you mean {' or '.join(meant)}? {all_of_them}" if meant else all_of_them
