"""What the journal of a node can promise now."""

from typing import Final

from disqued.core.model.outbox import Record
from disqued.core.model.schedule import Schedule, Timed
from disqued.core.model.watermark import Watermark

LATE_MS: Final = 1_000  #: how long a record may wait for others


class LateRecords(Timed):
    """Records that are not worth a commit of their own: they go in front of the next ones, or after `LATE_MS`."""

    __slots__ = ("records",)

    def __init__(self) -> None:
        self.awake_at = 0
        self.records: list[Record] = []

    def put_off(self, record: Record, schedule: Schedule, now: int) -> None:
        """Let the journal have a record with the next ones, or soon; a crash before that loses it."""
        self.records.append(record)
        if not self.awake_at:
            schedule.add(self, now + LATE_MS)

    def before(self, records: list[Record]) -> list[Record]:
        """Return what is to be journaled, and in front of that what waited for it."""
        if not self.records:
            return records
        late, self.records = self.records, []
        return late + records


class Durability:
    """Set by the driver, except for the watermark and the late records."""

    __slots__ = ("late", "read_only", "watermark")

    def __init__(self) -> None:
        self.read_only: bool = False  #: the journal takes no jobs now
        self.late: LateRecords = LateRecords()
        self.watermark: Watermark = Watermark()  #: up to when delayed jobs have been queued
