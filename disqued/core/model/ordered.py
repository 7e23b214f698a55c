"""Units in order, oldest first: sorted blocks of bounded length.

Nearly all units arrive at the end and leave at the front; a unit that is queued again goes back to its age, so it may
land anywhere.  Both ends cost the same however many units there are, the middle costs a search over the blocks.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from disqued.core.model.job import Unit

BLOCK: Final = 512  #: units in a block at most

place_of = attrgetter("order_key", "id")  #: where a unit stands


class OrderedUnits:
    """Units sorted by (order_key, id), no two the same."""

    __slots__ = ("_blocks", "_length")

    def __init__(self, units: "OrderedUnits | None" = None) -> None:
        """Begin empty, or take over the units of another one, which is not to be used again."""
        #: Sorted lists; none is empty, and all of one comes before all of the next.
        self._blocks: list[list[Unit]] = [] if units is None else units._blocks
        self._length: int = 0 if units is None else units._length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Unit]:
        for block in self._blocks:
            yield from block

    def __reversed__(self) -> Iterator[Unit]:
        for block in reversed(self._blocks):
            yield from reversed(block)

    def listed(self) -> list[Unit]:
        """All units in order, as they are now."""
        units: list[Unit] = []
        for block in self._blocks:
            units += block
        return units

    def slice(self, start: int, end: int) -> list[Unit]:
        """The units from one place in the order to another: O(blocks), and what is answered."""
        units: list[Unit] = []
        for block in self._blocks:
            if end <= 0:
                break
            if start < len(block):
                units += block[max(0, start) : end]
            start -= len(block)
            end -= len(block)
        return units

    def push(self, unit: Unit) -> None:
        """Put a unit in its place."""
        blocks = self._blocks
        if not blocks:
            blocks.append([unit])
        else:
            last = blocks[-1]
            if unit.order_key > last[-1].order_key:
                if len(last) < BLOCK:
                    last.append(unit)
                else:
                    blocks.append([unit])
            else:
                self._insert(unit)
        self._length += 1

    @property
    def ready_count(self) -> int:
        """Units that `pop_first` could take, one after the other."""
        return self._length

    def pop_first(self) -> Unit:
        """Take the next unit, which is the oldest; the queue must not be empty."""
        first = self._blocks[0]
        unit = first.pop(0)
        if not first:
            del self._blocks[0]
        self._length -= 1
        return unit

    @property
    def head(self) -> Unit:
        """The unit that `pop_first` would take; there must be one."""
        return self._blocks[0][0]

    def pop_oldest(self) -> Unit:
        """Take the oldest unit, whatever is to be handed out next; the queue must not be empty."""
        return self.pop_first()

    @property
    def first(self) -> Unit:
        """The oldest unit; the queue must not be empty."""
        return self._blocks[0][0]

    def after(self, place: tuple[int, bytes]) -> Iterator[Unit]:
        """The units behind a place, in order; not to be gone on with once a unit has come or gone."""
        blocks = self._blocks
        if not blocks:
            return
        number = self._block_of(place)
        block = blocks[number]
        for at in range(bisect_right(block, place, key=place_of), len(block)):
            yield block[at]
        for later in range(number + 1, len(blocks)):
            yield from blocks[later]

    def count_before(self, place: tuple[int, bytes]) -> int:
        """Count the units in front of a place: O(blocks)."""
        if not self._blocks:
            return 0
        number = self._block_of(place)
        return sum(map(len, self._blocks[:number])) + bisect_left(self._blocks[number], place, key=place_of)

    def release(self) -> Iterator[int]:
        """Let go of all units, bit by bit; yields how many each bit was.  Not to be used again."""
        while self._blocks:
            yield len(self._blocks.pop())

    def remove(self, unit: Unit) -> None:
        """Take out a unit.  Raises KeyError when it is not in here."""
        if not self._blocks:
            raise KeyError(unit.id)
        if self._blocks[0][0] is unit:
            OrderedUnits.pop_first(self)
            return
        place = place_of(unit)
        number = self._block_of(place)
        block = self._blocks[number]
        index = bisect_left(block, place, key=place_of)
        if index == len(block) or block[index] is not unit:
            raise KeyError(unit.id)
        del block[index]
        if not block:
            del self._blocks[number]
        self._length -= 1

    def _block_of(self, place: tuple[int, bytes]) -> int:
        """Find the first block whose last unit does not come before the place, or the last block."""
        number = bisect_left(self._blocks, place, key=lambda block: place_of(block[-1]))
        return min(number, len(self._blocks) - 1)

    def _insert(self, unit: Unit) -> None:
        place = place_of(unit)
        number = self._block_of(place)
        block = self._blocks[number]
        block.insert(bisect_left(block, place, key=place_of), unit)
        if len(block) > BLOCK:
            self._blocks.insert(number + 1, block[BLOCK // 2 :])
            del block[BLOCK // 2 :]
