"""Writing every job at one moment: the base of a journal, and the snapshot of a controlled restart.

    file N.base written, synced --> manifest lists it alone, synced, renamed --> older segments removed

Until the manifest is renamed the old journal is whole, from then on the new one.
"""

from collections.abc import Iterable
from itertools import islice

from twisted.logger import Logger

from disqued.core.clock import Clock
from disqued.core.job import ACTIVE, Job
from disqued.persistence.disk import write_all
from disqued.persistence.interface import StoreFailed
from disqued.persistence.manifest import Base, JournalFiles, Manifest
from disqued.persistence.segments import framed, header
from disqued.wire.jobdump import encode_job

JOBS_PER_WRITE = 4_096

log = Logger()


def replace_journal(
    files: JournalFiles, jobs: Iterable[Job], first: int, clock: Clock, *, with_queues: bool
) -> Manifest:
    """Make a journal of these jobs and nothing else; `first` is the number of its first record.

    Returns the new manifest.  Raises StoreFailed; then the journal is what it was.
    """
    try:
        base = _write_base(files, jobs, first, clock, with_queues=with_queues)
        manifest = Manifest(base=base, has_queues=with_queues)
        files.write_manifest(manifest)
    except OSError as error:
        raise StoreFailed(error.strerror or str(error)) from error
    files.remove_leftovers(manifest)
    log.info("{count} jobs written to {path}", count=base.count, path=str(files.segment(base)))
    return manifest


def _write_base(files: JournalFiles, jobs: Iterable[Job], first: int, clock: Clock, *, with_queues: bool) -> Base:
    number = files.free_number()
    path = files.segment(Base(number, first, 0))
    fd = files.disk.create(path)
    try:
        count = _write_jobs(files, fd, jobs, first, clock.wall() - clock.now(), with_queues=with_queues)
        files.disk.fdatasync(fd)
    except BaseException:
        files.disk.close(fd)
        files.disk.remove(path)
        raise
    files.disk.close(fd)
    return Base(number, first, count)


def _write_jobs(
    files: JournalFiles, fd: int, jobs: Iterable[Job], first: int, offset: int, *, with_queues: bool
) -> int:
    """Write a segment of jobs; return how many."""
    write_all(files.disk, fd, header(first))
    sequence = first
    rest = iter(jobs)
    while some := list(islice(rest, JOBS_PER_WRITE)):
        payloads = [encode_job(job, offset, job.state if with_queues else ACTIVE) for job in some]
        write_all(files.disk, fd, b"".join(framed(payloads, sequence)))
        sequence += len(payloads)
    return sequence - first
