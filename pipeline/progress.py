"""How far Spark is, where a job has nothing to tell meanwhile: one computation may take minutes.

    the job --say--> stderr
    a thread --every QUIET_S without a word--> "14 of 32 tasks are done"

Lines, and no bar as Spark draws it: whoever reads them later in a log wants to know, too.  Times are seconds.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET_S: Final = 10.0
LOOK_S: Final = 1.0  #: pause before another look where Spark computes nothing just then: it lists files, say


@contextmanager
def telling(spark: "SparkSession", silent_s: Callable[[], float], say: Callable[[str], None]) -> Iterator[None]:
    """Say how far Spark is whenever nobody has said anything for QUIET_S; `silent_s`: for how long that is so."""
    over = threading.Event()
    thread = threading.Thread(target=_tell, args=(spark, silent_s, say, over), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _tell(
    spark: "SparkSession", silent_s: Callable[[], float], say: Callable[[str], None], over: threading.Event
) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    wait_s = QUIET_S
    while not over.wait(wait_s):
        silence_s = silent_s()
        wait_s = QUIET_S
        if silence_s < QUIET_S:
            wait_s -= silence_s
            continue
        try:
            text = how_far(spark)
        except (Py4JError, OSError):
            return  # Spark has ended, of which the job hears, too
        if text:
            say(text)
        else:
            wait_s = min(LOOK_S, QUIET_S)


def how_far(spark: "SparkSession") -> str:
    """Tell how many tasks of the stages that are computed now are done; empty = none is."""
    tracker = spark.sparkContext.statusTracker()
    stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number)) is not None]
    if not stages:
        return ""
    done, tasks = sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
    return f"{done} of {tasks} tasks are done"
