"""SLOTS: which jobs of a limited queue are with consumers, in the whole cluster; and limits in words."""

from itertools import islice
from typing import Any

import attrs

from disqued.commands.jobs import JOBS_AT_ONCE
from disqued.commands.shapes import array, bulk, integer, null_or, tuple_of
from disqued.commands.table import Flag, command, option, positional
from disqued.commands.values import (
    COUNT_MISFIT,
    QUEUE,
    SECOND,
    SECONDS_MAX,
    Kind,
    bounded,
    one_of,
    read_span,
    readable,
    span,
)
from disqued.commands.values import count as count_kind
from disqued.commands.values import integer as integer_kind
from disqued.core.model.gates import Limits
from disqued.core.model.job import KIND_WORK, Job
from disqued.core.model.outbox import Client
from disqued.core.model.policies import (
    AVAILABLE,
    GROUPRATE_FIELD,
    IN_FLIGHT_MAX,
    PARTITION_FIELD,
    QUEUE_FIELD_NAMES,
    RATE_FIELD,
    RATE_MAX,
    STRICT,
    Numbers,
)
from disqued.core.model.queues import Queue
from disqued.core.model.slots import Rate, Slot
from disqued.core.model.spans import seconds_text
from disqued.core.node import Node
from disqued.errors import CommandError, WrongType

SLOTS_COUNT = count_kind(1, JOBS_AT_ONCE, COUNT_MISFIT)
SHOWN_BY_DEFAULT = 100

#: Words between the numbers of RATE and GROUPRATE.
RATE_PARTS = ("count", "per", "burst")
RATE_WORDS = ("", "PER", "BURST")
PARTITION_WORDS = {STRICT: b"strict", AVAILABLE: b"available"}
PARTITION = one_of(
    {word.upper(): number for number, word in PARTITION_WORDS.items()},
    "unknown PARTITION {word}; expected strict or available",
)

_RATES = (QUEUE_FIELD_NAMES[RATE_FIELD], QUEUE_FIELD_NAMES[GROUPRATE_FIELD])
_PARTITION = QUEUE_FIELD_NAMES[PARTITION_FIELD]


def _bounded(word: str, most: int) -> Kind:
    """A kind of number from 1, whose error repeats what was given: RATE has up to three."""
    expected = f"{word} takes whole numbers from 1 to {most}, not {{word}}"

    def read(text: bytes) -> int:
        return bounded(1, most, expected.format(word=repr(readable(text))))(text)

    kind = integer_kind(1, most, expected.format(word="<word>"), f"whole numbers from 1 to {most}")
    return attrs.evolve(kind, read=read)


IN_FLIGHT = _bounded("INFLIGHT", IN_FLIGHT_MAX)
GROUP_IN_FLIGHT = _bounded("GROUPINFLIGHT", IN_FLIGHT_MAX)
_BAD_PER = f"PER takes seconds above 0 to {RATE_MAX}, not <word>"


def _read_per(text: bytes) -> int:
    try:
        ms = read_span(text, SECOND)
    except ValueError:
        ms = 0
    if not 0 < ms <= RATE_MAX * SECOND:
        raise CommandError(_BAD_PER.replace("<word>", repr(readable(text))))
    return ms


PER = attrs.evolve(
    span(SECOND, 1, RATE_MAX * SECOND, _BAD_PER, f"above 0 to {RATE_MAX} seconds, with fractions"), read=_read_per
)


def _rate(word: str) -> tuple[Kind, ...]:
    """The kinds of the numbers of a rate."""
    count, per = _bounded(word, RATE_MAX), PER
    return attrs.evolve(count, allowed=f"{count.allowed}; PER {per.allowed}"), per, count


RATE = _rate("RATE")
GROUP_RATE = _rate("GROUPRATE")


def limit_value(field: bytes, numbers: Numbers) -> bytes | None:
    """Return the value of a field as QPOLICY SET takes it; None = it is written as plain numbers or spans."""
    if field in _RATES:
        shown = [
            seconds_text(number) if word == "PER" else b"%d" % number
            for word, number in zip(RATE_WORDS, numbers, strict=False)
        ]
        return b" ".join(
            [b"%b %b" % (word.encode(), text) if word else text for word, text in zip(RATE_WORDS, shown, strict=False)]
        )
    return PARTITION_WORDS[numbers[0]] if field == _PARTITION and numbers else None


LIMIT_STATISTICS = (
    "inflight", "group-inflight", "rate", "group-rate", "partition", "slots", "slots-awaited", "steward",
    "slots-blocked",
)  # fmt: skip

