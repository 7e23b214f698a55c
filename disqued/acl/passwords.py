"""Passwords as they are kept: as their SHA-256 alone, which is also what a file of users holds.

A password that is made by ACL GENPASS has 256 random bits, and no hash makes that harder to guess; one that people make
up is easier to find from a hash that is as fast as this one, so that the file of users is for its owner alone.

Source: the Redis manual, "ACL", which gives the same reason for the same hash.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Final

SHORT: Final = 16  #: bytes that a password should have where others than this machine may try some
_HEX = re.compile(rb"[0-9a-f]{64}")


def digest_of(password: bytes) -> bytes:
    """What is kept of a password: 32 bytes."""
    return hashlib.sha256(password).digest()


def is_short(password: bytes) -> bool:
    """Tell whether a password is one that is found by trying, however slowly."""
    return len(password) < SHORT


def is_hex(text: bytes) -> bool:
    """Tell whether a text is a digest in 64 lower-case hex digits."""
    return _HEX.fullmatch(text) is not None


def is_one_of(digests: Iterable[bytes], digest: bytes) -> bool:
    """Tell whether a digest is one of several: all of them are compared, each in constant time."""
    found = False
    for known in digests:
        found |= hmac.compare_digest(known, digest)
    return found
