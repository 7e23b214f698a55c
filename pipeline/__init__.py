"""Spark beside the daemon: queues as tables and streams, and the history that event logs tell.  Never part of a node.

    connector   `spark.read.format("disqued")`, `readStream`, `write`, `writeStream`

    event logs --ingest--> events --lifecycle--> lifecycle --> doctor
                              |                                  |
                              +--rollup--> rollup --> slo        |     tables of Parquet in one folder: `tables`
                              |                        |         |
                              +--audit--> verdicts     |         |
                                             |         |         |
                                             v         v         v
                                            reports.sqlite, and a page of HTML: `reports`

    jobs        what is computed: functions from tables to tables, which read and write nothing themselves
    commands    the verbs of `disqued-spark`, one module each: options, reading, writing, progress
    events      the event log as a table and as a stream
    moving      what the verbs that move jobs share
    tables      where tables are, and how a part of one is replaced as a whole
    session     Spark, set up as the jobs need it
    command     `disqued-spark`

Only this package imports pyspark.
"""
