"""Waiting for what nodes do by themselves, and showing how far it has come.

    look --> "" --> done
         --> what is missing --> a moment --> look again, until the time is over --> Failed, with what is missing

A bar is drawn on standard error, and only where that is a terminal: what is redirected has no control characters in
it.  What may be ended in the middle only by itself notes Ctrl-C, and looks for it (`interruptible`).

Spans are seconds.
"""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import Final

import attrs

from disqued.tools.connecting import Failed, Interrupted

LOOK_S: Final = 0.1  #: between two looks at a node


@attrs.define
class Bar:
    """How far some work has come."""

    #: How much is done, how much there is (None = unknown), and what else is to be said of it.
    show: Callable[[float, float | None, str], None]


@contextlib.contextmanager
def bar(what: str) -> Iterator[Bar]:
    """Draw a bar for the time of the `with`, if there is a terminal to draw it on."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Bar(lambda done, total, note: None)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"),
               TimeElapsedColumn())  # fmt: skip
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=None, note="")
        yield Bar(lambda done, total, note: progress.update(task, completed=done, total=total, note=note))


@attrs.define
class Interrupt:
    """Whether Ctrl-C was pressed."""

    came: bool = False


@contextlib.contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Let the work within end by itself at Ctrl-C, which is noted; a second one ends it at once."""
    interrupt = Interrupt()

    def note(number: int, frame: object) -> None:
        interrupt.came = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)


def wait_until(look: Callable[[], str], limit_s: float, what: str) -> None:
    """Look again and again until there is nothing left to wait for.

    `look` tells what is missing, or "".  Raises Failed with its last word after the time, Interrupted at Ctrl-C.
    """
    end = time.monotonic() + limit_s
    missing = "nobody has looked yet"
    try:
        while missing := look():
            if time.monotonic() >= end:
                raise Failed(f"{what}: not so after {limit_s:g} s (--wait): {missing}")
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted: {what}: not so yet: {missing}") from None
