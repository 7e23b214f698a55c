"""What is written by hand for the benchmark, in Spark SQL and in DuckDB, finds what the audit finds."""

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from benchmarks.spark.audit_sql import counted, found_by_duckdb, found_by_spark
from disqued.pipeline.audited import audited
from disqued.pipeline.events import is_event, read_events
from disqued.pipeline.jobs.verdicts import SEVERITY
from tests.pipeline.planted import plant, tell

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def in_spark(spark: "SparkSession", events: "DataFrame") -> dict[str, int]:
    return counted(*([row.asDict() for row in rows.collect()] for rows in found_by_spark(spark, events)))


def in_duckdb(files: str) -> dict[str, int]:
    import duckdb

    with duckdb.connect() as database:
        database.execute(f"CREATE VIEW events AS SELECT * FROM read_parquet('{files}')")
        return counted(*found_by_duckdb(database))


@pytest.mark.parametrize(("profile", "seed"), [("crashes", 11), ("storm", 21)])
def test_every_rule_written_by_hand_comes_to_the_verdict_of_the_audit(
    spark: "SparkSession", tmp_path: Path, profile: str, seed: int
) -> None:
    story, logs, table = tell(profile, seed, tmp_path / "told", hours=0.01), tmp_path / "logs", tmp_path / "table"
    for copy in range(12):
        story.write(logs, plant(story, Random(f"{profile} {copy}"), 8), copy)
    lines = read_events(spark, str(logs))
    lines.where(is_event()).write.parquet(str(table))
    counts = audited(lines).counts
    # Another story may have no room for each of them.
    assert profile != "crashes" or set(counts) == set(SEVERITY)
    assert in_spark(spark, spark.read.parquet(str(table))) == counts
    assert in_duckdb(f"{table}/*.parquet") == counts
