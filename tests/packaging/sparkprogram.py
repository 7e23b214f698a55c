"""A program for `spark-submit`: reads queues, adds to one, takes one as a stream, and reads event logs.

    spark-submit [--py-files disqued.zip] sparkprogram.py HOST:PORT,... EVENTS PLACE [ship]

It prints one line of JSON with what it found; nothing of disqued is imported but what its users would import.
"""

import json
import sys
import time

from pyspark.sql import SparkSession


def main(address: str, events: str, place: str, *words: str) -> None:
    """Do everything once."""
    began = time.monotonic()
    spark = SparkSession.builder.getOrCreate()
    seconds = {"session": time.monotonic() - began}
    if words:
        from disqued.pipeline.ship import ship

        ship(spark)

    def done(name: str) -> None:
        seconds[name] = time.monotonic() - began - sum(seconds.values())

    node = {"address": address}
    table = spark.read.format("disqued").options(**node, queues="there", minPartitions=4).load()
    read = [*(table.selectExpr("count(*)", "count(DISTINCT id)").first() or ()), table.rdd.getNumPartitions()]
    done("read")
    rows = spark.range(0, 1_000, numPartitions=4).selectExpr("concat('row ', id) AS body")
    rows.write.format("disqued").options(**node, queue="taken", replicate=2).mode("append").save()
    done("write")
    stream = spark.readStream.format("disqued").options(**node, queues="taken", maxJobsPerTrigger=400).load()
    files = (
        stream.writeStream.format("parquet").option("checkpointLocation", f"{place}/state").trigger(availableNow=True)
    )
    files.start(f"{place}/out").awaitTermination()
    took = spark.read.parquet(f"{place}/out").selectExpr("count(*)", "count(DISTINCT body)").first()
    done("stream")
    from disqued.pipeline.events import read_events

    told = {row.event: row["count"] for row in read_events(spark, events).groupBy("event").count().collect()}
    done("events")
    executors = spark.sparkContext.parallelize(range(8), 8).map(lambda _: __import__("os").getppid()).distinct().count()
    spark.stop()
    found = {"read": read, "stream": list(took or ()), "events": told, "executors": executors}
    print(json.dumps(found | {"seconds": {name: round(value, 1) for name, value in seconds.items()}}))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
