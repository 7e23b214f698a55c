"""Switching stores while the node runs: the new one is complete before the old one is left.

    CONFIG SET persistence NAME
        new store opened and emptied
        from here on it gets the records of each step, like the old one
        and between the turns, slice by slice, everything that the node knows (`recovery.walk`)
        the walk is over and committed: one commit of both, nothing acknowledged meanwhile
        `store.conf` names the new store; it takes over; the old one is closed

Until `store.conf` names the new store the old one holds all that was acknowledged, and afterwards the new one.  So a
start reads the store that this file names; if the configuration names another one by then, it is switched to in the
same way.  That moves a node's jobs with an edit of its configuration, too.

The file names stores that keep a journal only: a node that runs without one for a while leaves the word as it was.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued.core.model.outbox import Record
from disqued.core.recovery import draw, walk
from disqued.net.cluster.identity import sync_folder
from disqued.net.process.driver import Driver
from disqued.persistence.interface import IStore, StoreError, StoreFailed

STORE_FILE = "store.conf"
RECORDS_PER_SLICE = 500  #: records copied before clients get their turn: about 3 ms
RETRY_S = 0.2  #: pause before a store that is full or away is tried again
TRIES = 50  #: attempts before the switch is given up
REST = 3.0  #: pause between two slices, as a multiple of what the slice took

#: Opens a store by its name.  Raises StoreError.
OpenStore = Callable[[str], IStore]


class StoreMarker:
    """The word in the data folder which store holds the jobs."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / STORE_FILE

    def read(self) -> str | None:
        """The name of the store; None before there is one.  Raises StoreError."""
        try:
            words = self._path.read_text("ascii").split()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{self._path} cannot be read: {error.strerror}") from None
        except ValueError:
            words = []
        if len(words) != 2 or words[0] != "persistence":
            raise StoreError(
                f"{self._path}: expected one line, `persistence NAME`; remove the file to start with what the"
                " configuration names"
            )
        return words[1]

    def write(self, name: str) -> None:
        """Name a store, durably; if that fails, the file says what it said.  Raises StoreError."""
        before = self._path.read_bytes() if self._path.exists() else None
        try:
            self._replace(f"persistence {name}\n".encode("ascii"))
        except OSError as error:
            self._put_back(before)
            raise StoreError(f"{self._path} cannot be written: {error.strerror}") from None

    def _replace(self, text: bytes) -> None:
        aside = self._path.with_name(STORE_FILE + ".new")
        with open(aside, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, self._path)
        sync_folder(self._path.parent)

    def _put_back(self, text: bytes | None) -> None:
        """The name may have been replaced before the folder could be synced."""
        with suppress(OSError):
            if text is None:
                self._path.unlink(missing_ok=True)
            elif self._path.read_bytes() != text:
                self._replace(text)


