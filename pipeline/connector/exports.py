"""Exports of stores (`disqued export`) read back: JSON lines or Parquet, a row for each record.

    {"event":"added","at":...,"id":"DI...","queue":"mail","body":"aGk=",...}  -->  (JOB_ADDED, StoredJob)
    {"event":"done","at":...,"id":"DI...","scope":"",...}                     -->  (UNIT_DONE, id, scope, when)

What is read back is what tells which jobs there are; pauses and leases are passed over.  An export does not say where
jobs were, nor which nodes hold them.
"""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from disqued.core.model.fate import NO_FATE, Failure, Fate, Word
from disqued.core.model.job import ACKED, ACTIVE, KIND_NAMES, StoredJob
from disqued.core.model.outbox import FLUSHED, GROUP, JOB_ADDED, JOB_GONE, UNIT_DONE, UNIT_LEASED, Record
from disqued.core.model.terms import NO_TERMS, Terms
from disqued.persistence.interface import StoreDamaged, StoreFailed

ROWS: Final = 1_000  #: rows of Parquet that are looked at at a time
COLUMNS: Final = (
    "event", "at", "id", "queue", "scope", "reason", "body", "ctime", "ttl_ms", "retry_ms", "delay_ms", "replicate",
    "nacks", "additional_deliveries", "expires", "kind", "alias", "floor", "terms", "fate",
)  # fmt: skip
_KINDS: Final = {name.decode(): number for number, name in KIND_NAMES.items()}
_ESCAPED: Final = re.compile(rb"\\(\\|x([0-9a-f]{2}))")
#: A record that says nothing of which jobs there are.
_NOTHING: Final[Record] = (UNIT_LEASED, b"", b"", 0, b"", 0)
_NONSENSE: Final = (KeyError, TypeError, ValueError, AttributeError)


def bytes_of(text: str) -> bytes:
    """Turn a name back into the bytes that it was made of (`wire.texts.text`)."""
    data = text.encode()
    if b"\\" not in data:
        return data
    return _ESCAPED.sub(lambda found: bytes.fromhex(found[2].decode()) if found[2] else b"\\", data)


def read_lines(path: Path) -> Iterator[Record]:
    """Read JSON lines.  Raises StoreDamaged, StoreFailed."""
    at = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    raise StoreDamaged(str(path), at, number, "torn: the line is cut off")
                try:
                    row = json.loads(line)
                    if isinstance(row.get("body"), str):
                        row["body"] = b64decode(row["body"], validate=True)
                    yield record_of(row)
                except _NONSENSE as error:
                    raise StoreDamaged(str(path), at, number, _why(error)) from None
                at += len(line)
    except OSError as error:
        raise StoreFailed(f"{path}: {error.strerror}") from error


def read_parquet(path: Path) -> Iterator[Record]:
    """Read Parquet.  Raises StoreDamaged, StoreFailed."""
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            columns = [name for name in COLUMNS if name in file.schema_arrow.names]
            for batch in file.iter_batches(batch_size=ROWS, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield record_of(row)
    except pa.ArrowException as error:
        raise StoreDamaged(str(path), 0, number + 1, f"this is no whole file of Parquet: {error}") from None
    except _NONSENSE as error:
        raise StoreDamaged(str(path), 0, number, _why(error)) from None
    except OSError as error:
        raise StoreFailed(f"{path}: {error.strerror or error}") from error


def _why(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"the row has no {error.args[0]}; it is none of an export"
    return f"the row is none of an export: {error}"


def record_of(row: Mapping[str, Any]) -> Record:
    """Make the record of a row, with the body as bytes.  Raises KeyError, TypeError, ValueError."""
    return _READERS.get(row["event"], _passed_over)(row)


def _added(row: Mapping[str, Any]) -> Record:
    if not isinstance(row["body"], bytes):
        raise TypeError("an added job has no body")
    return _job(row, row["body"], ACTIVE)


def _acked(row: Mapping[str, Any]) -> Record:
    return _job(row, b"", ACKED)


def _job(row: Mapping[str, Any], body: bytes, state: int) -> Record:
    job = StoredJob(id=bytes_of(row["id"]), queue=bytes_of(row["queue"]), body=body, state=state, flags=0,
                    replicate=row["replicate"], holders=None, ctime=row["ctime"], expires=row["expires"], requeue=0,
                    ttl_ms=row["ttl_ms"], retry_ms=row["retry_ms"], delay_ms=row["delay_ms"], nacks=row["nacks"],
                    additional_deliveries=row["additional_deliveries"], order_key=0,
                    kind=_KINDS[row.get("kind") or "work"], alias=bytes_of(row.get("alias") or ""),
                    terms=terms_of(row.get("terms")), fate=fate_of(row.get("fate")))  # fmt: skip
    return (JOB_ADDED, job)


def terms_of(said: str | None) -> Terms:
    """Read terms; an export of an earlier version has none.  Raises TypeError, ValueError."""
    if said is None:
        return NO_TERMS
    values = json.loads(said)
    if "headers" in values:
        values["headers"] = tuple((bytes_of(name), bytes_of(value)) for name, value in values["headers"])
    if "group" in values:
        values["group"] = bytes_of(values["group"])
    return Terms(**values)


def fate_of(said: str | None) -> Fate:
    """Read a fate.  Raises KeyError, TypeError, ValueError."""
    if said is None:
        return NO_FATE
    values = json.loads(said)
    if "failures" in values:
        values["failures"] = tuple(
            Failure(one["at"], bytes_of(one["node"]), bytes_of(one["who"]), bytes_of(one["reason"]))
            for one in values["failures"]
        )
    for name in ("progress", "result"):
        if name in values:
            word = values[name]
            values[name] = Word(word["at"], bytes_of(word["node"]), bytes_of(word["value"]))
    return Fate(**values)


def _done(row: Mapping[str, Any]) -> Record:
    return (UNIT_DONE, bytes_of(row["id"]), bytes_of(row["scope"]), row["at"])


def _gone(row: Mapping[str, Any]) -> Record:
    return (JOB_GONE, bytes_of(row["id"]), bytes_of(row["reason"]), row["at"])


def _flushed(row: Mapping[str, Any]) -> Record:
    return (FLUSHED, row["at"])


def _begun(row: Mapping[str, Any]) -> Record:
    floor = tuple((bytes_of(node), ctime) for node, ctime in json.loads(row["floor"]).items())
    return (GROUP, bytes_of(row["queue"]), bytes_of(row["scope"]), floor, row["at"])


def _passed_over(row: Mapping[str, Any]) -> Record:
    if row["event"] not in ("leased", "paused", "policy"):
        raise ValueError(f"{row['event']!r} is no event of an export")
    return _NOTHING


_READERS: Final[dict[str, Callable[[Mapping[str, Any]], Record]]] = {
    "added": _added,
    "acked": _acked,
    "done": _done,
    "gone": _gone,
    "flushed": _flushed,
    "begun": _begun,
}
