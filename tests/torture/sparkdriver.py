"""`python -m tests.torture.sparkdriver [source] [sink] ...`: the driver that is killed.

    source   live queues --readStream--> Parquet                    a file sink knows which files belong to a batch
    sink     lines of files --a map that can be told to fail--> writeStream --> a queue

The folder told/ holds what the program is told while it runs: a file `once` lets the next task fail that has begun to
add jobs, and is taken away by it; as long as there is a file `always` every task fails so.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tests.torture.words import read_words

HOST = "127.0.0.1"
ROWS_AT_ONCE = 20  #: of an Arrow batch: a task that fails has added some of its jobs, and not all
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_AT_ONCE),
}


def main() -> None:
    """Run streams until somebody ends them, or one of them fails."""
    options = read_words("tests.torture.sparkdriver")
    builder = SparkSession.builder.master(options.master).appName(" ".join(options.roles))
    for name, value in (SETTINGS | {"spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"]}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for role in options.roles:
        (source if role == "source" else sink)(spark, options.address, options.place / role)
    spark.streams.awaitAnyTermination()


def source(spark: SparkSession, address: str, place: Path) -> None:
    """Take jobs into a table."""
    jobs = spark.readStream.format("disqued").options(address=address, queues="source")
    files = jobs.options(maxJobsPerTrigger=1_000, minPartitions=4).load().writeStream.format("parquet")
    files.option("checkpointLocation", str(place / "state")).start(str(place / "out"))


def sink(spark: SparkSession, address: str, place: Path) -> None:
    """Make jobs of lines."""
    lines = spark.readStream.option("maxFilesPerTrigger", 4).text(str(place / "in"))
    jobs = may_fail(lines.selectExpr("value AS body"), place / "told").writeStream.format("disqued")
    jobs = jobs.options(address=address, queue="sink", replicate=2, retry=20)
    jobs.option("checkpointLocation", str(place / "state")).start()


def may_fail(rows: DataFrame, told: Path) -> DataFrame:
    """Let rows pass, unless a task is to fail behind its first ones."""

    def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield batch
            if number:
                if (told / "always").exists():
                    raise RuntimeError("every task is to fail")
                try:
                    (told / "once").unlink()
                except FileNotFoundError:
                    continue
                raise RuntimeError("a task is to fail")

    return rows.mapInArrow(passed, "body STRING")


if __name__ == "__main__":
    main()
