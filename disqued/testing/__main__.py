"""`python -m disqued.testing`: tell one story of the simulator, or a few, and say what came of it.

Exit status 0: everything was as it must be.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

import attrs

from disqued.testing.arguments import ExactParser
from disqued.testing.campaign import Story, tell
from disqued.testing.faults import KINDS
from disqued.testing.profiles import BY_NAME, named
from disqued.testing.returns import APART, CROSSING, LATE, UNLINKED, Returns
from disqued.testing.world import Broken, World


def main(arguments: list[str] | None = None) -> int:
    """Tell the stories that are asked for."""
    parser = ExactParser(prog="python -m disqued.testing", description="A cluster in virtual time.")
    parser.add_argument("--profile", choices=list(BY_NAME), default="storm", help="what kind of story")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="so many seeds, beginning with --seed")
    parser.add_argument("--hours", type=float, help="how long a story is, in hours of the cluster; 1 if not said")
    parser.add_argument("--nodes", type=int, help="another number of nodes")
    parser.add_argument("--without", choices=KINDS, action="append", default=[], help="leave out a kind of faults")
    parser.add_argument("--events", type=Path, metavar="DIR", help="let the nodes write their event logs there")
    parser.add_argument(
        "--returns", action="store_true", help="count deliveries after an answered acknowledgement, by their causes"
    )
    options = parser.parse_args(arguments)
    if options.nodes is not None and not 2 <= options.nodes <= 200:
        parser.error("--nodes takes 2 to 200")
    seeds = range(options.seed, options.seed + options.seeds)
    if options.returns:
        return _count_returns(options, seeds)
    options.hours = options.hours or 1.0
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


def _count_returns(options: argparse.Namespace, seeds: range) -> int:
    """Tell stories, and say how many deliveries came after an answered acknowledgement, and why."""
    profile = named(options.profile, hours=options.hours)
    if options.nodes is not None:
        profile = attrs.evolve(profile, nodes=options.nodes)
    counts: Counter[str] = Counter()
    deliveries = 0
    for seed in seeds:
        world = World(seed, profile, without=options.without, events=options.events)
        returns = Returns(world)
        try:
            world.run()
        except Broken as error:
            _say(str(error))
            return 1
        deliveries += world.deliveries
        counts += returns.counts
    after = counts.total()
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in (APART, UNLINKED, CROSSING, LATE))
    _say(
        f"{profile.name}, seeds {seeds[0]} to {seeds[-1]}: {deliveries} deliveries, {after} after an answered"
        f" acknowledgement ({after / max(1, deliveries):.3%}): {kinds}"
    )
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
