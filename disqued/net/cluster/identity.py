"""Identity: the id of this node and the nodes that it knows, kept across restarts.

`nodes.conf` in the data folder holds one line per node, as CLUSTER NODES shows them (`wire.nodesconf`); on a lone node
that is its own:

    <id> :<port> myself 0 0 connected

It is written aside, synced and renamed, so that a crash leaves the old file or the new one.  What changes while the
node serves is written by a thread, as a sync may take long:

    save_members --text--> one text that waits, the newest --thread--> file
    save, release --------------------------------------------------> file, before they return

A lock beside it keeps a second process away from the same data.  Source: Disque, src/cluster.c.
"""

import fcntl
import os
from pathlib import Path
from random import Random
from threading import Lock

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from disqued.core.model.peers import LEAVING, KnownNode
from disqued.core.node import Node
from disqued.errors import CommandError
from disqued.wire.nodesconf import BadNodes, format_nodes, parse_nodes

IDENTITY_FILE = "nodes.conf"


class IdentityError(CommandError):
    """The node's id cannot be read, written or kept from other processes."""


@attrs.define(eq=False)
class Identity:
    """The node's id, the other nodes that it knows, and the file that they are kept in."""

    log = Logger()

    path: Path
    port: int
    lock: int  #: descriptor of the lock file; held until the process ends
    lines: list[KnownNode]  #: what the file says, the own line first
    node: Node | None = None  #: the node whose lines are written; None = those that were read
    #: The file does not say that the node is leaving: it does so only because it stops.
    hides_leaving: bool = attrs.field(default=False, init=False)
    #: Lines to be written that no thread has taken yet; None = none.
    _waiting: bytes | None = attrs.field(default=None, init=False)
    _writing: Lock = attrs.field(factory=Lock, init=False)
    _is_busy: bool = attrs.field(default=False, init=False)  #: a thread is writing, or about to
    _saved: object = attrs.field(
        default=None, init=False
    )  #: what of the lines is worth a write, as it was written last

    @classmethod
    def load(cls, path: Path, port: int, rng: Random) -> "Identity":
        """Read the file, or draw an id when there is none yet.  Raises IdentityError."""
        lock = lock_folder(path.parent)
        try:
            lines = _read(path)
            if lines:
                return cls(path, port, lock, lines)
            if path.exists():
                cls.log.warn("{file} is empty: this node gets a new id, and is to be met again", file=str(path))
            own = KnownNode(b"%040x" % rng.getrandbits(160), "", port, 0, connected=True, myself=True)
            identity = cls(path, port, lock, [own])
            identity.save()
        except IdentityError:
            os.close(lock)
            raise
        return identity

    @property
    def node_id(self) -> bytes:
        """The id of this node."""
        return self.lines[0].id if self.node is None else self.node.id

    def restore(self, node: Node) -> None:
        """Let the node know again whom it knew; from now on it is what this node knows that is written."""
        self.node = node
        node.membership.restore(self.lines)

    def save(self) -> None:
        """Write the file.  Raises IdentityError."""
        self._waiting = None
        lines = self._lines()
        with self._writing:
            self._write(format_nodes(lines))
        self._saved = _worth(lines)

    def save_members(self, node: Node) -> "Deferred[None] | None":
        """Write what the node knows, in a thread; None when that is no news, or another write takes it along.

        Fails with IdentityError.
        """
        self.node = node
        lines = self._lines()
        worth = _worth(lines)
        if worth == self._saved:
            return None
        self._saved = worth
        self._waiting = format_nodes(lines)
        return None if self._is_busy else self._write_apart()

    def release(self) -> None:
        """Let another process use the same data, after what waits is written; harmless when repeated."""
        try:
            self._write_waiting()
        except IdentityError as error:
            self.log.error("What is known of the cluster is not saved: {reason}", reason=str(error))
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1

    def _lines(self) -> list[KnownNode]:
        if self.node is None:
            return self.lines
        own, *others = self.node.membership.lines()
        if self.hides_leaving:
            own = own._replace(flags=own.flags & ~LEAVING)
        return [own if own.port else own._replace(port=self.port), *others]

    def _write_apart(self) -> "Deferred[None]":
        self._is_busy = True
        return deferToThread(self._write_waiting).addBoth(self._written)

    def _written(self, result: object) -> object:
        self._is_busy = False
        if self._waiting is not None:
            return self._write_apart()
        if result is not None:
            # Written again with the next change.
            self._saved = None
        return result

    def _write_waiting(self) -> None:
        with self._writing:
            text, self._waiting = self._waiting, None
            if text is not None:
                self._write(text)

    def _write(self, text: bytes) -> None:
        aside = self.path.with_name(self.path.name + ".new")
        try:
            with open(aside, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, self.path)
            sync_folder(self.path.parent)
        except OSError as error:
            raise IdentityError(f"error saving the cluster node config: {error.strerror}") from error


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


def _read(path: Path) -> list[KnownNode]:
    """Read the file; no lines when there is none, or nothing in it."""
    try:
        text = path.read_bytes() if path.exists() else b""
        return parse_nodes(text) if text.strip() else []
    except OSError as error:
        raise IdentityError(f"cannot read {path}: {error.strerror}") from error
    except BadNodes as error:
        raise IdentityError(f"{path}: {error}") from None


def _worth(lines: list[KnownNode]) -> object:
    """What of the lines is worth a write: all but the times, and whether there is a link."""
    return [line._replace(ping_sent_at=0, pong_at=bool(line.pong_at), connected=True) for line in lines]
