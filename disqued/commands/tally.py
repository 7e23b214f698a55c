"""How often a command was run, and how long that took: compiled, since every command counts itself."""


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
