"""Finds the flipped bit of a text of any length by its CRC-32, in one pass.

A CRC is linear: what it differs by depends on where the bit is, and not on the text.  A flipped bit of the last byte
makes one of eight differences; each byte that follows shifts the difference on, so that shifting it back, byte by byte,
leads to one of the eight at the byte that was hit.

    difference --back over the last byte--back over the one before--> ... one of the eight: there it is
"""

from typing import Final
from zlib import crc32

_POLYNOMIAL: Final = 0xEDB88320


def _row(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE: Final = [_row(value) for value in range(256)]
_BY_TOP: Final = {row >> 24: value for value, row in enumerate(_TABLE)}  #: the rows differ in their highest byte
_OF_LAST_BYTE: Final = {_TABLE[1 << bit]: bit for bit in range(8)}


def flipped_bit(text: bytes, checksum: int) -> int | None:
    """The bit to flip for a text to have this CRC-32, counted from the lowest of byte 0; None = there is no such."""
    difference = crc32(text) ^ checksum
    for place in range(len(text) - 1, -1, -1):
        bit = _OF_LAST_BYTE.get(difference)
        if bit is not None:
            return place * 8 + bit
        value = _BY_TOP[difference >> 24]
        difference = (difference ^ _TABLE[value]) << 8 & 0xFFFFFFFF | value
    return None
