"""`disqued-spark export`: jobs of live queues or of stores into files."""

from typing import Any

import click

from disqued.pipeline.errors import Misused
from disqued.pipeline.moving import (
    FORMS,
    LOGIN,
    SOURCE,
    StagedFolder,
    check_stores,
    check_use,
    counted,
    need_address,
    node_options,
    nodes_of,
)
from disqued.pipeline.run import place_of, running, spark_options


@click.command(epilog="The columns are those of a table: docs/reference/spark.md.")
@click.option(
    "--from", "source", metavar="PATHS", help="Stores, instead of a node; patterns, with commas or as a JSON array."
)
@click.option(
    "--records", default="jobs", show_default=True, metavar="WHICH", help="Of stores: jobs, added, done, evictions."
)
@click.option("--queues", default="*", show_default=True, metavar="NAMES",
              help="Names or patterns, with commas or as a JSON array.")  # fmt: skip
@click.option("--states", metavar="STATES", help="Which jobs; of stores expired ones, too.")
@click.option("--to", required=True, metavar="DIR", help="Folder of the files.")
@click.option("--as", "kind", type=click.Choice(FORMS), default="parquet", show_default=True, help="Their form.")
@click.option("--body", type=click.Choice(["base64", "text"]), default="base64", show_default=True,
              help="How CSV and JSON write bodies; text loses what is not UTF-8.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Let this export take the place of the one before.")
@node_options
@spark_options
def command(source: str | None, to: str, kind: str, body: str, overwrite: bool, **words: Any) -> None:
    """Write the jobs of live queues, or what stores hold, to files; nothing is taken out of a queue.

    \b
        disqued-spark export --address 127.0.0.1:7711 --queues 'mail,orders-*' --to /srv/jobs
        disqued-spark export --from '/srv/nodes/*' --records done --as csv --to /srv/done

    A store is read where its files are, whether its node runs or not.  DIR appears as a whole; one that is there is
    replaced with --overwrite alone.
    """
    given = {name: value for name in ("records", "queues", "states") if (value := words.pop(name)) is not None}
    nodes = {**nodes_of(words), **given}
    if source is None:
        if nodes.pop("records") != "jobs":
            raise Misused("--records is told of stores: --from names one")
        need_address(nodes)
    else:
        nodes = {"path": source, **{name: value for name, value in nodes.items() if name not in LOGIN}}
    check_use(nodes, "READ" if source is None else "STORE")
    if source is not None and "store" not in nodes:
        check_stores(source)
    with running("export", place_of(words)) as run:
        from disqued.pipeline.jobs.portable import without_marks, written

        folder = StagedFolder(run, to)
        folder.check_free()
        if folder.has_result() and not overwrite:
            raise Misused(f"{to} is there already; --overwrite lets this export take its place")
        rows = written(without_marks(run.spark.read.format(SOURCE).options(**nodes).load()), kind, body)
        run.say(f"reading {source or nodes['address']}")
        run.count(counted(rows, lambda seen: folder.write(seen, kind)))
        run.say(f"done: {run.rows} rows are in {to}")
