"""State that every request of the daemon touches, shared by all connections.

    ClientConnection --+
    ClientConnection --+--> Traffic: may commands run? whose runs now? how much came and went?
    Caller (HTTP)    --+        ^
                                +--- Daemon and Clients set it, INFO shows it

The daemon itself is looked up by name and has properties; this is compiled, so that what is read several times for
each command costs no more than a field of a structure.
"""

from disqued.commands.dispatch import Dispatch
from disqued.core.turn import Turn
from disqued.net.loop.buffers import Buffers
from disqued.net.loop.turns import BusyClients


class Traffic:
    """The state that connections and the daemon share, and the counters of what passes."""

    def __init__(self, dispatch: Dispatch, turn: Turn, buffers: Buffers, busy: BusyClients) -> None:
        self.dispatch = dispatch
        self.node = dispatch.node
        self.turn = turn
        self.buffers = buffers  #: the budget of all connections outside maxmemory
        self.busy = busy  #: turns of clients whose commands take long
        self.running = 0  #: id of the client whose commands run now; 0 = none
        self.paused = False  #: no command runs: CLIENT PAUSE, or shutdown
        self.ending = False  #: the daemon stops
        self.bytes_in = 0
        self.bytes_out = 0

    def reset(self) -> None:
        """Zero the counters."""
        self.bytes_in = self.bytes_out = self.dispatch.commands_run = 0
