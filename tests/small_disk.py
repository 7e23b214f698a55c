"""A small real file system for a test, which can be filled to the brim and relieved again.

It is mounted in memory, which needs the rights of an administrator: where they are missing the test fails and says so,
for a full disk cannot be had in any other way that is real.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import attrs

PIECE = 4_096


@attrs.frozen
class SmallDisk:
    """A mounted file system; sizes are bytes."""

    path: Path

    @property
    def _filler(self) -> Path:
        return self.path / "filler"

    def fill(self) -> None:
        """Take up all the room that there is."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (PIECE, 1):
                with contextlib.suppress(OSError):
                    while file.write(bytes(size)):
                        pass

    def relieve(self) -> None:
        """Give the room back."""
        os.truncate(self._filler, 0)


@contextlib.contextmanager
def small_disk(path: Path, size: int) -> Iterator[SmallDisk]:
    """Mount one on a folder, which is made, for as long as the `with` lasts."""
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "disqued-test", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert mounted.returncode == 0, f"a test of a full disk has to mount one, as root: {mounted.stderr}"
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
