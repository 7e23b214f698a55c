"""One budget for what connections hold outside maxmemory.

    ClientConnection: unfinished request, commands that wait, replies not read --+
    HTTP request and response bodies --------------------------------------------+--hold(owner, size)--> Buffers
    links of the cluster bus: frames not handled, messages not sent -------------+                          |
                                                                                                            v
         too much: the holder of the most bytes is ended, then the next one <-- end_for_buffers(size)

The limit is a quarter of maxmemory, but at least 64 MiB.  The largest holder does not count towards it, and may hold
up to maxmemory: a job of any size that the node can hold can also be sent and fetched.  So connections never hold
more than the limit and one largest request or reply.

A holder reports its total when that has changed by about `STEP`, so small requests never get here.  Holders are kept
in one row per power of two, so the largest is found without looking at all of them.

Sizes are bytes of memory, object headers included.  Source: Redis, src/server.c (maxmemory-clients).
"""

from typing import Any, Final

from disqued.commands.host import Holder
from disqued.core.model.memory import Memory

MINIMUM: Final = 64 << 20  #: the limit where maxmemory is small
STEP: Final = 4096  #: change of a holder's total that it reports; what is below it is part of the connection's own cost


class Buffers:
    """Bytes that all connections of one daemon hold outside maxmemory."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._sizes: dict[Holder, int] = {}
        self._rows: list[dict[Holder, None]] = [{} for _ in range(64)]  #: holders by the bit length of their size
        self.used = 0  #: bytes held by all
        self.peak = 0  #: the most bytes ever held
        self.ended = 0  #: holders that were ended to make room

    @property
    def limit(self) -> int:
        return max(MINIMUM, self._memory.limit // 4)

    def hold(self, owner: Holder, size: int) -> None:
        """Set the owner's total, and end the largest holder while the others hold more than the limit.

        The owner itself may be among them: its `end_for_buffers` has been called then, and it counts as dropped.
        """
        self._set(owner, size)
        if self.used > self.peak:
            self.peak = self.used
        if self.used > self.limit:
            self._make_room()

    def drop(self, owner: Holder) -> None:
        """Forget an owner; one that holds nothing may be dropped, too."""
        self._set(owner, 0)

    def size_of(self, owner: Holder) -> int:
        """Bytes that an owner has reported."""
        return self._sizes.get(owner, 0)

    def facts(self) -> dict[str, Any]:
        """Fields of INFO's section Clients."""
        return {"mem_clients_normal": self.used, "mem_clients_limit": self.limit, "mem_clients_ended": self.ended}

    def reset(self) -> None:
        """Zero the counters."""
        self.ended, self.peak = 0, self.used

    def _set(self, owner: Holder, size: int) -> None:
        before = self._sizes.pop(owner, 0)
        if before:
            del self._rows[before.bit_length()][owner]
        if size:
            self._sizes[owner] = size
            self._rows[size.bit_length()][owner] = None
        self.used += size - before

    def _make_room(self) -> None:
        """End the largest holders until the others fit."""
        limit, alone = self.limit, max(self.limit, self._memory.limit)
        while self._sizes:
            row = next(row for row in reversed(self._rows) if row)
            largest = max(row, key=self._sizes.__getitem__)
            size = self._sizes[largest]
            if self.used - size <= limit and size <= alone:
                return
            self.drop(largest)
            self.ended += 1
            largest.end_for_buffers(size)
