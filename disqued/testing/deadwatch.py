"""What a node hands out although the job is dead or has had all its tries."""

from collections.abc import Callable

from disqued.core.model.queues import Queue
from disqued.core.model.state import State


class DeadWatch:
    """The deliveries of one process, held against the tries of each job and against the dead jobs that it knows."""

    def __init__(self, state: State, known: dict[bytes, int]) -> None:
        """Watch a process; `known` are the generations in which the node knew jobs to be dead, over its restarts."""
        self.broken: list[str] = []
        self._state = state
        self._known = known

    def over(self, step: Callable[[], None]) -> None:
        """Carry out a step and look at what it handed out, and at what is dead after it."""
        queues = self._state.queues
        before = [(queue, queue.jobs_out) for queue in queues.by_name.values()]
        step()
        for queue, given in before:
            if queue.jobs_out != given:
                self._look(queue)
        for queue in queues.by_name.values():
            for unit in queue.dead:
                self._known[unit.id] = max(unit.options.fate.generation, self._known.get(unit.id, 0))

    def _look(self, queue: Queue) -> None:
        for unit, since in reversed(queue.leased.items()):
            if since != self._state.now:
                return
            generation, max_tries = unit.options.fate.generation, unit.options.terms.max_tries
            tries = unit.nacks + unit.additional_deliveries + 1
            if self._known.get(unit.id, -1) >= generation:
                self.broken.append(f"{unit.id!r}, which was dead in generation {self._known[unit.id]}")
            if 0 < max_tries < tries:
                self.broken.append(f"{unit.id!r} for try {tries} of {max_tries}")
