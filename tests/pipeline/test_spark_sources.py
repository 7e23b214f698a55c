"""Stores, groups and event logs under Spark itself: planned, run by workers that are processes, from checkpoints."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from disqued.pipeline.connector.store_rows import JOBS
from tests import databases, journals
from tests.integration.daemon import HOST, Daemon


def test_a_table_of_stores(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("journal", "database"):
        (tmp_path / name).mkdir()
    journal, _ = journals.opened(tmp_path / "journal")
    journals.put(journal, b"one", b"two")
    journal.close()
    database, _ = databases.opened(tmp_path / "database")
    database.put_bodies(b"three", b"four", b"five")
    database.end()
    stores = spark.read.format("disqued").options(states="expired", minPartitions=4)
    jobs = stores.load(f"{tmp_path}/journal,{tmp_path}/data*")
    assert jobs.schema == JOBS
    assert jobs.rdd.getNumPartitions() == 3
    found = jobs.where("body <> 'two'").selectExpr("string(body) body").collect()
    assert sorted(row.body for row in found) == ["five", "four", "one", "three"]
    assert spark.read.format("disqued").option("records", "done").load(f"{tmp_path}/database").count() == 0
    with pytest.raises(PySparkException, match=r"the option path: '/no/store' is not there, nor is a journal"):
        spark.read.format("disqued").load("/no/store").collect()


def test_a_log_becomes_files_for_a_group_and_all_is_done(
    spark: SparkSession, daemon: Daemon, queue: str, tmp_path: Path
) -> None:
    def run() -> None:
        events = spark.readStream.format("disqued").options(address=f"{HOST}:{daemon.port}", queues=queue, group="g")
        sink = events.option("maxJobsPerTrigger", 15).load().writeStream.format("parquet")
        sink = sink.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True)
        sink.start(str(tmp_path / "out")).awaitTermination()

    for number in range(40):
        daemon.call("QADD", queue, 900, f"{number:02}")
    run()
    daemon.call("QADD", queue, 900, "40")
    run()
    rows = spark.read.parquet(str(tmp_path / "out")).selectExpr("string(body) body").collect()
    assert sorted(row.body for row in rows) == [f"{number:02}" for number in range(41)]
    [[_, [_, status]]] = daemon.call("QSTATUS", queue, "GROUPS", "g")
    figures = dict(zip(status[::2], status[1::2], strict=True))
    assert (figures["total"], figures["done"]) == (41, 41), "all are acknowledged, the last batch, too"
