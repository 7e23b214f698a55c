"""What the verbs that move jobs share: which nodes and queues are meant, and files that appear as a whole.

    consume    queues, logs --stream--> Parquet, a folder for each batch
    export     queues, stores --------> Parquet, CSV, JSON
    import     Parquet, CSV, JSON, stores --> queues
    replay     dead letters, jobs that expired --> queues

A folder that is written has a name with an underscore until it is whole; readers pass over those.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import click

from disqued.pipeline.errors import Misused
from disqued.tools.values import options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from disqued.pipeline.run import PipelineRun

SOURCE: Final = "disqued"
FORMS: Final = ("parquet", "csv", "json")
DONE_FILE: Final = "_SUCCESS"
#: A text is the same when it is read again, whatever blanks, quotes and line ends are in it.
_CSV: Final = {
    "header": "true",
    "escape": '"',
    "multiLine": "true",
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}
#: What is not there is an empty cell, and an empty text is two quotes.  Spark compares what it reads with a word for
#: what is not there, in quotes or not; that one is no text that anybody has.
CSV_WRITTEN: Final = {**_CSV, "nullValue": "", "emptyValue": '""'}
CSV_READ: Final = {**_CSV, "nullValue": "\ue000null\ue000", "emptyValue": ""}
#: Options that say which node, and who asks.
LOGIN: Final = ("address", "user", "password")


#: Adds the options that say which nodes are meant; see `nodes_of`.
node_options: Final = options(
    click.option("--address", envvar="DISQUED_ADDRESS", metavar="HOST:PORT", help="A node; several with commas."),
    click.option("--user", envvar="DISQUED_USER", metavar="NAME", help="Name to log in by."),
    click.option("--password", envvar="DISQUED_PASSWORD", metavar="WORD", help="Password; better as the variable."),
    click.option(
        "--option", "options", multiple=True, metavar="NAME=VALUE",
        help="An option of the source or sink disqued (docs/reference/spark.md); as many as there are.",
    ),
)  # fmt: skip


def nodes_of(words: dict[str, Any]) -> dict[str, str]:
    """Take the options of `node_options` out of those of a verb.  Raises Misused."""
    named = {name: words.pop(name) for name in LOGIN}
    given = {name: value for name, value in named.items() if value is not None}
    for word in words.pop("options"):
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise Misused(f"--option {word!r} is none of the source or sink; it is written name=value")
        given[name] = value
    return given


def need_address(nodes: Mapping[str, str]) -> None:
    """Raise Misused where no node is named."""
    if "address" not in nodes:
        raise Misused("the node is missing: --address HOST:PORT, or DISQUED_ADDRESS")


def check_use(nodes: Mapping[str, str], use: str) -> dict[str, Any]:
    """Return the options as the source or the sink reads them, before Spark is started.  Raises Misused.

    `use` is the name of one of `ConnectorUse`.
    """
    from disqued.pipeline.connector.options import ConnectorUse, read_options

    try:
        return read_options(nodes, ConnectorUse[use])
    except ValueError as error:
        raise Misused(str(error)) from None


def check_stores(paths: str) -> None:
    """Raise Misused for paths that are no stores, before Spark is started."""
    from disqued.persistence.interface import StoreError
    from disqued.pipeline.connector.options import ConnectorUse, read_options
    from disqued.pipeline.connector.stores import find_stores

    try:
        words = read_options({"path": paths}, ConnectorUse.STORE)["path"]
    except ValueError as error:
        raise Misused(f"--from: {error}") from None
    for word in words:
        try:
            find_stores(word, None)
        except (ValueError, StoreError) as error:
            raise Misused(f"--from: {str(error).removeprefix('the option path: ')}") from None


def is_of_export(name: str) -> bool:
    """Tell whether a file is called as those that Spark writes into the folder of a table without parts."""
    return name == DONE_FILE or name.startswith("part-") or (name.startswith(".") and name.endswith(".crc"))


class StagedFolder:
    """A folder that is written as a whole."""

    def __init__(self, run: "PipelineRun", path: str) -> None:
        from disqued.pipeline.files import FileSystems

        self.files = FileSystems(run.spark)
        self.path = path.rstrip("/")
        head, _, name = self.path.rpartition("/")
        self.aside: str = f"{head}/_{name}" if head or self.path.startswith("/") else f"_{name}"

    def has_result(self) -> bool:
        """Tell whether there is a whole one already."""
        return self.files.exists(f"{self.path}/{DONE_FILE}")

    def check_free(self) -> None:
        """Raise Misused for whatever is there and is no export: that alone may be replaced."""
        if not self.files.exists(self.path):
            return
        if not self.files.is_folder(self.path):
            raise Misused(f"{self.path} is a file; --to names a folder, one that is not there yet or is an export")
        names = [path.rpartition("/")[2] for path in self.files.matching(f"{self.path}/*")]
        strange = [name for name in names if not is_of_export(name)]
        if strange or (names and DONE_FILE not in names):
            what = f" ({strange[0]} is in it)" if strange else ""
            raise Misused(
                f"{self.path} is there, and is no export{what}: an export replaces exports alone; name another folder, "
                "or remove it"
            )

    def write(self, rows: "DataFrame", form: str = "parquet") -> None:
        """Write rows aside, and let them take the place of what was there."""
        writer = rows.write.format(form).mode("overwrite")
        if form == "csv":
            writer = writer.options(**CSV_WRITTEN)
        writer.save(self.aside)
        self.files.remove(self.path)
        self.files.rename(self.aside, self.path)


def counted(rows: "DataFrame", write: Callable[["DataFrame"], None]) -> int:
    """Write rows, and tell how many there were."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation("rows")
    write(rows.observe(seen, f.count(f.lit(1)).alias("rows")))
    count: int = seen.get["rows"]
    return count


def add_jobs(jobs: "DataFrame", nodes: Mapping[str, str]) -> int:
    """Add rows of queue, body and key as jobs; tell how many there were."""
    return counted(jobs, lambda rows: rows.write.format(SOURCE).options(**nodes).mode("append").save())


def checkpoint_at(path: str | None) -> AbstractContextManager[str]:
    """Give the folder of a checkpoint: the one that was named, or one for this run alone."""
    return TemporaryDirectory(prefix="disqued-spark-") if path is None else nullcontext(path)


def read_files(run: "PipelineRun", path: str, form: str) -> "DataFrame":
    """Read files that `export` or somebody else has written."""
    reader = run.spark.read.format(form)
    if form == "csv":
        reader = reader.options(**CSV_READ)
    return reader.load(path)


def form_of(path: str) -> str | None:
    """Tell the form of files by how their names end; None where that is not seen."""
    for form, endings in {"parquet": (".parquet",), "csv": (".csv",), "json": (".json", ".jsonl")}.items():
        if path.endswith(endings):
            return form
    return None
