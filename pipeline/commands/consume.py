"""`disqued-spark consume`: queues or a log, batch by batch, into files of Parquet."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from disqued.pipeline.errors import Misused
from disqued.pipeline.files import FileSystems, locked
from disqued.pipeline.moving import SOURCE, StagedFolder, check_use, counted, need_address, node_options, nodes_of
from disqued.pipeline.run import PipelineRun, place_of, running, spark_options, to_its_end
from disqued.tools.values import Number

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHECKPOINT: Final = "_checkpoint"
BATCH: Final = "batch="
LOCK: Final = "_consume.lock"
SOURCE_FILE: Final = "_consume.json"  #: what the batches are made of
#: How all names in such a folder begin: a batch that is being written has an underscore.
OWN: Final = (BATCH, f"_{BATCH}", CHECKPOINT, "_consume.", ".")


@click.command(epilog="The columns are those of a stream: docs/reference/spark.md.")
@click.option("--queues", required=True, metavar="NAMES", help="Queues, or logs, with commas or as a JSON array.")
@click.option("--to", required=True, metavar="DIR", help="Folder of the files: a folder batch=... for each batch.")
@click.option("--group", metavar="NAME", help="The queues are logs, and this is the group that gets their events.")
@click.option("--every", type=Number(min=0.1), metavar="SECONDS", help="Go on for ever, at this interval.")
@node_options
@spark_options
def command(queues: str, to: str, group: str | None, every: float | None, **words: Any) -> None:
    """Take jobs out of queues, write them to files of Parquet, and acknowledge them.

    It takes what waits, and ends; with --every it goes on.  Jobs are acknowledged when their batch is written, so that
    none is lost; a batch that is done again, after a kill, takes the place of what it had written, so that none is in
    the files twice.

    \b
        disqued-spark consume --address 127.0.0.1:7711 --queues mail --to /srv/mail
        disqued-spark consume --address 127.0.0.1:7711 --queues news --group archive --to /srv/news --every 10

    What is under way is noted in DIR/_checkpoint.  A batch appears as a whole: any program may read DIR meanwhile.
    """
    nodes = {**nodes_of(words), "queues": queues, **({"group": group} if group is not None else {})}
    need_address(nodes)
    check_use(nodes, "STREAM" if group is None else "GROUP")
    with running("consume", place_of(words)) as run:
        Consumption(run, to).go(nodes, every)


class Consumption:
    """Batches of a stream on their way into a folder."""

    def __init__(self, run: PipelineRun, to: str) -> None:
        self._run = run
        self._to = to.rstrip("/")
        self._files = FileSystems(run.spark)

    def go(self, nodes: dict[str, str], every: float | None) -> None:
        """Run the stream.  Raises Misused."""
        self._check(f"{self._to}/{CHECKPOINT}")
        with self._alone():
            self._note_source(nodes)
            self._stream(nodes, every)
        self._run.say(f"done: {self._run.rows} jobs are in {self._to}")

    def _stream(self, nodes: dict[str, str], every: float | None) -> None:
        checkpoint = f"{self._to}/{CHECKPOINT}"
        stream = self._run.spark.readStream.format(SOURCE).options(**nodes).load().writeStream
        stream = stream.foreachBatch(self.take).option("checkpointLocation", checkpoint)
        timed = (
            stream.trigger(availableNow=True) if every is None else stream.trigger(processingTime=f"{every} seconds")
        )
        to_its_end(timed)

    def _check(self, checkpoint: str) -> None:
        if self._files.exists(self._to) and not self._files.is_folder(self._to):
            raise Misused(f"{self._to} is a file: --to names a folder, one that is new or was filled by consume")
        names = [path.rpartition("/")[2] for path in self._files.matching(f"{self._to}/*")]
        strange = [name for name in names if not name.startswith(OWN)]
        if strange and not any(name.startswith((BATCH, CHECKPOINT)) for name in names):
            raise Misused(
                f"{self._to} has something else in it ({strange[0]}): --to names a folder that is new, or was filled "
                "by consume"
            )
        if any(name.startswith(BATCH) for name in names) and not self._files.exists(f"{checkpoint}/offsets"):
            raise Misused(
                f"{self._to} has batches, but not what is known of them ({checkpoint}): their numbers would begin "
                "anew, and new batches take the place of old ones.  Put that folder back, or name another one"
            )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let nobody else on this machine fill the folder meanwhile.  Raises Misused."""
        name = f"{self._to}/{LOCK}"
        with ExitStack() as stack:
            if self._files.is_local(name):
                try:
                    stack.enter_context(locked(Path(self._files.local(name))))
                except BlockingIOError:
                    raise Misused(f"another run of consume is at work on {self._to}: one at a time") from None
            yield

    def _note_source(self, nodes: dict[str, str]) -> None:
        """Note what the folder is filled from.  Raises Misused where it was something else."""
        name, source = f"{self._to}/{SOURCE_FILE}", nodes.get("group", "")
        text = self._files.read_text(name)
        if text is None and not self._files.exists(f"{self._to}/{CHECKPOINT}/offsets"):
            self._files.write_text(name, json.dumps({"group": source}))
        before = source if text is None else json.loads(text)["group"]
        if before != source:
            raise Misused(
                f"{self._to} was filled {_by(before)}, and cannot go on {_by(source)}: what is known of its batches is "
                "another thing.  Name another folder"
            )

    def take(self, jobs: "DataFrame", number: int) -> None:
        """Write a batch, which takes the place of what a run that was killed has left of it."""
        count = counted(jobs, StagedFolder(self._run, f"{self._to}/batch={number:08d}").write)
        self._run.count(count)
        self._run.say(f"batch {number}: {count} jobs")


def _by(group: str) -> str:
    return f"with --group {group}" if group else "without --group"
