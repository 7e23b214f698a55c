"""Mutants of a module in a pytest process of their own: what a test notices, what none does, and what hangs."""

from pathlib import Path

import attrs
import pytest

from tests.mutation import operators
from tests.mutation.nursery import Nursery

MODULE = """\
LIMIT = 3


def fits(count: int) -> bool:
    while count > 100:
        count -= 100
    return count <= LIMIT
"""
TESTS = """\
from toy_module import fits


def test_small():
    assert fits(2)


def test_large():
    assert not fits(5)


def test_hundreds():
    assert fits(402)
"""
LIMIT_S = 60.0


@pytest.fixture
def toy(tmp_path: Path):
    module, tests = tmp_path / "toy_module.py", tmp_path / "test_toy.py"
    module.write_text(MODULE)
    tests.write_text(TESTS)
    mutants = {
        (mutant.line, mutant.text): mutant for mutant in operators.mutants(str(module), MODULE.encode())
    }  # fmt: skip
    return tests, mutants


def test_what_tests_notice_of_mutants_in_functions(toy):
    place, mutants = toy
    nursery = Nursery([str(place)])
    try:
        small, large, hundreds = nursery.tests
        reached = nursery.reach(nursery.tests, LIMIT_S)
        assert [each.passed for each in reached] == [True] * 3
        tests = [(test, LIMIT_S) for test in nursery.tests]

        plain = nursery.attempt(None, tests, LIMIT_S)
        assert (plain.killer, plain.how, plain.ran) == (None, "passed", 3)
        negated = nursery.attempt(mutants[7, "(count > LIMIT)"], tests, LIMIT_S)
        assert (negated.killer, negated.how, negated.ran) == (small, "failed", 1)
        unseen = nursery.attempt(mutants[7, "(count < LIMIT)"], tests, LIMIT_S)
        assert (unseen.killer, unseen.how) == (None, "passed")
        endless = nursery.attempt(mutants[6, "pass"], [(small, LIMIT_S), (hundreds, 1.0), (large, LIMIT_S)], LIMIT_S)
        assert (endless.killer, endless.how) == (hundreds, "hung")
        # A child's mutant is its own.
        assert nursery.attempt(None, tests, LIMIT_S).killer is None
        assert nursery.attempt(mutants[1, "2"], tests, LIMIT_S).how == "import"
    finally:
        nursery.close()


@pytest.mark.parametrize(("text", "noticed"), [("4", False), ("1", True)])
def test_a_constant_takes_effect_at_import(toy, text, noticed):
    place, mutants = toy
    mutant = attrs.evolve(mutants[1, "4"], text=text)
    assert mutant.at_import
    nursery = Nursery([str(place)], mutant)
    try:
        outcome = nursery.attempt(None, [(test, LIMIT_S) for test in nursery.tests], LIMIT_S)
        assert (outcome.killer is not None) is noticed
    finally:
        nursery.close()


def test_a_module_that_cannot_be_imported_has_no_tests(toy):
    place, _ = toy
    broken = operators.Mutant(str(place.with_name("toy_module.py")), "", "test", 1, 1, 8, 9, "LIMIT", at_import=True)
    nursery = Nursery([str(place)], broken)
    try:
        assert nursery.tests == []
    finally:
        nursery.close()
