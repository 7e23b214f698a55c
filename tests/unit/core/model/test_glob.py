"""Patterns over bytes: what a class in brackets allows."""

import pytest

from disqued.core.model.glob import Glob


@pytest.mark.parametrize(
    ("pattern", "allowed"),
    [
        (b"[abc]", b"abc"),
        (b"[a-c]", b"abc"),
        (b"[c-a]", b"abc"),
        (b"[a-cx-z]", b"abcxyz"),
        (b"[a-c-e]", b"abc-e"),  # a range ends with its last byte, which begins no other one
        (b"[-a]", b"-a"),
        (b"[a\\-c]", b"a-c"),
        (b"[\\]a]", b"]a"),
    ],
)
def test_a_class_allows_its_bytes_and_ranges_and_nothing_else(pattern: bytes, allowed: bytes) -> None:
    found = bytes(byte for byte in range(256) if Glob(pattern).matches(bytes((byte,))))
    assert set(found) == set(allowed)
    negated = Glob(b"[^" + pattern[1:])
    assert {byte for byte in range(256) if negated.matches(bytes((byte,)))} == set(range(256)) - set(allowed)
