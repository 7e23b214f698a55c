"""`disqued check-aof`: a journal is examined, and repaired when told so (`persistence.check`).

Exit status: 0 = the journal is whole, 1 = it is not, 2 = wrong usage.
"""

import sys
from io import StringIO
from pathlib import Path
from typing import Final

import click

from disqued.persistence.check import check, size_of
from disqued.tools.program import HELP_LETTER
from disqued.tools.progress import meter

TOOL: Final = "check-aof"
NAME: Final = "disque.aof"


@click.command(TOOL, context_settings=HELP_LETTER)
@click.argument("path", required=False)
@click.option("--dir", "folder", metavar="DIR", help=f"Folder of a journal that is called {NAME}; else this one.")
@click.option("--repair", is_flag=True, help="Write a journal of what is whole; the old one is kept.")
def command(path: str | None, folder: str | None, *, repair: bool) -> int:
    """Examine a journal (persistence aof) and say what of it is lost.

    PATH is what the journal's files are named after, or its manifest.  No node may have it.

    \b
    Examples:
      disqued check-aof --dir /var/lib/disqued
      disqued check-aof --repair /var/lib/disqued/disque.aof
    """
    if path and folder:
        raise click.UsageError("give a path or --dir, not both")
    journal = Path(path.removesuffix(".manifest")) if path else Path(folder or ".") / NAME
    if journal.is_dir():
        journal /= NAME
    report = StringIO()
    with meter(TOOL, size_of(journal), "bytes") as advance:
        status = check(journal, report, repair=repair, advance=advance)
    sys.stdout.write(report.getvalue())
    return status
