"""MONITOR: every command, as those who watch see it.

    +<seconds>.<microseconds> [<client>] "ADDJOB" "mail" "to: ann" "0"

Passwords are hidden, bytes that do not print are escaped, and of very long commands the first bytes are shown.

Source: Disque, src/server.c (monitors); Redis, src/replication.c.
"""

from collections.abc import Iterator

from disqued.commands.slowlog import redacted

#: Bytes of a command that MONITOR spells; of longer ones it says how much more there is.
MONITORED_BYTES = 16_384

#: How a byte reads.
_ESCAPES = {value: b"\\x%02x" % value for value in range(256)}
_ESCAPES |= {value: bytes([value]) for value in range(32, 127)}
_ESCAPES |= {ord("\\"): b"\\\\", ord('"'): b'\\"', 7: b"\\a", 8: b"\\b", 9: b"\\t", 10: b"\\n", 13: b"\\r"}


def monitored(usec: int, address: str, args: list[bytes]) -> bytes:
    """The line of a command; `usec` is when it runs, unix microseconds."""
    words = b" ".join(_spelled(redacted(args)))
    return b"+%d.%06d [%b] %b\r\n" % (usec // 1_000_000, usec % 1_000_000, address.encode(), words)


def _spelled(args: list[bytes]) -> Iterator[bytes]:
    """Words as they are shown, the first of them when they are very long."""
    left = MONITORED_BYTES
    for at, word in enumerate(args):
        yield _quoted(word[:left])
        left -= len(word) + 1
        if left <= 0 and (left < -1 or at + 1 < len(args)):
            more = max(0, -left - 1) + sum(map(len, args[at + 1 :]))
            yield b"... (%d more bytes)" % more
            return


def _quoted(word: bytes) -> bytes:
    return b'"' + b"".join(map(_ESCAPES.__getitem__, word)) + b'"'
