"""Rows of the SQLite store: what is read is what was written, and no column changes unnoticed."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from disqued.core.model.fate import NO_FATE, Fate
from disqued.core.model.groups import new_job
from disqued.core.model.job import ACKED, ACTIVE, KIND_LOG, KIND_WORK, RETRY_NEVER_MS, STAMP_MAX, JobOptions
from disqued.core.model.outbox import (
    FLUSHED,
    GONE_EXPIRED,
    GROUP,
    JOB_ADDED,
    JOB_GONE,
    POLICY,
    QUEUE_PAUSED,
    UNIT_DONE,
    UNIT_LEASED,
    Record,
)
from disqued.core.model.policies import PauseSetting, Register
from disqued.core.model.terms import NO_TERMS, Terms
from disqued.persistence.sqlite import rows
from disqued.persistence.sqlite.rows import BadRow, Row, noted
from tests.fates import FATE, TERMS
from tests.schedule_values import LAST, NIGHTLY, REFUSED

ID = b"DI" + b"0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0" + b"SQ"
LATIN_ID = b"DI" + b"\xe9" * 44 + b"SQ"
WALL: Final = 1_700_000_000_000
LARGE: Final = bytes(range(256)) * 400  #: more than 64 KiB, and no text


def a_job(
    job_id: bytes = ID, *, alias: bytes = b"", kind: int = KIND_WORK, holders: bool = False, body: bytes = b"body",
    state: int = ACTIVE, terms: Terms = NO_TERMS, fate: Fate = NO_FATE,
) -> Record:  # fmt: skip
    """A job of which no two numbers are the same."""
    options = JobOptions(
        ttl_ms=RETRY_NEVER_MS, retry_ms=2_002, delay_ms=3_003, replicate=404, kind=kind, terms=terms, fate=fate
    )
    job = new_job(job_id, b"queue", body, STAMP_MAX, options, alias=alias)
    job.expires_at, job.requeue_at, job.order_key = 6_006, 7_007, -STAMP_MAX
    job.nacks, job.additional_deliveries, job.flags, job.state = 9, 10, 3, state
    job.holders = frozenset({b"a" * 40, b"b" * 40}) if holders else None
    return (JOB_ADDED, job)


def as_read(row: Row) -> Row:
    """A row as a connection answers it that reads TEXT as bytes."""
    return tuple(value.encode() if isinstance(value, str) else value for value in row)


def others(value: Any) -> list[Any]:
    """Values that a damaged column may have in its place."""
    if value is None:
        return [b"x", 0]
    if isinstance(value, int):
        return [value + 1, value - 1, value ^ 1 << 20, -value - 1, *([] if value else [None])]
    flips = [
        bytes((*value[:at], value[at] ^ 1, *value[at + 1 :])) for at in {0, len(value) // 2, len(value) - 1} if value
    ]
    return [value + b"x", value[:-1] or b"y", *flips, None]


def job_of(row: Row) -> Record:
    (record,) = rows.job_records([row])
    return record


JOBS: dict[str, Record] = {
    "plain": a_job(),
    "latin": a_job(LATIN_ID),
    "held": a_job(holders=True),
    "named": a_job(alias=b"alias"),
    "promised": a_job(terms=TERMS),
    "fated": a_job(fate=FATE),
    "both": a_job(terms=TERMS, fate=FATE, holders=True),
    "event": a_job(kind=KIND_LOG, alias=b"\xff"),
    "all": a_job(kind=KIND_LOG, alias=b"alias", holders=True, body=LARGE, state=ACKED),
}
#: What is written, how it becomes a row, and how that is read.
OTHERS: dict[str, tuple[Record, Callable[[Any], Row], Callable[[Row], Record]]] = {
    "done": (
        (UNIT_DONE, ID, b"0:group"),
        lambda note: rows.fact_row(note, None),
        lambda row: rows.fact_record(UNIT_DONE, row),
    ),
    "gone": (
        (JOB_GONE, ID, GONE_EXPIRED),
        lambda note: rows.fact_row(note, noted([a_job()], 1, WALL, 0)[0]),
        lambda row: rows.fact_record(JOB_GONE, row),
    ),
    "leased": ((UNIT_LEASED, ID, b"0:group", 3, b"worker"), rows.lease_row, rows.lease_record),
    "group": (
        (GROUP, b"queue", b"0:group", ((b"01234567", 5), (b"abcdef01", STAMP_MAX))),
        rows.group_row,
        rows.group_record,
    ),
    "paused": ((QUEUE_PAUSED, b"queue \xff", 2), lambda note: rows.pause_row(*note[1:]), rows.pause_record),
    "policy": (
        (POLICY, b"queue \xff", 0, Register(7, b"a" * 40, WALL, PauseSetting(2, "Störung".encode(), b"ops"))),
        rows.policy_row,
        rows.policy_record,
    ),
    "policy, numbers": (
        (POLICY, b"queue", 4, Register(7, b"a" * 40, WALL, (2**63 - 1,))), rows.policy_row, rows.policy_record,
    ),
    "policy, schedule": (
        (POLICY, b"nightly \xff", 32, Register(7, b"a" * 40, WALL, NIGHTLY)), rows.policy_row, rows.policy_record,
    ),
    "policy, schedule, deleted": (
        (POLICY, b"nightly", 32, Register(8, b"a" * 40, WALL, ())), rows.policy_row, rows.policy_record,
    ),
    "policy, last job of a schedule": (
        (POLICY, b"nightly", 34, Register(WALL, b"a" * 40, WALL, LAST)),
        rows.policy_row, rows.policy_record,
    ),
    "policy, last refusal of a schedule": (
        (POLICY, b"nightly", 35, Register(WALL, b"a" * 40, WALL, REFUSED)), rows.policy_row, rows.policy_record,
    ),
    "policy, unset": ((POLICY, b"queue", 1, Register(7, b"a" * 40, WALL, ())), rows.policy_row, rows.policy_record),
    "flushed": ((FLUSHED,), lambda note: rows.flush_row(note[1], note[2], 77), rows.flush_record),
}  # fmt: skip


@pytest.mark.parametrize("name", JOBS)
def test_a_job_is_read_as_it_was_written(name: str) -> None:
    job = JOBS[name][1]
    (note,) = noted([JOBS[name]], 5, WALL, 100_000)
    kind, stored = job_of(as_read(rows.job_row(note)))
    options = job.options
    assert kind == JOB_ADDED
    assert stored == (
        job.id, b"queue", job.body, job.state, 3, 404, job.holders, STAMP_MAX, 106_006, 107_007, options.ttl_ms,
        2_002, 3_003, 9, 10, -STAMP_MAX, options.kind, getattr(job, "alias", b""),
        options.terms, options.fate,
    )  # fmt: skip


@pytest.mark.parametrize("name", JOBS)
def test_no_column_of_a_job_changes_unnoticed(name: str) -> None:
    (note,) = noted([JOBS[name]], 5, WALL, 100_000)
    row = as_read(rows.job_row(note))
    assert len(row) == len(rows.JOB_COLUMNS)
    for at in range(len(row)):
        for value in others(row[at]):
            with pytest.raises(BadRow):
                job_of((*row[:at], value, *row[at + 1 :]))
    # Nor does a letter go over from one text to the next.
    queue, body = row[2], row[3]
    with pytest.raises(BadRow, match="the checksum is wrong"):
        job_of((*row[:2], queue + body[:1], body[1:], *row[4:]))


@pytest.mark.parametrize("name", OTHERS)
def test_what_happened_is_read_as_it_was_written(name: str) -> None:
    record, row_of, record_of = OTHERS[name]
    (note,) = noted([record], 5, WALL, 0)
    assert record_of(as_read(row_of(note))) == (record if name.startswith("policy") else (*record, WALL))


@pytest.mark.parametrize("name", OTHERS)
def test_no_column_of_what_happened_changes_unnoticed(name: str) -> None:
    record, row_of, record_of = OTHERS[name]
    (note,) = noted([record], 5, WALL, 0)
    row = as_read(row_of(note))
    for at in range(len(row)):
        for value in others(row[at]):
            if row[at] is None and name == "done":
                continue  # the queue and the time of a job that is not known
            with pytest.raises(BadRow):
                record_of((*row[:at], value, *row[at + 1 :]))


def test_a_letter_that_goes_over_to_the_next_text_is_told() -> None:
    for name, at in (("leased", 2), ("group", 1)):
        record, row_of, record_of = OTHERS[name]
        row = list(as_read(row_of(noted([record], 5, WALL, 0)[0])))
        following = 4 if name == "leased" else 2
        row[at], row[following] = row[at] + row[following][:1], row[following][1:]
        with pytest.raises(BadRow):
            record_of(tuple(row))


def test_what_sql_adds_to_a_job_that_is_over_makes_the_row_of_it() -> None:
    """SQL adds the checksum in the job's row to that of the news: that has to be the checksum of the whole."""
    (note,) = noted([(UNIT_DONE, ID, b"scope")], 5, WALL, 0)
    (job,) = noted([a_job()], 1, WALL, 0)
    sequence, text, tail, when, unknown, news = rows.news_row(note)
    fact = rows.job_row(job)[rows.JOB_COLUMNS.index("fact_crc")]
    whole = rows.fact_row(note, job)
    assert (sequence, text, tail, when) == (whole[0], whole[1], whole[2], whole[5])
    assert (fact + news) % 2**32 == whole[6]
    assert (unknown + news) % 2**32 == rows.fact_row(note, None)[6]
