"""`python -m disqued.testing`: tell one story of the simulator, or a few, and say what came of it.

Exit status 0: everything was as it must be.
"""

import argparse
import sys
from pathlib import Path

import attrs

from disqued.testing.arguments import ExactParser
from disqued.testing.campaign import Story, tell
from disqued.testing.faults import KINDS
from disqued.testing.profiles import BY_NAME, named
from disqued.testing.world import Broken, World


def main(arguments: list[str] | None = None) -> int:
    """Tell the stories that are asked for."""
    parser = ExactParser(prog="python -m disqued.testing", description="A cluster in virtual time.")
    parser.add_argument("--profile", choices=list(BY_NAME), default="storm", help="what kind of story")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="so many seeds, beginning with --seed")
    parser.add_argument("--hours", type=float, default=1.0, help="how long a story is, in hours of the cluster")
    parser.add_argument("--nodes", type=int, help="another number of nodes")
    parser.add_argument("--without", choices=KINDS, action="append", default=[], help="leave out a kind of faults")
    parser.add_argument("--events", type=Path, metavar="DIR", help="let the nodes write their event logs there")
    options = parser.parse_args(arguments)
    if options.nodes is not None and not 2 <= options.nodes <= 200:
        parser.error("--nodes takes 2 to 200")
    seeds = range(options.seed, options.seed + options.seeds)
    if options.nodes is None and not options.without and options.events is None:
        return max(_tell(Story(options.profile, seed, options.hours)) for seed in seeds)
    return max(_tell_other(options, seed) for seed in seeds)


def _tell(story: Story) -> int:
    outcome = tell(story)
    _say(outcome.line())
    if outcome.failure:
        _say(outcome.failure)
        if outcome.without:
            _say(f"it fails without these kinds of faults, too: {', '.join(outcome.without)}")
    return int(bool(outcome.failure))


def _tell_other(options: argparse.Namespace, seed: int) -> int:
    """Tell a story that is not one of the campaign's, as it is."""
    profile = named(options.profile, hours=options.hours)
    if options.nodes is not None:
        profile = attrs.evolve(profile, nodes=options.nodes)
    try:
        world = World(seed, profile, without=options.without, events=options.events).run()
    except Broken as error:
        _say(str(error))
        return 1
    _say(f"{profile.name} {seed}: ok, {world.hours:.1f} h, {world.jobs} jobs, trace {world.trace}")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
