"""Jobs as rows of files that know no bytes, and rows of files as jobs that are added once.

    body BINARY --written--> body STRING (text, or base64)                  for CSV and JSON
    headers MAP --written--> values as a body's; for CSV the text of a JSON object, as that of failures is
    rows of any file --jobs_of--> queue, body, key, and headers and group where there are some

The key is what makes a job that is added twice one job: the column `key`, else the id that it had in the queue it came
from, else what is in the row, counted where several rows are the same.
"""

from typing import TYPE_CHECKING, Final

from disqued.pipeline.errors import Misused

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TEXT: Final = "text"
BASE64: Final = "base64"
HEADERS: Final = "headers"
GROUP: Final = "group"
NO_BASE64: Final = "a body or a header is no base64"
NO_HEADERS: Final = 'the column headers is no JSON object, such as {"size": "32"}'
KEYS: Final = ("key", "id")


def without_marks(rows: "DataFrame") -> "DataFrame":
    """Leave out the words of Spark's own writes, which are in a queue that nobody is given."""
    from disqued.pipeline.connector.commits import COMMITS

    return rows.where(rows.queue.isNull() | (rows.queue != COMMITS))


def written(jobs: "DataFrame", form: str, body: str) -> "DataFrame":
    """Give rows as a form can hold them: bodies as text or base64, times as texts of ISO 8601."""
    from pyspark.sql import functions as f

    if form == "parquet":
        return jobs
    columns = []
    for field in jobs.schema:
        column = f.col(field.name)
        kind = field.dataType.typeName()
        if kind == "map":
            column = f.transform_values(column, lambda _, value: _text_of(value, body))
            column = f.to_json(column) if form == "csv" else column
        elif field.name == "body":
            column = _text_of(column, body)
        elif kind == "binary":
            column = f.base64(column)
        elif kind == "array":  # of failures
            column = f.transform(column, lambda one: one.withField("at", _moment_of(one["at"])))
            column = f.to_json(column) if form == "csv" else column
        elif kind == "timestamp":
            column = _moment_of(column)
        columns.append(column.alias(field.name))
    return jobs.select(*columns)


def jobs_of(rows: "DataFrame", queue: str | None, body: str, name: str) -> "DataFrame":
    """Give queue, body and key of jobs that rows are to become, and their headers and group where rows have some.

    Raises Misused for columns that cannot be jobs.
    """
    from pyspark.sql import functions as f

    columns = rows.columns
    if "body" not in columns:
        raise Misused(f"the column body is missing; there are {', '.join(columns)}")
    if queue is None and "queue" not in columns:
        raise Misused(f"the column queue is missing, and so is --queue; there are {', '.join(columns)}")
    named = f.lit(queue) if queue is not None else f.col("queue").cast("string")
    content = f.col("body")
    if rows.schema["body"].dataType.typeName() != "binary":
        content = _content_of(content.cast("string"), body)
    own = next((each for each in KEYS if each in columns), None)
    parts = [named.alias("queue"), content.alias("body")]
    if HEADERS in columns:
        parts.append(_headers_of(rows, body).alias(HEADERS))
    if GROUP in columns:
        parts.append(f.col(GROUP).cast("string").alias(GROUP))
    made = rows.select(*parts, *([f.col(own).alias("own")] if own else []))
    if own == "key":
        return made.withColumnRenamed("own", "key")
    if own == "id":
        return made.withColumn("key", f.concat_ws("/", f.lit(name), "own")).drop("own")
    return _counted(made, name)


def _text_of(value: "Column", body: str) -> "Column":
    """Write bytes as text, or as base64."""
    from pyspark.sql import functions as f

    return value.cast("string") if body == TEXT else f.base64(value)


def _moment_of(time: "Column") -> "Column":
    """Write a time as text of ISO 8601."""
    from pyspark.sql import functions as f

    return f.date_format(time, "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX")


def _content_of(text: "Column", body: str) -> "Column":
    """Read what `_text_of` wrote."""
    from pyspark.sql import functions as f

    return _bytes_of(text) if body == BASE64 else f.encode(text, "UTF-8")


def _headers_of(rows: "DataFrame", body: str) -> "Column":
    """Give names and values of headers, whatever has become of the map on its way.  Raises Misused.

    Spark reads an object of JSON lines as a struct of all names that any row has, most of them null in a row.
    """
    from pyspark.sql import functions as f

    column = f.col(HEADERS)
    form = rows.schema[HEADERS].dataType
    kind = form.typeName()
    if kind == "map":
        if form.simpleString() == "map<string,binary>":
            return column
        names = column
    elif kind in ("struct", "string", "void"):
        text = f.to_json(column) if kind == "struct" else column.cast("string")
        names = f.from_json(text, "map<string,string>")
        names = f.when(text.isNull() | names.isNotNull(), names).otherwise(f.raise_error(f.lit(NO_HEADERS)))
    else:
        raise Misused(f"the column headers is {form.simpleString()}; allowed: a map, an object of JSON, or its text")
    return f.transform_values(names, lambda _, value: _content_of(value.cast("string"), body))


def _bytes_of(text: "Column") -> "Column":
    """Decode base64, which may be broken into lines; other text ends the job, as Spark would make something of it."""
    from pyspark.sql import functions as f

    one_line = f.regexp_replace(text, r"[\r\n]+", "")
    is_base64 = one_line.rlike("^[A-Za-z0-9+/]*={0,2}$") & (f.length(one_line) % 4 == 0)
    return f.when(text.isNull() | is_base64, f.unbase64(one_line)).otherwise(f.raise_error(f.lit(NO_BASE64)))


def _counted(made: "DataFrame", name: str) -> "DataFrame":
    """Give a key to each row that is made of what is in it, and of how many rows before it say the same."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    digest = f.sha2(f.concat(f.encode("queue", "UTF-8"), f.unhex(f.lit("00")), "body"), 256)
    same = made.withColumn("digest", digest)
    number = f.row_number().over(Window.partitionBy("digest").orderBy(f.lit(0)))
    key = f.concat_ws("/", f.lit(name), "digest", number.cast("string"))
    return same.withColumn("key", key).drop("digest")
