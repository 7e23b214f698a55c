"""Recognizes files by their first bytes, to explain that a tool was given the wrong one.

    "SQLite format 3\\0..."  a database of SQLite      *2\\r\\n$7\\r\\nLOADJOB..  an append-only file of Disque
    "REDIS0011..."          an RDB file of Redis      1f 8b                   compressed, by gzip

A kind is told in words that go on after "it is", and with what to do about it where there is something.
"""

import re
from pathlib import Path
from typing import Final

LOOKED_AT: Final = 512  #: bytes at the start of a file

UNKNOWN: Final = "of a kind that is not known here"
EMPTY: Final = "empty"
SEGMENT: Final = "one of the files of a journal of disqued"
MANIFEST: Final = "the manifest of a journal of disqued"

#: First bytes of files as regular expressions; the first match counts.
_KINDS: Final = [
    (rb"DISQUEDJ", SEGMENT),
    (rb"disqued journal ", MANIFEST),
    (rb"\*2\r\n\$7\r\n(?:LOADJOB|DELJOB)\r\n|\*2\r\n\$6\r\nDELJOB\r\n",
     "an append-only file of Disque; `disqued import` takes its jobs over"),
    (rb"\*\d{1,7}\r\n\$\d{1,10}\r\n", "an append-only file of Redis"),
    (rb"file \S+ seq \d+ type [a-z]", "the manifest of an append-only file of Redis"),
    (rb"REDIS\d{4}", "an RDB file of Redis"),
    (rb"SQLite format 3\0", "a database of SQLite; `disqued export --persistence sqlite` reads that of a node"),
    (rb"\x1f\x8b", "compressed by gzip; unpack it first"),
    (rb"BZh[1-9]1AY&SY", "compressed by bzip2; unpack it first"),
    (rb"\xfd7zXZ\0", "compressed by xz; unpack it first"),
    (rb"\x28\xb5\x2f\xfd", "compressed by zstd; unpack it first"),
    (rb"PK\x03\x04", "a zip archive; unpack it first"),
    (rb"(?s:.{257})ustar", "a tar archive; unpack it first"),
    (rb"PAR1", "a Parquet file"),
    (rb"#!", "a program"),
]  # fmt: skip


def kind_of(start: bytes) -> str:
    """Say what begins like this; `EMPTY` and `UNKNOWN` among others."""
    if not start:
        return EMPTY
    return next((kind for pattern, kind in _KINDS if re.match(pattern, start)), UNKNOWN)


def kind_at(path: Path) -> str:
    """Say what lies at a path, and read from it only where it is a file.  Raises OSError."""
    if path.is_dir():
        return "a folder"
    if path.exists() and not path.is_file():
        return "a device, a pipe or a socket"
    with path.open("rb") as file:
        return kind_of(file.read(LOOKED_AT))
