"""The doctor: what it finds in lifecycles, what it leaves alone, and what it says to do."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from disqued.pipeline.command import main_group
from disqued.pipeline.jobs.doctor import ADVICE, DoctorThresholds, diagnosed, until
from disqued.pipeline.tables import FINDINGS, LIFECYCLE, Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW_S = 1_800_000_000
DAY = "2027-01-15"


def job(name: str, queue: str, age_s: float, *, delivered_s: float | None = None, **more: Any) -> dict[str, Any]:
    """A row of the lifecycle: of a job that was added so long ago, and delivered so long ago."""
    delivered = None if delivered_s is None else int((NOW_S - delivered_s) * 1e6)
    row = {field.split()[0]: None for field in LIFECYCLE.schema.split(", ")}
    return row | {
        "job_id": name, "queue": queue, "created_us": int((NOW_S - age_s) * 1e6), "last_us": NOW_S * 1_000_000,
        "first_deliver_us": delivered, "last_deliver_us": delivered, "deliveries": 0 if delivered is None else 1,
        "nacks": 0, "requeues": 0, "acks": 0, "date": DAY, **more,
    }  # fmt: skip


DONE: dict[str, Any] = {"end": "ack", "delivered_s": 4.0}
JOBS = [
    # A queue as it should be: some done, one just taken, one that has just come, one that is not due.
    job("D1", "good", 5, **DONE),
    job("D2", "good", 3_000, delivered_s=2_000),
    job("D3", "good", 60),
    job("D4", "good", 9_000, delay_s=20_000.0),
    job("D5", "stuck", 9_000, delivered_s=8_000.0),
    job("D6", "stuck", 9_500, delivered_s=9_000.0),
    job("D7", "stuck", 9_500, delivered_s=9_000.0, end="ack"),
    job("F1", "once", 9_500, delivered_s=9_000.0, retry_s=0.0),
    job("D8", "hot", 900, requeues=12, end="ack", delivered_s=3.0),
    job("D9", "hot", 800, requeues=9, end="ack", delivered_s=3.0),
    job("E1", "sick", 900, nacks=5, delivered_s=3.0),
    job("E2", "sick", 950, nacks=7, delivered_s=3.0),
    job("E3", "desert", 900),
    job("E4", "desert", 700),
    job("E5", "left", 900),
    job("E6", "left", 5_000, delivered_s=4_000.0, end="ack"),
    job("E7", "late", 900, end="expire", ttl_s=60.0),
    # An event of a log that nobody takes out of its queue, and what groups do with it.
    job("E8", "news", 9_000),
    job("E8", "news", 9_000, scope="0:mail", delivered_s=10.0, end="ack"),
    job("E8", "news", 9_000, scope="0:bill", delivered_s=8_000.0),
]


@pytest.fixture(scope="module")
def tables(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Tables:
    tables = Tables(spark, str(tmp_path_factory.mktemp("tables")))
    tables.replace(LIFECYCLE, spark.createDataFrame(JOBS, LIFECYCLE.schema))
    return tables


def test_each_kind_is_found_where_it_is_and_nowhere_else(tables: Tables) -> None:
    jobs = tables.read(LIFECYCLE)
    assert until(jobs) == NOW_S * 1_000_000
    rows = sorted(tuple(row) for row in diagnosed(jobs, until(jobs)).collect())
    found = [(kind, queue, job_id, count, NOW_S - since // 1_000_000) for kind, queue, job_id, count, since, _ in rows]
    assert found == [
        ("hot", "hot", "D8", 1, 900),
        ("no_consumers", "desert", "E3", 2, 900),
        ("no_consumers", "left", "E5", 1, 900),
        ("poison", "sick", "E2", 2, 950),
        ("stuck", "news", "E8", 1, 9_000),
        ("stuck", "stuck", "D6", 2, 9_500),
        ("unseen", "late", "E7", 1, 900),
    ]
    assert [detail for *_, detail in rows] == [
        "queued again 12 times, at most", "nobody has had a job of it", "the last delivery was 4000 s ago",
        "given back 7 times, at most", "delivered 8000 s ago, at most", "delivered 9000 s ago, at most",
        "expired after 60 s, at most",
    ]  # fmt: skip


def test_what_is_worth_telling_may_be_chosen(tables: Tables) -> None:
    jobs = tables.read(LIFECYCLE)
    patient = DoctorThresholds(stuck_us=10**11, idle_us=10**11, hot=100, poison=100)
    assert [row.kind for row in diagnosed(jobs, until(jobs), patient).collect()] == ["unseen"]
    strict = diagnosed(jobs, until(jobs), DoctorThresholds(hot=9, poison=1)).where("kind = 'hot'").collect()
    assert [(row.queue, row["count"]) for row in strict] == [("hot", 2)]


def test_the_verb_says_what_to_do_and_keeps_what_it_found(tables: Tables, tmp_path: Path) -> None:
    reports = tmp_path / "reports.sqlite"
    told = CliRunner().invoke(main_group, ["doctor", "--tables", tables.root, "--reports", str(reports)])
    assert told.exit_code == 0, told.output
    assert told.stdout.startswith("poison: 2 jobs in 1 queues\n  sick: 2 jobs, the oldest of 2027-01-15 07:44:10 UTC;")
    for advice in ADVICE.values():
        assert " ".join(advice.split()[:6]) in " ".join(told.stdout.split())
    assert tables.read(FINDINGS).count() == 7
    failed = CliRunner().invoke(main_group, ["doctor", "--tables", tables.root, "--fail"])
    assert failed.exit_code == 1
    fine = CliRunner().invoke(main_group, ["doctor", "--tables", tables.root, "--since", "2027-02-01", "--fail"])
    assert (fine.exit_code, fine.stdout) == (
        0, "nothing found: no job is stuck or fails again and again, and no queue is deserted\n",
    )  # fmt: skip
    assert tables.read(FINDINGS).count() == 0


def test_lifecycles_that_are_not_there_are_named(spark: "SparkSession", tmp_path: Path) -> None:
    refused = CliRunner().invoke(main_group, ["doctor", "--tables", str(tmp_path)])
    assert "the verb lifecycle makes them" in str(refused.exception)
