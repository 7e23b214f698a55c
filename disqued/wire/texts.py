"""Bytes as text, for those who read: names of queues, aliases and the like may be any bytes."""

import re
from typing import Final

_ESCAPED: Final = re.compile(rb"\\\\|\\x([0-9a-f]{2})")


def text(value: bytes) -> str:
    """Bytes as text that can be turned back: `\\\\xff` for what is not UTF-8, and two backslashes for one."""
    return value.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def shown(value: str) -> str:
    """Text as one that prints: what would end a line, or tell a terminal something, is written as its number."""
    if value.isprintable():
        return value
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in value)


def raw(value: str) -> bytes:
    """The bytes that `text` has made into a text; any other text is what it says."""
    return _ESCAPED.sub(
        lambda found: bytes.fromhex(found[1].decode()) if found[1] else b"\\", value.encode("utf-8", "replace")
    )
