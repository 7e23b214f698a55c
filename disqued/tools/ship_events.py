"""`disqued ship-events`: published files of the event log, copied to where they are analysed.

    FROM/date=D/node=N/events-*.jsonl --copy--> TO/date=D/node=N/_ship-*.jsonl --sync, rename--> events-*.jsonl

For nodes that do not write to shared storage themselves.  A file is copied once: one that is there already is passed
over, so that the tool can be run again and again, by hand, by a timer, or with `--every` as a service.  Readers of the
other side never see half a file.  One of the same name with other lines is another file: it is neither replaced nor is
ours removed, and that is told.

With `--remove` what is safely there is removed here, but for the newest file of each node: by that a node knows, when
it starts, the number of its last boot, and where that ended.
"""

import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

import attrs
import click

from disqued.config import Config, ConfigError
from disqued.files import create_anew
from disqued.tools.program import DONE, FAILED, INTERRUPTED, MISUSED, end_echo
from disqued.tools.progress import Advance, meter
from disqued.tools.running import complain
from disqued.tools.values import Seconds

TOOL: Final = "ship-events"
PATTERN: Final = "date=*/node=*/events-*"  #: published files; compressed ones, too
MOST_SECONDS: Final = 86_400 * 365
EDGE_BYTES: Final = 4_096  #: at both ends of two files of one size by which they are told from each other
PIECE_BYTES: Final = 1 << 20


@attrs.define
class ShipTally:
    """What one round did."""

    shipped: int = 0
    shipped_bytes: int = 0
    known: int = 0  #: files that were there already
    removed: int = 0
    others: list[Path] = attrs.field(factory=list)  #: files there that have the name of one here, and other lines


def ship(source: Path, target: Path, *, remove: bool = False) -> ShipTally:
    """Copy what is published below `source` and is not below `target` yet, oldest first.  Raises OSError."""
    tally = ShipTally()
    files = sorted(source.glob(PATTERN), key=lambda path: (path.parts[-3], path.name, path.parts[-2]))
    with meter("ship-events", sum(path.stat().st_size for path in files), "bytes") as advance:
        _ship(source, target, files, tally, advance, remove=remove)
    return tally


def _ship(
    source: Path, target: Path, files: Sequence[Path], tally: ShipTally, advance: Advance, *, remove: bool
) -> None:
    newest = {path.parent.name: path for path in sorted(files, key=_place)}
    for path in files:
        goal = target / path.relative_to(source)
        size = path.stat().st_size
        is_there = goal.is_file()
        if is_there and not _is_of(goal, path):
            tally.others.append(goal)
            continue
        if is_there and goal.stat().st_size == size:
            tally.known += 1
        else:
            _copy(path, goal)
            tally.shipped += 1
            tally.shipped_bytes += size
        advance(size)
        if remove and newest[path.parent.name] != path:
            path.unlink()
            tally.removed += 1


def _place(path: Path) -> list[int]:
    """The numbers in the name of a file: its boot, and its first line."""
    return [int(number) for number in re.findall(r"\d+", path.name)]


def _is_of(goal: Path, path: Path) -> bool:
    """Tell whether a file is a copy of another one, or the first part of it, as a copy that was broken off is."""
    size, whole = goal.stat().st_size, path.stat().st_size
    with goal.open("rb") as there, path.open("rb") as here:
        if size == whole:
            edges = [0, max(0, size - EDGE_BYTES)]
            return all(_piece(there, at) == _piece(here, at) for at in edges)
        if size > whole:
            return False
        while piece := there.read(PIECE_BYTES):
            if here.read(len(piece)) != piece:
                return False
    return True


def _piece(file: BinaryIO, at: int) -> bytes:
    file.seek(at)
    return file.read(EDGE_BYTES)


def _copy(path: Path, goal: Path) -> None:
    """Copy a file so that it is there whole, and durably, or not at all."""
    goal.parent.mkdir(parents=True, exist_ok=True)
    # Two that ship at the same time do not write to one file.
    aside = goal.with_name(f"_ship-{os.getpid()}-{goal.name}")
    try:
        with path.open("rb") as origin, create_anew(aside, 0o666) as copy:
            shutil.copyfileobj(origin, copy, 1 << 20)
            copy.flush()
            os.fsync(copy.fileno())
        aside.replace(goal)
    finally:
        aside.unlink(missing_ok=True)
    folder = os.open(goal.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@click.command(TOOL)
@click.argument("to", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--config", metavar="FILE", type=click.Path(), help="Configuration file of the node: its events-dir is meant."
)
@click.option(
    "--from", "source", metavar="FOLDER", type=click.Path(path_type=Path, file_okay=False), help="That folder itself."
)
@click.option("--remove", is_flag=True, help="Remove files here that are safely there, but each node's newest.")
@click.option(
    "--every", metavar="SECONDS", type=Seconds(MOST_SECONDS, zero=True), default=0.0, help="Go on, with this pause."
)
def command(to: Path, config: str | None, source: Path | None, *, remove: bool, every: float) -> int:
    """Copy the published files of a node's event log to another folder, such as one on shared storage.

    Files that are there already are passed over; each appears there whole, or not at all.  One that is there with
    other lines stays as it is, and that is an error.  TO is the folder that the files are copied to; it must be there.
    docs/reference/event-log.md describes the files.

    \b
    Examples:
      disqued ship-events --from /var/lib/disqued/events /mnt/lake/events
      disqued ship-events --config /etc/disqued/disqued.conf --remove --every 60 /mnt/lake/events
    """
    try:
        source = source or _events_dir(config)
    except ConfigError as error:
        complain(TOOL, str(error))
        return MISUSED
    problem = _problem(source, to)
    if problem:
        complain(TOOL, problem)
        return FAILED
    return _go(source, to, remove=remove, every_s=every)


def _events_dir(file: str | None) -> Path:
    """The folder of the event log by a configuration file, or by the defaults.  Raises ConfigError."""
    config = Config() if file is None else Config.from_file(file)
    assert config.events_dir is not None
    return config.events_dir


def _problem(source: Path, target: Path) -> str:
    """What keeps files from being shipped; empty = nothing."""
    if not source.is_dir():
        return f"{source} is no folder; --from or the events-dir of --config names that of the event log"
    if not target.is_dir():
        return f"{target} is no folder; make it, or mount what it stands for, first"
    if source.resolve() == target.resolve():
        return f"{target} is the folder of the event log itself"
    return ""


def _go(source: Path, target: Path, *, remove: bool, every_s: float) -> int:
    """Ship once, or round after round; trouble ends a single round, and is told and outlived by several."""
    status = DONE
    try:
        while True:
            try:
                tally = ship(source, target, remove=remove)
            except OSError as error:
                complain(TOOL, f"{error.filename}: {error.strerror}" if error.filename else str(error))
                status = FAILED
            else:
                status = FAILED if tally.others else DONE
                for path in tally.others:
                    complain(TOOL, f"{path} is there with other lines than the file here: both stay as they are")
                if tally.shipped or not every_s:
                    sys.stdout.write(
                        f"files shipped: {tally.shipped} ({tally.shipped_bytes} bytes), there already: {tally.known},"
                        f" removed here: {tally.removed}\n"
                    )
                    sys.stdout.flush()
            if not every_s:
                return status
            time.sleep(every_s)
    except KeyboardInterrupt:
        end_echo()
        complain(TOOL, f"interrupted: each file in {target} is whole, and a second run ships the others")
        return INTERRUPTED
