"""The slow log: the last commands that took longer than a threshold.

    note(...)  -->  [newest, ..., oldest]     `length` entries at most; an older one falls out
                        |
                    SLOWLOG GET

An entry keeps at most 32 arguments of at most 128 bytes each, so that the log stays small whatever clients send, and
no password.  Spans are microseconds of the time that a command ran, waiting in a blocking command not included;
instants are unix seconds.  Source: Redis, src/slowlog.c.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice

import attrs

from disqued.commands.table import TABLE

ARGUMENTS_MAX = 32
ARGUMENT_BYTES_MAX = 128

REDACTED = b"(redacted)"
#: Commands with something to hide: so are those that took such a name from one of them.
_HIDING = frozenset({b"AUTH", b"HELLO", b"ACL", b"CONFIG"})
#: Settings whose values are passwords, or have one in them.
_SECRETS = frozenset({b"requirepass", b"cluster-secret", b"redis-url"})


def redacted(args: list[bytes]) -> list[bytes]:
    """The arguments of a command, if there are any, as people may see them: passwords hidden, all else as it is."""
    name = _real_name(args[0][:32].upper()) if args else b""
    if name == b"AUTH":
        return [args[0], *(REDACTED for _ in args[1:])]
    shown = list(args)
    if name == b"HELLO":
        for place, word in enumerate(args):
            if word[:32].upper() == b"AUTH":
                # User and password; also what a client put there by mistake.
                shown[place + 1 : place + 3] = [REDACTED] * len(args[place + 1 : place + 3])
    elif name == b"ACL":
        # Passwords, and hashes of them; of a DRYRUN whatever the command would have hidden.
        shown[2:] = [REDACTED] * len(args[2:])
    elif name == b"CONFIG" and len(args) > 3 and args[2][:32].lower() in _SECRETS:
        shown[3:] = [REDACTED] * len(args[3:])
    return shown


def _real_name(name: bytes) -> bytes:
    """What a command is called in this manual, whatever rename-command calls it; capitals."""
    entry = TABLE.get(name)
    return name if entry is None or name in _HIDING else entry.name.encode()


def shortened(args: list[bytes]) -> list[bytes]:
    """The arguments of a command as far as an entry keeps them."""
    kept = [_short(argument) for argument in islice(args, ARGUMENTS_MAX)]
    if len(args) > ARGUMENTS_MAX:
        kept[-1] = b"... (%d more arguments)" % (len(args) - ARGUMENTS_MAX + 1)
    return kept


def _short(argument: bytes) -> bytes:
    more = len(argument) - ARGUMENT_BYTES_MAX
    return argument if more <= 0 else b"%b... (%d more bytes)" % (argument[:ARGUMENT_BYTES_MAX], more)


@attrs.frozen
class SlowCommand:
    """A command that took long."""

    id: int  #: counts up over the life of the daemon
    noted_at: int  #: unix seconds
    usec: int
    args: list[bytes]
    address: bytes  #: of the client
    name: bytes  #: of the client; empty for none


class SlowLog:
    """The slow commands, newest first."""

    def __init__(self, threshold_us: int, length: int) -> None:
        self.threshold_us = threshold_us  #: from this span on a command is noted; negative: none ever
        self._next_id = 0
        self._entries: deque[SlowCommand] = deque(maxlen=length)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[SlowCommand]:
        return iter(self._entries)

    def note(self, noted_at: int, usec: int, args: list[bytes], address: bytes, name: bytes) -> None:
        """Keep a command, if it was slow enough."""
        if self.threshold_us < 0 or usec < self.threshold_us:
            return
        self._entries.appendleft(SlowCommand(self._next_id, noted_at, usec, shortened(redacted(args)), address, name))
        self._next_id += 1

    def set_length(self, length: int) -> None:
        """Keep that many entries from now on; the oldest beyond them are forgotten."""
        self._entries = deque(islice(self._entries, length), maxlen=length)

    def clear(self) -> None:
        """Forget all entries; ids go on counting."""
        self._entries.clear()
