"""What Spark asks for by the name `disqued`."""

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from disqued.pipeline.connector.eventlog import SCHEMA as EVENTS
from disqued.pipeline.connector.eventlog import EventsStreamReader
from disqued.pipeline.connector.groups import GroupStreamReader
from disqued.pipeline.connector.options import ConnectorUse, check_source, read_options, use_of
from disqued.pipeline.connector.read import QueuesReader
from disqued.pipeline.connector.rows import SCHEMA
from disqued.pipeline.connector.store_rows import SCHEMAS
from disqued.pipeline.connector.stream import QueuesStreamReader
from disqued.pipeline.connector.write import QueuesStreamWriter, QueuesWriter, Sink


class DisquedDataSource(DataSource):
    """Queues of disqued: `spark.read.format("disqued")`, `df.write.format("disqued")`."""

    @classmethod
    def name(cls) -> str:
        return "disqued"

    def schema(self) -> StructType:
        """Return the columns.  Raises ValueError for what neither `spark.read` nor `spark.readStream` allows."""
        check_source(self.options)
        if use_of(self.options, ConnectorUse.READ) is ConnectorUse.STORE:
            return SCHEMAS[self.options.get("records", "jobs").lower()]
        return EVENTS if use_of(self.options, ConnectorUse.STREAM) is ConnectorUse.EVENTS else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make what reads a table.  Raises ValueError."""
        use = use_of(self.options, ConnectorUse.READ)
        options = read_options(self.options, use)
        if use is ConnectorUse.STORE:
            _check_columns(schema, SCHEMAS[options["records"]])
            # Stores need Twisted, which is not everywhere that queues are read.
            from disqued.pipeline.connector.stores import StoresReader

            return StoresReader(options)
        _check_columns(schema, SCHEMA)
        return QueuesReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make what reads a stream.  Raises ValueError."""
        use = use_of(self.options, ConnectorUse.STREAM)
        options = read_options(self.options, use)
        if use is ConnectorUse.EVENTS:
            _check_columns(schema, EVENTS)
            return EventsStreamReader(options)
        _check_columns(schema, SCHEMA)
        if use is ConnectorUse.STREAM:
            return QueuesStreamReader(options)
        return GroupStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> QueuesWriter:
        """Make what adds the rows of a table.  Raises ValueError."""
        if overwrite:
            raise ValueError("a queue cannot be overwritten; the mode is append")
        return QueuesWriter(Sink(schema, read_options(self.options, ConnectorUse.WRITE)))

    def streamWriter(self, schema: StructType, overwrite: bool) -> QueuesStreamWriter:
        """Make what adds the rows of a batch of a stream.  Raises ValueError."""
        if overwrite:
            raise ValueError("a queue cannot be overwritten; the output mode is append")
        return QueuesStreamWriter(Sink(schema, read_options(self.options, ConnectorUse.WRITE_STREAM)))


def _check_columns(schema: StructType, columns: StructType) -> None:
    if schema != columns:
        raise ValueError(f"the columns of disqued cannot be chosen: they are {columns.simpleString()}")
