"""Ids: their form, what they are made of, and which are accepted."""

from hashlib import shake_128

import pytest

from disqued.core.model.ids import BATCH, SHARERS, JobIds, is_job_id, is_node_id
from disqued.core.model.job import JobOptions
from tests.core_fixtures import NODE_ID, OLD_ID, UNKNOWN_ID, Server

SUFFIX = b"05a0SQ"


def suffix(ttl_ms: int) -> bytes:
    """The end of the id of a job with this TTL."""
    return JobOptions(ttl_ms=ttl_ms, retry_ms=1_000, delay_ms=0, replicate=1).ttl_suffix


def test_an_id_is_prefix_node_digest_ttl_and_suffix() -> None:
    job_id = JobIds(NODE_ID, b"seed").next(SUFFIX)
    assert len(job_id) == 48
    assert (job_id[:2], job_id[2:10], job_id[42:46], job_id[46:]) == (b"DI", NODE_ID[:8], b"05a0", b"SQ")


def test_the_middles_are_the_hash_of_seed_and_number_of_the_batch_piece_by_piece() -> None:
    ids = JobIds(NODE_ID, b"seed")
    for batch in range(1, 4):
        digits = shake_128(b"seed" + batch.to_bytes(8, "little"), usedforsecurity=False).hexdigest(4 * (2 + 14 * 16))
        middles = [ids.next(SUFFIX)[10:42].decode() for _ in range(BATCH)]
        groups = [middles[at : at + SHARERS] for at in range(0, BATCH, SHARERS)]
        assert all(len({middle[:4] for middle in group}) == 1 for group in groups)
        assert "".join(group[0][:4] + "".join(middle[4:] for middle in group) for group in groups) == digits


def test_ids_of_one_run_and_of_two_runs_all_differ() -> None:
    ids = [maker.next(SUFFIX) for maker in (JobIds(NODE_ID, b"one"), JobIds(NODE_ID, b"two")) for _ in range(5_000)]
    assert len(set(ids)) == 10_000


def test_two_starts_of_a_node_have_different_seeds() -> None:
    assert Server(seed=1).add() != Server(seed=2).add()


@pytest.mark.parametrize(
    ("ttl_ms", "field"),
    [
        (1_000, b"0000"),
        (59_999, b"0000"),
        (60_000, b"0001"),
        (3_600_000, b"003c"),
        (86_400_000, b"05a0"),
        (65_535 * 60_000, b"ffff"),
        (65_536 * 60_000, b"ffff"),
        (2**31 * 1_000, b"ffff"),
    ],
)
def test_the_ttl_field_is_minutes_in_hex_at_most_ffff(ttl_ms: int, field: bytes) -> None:
    assert suffix(ttl_ms) == field + b"SQ"


@pytest.mark.parametrize("job_id", [UNKNOWN_ID, OLD_ID, b"DI" + b"?" * 44 + b"SQ", b"D-" + b"x" * 8 + b"-" * 30])
def test_both_forms_of_a_job_id_are_accepted(job_id: bytes) -> None:
    assert is_job_id(job_id)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"DI",
        b"x",
        UNKNOWN_ID[:-1],
        UNKNOWN_ID + b"x",
        b"di" + UNKNOWN_ID[2:],
        UNKNOWN_ID[:-2] + b"sq",
        OLD_ID[:-1],
        OLD_ID + b"x",
        b"E" + OLD_ID[1:],
        OLD_ID[:1] + b"_" + OLD_ID[2:],
        OLD_ID[:10] + b"_" + OLD_ID[11:],
        OLD_ID[:35] + b"_" + OLD_ID[36:],
    ],
)
def test_anything_else_is_no_job_id(value: bytes) -> None:
    assert not is_job_id(value)


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        (NODE_ID, True),
        (b"0" * 40, True),
        (NODE_ID.upper(), False),
        (NODE_ID[:-1], False),
        (NODE_ID + b"0", False),
        (b"g" + NODE_ID[1:], False),
        (b"0" * 20 + b"." + b"0" * 19, False),
        (b"", False),
    ],
)
def test_a_node_id_is_forty_lower_case_hex_digits(value: bytes, accepted: bool) -> None:
    assert is_node_id(value) is accepted
