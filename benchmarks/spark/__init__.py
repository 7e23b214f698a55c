"""`python -m benchmarks.spark`: how fast the data pipeline is, beside what one would write by hand.

    events       a history of jobs, made up: published files of an event log
    jobs         the jobs of disqued-spark, beside the same in Spark SQL written by hand, and in DuckDB
    connector    sources and sink, beside redis-py, which asks the same of a daemon

All runs in one process and one Spark session, in turns, so that whatever else the machine does meets all of them.
Starting Spark is not part of any figure.
"""
