"""The connector under Spark itself: found by its name, planned, run by workers that are processes."""

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from disqued.pipeline.connector.rows import SCHEMA
from tests.integration.daemon import HOST, Daemon


def waiting(daemon: Daemon, queue: str) -> list[str]:
    return sorted(job[2] for job in daemon.call("QPEEK", queue, 1_000))


def test_a_table_of_live_queues(spark: SparkSession, daemon: Daemon, queue: str) -> None:
    for number in range(10):
        daemon.call("ADDJOB", queue, f"job {number}", 0)
    jobs = spark.read.format("disqued").options(address=f"{HOST}:{daemon.port}", queues=queue, minPartitions=3).load()
    assert jobs.schema == SCHEMA
    assert jobs.rdd.getNumPartitions() == 3
    found = jobs.selectExpr("queue", "string(body) body").where("body > 'job 6'").collect()
    assert sorted(map(tuple, found)) == [(queue, "job 7"), (queue, "job 8"), (queue, "job 9")]
    age = jobs.selectExpr("unix_timestamp(now()) - unix_timestamp(ctime) age").first()
    assert age is not None
    assert abs(age.age) < 300, "a time in UTC is read as one"


def test_an_empty_table_can_be_counted(spark: SparkSession, daemon: Daemon, queue: str) -> None:
    jobs = spark.read.format("disqued").options(address=f"{HOST}:{daemon.port}", queues=queue).load()
    assert jobs.count() == 0


def test_an_error_is_told_to_who_asked(spark: SparkSession, daemon: Daemon) -> None:
    source = spark.read.format("disqued").options(address=f"{HOST}:{daemon.port}", queus="q")
    with pytest.raises(PySparkException, match="disqued has no option 'queus'"):
        source.load()


def test_an_error_of_a_stream_names_the_call_of_streams(spark: SparkSession, daemon: Daemon, tmp_path: Path) -> None:
    options = {"address": f"{HOST}:{daemon.port}", "queues": "q"}
    with pytest.raises(PySparkException, match=r"options for spark.readStream are address, .*maxJobsPerTrigger"):
        spark.readStream.format("disqued").options(**options, maxJob="5").load()
    with pytest.raises(
        PySparkException, match="the option maxJobsPerTrigger cannot be '0'; allowed: 1 to 1000000 jobs"
    ):
        spark.readStream.format("disqued").options(**options, maxJobsPerTrigger="0").load()
    rows = spark.readStream.format("disqued").options(**options, states="active").load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(PySparkException, match=r"option states is for spark.read or .*, not for spark.readStream; opt"):
        query.awaitTermination()
    table = spark.read.format("disqued").options(address=options["address"], maxJobsPerTrigger="5").load()
    with pytest.raises(
        PySparkException, match=r"option maxJobsPerTrigger is for .*, not for spark.read; options for sp"
    ):
        table.count()


def test_rows_become_jobs_and_nothing_is_left_of_a_write_that_failed(
    spark: SparkSession, daemon: Daemon, queue: str
) -> None:
    rows = spark.range(0, 40, numPartitions=4)
    sink = {"address": f"{HOST}:{daemon.port}", "queue": queue}
    rows.selectExpr("concat('n ', id) body").write.format("disqued").options(**sink).mode("append").save()
    assert waiting(daemon, queue) == sorted(f"n {number}" for number in range(40))
    broken = rows.selectExpr("if(id = 39, raise_error('broken'), concat('n ', id)) body")
    with pytest.raises(PySparkException, match="broken"):
        broken.write.format("disqued").options(**sink).mode("append").save()
    assert daemon.call("QLEN", queue) == 40
    assert len(daemon.call("JSCAN", 0, "COUNT", 1_000, "QUEUE", queue)[1]) == 40, "nothing is prepared any more"


def test_a_batch_of_a_stream_that_is_run_again_adds_nothing_twice(
    spark: SparkSession, daemon: Daemon, queue: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.txt").write_text("".join(f"line {number}\n" for number in range(20)))

    def run() -> None:
        lines = spark.readStream.text(str(tmp_path / "in")).withColumnRenamed("value", "body")
        sink = lines.writeStream.format("disqued").options(address=f"{HOST}:{daemon.port}", queue=queue)
        query = sink.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
        query.awaitTermination()

    run()
    assert daemon.call("QLEN", queue) == 20
    # As if the driver had been killed before it noted that the batch is done.
    [done] = (tmp_path / "state" / "commits").glob("0")
    assert "nextBatchWatermarkMs" in json.loads(done.read_text().splitlines()[1])
    done.unlink()
    (tmp_path / "state" / "commits" / ".0.crc").unlink()
    run()
    assert daemon.call("QLEN", queue) == 20
    assert sorted(waiting(daemon, queue)) == sorted(f"line {number}" for number in range(20))


def test_a_stream_of_jobs_becomes_files_and_all_are_done(
    spark: SparkSession, daemon: Daemon, queue: str, tmp_path: Path
) -> None:
    def run() -> None:
        jobs = spark.readStream.format("disqued").options(address=f"{HOST}:{daemon.port}", queues=queue)
        sink = jobs.option("maxJobsPerTrigger", 15).load().writeStream.format("parquet")
        sink = sink.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True)
        sink.start(str(tmp_path / "out")).awaitTermination()

    for number in range(40):
        daemon.call("ADDJOB", queue, f"{number:02}", 0)
    run()
    daemon.call("ADDJOB", queue, "40", 0)
    run()
    rows = spark.read.parquet(str(tmp_path / "out")).selectExpr("string(body) body").collect()
    assert sorted(row.body for row in rows) == [f"{number:02}" for number in range(41)]
    states = ("STATE", "queued", "STATE", "active")
    assert daemon.call("JSCAN", 0, "QUEUE", queue, *states) == ["0", []], "all are acknowledged, the last batch, too"
