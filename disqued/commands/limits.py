"""THROTTLE: a queue, or a group of it, hands nothing out for a while, in the whole cluster."""

from math import ceil

import attrs

from disqued.commands.jobs import GROUP
from disqued.commands.shapes import integer
from disqued.commands.table import Flag, command, option, positional
from disqued.commands.values import QUEUE, SECOND, never_empty, span
from disqued.core.cluster.gates import place_of_throttle
from disqued.core.model.gates import THROTTLE_MAX_S
from disqued.core.model.job import KIND_LOG
from disqued.core.model.outbox import Client
from disqued.core.model.policies import cost_of_register
from disqued.core.model.queues import check_name
from disqued.core.node import Node
from disqued.errors import LogWithoutLimits, NameTooLong, OutOfMemory

_MISFIT = f"the seconds of a throttle must be a number from 0 to {THROTTLE_MAX_S}"
_ALLOWED = f"0 to {THROTTLE_MAX_S}, with fractions"
THROTTLE_SPAN = never_empty(span(SECOND, 0, THROTTLE_MAX_S * SECOND, _MISFIT, _ALLOWED), _MISFIT)


@command(
    "THROTTLE", group="queues", flags=Flag.WRITE | Flag.FAST,
    reply=integer("seconds for which it hands nothing out from now on, rounded up"),
    cost="O(log N) in the jobs of the group", errors=(OutOfMemory, NameTooLong, LogWithoutLimits), once=True,
)  # fmt: skip
@attrs.define
class Throttle:
    """Hand out no job of a queue, or of one group of it, for a while, in the whole cluster: after a 429, for example.

    The latest end counts, whoever set it: a shorter throttle changes nothing, and none ends before its time.  0 seconds
    only ask how long it still lasts.  A node that cannot be reached learns it when it is back, and a node with a store
    keeps it over a restart.  Consumers that wait go on waiting, and are served when it ends.

    Jobs are added, acknowledged and given back as ever, and consumers keep what they have.  The end is a time of the
    clock: where the clocks of two nodes differ, it comes as much earlier or later.  QGET and other commands of logs are
    not throttled, and a queue that is a log is refused (WRONGTYPE).  What is to last for more than a day is a PAUSE.
    """

    queue: bytes = positional("Queue to throttle.", QUEUE)
    seconds: int = positional("How long from now on; 0 = only ask.", THROTTLE_SPAN)
    group: bytes = option("GROUP", "Only jobs of this group.", GROUP, b"")

    def run(self, node: Node, client: Client) -> int:
        """Throttle; returns the seconds that are left.  Raises OutOfMemory (OOM), NameTooLong, LogWithoutLimits."""
        queue = node.state.queues.by_name.get(self.queue)
        if queue is not None and queue.kind == KIND_LOG:
            raise LogWithoutLimits
        if self.seconds:
            name, field = place_of_throttle(self.queue, self.group)
            if (name, field) not in node.state.queues.policies.registers:
                check_name(self.queue)
                node.check_names(cost_of_register(name, (self.seconds,)))
            node.gates.throttle(self.queue, self.group, self.seconds)
        return ceil(node.gates.throttled_ms(self.queue, self.group) / 1_000)
