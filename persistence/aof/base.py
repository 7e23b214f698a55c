"""Writing a whole journal at one moment: the snapshot of a controlled restart.

    file N.base written, synced --> manifest lists it alone, synced, renamed --> older segments removed

Until the manifest is renamed the old journal is whole, from then on the new one.
"""

from collections.abc import Iterable
from itertools import islice

import attrs
from twisted.logger import Logger

from disqued.core.model.clock import Clock
from disqued.core.model.outbox import JOB_ADDED, Record
from disqued.persistence.aof.manifest import Base, JournalFiles, Manifest
from disqued.persistence.aof.segments import chunks_of, written
from disqued.persistence.disk import reason, write_all
from disqued.persistence.interface import StoreFailed
from disqued.wire.fields import Fields
from disqued.wire.jobdump import encode_event, job_text

RECORDS_PER_WRITE = 4_096

log = Logger()


def replace_journal(files: JournalFiles, records: Iterable[Record], first: int, clock: Clock) -> Manifest:
    """Make a journal of these records and nothing else, queues included; `first` is the number of its first record.

    Returns the new manifest.  Raises StoreFailed; then the journal is what it was.
    """
    try:
        base = _write_base(files, records, first, clock)
        manifest = Manifest(base=base, has_queues=True)
        files.write_manifest(manifest)
    except OSError as error:
        raise StoreFailed(reason(error), final=False) from error
    files.remove_leftovers(manifest)
    log.info("{count} records written to {path}", count=base.count, path=str(files.segment(base)))
    return manifest


def _write_base(files: JournalFiles, records: Iterable[Record], first: int, clock: Clock) -> Base:
    base = Base(files.free_number(), first, 0)
    fd = files.begin(base)
    try:
        count = _write_records(files, fd, records, first, clock)
        files.disk.fdatasync(fd)
    except BaseException:
        files.disk.close(fd)
        files.remove(files.segment(base))
        raise
    files.disk.close(fd)
    return attrs.evolve(base, count=count)


def _write_records(files: JournalFiles, fd: int, records: Iterable[Fields], first: int, clock: Clock) -> int:
    """Write records into a segment; return how many."""
    wall = clock.wall()
    offset = wall - clock.now()
    sequence = first
    rest = iter(records)
    while some := list(islice(rest, RECORDS_PER_WRITE)):
        payloads = [
            job_text(record[1], offset, record[1].state) if record[0] == JOB_ADDED else encode_event(record, wall)
            for record in some
        ]
        for data in written(chunks_of(payloads, sequence)[0]):
            write_all(files.disk, fd, data)
        sequence += len(payloads)
    return sequence - first
