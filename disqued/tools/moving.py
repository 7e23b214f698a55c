"""Moving jobs from a queue to another one with blocking connections: the runner of `disqued.moves` for the CLI.

    here <--Node-- Mover --Node--> there        on the same nodes, or on others

Times are seconds.
"""

import time
from collections.abc import Callable
from typing import Any

from disqued.client.errors import ServerError, Uncertain, Unreachable
from disqued.moves import Broken, Effect, Lost, Refusal, Side, Terms, Wait, move_delivered, run
from disqued.tools.connecting import Failed, NodeConnection


class Mover:
    """Moves the jobs of one node."""

    def __init__(
        self, here: NodeConnection, there: NodeConnection, queue: bytes, to: bytes, *, replicate: int | None = None,
        patience: float = 30.0,
    ) -> None:  # fmt: skip
        """`patience` is how long the other side may be away before this gives up."""
        self._nodes = {Side.HERE: here, Side.THERE: there}
        self._terms = Terms(queue, to, replicate, patience_s=patience, clock=time.monotonic)

    def move(self, count: int) -> int | None:
        """Move so many jobs at most; return how many were moved, None when the queue is empty.

        Raises Refused when some were refused there; those are here as before.  Raises Failed for at-most-once jobs
        that cannot be put back, and the errors of `disqued.client.errors`.
        """
        try:
            tally = run(move_delivered(self._terms, count), self._perform)
        except Lost as lost:
            raise Failed(str(lost)) from lost
        if tally is None:
            return None
        if tally.both:
            raise tally.both[0][1].error
        moved = tally.moved + tally.overtaken
        if tally.refused:
            raise MoveRefused(tally.refused[0][1].text, moved)
        return moved

    def _perform(self, effect: Effect) -> list[Any] | None:
        if isinstance(effect, Wait):
            time.sleep(effect.seconds)
            return None
        try:
            replies = self._nodes[effect.side].call_all(effect.commands, effect.waits)
        except (Unreachable, Uncertain) as error:
            raise Broken(may_be_done=isinstance(error, Uncertain)) from error
        return [_read(reply) for reply in replies]


def _read(reply: Any) -> Any:
    return Refusal(reply.word, str(reply), reply) if isinstance(reply, ServerError) else reply


class MoveRefused(Exception):
    """Jobs were refused there, and given back; the text is the reason that the first one met."""

    def __init__(self, why: str, moved: int) -> None:
        super().__init__(why)
        self.moved = moved  #: of the same batch


class RateLimit:
    """Keeps to a rate."""

    def __init__(
        self, per_second: float | None, clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:  # fmt: skip
        self._per_second = per_second
        self._clock = clock
        self._sleep = sleep
        self._began_at = clock()

    def wait(self, done: int) -> None:
        """Wait until so many may have been done."""
        if self._per_second is not None:
            ahead = self._began_at + done / self._per_second - self._clock()
            if ahead > 0:
                self._sleep(ahead)
