"""How many commits there were, and how long they took."""

from time import perf_counter


class Commits:
    """Counts of commits, whatever the store."""

    __slots__ = ("_began", "done", "failed", "seconds")

    def __init__(self) -> None:
        self.done: int = 0
        self.failed: int = 0
        self.seconds: float = 0.0  #: that those took that were done: from the call to the store's answer
        self._began: float = 0.0

    def begin(self) -> None:
        """A commit begins; there is one at a time."""
        self._began = perf_counter()

    def end(self) -> None:
        """The commit that began last is done."""
        self.done += 1
        self.seconds += perf_counter() - self._began
