"""Status of rewrites: whether one is under way and how the last one ended, as INFO shows it.

Times are integer milliseconds of the monotonic clock, but for those that INFO shows, which are seconds.
"""

from disqued.core.model.clock import Clock


class Rewrites:
    """What a store says of its rewrites and compactions."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.began_at: int | None = None  #: None = none is under way
        self.failures: int = 0  #: since the last one that succeeded
        self._took_s = -1  #: the last one that ended; -1 = none has

    @property
    def under_way(self) -> bool:
        return self.began_at is not None

    def begin(self) -> None:
        self.began_at = self._clock.now()

    def end(self, *, succeeded: bool) -> None:
        """The one that is under way has ended; one that never began may have failed, too."""
        self.failures = 0 if succeeded else self.failures + 1
        if self.began_at is not None:
            self._took_s = self._running_s()
        self.began_at = None

    def give_up(self) -> None:
        """The one that is under way ends without a result."""
        self.began_at = None

    def _running_s(self) -> int:
        return -1 if self.began_at is None else (self._clock.now() - self.began_at) // 1_000

    def status(self, *, writes: bool) -> dict[str, int | str]:
        """Return the fields that INFO has of every journal; `writes`: the last write succeeded."""
        return {
            "aof_enabled": 1,
            "aof_state": "on",
            "aof_rewrite_in_progress": int(self.under_way),
            "aof_rewrite_scheduled": 0,
            "aof_last_rewrite_time_sec": self._took_s,
            "aof_current_rewrite_time_sec": self._running_s(),
            "aof_last_bgrewrite_status": "err" if self.failures else "ok",
            "aof_last_write_status": "ok" if writes else "err",
        }
