"""Background work: work too long for one step is done in parts, one part a tick.

    a command on a hundred thousand jobs    its client is blocked; the reply comes with the last part
    what a flush forgot                     given back to the system
    jobs whose time is over, in front of    dropped, before a consumer can have the one behind them
    one whose time is not

A piece of work is a generator.  It does one part, a few milliseconds long, up to each `yield`; what it returns is the
reply.  Pieces take turns, a part each, so that a short one is soon done beside a long one.  A part is a step as any
other: it must leave everything consistent, and it must not count on what it saw in the part before.

A client that goes away meanwhile gets no reply, but its piece is done to the end, as a short command is that was
received whole: consumers who acknowledge and leave mean it.
"""

from collections import deque
from collections.abc import Generator

from disqued.core.model.outbox import Client, Outbox
from disqued.core.model.schedule import Timed
from disqued.errors import CommandError, InternalError

#: Work in parts; returns the answer of its client.
Parts = Generator[None, None, object]
#: The same without an answer.
QuietParts = Generator[None, None, None]

#: When unfinished work is due: before everything else, so that a backlog of deadlines does not keep it waiting.
AT_ONCE = 1


class WorkSlice:
    """One piece of work."""

    __slots__ = ("client", "parts")

    def __init__(self, client: Client | None, parts: Parts) -> None:
        self.client: Client | None = client  #: the client that is blocked until it is done; None = none
        self.parts: Parts = parts


class BackgroundWork(Timed):
    """All the work that has been begun and not finished; on the schedule while there is any."""

    __slots__ = ("_awaited", "_pieces", "effort", "freed")

    def __init__(self) -> None:
        self.awake_at = 0
        #: Work of this tick beyond one thing for each deadline, in units of about a tenth of a microsecond.
        self.effort: int = 0
        self.freed: list[bytes] = []  #: large bodies to be freed, each in a tick of its own
        self._pieces: deque[WorkSlice] = deque()
        self._awaited: dict[Client, WorkSlice] = {}  #: by the client that is blocked until it is done

    def __len__(self) -> int:
        return len(self._pieces)

    def add(self, client: Client | None, parts: Parts) -> None:
        """Take in one more piece; its turn comes after those that are there."""
        piece = WorkSlice(client, parts)
        self._pieces.append(piece)
        if client is not None:
            self._awaited[client] = piece

    def has(self, client: Client) -> bool:
        """Tell whether a client waits for one of the pieces."""
        return client in self._awaited

    def forsake(self, client: Client) -> None:
        """Nobody waits for the piece of this client any more."""
        piece = self._awaited.pop(client, None)
        if piece is not None:
            piece.client = None

    def go_on(self, outbox: Outbox) -> None:
        """Do the next part of the piece whose turn it is; with the last one its client is answered.

        A bug in a part ends its piece: its client is answered so, and the exception goes on.
        """
        piece = self._pieces.popleft()
        try:
            next(piece.parts)
        except StopIteration as end:
            value = end.value
        except CommandError as error:
            value = error
        except Exception:
            self._answer(outbox, piece, InternalError())
            raise
        else:
            self._pieces.append(piece)
            return
        self._answer(outbox, piece, value)

    def _answer(self, outbox: Outbox, piece: WorkSlice, value: object) -> None:
        if piece.client is not None:
            self._awaited.pop(piece.client, None)
            outbox.replies.append((piece.client, value, []))
