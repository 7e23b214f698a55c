"""The folder that a test of this kind works in: in memory, where there is room for it.

What is in files after whatever has happened is looked at here some thousand times, and each time the store waits for
the disk as often as it promises.  What it asks of the disk is the same, and is looked at by the tests themselves.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ROOM = 1 << 30  #: bytes that must be free there; the tests take a few megabytes


def has_room(folder: Path) -> bool:
    """Tell whether a folder is there, and has room enough."""
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        return False
    facts = os.statvfs(folder)
    return facts.f_bavail * facts.f_frsize >= ROOM


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A folder of this test alone."""
    if not has_room(MEMORY):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="disqued-test-", dir=MEMORY, ignore_cleanup_errors=True) as place:
        yield Path(place)
