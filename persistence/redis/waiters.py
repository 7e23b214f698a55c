"""Who waits for the server to apply a batch."""

from collections.abc import Callable

import attrs
from twisted.internet.defer import Deferred


@attrs.frozen(eq=False)
class _Waiter:
    number: int  #: of the batch
    answer: "Deferred[None]"
    is_patient: bool  #: keeps waiting while the server cannot be reached


class Waiters:
    """Deferreds in the order of their batches."""

    def __init__(self) -> None:
        self._waiting: list[_Waiter] = []

    def wait(self, number: int, *, is_patient: bool = False) -> "Deferred[None]":
        """Return what fires when the server has applied a batch; it fails with StoreFailed."""
        waiter = _Waiter(number, Deferred(), is_patient)
        self._waiting.append(waiter)
        return waiter.answer

    def reached(self, number: int) -> None:
        """The server has applied all batches up to this one."""
        while self._waiting and self._waiting[0].number <= number:
            self._waiting.pop(0).answer.callback(None)

    def fail(self, error: Callable[[], Exception], *, all_of_them: bool) -> None:
        """Fail all who wait, or those who are not patient, each with an error of its own."""
        waiting = self._waiting
        self._waiting = [] if all_of_them else [waiter for waiter in waiting if waiter.is_patient]
        for waiter in waiting:
            if all_of_them or not waiter.is_patient:
                waiter.answer.errback(error())

    def forget(self, answer: "Deferred[None]") -> None:
        """Nobody waits for this one any more."""
        self._waiting = [waiter for waiter in self._waiting if waiter.answer is not answer]
