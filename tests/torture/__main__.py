"""`python -m tests.torture [--minutes N] [--seed N] [--policy P]`: kills daemons until the time is over.

Exit status 0: nothing acknowledged was lost, and nothing that had ended came back.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from tests.torture.kills import Campaign


def main() -> int:
    """Run the campaign and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description="kill -9 campaigns on real daemons.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", choices=["always", "everysec", "no"], default="always")
    options = parser.parse_args()
    random = Random(options.seed)
    end = time.monotonic() + options.minutes * 60
    sys.stdout.write(f"seed {options.seed}, appendfsync {options.policy}, {options.minutes:g} minutes\n")
    with tempfile.TemporaryDirectory() as place:
        campaign = Campaign(Path(place) / "data", options.policy, random)
        try:
            while time.monotonic() < end:
                kind = random.random()
                campaign.round(load_s=0.5, compacts=kind < 0.5, kills_loading=kind > 0.3)
                sys.stdout.write(campaign.tally.line() + "\n")
                sys.stdout.flush()
            campaign.finish()
        finally:
            sys.stdout.write(f"in all: {campaign.tally.line()}\n")
    return int(bool(campaign.tally.lost or campaign.tally.risen))


if __name__ == "__main__":
    sys.exit(main())
