"""How long the garbage collector holds a node with very many jobs: ``python -m benchmarks.pauses [--jobs N ...]``.

    ADDJOB --> the node of `benchmarks.profile`, its collector tuned as the daemon's --> 1 M, 5 M jobs
                                                        | collections that come by themselves, of each generation
                                                        v
                                  one of the whole heap, which comes once in some twenty million new objects

Of the compiled core: ``PYTHONSAFEPATH=1 PYTHONPATH=build/compiled:. python -m benchmarks.pauses``.

Times are milliseconds.
"""

import gc
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import disqued.core.node
from benchmarks.profile import BODY, QUEUE, Bed
from benchmarks.raw import words
from disqued.tap import tune_collector
from disqued.testing.arguments import ExactParser

AT_ONCE = 100_000  #: jobs between two looks at how many there are


class Stopwatch:
    """Times every collection."""

    def __init__(self) -> None:
        self.longest_ms = [0.0, 0.0, 0.0]  #: by generation
        self.count = [0, 0, 0]
        self._began = 0.0

    def __call__(self, phase: str, facts: dict[str, int]) -> None:
        """What `gc.callbacks` calls."""
        if phase == "start":
            self._began = perf_counter()
            return
        spent_ms = (perf_counter() - self._began) * 1_000
        generation = facts["generation"]
        self.longest_ms[generation] = max(self.longest_ms[generation], spent_ms)
        self.count[generation] += 1


def main() -> int:
    """Print a line for each number of jobs."""
    parser = ExactParser(prog="python -m benchmarks.pauses")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1_000_000, 5_000_000], help="1000000 5000000")
    options = parser.parse_args()
    if min(options.jobs) < 1:
        parser.error(f"--jobs {min(options.jobs)}; allowed are numbers from 1 on")
    build = "the source" if disqued.core.node.__file__.endswith(".py") else "compiled"
    with tempfile.TemporaryDirectory(prefix="disqued-pauses-") as folder:
        bed = Bed.make(Path(folder))
        tune_collector()
        watch = Stopwatch()
        gc.callbacks.append(watch)
        chunk = words(b"ADDJOB", QUEUE, BODY, b"0") * 100
        for jobs in sorted(options.jobs):
            while len(bed.node.state.jobs) < jobs:
                for _ in range(AT_ONCE // 100):
                    bed.client.dataReceived(chunk)
                    bed.reactor.advance(0)
            each = ", ".join(
                f"generation {number}: {longest:.1f} ms ({count} times)"
                for number, (longest, count) in enumerate(zip(watch.longest_ms, watch.count, strict=True))
            )
            began = perf_counter()
            gc.collect()
            whole_ms = (perf_counter() - began) * 1_000
            print(f"{len(bed.node.state.jobs)} jobs, core {build}: longest of {each}; the whole heap {whole_ms:.1f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
