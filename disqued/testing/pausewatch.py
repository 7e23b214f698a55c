"""What a node that knows of a pause hands out all the same; `pauses` has what operators say."""

from collections.abc import Callable

from disqued.core.model.queues import PAUSE_OUT
from disqued.core.model.state import State


class PauseWatch:
    """What one process hands out of queues that it knows to be paused out."""

    def __init__(self, state: State) -> None:
        self.broken: list[bytes] = []  #: names of queues that gave jobs all the same
        self._state = state

    def over(self, step: Callable[[], None]) -> None:
        """Carry out a step and look at the queues that are paused out before and after it."""
        queues = self._state.queues
        before = [(queue, queue.jobs_out) for queue in queues.by_name.values() if queue.pause & PAUSE_OUT]
        step()
        self.broken += [queue.name for queue, given in before if queue.pause & PAUSE_OUT and queue.jobs_out != given]
