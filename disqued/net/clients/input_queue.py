"""What a client has sent and what was not run: commands first, then the chunks that came behind them.

    chunk --> parser --> commands --> run
      |                     |
      |                     +--postpone--> commands that wait
      +--put_off--> chunks that wait, not parsed yet

Sizes are bytes of memory.  Every request looks here, so this is compiled.
"""

from disqued.wire.requests import SINGLE_SIZE, RequestParser, weight

CHUNKS_MAX = 64 * 1024  #: bytes read ahead from a client whose commands have to wait
CHUNK_COST = 64  #: bytes of memory that a chunk takes besides its text
RESUMED = 1_000  #: postponed commands that are resumed at a time


class InputQueue:
    """Input of one client that waits."""

    __slots__ = ("_chunks_size", "chunks", "commands", "parser", "waiting")

    def __init__(self, parser: RequestParser) -> None:
        self.parser = parser  #: holds the command that has come in part
        # Short, and empty as a rule: a list then takes a tenth of what a deque does.
        self.commands: list[list[bytes]] = []
        self.chunks: list[bytes] = []
        self.waiting = 0  #: bytes of both
        self._chunks_size = 0

    @property
    def is_full(self) -> bool:
        """True when no more is to be read ahead."""
        return self._chunks_size > CHUNKS_MAX

    @property
    def is_short(self) -> bool:
        """True when what waits is not more than a single command."""
        return not self.commands and self._chunks_size <= SINGLE_SIZE + CHUNK_COST

    def put_off(self, chunk: bytes) -> None:
        """Keep a chunk until the client may go on."""
        self.chunks.append(chunk)
        self._count_chunk(len(chunk) + CHUNK_COST)

    def take_chunk(self) -> bytes:
        """Take the oldest chunk."""
        chunk = self.chunks.pop(0)
        self._count_chunk(-len(chunk) - CHUNK_COST)
        return chunk

    def postpone(self, commands: list[list[bytes]]) -> None:
        """Let commands wait again, in front of the others."""
        self.commands[:0] = commands
        self.waiting += sum(map(weight, commands))

    def take_commands(self) -> list[list[bytes]]:
        """Take the oldest commands, as many as are run at a time."""
        commands = self.commands[:RESUMED]
        del self.commands[:RESUMED]
        self.waiting -= sum(map(weight, commands))
        return commands

    def lift_limits(self) -> None:
        """Let the commands wait that only the limits for unauthenticated clients had held back."""
        commands = self.parser.lift()
        self.commands.extend(commands)
        self.waiting += sum(map(weight, commands))

    def drop(self) -> None:
        """Forget what waits; the unfinished command stays with the parser."""
        self.commands.clear()
        self.chunks.clear()
        self.waiting = self._chunks_size = 0

    def _count_chunk(self, size: int) -> None:
        self._chunks_size += size
        self.waiting += size
