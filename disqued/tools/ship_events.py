"""`disqued ship-events`: published files of the event log, copied to where they are analysed.

    FROM/date=D/node=N/events-*.jsonl --copy--> TO/date=D/node=N/_ship-*.jsonl --sync, rename--> events-*.jsonl

For nodes that do not write to shared storage themselves.  A file is copied once: one that is there with its size is
passed over, so that the tool can be run again and again, by hand, by a timer, or with `--every` as a service.  Readers
of the other side never see half a file.  With `--remove` what is safely there is removed here.
"""

import math
import os
import shutil
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from disqued.config import Config, ConfigError
from disqued.tools.running import DONE, FAILED, INTERRUPTED, MISUSED, Arguments, complain

TOOL: Final = "ship-events"
PATTERN: Final = "date=*/node=*/events-*"  #: published files; compressed ones, too
MOST_SECONDS: Final = 86_400 * 365
DESCRIPTION: Final = """\
Copy the published files of a node's event log to another folder, such as one on shared storage.

Files that are there already are passed over; each appears there whole, or not at all.
docs/reference/event-log.md describes the files.
"""


@attrs.define
class Tally:
    """What one round did."""

    shipped: int = 0
    shipped_bytes: int = 0
    known: int = 0  #: files that were there already
    removed: int = 0


def ship(source: Path, target: Path, *, remove: bool = False) -> Tally:
    """Copy what is published below `source` and is not below `target` yet, oldest first.  Raises OSError."""
    tally = Tally()
    for path in _published(source):
        goal = target / path.relative_to(source)
        size = path.stat().st_size
        if goal.is_file() and goal.stat().st_size == size:
            tally.known += 1
        else:
            _copy(path, goal)
            tally.shipped += 1
            tally.shipped_bytes += size
        if remove:
            path.unlink()
            tally.removed += 1
    return tally


def _published(source: Path) -> Iterator[Path]:
    return iter(sorted(source.glob(PATTERN), key=lambda path: (path.parts[-3], path.name, path.parts[-2])))


def _copy(path: Path, goal: Path) -> None:
    """Copy a file so that it is there whole, and durably, or not at all."""
    goal.parent.mkdir(parents=True, exist_ok=True)
    # Two that ship at the same time do not write to one file.
    aside = goal.with_name(f"_ship-{os.getpid()}-{goal.name}")
    try:
        with path.open("rb") as origin, aside.open("wb") as copy:
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


def main(arguments: Sequence[str]) -> int:
    """Run the tool; returns the exit status."""
    parser = Arguments(TOOL, DESCRIPTION)
    parser.add_argument("to", metavar="TO", type=Path, help="folder that the files are copied to; it must be there")
    parser.add_argument("--config", metavar="FILE", help="configuration file of the node: its events-dir is meant")
    parser.add_argument("--from", dest="source", metavar="FOLDER", type=Path, help="that folder itself")
    parser.add_argument("--remove", action="store_true", help="remove files here that are safely there")
    parser.add_argument("--every", metavar="SECONDS", type=_seconds, default=0.0, help="go on, with this pause")
    options = parser.parse_args(arguments)
    try:
        source = options.source or _events_dir(options.config)
    except ConfigError as error:
        complain(TOOL, str(error))
        return MISUSED
    problem = _problem(source, options.to)
    if problem:
        complain(TOOL, problem)
        return FAILED
    return _go(source, options.to, remove=options.remove, every_s=options.every)


def _seconds(text: str) -> float:
    """Read a span.  Raises ArgumentTypeError."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= MOST_SECONDS:  # nor is what is no number
        raise ArgumentTypeError(f"{text!r} is no number of seconds; it has to be 0 (once) to {MOST_SECONDS}")
    return seconds


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
                status = DONE
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
        return INTERRUPTED
