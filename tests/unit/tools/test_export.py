"""Every record has its row, and rows come back from both formats as they were."""

import io
import json
from base64 import b64decode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from disqued.core.model.fate import NO_FATE, Failure, Fate, Word
from disqued.core.model.job import ACKED, ACTIVE, KIND_LOG, StoredJob
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
from disqued.core.model.queues import PAUSE_IN, PAUSE_OUT
from disqued.core.model.terms import NO_TERMS, Terms
from disqued.pipeline.connector.exports import record_of
from disqued.tools.export import JsonLines, row, text
from disqued.tools.exportcolumns import COLUMNS, Row
from disqued.tools.parquet import BYTES_PER_GROUP, ROWS_PER_GROUP, Parquet
from disqued.tools.running import ToolError
from tests.schedule_values import LAST, NIGHTLY

ID = b"DI" + b"0" * 44 + b"SQ"
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "import-export.md"
NAMES = [column.name for column in COLUMNS]


def stored(number: int = 1, body: bytes = b"\xff\x00body") -> StoredJob:
    return StoredJob(
        id=ID, queue=b"mail", body=body, state=ACTIVE, flags=0, replicate=2, holders=None,
        ctime=1_700_000_000_123_000_000 + number, expires=1_700_000_060_123, requeue=1_700_000_010_000, ttl_ms=60_000,
        retry_ms=10_000, delay_ms=500, nacks=3, additional_deliveries=4, order_key=0,
    )  # fmt: skip


TERMS = Terms(3, 1_000, 60_000, 86_400_000, 3_600_000, ((b"trace", b"ab\\\xff"),), b"acme \xff")
FATE = Fate(
    generation=1, is_dead=True, spent=2, failures=(Failure(1_700_000_000_500, b"a" * 40, b"ann", b"no host \xff"),),
    progress=Word(1_700_000_000_400, b"a" * 40, b"half"),
)  # fmt: skip


def test_terms_and_fate_are_json_and_come_back_as_they_were() -> None:
    told = dict(zip(NAMES, row((JOB_ADDED, stored()._replace(terms=TERMS, fate=FATE))), strict=True))
    assert json.loads(str(told["terms"])) == {
        "max_tries": 3, "backoff_ms": 1_000, "backoff_most_ms": 60_000, "keep_dead_ms": 86_400_000,
        "keep_result_ms": 3_600_000, "headers": [["trace", "ab\\\\\\xff"]], "group": "acme \\xff",
    }  # fmt: skip
    assert json.loads(str(told["fate"])) == {
        "generation": 1, "is_dead": True, "spent": 2,
        "progress": {"at": 1_700_000_000_400, "node": "a" * 40, "value": "half"},
        "failures": [{"at": 1_700_000_000_500, "node": "a" * 40, "who": "ann", "reason": "no host \\xff"}],
    }  # fmt: skip
    _, back = record_of(told)
    assert (back.terms, back.fate) == (TERMS, FATE)
    done = stored(1, b"")._replace(state=ACKED)
    assert record_of(dict(zip(NAMES, row((JOB_ADDED, done)), strict=True)))[1] == done._replace(requeue=0)
    plain = dict(zip(NAMES, row((JOB_ADDED, stored())), strict=True))
    assert (plain["terms"], plain["fate"]) == (None, None)
    _, back = record_of(plain)
    assert back.terms is NO_TERMS
    assert back.fate is NO_FATE


