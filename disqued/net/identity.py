"""The id of this node, kept across restarts.

`nodes.conf` in the data folder holds one line per node; on a lone node that is its own:

    <id> :<port> myself 0 0 connected

It is written aside, synced and renamed, so that a crash leaves the old file or the new one.  A lock beside it keeps
a second process away from the same data.  Source: Disque, src/cluster.c.
"""

import fcntl
import os
from pathlib import Path
from random import Random

import attrs

from disqued.core.ids import is_node_id

IDENTITY_FILE = "nodes.conf"


class IdentityError(Exception):
    """The node's id cannot be read, written or kept from other processes."""


@attrs.define
class Identity:
    """The node's id and the file that it is kept in."""

    path: Path
    node_id: bytes
    port: int
    lock: int  #: descriptor of the lock file; held until the process ends

    @classmethod
    def load(cls, path: Path, port: int, rng: Random) -> "Identity":
        """Read the id, or draw one when there is no file yet.  Raises IdentityError."""
        lock = lock_folder(path.parent)
        try:
            text = path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise IdentityError(f"cannot read {path}: {error.strerror}") from error
        if text.strip():
            return cls(path, _own_id(path, text), port, lock)
        identity = cls(path, b"%040x" % rng.getrandbits(160), port, lock)
        identity.save()
        return identity

    def save(self) -> None:
        """Write the file.  Raises IdentityError."""
        aside = self.path.with_name(self.path.name + ".new")
        try:
            with open(aside, "wb") as file:
                file.write(b"%s :%d myself 0 0 connected\n" % (self.node_id, self.port))
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, self.path)
            sync_folder(self.path.parent)
        except OSError as error:
            raise IdentityError(f"error saving the cluster node config: {error.strerror}") from error

    def release(self) -> None:
        """Let another process use the same data; harmless when repeated."""
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_folder(folder: Path) -> int:
    """Keep other nodes, and tools that write, out of a data folder, until the descriptor is closed.

    Raises IdentityError.
    """
    name = folder / (IDENTITY_FILE + ".lock")
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise IdentityError(f"cannot open {name}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise IdentityError(f"{name} is locked: another disqued is running in this folder") from None
    return descriptor


def _own_id(path: Path, text: bytes) -> bytes:
    """Find the line of this node."""
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if not fields or fields[0] == b"vars":
            continue
        if len(fields) != 6 or not is_node_id(fields[0]):
            raise IdentityError(f"{path}, line {number}: expected an id of 40 hex digits and five more fields")
        if b"myself" in fields[2].split(b","):
            return fields[0]
    raise IdentityError(f"{path}: no line says `myself`")
