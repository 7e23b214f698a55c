"""Which build of the core is tested: the source as it is, or with DISQUED_BUILD=compiled what mypyc made of it.

The compiled build lies in build/compiled/, as `make compiled` unpacked its wheel there.  Programs that tests start find
the same one: it comes first on their path, and the folder that they are started in does not count.
"""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "build" / "compiled"
COMPILED = os.environ.get("DISQUED_BUILD", "source") == "compiled"
#: PYTHONPATH for a program that shall find this checkout and the build that is tested, wherever it is started.
IMPORT_PATH = os.pathsep.join(map(str, (PLACE, ROOT) if COMPILED else (ROOT,)))


def choose() -> None:
    """Let this process, and those that it starts, import the build that is to be tested.  Raises UsageError."""
    if os.environ.get("DISQUED_BUILD", "source") not in {"compiled", "source"}:
        raise pytest.UsageError(f"DISQUED_BUILD is {os.environ['DISQUED_BUILD']}; allowed are compiled and source")
    if not COMPILED:
        if any((ROOT / "disqued" / "core").glob("*.so")):
            raise pytest.UsageError("disqued/core has compiled modules, which hide its source: remove its *.so")
        return
    sys.path.insert(0, str(PLACE))
    os.environ["PYTHONSAFEPATH"] = "1"
    import disqued.core.node  # now, and not with this module: coverage has not begun yet

    if disqued.core.node.__file__.endswith(".py"):
        raise pytest.UsageError(f"{PLACE} has no compiled core: `make compiled` puts it there, as `make test` does")
