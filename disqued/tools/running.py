"""What the verbs that work on stores share: the options that name one, and the event loop that stores need.

    command --store_options--> settings --> run --> work(reactor) --> exit status

A store may answer with Deferreds, so a tool's work is a coroutine.  Whatever takes long goes through `steps`, which
lets the loop turn: that is when an interrupt is heard, and the work is then ended as an error would end it.

Which store holds the jobs of a data folder is written there in `store.conf` (`switching`), and may be another one
than the configuration names.  A tool that writes keeps the folder's lock, as a node does.

Exit status: 0 done; 1 not done, for the reason on standard error; 2 asked for something that there is not.
"""

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from disqued.config import Config, ConfigError
from disqued.net.cluster.identity import IdentityError, lock_folder
from disqued.net.process.stopsignals import StopSignals
from disqued.net.process.switching import STORE_FILE, StoreMarker
from disqued.persistence.interface import IStoreFactory, StoreError
from disqued.persistence.plugins import find_store
from disqued.tools.program import FAILED, INTERRUPTED, MISUSED, end_echo
from disqued.tools.progress import Advance, ignore
from disqued.tools.values import options

STEPS_PER_TURN: Final = 2_000

T = TypeVar("T")


class ToolError(Exception):
    """A tool cannot do what it was asked for; the text is what its user reads."""

    def __init__(self, text: str, status: int = FAILED) -> None:
        super().__init__(text)
        self.status = status  #: exit status


#: Gives a verb the options that name a store: `config`, `persistence` and `dir`, which `settings` takes.
store_options: Final = options(
    click.option(
        "--config", metavar="FILE", type=click.Path(), help="Configuration file of the node whose store is meant."
    ),
    click.option("--persistence", metavar="NAME", help="Kind of store: aof, sqlite, redis or a plugin's."),
    click.option("--dir", metavar="FOLDER", type=click.Path(file_okay=False), help="Folder that its files lie in."),
)


def settings(config: str | None, persistence: str | None, dir: str | None) -> Config:  # noqa: A002 - the option's name
    """The settings that the options of `store_options` lead to.  Raises ToolError."""
    given = [(name, text) for name, text in (("persistence", persistence), ("dir", dir)) if text is not None]
    try:
        made = Config() if config is None else Config.from_file(config)
        made.apply_arguments(given)
    except ConfigError as error:
        raise ToolError(str(error), MISUSED) from None
    return made


def store_of(config: Config) -> IStoreFactory:
    """The kind of store that the settings mean, which has to be one that keeps something.  Raises ToolError."""
    if config.persistence == "none":
        raise ToolError(
            "`persistence` is none, so that there is no store; name one with --persistence, or the file that does"
            " with --config", MISUSED,
        )  # fmt: skip
    try:
        return find_store(config.persistence)
    except StoreError as error:
        raise ToolError(str(error), MISUSED) from None


def held_store(config: Config) -> str | None:
    """The name of the store that holds the jobs of the data folder; None when nothing says it.  Raises StoreError."""
    name = StoreMarker(config.dir).read()
    if name == "none":
        raise StoreError(
            f"{config.dir / STORE_FILE}: `none` holds no jobs; remove the file to use what the configuration names"
        )
    return name


def store_to_read(tool: str, config: Config, *, chosen: bool) -> IStoreFactory:
    """The kind of store that holds the jobs, or the configured one if it was `chosen` by the user.

    Tells the user when these are not the same.  Raises ToolError, StoreError.
    """
    held, named = held_store(config), config.persistence
    if held is None or held == named:
        return store_of(config)
    if chosen:
        factory = store_of(config)
        what = f"--persistence asks for {named}, which is read instead"
    else:
        try:
            factory = find_store(held)
        except StoreError as error:
            raise StoreError(f"{config.dir / STORE_FILE}: {error}") from None
        what = f"it is read, although `persistence` is {named}"
    complain(tool, f"the jobs of {config.dir} are in the store {held} ({STORE_FILE}); {what}")
    return factory


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Keep nodes, and tools that write, out of a data folder.  Raises ToolError."""
    try:
        descriptor = lock_folder(folder)
    except IdentityError as error:
        raise ToolError(f"{error}; end it first") from None
    try:
        yield
    finally:
        os.close(descriptor)


def complain(tool: str, text: str) -> None:
    """Tell the user what is wrong."""
    sys.stderr.write(f"disqued {tool}: {text}\n")


async def settled(answer: "Deferred[T] | T") -> T:
    """What a store answers, now or later."""
    return await answer if isinstance(answer, Deferred) else answer


async def steps(reactor: IReactorTime, items: "Iterable[T | Deferred[None]]") -> AsyncIterator[T]:
    """Draw items, wait for the Deferreds among them, and let the loop turn now and then."""
    for count, item in enumerate(items, 1):
        if isinstance(item, Deferred):
            await item
        else:
            yield item
        if not count % STEPS_PER_TURN:
            await deferLater(reactor, 0)


def run(tool: str, work: Callable[[Any], Coroutine["Deferred[Any]", Any, int]]) -> int:
    """Run a tool's work on the event loop of this process, to its end; returns the exit status.

    At Ctrl-C the work is cancelled, and has its time to let go of everything; at another one it is left there.
    """
    from twisted.internet import reactor

    outcome: list[int | Failure] = []
    stopping: list[bool] = []

    def begin() -> None:
        task = Deferred.fromCoroutine(work(reactor))
        reactor.addSystemEventTrigger("before", "shutdown", give_up, task)
        task.addBoth(end)

    def end(result: int | Failure) -> None:
        outcome.append(result)
        if not stopping:
            reactor.stop()

    def give_up(task: "Deferred[Any]") -> "Deferred[Any]":
        """Let the work go of everything before the loop ends; unless it is done, a signal has come."""
        signals.stopping()
        stopping.append(True)
        task.cancel()
        return task

    signals = StopSignals(reactor, reactor.crash)
    signals.follow()
    reactor.callWhenRunning(begin)
    reactor.run()
    return _status(tool, outcome[0]) if outcome else INTERRUPTED


def _status(tool: str, outcome: int | Failure) -> int:
    """The exit status of what came out; what was foreseen is told in one line, and a bug with its traceback."""
    if not isinstance(outcome, Failure):
        return outcome
    if isinstance(outcome.value, CancelledError):
        return INTERRUPTED
    try:
        outcome.raiseException()
    except ToolError as error:
        if error.status == INTERRUPTED:
            end_echo()
        complain(tool, str(error))
        return error.status
    except StoreError as error:
        complain(tool, str(error))
        return FAILED
    except OSError as error:
        complain(tool, f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror))
        return FAILED


def chunks(path: Path, size: int | None = None, advance: Advance = ignore) -> Iterable[bytes]:
    """The first `size` bytes of a file, or all of them, a mebibyte at a time, each told to a meter.  Raises OSError."""
    with path.open("rb") as file:
        left = size
        while left is None or left > 0:
            chunk = file.read(1 << 20 if left is None else min(1 << 20, left))
            if not chunk:
                return
            if left is not None:
                left -= len(chunk)
            yield chunk
            advance(len(chunk))
