"""The verbs of `disqued-spark`: one module each, with a click command named `command` that reads, computes and writes.

A module is imported when its verb is asked for.  Spark is imported inside the command, so that `--help` is quick.
"""
