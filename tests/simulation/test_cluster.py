"""Clusters in virtual time: whatever fails, every promise is kept, and in the end nothing is left.

More than 100 hours of clusters of three to nine nodes.  A story that fails is shown with its faults, and can be told
again by its profile and seed: `python -m disqued.testing --profile P --seed N --hours H`.
"""

import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from disqued.testing.campaign import SHARE, SHARES, Story, tell
from disqued.testing.profiles import ALL, BY_NAME
from disqued.testing.world import Broken, World
from tests.simulation.mutants import MUTANTS, SEEDS

ROOT = Path(__file__).parents[2]
#: Of each story; what costs more of the processor for an hour is told for less of them.  They end with an age.
HOURS = {
    "keys": 1.15, "keys-crash": 1.15,
    "calm": 4.15, "order": 6.2, "patient": 7.2, "lists": 3.75, "workers": 3.25, "disks": 2.7, "crashes": 2.4,
    "storm": 1.4, "network": 1.35, "logs-apart": 1.05, "logs-disks": 1.05, "wide": 1.05,
}  # fmt: skip
HOURS_OF_OTHERS = 1.4
STORIES = [
    Story(profile.name, seed, HOURS.get(profile.name, HOURS_OF_OTHERS))
    for profile in ALL
    for seed in range(1, 1 + SHARES.get(profile.name, SHARE))
]
#: One age of a storm, and as little quiet as there must be.
SHORT_STORM = attrs.evolve(BY_NAME["storm"], hours=0.01, quiet_ms=0)


def trace_of(seed: int) -> str:
    """Tell a short story."""
    return World(seed, SHORT_STORM).run().trace


def test_a_hundred_hours_are_simulated() -> None:
    assert sum(story.hours for story in STORIES) >= 100
    assert {BY_NAME[story.profile].nodes for story in STORIES} >= {3, 5, 9}


@pytest.mark.parametrize("story", STORIES, ids=[f"{story.profile}-{story.seed}" for story in STORIES])
def test_promises_are_kept_and_nothing_is_left(story: Story) -> None:
    world = story.told()
    assert world.hours >= story.hours
    assert world.jobs > 100 * story.hours
    assert world.deliveries > 100 * story.hours
    # What the profile is about did happen.
    assert set(world.faults.counts) == set(BY_NAME[story.profile].kinds)


def test_the_same_seed_tells_the_same_story() -> None:
    trace = trace_of(7)
    assert trace_of(7) == trace
    assert trace_of(8) != trace


def test_a_story_does_not_depend_on_the_process_that_tells_it() -> None:
    code = "from tests.simulation.test_cluster import trace_of; print(trace_of(7))"
    traces = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT,
            env={"PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    assert traces == {trace_of(7)}


def first_broken(profile: str) -> tuple[Story, str]:
    """The first short story of a profile that fails, and what it says."""
    for seed in SEEDS:
        story = Story(profile, seed, 0.2)
        try:
            story.told()
        except Broken as broken:
            return story, str(broken)
    pytest.fail(f"none of {len(SEEDS)} stories fails")


@pytest.mark.reference
def test_a_failure_tells_its_faults_and_how_to_see_it_again() -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "what is done comes back with the journal")
    with mutant.applied():
        story, text = first_broken("crashes")
        assert f"profile crashes, seed {story.seed}" in text
        assert "crash: node" in text
        assert f"python -m disqued.testing --profile crashes --seed {story.seed}" in text
        outcome = tell(story)
        assert outcome.failure
        # What ends no process brings nothing back from a journal.
        assert "pause" in outcome.without
        assert not {"crash", "power", "restart"} <= set(outcome.without)


def test_nodes_that_never_come_to_rest_are_noticed() -> None:
    world = World(1, BY_NAME["calm"])

    def again(_: object) -> None:
        world.events.after(0, again)

    world.events.after(1, again)
    with pytest.raises(Broken, match="time stands still"):
        world.run()
