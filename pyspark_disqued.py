"""Registers the format `disqued` with Spark, which imports every module whose name begins with `pyspark_`."""

from disqued.pipeline.connector.source import DisquedDataSource as DefaultSource

__all__ = ["DefaultSource"]
