"""Policies: what operators say of a queue for the whole cluster.

A policy is a set of registers, one for each field, so that two sides of a partition may set different fields and lose
neither.  A register holds a value and its version.  The greater version wins: a merge is a maximum, so that neither
the order of messages nor their number matters.  The first field is the pause of the queue; the others are defaults of
ADDJOB, whose values are numbers.

    set       version = (highest counter known of this register + 1, id of this node)
    learned   kept and handed on if it is greater than what is known here; else nothing changes
    forgotten a register with the empty value, `FORGOTTEN_MS` after it was set

A register with the empty value (``PAUSE queue none``, ``QPOLICY queue UNSET ttl``) is kept for a while: without it an
older word of a node that was away would win again.  A node that was away for longer than that brings its older word
back.

A schedule of jobs is a register as well, whose place has the name of the schedule (`calendar`).  Its last instant is
another one, in which the instant is the counter: so the latest instant wins, whoever fired it.  What became of the last
instants is its value; values of two such registers are joined (`calendar.joined`), so that an instant that one side of
a partition fired is not told as missed by the other.  Its last refusal is a third one, whose counter is when it was.

A queue with a span of idleness (``QPOLICY queue SET IDLE``) has one more register, `USE_FIELD`: the account of its use.
Its counter is even while the queue is in use, and odd once it has expired; each word of use, and each expiry, is the
next such number, so that the latest counts.  Its value is the floor: the highest counter of the fields that expired
with the queue.  Fields up to the floor are forgotten, and those that come from a node that was away are not learnt.
Who takes which word is in `cluster.idleness`.

The throttle of a queue, or of one of its groups, is a register whose counter is the end of the throttle: so the latest
end wins, and the register is forgotten when it is over.

Registers outlive their queue, and a flush.  Wall clocks are compared for the forgetting alone.

Times are unix milliseconds, spans milliseconds.
"""

from typing import Final, NamedTuple

from disqued.core.model.calendar import AT, LastFiring, Refusal, ScheduleSetting, cost_of_schedule, joined
from disqued.core.model.gates import NO_LIMITS, THROTTLE_MAX_S, Gate, Limits, split_throttle_name
from disqued.core.model.memory import Memory
from disqued.core.model.slots import Rate
from disqued.core.model.terms import TRIES_MAX

