"""`disqued-spark tail`: the event log of all nodes on the console, as it is written."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from disqued.pipeline.errors import Misused
from disqued.pipeline.moving import SOURCE, checkpoint_at
from disqued.pipeline.run import place_of, running, spark_options, to_its_end
from disqued.wire.texts import shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

US_IN_S: Final = 1_000_000
US_IN_MS: Final = 1_000
#: What stands at the beginning of a line, and what says nothing to people.
LEADING: Final = ("ts_us", "node", "event", "queue", "job_id")
UNSAID: Final = (*LEADING, "v", "boot", "seq", "date")
#: What is read in one batch, so that a log that is long is shown from its beginning on at once.
BATCH_BYTES: Final = 4 << 20


@attrs.frozen
class TailFilter:
    """Which events are shown; nothing named = all."""

    queues: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()

    def of(self, rows: "DataFrame") -> "DataFrame":
        """Leave out what is not wanted, as far as Spark can: patterns of queues are looked at afterwards."""
        for column, words in (("event", self.events), ("job_id", self.jobs), ("node", self.nodes)):
            if words:
                rows = rows.where(rows[column].isin(*words))
        return rows.where("boot IS NOT NULL")

    def has(self, row: Mapping[str, Any]) -> bool:
        """Tell whether an event is of a queue that is wanted."""
        return not self.queues or any(fnmatchcase(row["queue"] or "", pattern) for pattern in self.queues)


@click.command(epilog="The columns are those of the event log: docs/reference/event-log.md.")
@click.option("--events", "folder", required=True, envvar="DISQUED_EVENTS", metavar="DIR",
              help="Folder of the event logs: the one with date=... in it.")  # fmt: skip
@click.option("--queue", "queues", multiple=True, metavar="NAME", help="Queues, or patterns of them.")
@click.option("--event", "events", multiple=True, metavar="WORD", help="Such as add, deliver, ack, expire.")
@click.option("--job", "jobs", multiple=True, metavar="ID", help="Jobs.")
@click.option("--node", "nodes", multiple=True, metavar="HEX", help="Nodes, by the first 8 digits of their ids.")
@click.option("--all", "from_start", is_flag=True, help="Begin at the oldest event, not behind the last one.")
@click.option("--once", is_flag=True, help="Show what is there, and end.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@spark_options
def command(folder: str, from_start: bool, once: bool, as_json: bool, **words: Any) -> None:
    """Show what happens in queues, about half a second after it has happened, until Ctrl-C.

    \b
        disqued-spark tail --events /mnt/events --queue 'mail*' --event nack --event expire
        disqued-spark tail --events /mnt/events --all --once --job DI1f0e2d3c...SQ --json | jq .

    Files that nodes have not published yet are read, too.  Events of one node are in order; those of several are sorted
    by their clocks, as far as they come together.
    """
    wanted = TailFilter(**{name: tuple(words.pop(name)) for name in ("queues", "events", "jobs", "nodes")})

    def show(rows: "DataFrame", number: int) -> None:
        found = wanted.of(rows).orderBy("ts_us", "node", "boot", "seq").toLocalIterator()
        shown = (row.asDict() for row in found)
        sys.stdout.writelines(lines_of((row for row in shown if wanted.has(row)), as_json=as_json))
        sys.stdout.flush()

    if not Path(folder).is_dir():
        raise Misused(f"there is no folder {folder}: --events names the one with date=... in it")
    options = {"events": folder, "maxBytesPerTrigger": str(BATCH_BYTES)}
    options["startingPosition"] = "earliest" if from_start or once else "latest"
    with running("tail", place_of(words)) as run, checkpoint_at(None) as checkpoint:
        run.say(f"following {folder}")
        stream = run.spark.readStream.format(SOURCE).options(**options).load().writeStream.foreachBatch(show)
        stream = stream.option("checkpointLocation", checkpoint)
        to_its_end(stream.trigger(availableNow=True) if once else stream)


def lines_of(rows: Iterable[Mapping[str, Any]], *, as_json: bool) -> Iterator[str]:
    """Write events as lines that print, for people or for programs; what is not there is left out."""
    for row in rows:
        told = {name: value for name, value in row.items() if value is not None}
        yield (_json(told) if as_json else shown(_line(told))) + "\n"


def _json(told: Mapping[str, Any]) -> str:
    text = json.dumps(told, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(told)


def _line(told: Mapping[str, Any]) -> str:
    moment = datetime.fromtimestamp(told["ts_us"] // US_IN_MS / 1_000, UTC)
    when = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    rest = [_member(name, value) for name, value in told.items() if name not in UNSAID]
    return " ".join([when, *(str(told.get(name, "-")) for name in LEADING[1:]), *rest])


def _member(name: str, value: Any) -> str:
    if name.endswith("_us"):
        return f"{name.removesuffix('_us')}={value / US_IN_S:g}s"
    if name.endswith("_s"):
        return f"{name.removesuffix('_s')}={value:g}s"
    return f"{name}={value}"
