"""`python -m tests.torture.spark [--kills N] [--minutes N] [--seed N] [--what source|sink]`: kills of streams.

Exit status 0: so many kills, and every job where it belongs, once.
"""

import contextlib
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from disqued.testing.arguments import ExactParser
from tests.integration.cluster import Cluster, ends_well
from tests.torture.sparkcluster import SparkCluster
from tests.torture.sparkkills import SPARK, STANDIN, STREAMS, Campaign

#: A busy machine is no reason to think that a node has failed.
NODES = ("--cluster-node-timeout", "5000", "--persistence", "aof")


def main() -> int:
    """Run the campaign and print its figures."""
    parser = ExactParser(prog="python -m tests.torture.spark", description="Streams that are killed.")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=60.0, help="after which nothing more is killed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--what", choices=list(STREAMS), help="one stream alone")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--local", action="store_true", help="Spark in the driver's process, without executors")
    how.add_argument("--standin", action="store_true", help="no Spark, but its calls in its order, by a small program")
    parser.add_argument("--place", type=Path, help="folder that does not exist, and is kept: logs, journals and tables")
    options = parser.parse_args()
    roles = [options.what] if options.what else list(STREAMS)
    say(f"{' and '.join(roles)}, seed {options.seed}, {options.kills} kills, {options.minutes:g} minutes")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        place = Path(folder) if options.place is None else options.place
        nodes = stack.enter_context(ends_well(Cluster(place / "nodes", NODES)))
        nodes.start(3)
        spark: SparkCluster | str = SPARK if options.local else STANDIN
        if not options.local and not options.standin:
            spark = stack.enter_context(SparkCluster(place / "spark"))
        campaign = Campaign(roles, place / "streams", nodes, spark, Random(options.seed))
        tally = campaign.run(options.kills, time.monotonic() + options.minutes * 60, say)
    say("\n".join((f"in all: {tally.line()}", *tally.faults[:20])))
    return int(tally.kills.total() < options.kills or bool(tally.faults))


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
