"""What one client listens to, and the memory that this takes.

Source: the Redis manual, "Pub/Sub".
"""

SUBSCRIPTION_COST = 640  #: bytes that a subscription takes besides its name, where nobody else has the same


class SubscriptionSet:
    """The channels and patterns of one client; its length counts both."""

    def __init__(self) -> None:
        self.channels: dict[bytes, None] = {}
        self.patterns: dict[bytes, None] = {}
        self.size = 0  #: bytes of memory

    def __len__(self) -> int:
        return len(self.channels) + len(self.patterns)

    def of(self, *, patterns: bool) -> dict[bytes, None]:
        """The patterns, or the channels."""
        return self.patterns if patterns else self.channels

    @property
    def name_bytes(self) -> int:
        """Bytes of all names and patterns."""
        return sum(map(len, self.channels)) + sum(map(len, self.patterns))

    def add(self, name: bytes, *, patterns: bool) -> None:
        """Listen to a channel, or to a pattern."""
        own = self.of(patterns=patterns)
        if name not in own:
            self.size += SUBSCRIPTION_COST + len(name)
            own[name] = None

    def remove(self, name: bytes, *, patterns: bool) -> bool:
        """Listen to it no more; returns whether it was listened to."""
        own = self.of(patterns=patterns)
        if name not in own:
            return False
        del own[name]
        self.size -= SUBSCRIPTION_COST + len(name)
        return True
