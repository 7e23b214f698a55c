"""The registry: a dict that grows in small steps, and that can be walked while it changes."""

from base64 import b64encode
from random import Random

import pytest

from disqued.core.model.ids import SHARERS, JobIds
from disqued.core.model.registry import TABLES, Registry
from tests.core_fixtures import NODE_ID, OLD_ID, make_job


def test_jobs_are_found_by_id_until_they_are_removed() -> None:
    registry = Registry()
    jobs = [make_job(number) for number in range(10_000)]
    for job in jobs:
        registry.add(job)
    assert len(registry) == len(jobs)
    assert all(registry.get(job.id) is job for job in jobs)
    assert sorted(job.ctime for job in registry) == list(range(10_000))
    for job in jobs[::2]:
        registry.remove(job)
    assert registry.get(jobs[0].id) is None
    assert registry.get(jobs[1].id) is jobs[1]
    assert len(registry) == len(list(registry)) == 5_000


def test_an_id_of_the_old_form_is_an_id_like_any_other() -> None:
    registry = Registry()
    job = make_job()
    job.id = OLD_ID
    registry.add(job)
    assert registry.get(OLD_ID) is job


def filled(count: int) -> Registry:
    """A registry with so many jobs, as a node numbers them."""
    registry, ids = Registry(), JobIds(NODE_ID, b"seed")
    for number in range(count):
        job = make_job(number)
        job.id = ids.next(b"05a0SQ")
        registry.add(job)
    return registry


@pytest.mark.parametrize(("jobs", "used", "most"), [(40_000, 1_500, 8), (400_000, 4_080, 24)])
def test_jobs_are_spread_over_all_tables_and_those_that_come_together_lie_together(
    jobs: int, used: int, most: int
) -> None:
    registry = filled(jobs)
    lengths = [len(registry.table(number)) for number in range(TABLES)]
    assert not any(length % SHARERS for length in lengths)
    assert len(list(filter(None, lengths))) >= used
    # Of groups that are drawn for tables more than so many in one are seen once in 13 000 fillings.
    assert max(lengths) <= most * SHARERS


def test_old_ids_that_are_random_are_spread_over_all_tables() -> None:
    registry, random = Registry(), Random(1)
    for number in range(40_000):
        job = make_job(number)
        job.id = b"D-%b-%b-05a1" % (NODE_ID[:8], b64encode(random.randbytes(18)))
        registry.add(job)
    lengths = [len(registry.table(number)) for number in range(TABLES)]
    assert max(lengths) < 100


def test_what_is_no_id_is_not_known() -> None:
    for value in (b"", b"x", b"DI" + b"0" * 11):
        assert Registry().get(value) is None


def test_tables_are_given_from_a_number_on_and_empty_ones_are_passed_over() -> None:
    assert list(Registry().from_table(0)) == []
    registry = filled(100)
    tables = list(registry.from_table(0))
    numbers = [number for number, _ in tables]
    assert numbers == sorted(set(numbers))
    assert sum(len(jobs) for _, jobs in tables) == 100
    assert list(registry.from_table(numbers[3] + 1)) == tables[4:]
    assert list(registry.from_table(TABLES)) == []
