"""`disqued check-aof`: a journal is examined, and repaired when told so (`persistence.check`).

    what was named --manifest or segments there?--> examine it, and say what is lost
                   --neither--> say what it is instead; nothing is written beside it, with --repair neither

Exit status: 0 = the journal is whole, 1 = it is not, 2 = wrong usage, or what was named is no journal.
"""

import re
import sys
from io import StringIO
from pathlib import Path
from typing import Final

import click

from disqued.persistence.aof.manifest import JournalFiles
from disqued.persistence.check import DAMAGED, check, size_of
from disqued.persistence.disk import Disk, reason
from disqued.persistence.filekinds import MANIFEST, SEGMENT, UNKNOWN, kind_at
from disqued.persistence.interface import StoreError
from disqued.tools.program import INTERRUPTED, MISUSED, end_echo
from disqued.tools.progress import meter

TOOL: Final = "check-aof"
NAME: Final = "disque.aof"
_SEGMENT = re.compile(r"\.\d+\.(?:base|incr)$")
#: Lines that a manifest still has when its first one is damaged.
TRACES: Final = (b"\nincr ", b"\nbase ", b"\ncheck ")


@click.command(TOOL)
@click.argument("path", required=False, type=click.Path())
@click.option("--dir", "folder", metavar="DIR", type=click.Path(file_okay=False),
              help=f"Folder of a journal that is called {NAME}; else this one.")  # fmt: skip
@click.option("--repair", is_flag=True, help="Write a journal of what is whole; the old one is kept.")
def command(path: str | None, folder: str | None, *, repair: bool) -> int:
    """Examine a journal (persistence aof) and say what of it is lost.

    PATH is what the journal's files are named after, or its manifest.  A node may be using it, but not with --repair.

    Exit status 0: the journal is whole.  1: it is not, or nobody can tell.  2: there is no journal, and what there is
    instead is told.

    \b
    Examples:
      disqued check-aof --dir /var/lib/disqued
      disqued check-aof --repair /var/lib/disqued/disque.aof
    """
    if path and folder:
        raise click.UsageError("give a path or --dir, not both")
    named = Path(path or folder or ".")
    journal = Path(path.removesuffix(".manifest")) if path else named / NAME
    if journal.is_dir():
        journal /= NAME
    try:
        status, problem = MISUSED, instead_of_journal(named, journal)
    except OSError as error:
        status, problem = DAMAGED, f"{error.filename or named}: {reason(error)}"
    except StoreError as error:
        status, problem = DAMAGED, str(error)
    if problem:
        click.echo(f"disqued {TOOL}: {problem}", err=True)
        return status
    report = StringIO()
    try:
        with meter(TOOL, size_of(journal), "bytes") as advance:
            status = check(journal, report, repair=repair, advance=advance)
    except KeyboardInterrupt:
        end_echo()
        changed = (
            "it has been repaired, or is as it was; look again" if repair else "nobody has seen yet whether it is whole"
        )
        click.echo(f"disqued {TOOL}: interrupted: {changed}", err=True)
        return INTERRUPTED
    sys.stdout.write(report.getvalue())
    return status


def instead_of_journal(named: Path, journal: Path) -> str:
    """Say what the user has named, where there is no journal; "" where there is one, or what is left of it.

    Raises OSError, StoreError.
    """
    files = JournalFiles(journal, Disk())
    folder = journal.parent
    if not folder.is_dir():
        return _other(named) if named.exists() else f"{folder}: there is no such folder"
    if any(files.holding()) or _is_manifest(files.manifest_path):
        return ""
    for path in (files.manifest_path, journal, named):
        if path.exists() and path != folder:
            return _other(path)
    return f"{files.manifest_path}: there is no journal of this name"


def _is_manifest(path: Path) -> bool:
    """Tell whether a file is a manifest, however damaged.  Raises OSError."""
    if not path.is_file():
        return False
    kind = kind_at(path)
    return kind == MANIFEST or (kind == UNKNOWN and any(trace in path.read_bytes() for trace in TRACES))


def _other(path: Path) -> str:
    """Say what a file is that is no journal.  Raises OSError."""
    kind = kind_at(path)
    if kind == SEGMENT:
        return f"{path} is {kind}; give the name that all of them begin with: {_SEGMENT.sub('', str(path))}"
    return f"{path} is no journal of disqued, but {kind}"
