"""The simulator notices mistakes: each mutant of the protocol is caught, and by what it breaks.

The very story in which a mistake is noticed is as it must be without it, so that what is caught is the mistake.  A
story that ends with an exception catches nothing.
"""

from functools import cache

import pytest

from disqued.testing.world import Broken, World
from tests.simulation.mutants import MUTANTS, SEEDS, Mutant

#: Those of one profile follow each other, so that their stories are told once without a mistake.
TOGETHER = sorted(MUTANTS, key=lambda mutant: mutant.profile.name)
PROFILES = {mutant.profile.name: mutant.profile for mutant in MUTANTS}


def test_there_are_at_least_forty_mutants_each_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 40
    assert len({mutant.edits for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.reference
def test_each_mutant_fits_the_code() -> None:
    for mutant in MUTANTS:
        with mutant.applied():
            pass


@pytest.mark.reference
@pytest.mark.parametrize("mutant", TOGETHER, ids=[mutant.name.replace(" ", "-") for mutant in TOGETHER])
def test_a_mistake_is_noticed_and_nothing_is_wrong_without_it(mutant: Mutant) -> None:
    tell_without_mistakes(mutant.profile.name, seed_that_notices(mutant))


def seed_that_notices(mutant: Mutant) -> int:
    """The first story that is broken by a mistake."""
    with mutant.applied():
        for seed in SEEDS:
            try:
                World(seed, mutant.profile).run()
            except Broken as broken:
                if broken.__cause__ is not None:
                    raise
                return seed
    pytest.fail(f"nobody notices in {len(SEEDS)} stories that {mutant.name}")


@cache
def tell_without_mistakes(profile: str, seed: int) -> None:
    """Tell a story of the core as it is.  Raises Broken."""
    World(seed, PROFILES[profile]).run()
