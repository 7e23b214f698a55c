"""`python -m tests.torture [--minutes N] [--seed N] [--policy P] [--cluster N [--cut]]`: lets daemons fail.

Without --cluster one daemon is killed, again and again; with it the nodes of a cluster fail in several ways.
Exit status 0: nothing acknowledged was lost, and nothing that had ended came back.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from disqued.testing.arguments import ExactParser
from tests.integration.cluster import NODE_TIMEOUT_MS, QUICK, Cluster, HostedCluster, ends_well
from tests.network import network
from tests.torture.clusters import Rounds
from tests.torture.kills import Campaign


def main() -> int:
    """Run the campaign and print its figures."""
    parser = ExactParser(prog="python -m tests.torture", description="Real daemons that fail.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", choices=["always", "everysec", "no"], default="always")
    parser.add_argument("--cluster", type=int, default=0, metavar="N", help="so many nodes, two or more")
    parser.add_argument("--cut", action="store_true", help="cut the network between them, too; needs root")
    options = parser.parse_args()
    if options.cluster == 1 or (options.cut and not options.cluster):
        parser.error("--cluster takes 2 nodes or more, and --cut goes with it")
    say(f"seed {options.seed}, appendfsync {options.policy}, {options.minutes:g} minutes")
    with tempfile.TemporaryDirectory() as place:
        return (fail_together if options.cluster else kill_one)(options, Path(place))


def kill_one(options: argparse.Namespace, place: Path) -> int:
    """Kill one daemon until the time is over."""
    random = Random(options.seed)
    end = time.monotonic() + options.minutes * 60
    campaign = Campaign(place / "data", options.policy, random)
    try:
        while time.monotonic() < end:
            kind = random.random()
            campaign.round(load_s=0.5, compacts=kind < 0.5, kills_loading=kind > 0.3)
            say(campaign.tally.line())
        campaign.finish()
    finally:
        say(f"in all: {campaign.tally.line()}")
    return int(bool(campaign.tally.lost or campaign.tally.risen))


def fail_together(options: argparse.Namespace, place: Path) -> int:
    """Let the nodes of a cluster fail until the time is over, or until something is wrong."""
    end = time.monotonic() + options.minutes * 60
    say(f"node time-out {NODE_TIMEOUT_MS / 1_000:.1f} s")
    settings = (*QUICK, "--persistence", "aof", "--appendfsync", options.policy)
    with contextlib.ExitStack() as stack:
        cluster = Cluster(place, settings)
        if options.cut:
            cluster = HostedCluster(place, settings, network=stack.enter_context(network(options.cluster)))
        stack.enter_context(ends_well(cluster))
        cluster.start(options.cluster)
        rounds = Rounds(cluster, Random(options.seed))
        while time.monotonic() < end:
            try:
                wrong = rounds.round()
            finally:
                say(rounds.line())
            if wrong:
                say("\n".join(wrong))
                return 1
    return 0


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