RECORDS: list[tuple[Record, dict[str, object]]] = [
    (
        (JOB_ADDED, stored()),
        {
            "event": "added", "at": 1_700_000_000_123, "id": ID.decode(), "queue": "mail", "body": b"\xff\x00body",
            "ctime": 1_700_000_000_123_000_001, "ttl_ms": 60_000, "retry_ms": 10_000, "delay_ms": 500, "replicate": 2,
            "nacks": 3, "additional_deliveries": 4, "expires": 1_700_000_060_123, "kind": "work",
        },
    ),
    (
        (JOB_ADDED, stored(2, b"")._replace(kind=KIND_LOG, alias=b"e\\\xff")),
        {
            "event": "added", "at": 1_700_000_000_123, "id": ID.decode(), "queue": "mail", "body": b"",
            "ctime": 1_700_000_000_123_000_002, "ttl_ms": 60_000, "retry_ms": 10_000, "delay_ms": 500, "replicate": 2,
            "nacks": 3, "additional_deliveries": 4, "expires": 1_700_000_060_123, "kind": "log",
            "alias": r"e\\\xff",
        },
    ),
    (
        (JOB_ADDED, stored(3, b"")._replace(state=ACKED)),
        {
            "event": "acked", "at": 1_700_000_000_123, "id": ID.decode(), "queue": "mail",
            "ctime": 1_700_000_000_123_000_003, "ttl_ms": 60_000, "retry_ms": 10_000, "delay_ms": 500, "replicate": 2,
            "nacks": 3, "additional_deliveries": 4, "expires": 1_700_000_060_123, "kind": "work",
        },
    ),
    (
        (UNIT_LEASED, ID, b"", 1, b"", 5),
        {"event": "leased", "at": 5, "id": ID.decode(), "scope": "", "worker": "", "deliveries": 1},
    ),
    (
        (UNIT_LEASED, ID, b"group", 2**32 - 1, b"w\xfe", 6),
        {
            "event": "leased", "at": 6, "id": ID.decode(), "scope": "group", "worker": r"w\xfe",
            "deliveries": 2**32 - 1,
        },
    ),
    ((UNIT_DONE, ID, b"", 7), {"event": "done", "at": 7, "id": ID.decode(), "scope": ""}),
    ((UNIT_DONE, ID, b"group", 8), {"event": "done", "at": 8, "id": ID.decode(), "scope": "group"}),
    ((JOB_GONE, ID, GONE_EXPIRED, 9), {"event": "gone", "at": 9, "id": ID.decode(), "reason": "expired"}),
    ((FLUSHED, 10), {"event": "flushed", "at": 10}),
    ((QUEUE_PAUSED, b"a\\\xff", PAUSE_IN, 11), {"event": "paused", "at": 11, "queue": r"a\\\xff", "pause": "in"}),
    (
        (QUEUE_PAUSED, b"", PAUSE_IN | PAUSE_OUT, 12),
        {"event": "paused", "at": 12, "queue": "", "pause": "all"},
    ),
    (
        (POLICY, b"q", 0, Register(3, b"a" * 40, 16, PauseSetting(PAUSE_IN, b"deploy", b"ops"))),
        {"event": "policy", "at": 16, "queue": "q", "pause": "in", "reason": "deploy", "worker": "ops"},
    ),
    (
        (POLICY, b"q", 1, Register(3, b"a" * 40, 17, (60,))),
        {"event": "policy", "at": 17, "queue": "q", "scope": "ttl", "reason": "60"},
    ),
    (
        (POLICY, b"nightly", 32, Register(3, b"a" * 40, 17, NIGHTLY)),
        {
            "event": "policy", "at": 17, "queue": "nightly", "scope": "schedule", "reason": "0 2 * * *",
            "body": b"sales\0",
        },
    ),
    (
        (POLICY, b"nightly", 34, Register(3, b"a" * 40, 17, LAST)),
        {
            "event": "policy", "at": 17, "queue": "nightly", "scope": "schedule-fired", "id": LAST.job_id.decode(),
        },
    ),
    ((QUEUE_PAUSED, b"q", 0, 13), {"event": "paused", "at": 13, "queue": "q", "pause": "none"}),
    (
        (GROUP, b"a\\\xff", b"1:g\xfe", ((b"0123abcd", 1_700_000_000_123_456_789), (b"89abcdef", 0)), 14),
        {
            "event": "begun", "at": 14, "queue": r"a\\\xff", "scope": r"1:g\xfe",
            "floor": '{"0123abcd":1700000000123456789,"89abcdef":0}',
        },
    ),
    ((GROUP, b"q", b"", (), 15), {"event": "begun", "at": 15, "queue": "q", "scope": "", "floor": "{}"}),
]  # fmt: skip