# Numbers of the fields, in the journal and on the bus.
PAUSE_FIELD: Final = 0
TTL_FIELD: Final = 1  #: a span, as those that follow where nothing else is said
RETRY_FIELD: Final = 2
REPLICATE_FIELD: Final = 3  #: nodes
MAXLEN_FIELD: Final = 4  #: jobs
MAXTRIES_FIELD: Final = 5  #: deliveries
BACKOFF_FIELD: Final = 6  #: the first delay, and perhaps the longest
KEEPDEAD_FIELD: Final = 7
RESULT_FIELD: Final = 8
FAIR_FIELD: Final = 9  #: 1 = fair to the groups of the queue
INFLIGHT_FIELD: Final = 10  #: jobs with consumers at the same time
GROUPINFLIGHT_FIELD: Final = 11  #: the same of each group
RATE_FIELD: Final = 12  #: jobs, a span, jobs at once
GROUPRATE_FIELD: Final = 13  #: jobs of each group, a span, jobs at once
PARTITION_FIELD: Final = 14  #: STRICT or AVAILABLE
IDLE_FIELD: Final = 15  #: the span without jobs, consumers and use after which the queue forgets its policy
THROTTLE_FIELD: Final = 16  #: its end, which is the counter of the register, and the span that was asked for
GROUP_THROTTLE_FIELD: Final = 17  #: the same of a group, whose place has a `throttle_name`
USE_FIELD: Final = 18  #: whether a queue with IDLE is in use: even, or odd, is its counter; the floor of its fields
THROTTLE_FIELDS: Final = (THROTTLE_FIELD, GROUP_THROTTLE_FIELD)
IDLE_FIELDS: Final = (IDLE_FIELD, USE_FIELD)
LIMIT_FIELDS: Final = (INFLIGHT_FIELD, GROUPINFLIGHT_FIELD, RATE_FIELD, GROUPRATE_FIELD, PARTITION_FIELD)
STRICT: Final = 1  #: nothing is given without a majority of the nodes
AVAILABLE: Final = 2  #: each side of a partition gives
GATE_FIELDS: Final = (FAIR_FIELD, *LIMIT_FIELDS, *THROTTLE_FIELDS)  #: those that limit what a queue hands out
# Fields of a schedule, whose place has its name instead of that of a queue.
SCHEDULE_FIELD: Final = 32
SCHEDULE_PAUSE_FIELD: Final = 33  #: 1 = paused
SCHEDULE_FIRED_FIELD: Final = 34  #: its last instant, which is the counter of the register, and its last job
SCHEDULE_REFUSED_FIELD: Final = 35  #: its last refusal, whose wall time is the counter of the register
SCHEDULE_RUN_FIELDS: Final = (SCHEDULE_FIRED_FIELD, SCHEDULE_REFUSED_FIELD)
SCHEDULE_FIELDS: Final = (SCHEDULE_FIELD, SCHEDULE_PAUSE_FIELD, *SCHEDULE_RUN_FIELDS)
THROTTLE_MAX_MS: Final = THROTTLE_MAX_S * 1_000
#: Fields of a queue.
QUEUE_FIELD_NAMES: Final = {
    PAUSE_FIELD: b"pause",
    TTL_FIELD: b"ttl",
    RETRY_FIELD: b"retry",
    REPLICATE_FIELD: b"replicate",
    MAXLEN_FIELD: b"maxlen",
    MAXTRIES_FIELD: b"maxtries",
    BACKOFF_FIELD: b"backoff",
    KEEPDEAD_FIELD: b"keepdead",
    RESULT_FIELD: b"result",
    FAIR_FIELD: b"fair",
    INFLIGHT_FIELD: b"inflight",
    GROUPINFLIGHT_FIELD: b"groupinflight",
    RATE_FIELD: b"rate",
    GROUPRATE_FIELD: b"grouprate",
    PARTITION_FIELD: b"partition",
    IDLE_FIELD: b"idle",
}
#: Fields that a queue forgets when it expires: a queue that is paused is in use.
EXPIRING_FIELDS: Final = frozenset(QUEUE_FIELD_NAMES) - {PAUSE_FIELD}
FIELD_NAMES: Final = {
    **QUEUE_FIELD_NAMES,
    THROTTLE_FIELD: b"throttle",
    GROUP_THROTTLE_FIELD: b"group-throttle",
    USE_FIELD: b"use",
    SCHEDULE_FIELD: b"schedule",
    SCHEDULE_PAUSE_FIELD: b"schedule-pause",
    SCHEDULE_FIRED_FIELD: b"schedule-fired",
    SCHEDULE_REFUSED_FIELD: b"schedule-refused",
}

REASON_MAX: Final = 1_024  #: bytes of the reason of a pause
OWNER_MAX: Final = 1_024  #: bytes of who set it
COUNTER_MAX: Final = 1 << 48  #: of a version; what another node claims beyond that is refused
FORGOTTEN_MS: Final = 7 * 86_400_000  #: how long a register with the empty value is kept
AHEAD_MS: Final = 86_400_000  #: how far ahead another node's last instant or refusal of a schedule may be
POLICY_COST: Final = 420  #: bytes of a register without the name of its queue, its reason and its owner


class PauseSetting(NamedTuple):
    """The value of the field `pause`."""

    bits: int  #: PAUSE_... bits; 0 is the empty value
    reason: bytes  #: printable UTF-8; empty for none
    owner: bytes  #: who set it; printable UTF-8, empty for nobody that is known


#: The value of a field of numbers; none is the empty value.
Numbers = tuple[int, ...]
Value = PauseSetting | Numbers | ScheduleSetting | LastFiring | Refusal


class Register(NamedTuple):
    """A value and its version; of two registers of one field the greater tuple wins.

    Only a node that lost its data can give one version to two values; then time and value decide, the same everywhere.
    """

    counter: int  #: 0 = forgotten, in the journal alone
    node_id: bytes  #: of the node on which it was set
    set_at: int
    value: Value


#: Which register: name of the queue, number of the field.
Place = tuple[bytes, int]
#: A register and its place, as nodes tell each other of it.
Policy = tuple[bytes, int, Register]

NO_PAUSE: Final = PauseSetting(0, b"", b"")
NO_FIRING: Final = LastFiring(b"")


