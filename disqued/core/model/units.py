"""What consumers of groups have of logs, and how they wait: data alone, changed by `groups`, `logs` and `readers`.

    GroupUnit     an event as one group has it, on a node that holds it
    GivenUnit     an event that another node has handed out to a consumer of this one
    EventForm     how a consumer takes events
    GroupWaiter   a consumer that waits

Times are integer milliseconds of the monotonic clock.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from disqued.core.model.job import ACTIVE, QUEUED, Event, Job, JobOptions, Unit
from disqued.core.model.queues import Client, Form, Queue, Waiter
from disqued.core.model.worker import Worker

if TYPE_CHECKING:
    from disqued.core.model.groups import Group


class LogUnit(Unit):
    """An event that somebody has, or had."""

    __slots__ = ("body", "granter", "id", "options", "queue", "worker")

    def __init__(self, granter: bytes) -> None:
        self.awake_at = 0
        self.granter: bytes = granter  #: node that handed it out last; empty = this one
        self.worker: Worker | None = None  #: of this node, with whom it comes back; None = there is none

    def bind(self, worker: Worker, now: int) -> None:
        """Let it come back when a worker dies, of whom this is a sign of life."""
        self.worker = worker
        worker.alive_at = now
        worker.leases[self] = now

    def unbind(self) -> None:
        """Note that no worker has it any more."""
        if self.worker is not None:
            self.worker.leases.pop(self, None)
            self.worker = None


class GroupUnit(LogUnit):
    """An event as one group has it: ACTIVE with a consumer, until `requeue_at`, or QUEUED, waiting again."""

    __slots__ = ("deliveries", "event", "following", "group", "lease_ms", "previous")

    def __init__(self, event: Event, group: "Group") -> None:
        super().__init__(b"")
        self.event: Event = event
        self.group: Group = group
        self.id = event.id
        self.queue = event.queue
        self.body = event.body
        self.options = event.options
        self.state = QUEUED
        self.order_key = event.order_key
        self.requeue_at = 0
        self.flags = 0
        self.nacks = 0
        self.additional_deliveries = 0
        self.deliveries: int = 0  #: times that a consumer got it, as far as this node knows
        self.lease_ms: int = 0  #: how long the consumer has it
        #: Its neighbors among the units of its event; see `Event.touched`.
        self.previous: GroupUnit | None = None
        self.following: GroupUnit | None = None

    def link(self) -> None:
        """Enter it among the units of its event."""
        event = self.event
        first = event.touched
        self.following = first
        if first is not None:
            first.previous = self
        event.touched = self

    def unlink(self) -> None:
        """Take it out of the units of its event."""
        previous, following = self.previous, self.following
        if previous is not None:
            previous.following = following
        elif self.event.touched is self:
            self.event.touched = following
        if following is not None:
            following.previous = previous
        self.previous = self.following = None

    @property
    def job(self) -> Job:
        """The event."""
        return self.event

    @property
    def scope(self) -> bytes:
        """The group that it is for, in its epoch."""
        return self.group.scope

    @property
    def progress(self) -> tuple[int, bool, int]:
        """How far it has come, as nodes merge it, by maximum: times that a consumer got it, given back, until when."""
        return (self.deliveries, not self.requeue_at, self.requeue_at)


class GivenUnit(LogUnit):
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


@mypyc_attr(allow_interpreted_subclasses=True)
class EventForm(Form):
    """How a consumer of a group takes events; a form that is no such one only wants to know that there are some."""

    __slots__ = ("lease_ms", "strict")

    def __init__(self, lease_ms: int, count: int = 1, *, strict: bool = False, worker: Worker | None = None) -> None:
        super().__init__(count, worker)
        self.lease_ms: int = lease_ms  #: how long the consumer has them; 0 = they are done at once
        self.strict: bool = strict  #: only such as the node made that hands them out

    @abstractmethod
    def answer(self, units: list[Unit]) -> object:
        """What a consumer is answered that takes these."""


class GroupWaiter(Waiter):
    """A consumer of a group that waits, in the logs of some queues."""

    __slots__ = ("asked", "groups")

    def __init__(
        self, client: Client, queues: list[Queue], groups: "list[Group]", form: Form, *, nohang: bool = False
    ) -> None:
        super().__init__(client, queues, form, nohang=nohang)
        self.groups: list[Group] = groups
        self.asked: int = 0  #: number of the question to another node whose answer it waits for; 0 = none

    @property
    def is_owed(self) -> bool:
        """Tell whether its group may be done with something that is on its way to it from another node."""
        form = self.form
        return self.asked > 0 and isinstance(form, EventForm) and not form.lease_ms

    def enter(self) -> None:
        """Begin to wait."""
        for group in self.groups:
            group.waiters[self] = None
            group.note_waiting()

    def leave(self) -> None:
        """Wait no more."""
        for group in self.groups:
            group.waiters.pop(self, None)
            group.note_waiting()
            group.log.let_go(group)

    def move(self, group: "Group", other: "Group") -> None:
        """Wait for another log in the place of one."""
        self.groups = [other if one is group else one for one in self.groups]
