"""`disqued-spark import`: rows of files, and jobs of stores, into live queues."""

from typing import TYPE_CHECKING, Any, Final

import click

from disqued.pipeline.errors import Misused
from disqued.pipeline.moving import (
    FORMS,
    SOURCE,
    add_jobs,
    check_stores,
    check_use,
    form_of,
    need_address,
    node_options,
    nodes_of,
    read_files,
)
from disqued.pipeline.run import PipelineRun, place_of, running, spark_options, to_its_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STORE: Final = "store"


@click.command(epilog="The columns that make a job are those of a write: docs/reference/spark.md.")
@click.option("--from", "source", required=True, metavar="PATH", help="Files, a folder of them, or stores; patterns.")
@click.option("--as", "kind", type=click.Choice([*FORMS, STORE]), help="Their form; else as the name ends, or parquet.")
@click.option("--queue", metavar="NAME", help="Queue of all jobs; else the column queue.")
@click.option("--body", type=click.Choice(["base64", "text"]), default="base64", show_default=True,
              help="How CSV and JSON have bodies.")  # fmt: skip
@click.option("--name", default="import", show_default=True, metavar="WORD", help="Begins the keys that are made here.")
@click.option("--checkpoint", metavar="DIR", help="Remember which files were taken, and take new ones alone.")
@node_options
@spark_options
def command(source: str, kind: str | None, queue: str | None, body: str, name: str, **words: Any) -> None:
    """Add rows of files, or the jobs of stores, to live queues: all of them, or none.

    \b
        disqued-spark import --from /srv/jobs --address 127.0.0.1:7711
        disqued-spark import --from mails.csv --body text --queue mail --address 127.0.0.1:7711 --option retry=60
        disqued-spark import --from /srv/nodes/old --as store --address 127.0.0.1:7711

    Each job has a key, so that running it twice adds nothing twice as long as the jobs are there: the column key; else
    WORD/id for rows that have an id, such as those of export; else it is made of what is in the row.  For jobs that
    may be done when it is run again there is --checkpoint: it knows which files were taken.
    """
    checkpoint = words.pop("checkpoint")
    nodes = nodes_of(words)
    need_address(nodes)
    check_use(nodes, "WRITE")
    chosen = kind or form_of(source) or "parquet"
    if chosen == STORE:
        check_stores(source)
    with running("import", place_of(words)) as run:
        importing = Importing(run, nodes, {"queue": queue, "body": body, "name": name})
        if checkpoint is not None and chosen != STORE:
            importing.stream(source, chosen, checkpoint)
        else:
            importing.once(source, chosen)
        run.say(f"done: {run.rows} jobs were added, or were there already")


class Importing:
    """Rows on their way into queues."""

    def __init__(self, run: PipelineRun, nodes: dict[str, str], how: dict[str, Any]) -> None:
        """`how` are the arguments of `jobs_of`."""
        self._run = run
        self._nodes = nodes
        self._how = how

    def once(self, source: str, form: str) -> None:
        """Add everything that is there.  Raises Misused."""
        from disqued.pipeline.jobs.portable import without_marks

        if form == STORE:
            rows = without_marks(self._run.spark.read.format(SOURCE).load(source))
        else:
            rows = read_files(self._run, source, form)
        self._add(rows, self._how["name"])

    def stream(self, source: str, form: str, checkpoint: str) -> None:
        """Add what is in files that were not taken before.  Raises Misused."""
        from disqued.pipeline.files import FileSystems
        from disqued.pipeline.moving import CSV_READ

        files = FileSystems(self._run.spark)
        if files.exists(source) and not files.is_folder(source):
            raise Misused(
                f"{source} is a file: with --checkpoint, --from names a folder of files, or a pattern of them"
            )
        reader = self._run.spark.readStream.format(form).schema(read_files(self._run, source, form).schema)
        if form == "csv":
            reader = reader.options(**CSV_READ)
        stream = reader.load(source).writeStream.foreachBatch(self._take).option("checkpointLocation", checkpoint)
        to_its_end(stream.trigger(availableNow=True))

    def _take(self, rows: "DataFrame", number: int) -> None:
        self._add(rows, f"{self._how['name']}/{number}")

    def _add(self, rows: "DataFrame", name: str) -> None:
        from disqued.pipeline.jobs.portable import jobs_of

        count = add_jobs(jobs_of(rows, **{**self._how, "name": name}), self._nodes)
        self._run.count(count)
        self._run.say(f"{count} jobs")
