"""The kept inputs: corpus/TARGET/NAME, where a name is the beginning of the SHA-1 of what is in the file, or words."""

import hashlib
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "corpus"


def kept(name: str) -> dict[str, bytes]:
    """The inputs of a target, by the names of their files."""
    return {path.name: path.read_bytes() for path in sorted((FOLDER / name).iterdir())}


def keep(name: str, data: bytes) -> Path:
    """Add an input, and name its file."""
    path = FOLDER / name / hashlib.sha1(data, usedforsecurity=False).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
