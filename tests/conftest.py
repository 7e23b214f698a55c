"""What every test has in common: its mark, its turn and Hypothesis's settings.

A test is marked by the folder that it lies in, and the folders run in the order of the `markers` in setup.cfg: what
is quick and says most exactly what broke comes first, what starts programs last.

No test waits for ever: each has a limit, which is scaled by the slowness of the machine (tests/limits.py).
"""

import os
from functools import cache
from pathlib import Path

import hypothesis
import pytest
from twisted.internet.main import installReactor

from tests import builds, limits, signals

TESTS = Path(__file__).parent
#: Folders that are for any build, as the Makefile leaves them out of what runs on the source alone.
PROGRAMS = {"integration", "packaging", "pipeline"}

builds.choose()
signals.hear_for_children()
os.environ.setdefault("PYTEST_TIMEOUT", f"{limits.TEST_LIMIT:.0f}")


from disqued.net.loop.reactor import EpollReactor  # noqa: E402 - of the build that was chosen

# Tests in this process have the loop of the daemon, which works in rounds; pytest-twisted takes the one that is there.
installReactor(EpollReactor())

# A busy machine is no failure, so there are no time limits.  The same examples are tried each time, so that a failure
# comes of the change; `make fuzz` looks for others, and prints one that fails so that it can be replayed.
hypothesis.settings.register_profile(
    "disqued", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile(
    "fuzz", hypothesis.settings.get_profile("disqued"), derandomize=False, print_blob=True, max_examples=2_000
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "disqued"))


def pytest_report_header() -> str:
    """Say which build it is, and how much time everything is given."""
    build = "compiled" if builds.COMPILED else "the source as it is"
    return f"disqued.core: {build}; time limits times {limits.slowness():.1f}"


@cache
def folder(path: Path) -> str:
    """Name the folder of tests/ that a file of tests belongs to."""
    return path.relative_to(TESTS).parts[0]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test by its folder, and put the folders in the order of the markers."""
    order = {line.partition(":")[0].strip(): turn for turn, line in enumerate(config.getini("markers"))}
    for item in items:
        place = folder(item.path)
        if place not in order:
            raise pytest.UsageError(f"{item.path}: tests/{place} has no marker in setup.cfg")
        item.add_marker(place)
        if item.get_closest_marker("reference"):
            if place in PROGRAMS:
                raise pytest.UsageError(f"{item.path}: tests/{place} is for any build; nothing in it is `reference`")
            if builds.COMPILED:
                item.add_marker(pytest.mark.skip("for the source of the core, which `make test` runs it on, too"))
    items.sort(key=lambda item: order[folder(item.path)])