class StoreSwitch:
    """Moves a node from one store to another; one at a time."""

    log = Logger()

    def __init__(
        self, driver: Driver, word: StoreMarker, name: str, *, opener: OpenStore, failed: Callable[[str], None]
    ) -> None:
        """Take the name of the store that is in use; `failed` is told the name that stays when a switch fails."""
        self.name: str = name  #: the store in use
        self.target: str | None = None  #: the store that is being filled
        self.last_failure: str | None = None  #: why the last switch failed
        self._filled: IStore | None = None  #: the store being filled, once it is open
        self._closing: set[str] = set()  #: former stores that are still closing
        self._driver = driver
        self._word = word
        self._open = opener
        self._reactor: IReactorTime = driver.reactor
        self._failed = failed
        self._is_naming = False  #: `store.conf` is being written
        self._records: Iterator[Record | None] = iter(())
        self._copied = 0

    def note_loaded(self) -> None:
        """Write down which store the node has come from.  Raises StoreError."""
        if self._driver.store.records and self._word.read() != self.name:
            self._word.write(self.name)

    def begin(self, name: str) -> None:
        """Begin to move to another store.  Raises StoreError when that cannot be."""
        if self.target is not None:
            raise StoreError(f"the jobs are being copied to `{self.target}`; change the store when that is over")
        if name in self._closing:
            raise StoreError(f"`{name}` is still being closed; change the store when that is over")
        self.last_failure = None
        successor = self._open(name)
        try:
            renewing = successor.renew()
        except StoreError:
            self._close(successor.discard, name)
            raise
        self.log.info("Changing the store: {old} to {new}", old=self.name, new=name)
        self.target = name
        self._filled = successor
        if renewing is None:
            self._follow(successor)
        else:
            renewing.addCallbacks(lambda _: self._follow(successor), self._ask_failed)

    def _follow(self, successor: IStore) -> None:
        """Give records to the new store, which is empty now, and begin to copy."""
        if self._filled is not successor:
            return
        self._driver.handover.follow(successor)
        self._copied = 0
        # Nobody reads a journal of a store that keeps none.
        self._records = walk(self._driver.node.state) if successor.records else iter(())
        self._copy_later(0, successor)

    def abandon(self) -> None:
        """Stop a switch that is under way: the daemon ends."""
        # Once its name is being written, the new store counts: the driver waits for that before it stops.
        if self.target is not None and not self._is_naming:
            self._give_up("the node stops")

    def _ask_failed(self, failure: Failure) -> None:
        if not isinstance(failure.value, StoreError):
            self.log.failure("Internal error while changing the store", failure=failure)
        self._give_up(str(failure.value))

    def _copy(self, successor: IStore) -> None:
        """Copy a slice, unless the switch was given up meanwhile."""
        if self._filled is not successor:
            return
        began = self._reactor.seconds()
        records = draw(self._records, RECORDS_PER_SLICE)
        if records is None:
            self._driver.handover.hand_over(self._take_over)
            return
        self._copied += len(records)
        successor.append(records)
        rest_s = (self._reactor.seconds() - began) * REST
        self._commit(successor, rest_s)

    def _commit(self, successor: IStore, rest_s: float, tries: int = TRIES) -> None:
        """Commit what was copied; a store that cannot for a while is asked again."""
        if self._filled is not successor:
            return

        def fail(error: BaseException) -> None:
            if isinstance(error, StoreFailed) and not error.final and tries:
                self._reactor.callLater(RETRY_S, self._commit, successor, rest_s, tries - 1)
            else:
                self._give_up(str(error))

        try:
            committing = successor.commit()
        except StoreError as error:
            fail(error)
            return
        if committing is None:
            self._copy_later(rest_s, successor)
        else:
            committing.addCallbacks(lambda _: self._copy_later(rest_s, successor), lambda failure: fail(failure.value))

    def _copy_later(self, rest_s: float, successor: IStore) -> None:
        self._reactor.callLater(rest_s, self._copy, successor)

    def _take_over(self, error: StoreError | None) -> "Deferred[None] | None":
        """Make the successor, which holds everything, the store that counts.

        Its name is written in a thread: to sync takes long while the disk has much to write.
        """
        if self.target is None:
            return None
        if error is not None:
            self._give_up(str(error))
            return None
        successor = self._filled
        assert successor is not None
        if not successor.records:
            self._succeed()
            return None
        self._is_naming = True
        naming: Deferred[None] = deferToThread(self._word.write, self.target)
        return naming.addBoth(self._named)

    def _named(self, result: Failure | None) -> None:
        self._is_naming = False
        if result is None:
            self._succeed()
        else:
            self._ask_failed(result)

    def _succeed(self) -> None:
        assert self.target is not None
        self.log.info(
            "The store is {new} now, {count} records were copied; {old} is left",
            new=self.target, old=self.name, count=self._copied,
        )  # fmt: skip
        left, self.name, self.target = self.name, self.target, None
        self._filled = None
        self._close(self._driver.succeed().close, left)

    def _give_up(self, reason: str) -> None:
        successor, self._filled = self._filled, None
        self.log.error("The store stays {old}, not {new}: {reason}", old=self.name, new=self.target, reason=reason)
        target, self.target = self.target, None
        self.last_failure = f"{target}: {reason}"
        self._records = iter(())
        self._driver.handover.drop()
        if successor is not None and target is not None:
            self._close(successor.discard, target)
        self._failed(self.name)

    def _close(self, let_go: "Callable[[], Deferred[None] | None]", name: str) -> None:
        """Let go of a store that nobody relies on."""
        try:
            result = let_go()
        except StoreError as error:
            self.log.warn("Closing a store that is left: {reason}", reason=str(error))
            return
        if result is not None:
            self._closing.add(name)
            result.addErrback(
                lambda failure: self.log.warn("Closing a store that is left: {reason}", reason=str(failure.value))
            ).addBoth(lambda _: self._closing.discard(name))
