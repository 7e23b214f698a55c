"""`python -m tests.torture.simulated --hours N [--log FILE]`: simulated cluster-hours on all cores, until there are N.

Each story that is over is a line of the log, as JSON.  A campaign that is ended, and begun again with the same log,
goes on behind what the log has; so hours add up over nights.  Exit status 0: no story of the log has failed.
"""

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import attrs

from disqued.testing.arguments import ExactParser
from disqued.testing.campaign import Outcome, Story, stories, tell
from disqued.testing.profiles import ALL

HOURS_EACH = 4.0  #: of one story: long enough for several ages
LOG = Path("build/simulated.jsonl")


@attrs.define
class Sum:
    """What a log adds up to."""

    told: int = 0
    hours: float = 0.0
    seconds: float = 0.0
    jobs: int = 0
    deliveries: int = 0
    messages: int = 0
    faults: int = 0
    failed: list[str] = attrs.field(factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count a story in."""
        self.told += 1
        for name in ("hours", "seconds", "jobs", "deliveries", "messages", "faults"):
            setattr(self, name, getattr(self, name) + getattr(outcome, name))
        if outcome.failure:
            self.failed.append(f"{outcome.story.profile} {outcome.story.seed}")

    def line(self) -> str:
        """The figures."""
        return (
            f"{self.told} stories, {self.hours:.0f} cluster-hours in {self.seconds:.0f} s of processor:"
            f" {self.jobs} jobs, {self.deliveries} deliveries, {self.messages} messages, {self.faults} faults; failed:"
            f" {', '.join(self.failed) or 'none'}"
        )


def main(arguments: list[str] | None = None) -> int:
    """Go on with a campaign until its hours are full."""
    parser = ExactParser(prog="python -m tests.torture.simulated", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--hours", type=float, required=True, help="hours of the cluster, those of the log included")
    parser.add_argument("--log", type=Path, default=LOG, help=f"what is done, a line for each story ({LOG})")
    parser.add_argument(
        "--profile", action="append", default=[], choices=[each.name for each in ALL], help="these alone"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    total, done = Sum(), set()
    for outcome in read(options.log):
        total.add(outcome)
        done.add((outcome.story.profile, outcome.story.seed))
    say(f"so far: {total.line()}")
    if total.hours < options.hours:
        go_on(total, done, options)
    say(f"in all: {total.line()}")
    return int(bool(total.failed))


def go_on(total: Sum, done: set[tuple[str, int]], options: argparse.Namespace) -> None:
    """Tell the stories that the log does not have, on all cores."""
    options.log.parent.mkdir(parents=True, exist_ok=True)
    wanted = 1 + int((options.hours - total.hours) / HOURS_EACH)
    with options.log.open("a") as log, multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for outcome in pool.imap_unordered(tell, islice(left(done, options.profile), wanted)):
            log.write(json.dumps(attrs.asdict(outcome)) + "\n")
            log.flush()
            total.add(outcome)
            say(outcome.line())
            if outcome.failure:
                say(f"{outcome.failure}\nnot needed: {', '.join(outcome.without) or 'nothing'}")


def left(done: set[tuple[str, int]], names: list[str]) -> Iterator[Story]:
    """The stories that are not told yet, without end; of the profiles of these names, if any is named."""
    return (story for story in stories(HOURS_EACH, names=names) if (story.profile, story.seed) not in done)


def read(path: Path) -> Iterator[Outcome]:
    """The stories of a log; a last line that was cut off is none."""
    if path.exists():
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                fields = json.loads(line)
                yield Outcome(Story(**fields.pop("story")), **fields | {"without": tuple(fields["without"])})


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
