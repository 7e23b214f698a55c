"""What became of each job: as plain Python tells it of histories made at random, and case by case."""

from typing import TYPE_CHECKING, Any

import pytest

from disqued.pipeline.jobs.lifecycle import HOUR_US, day_of, days_of, lifecycle, start_us
from disqued.pipeline.tables import EVENTS
from tests.pipeline.histories import NODES, Line, Row, as_rows, became, history, key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = start_us("2026-11-22") + 12 * HOUR_US


def events(spark: "SparkSession", lines: list[Line]) -> "DataFrame":
    return spark.createDataFrame(as_rows(lines), EVENTS.schema)


def told(spark: "SparkSession", lines: list[Line], **more: Any) -> list[Row]:
    rows = lifecycle(events(spark, lines), NODES, **more).collect()
    return sorted((row.asDict() for row in rows), key=key)


def test_it_tells_what_plain_python_tells(spark: "SparkSession") -> None:
    lines = history(1, 800)
    assert told(spark, lines) == became(lines)


def test_a_day_by_itself_is_what_it_is_among_all(spark: "SparkSession") -> None:
    lines = history(3, 300)
    whole = became(lines)
    _, second, *more = sorted({row["date"] for row in whole})
    assert more
    assert told(spark, lines, days=[second], groups=False) == [
        row for row in whole if row["date"] == second and row["scope"] is None
    ]


def test_news_touch_every_day_on_which_a_row_of_their_jobs_may_be(spark: "SparkSession") -> None:
    lines = history(4, 300)
    # Whatever part of a job's lines is new: its row with them, and that without them, are on days that are touched.
    some, new = lines[::2], lines[1::2]
    touched = {row.date for row in days_of(events(spark, new)).collect()}
    assert "2026-11-19" not in touched
    jobs = {line.get("job_id") for line in new}
    for row in (*became(some), *became(lines)):
        if row["job_id"] in jobs:
            assert row["date"] in touched


# Case by case, all of them computed at once: a line is (milliseconds since noon, node, event, members).

Told = tuple[int, str, str, Line]
A, B, C = NODES
ADD: Line = {"ttl_s": 3600, "repl": 2, "size": 10}
ADDED: Told = (0, A, "add", ADD)
FIRST: Line = {"attempt": 1}
NIGHT = 12 * 3_600_000 - 1  #: a millisecond before midnight
MANY = [f"{number:08x}" for number in range(70)]
FLUSHED = "ffffffff"

CASES: dict[str, list[Told]] = {
    "peer": [ADDED, (5, B, "ack", {"reason": "peer"})],
    "peer, own": [
        ADDED, (5, B, "ack", {"reason": "peer"}), (9, A, "ack", {"run_us": 3}), (9, C, "expire", {}),
    ],
    "unknown": [ADDED, (5, B, "ack", {"reason": "fast-unknown", "queue": None})],
    "unseen": [
        ADDED,
        (1, A, "deliver", {**FIRST, "wait_us": 1_000}),
        (2, A, "requeue", {**FIRST, "reason": "unseen"}),
        (7, A, "deliver", {**FIRST, "wait_us": 5_000}),
    ],
    "left": [ADDED, (1, B, "replicate", {}), (9, A, "leave", {"peer": B}), (9, B, "enqueue", {})],
    "dead": [
        (0, A, "add", {**ADD, "max_tries": 1}), (1, A, "deliver", FIRST), (2, A, "nack", {"failure": "no such host"}),
        (2, A, "dead", {"failure": "no such host"}), (3, B, "dead", {"reason": "peer"}),
    ],
    "redriven": [
        ADDED, (2, A, "dead", {}), (5, A, "redriven", {}), (6, A, "deliver", {"attempt": 2}),
        (7, A, "ack", {"result_size": 12}),
    ],
    "cancelled": [ADDED, (2, A, "cancelled", {}), (2, B, "ack", {"reason": "peer"})],
    "purged": [
        ADDED, (2, B, "cancelled", {"reason": "peer"}), (3, A, "cancelled", {}), (4, B, "ack", {"reason": "peer"}),
    ],
    "refused": [ADDED, (9, A, "refuse", {"reason": "norepl"})],
    "expired": [ADDED, (9, A, "expire", {}), (9, B, "expire", {})],
    "one moment": [
        ADDED, (1, A, "deliver", FIRST), (9, A, "requeue", FIRST), (9, A, "deliver", {"attempt": 2}),
    ],
    "flushed": [(0, FLUSHED, "add", ADD)],
    "flushed, copied": [(0, FLUSHED, "add", ADD), (1, B, "replicate", {})],
    "flushed, came back": [(0, FLUSHED, "add", ADD), (5, FLUSHED, "deliver", {})],
    "flushed in its moment": [(4, FLUSHED, "add", ADD), (4, FLUSHED, "deliver", {})],
    "came in the moment of a flush": [(4, FLUSHED, kind, ADD) for kind in ("add", "deliver", "nack")],
    "many nodes": [(0, node, "replicate", {"age_us": 0}) for node in MANY],
    "at midnight": [(NIGHT, A, "add", ADD), (NIGHT + 5, B, "replicate", {"age_us": 0})],
    "at midnight, no add": [(NIGHT + 5, B, "replicate", {"age_us": 0})],
}  # fmt: skip


