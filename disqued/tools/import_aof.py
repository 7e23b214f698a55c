"""`disqued import`: the jobs of Disque's journals, put into any store.

    files --first pass--> which LOADJOB of which file counts for each job       damage: stop, nothing was written
    store --peek--------> ids that it knows, or knew and says are done          these are not taken again
    files --second pass-> jobs, a slice at a time --append, commit--> store
                     or   jobs -------------------- rewrite --------> store     with --queues

Only ids are kept in memory: of the jobs alive at the end of the files, and of those in the store.

The next start of a node loads the store that `store.conf` in the data folder names.  So no other one is filled, and
where there is no such file yet the import ends by writing it.  The folder is locked meanwhile.

Disque's journal says where a job was when it was added, or when the file was last rewritten; deliveries are not in
it.  So its word about queues is true at one moment only: behind SHUTDOWN REWRITE-AOF.  Without `--queues` jobs come
back as they do after a crash (`core.recovery`); with it they come back as after a controlled restart.

A job that was delayed and has a retry time is queued when its delay is over: the mark "queued before" on its copies
on other nodes says nothing there.  Nodes that held copies are not taken over: none of them is a node of ours.

Source: Disque 1.0-rc1, how it loads its own file; docs/how-to/import-export.md says what is done otherwise.
"""

import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import attrs
import click
from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    formatEvent,
    globalLogBeginner,
)
from zope.interface import implementer

from disqued.config import Config
from disqued.core.model.clock import Clock
from disqued.core.model.job import ACTIVE, FLAG_DELIVERED, FLAG_QUEUED_BEFORE, WORK_SCOPE, Job, JobOptions
from disqued.core.model.outbox import FLUSHED, JOB_ADDED, JOB_GONE, POLICY, QUEUE_PAUSED, UNIT_DONE, Record
from disqued.core.model.policies import Place
from disqued.net.process.switching import STORE_FILE, StoreMarker
from disqued.persistence.interface import IStore, IStoreFactory, StoreError
from disqued.tools.program import DONE, INTERRUPTED
from disqued.tools.progress import Advance, ignore, meter
from disqued.tools.running import (
    ToolError,
    chunks,
    complain,
    folder_lock,
    held_store,
    run,
    settings,
    settled,
    steps,
    store_of,
    store_options,
)
from disqued.wire.disque_aof import BadJournal, DeletedJob, DisqueAof, LoadedJob
from disqued.wire.fields import Fields

TOOL = "import"
JOBS_PER_COMMIT = 1_000
BYTES_PER_COMMIT = 8 << 20  #: of bodies and names; one job may have more


@attrs.define
class ImportOptions:
    """What the user asks for."""

    files: list[Path]
    dry_run: bool = False
    queues: bool = False
    truncated_ok: bool = False
    advance: Advance = ignore  #: told of the bytes that were read


@attrs.define
class ImportTally:
    """What an import did."""

    records: int = 0  #: read from the files
    imported: int = 0  #: jobs that the store did not have
    expired: int = 0  #: jobs whose time was over
    deleted: int = 0  #: jobs that the files themselves take back
    known: int = 0  #: jobs that the store has, or says are done
    silent: int = 0  #: jobs imported that no queue will hand out

    def lines(self) -> str:
        """The report, a figure a line."""
        return (
            f"records read: {self.records}\njobs imported: {self.imported}\nexpired: {self.expired}\n"
            f"deleted: {self.deleted}\nknown already: {self.known}\n"
        )


@attrs.define
class ImportSource:
    """One file, after the first pass."""

    path: Path
    size: int = 0  #: bytes of its whole records
    #: Id: number of the record that it counts from; jobs alive at the end of the file, and not in an earlier one.
    alive: dict[bytes, int] = attrs.Factory(dict)


@attrs.define
class Holdings:
    """What a store has, so far as an import must know."""

    known: set[bytes] = attrs.Factory(set)  #: ids of jobs that are there, or were and are done
    alive: set[bytes] = attrs.Factory(set)  #: ids of jobs that are there, and have time left
    pauses: dict[bytes, int] = attrs.Factory(dict)  #: queue: PAUSE_... bits of this node alone
    policies: dict[Place, Fields] = attrs.Factory(dict)  #: the last record of each

    def note(self, record: Fields, wall: int) -> None:
        """Take in the next record of the store; `wall` is unix milliseconds."""
        kind = record[0]
        if kind == JOB_ADDED:
            stored = record[1]
            self.known.add(stored.id)
            if stored.expires > wall:
                self.alive.add(stored.id)
        elif kind == QUEUE_PAUSED:
            self.pauses[record[1]] = record[2]
        elif kind == POLICY:
            self.policies[record[1], record[2]] = record
        elif kind == FLUSHED:
            self.known.clear()
            self.alive.clear()
            self.pauses.clear()
        elif kind == JOB_GONE or (kind == UNIT_DONE and record[2] == WORK_SCOPE):
            self.known.add(record[1])
            self.alive.discard(record[1])


