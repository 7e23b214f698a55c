"""A node with a journal of bytes, which can be ended and started again.

server = Lasting()
server("RQ.PUSH", "q", "a")
again = server.after_crash()            another node, of what the journal of the first one says
again = server.after_restart()          the same after a controlled restart
"""

from disqued.core.model.outbox import JOB_ADDED, Record
from disqued.core.recovery import Recovery, snapshot, walk
from disqued.testing.clock import Clock
from disqued.wire.jobdump import decode_record, encode_event, encode_job
from tests.core_fixtures import Server


class Lasting(Server):
    """A node that writes its journal down as it happens."""

    def __init__(self, clock: Clock | None = None, seed: int = 1) -> None:
        super().__init__(clock=clock, seed=seed)
        self.written: list[bytes] = []

    def settle(self) -> None:
        """Write down what is in the outbox, as it is now."""
        before = len(self.journal)
        super().settle()
        self.written += [self._written(record) for record in self.journal[before:]]

    def _written(self, record: Record, *, with_state: bool = False) -> bytes:
        wall = self.clock.wall()
        if record[0] != JOB_ADDED:
            return encode_event(record, wall)
        offset = wall - self.clock.now()
        return encode_job(record[1], offset, record[1].state) if with_state else encode_job(record[1], offset)

    def after_crash(self, *, down_ms: int = 0, wall_jump_ms: int = 0) -> "Lasting":
        """Start another node on the journal."""
        return self._again(self.written, down_ms, wall_jump_ms, controlled=False)

    def after_compaction(self) -> "Lasting":
        """Write the journal anew, crash, and start another node on it."""
        self.node.begin()
        return self._again([self._written(record) for record in walk(self.state) if record], 0, 0, controlled=False)

    def after_restart(self, *, down_ms: int = 0) -> "Lasting":
        """Shut down in order, and start another node."""
        self.node.begin()
        records = [self._written(record, with_state=True) for record in snapshot(self.state)]
        return self._again(records, down_ms, 0, controlled=True)

    def _again(self, records: list[bytes], down_ms: int, wall_jump_ms: int, *, controlled: bool) -> "Lasting":
        wall = self.clock.wall() + down_ms + wall_jump_ms
        again = Lasting(Clock(now=self.clock.now() % 977 + 50_000, wall=wall), seed=self.ticks + 2)
        again.state.journaling = False
        again.node.begin()
        recovery = Recovery(again.state, restores_queues=controlled)
        for record in records:
            recovery.apply(decode_record(record))
        again.written = list(records)
        again.journal = [(JOB_ADDED, job) for job in again.state.jobs]
        again.state.journaling = True
        again.node.workers.recover(recovery.held)
        again.tick()
        return again
