"""What a store promises: the plug point between a node and whatever outlives it.

    start     store = factory.create(config, reactor, clock);  store.open()
              for record in store.load(): recovery.apply(record)          in slices, while clients hear -LOADING
    a turn    store.append(records) ...  store.commit()                   then, and only then, the replies
    restart   store.rewrite(snapshot(state, with_queues=True), with_queues=True)
    end       store.close()

Everything is called on the reactor's thread and answers at once; what may take long (waiting for a disk) a store does
elsewhere, as far as its promise lets it.

A store is found as a Twisted plugin: an object that provides `IStoreFactory`, in a module of `twisted.plugins`.
"""

# ruff: noqa: N805 - the methods of an interface are written without self

import os
from collections.abc import Iterable, Iterator
from typing import Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.plugin import IPlugin
from zope.interface import Attribute, Interface

from disqued.core.clock import Clock
from disqued.core.job import Job
from disqued.core.outbox import Record


class StoreError(Exception):
    """A store cannot do what it is asked; the text says what is wrong and what can be done."""


class StoreFailed(StoreError):
    """What was appended is not durable and never will be; the text is the system's word for the reason."""


class StoreLocked(StoreError):
    """Another process uses the same files."""


class StoreDamaged(StoreError):
    """A file does not hold what was written to it."""

    def __init__(self, path: str, offset: int, sequence: int, what: str) -> None:
        super().__init__(f"{path}: damaged at byte {offset}, record {sequence}: {what}")
        self.path = path  #: the file
        self.offset = offset  #: first byte of what is damaged
        self.sequence = sequence  #: number of the record that should stand there; 0 = not within a record
        self.what = what


class StoreSettings(Protocol):
    """The settings that the stores of this package read."""

    @property
    def appendfilename(self) -> str | os.PathLike[str] | None:
        """Path of the journal: its files are named after it."""

    @property
    def appendfsync(self) -> str:
        """When records are forced to the disk: always, everysec or no."""

    @property
    def aof_load_truncated(self) -> bool:
        """Whether a torn end is cut off; otherwise it stops the start."""

    @property
    def aof_enqueue_jobs_once(self) -> bool:
        """Whether this start restores queues."""


class IStore(Interface):
    """Where the journal of one node goes."""

    records: bool = Attribute("Whether it wants the journal; else `append` and `commit` need not be called.")
    restores_queues: bool = Attribute(
        "Whether what `load` yields says the truth about queues and deliveries: it was left by a controlled shutdown,"
        " and this start is to restore them (aof-enqueue-jobs-once).  For `Recovery`; valid once the store is open."
    )
    bytes_total: int = Attribute("What there is to load, in bytes; valid once the store is open.")
    bytes_loaded: int = Attribute("How much of it has been loaded so far.")

    def open() -> None:
        """Take possession of what is stored; once, before anything else.

        Raises StoreLocked, StoreDamaged, StoreFailed.
        """

    def load() -> Iterator[Record]:
        """Yield what is stored, in order, in the form of `jobdump.decode_record`; to be run to its end, once.

        When it ends, the store takes records.  Raises StoreDamaged, StoreFailed.
        """

    def configure(config: StoreSettings) -> None:
        """Follow settings that may have changed since the store was made; from the next commit on."""

    def append(records: list[Record]) -> None:
        """Take records (`core.outbox`) as they are now; they may change afterwards.  Never blocks, never fails."""

    def commit() -> None:
        """Make everything that was appended as durable as the settings promise.

        Raises StoreFailed, and from then on always: nothing that was appended since the last good commit is safe.
        """

    def rewrite(jobs: Iterable[Job], *, with_queues: bool) -> None:
        """Replace all that is stored by these jobs; blocks until it is durable, else everything stays as it was.

        With `with_queues` this is the last word of a controlled shutdown: the place of each job, its deadlines and its
        counters are kept for one start that restores them.  Works for a store that wants no journal too.  After a
        success a store that had failed is good again.  Raises StoreFailed.
        """

    def status() -> dict[str, int | str]:
        """The fields of INFO's section Persistence that this store knows, in the order in which they are shown."""

    def close() -> None:
        """Commit, force everything to the disk and let go of it; harmless when repeated.  Raises StoreFailed."""


class IStoreFactory(IPlugin):
    """A kind of store, as a plugin."""

    name: str = Attribute("The word for it in the setting `persistence`.")

    def create(config: StoreSettings, reactor: IReactorTime, clock: Clock) -> IStore:
        """Make a store that is not open yet; `clock` is the one that the node is given."""