#: Seconds left of a slot whose end this node does not know: its job is delivered again on request alone.
NEVER = -1
#: No slot that ends by itself lasts as long: a retry time and some minutes.
_ENDLESS_MS = (SECONDS_MAX + 3_600) * 1_000


def limit_facts(node: Node, queue: Queue) -> list[Any]:
    """Return what QSTAT FULL tells of the limits of a queue: names and values in turn."""
    limits = node.state.queues.policies.limits_of(queue.name)
    witness = node.witnesses.known(queue.name)
    units = queue.grouped
    return [
        b"inflight", limits.in_flight,
        b"group-inflight", limits.group_in_flight,
        b"rate", rate_text(limits.rate),
        b"group-rate", rate_text(limits.group_rate),
        b"partition", partition_text(limits),
        b"slots", 0 if witness is None else len(witness.table),
        b"slots-awaited", 0 if units is None else len(units.lent) - len(units.given),
        b"steward", node.witnesses.steward_of(queue.name) if partition_text(limits) else b"",
        b"slots-blocked", node.hindrances.of_slots(queue.name),
    ]  # fmt: skip


def left_ms(slot: Slot, job: Job | None, now: int) -> int | None:
    """Return how long a slot lasts at most, in milliseconds; None = until its job is acknowledged or given back.

    It ends with the job, which is None where this node does not have it.
    """
    until = slot.until if job is None else min(slot.until, job.expires_at)
    left = max(0, until - now)
    return None if left > _ENDLESS_MS else left


def seconds_left(slot: Slot, job: Job | None, now: int) -> int:
    """Return how long a slot lasts at most, rounded up, or `NEVER`."""
    left = left_ms(slot, job, now)
    return NEVER if left is None else -(-left // 1_000)


def rate_text(rate: Rate | None) -> bytes:
    """Write a rate as QPOLICY does; empty for none."""
    return b"" if rate is None else b"%d PER %b BURST %d" % (rate.tokens, seconds_text(rate.per_ms), rate.burst)


def partition_text(limits: Limits) -> bytes:
    """Say what holds of the limits during a partition; empty where there are none."""
    if not (limits.in_flight or limits.group_in_flight or limits.rate or limits.group_rate):
        return b""
    return PARTITION_WORDS[AVAILABLE if limits.is_available else STRICT]


_SLOT = tuple_of(
    "[job id, group, node, seconds left, client]", bulk("job id"), bulk("its group; empty for none"),
    bulk("id of the node that handed it out"),
    integer("until the slot ends by itself, rounded up; -1 = no end is known"),
    null_or(bulk("who has the job: the id of a live worker, or the name or address of a client")),
)  # fmt: skip


@command(
    "SLOTS", group="queues", flags=Flag.READ | Flag.FAST, reply=array(_SLOT, "the slots that are in use"),
    cost="O(1) for each slot that is shown", errors=(WrongType,), once=True,
)  # fmt: skip
@attrs.define
class Slots:
    """Show which jobs have the slots of a queue with limits, as this node knows.

    A job of a queue with INFLIGHT, GROUPINFLIGHT, RATE or GROUPRATE has a slot while a consumer has it, on whatever
    node, until ACKJOB or NACK, or the end of its retry time or of its TTL, which a node without a copy of the job does
    not know.  The steward of the queue tells each node which slots are in use: what this node knows may be some moments
    old, and a node that has just started knows of none before the steward tells it.  Of a queue without limits there is
    nothing to show.  An element that RQ.POP took without a retry time has its slot until it is acknowledged or given
    back, or its TTL ends.

    The client is the id of the live worker that has the job, or else the name (CLIENT SETNAME) or the address of the
    client; 255 bytes at most.  It is null while this node does not know it: after a restart of the node that handed
    the job out, and for 2 s where that is another node.

    One call shows 2000 slots at most.
    """

    queue: bytes = positional("Queue whose slots are shown.", QUEUE)
    count: int = option("COUNT", "How many at most.", SLOTS_COUNT, SHOWN_BY_DEFAULT)

    def run(self, node: Node, client: Client) -> list[list[Any]]:
        """Show the slots.  Raises WrongType (WRONGTYPE)."""
        queue = node.state.queues.by_name.get(self.queue)
        if queue is not None:
            queue.check_kind(KIND_WORK)
        witness = node.witnesses.known(self.queue)
        if witness is None:
            return []
        now, witnesses = node.state.now, node.witnesses
        return [
            [
                slot.job_id,
                slot.group,
                slot.node_id,
                seconds_left(slot, node.state.jobs.get(slot.job_id), now),
                witnesses.client_of(self.queue, slot) or None,
            ]
            for slot in islice(witness.table.by_id.values(), self.count)
        ]
