"""Journals as Disque writes them, for tests: the recorded one, and others made here."""

import json
from collections.abc import Iterable
from pathlib import Path
from struct import pack
from typing import Any

import attrs

from disqued.core.model.job import QUEUED
from disqued.wire.disque_aof import BadJournal, DeletedJob, DisqueAof, LoadedJob

DATA = Path(__file__).parent / "compat" / "data"
RECORDED = DATA / "disque-1.0-rc1.aof"  #: written by one node of 1.0-rc1

Entry = LoadedJob | DeletedJob

NODE = b"91496ff0051bfceffdb214235dfa7f235eeb1f98"
NOW_S = 1_795_259_182  #: unix seconds at which the recorded journal was closed


def told() -> dict[str, Any]:
    """What the node itself said about the jobs of the recorded journal."""
    about: dict[str, Any] = json.loads(RECORDED.with_name(f"{RECORDED.name}.json").read_text())
    return about


def entries(data: bytes) -> list[Entry]:
    """Read a journal that is whole."""
    reader = DisqueAof([data])
    found = list(reader)
    assert (reader.size, reader.torn) == (len(data), "")
    return found


def job_id(number: int, *, retry_s: int = 60, first: bool = False) -> bytes:
    """An id of 1.0-rc1, or of the first release."""
    return b"DI91496ff0%032x0010SQ" % number if first else b"D-91496ff0-%024d-%04x" % (number, 16 | (retry_s > 0))


def loaded(number: int = 1, *, first: bool = False, **fields: Any) -> LoadedJob:
    """A job with the given fields, created a second before `NOW_S`."""
    plain: dict[str, Any] = {
        "id": job_id(number, retry_s=fields.get("retry_s", 60), first=first),
        "queue": b"queue", "body": b"body %d" % number, "state": QUEUED, "queued_before": True, "delivered": False,
        "replicate": 1, "expires_s": NOW_S + 3_600, "ctime": (NOW_S - 1) * 10**9 + number, "delay_s": 0, "retry_s": 60,
        "nacks": 0, "additional_deliveries": 0, "nodes": (NODE,),
    }  # fmt: skip
    return LoadedJob(**(plain | fields))


def payload(job: LoadedJob, *, flags: int | None = None) -> bytes:
    """The argument of LOADJOB; an id of the first release makes it a record of that."""
    if flags is None:
        flags = job.queued_before | job.delivered << 2
    middle = pack("<BBHIQII", job.state, flags, job.replicate, job.expires_s, job.ctime, job.delay_s, job.retry_s)
    counters = b"" if job.id.startswith(b"DI") else pack("<HH", job.nacks, job.additional_deliveries)
    strings = b"".join(pack("<I", len(part)) + part for part in (job.queue, job.body))
    rest = job.id + middle + counters + strings + pack("<I", len(job.nodes)) + b"".join(job.nodes)
    return pack("<I", len(rest)) + rest


def command(name: bytes, argument: bytes) -> bytes:
    return b"*2\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(name), name, len(argument), argument)


def journal(*written: Entry) -> bytes:
    """The bytes of a journal."""
    return b"".join(
        command(b"DELJOB", entry.id) if isinstance(entry, DeletedJob) else command(b"LOADJOB", payload(entry))
        for entry in written
    )


def moved(data: bytes, seconds: int) -> bytes:
    """The same journal, written so much later."""

    def move(entry: Entry) -> Entry:
        if isinstance(entry, DeletedJob):
            return entry
        later = {"expires_s": entry.expires_s + seconds, "ctime": entry.ctime + seconds * 10**9}
        return attrs.evolve(entry, **later)

    return journal(*map(move, entries(data)))


def read_in(pieces: Iterable[bytes]) -> tuple[list[Entry], DisqueAof]:
    """Read a journal that comes in pieces."""
    reader = DisqueAof(pieces)
    return list(reader), reader


def attempt(reader: DisqueAof) -> tuple[list[Entry], BadJournal | None]:
    """Read what may be damaged: the records, and what ended them."""
    found: list[Entry] = []
    try:
        found.extend(reader)
    except BadJournal as error:
        return found, error
    return found, None
