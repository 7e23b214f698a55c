"""What a node hands out although the job is dead or has had all its tries."""

from collections.abc import Callable

from disqued.core.model.queues import Queue
from disqued.core.model.state import State


class DeadWatch:
    """The deliveries of one process, held against the tries of each job and against the dead jobs that it knows."""

    def __init__(self, state: State, known: dict[bytes, int]) -> None:
        """Watch a process; `known` are the generations in which the node knew jobs to be dead, over its restarts.

        A death counts once it is committed: before that nobody has heard of it, and a power failure may take it back.
        """
        self.broken: list[str] = []
        self._state = state
        self._known = known
        self._new: dict[bytes, int] = {}  #: deaths that no commit has begun to write
        self._written: dict[bytes, int] = {}  #: deaths in the commit that has begun

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
                if self._known.get(unit.id, -1) < unit.options.fate.generation:
                    self._new[unit.id] = unit.options.fate.generation

    def begin_commit(self) -> None:
        """A commit begins: of all that has happened, and of what the one before could not write."""
        self._written |= self._new
        self._new.clear()

    def committed(self) -> None:
        """That commit is done."""
        self._known.update(self._written)
        self._written.clear()

    def _look(self, queue: Queue) -> None:
        for unit, (since, _) in reversed(queue.leased.items()):
            if since != self._state.now:
                return
            generation, max_tries = unit.options.fate.generation, unit.options.terms.max_tries
            tries = unit.nacks + unit.additional_deliveries + 1
            if self._known.get(unit.id, -1) >= generation:
                self.broken.append(f"{unit.id!r}, which was dead in generation {self._known[unit.id]}")
            if 0 < max_tries < tries:
                self.broken.append(f"{unit.id!r} for try {tries} of {max_tries}")
