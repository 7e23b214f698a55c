"""What every test relies on: programs hear the signals that they are sent, and no wait is without a limit."""

import signal
import subprocess
import sys

import pytest

from tests import limits
from tests.integration.daemon import environment
from tests.limits import LIMIT
from tests.programs import Program

DEAF = """
import signal
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
"""
CHILD = "import signal; print('ready', flush=True); signal.sigtimedwait([], 1000)"
#: What a run of tests does: it hears for its children, a process that runs tests is one of them, and starts programs.
WORKER = f"""
import os, signal, subprocess, sys
from tests import signals
signals.hear_for_children()
assert os.environ[signals.VARIABLE] == "1 2 3 15 17"
os.kill(os.getpid(), signal.SIGINT)  # it is as deaf as it was
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    child.stdout.readline()
    child.send_signal(number)
    print(child.wait({LIMIT}))
"""


def test_a_run_that_ignores_signals_starts_programs_that_hear_them() -> None:
    run = f"""
{DEAF}
import subprocess, sys
from tests import signals
signals.hear_for_children()
sys.exit(subprocess.run([sys.executable, "-c", {WORKER!r}]).returncode)
"""
    done = subprocess.run(
        [sys.executable, "-c", run], cwd=limits.ROOT, capture_output=True, text=True, timeout=5 * LIMIT, check=False,
        env=environment(),
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()) == (0, ["-1", "-2", "-3", "-15"]), done.stderr


@pytest.mark.parametrize("test", ["test_an_export_leaves_no_file_and_says_how_far_it_got"])
def test_a_test_that_interrupts_a_program_passes_with_sigint_ignored(test: str) -> None:
    pytests = ["-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", f"tests/integration/test_cli_ends.py::{test}"]
    argv = ["sh", "-c", 'trap "" HUP INT; exec "$@"', "sh", sys.executable, *pytests]
    done = subprocess.run(
        argv, cwd=limits.ROOT, capture_output=True, text=True, timeout=5 * LIMIT, check=False, env=environment()
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_program_that_does_not_end_is_killed_with_the_block_that_fails() -> None:
    def fail(program: Program[bytes]) -> None:
        with program:
            raise KeyError

    program = Program(["sleep", "100000"])
    with pytest.raises(KeyError):
        fail(program)
    assert program.returncode == -signal.SIGKILL


def test_every_test_has_a_limit(request: pytest.FixtureRequest) -> None:
    assert request.config._env_timeout == pytest.approx(limits.TEST_LIMIT, abs=1)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("speed", "load", "processors", "times"), [(0.5, 0.0, 8, 1), (3, 1, 2, 3), (1, 30, 2, 15), (2, 8, 4, 4)]
)
def test_limits_grow_with_the_slowness_of_the_machine(speed: float, load: float, processors: int, times: float) -> None:
    assert limits.scaled(speed, load, processors) == times


def test_the_processes_of_a_run_have_the_same_limits() -> None:
    show = "from tests.integration.daemon import LIMIT; print(LIMIT)"
    done = subprocess.run(
        [sys.executable, "-c", show], cwd=limits.ROOT, capture_output=True, text=True, timeout=LIMIT, check=True,
        env={**environment(), limits.VARIABLE: "2.5"},
    )  # fmt: skip
    assert float(done.stdout) == 150
