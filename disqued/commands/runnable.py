"""What the path of every request reads of a command, compiled: how it is read and answered, how often it was run."""

from collections.abc import Callable, Iterable
from typing import Any

from mypy_extensions import mypyc_attr


class Tally:
    """The counts of one command."""

    __slots__ = ("calls", "usec")

    def __init__(self) -> None:
        self.calls: int = 0
        self.usec: float = 0.0

    def count(self, seconds: float) -> None:
        """Count a call that is over."""
        self.calls += 1
        self.usec += seconds * 1e6

    def reset(self) -> None:
        """Begin anew."""
        self.calls = 0
        self.usec = 0.0


@mypyc_attr(allow_interpreted_subclasses=True)
class Runnable:
    """A command of which nothing has to be looked up by name to run it; `commands/table.py` says the rest of it."""

    __slots__ = ("encode2", "encode3", "handed", "hands_out", "promised", "recall", "tally")

    #: Its words, with its name -> what is to be run; the short way, where there is one.
    recall: Callable[[list[bytes]], Any]
    encode2: Callable[[Any], bytes]  #: of its replies, for RESP2
    encode3: Callable[[Any], bytes]  #: for RESP3
    hands_out: bool  #: its reply is jobs that are now with the client
    handed: Callable[[Any], list[bytes]]  #: ids of the jobs that a reply, not empty, hands out
    #: Names the jobs, and units as ``id:scope``, that a reply promises: it must not be sent when they could not be made
    #: durable.  None = replies promise nothing.
    promised: Callable[[Any], Iterable[bytes]] | None
    tally: Tally

    def prepare(
        self, recall: Callable[[list[bytes]], Any], encode2: Callable[[Any], bytes], encode3: Callable[[Any], bytes],
        handed: Callable[[Any], list[bytes]], promised: Callable[[Any], Iterable[bytes]] | None, *, hands_out: bool,
    ) -> None:  # fmt: skip
        """Take what it is run by, and count from zero."""
        self.recall, self.encode2, self.encode3 = recall, encode2, encode3
        self.handed, self.hands_out = handed, hands_out
        self.promised = promised
        self.tally = Tally()
