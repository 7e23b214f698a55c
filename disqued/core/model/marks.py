"""Sets of small numbers as bytes: which groups are done with an event.

An event may have been acknowledged by ten thousand groups, and a million events by one group.  So a set is bytes, with
no object per member, in the smaller of two forms:

    bit map     bit n % 8 of byte n // 8 is set when n is in the set; the last byte is not 0
    list        4 bytes for each number, big-endian and in order, then one byte 0
    nothing     no bytes; as every bit map of one byte, CPython has one object of it

The form depends on the numbers alone, except that a list stays one until its bit map is no larger, and a bit map until
its list is a quarter of it: a set whose size changes to and fro is not rewritten each time.
"""

from typing import Final

HEAD: Final = 33  #: bytes of a bytes object without its text
LONGER: Final = 4  #: times the size of the list from which a bit map becomes one
_ONE_BYTE: Final = [bytes([byte]) for byte in range(256)]  #: one object each: CPython does not always see to it
_WIDTH: Final = 4  #: bytes of a number in a list


def cost(marks: bytes) -> int:
    """Return the bytes that a set takes in memory: 0 for objects that CPython shares."""
    size = len(marks)
    return 0 if size < 2 else (HEAD + size + 15) & -16


def count(marks: bytes) -> int:
    """Return how many numbers are in a set."""
    if _is_list(marks):
        return len(marks) // _WIDTH
    return int.from_bytes(marks, "little").bit_count()


def has(marks: bytes, number: int) -> bool:
    """Return whether a number is in a set."""
    if _is_list(marks):
        at = _place(marks, number)
        return marks[at : at + _WIDTH] == number.to_bytes(_WIDTH, "big")
    byte = number >> 3
    return byte < len(marks) and marks[byte] >> (number & 7) & 1 == 1


def numbers(marks: bytes) -> list[int]:
    """Return the numbers of a set in order."""
    if _is_list(marks):
        return [int.from_bytes(marks[at : at + _WIDTH], "big") for at in range(0, len(marks) - 1, _WIDTH)]
    found: list[int] = []
    for byte, bits in enumerate(marks):
        if bits:
            found += [8 * byte + bit for bit in range(8) if bits >> bit & 1]
    return found


def with_one_more(marks: bytes, number: int) -> bytes:
    """Return a set and one number that is not in it."""
    if _is_list(marks):
        at = _place(marks, number)
        longer = marks[:at] + number.to_bytes(_WIDTH, "big") + marks[at:]
        highest = int.from_bytes(longer[-1 - _WIDTH : -1], "big")
        return _bit_map(numbers(longer)) if (highest >> 3) < len(longer) else longer
    size = (number >> 3) + 1
    if size > len(marks) and size > LONGER * ((count(marks) + 1) * _WIDTH + 1):
        return _list([*numbers(marks), number])
    if size == 1 and len(marks) < 2:
        return _ONE_BYTE[(marks[0] if marks else 0) | 1 << number]
    bits = bytearray(marks)
    if size > len(bits):
        bits.extend(bytes(size - len(bits)))
    bits[number >> 3] |= 1 << (number & 7)
    return bytes(bits)


def _is_list(marks: bytes) -> bool:
    return len(marks) > 0 and marks[-1] == 0


def _place(marks: bytes, number: int) -> int:
    """Return where a number is in a list, or would be."""
    wanted = number.to_bytes(_WIDTH, "big")
    low, high = 0, len(marks) // _WIDTH
    while low < high:
        middle = (low + high) // 2
        if marks[middle * _WIDTH : middle * _WIDTH + _WIDTH] < wanted:
            low = middle + 1
        else:
            high = middle
    return low * _WIDTH


def _bit_map(members: list[int]) -> bytes:
    bits = bytearray((members[-1] >> 3) + 1)
    for number in members:
        bits[number >> 3] |= 1 << (number & 7)
    return bytes(bits)


def _list(members: list[int]) -> bytes:
    return b"".join([number.to_bytes(_WIDTH, "big") for number in members]) + b"\0"
