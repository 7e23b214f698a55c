"""The interface of stores: the plug point between a node and what outlives it.

    start     store = factory.create(config, reactor, clock);  store.open()
              for record in store.load(): recovery.apply(record)          in slices, while clients hear -LOADING
    a turn    store.append(records) ...  store.commit()                   then, and only then, the replies
    smaller   store.compact(walk(state))                                  in the background, between turns
    switch    new.open();  new.renew();  new.append(walk) and commit, beside the old one;  old.close()
    restart   store.rewrite(snapshot(state))                              when nothing can change any more
    end       store.close()

Everything is called on the reactor's thread, and nothing waits there for longer than its promise needs.  What takes
long (a thread, a server) is answered with a Deferred; a store that is done when it returns answers None.

Two kinds of failure, told apart by `StoreFailed.final`.  A store that has no room, or has lost its server, keeps what
was appended and may be asked to commit again: the driver does, every second.  A store whose file cannot be trusted any
more (a sync failed) fails until it is written anew.

A store is found as a Twisted plugin: an object that provides `IStoreFactory`, in a module of `twisted.plugins`.
"""

# ruff: noqa: N805 - the methods of an interface are written without self

from collections.abc import Iterable, Iterator

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.plugin import IPlugin
from zope.interface import Attribute, Interface

from disqued.config.settings import Settings
from disqued.core.model.clock import Clock
from disqued.core.model.outbox import Record


class StoreError(Exception):
    """A store cannot do what it is asked; the text says what is wrong and what can be done."""


class StoreFailed(StoreError):
    """What was appended is not durable; the text is the system's word for the reason."""

    def __init__(self, why: str, *, final: bool = True) -> None:
        super().__init__(why)
        #: False: everything is kept, and a later commit may succeed.  True: only a rewrite makes the store safe again.
        self.final = final


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


class IStore(Interface):
    """Where the journal of one node goes."""

    records: bool = Attribute("Whether it wants the journal; else `append` and `commit` need not be called.")
    restores_queues: bool = Attribute(
        "Whether what `load` yields says the truth about queues and deliveries: it was left by a controlled shutdown,"
        " and this start is to restore them (aof-enqueue-jobs-once).  Valid from the first record of `load` on."
    )
    bytes_total: int = Attribute("What there is to load, in bytes; valid from the first record of `load` on.")
    bytes_loaded: int = Attribute("How much of it has been loaded so far.")
    wants_compaction: bool = Attribute(
        "Whether `compact` is due: it has grown so much, by the settings, or has lost its data.  Its user looks every"
        " second."
    )

    def open() -> None:
        """Take possession of the stored data; once, before anything else.

        Raises StoreLocked, StoreDamaged, StoreFailed.
        """

    def load() -> "Iterator[Record | Deferred[None]]":
        """Yield what is stored, in order, in the form of `jobdump.decode_record`; to be run to its end, once.

        A Deferred among the records is waited for before the next is asked for.  When the iterator ends, the store
        takes records.  Raises StoreError (StoreDamaged, StoreFailed, ...).
        """

    def renew() -> "Deferred[None] | None":
        """Begin anew, in place of `load`: what was stored is gone, and the store takes records.  Raises StoreFailed."""

    def configure(config: Settings) -> None:
        """Follow settings that may have changed since the store was made; from the next commit on."""

    def append(records: list[Record]) -> None:
        """Take records (`outbox`) as they are now; they may change afterwards.  Never blocks, never fails."""

    def commit() -> "Deferred[None] | None":
        """Make everything that was appended as durable as the settings promise.

        Not called again before its Deferred has fired.  Raises StoreFailed, or fails with it.
        """

    def look() -> None:
        """Check that the stored data is still there; called every second.  Raises StoreFailed.

        What was taken away may have held everything that was acknowledged.
        """

    def secure() -> "Deferred[None] | None":
        """Make everything that was committed survive a power cut, whatever the settings promise.

        What waits for that may be delivered once at most.  Raises StoreFailed, or fails with it.
        """

    def compact(records: Iterator[Record | None]) -> None:
        """Begin to compact the stored data in the background; `status` shows the progress.

        `records` walks over what the node knows (`recovery.walk`): it is drawn in slices, between the turns of the
        loop, while the node goes on, so that it need be drawn only as far as the store has a use for it.  None is no
        record: nothing was met for a while, and others may have their turn (`recovery.draw`).

        A store whose failure is final is good again when this has succeeded; until then it fails for a while.
        Raises StoreError when it cannot be begun.
        """

    def rewrite(records: Iterable[Record]) -> "Deferred[None] | None":
        """Replace the stored data by these records, durably; a failure changes nothing.

        The last word of a controlled shutdown: the state of each job, its deadlines and its counters are kept for one
        start that restores them.  Works for a store that wants no journal, too.  Raises StoreFailed, or fails with it.
        """

    def status() -> dict[str, int | str]:
        """The fields of INFO's section Persistence that this store knows, in the order in which they are shown."""

    def discard() -> "Deferred[None] | None":
        """Let go of it in place of `close`, and of what `renew` began: another store holds the jobs after all."""

    def close() -> "Deferred[None] | None":
        """Commit, make everything durable and let go of it; harmless when repeated.  Raises StoreFailed."""


class IStoreFactory(IPlugin):
    """A kind of store, as a plugin."""

    name: str = Attribute("The word for it in the setting `persistence`.")

    def create(config: Settings, reactor: IReactorTime, clock: Clock) -> IStore:
        """Make a store that is not open yet; `clock` is the one that the node is given."""

    def holds(config: Settings) -> bool:
        """Tell whether there is a store of this kind already, jobs or no jobs; True where only opening it can tell."""

    def peek(config: Settings) -> "Iterator[Record | Deferred[None]]":
        """Yield the stored data as `IStore.load` does, while a node may be writing it; changes nothing.

        A record that is being written ends it.  What a store keeps of finished jobs belongs to it.  Raises StoreError.
        """


class IEventLog(Interface):
    """What is told of a node to those who analyse it (docs/reference/event-log.md); it never holds anybody up."""

    def follow(wanted: str, word: str = "on") -> None:
        """Tell everything (all), how jobs end (terminal) or nothing (off) from now on.

        `word` is told of the start: `start` for that of the node.
        """

    def configure(config: Settings) -> None:
        """Follow settings that may have changed."""

    def wake() -> None:
        """Something is in the trail: see to it, now or soon."""

    def stop() -> "Deferred[None] | None":
        """The node stops: write and publish what there is."""

    def facts() -> dict[str, int | str]:
        """The fields of INFO's section Events."""
