"""Events that other nodes have handed out to consumers of this one: data alone, changed by `readers`.

Times are integer milliseconds of the monotonic clock.
"""

from disqued.core.model.groups import EntryUnit
from disqued.core.model.job import ACTIVE, JobOptions


class GivenUnit(EntryUnit):
    """An event that another node has handed out to a consumer of this one; on the schedule while a worker has it."""

    __slots__ = ("_scope",)

    def __init__(
        self,
        job_id: bytes,
        queue: bytes,
        scope: bytes,
        body: bytes,
        *,
        order_key: int,
        options: JobOptions,
        granter: bytes,
    ) -> None:
        super().__init__(granter)
        self.id = job_id
        self.queue = queue
        self.body = body
        self.options = options
        self.state = ACTIVE
        self.order_key = order_key  #: higher than of those that were given before
        self.requeue_at = self.flags = self.nacks = self.additional_deliveries = 0
        self._scope = scope

    @property
    def scope(self) -> bytes:
        """The group that it is for, in its epoch."""
        return self._scope
