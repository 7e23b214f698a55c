"""Policies: what operators say of a queue for the whole cluster.

A policy is a set of registers, one for each field, so that two sides of a partition may set different fields and lose
neither.  A register holds a value and its version.  The greater version wins: a merge is a maximum, so that neither
the order of messages nor their number matters.  The first field is the pause of the queue.

    set       version = (highest counter known of this register + 1, id of this node)
    learned   kept and handed on if it is greater than what is known here; else nothing changes
    forgotten a register with the empty value, `FORGOTTEN_MS` after it was set

A register with the empty value (``PAUSE queue none``) is kept for a while: without it an older word of a node that was
away would win again.  A node that was away for longer than that brings its older word back.

Registers outlive their queue, and a flush.  Wall clocks are compared for the forgetting alone.

Times are unix milliseconds.
"""

from typing import Final, NamedTuple

from disqued.core.model.memory import Memory

PAUSE_FIELD: Final = 0  #: number of the field, in the journal and on the bus
FIELD_NAMES: Final = {PAUSE_FIELD: b"pause"}

REASON_MAX: Final = 1_024  #: bytes of the reason of a pause
OWNER_MAX: Final = 1_024  #: bytes of who set it
COUNTER_MAX: Final = 1 << 48  #: of a version; what another node claims beyond that is refused
FORGOTTEN_MS: Final = 7 * 86_400_000  #: how long a register with the empty value is kept
POLICY_COST: Final = 420  #: bytes of a register without the name of its queue, its reason and its owner


class PauseSetting(NamedTuple):
    """The value of the field `pause`."""

    bits: int  #: PAUSE_... bits; 0 is the empty value
    reason: bytes  #: printable UTF-8; empty for none
    owner: bytes  #: who set it; printable UTF-8, empty for nobody that is known


class Register(NamedTuple):
    """A value and its version; of two registers of one field the greater tuple wins.

    Only a node that lost its data can give one version to two values; then time and value decide, the same everywhere.
    """

    counter: int  #: 0 = forgotten, in the journal alone
    node_id: bytes  #: of the node on which it was set
    set_at: int
    value: PauseSetting


#: Which register: name of the queue, number of the field.
Place = tuple[bytes, int]
#: A register and its place, as nodes tell each other of it.
Policy = tuple[bytes, int, Register]

NO_PAUSE: Final = PauseSetting(0, b"", b"")


def is_printable(text: bytes) -> bool:
    """Return whether a reason or an owner is printable UTF-8 in one line."""
    try:
        return text.decode().isprintable()
    except UnicodeDecodeError:
        return False


def is_outdated(register: Register, wall: int) -> bool:
    """Return whether a register may be forgotten."""
    return not register.value.bits and wall - register.set_at > FORGOTTEN_MS


def cost_of_register(queue: bytes, value: PauseSetting) -> int:
    """Return the bytes that a register takes."""
    return POLICY_COST + len(queue) + len(value.reason) + len(value.owner)


class PolicyTable:
    """The registers that a node knows."""

    __slots__ = ("_memory", "registers")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.registers: dict[Place, Register] = {}  #: for look-ups; only this class changes it

    def __len__(self) -> int:
        return len(self.registers)

    def pause_of(self, queue: bytes) -> PauseSetting:
        """Return what the cluster says of the pause of a queue."""
        register = self.registers.get((queue, PAUSE_FIELD))
        return NO_PAUSE if register is None else register.value

    def succeed(self, queue: bytes, field: int, node_id: bytes, wall: int, value: PauseSetting) -> Register:
        """Make the register that comes after the one that is known; it is not entered yet."""
        known = self.registers.get((queue, field))
        counter = 1 if known is None else min(known.counter + 1, COUNTER_MAX)
        return Register(counter, node_id, wall, value)

    def merge(self, queue: bytes, field: int, register: Register) -> bool:
        """Keep a register if it is greater than the known one; return whether it is."""
        place = (queue, field)
        known = self.registers.get(place)
        if known is not None:
            if register <= known:
                return False
            self._memory.hold(-cost_of_register(queue, known.value))
        self.registers[place] = register
        self._memory.hold(cost_of_register(queue, register.value))
        return True

    def forget(self, queue: bytes, field: int) -> bool:
        """Forget a register; return whether there was one."""
        known = self.registers.pop((queue, field), None)
        if known is None:
            return False
        self._memory.hold(-cost_of_register(queue, known.value))
        return True
