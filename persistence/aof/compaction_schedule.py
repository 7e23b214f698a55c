"""When a journal is compacted by itself: once it has grown enough, and later after each failure."""

import sys
from typing import Final

from disqued.config.settings import Settings
from disqued.core.model.clock import Clock

#: Pause after a failed compaction; doubled after each failure.
RETRY_MS: Final = 60_000
RETRY_MAX_MS: Final = 3_600_000


class CompactionSchedule:
    """The size from which on a journal is compacted, and the pause after compactions that failed."""

    def __init__(self, config: Settings, clock: Clock) -> None:
        """Take auto-aof-rewrite-percentage and auto-aof-rewrite-min-size."""
        self.base_size: int = 0  #: bytes in the journal when it was loaded or last made smaller
        self._threshold = sys.maxsize  #: bytes in the journal from which on it is to be made smaller
        self._config = config
        self._clock = clock
        self._not_before = 0
        self._pause_ms = RETRY_MS  #: after the next failure

    def configure(self, config: Settings) -> None:
        self._config = config
        self.begin_at(self.base_size)

    def begin_at(self, size: int) -> None:
        """Measure growth from this size on."""
        self.base_size = size
        percent = self._config.auto_aof_rewrite_percentage
        grown = size + size * percent // 100
        self._threshold = max(self._config.auto_aof_rewrite_min_size, grown) if percent else sys.maxsize

    def is_due(self, size: int) -> bool:
        return size > self._threshold and self._clock.now() >= self._not_before

    def succeeded(self, size: int) -> None:
        """A compaction or rewrite has left a journal of this size."""
        self._not_before = 0
        self._pause_ms = RETRY_MS
        self.begin_at(size)

    def failed(self) -> None:
        """A compaction or rewrite has failed."""
        self._not_before = self._clock.now() + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, RETRY_MAX_MS)
