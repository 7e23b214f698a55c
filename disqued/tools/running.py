"""What the tools share: their arguments, the store they mean, and the event loop that stores need.

    main(arguments) --> Arguments.parse_args --> run --> work(reactor) --> exit status

A store may answer with Deferreds, so a tool's work is a coroutine.  Whatever takes long goes through `steps`, which
lets the loop turn: that is when an interrupt is heard, and the work is then ended as an error would end it.

Which store holds the jobs of a data folder is written there in `store.conf` (`net.switching`), and may be another one
than the configuration names.  A tool that writes keeps the folder's lock, as a node does.

Exit status: 0 done; 1 not done, for the reason on standard error; 2 asked for something that there is not.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from disqued.config import Config, ConfigError
from disqued.net.identity import IdentityError, lock_folder
from disqued.net.switching import STORE_FILE, StoreWord
from disqued.persistence.interface import IStoreFactory, StoreError
from disqued.persistence.plugins import find_store

DONE: Final = 0
FAILED: Final = 1
MISUSED: Final = 2
INTERRUPTED: Final = 130  #: 128 and the number of the signal, as a shell tells it

STEPS_PER_TURN: Final = 2_000


T = TypeVar("T")


class ToolError(Exception):
    """A tool cannot do what it was asked for; the text is what its user reads."""

    def __init__(self, text: str, status: int = FAILED) -> None:
        super().__init__(text)
        self.status = status  #: exit status


class Arguments(argparse.ArgumentParser):
    """The arguments of one tool; what is wrong with them is told in one line."""

    def __init__(self, tool: str, description: str) -> None:
        super().__init__(
            f"disqued {tool}", description=description, allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip

    def add_store(self) -> None:
        """Add the options that name a store."""
        self.add_argument("--config", metavar="FILE", help="configuration file of the node whose store is meant")
        self.add_argument("--persistence", metavar="NAME", help="kind of store: aof, sqlite, redis or a plugin's")
        self.add_argument("--dir", metavar="FOLDER", help="folder that its files lie in")

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and what is allowed, and end the process."""
        options = sorted({option for action in self._actions for option in action.option_strings})
        sys.stderr.write(f"{self.prog}: {message}; options are {', '.join(options)}\n")
        raise SystemExit(MISUSED)


def settings(options: argparse.Namespace) -> Config:
    """The settings that the options of `Arguments.add_store` lead to.  Raises ToolError."""
    given = [(name, getattr(options, name)) for name in ("persistence", "dir") if getattr(options, name) is not None]
    try:
        config = Config() if options.config is None else Config.from_file(options.config)
        config.apply_arguments(given)
    except ConfigError as error:
        raise ToolError(str(error), MISUSED) from None
    return config


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
    name = StoreWord(config.dir).read()
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
    """Run a tool's work on the event loop of this process, to its end; returns the exit status."""
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
        stopping.append(True)
        task.cancel()
        return task

    reactor.callWhenRunning(begin)
    reactor.run()
    return _status(tool, outcome[0])


def _status(tool: str, outcome: int | Failure) -> int:
    """The exit status of what came out; what was foreseen is told in one line, and a bug with its traceback."""
    if not isinstance(outcome, Failure):
        return outcome
    if isinstance(outcome.value, CancelledError):
        return INTERRUPTED
    try:
        outcome.raiseException()
    except ToolError as error:
        complain(tool, str(error))
        return error.status
    except StoreError as error:
        complain(tool, str(error))
        return FAILED
    except OSError as error:
        complain(tool, f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror))
        return FAILED


def chunks(path: Path, size: int | None = None) -> Iterable[bytes]:
    """The first `size` bytes of a file, or all of them, a mebibyte at a time.  Raises OSError."""
    with path.open("rb") as file:
        left = size
        while left is None or left > 0:
            chunk = file.read(1 << 20 if left is None else min(1 << 20, left))
            if not chunk:
                return
            if left is not None:
                left -= len(chunk)
            yield chunk