@pytest.fixture(scope="module")
def cases(spark: "SparkSession") -> dict[str, Row]:
    made: list[Line] = []
    for name, lines in CASES.items():
        for seq, (ms, node, event, members) in enumerate(lines, 1):
            ts_us = NOON + ms * 1_000
            common = {"v": 1, "boot": 7, "seq": seq, "ts_us": ts_us, "event": event, "job_id": name, "queue": "q"}
            age = {} if event == "add" else {"age_us": ms * 1_000}
            made.append({**common, **age, "node": node, "date": day_of(ts_us), **members})
    nodes, flushes = [*NODES, FLUSHED, *MANY], {FLUSHED: [(NOON - 1_000, 1), (NOON + 3_000, 2), (NOON + 4_000, 2)]}
    rows = lifecycle(events(spark, made), nodes, flushes=flushes, groups=False).collect()
    return {row.job_id: row.asDict() for row in rows}


def test_of_acks_only_those_of_clients_count_but_any_is_an_end(cases: dict[str, Row]) -> None:
    row = cases["peer"]
    assert (row["acks"], row["end"], row["ended_us"]) == (0, "ack", NOON + 5_000)
    row = cases["peer, own"]
    assert (row["acks"], row["end"], row["ended_us"], row["run_us"]) == (1, "ack", NOON + 9_000, 3)
    row = cases["unknown"]
    assert (row["acks"], row["end"], row["nodes"]) == (0, None, 1)


def test_a_delivery_that_nobody_saw_is_none(cases: dict[str, Row]) -> None:
    row = cases["unseen"]
    assert (row["deliveries"], row["requeues"]) == (1, 0)
    assert (row["first_deliver_us"], row["wait_us"]) == (NOON + 7_000, 5_000)


def test_a_job_is_open_until_something_ends_it(cases: dict[str, Row]) -> None:
    row = cases["left"]
    assert (row["end"], row["ended_us"], row["last_event"], row["nodes"]) == (None, None, "enqueue", 2)
    assert cases["refused"]["end"] == "refuse"
    assert cases["expired"]["end"] == "expire"


def test_a_dead_job_is_open_and_a_cancelled_one_is_not(cases: dict[str, Row]) -> None:
    row = cases["dead"]
    assert (row["end"], row["last_event"], row["max_tries"]) == (None, "dead", 1)
    assert (row["dead_us"], row["redriven_us"]) == (NOON + 3_000, None)
    row = cases["redriven"]
    assert (row["end"], row["result_size"], row["dead_us"], row["redriven_us"]) == (
        "ack", 12, NOON + 2_000, NOON + 5_000,
    )  # fmt: skip
    for case in ("cancelled", "purged"):
        row = cases[case]
        assert (row["end"], row["ended_us"], row["acks"]) == ("cancelled", NOON + 2_000, 0)


def test_what_happens_in_one_moment_is_in_the_order_of_the_numbers(cases: dict[str, Row]) -> None:
    row = cases["one moment"]
    assert (row["last_event"], row["deliveries"], row["requeues"]) == ("deliver", 2, 1)


def test_a_flush_ends_what_no_other_node_has(cases: dict[str, Row]) -> None:
    row = cases["flushed"]
    assert (row["end"], row["ended_us"], row["age_us"]) == ("flush", NOON + 3_000, 3_000)
    assert cases["flushed, copied"]["end"] is None
    assert cases["flushed, came back"]["end"] is None
    row = cases["flushed in its moment"]
    assert (row["end"], row["ended_us"]) == ("flush", NOON + 4_000)
    assert cases["came in the moment of a flush"]["end"] is None


def test_more_nodes_than_a_number_has_bits_are_counted(cases: dict[str, Row]) -> None:
    assert cases["many nodes"]["nodes"] == 70


def test_the_day_of_a_job_is_that_of_its_add(cases: dict[str, Row]) -> None:
    assert cases["at midnight"]["date"] == "2026-11-22"
    assert cases["at midnight, no add"]["date"] == "2026-11-23"
