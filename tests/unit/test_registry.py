"""The registry: a dict that grows in small steps, and that can be walked while it changes."""

from base64 import b64encode
from random import Random

from disqued.core.ids import JobIds
from disqued.core.registry import TABLES, Registry
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


def test_ids_that_are_random_are_spread_over_all_tables() -> None:
    registry, ids = Registry(), JobIds(NODE_ID, b"seed")
    for number in range(40_000):
        job = make_job(number)
        job.id = ids.next(b"05a0SQ")
        registry.add(job)
    lengths = [len(registry.table(number)) for number in range(TABLES)]
    assert 0 < min(lengths) <= max(lengths) < 40


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
    registry = Registry()
    assert list(registry.from_table(0)) == []
    for number in range(100):
        registry.add(make_job(number))
    tables = list(registry.from_table(0))
    numbers = [number for number, _ in tables]
    assert numbers == sorted(set(numbers))
    assert sum(len(jobs) for _, jobs in tables) == 100
    assert list(registry.from_table(numbers[3] + 1)) == tables[4:]
    assert list(registry.from_table(TABLES)) == []


def test_no_table_holds_much_more_than_its_share() -> None:
    registry = Registry()
    for number in range(10 * TABLES):
        registry.add(make_job(number))
    assert max(len(jobs) for _, jobs in registry.from_table(0)) < 4 * 10