class NumberField(NamedTuple):
    """What a field of numbers may hold."""

    lowest: int
    highest: int  #: of a span: whole seconds, to which a fraction may be added
    most: int = 1  #: numbers
    spans: tuple[int, ...] = ()  #: places of the numbers that are spans

    def allows(self, place: int, number: int) -> bool:
        """Return whether a number may stand there; a span is milliseconds."""
        highest = self.highest * 1_000 + 999 if place in self.spans else self.highest
        return self.lowest <= number <= highest


SPAN_MAX_S: Final = 2**31 - 1  #: seconds
IN_FLIGHT_MAX: Final = 10_000  #: jobs that a limit lets be with consumers; the steward of a queue knows each of them
RATE_MAX: Final = 1_000_000  #: jobs, and seconds
IDLE_MIN_MS: Final = 10_000  #: nodes tell each other of the use of a queue twice in its span
_FIRST: Final = (0,)
#: The bounds are those of the options of ADDJOB that have the same names.
NUMBER_FIELDS: Final = {
    TTL_FIELD: NumberField(1, SPAN_MAX_S, spans=_FIRST),
    RETRY_FIELD: NumberField(0, SPAN_MAX_S, spans=_FIRST),
    REPLICATE_FIELD: NumberField(1, 65_535),
    MAXLEN_FIELD: NumberField(1, 2**63 - 1),
    MAXTRIES_FIELD: NumberField(1, TRIES_MAX),
    BACKOFF_FIELD: NumberField(1, SPAN_MAX_S, most=2, spans=(0, 1)),
    KEEPDEAD_FIELD: NumberField(0, SPAN_MAX_S, spans=_FIRST),
    RESULT_FIELD: NumberField(1, SPAN_MAX_S, spans=_FIRST),
    FAIR_FIELD: NumberField(1, 1),
    INFLIGHT_FIELD: NumberField(1, IN_FLIGHT_MAX),
    GROUPINFLIGHT_FIELD: NumberField(1, IN_FLIGHT_MAX),
    RATE_FIELD: NumberField(1, RATE_MAX, most=3, spans=(1,)),
    GROUPRATE_FIELD: NumberField(1, RATE_MAX, most=3, spans=(1,)),
    PARTITION_FIELD: NumberField(STRICT, AVAILABLE),
    IDLE_FIELD: NumberField(IDLE_MIN_MS, SPAN_MAX_S, spans=_FIRST),
    USE_FIELD: NumberField(0, COUNTER_MAX),
    THROTTLE_FIELD: NumberField(1, THROTTLE_MAX_S, spans=_FIRST),
    GROUP_THROTTLE_FIELD: NumberField(1, THROTTLE_MAX_S, spans=_FIRST),
    SCHEDULE_PAUSE_FIELD: NumberField(1, 1),
}


class Defaults(NamedTuple):
    """What ADDJOB takes for options of a queue that it does not say; None = the queue says nothing.  Spans are ms."""

    ttl: int | None
    retry: int | None
    replicate: int | None
    maxlen: int | None
    max_tries: int | None
    backoff: Numbers | None
    keep_dead: int | None
    keep_result: int | None


NO_DEFAULTS: Final = Defaults(None, None, None, None, None, None, None, None)


def version_of(register: Register) -> tuple[int, bytes, int]:
    """Return the version of a register; of two the greater one wins."""
    return register.counter, register.node_id, register.set_at


def is_empty(value: Value) -> bool:
    """Return whether a value is the empty one of its field."""
    return not value.bits if isinstance(value, PauseSetting) else not value


def empty_value(field: int) -> Value:
    """Return the empty value of a field."""
    return NO_PAUSE if field == PAUSE_FIELD else ()


def size_of(value: Value) -> int:
    """Return the bytes of the texts and numbers of a value."""
    if isinstance(value, PauseSetting):
        return len(value.reason) + len(value.owner)
    if isinstance(value, ScheduleSetting):
        return cost_of_schedule(value)
    if isinstance(value, LastFiring):
        return len(value.job_id) + 8 + 16 * len(value.outcomes)
    return 8 + len(value.error) if isinstance(value, Refusal) else 8 * len(value)


def is_printable(text: bytes) -> bool:
    """Return whether a reason or an owner is printable UTF-8 in one line."""
    try:
        return text.decode().isprintable()
    except UnicodeDecodeError:
        return False


def cost_of_register(queue: bytes, value: Value) -> int:
    """Return the bytes that a register takes."""
    return POLICY_COST + len(queue) + size_of(value)


