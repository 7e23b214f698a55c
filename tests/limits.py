"""Time limits of tests: nominal seconds, times the slowness of this machine, which is measured once for a run.

    slowness    the processor time of a fixed piece of work against that of the machine the limits were chosen on,
                times the processes that compete for a processor; at least 1

The first process of a run measures, and hands the figure on in the environment.  DISQUED_TEST_SLOWNESS=5 sets it by
hand.  A limit is what a broken program alone reaches, so nothing is asserted about the time that something takes.
"""

import os
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
VARIABLE: Final = "DISQUED_TEST_SLOWNESS"
#: Loop turns of the fixed piece of work, and the seconds that they take on the machine that the limits were chosen on.
TURNS: Final = 1_000_000
NOMINAL_S: Final = 0.03


def measured() -> float:
    """Measure the slowness of this machine."""
    begin = time.process_time()
    total = 0
    for number in range(TURNS):
        total += number & 7
    speed = (time.process_time() - begin) / NOMINAL_S
    return scaled(speed, os.getloadavg()[0], os.cpu_count() or 1)


def scaled(speed: float, load: float, processors: int) -> float:
    """Put both parts of the slowness together."""
    return max(1.0, speed) * max(1.0, load / processors)


def slowness() -> float:
    """The slowness of this run."""
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = f"{measured():.2f}"
    return float(os.environ[VARIABLE])


def seconds(nominal: float) -> float:
    """A limit that is `nominal` seconds where nothing is slow."""
    return nominal * slowness()


LIMIT: Final = seconds(60)  #: for one thing to happen
TEST_LIMIT: Final = seconds(1_200)  #: for a whole test, with what it sets up
BUILD_LIMIT: Final = seconds(600)  #: for an installation
