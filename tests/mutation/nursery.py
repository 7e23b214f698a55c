"""A pytest process that collects the tests once and forks a child for each mutant.

A child has imported every module.  It takes over the mutant and runs the chosen tests until one fails; its changes to
the process end with it.  A mutant that takes effect at import needs a nursery of its own, which imports it.

This module is both sides: `Nursery` starts the process and talks to it, the hooks are the plugin inside.
"""

import contextlib
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Any

import attrs
import coverage
import hypothesis
import pytest
import pytest_twisted
from twisted.internet.defer import Deferred

from . import grafting
from .operators import Mutant

_WAY = "DISQUED_NURSERY"
_MEMORY = 6 << 30  #: bytes of a child, as a mutant may ask for any number of them
_START_S = 300.0  #: for imports and collection on a busy machine


@attrs.frozen
class Reached:
    """What one test executes, without any mutant."""

    test: str
    seconds: float
    passed: bool
    lines: dict[str, tuple[int, ...]]  #: by the file's path below the root


@attrs.frozen
class Outcome:
    """What became of a mutant: `killer` is None if all tests passed."""

    killer: str | None
    how: str  #: failed, hung, died, or what keeps it from being tried here
    ran: int
    seconds: float


class Nursery:
    """Starts the process, and tries mutants in children of it."""

    def __init__(
        self,
        places: Sequence[str],
        mutant: Mutant | None = None,
        traces: bool = False,
    ) -> None:
        self._folder = tempfile.mkdtemp(prefix="mutants-")
        ours, theirs = Pipe()
        self._way = ours
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.mutation.nursery",
            "-p",
            "no:cacheprovider",
            "-q",
            "-s",
            "--tb=no",
        ]
        command += ["--basetemp", os.path.join(self._folder, "t"), *places]
        environment = os.environ | {_WAY: f"{theirs.fileno()},{pickle.dumps((mutant, traces)).hex()}"}
        self._process = subprocess.Popen(
            command, cwd=grafting.ROOT, env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        #: The tests by name, in the order of pytest; none, if the process does not come so far.
        self.tests: list[str] = []
        #: With `traces`: what ran before the first test, by path.
        self.imported: dict[str, set[int]] = {}
        with contextlib.suppress(EOFError, ConnectionError):
            if self._way.poll(_START_S):
                self.tests, self.imported = self._way.recv()

    def reach(self, tests: Sequence[str], limit: float) -> list[Reached]:
        """Run tests for at most `limit` seconds, and say what each of them executed."""
        return self._ask(("reach", list(tests), limit))

    def attempt(self, mutant: Mutant | None, tests: Sequence[tuple[str, float]], limit: float) -> Outcome:
        """Run tests with a mutant until one fails.  Each has a limit of its own, in seconds."""
        return self._ask(("attempt", mutant, list(tests), limit))

    def _ask(self, question: tuple[Any, ...]) -> Any:
        self._way.send(question)
        return self._way.recv()

    def close(self) -> None:
        self._way.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


# ---- the process


def _way() -> tuple[Connection, Mutant | None, bool] | None:
    if _WAY not in os.environ:
        return None
    number, _, planted = os.environ.pop(_WAY).partition(",")
    os.set_inheritable(int(number), False)
    return Connection(int(number)), *pickle.loads(bytes.fromhex(planted))


def _tracer() -> coverage.Coverage:
    return coverage.Coverage(
        data_file=None, branch=False, config_file=False, concurrency=["greenlet", "thread"],
        include=[f"{grafting.ROOT}/*"], omit=[f"{grafting.ROOT}/tests/*", f"{grafting.ROOT}/.venv/*"],
    )  # fmt: skip


def _executed(tracer: coverage.Coverage) -> dict[str, tuple[int, ...]]:
    """Take the lines that were executed since the last call, by path.

    The sets of the tracer itself: its public way to tell contexts apart costs several times what a test does.
    """
    data = tracer._collector.data  # type: ignore[union-attr]
    lines = {grafting.below_root(path): tuple(sorted(numbers)) for path, numbers in data.items() if numbers}
    data.clear()
    return lines


_opened = _way()
_imports = _tracer()
if _opened is not None:
    if _opened[2]:
        _imports.start()
    if _opened[1] is not None:
        grafting.at_import(_opened[1])


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Let no property look for a smaller example of a failure."""
    if _opened is not None:
        phases = [phase for phase in hypothesis.Phase if phase.name in {"explicit", "reuse", "generate"}]
        hypothesis.settings.register_profile("mutants", hypothesis.settings(), phases=phases)
        hypothesis.settings.load_profile("mutants")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Answer questions in the place of running what was collected."""
    if _opened is None:
        return None
    if session.testsfailed:  # a module of tests could not be imported
        return True
    way = _opened[0]
    items = {item.nodeid: item for item in session.items}
    there: dict[str, Any] = {}
    imported: dict[str, set[int]] = {}
    if _opened[2]:
        _imports.stop()
        imported = {path: set(lines) for path, lines in _executed(_imports).items()}
    if _opened[1] is None:
        there = grafting.functions()
    way.send((list(items), imported))
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            what, *rest = way.recv()
            if what == "reach":
                tests, limit = rest
                way.send(_reach([items[name] for name in tests], limit))
            else:
                mutant, chosen, limit = rest
                tests = [(items[name], seconds) for name, seconds in chosen if name in items]
                way.send(_attempt(mutant, there, tests, limit))
            _tidy(session.config)
    return True


def _tidy(config: pytest.Config) -> None:
    """Remove what children left in the folder for temporary files."""
    for name in os.listdir(base := config.option.basetemp) if os.path.isdir(config.option.basetemp) else ():
        shutil.rmtree(os.path.join(base, name), ignore_errors=True)


class _Child:
    """A forked process that runs tests and tells what became of each."""

    def __init__(self, work: Any) -> None:
        self.way, theirs = Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setpgid(0, 0)
                resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
                work(theirs.send)
            finally:
                os._exit(0)
        theirs.close()

    def next(self, seconds: float) -> Any:
        """Wait for what the child says.  Raises TimeoutError, and EOFError if it is gone."""
        if not self.way.poll(max(0.0, seconds)):
            raise TimeoutError
        return self.way.recv()

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.way.close()


def _run(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Run a test as pytest does, and say whether it passed or was skipped."""
    watch = _Watch()
    item.config.pluginmanager.register(watch)
    try:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    finally:
        item.config.pluginmanager.unregister(watch)
    return not watch.failed


class _Watch:
    failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed


def _attempt(
    mutant: Mutant | None, there: dict[str, Any], tests: list[tuple[pytest.Item, float]], limit: float
) -> Outcome:
    began = time.monotonic()

    def work(say: Any) -> None:
        if mutant is not None and not grafting.in_place(mutant, there):
            say("import")
            return
        say(True)
        for turn, (item, _) in enumerate(tests):
            following = tests[turn + 1][0] if turn + 1 < len(tests) else None
            passed = _run(item, following)
            say(passed)
            if not passed:
                return

    child = _Child(work)
    ran = 0
    try:
        if child.next(60) == "import":
            return Outcome(None, "import", 0, 0.0)
        for item, seconds in tests:
            left = began + limit - time.monotonic()
            try:
                passed = child.next(min(seconds, left))
            except TimeoutError:
                if left <= seconds:
                    return Outcome(None, "limit", ran, time.monotonic() - began)
                return Outcome(item.nodeid, "hung", ran + 1, time.monotonic() - began)
            except EOFError:
                return Outcome(item.nodeid, "died", ran + 1, time.monotonic() - began)
            ran += 1
            if not passed:
                return Outcome(item.nodeid, "failed", ran, time.monotonic() - began)
        return Outcome(None, "passed", ran, time.monotonic() - began)
    finally:
        child.end()


def _reach(tests: list[pytest.Item], limit: float) -> list[Reached]:
    from twisted.internet import reactor

    began = time.monotonic()

    def work(say: Any) -> None:
        tracer = _tracer()
        tracer.start()
        # The reactor has a greenlet of its own, which began before and is traced from the next step on.
        stepped: Deferred[None] = Deferred()
        reactor.callLater(0, lambda: (sys.settrace(sys.gettrace()), stepped.callback(None)))
        pytest_twisted.blockon(stepped)
        for turn, item in enumerate(tests):
            started = time.monotonic()
            passed = _run(item, tests[turn + 1] if turn + 1 < len(tests) else None)
            say(Reached(item.nodeid, time.monotonic() - started, passed, _executed(tracer)))

    child = _Child(work)
    found: list[Reached] = []
    try:
        while len(found) < len(tests):
            found.append(child.next(began + limit - time.monotonic()))
    except (TimeoutError, EOFError):
        pass
    finally:
        child.end()
    return found
