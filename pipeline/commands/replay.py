"""`disqued-spark replay`: jobs that expired, or are dead, into a queue once more."""

from typing import TYPE_CHECKING, Any, Final

import click

from disqued.pipeline.errors import Misused
from disqued.pipeline.moving import (
    SOURCE,
    add_jobs,
    check_stores,
    check_use,
    checkpoint_at,
    need_address,
    node_options,
    nodes_of,
)
from disqued.pipeline.run import PipelineRun, place_of, place_options, running, to_its_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME: Final = "replay"  #: begins the keys
IDS: Final = "id STRING"


@click.command(epilog="Reads queues, or stores and the table lifecycle; docs/reference/spark.md tells of both.")
@click.option(
    "--queues",
    metavar="NAMES",
    help="Queues of dead jobs; of stores: names or patterns of theirs; with commas or as a JSON array.",
)
@click.option("--from", "source", metavar="PATHS", help="Stores or exports that have the bodies; patterns.")
@click.option("--end", type=click.Choice(["expired", "evicted", "deleted"]), default="expired", show_default=True,
              help="Of stores: how the jobs ended.")  # fmt: skip
@click.option("--since", metavar="TIME", help="Of stores: those that ended from then on, such as 2026-11-22T10:00:00Z.")
@click.option("--to", metavar="QUEUE", help="Where they go; jobs of stores go where they were without it.")
@click.option("--ledger", metavar="DIR", help="Of stores: the ids of what was replayed, so that nothing is twice.")
@click.option("--checkpoint", metavar="DIR", help="Of queues: what is under way; else noted for this run alone.")
@click.option("--dry-run", is_flag=True, help="Of stores: say how many there are, and add none.")
@node_options
@place_options
def command(queues: str | None, source: str | None, to: str | None, **words: Any) -> None:
    """Add jobs to a queue once more that were not done: dead letters, or jobs whose time was over.

    Dead letters are jobs in a queue of their own.  They are moved as `disqued move` does it: added to the other queue
    with their RETRY, TTL and REPLICATE (--option retry=60 and so on override these), and then acknowledged.  The key of
    each is its own, or move/ID, so that a run that was killed may be repeated:

    \b
        disqued-spark replay --address 127.0.0.1:7711 --queues mail-dead --to mail

    Jobs that expired are in no queue any more.  Their bodies are in journals that were not compacted since, and in
    exports of them (a database has none); which of them expired is told by the same stores, or, with --tables, by the
    table lifecycle:

    \b
        disqued-spark replay --address 127.0.0.1:7711 --from '/srv/exports/*.jsonl' --since 2026-11-22T00:00:00Z
        disqued-spark replay --address 127.0.0.1:7711 --from /srv/old --tables /srv/tables --ledger /srv/replayed

    The key of each of these is replay/ID: while the new job is there nothing is added twice, and a ledger makes that so
    for ever.  What was done, as far as a store or the table knows, is not replayed.
    """
    asked = {name: words.pop(name) for name in ("end", "since", "ledger", "checkpoint", "dry_run")}
    nodes = nodes_of(words)
    need_address(nodes)
    check_use(nodes, "MOVE" if source is None else "WRITE")
    if source is None:
        if queues is None or to is None:
            raise Misused("name the queues of dead jobs (--queues) and where they go (--to), or stores (--from)")
        taken = check_use(_taking(nodes, queues), "STREAM")["queues"]
        if to in taken:
            raise Misused(f"{to} is the queue that the jobs are taken from; --to is another one")
    else:
        check_stores(source)
    with running("replay", place_of(words)) as run:
        if source is None:
            _replay_queues(run, nodes, str(queues), str(to), asked["checkpoint"])
        else:
            Stores(run, source, queues or "*", to).replay(nodes, asked)


# Dead letters.


def _taking(nodes: dict[str, str], queues: str) -> dict[str, str]:
    """Options to take jobs by, out of those to add jobs by."""
    common = ("address", "user", "password", "connecttimeout", "replytimeout", "pipeline")
    return {**{name: value for name, value in nodes.items() if name.lower() in common}, "queues": queues}


def _replay_queues(run: PipelineRun, nodes: dict[str, str], queues: str, to: str, checkpoint: str | None) -> None:
    from disqued.pipeline.connector.mover import QueueMover

    mover = QueueMover(nodes, to)

    def take(jobs: "DataFrame", number: int) -> None:
        count = mover.move(jobs)
        run.count(count)
        run.say(f"batch {number}: {count} jobs")

    if checkpoint is not None:
        mover.check_nodes()
    with checkpoint_at(checkpoint) as folder:
        # What is gone when a batch is run again was moved before, or is done.
        taking = {**_taking(nodes, queues), "failOnDataLoss": "false"}
        stream = run.spark.readStream.format(SOURCE).options(**taking).load().writeStream
        to_its_end(stream.foreachBatch(take).option("checkpointLocation", folder).trigger(availableNow=True))
    run.say(f"done: {run.rows} jobs are in {to}")


# Jobs that ended.


class Stores:
    """What stores have of jobs that ended."""

    def __init__(self, run: PipelineRun, source: str, queues: str, to: str | None) -> None:
        self._run = run
        self._source = source
        self._queues = queues
        self._to = to

    def _read(self, records: str, **options: str) -> "DataFrame":
        return self._run.spark.read.format(SOURCE).options(records=records, **options).load(self._source)

    def _ended(self, reason: str) -> "DataFrame":
        from disqued.pipeline.jobs.replay import ended, ended_by_history

        if self._run.place.tables is None:
            return ended(self._read("evictions"), self._read("done"), reason)
        from disqued.pipeline.tables import LIFECYCLE

        return ended_by_history(self._run.tables.read(LIFECYCLE), reason)

    def replay(self, nodes: dict[str, str], asked: dict[str, Any]) -> None:
        """Add the jobs, and note them in the ledger.  Raises Misused."""
        from pyspark.sql import functions as f

        from disqued.pipeline.jobs.replay import replayed

        ids = self._ended(asked["end"])
        if asked["since"] is not None:
            ids = ids.where(ids.ended >= f.to_timestamp(f.lit(asked["since"])))
        known = self._ledger(asked["ledger"])
        jobs = replayed(self._read("added", queues=self._queues), ids, known, self._to).persist()
        try:
            count = jobs.count()
            missing = ids.join(known, "id", "left_anti").count() - count if known is not None else ids.count() - count
            if self._queues == "*" and missing > 0:
                self._run.say(
                    f"of {missing} jobs that ended so no body is in {self._source}, or they are events of logs"
                )
            if asked["dry_run"]:
                self._run.say(f"{count} jobs would be added")
                return
            add_jobs(jobs.select("queue", "body", f.concat_ws("/", f.lit(NAME), "id").alias("key")), nodes)
            if asked["ledger"] is not None and count:
                jobs.select("id").write.mode("append").parquet(asked["ledger"])
            self._run.count(count)
            self._run.say(f"done: {count} jobs were added, or were there already")
        finally:
            jobs.unpersist()

    def _ledger(self, path: str | None) -> "DataFrame | None":
        from disqued.pipeline.files import FileSystems

        if path is None or not FileSystems(self._run.spark).exists(path):
            return None
        return self._run.spark.read.schema(IDS).parquet(path).dropDuplicates(["id"])
