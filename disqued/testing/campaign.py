"""Many stories, one after the other or on all cores, and what is left of one that fails.

    stories(hours)   (profile, seed), (profile, seed), ...     every profile in turn, each as often as its share says
    tell(story)      Outcome: what it took, or what is wrong and without which kinds of faults it still is

A story that fails is told again and again, each time without one more kind of faults; what is left names the kinds
that it needs.  Hours are those of the cluster in virtual time.
"""

import time
from collections.abc import Collection, Iterator
from itertools import count

import attrs

from disqued.testing.profiles import ALL, named
from disqued.testing.world import Broken, World

#: How many stories of each profile come in one round; what is cheap to tell is told more often.
SHARES = {"crashes": 3, "disks": 3, "wide": 1, "logs-disks": 1}
SHARE = 2


@attrs.frozen
class Story:
    """A profile, how long it is told, and the seed."""

    profile: str
    seed: int
    hours: float

    def told(self, without: tuple[str, ...] = ()) -> World:
        """Tell it.  Raises Broken."""
        return World(self.seed, named(self.profile, hours=self.hours), without=without).run()


@attrs.frozen
class Outcome:
    """What became of a story."""

    story: Story
    hours: float
    seconds: float  #: of the processor
    jobs: int = 0
    deliveries: int = 0
    messages: int = 0
    faults: int = 0
    trace: str = ""
    failure: str = ""  #: empty = everything was as it must be
    without: tuple[str, ...] = ()  #: kinds of faults that the failure does not need

    def line(self) -> str:
        """The figures."""
        story = self.story
        verdict = "FAILED" if self.failure else "ok"
        return (
            f"{story.profile} {story.seed}: {verdict}, {self.hours:.1f} h in {self.seconds:.1f} s, {self.jobs} jobs,"
            f" {self.deliveries} deliveries, {self.messages} messages, {self.faults} faults, trace {self.trace}"
        )


def stories(hours_each: float, first_seed: int = 1, names: Collection[str] = ()) -> Iterator[Story]:
    """Stories without end, of the profiles of these names; of all, if none is named."""
    for round_number in count():
        for profile in [named(name) for name in names] or ALL:
            share = SHARES.get(profile.name, SHARE)
            for number in range(share):
                yield Story(profile.name, first_seed + round_number * share + number, hours_each)


def tell(story: Story) -> Outcome:
    """Tell a story; one that fails is told again without the faults that it does not need."""
    began = time.process_time()
    try:
        world = story.told()
    except Broken as error:
        failure, without = reduced(story, error)
        return Outcome(story, 0.0, time.process_time() - began, failure=str(failure), without=without)
    return Outcome(
        story, world.hours, time.process_time() - began, world.jobs, world.deliveries, world.network.carried,
        len(world.faults.log), world.trace,
    )  # fmt: skip


def reduced(story: Story, failure: Broken) -> tuple[Broken, tuple[str, ...]]:
    """Switch off the kinds of faults that a failure does not need, one after the other."""
    without: tuple[str, ...] = ()
    for kind in named(story.profile).kinds:
        try:
            story.told((*without, kind))
        except Broken as error:
            failure, without = error, (*without, kind)
    return failure, without
