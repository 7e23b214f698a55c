"""The simulator notices mistakes: each mutant of the protocol is caught, and by what it breaks.

The same stories without the mistake are as they must be, so that what is caught is the mistake.  A story that ends with
an exception catches nothing.
"""

import pytest

from disqued.testing.world import Broken, Profile, World
from tests.simulation.mutants import MUTANTS, SEEDS, Mutant

PROFILES = {mutant.profile.name: mutant.profile for mutant in MUTANTS}


def test_there_are_at_least_forty_mutants_each_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 40
    assert len({mutant.edits for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_without_a_mistake_all_is_well(profile: Profile) -> None:
    for seed in SEEDS:
        World(seed, profile).run()


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name.replace(" ", "-") for mutant in MUTANTS])
def test_a_mistake_is_noticed(mutant: Mutant) -> None:
    with mutant.applied():
        for seed in SEEDS:
            try:
                World(seed, mutant.profile).run()
            except Broken as broken:
                if broken.__cause__ is not None:
                    raise
                return
    pytest.fail(f"nobody notices in {len(SEEDS)} stories that {mutant.name}")