class SteadyClock:
    """Two clocks that stay as far from each other as they were: a deadline is turned into the other's time for sure."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.offset: int = clock.wall() - clock.now()  #: wall clock minus monotonic clock

    def now(self) -> int:
        """Milliseconds on the monotonic clock."""
        return self._clock.now()

    def wall(self) -> int:
        """Unix milliseconds."""
        return self._clock.now() + self.offset


@click.command(TOOL)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@store_options
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option(
    "--queues", is_flag=True, help="The files were written by SHUTDOWN REWRITE-AOF: take their word for what is queued."
)
@click.option("--truncated-ok", is_flag=True, help="Import what is whole of a file that ends within a record.")
def command(files: tuple[Path, ...], *, dry_run: bool, queues: bool, truncated_ok: bool, **store: str | None) -> int:
    """Put the jobs of a journal of Disque (1.0-rc1, or its first release) into a store.

    No node may run in the folder or use the store, and Disque may not write to the file any more.  Several files are
    those of several nodes; a job that is in more than one is imported once.  A second run imports what is not there
    yet.

    \b
    Examples:
      disqued import --dry-run --persistence aof --dir /var/lib/disqued disque.aof
      disqued import --config /etc/disqued/disqued.conf disque.aof
    """
    from disqued.net.loop.clock import SystemClock

    wishes = ImportOptions(files=list(files), dry_run=dry_run, queues=queues, truncated_ok=truncated_ok)

    async def work(reactor: Any) -> int:
        config = settings(**store)
        size = sum(path.stat().st_size for path in files if path.is_file())
        with meter("import", 2 * size, "bytes") as advance:  # each file is read twice
            wishes.advance = advance
            done = Import(config, wishes, reactor, SteadyClock(SystemClock()))
            try:
                await done.run()
            except CancelledError:
                raise ToolError(f"interrupted: {done.so_far}", INTERRUPTED) from None
        done.report()
        return DONE

    _show_warnings()
    return run(TOOL, work)


class Import:
    """One import."""

    def __init__(self, config: Config, wishes: ImportOptions, reactor: IReactorTime, clock: SteadyClock) -> None:
        """Take the settings that name the store."""
        self.tally = ImportTally()
        self._durable = 0  #: jobs that were committed
        self._config = config
        self._wishes = wishes
        self._reactor = reactor
        self._clock = clock
        # Only a store that is to restore queues tells whether it could.
        config.set("aof-enqueue-jobs-once", "yes")

    async def run(self) -> None:
        """Do it.  Raises ToolError, StoreError, OSError."""
        factory = store_of(self._config)
        self._check_places()
        self._check_word()
        sources = await self._survey()
        if self._wishes.dry_run:
            await self._rehearse(factory, sources)
        else:
            with folder_lock(self._config.dir):
                # A node may have come and gone while the files were read.
                self._check_word()
                await self._import(factory, sources)

    @property
    def so_far(self) -> str:
        """What was done, should it end now."""
        if not self._durable:
            return "nothing was imported"
        return f"{self._durable} jobs were imported, and a second run imports the others"

    def report(self) -> None:
        how = "dry run: nothing was written\n" if self._wishes.dry_run else ""
        sys.stdout.write(how + self.tally.lines())
        sys.stdout.flush()
        if self.tally.silent:
            complain(
                TOOL, f"{self.tally.silent} of these jobs want at most one delivery and may have had it, so that they"
                " will not be queued; --queues takes the word of a file that SHUTDOWN REWRITE-AOF wrote",
            )  # fmt: skip
        if self._wishes.queues and not self._wishes.dry_run:
            complain(TOOL, "start the node with `aof-enqueue-jobs-once yes`, which queues what was queued")

    def _check_word(self) -> None:
        """Refuse a store that the next start would not load, but write over.  Raises ToolError, StoreError."""
        held = held_store(self._config)
        if held not in (None, self._config.persistence):
            raise ToolError(
                f"the jobs of {self._config.dir} are in the store {held} ({STORE_FILE}): import into that with"
                f" --persistence {held}, or start the node once so that it moves them; nothing was imported"
            )

    def _write_word(self) -> None:
        """Let the next start find the jobs, whatever store the configuration names by then.  Raises ToolError."""
        word = StoreMarker(self._config.dir)
        try:
            if word.read() is None:
                word.write(self._config.persistence)
        except StoreError as error:
            raise ToolError(
                f"{error}; {self.tally.imported} jobs were imported, and a second run writes the file"
            ) from None

    def _check_places(self) -> None:
        """Refuse the file that the node takes for its own, before the store refuses it as damaged."""
        journal = self._config.appendfilename
        for path in self._wishes.files:
            if self._config.persistence == "aof" and journal and path.exists() and path.resolve() == journal.resolve():
                raise ToolError(
                    f"{path}: this is where the node's own journal goes; move the file away and import it from there"
                )

    async def _survey(self) -> list[ImportSource]:
        """Read all the files to their end.  Raises ToolError, OSError."""
        sources: list[ImportSource] = []
        for path in self._wishes.files:
            source = ImportSource(path)
            await self._read(source)
            for earlier in sources:
                for job_id in earlier.alive:
                    source.alive.pop(job_id, None)
            sources.append(source)
        return sources

    async def _read(self, source: ImportSource) -> None:
        """Find out which jobs of a file are alive at its end."""
        alive = source.alive
        reader = DisqueAof(chunks(source.path, advance=self._wishes.advance))
        try:
            records: AsyncIterator[LoadedJob | DeletedJob] = steps(self._reactor, reader)
            async for record in records:
                if isinstance(record, LoadedJob):
                    # As Disque does: a job that is known already stays as it is.
                    alive.setdefault(record.id, reader.count)
                elif alive.pop(record.id, None) is not None:
                    self.tally.deleted += 1
        except BadJournal as error:
            raise ToolError(f"{source.path}: {error}; nothing was imported") from None
        self.tally.records += reader.count
        source.size = reader.size
        if reader.torn:
            self._note_torn(source, reader.torn)

    def _note_torn(self, source: ImportSource, torn: str) -> None:
        if not self._wishes.truncated_ok:
            raise ToolError(
                f"{source.path}: {torn}; the first {source.size} bytes are whole; nothing was imported,"
                " and --truncated-ok imports without the rest"
            )
        complain(TOOL, f"{source.path}: {torn}; only the first {source.size} bytes are imported")

    def _jobs(self, sources: Iterable[ImportSource], holdings: Holdings) -> Iterator[Job]:
        """The jobs to import, as they are put into a store; counts them.  Raises ToolError, OSError."""
        wall, offset = self._clock.wall(), self._clock.offset
        for source in sources:
            for loaded in _alive(source, self._wishes.advance):
                if loaded.id in holdings.known:
                    self.tally.known += 1
                elif loaded.expires_s * 1_000 <= wall:
                    self.tally.expired += 1
                else:
                    job = make_job(loaded, wall, offset, queues=self._wishes.queues)
                    self.tally.imported += 1
                    self.tally.silent += not self._wishes.queues and _is_silent(job, wall - offset)
                    yield job

    async def _rehearse(self, factory: IStoreFactory, sources: list[ImportSource]) -> None:
        """Do everything but write."""
        holdings = await self._look(factory)
        self._check_empty(holdings)
        async for _ in steps(self._reactor, self._jobs(sources, holdings)):
            pass

    async def _import(self, factory: IStoreFactory, sources: list[ImportSource]) -> None:
        store: IStore = factory.create(self._config, self._reactor, self._clock)
        store.open()
        try:
            holdings = await self._look(factory)
            self._check_empty(holdings)
            await self._load(store, holdings)
            self._check_empty(holdings)
            jobs = self._jobs(sources, holdings)
            if self._wishes.queues:
                pauses = ((QUEUE_PAUSED, queue, pause) for queue, pause in holdings.pauses.items() if pause)
                policies = (record for record in holdings.policies.values() if record[3].counter)
                await settled(store.rewrite(chain(policies, pauses, ((JOB_ADDED, job) for job in jobs))))
            else:
                await self._append(store, jobs)
        except BaseException:
            await _let_go(store)
            raise
        await settled(store.close())
        if store.records:
            self._write_word()

    async def _look(self, factory: IStoreFactory) -> Holdings:
        """Find out what the store has, finished jobs included."""
        holdings = Holdings()
        wall = self._clock.wall()
        async for record in steps(self._reactor, factory.peek(self._config)):
            holdings.note(record, wall)
        return holdings

    def _check_empty(self, holdings: Holdings) -> None:
        if self._wishes.queues and holdings.alive:
            raise ToolError(
                f"the store holds {len(holdings.alive)} jobs, whose place in the queues would be lost: with --queues it"
                " has to be empty; import several files at once, or without --queues"
            )

    async def _load(self, store: IStore, holdings: Holdings) -> None:
        """Make the store ready for records.  Raises ToolError when that would cost it its queues."""
        checked = False
        wall = self._clock.wall()
        async for record in steps(self._reactor, store.load()):
            # A journal loaded to its end is one that goes on: what it knew of queues is history then.
            if not checked and store.restores_queues and not self._wishes.queues:
                raise ToolError(
                    "the store was left by SHUTDOWN REWRITE-AOF and tells where each job was queued, which an import"
                    " would lose; start the node first, with `aof-enqueue-jobs-once yes`, and stop it again"
                )
            checked = True
            holdings.note(record, wall)

    async def _append(self, store: IStore, jobs: Iterator[Job]) -> None:
        records: list[Record] = []
        size = 0
        async for job in steps(self._reactor, jobs):
            records.append((JOB_ADDED, job))
            size += len(job.body) + len(job.queue)
            if len(records) >= JOBS_PER_COMMIT or size >= BYTES_PER_COMMIT:
                await self._commit(store, records)
                records, size = [], 0
        await self._commit(store, records)

    async def _commit(self, store: IStore, records: list[Record]) -> None:
        before = self.tally.imported - len(records)
        store.append(records)
        try:
            await settled(store.commit())
        except StoreError as error:
            raise ToolError(
                f"{error}; {before} jobs were imported before, and a second run imports the others"
            ) from error
        self._durable += len(records)


def _alive(source: ImportSource, advance: Advance) -> Iterator[LoadedJob]:
    """The records of a file that count, in its order.  Raises ToolError when they are not what they were."""
    alive = source.alive
    reader = DisqueAof(chunks(source.path, source.size, advance))
    found = 0
    try:
        for record in reader:
            if isinstance(record, DeletedJob) or alive.get(record.id) != reader.count:
                continue
            found += 1
            yield record
    except BadJournal:
        found = -1
    if found != len(alive):
        raise ToolError(f"{source.path}: the file changed while it was read; end the Disque that writes to it")


async def _let_go(store: IStore) -> None:
    """Close a store after an error, which is the one that counts."""
    try:
        await settled(store.close())
    except StoreError as error:
        complain(TOOL, str(error))


# A job of Disque, as ours.


def make_job(loaded: LoadedJob, wall: int, offset: int, *, queues: bool) -> Job:
    """A job as it is put into a store; `offset` is the wall clock minus the monotonic clock, `wall` the former."""
    created_ms = loaded.ctime // 1_000_000
    due = created_ms + loaded.delay_s * 1_000
    never_queued = (
        loaded.delay_s > 0
        and loaded.state == ACTIVE
        and (not loaded.queued_before or (loaded.retry_s > 0 and due > wall))
    )
    job = Job(loaded.id, loaded.queue, loaded.body, loaded.ctime, _options(loaded, wall))
    job.expires_at = loaded.expires_s * 1_000 - offset
    job.state = loaded.state if queues else ACTIVE
    job.flags = (0 if never_queued else FLAG_QUEUED_BEFORE) | (FLAG_DELIVERED if loaded.delivered else 0)
    job.nacks = loaded.nacks
    job.additional_deliveries = loaded.additional_deliveries
    job.requeue_at = 0
    if never_queued:
        job.requeue_at = due - offset or 1
    elif loaded.retry_s:
        job.requeue_at = wall + loaded.retry_s * 1_000 - offset
    return job


def _options(loaded: LoadedJob, wall: int) -> JobOptions:
    # The TTL is in no record.  Stamps stay ahead of a clock that was set back, so that none may be left between them.
    ttl_s = loaded.expires_s - loaded.ctime // 1_000_000_000
    return JobOptions(
        ttl_ms=ttl_s * 1_000 if ttl_s > 0 else loaded.expires_s * 1_000 - wall,
        retry_ms=loaded.retry_s * 1_000,
        delay_ms=loaded.delay_s * 1_000,
        replicate=loaded.replicate,
    )


def _is_silent(job: Job, now: int) -> bool:
    """Whether a job is imported, and never queued: at most once, and perhaps delivered."""
    return not job.options.retry_ms and (job.flags & FLAG_QUEUED_BEFORE != 0 or job.requeue_at <= now)


@implementer(ILogObserver)
class _Warnings:
    """Shows the user what a store warns of."""

    def __call__(self, event: LogEvent) -> None:
        # That the store cannot restore queues is the answer to our own question.
        if not str(event.get("log_format", "")).startswith("aof-enqueue-jobs-once"):
            complain(TOOL, formatEvent(event))


def _show_warnings() -> None:
    observer = FilteringLogObserver(_Warnings(), [LogLevelFilterPredicate(LogLevel.warn)])
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)
