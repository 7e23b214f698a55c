"""The part of a command that dispatch reads, compiled: how to parse and answer it, and its counters."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from mypy_extensions import mypyc_attr

from disqued.wire.pieces import Text

#: Returned by a command whose client is now blocked: its reply comes in a later step.
BLOCKED: Final = object()


class Tally:
    """The counts of one command."""

    __slots__ = ("calls", "usec")

    def __init__(self) -> None:
        self.calls: int = 0
        self.usec: float = 0.0

    def reset(self) -> None:
        """Count from zero again."""
        self.calls = 0
        self.usec = 0.0


@mypyc_attr(allow_interpreted_subclasses=True)
class Runnable:
    """A command as dispatch runs it, with no look-up by name; `commands/table.py` has the rest of it."""

    __slots__ = (
        "adds_data", "encode2", "encode3", "handed", "hands_out", "needs_journal", "parse_cached", "promised", "tally",
    )  # fmt: skip

    #: Its words, with its name -> the call; from a parse cache if it has one.
    parse_cached: Callable[[list[bytes]], Any]
    encode2: Callable[[Any], Text]  #: of its replies, for RESP2
    encode3: Callable[[Any], Text]  #: for RESP3
    adds_data: bool  #: it is refused when memory is full
    needs_journal: bool  #: it is refused while nothing can be made durable
    hands_out: bool  #: its reply is jobs that are now with the client
    handed: Callable[[Any], list[bytes]]  #: ids of the jobs that a reply, not empty, hands out
    #: Names the jobs, and units as ``id:scope``, that a reply promises: it must not be sent when they could not be made
    #: durable.  None = replies promise nothing.
    promised: Callable[[Any], Iterable[bytes]] | None
    tally: Tally

    def prepare(
        self, parse_cached: Callable[[list[bytes]], Any], encode2: Callable[[Any], Text],
        encode3: Callable[[Any], Text], handed: Callable[[Any], list[bytes]],
        promised: Callable[[Any], Iterable[bytes]] | None, *, adds_data: bool, needs_journal: bool, hands_out: bool,
    ) -> None:  # fmt: skip
        """Take what it is run by, and count from zero."""
        self.parse_cached, self.encode2, self.encode3 = parse_cached, encode2, encode3
        self.handed, self.hands_out = handed, hands_out
        self.promised = promised
        self.adds_data, self.needs_journal = adds_data, needs_journal
        self.tally = Tally()


#: In the place of a command where there is none.
NOTHING: Final = Runnable()
