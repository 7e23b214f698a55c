"""What Spark asks for by the name `disqued`."""

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from disqued.pipeline.connector.eventlog import SCHEMA as EVENTS
from disqued.pipeline.connector.eventlog import EventsStreamReader
from disqued.pipeline.connector.groups import GroupStreamReader
from disqued.pipeline.connector.options import Use, read_options, use_of
from disqued.pipeline.connector.read import QueuesReader
from disqued.pipeline.connector.rows import SCHEMA
from disqued.pipeline.connector.store_rows import SCHEMAS
from disqued.pipeline.connector.stream import QueuesStreamReader
from disqued.pipeline.connector.write import QueuesStreamWriter, QueuesWriter, Sink


class DisquedDataSource(DataSource):
    """Queues of disqued: `spark.read.format("disqued")`, `df.write.format("disqued")`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Take options as Spark passes them: texts, the names in lower case."""
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Name the format."""
        return "disqued"

    def schema(self) -> StructType:
        """Tell the columns, once the options can be those of a table or a stream.  Raises ValueError."""
        use = use_of(self.options, Use.READ)
        if use is not Use.READ:
            options = read_options(self.options, use)
            return {Use.STORE: SCHEMAS[options.get("records", "jobs")], Use.EVENTS: EVENTS}.get(use, SCHEMA)
        try:
            read_options(self.options, Use.READ)
        except ValueError as error:
            try:
                read_options(self.options, Use.STREAM)
            except ValueError:
                raise error from None
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make what reads a table.  Raises ValueError."""
        use = use_of(self.options, Use.READ)
        if use not in (Use.READ, Use.STORE):
            raise ValueError(f"the options are those of a stream ({use.value}); a table has none of them")
        options = read_options(self.options, use)
        if use is Use.STORE:
            _check_columns(schema, SCHEMAS[options["records"]])
            # Stores need Twisted, which is not everywhere that queues are read.
            from disqued.pipeline.connector.stores import StoresReader

            return StoresReader(options)
        _check_columns(schema, SCHEMA)
        return QueuesReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make what reads a stream.  Raises ValueError."""
        use = use_of(self.options, Use.STREAM)
        if use is Use.STORE:
            raise ValueError("a store is read as a table (spark.read); the option path is not for streams")
        options = read_options(self.options, use)
        if use is Use.EVENTS:
            _check_columns(schema, EVENTS)
            return EventsStreamReader(options)
        _check_columns(schema, SCHEMA)
        if use is Use.STREAM:
            return QueuesStreamReader(options)
        return GroupStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> QueuesWriter:
        """Make what adds the rows of a table.  Raises ValueError."""
        if overwrite:
            raise ValueError("a queue cannot be overwritten; the mode is append")
        return QueuesWriter(Sink(schema, read_options(self.options, Use.WRITE)))

    def streamWriter(self, schema: StructType, overwrite: bool) -> QueuesStreamWriter:
        """Make what adds the rows of a batch of a stream.  Raises ValueError."""
        if overwrite:
            raise ValueError("a queue cannot be overwritten; the output mode is append")
        return QueuesStreamWriter(Sink(schema, read_options(self.options, Use.WRITE)))


def _check_columns(schema: StructType, columns: StructType) -> None:
    if schema != columns:
        raise ValueError(f"the columns of disqued cannot be chosen: they are {columns.simpleString()}")
