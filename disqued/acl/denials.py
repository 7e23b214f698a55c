"""ACL LOG: what was refused to whom, newest first.

The same refusal again within a minute makes the entry that is there newer and counts it, so that a client that tries
again and again does not push everything else out.  Instants are milliseconds.

Source: the ACL LOG page of the Redis manual.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

import attrs

GROUPED_MS: Final = 60_000  #: refusals of a kind within this span are one entry
LOOKED_AT: Final = 10  #: newest entries that are looked at for one of the same kind
OBJECT_MAX: Final = 128  #: bytes of what was refused that are kept
CLIENT_MAX: Final = 1_024  #: bytes of the line of the client that are kept

AUTH, COMMAND, QUEUE, CHANNEL = b"auth", b"command", b"key", b"channel"
REASONS: Final = (AUTH, COMMAND, QUEUE, CHANNEL)


@attrs.define
class Denial:
    """One entry."""

    id: int  #: counts up over the life of the daemon
    reason: bytes  #: one of REASONS
    what: bytes  #: the command, queue or channel; AUTH for a failed login
    user: bytes
    client: bytes  #: its line of CLIENT LIST, the first CLIENT_MAX bytes
    created_at: int  #: unix milliseconds
    updated_at: int  #: unix milliseconds
    count: int = 1


class Denials:
    """The last entries."""

    def __init__(self, length: int) -> None:
        self._entries: deque[Denial] = deque(maxlen=length)
        self._next_id = 0
        #: How often each reason was met, whether that is still logged or not.
        self.counts: dict[bytes, int] = dict.fromkeys(REASONS, 0)

    def __iter__(self) -> Iterator[Denial]:
        return iter(self._entries)

    def note(self, reason: bytes, what: bytes, user: bytes, client: bytes, wall: int) -> None:
        """Note a refusal; `wall` is unix milliseconds."""
        self.counts[reason] += 1
        key = (reason, what[:OBJECT_MAX], user[:OBJECT_MAX])
        client = client[:CLIENT_MAX]
        for entry in islice(self._entries, LOOKED_AT):
            if (entry.reason, entry.what, entry.user) == key and wall - entry.updated_at <= GROUPED_MS:
                entry.count += 1
                entry.updated_at, entry.client = wall, client
                self._entries.remove(entry)
                self._entries.appendleft(entry)
                return
        self._entries.appendleft(Denial(self._next_id, *key, client, wall, wall))
        self._next_id += 1

    def set_length(self, length: int) -> None:
        """Keep that many entries from now on; the oldest beyond them are forgotten."""
        self._entries = deque(islice(self._entries, length), maxlen=length)

    def clear(self) -> None:
        """Forget all entries."""
        self._entries.clear()
