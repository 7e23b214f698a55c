"""Followers: what other nodes remember of the slots that a steward has given.

    slots taken, slots ended --note--> change 7 --SLOTS_KEEP(after 6, number 7)--> every other node
                                       change 7 <--SLOTS_KEPT(number 7)----------- it has all up to that

A node that lacks changes which are not in the log any more, or all of them, receives all slots instead.  Changes that
are not confirmed within `ANSWER_MS` are sent again.

Times are integer milliseconds of the monotonic clock; spans travel.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from disqued.core.model.messages import SLOTS_KEEP, Message, SlotSpan
from disqued.core.model.peers import Peers
from disqued.core.model.slots import Slot, SlotTable
from disqued.core.model.state import State

ANSWER_MS: Final = 500  #: how long an answer is waited for before the same is said again
LOG_MAX: Final = 1_000


class Change(NamedTuple):
    """What became of slots at a time."""

    number: int
    taken: tuple[Slot, ...]
    ended: tuple[bytes, ...]


class Follower:
    """How much of the changes another node has."""

    __slots__ = ("asked_at", "kept", "told")

    def __init__(self) -> None:
        self.kept: int = 0  #: number of the last change that it remembers; 0 = nothing
        self.told: int = 0  #: number of the last change that it was told
        self.asked_at: int = 0  #: when it was told something that it has not confirmed; 0 = it has


class Followers:
    """The changes of one steward, and the nodes that are to remember them."""

    __slots__ = ("_by_id", "_log", "changed", "number")

    def __init__(self) -> None:
        self._by_id: dict[bytes, Follower] = {}
        self._log: list[Change] = []
        self.number: int = 1  #: of the last change; the first one is all that the steward began with
        self.changed: dict[bytes, Slot | None] = {}  #: since the last change, by job; None = its slot has ended

    def note(self) -> None:
        """Make a change of what has happened since the last one."""
        if not self.changed:
            return
        self.number += 1
        taken = tuple([slot for slot in self.changed.values() if slot is not None])
        ended = tuple([job_id for job_id, slot in self.changed.items() if slot is None])
        self._log.append(Change(self.number, taken, ended))
        self.changed.clear()
        if len(self._log) > LOG_MAX:
            del self._log[: LOG_MAX // 2]

    def tell(self, state: State, name: bytes, counter: int, table: SlotTable) -> None:
        """Tell each node the changes that it lacks."""
        told: dict[int, Message] = {}  # by number: a message that goes to several nodes is encoded once
        for node_id in state.peers.linked:
            follower = self._by_id.setdefault(node_id, Follower())
            is_silent = follower.asked_at and state.now - follower.asked_at >= ANSWER_MS
            if is_silent:
                follower.told = follower.kept
            if follower.told == self.number:
                continue
            if not follower.asked_at or is_silent:
                follower.asked_at = state.now
            if not follower.told or self._log[0].number > follower.told + 1:
                slots = spans_of(table.by_id.values(), state.now)
                state.send(node_id, (SLOTS_KEEP, name, counter, 0, self.number, slots, ()))
            else:
                for change in self._log[follower.told + 1 - self._log[0].number :]:
                    number = change.number
                    if number not in told:
                        taken = spans_of(change.taken, state.now)
                        told[number] = (SLOTS_KEEP, name, counter, number - 1, number, taken, change.ended)
                    state.send(node_id, told[number])
            follower.told = self.number

    def kept(self, node_id: bytes, number: int, now: int) -> None:
        """Hear up to which change a node remembers; 0 = it has to be told all."""
        follower = self._by_id.setdefault(node_id, Follower())
        follower.kept = max(follower.kept, number) if number else 0
        follower.told = max(follower.told, follower.kept) if number else 0
        follower.asked_at = 0 if not number or follower.kept >= self.number else now

    def forget(self, node_id: bytes) -> None:
        """Take it that a node remembers nothing, and has to be told all."""
        self._by_id.pop(node_id, None)

    def known_to_most(self, peers: Peers) -> int:
        """Return the number of the last change that a majority remembers, this node among them."""
        others = peers.majority - 1
        if not others:
            return self.number
        kept = sorted((each.kept for node_id, each in self._by_id.items() if node_id in peers.by_id), reverse=True)
        return kept[others - 1] if len(kept) >= others else 0

    def awaits_one(self, peers: Peers) -> bool:
        """Return whether a node that can be reached has something to confirm, or to be told."""
        return any(
            each.asked_at or each.told != self.number
            for node_id, each in self._by_id.items()
            if node_id in peers.linked
        )


def spans_of(slots: Iterable[Slot], now: int) -> tuple[SlotSpan, ...]:
    """Say of slots how long they last from now on."""
    spans = [
        SlotSpan(slot.job_id, slot.group, slot.node_id, slot.boot, max(0, slot.until - now), slot.client)
        for slot in slots
    ]
    return tuple(spans)
