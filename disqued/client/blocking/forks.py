"""Forks: the child of a process begins anew with the clients that it has, and its parent's connections are not its own.

    before the fork      all clients are at rest: their locks are held
    in the parent        they go on
    in the child         connections are closed, which the nodes do not notice as long as the parent has them too,
                         and new ones are opened when something is asked

Were they left open the death of a live worker would not be noticed before that of all children of its process.
"""

import os
import threading
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    """What is in order before a fork, and after it on both sides."""

    def hold(self) -> None:
        """Change nothing until `release` or `begin_anew`."""

    def release(self) -> None:
        """Go on."""

    def begin_anew(self) -> None:
        """Forget what belongs to the parent."""


_watched: WeakSet[Forked] = WeakSet()
_guard = threading.Lock()
#: Those that are held while a fork is under way.
_held: list[Forked] = []


def watch(one: Forked) -> None:
    """See to something at each fork, as long as it is there."""
    with _guard:
        _watched.add(one)


def _before() -> None:
    _guard.acquire()
    _held.extend(_watched)
    for one in _held:
        one.hold()


def _in_parent() -> None:
    for one in _held:
        one.release()
    _held.clear()
    _guard.release()


def _in_child() -> None:
    for one in _held:
        one.begin_anew()
    _held.clear()
    _guard.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
