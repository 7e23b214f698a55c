"""What an error says of a name that is none: all that there are while these are few, else those that are like it.

    few     verbs are add, create, drain
    many    did you mean import or export? disqued --help names all verbs

What is like a name is found among its first characters, so that a long one costs no more.
"""

import difflib
from collections.abc import Iterable
from typing import Final

FEW: Final = 10  #: names that are read at a glance
NEAR: Final = 3  #: names that are told of many
LONGEST: Final = 64  #: characters of a name that are compared


def near(name: str, known: Iterable[str]) -> list[str]:
    """The names that are most like one that is none, at most `NEAR`, the likest first; case means nothing."""
    by_case = {one.lower(): one for one in known}
    return [by_case[one] for one in difflib.get_close_matches(name.lower()[:LONGEST], by_case, n=NEAR)]


def listed(kind: str, known: Iterable[str], where: str, name: str = "") -> str:
    """Say what there is: `kind` is the plural of it, `where` names them all, `name` is what was given instead."""
    names = list(known)
    if len(names) <= FEW:
        return f"{kind} are {', '.join(names)}"
    all_of_them = f"{where} names all {kind}"
    meant = near(name, names) if name else []
    return f"did you mean {' or '.join(meant)}? {all_of_them}" if meant else all_of_them