@pytest.mark.parametrize(("record", "says"), RECORDS)
def test_a_record_has_its_row(record: Record, says: dict[str, object]) -> None:
    assert dict(zip(NAMES, row(record), strict=True)) == dict.fromkeys(NAMES) | says


def test_a_record_that_is_not_known_is_not_passed_over() -> None:
    with pytest.raises(ToolError, match="a record of kind 99"):
        row((99, b"what"))


@given(st.binary(max_size=30))
def test_a_name_of_any_bytes_can_be_turned_back(name: bytes) -> None:
    shown = text(name)
    shown.encode("utf-8")
    back = bytearray()
    rest = shown
    while rest:
        if rest.startswith("\\\\"):
            back, rest = back + b"\\", rest[2:]
        elif rest.startswith("\\x"):
            back, rest = back + bytes.fromhex(rest[2:4]), rest[4:]
        else:
            back, rest = back + rest[0].encode(), rest[1:]
    assert bytes(back) == name


def rows() -> list[Row]:
    return [row(record) for record, _ in RECORDS]


def test_a_line_has_every_column_and_the_body_in_base64() -> None:
    file = io.BytesIO()
    lines = JsonLines(file)
    for one in rows():
        lines.write(one)
    lines.close()
    assert file.getvalue().endswith(b"\n")
    read = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [list(line) for line in read] == [NAMES] * len(RECORDS)
    for line in read:
        line["body"] = None if line["body"] is None else b64decode(line["body"])
    assert [tuple(line.values()) for line in read] == rows()


def test_parquet_has_the_same_columns_and_rows() -> None:
    file = io.BytesIO()
    table = Parquet(file)
    for one in rows():
        table.write(one)
    table.close()
    read = parquet.read_table(io.BytesIO(file.getvalue()))
    assert read.column_names == NAMES
    assert [tuple(line.values()) for line in read.to_pylist()] == rows()
    assert {field.name: str(field.type) for field in read.schema} == {
        column.name: {"text": "string", "integer": "int64", "bytes": "binary"}[column.kind] for column in COLUMNS
    }


def test_an_export_of_nothing_is_a_table_without_rows() -> None:
    file = io.BytesIO()
    Parquet(file).close()
    read = parquet.read_table(io.BytesIO(file.getvalue()))
    assert (read.column_names, read.num_rows) == (NAMES, 0)


def groups(written: list[Row]) -> list[int]:
    """The rows of each row group."""
    file = io.BytesIO()
    table = Parquet(file)
    for one in written:
        table.write(one)
    table.close()
    about = parquet.ParquetFile(io.BytesIO(file.getvalue())).metadata
    return [about.row_group(number).num_rows for number in range(about.num_row_groups)]


def test_row_groups_are_bounded_by_their_rows() -> None:
    assert groups([row((FLUSHED, 1))] * (2 * ROWS_PER_GROUP + 1)) == [ROWS_PER_GROUP, ROWS_PER_GROUP, 1]


def test_row_groups_are_bounded_by_their_bodies() -> None:
    large = row((JOB_ADDED, stored(1, bytes(BYTES_PER_GROUP // 2))))
    assert groups([large] * 5) == [2, 2, 1]


def test_the_page_describes_every_column_as_it_is() -> None:
    lines = PAGE.read_text().splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:4]] for line in lines if line.startswith("| `")]
    forms = {"text": ["text", "string"], "integer": ["integer", "int64"], "bytes": ["base64", "binary"]}
    assert cells == [[f"`{column.name}`", *forms[column.kind]] for column in COLUMNS]
