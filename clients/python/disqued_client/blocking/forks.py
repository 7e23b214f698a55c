"""Forks: a child process opens its own connections for its clients, and leaves those of its parent alone.

    before the fork      all clients are at rest: their locks are held
    in the parent        they go on
    in the child         connections are closed, which nodes do not notice while the parent has them too,
                         and new ones are opened for the next command

If they stayed open, nodes would notice the death of a live worker only after all children of its process had ended.
"""

import os
import threading
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    """An object that must be consistent across a fork."""

    def hold(self) -> None:
        """Change nothing until `release` or `begin_anew`."""

    def release(self) -> None:
        """Go on."""

    def begin_anew(self) -> None:
        """Forget the resources of the parent, and start again."""


_watched: WeakSet[Forked] = WeakSet()
_guard = threading.Lock()
#: The objects held while a fork is under way.
_held: list[Forked] = []


def watch(one: Forked) -> None:
    """Handle an object at each fork, as long as it exists."""
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
