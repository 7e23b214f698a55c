"""What is remembered of jobs that are not here any more, and for how long."""

import pytest

from disqued.core.model.endings import HOW_BITS, KEPT, LEFT_BYTES, LEFT_KEPT, UNDER_WAY_MS, Endings, ending_of
from disqued.core.model.job import ACKED, ACTIVE, DEAD, KEYED, Job, NamedJob
from disqued.core.model.messages import (
    ENDED,
    ENDED_CANCELLED,
    ENDED_DEAD,
    ENDED_EXPIRED,
    GONE,
    NOT_KNOWN,
    UNDER_WAY,
    WAS_ACKED,
)
from disqued.core.model.outbox import GONE_DELETED, GONE_EVICTED, GONE_EXPIRED, GONE_REFUSED
from tests.core_fixtures import Server


def named(server: Server, job_id: bytes, key: bytes, queue: bytes = b"q") -> NamedJob:
    """A job with a key, which no node holds."""
    return NamedJob(job_id, queue, b"", 0, server.state.shared.options(1_000, 0, 0, 1), alias=KEYED + key)


def plain(server: Server, job_id: bytes) -> Job:
    """A job without a key, which no node holds."""
    return Job(job_id, b"q", b"", 0, server.state.shared.options(1_000, 0, 0, 1))


@pytest.fixture(name="endings")
def make_endings() -> Endings:
    return Endings()


@pytest.fixture(name="server")
def make_server() -> Server:
    return Server()


def test_an_end_is_remembered_and_only_what_is_done_is_refused(endings: Endings) -> None:
    endings.add(b"done")
    endings.note(b"expired", ENDED_EXPIRED, 300)
    assert [endings.of(job_id, 5) for job_id in (b"done", b"expired", b"never heard of")] == [
        ENDED, ENDED_EXPIRED, NOT_KNOWN
    ]  # fmt: skip
    assert [job_id in endings for job_id in (b"done", b"expired", b"never heard of")] == [True, False, False]
    assert [endings.tries_of(job_id) for job_id in (b"done", b"expired", b"never heard of")] == [0, 300, 0]


def test_what_is_remembered_of_an_end_takes_no_more_than_its_id(endings: Endings) -> None:
    # The numbers up to 256 are objects that are there anyway.
    assert WAS_ACKED < 1 << HOW_BITS
    assert 15 << HOW_BITS | WAS_ACKED <= 256
    endings.note(b"id", ENDED_CANCELLED, 15)
    assert (endings.of(b"id", 5), endings.tries_of(b"id")) == (ENDED_CANCELLED, 15)


@pytest.mark.parametrize(
    ("how", "known"),
    [(GONE, ENDED), (ENDED_EXPIRED, ENDED), (ENDED_CANCELLED, ENDED_CANCELLED)],
)
def test_of_two_ends_of_a_job_the_higher_counts(endings: Endings, how: int, known: int) -> None:
    endings.note(b"id", how, 2)
    endings.add(b"id")
    assert endings.of(b"id", 5) == known
    assert b"id" in endings


def test_each_kind_is_bounded_and_one_does_not_drive_the_other_out(endings: Endings) -> None:
    endings.add(b"first")
    endings.note(b"second", GONE, 1)
    for number in range(2 * KEPT):
        endings.note(b"%d" % number, ENDED_EXPIRED, 0)
    assert b"first" in endings
    assert endings.of(b"second", 5) == NOT_KNOWN
    assert endings.of(b"%d" % (KEPT + 1), 5) == ENDED_EXPIRED
    for number in range(2 * KEPT):
        endings.add(b"done %d" % number)
    assert b"first" not in endings
    assert b"done %d" % (2 * KEPT - 1) in endings
    assert endings.of(b"%d" % (2 * KEPT - 1), 5) == ENDED_EXPIRED


def test_a_job_that_leaves_is_under_way_for_a_moment(endings: Endings, server: Server) -> None:
    endings.leave(plain(server, b"id"), 10)
    assert [endings.of(b"id", now) for now in (10, 9 + UNDER_WAY_MS, 10 + UNDER_WAY_MS)] == [
        UNDER_WAY, UNDER_WAY, NOT_KNOWN
    ]  # fmt: skip
    endings.add(b"id")
    assert endings.of(b"id", 10) == ENDED


def test_few_jobs_that_left_are_remembered(endings: Endings, server: Server) -> None:
    for number in range(LEFT_KEPT + 1):
        endings.leave(named(server, b"id %d" % number, b"%d" % number), 10)
    endings.leave(named(server, b"another", b"5"), 20)
    found = [endings.under_way(b"q", KEYED + key, 20) for key in (b"0", b"2", b"5", b"l")]
    assert found == [b"", b"id 2", b"another", b""]
    assert endings.under_way(b"q", KEYED + b"2", 10 + UNDER_WAY_MS) == b""
    # Of two jobs of one key the last is named, also when the first is forgotten.
    for number in range(LEFT_KEPT - 1):
        endings.leave(plain(server, b"plain %d" % number), 20)
    assert endings.under_way(b"q", KEYED + b"5", 20) == b"another"
    endings.leave(plain(server, b"one more"), 20)
    assert endings.under_way(b"q", KEYED + b"5", 20) == b""


def test_jobs_with_keys_that_left_are_remembered_within_so_many_bytes(endings: Endings, server: Server) -> None:
    long = b"n" * 60_000
    for number in range(200):
        endings.leave(named(server, b"id %d" % number, b"k", b"%03d" % number + long), 5)
    last = b"199" + long
    assert endings.under_way(last, KEYED + b"k", 6) == b"id 199"
    assert endings.under_way(b"000" + long, KEYED + b"k", 6) == b""
    assert sum(len(queue) + len(alias) for queue, alias in endings._names) == endings._size <= LEFT_BYTES
    endings.leave(named(server, b"again", b"k", last), 7)
    assert endings.under_way(last, KEYED + b"k", 8) == b"again"


@pytest.mark.parametrize(
    ("state", "reason", "how"),
    [
        (ACTIVE, GONE_EXPIRED, ENDED_EXPIRED), (DEAD, GONE_EXPIRED, ENDED_DEAD), (DEAD, GONE_DELETED, GONE),
        (ACTIVE, GONE_DELETED, GONE), (ACTIVE, GONE_EVICTED, ENDED), (ACTIVE, GONE_REFUSED, GONE),
        (ACKED, GONE_EVICTED, ENDED), (ACKED, GONE_DELETED, ENDED),
    ],
)  # fmt: skip
def test_how_a_job_ends_that_is_dropped(server: Server, state: int, reason: bytes, how: int) -> None:
    job = plain(server, b"id")
    job.state = state
    assert ending_of(job, reason) == how