def queue_of_gate(name: bytes, field: int) -> tuple[bytes, bytes]:
    """Return the queue that a register limits at this place, and the group of it; empty = the whole queue."""
    found = split_throttle_name(name) if field == GROUP_THROTTLE_FIELD else None
    return (name, b"") if found is None else found


class PolicyTable:
    """The registers that a node knows."""

    __slots__ = ("_memory", "defaults", "gates", "idle", "limited", "registers", "schedules", "used")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.registers: dict[Place, Register] = {}  #: for look-ups; only this class changes it
        self.defaults: dict[bytes, Defaults] = {}  #: by queue; likewise
        self.gates: dict[bytes, Gate] = {}  #: by queue, of those that are limited; likewise
        self.limited: dict[bytes, None] = {}  #: queues with limits; likewise
        self.schedules: dict[bytes, ScheduleSetting] = {}  #: by name; likewise
        self.idle: dict[bytes, int] = {}  #: span after which a queue expires, by queue; likewise
        #: When such a queue was used last before it was forgotten, as idle queues are: monotonic milliseconds.
        self.used: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self.registers)

    def pause_of(self, queue: bytes) -> PauseSetting:
        """Return what the cluster says of the pause of a queue."""
        register = self.registers.get((queue, PAUSE_FIELD))
        if register is None or not isinstance(register.value, PauseSetting):
            return NO_PAUSE
        return register.value

    def derive_defaults(self, queue: bytes) -> Defaults:
        """Return the defaults that the registers of a queue say."""
        return Defaults(
            self._number_of(queue, TTL_FIELD), self._number_of(queue, RETRY_FIELD),
            self._number_of(queue, REPLICATE_FIELD), self._number_of(queue, MAXLEN_FIELD),
            self._number_of(queue, MAXTRIES_FIELD), self._numbers_of(queue, BACKOFF_FIELD) or None,
            self._number_of(queue, KEEPDEAD_FIELD), self._number_of(queue, RESULT_FIELD),
        )  # fmt: skip

    def _number_of(self, queue: bytes, field: int) -> int | None:
        numbers = self._numbers_of(queue, field)
        return numbers[0] if numbers else None

    def _numbers_of(self, queue: bytes, field: int) -> Numbers:
        register = self.registers.get((queue, field))
        if register is None or isinstance(register.value, PauseSetting | ScheduleSetting | LastFiring | Refusal):
            return ()
        return register.value

    def is_schedule_paused(self, name: bytes) -> bool:
        """Return whether a schedule is paused."""
        return bool(self._numbers_of(name, SCHEDULE_PAUSE_FIELD))

    def last_job_of(self, name: bytes) -> bytes:
        """Return the id of the last job of a schedule; empty for none."""
        return self.firing_of(name).job_id

    def firing_of(self, name: bytes) -> LastFiring:
        """Return what the cluster says of the last instants of a schedule."""
        register = self.registers.get((name, SCHEDULE_FIRED_FIELD))
        return register.value if register is not None and isinstance(register.value, LastFiring) else NO_FIRING

    def is_outdated(self, name: bytes, field: int, register: Register, wall: int) -> bool:
        """Return whether a register may be forgotten.

        The last instant and refusal of a schedule are known as long as the schedule is.  A schedule of one instant is
        forgotten as one that was deleted at that instant.  A throttle is forgotten when it is over.
        """
        if field in THROTTLE_FIELDS:
            return wall >= register.counter
        if field == USE_FIELD:
            return name not in self.idle and wall - register.set_at > FORGOTTEN_MS
        over_at = register.set_at
        value = register.value
        if field in SCHEDULE_RUN_FIELDS:
            if name in self.schedules:
                return False
        elif isinstance(value, ScheduleSetting):
            if value.kind != AT:
                return False
            over_at = max(over_at, value.number)
        elif not is_empty(value):
            return False
        return wall - over_at > FORGOTTEN_MS

    def _follow(self, queue: bytes, field: int) -> None:
        """Enter the defaults of a queue, or a schedule, of which a field has changed."""
        if field == SCHEDULE_FIELD:
            register = self.registers.get((queue, field))
            if register is not None and isinstance(register.value, ScheduleSetting):
                self.schedules[queue] = register.value
            else:
                self.schedules.pop(queue, None)
        if field in GATE_FIELDS:
            self._follow_gate(queue, field)
            return
        if field in IDLE_FIELDS:
            idle_ms = self._number_of(queue, IDLE_FIELD)
            if idle_ms is None:
                self.idle.pop(queue, None)
                self.used.pop(queue, None)
            else:
                self.idle[queue] = idle_ms
            return
        if field == PAUSE_FIELD or field in SCHEDULE_FIELDS:
            return
        defaults = self.derive_defaults(queue)
        if defaults == NO_DEFAULTS:
            self.defaults.pop(queue, None)
        else:
            self.defaults[queue] = defaults

    def _follow_gate(self, name: bytes, field: int) -> None:
        """Enter what limits a queue, of which a field has changed."""
        register = self.registers.get((name, field))
        queue, group = queue_of_gate(name, field)
        gate = self.gates.get(queue)
        if gate is None:
            gate = self.gates[queue] = Gate()
        end = 0 if register is None else register.counter
        if field in LIMIT_FIELDS:
            gate.limits = self.derive_limits(name)
            if gate.is_limited:
                self.limited[name] = None
            else:
                self.limited.pop(name, None)
        elif field == FAIR_FIELD:
            gate.is_fair = bool(self._numbers_of(name, field))
        elif field == THROTTLE_FIELD:
            gate.until = end
        elif end:
            gate.groups[group] = end
        else:
            gate.groups.pop(group, None)
        if gate.is_open:
            del self.gates[queue]

    def derive_limits(self, queue: bytes) -> Limits:
        """Return the limits that the registers of a queue say."""
        rate, group_rate = self._rate_of(queue, RATE_FIELD), self._rate_of(queue, GROUPRATE_FIELD)
        in_flight, in_group = self._number_of(queue, INFLIGHT_FIELD), self._number_of(queue, GROUPINFLIGHT_FIELD)
        if rate is None and group_rate is None and in_flight is None and in_group is None:
            return NO_LIMITS
        is_available = self._number_of(queue, PARTITION_FIELD) == AVAILABLE
        return Limits(in_flight or 0, in_group or 0, rate, group_rate, is_available)

    def _rate_of(self, queue: bytes, field: int) -> Rate | None:
        numbers = self._numbers_of(queue, field)
        if not numbers:
            return None
        per_ms = numbers[1] if len(numbers) > 1 else 1_000
        return Rate(numbers[0], per_ms, numbers[2] if len(numbers) > 2 else numbers[0])

    def limits_of(self, queue: bytes) -> Limits:
        """Return what the steward of a queue holds it to."""
        gate = self.gates.get(queue)
        return NO_LIMITS if gate is None else gate.limits

    def floor_of(self, queue: bytes) -> int:
        """Return the highest counter of the fields of a queue that have expired; 0 = none has."""
        return self._number_of(queue, USE_FIELD) or 0

    def has_expired(self, queue: bytes, field: int, register: Register) -> bool:
        """Return whether a register is one of those that a queue forgot when it expired."""
        return field in EXPIRING_FIELDS and register.counter <= self.floor_of(queue)

    def succeed(self, queue: bytes, field: int, node_id: bytes, wall: int, value: Value) -> Register:
        """Make the register that comes after those that are known, and that have expired; it is not entered yet."""
        known = self.registers.get((queue, field))
        last = 0 if known is None else known.counter
        if field in EXPIRING_FIELDS:
            last = max(last, self.floor_of(queue))
        return Register(min(last + 1, COUNTER_MAX), node_id, wall, value)

    def merge(self, queue: bytes, field: int, register: Register) -> bool:
        """Keep a register if it says more than the known one; return whether it does."""
        place = (queue, field)
        known = self.registers.get(place)
        if known is not None:
            if isinstance(register.value, LastFiring) and isinstance(known.value, LastFiring):
                latest = max(register, known, key=version_of)
                register = latest._replace(value=joined(known.value, register.value))
                if register == known:
                    return False
            elif register <= known:
                return False
            self._memory.hold(-cost_of_register(queue, known.value))
        self.registers[place] = register
        self._memory.hold(cost_of_register(queue, register.value))
        self._follow(queue, field)
        return True

    def forget(self, queue: bytes, field: int) -> bool:
        """Forget a register; return whether there was one."""
        known = self.registers.pop((queue, field), None)
        if known is None:
            return False
        self._memory.hold(-cost_of_register(queue, known.value))
        self._follow(queue, field)
        return True
