"""Queues, stores and event logs as Spark tables and streams: `spark.read.format("disqued")`, and queues as its sinks.

source   what Spark asks for: DisquedDataSource, which pyspark_disqued registers
options  what a user may say, and what is allowed
rows     the columns, and a job as the daemon shows it as a row
nodes    which nodes there are; many commands at once on a connection to one
read     live queues as a table
stream   live queues as a stream
write    rows as jobs, in two phases

stores      journals, databases and exports as tables
standing    which jobs a journal or an export still has
exports     exports read back
store_rows  what stores tell, as rows
groups      logs as streams, for groups of consumers
eventlog    the event log as a stream, while it is written
"""
