"""Work a command, counted: function calls and bytecode instructions, where seconds would measure the machine.

``python -m benchmarks.work`` prints them for the interpreter that runs it, as the table of
tests/adapters/test_work_per_command.py has them.

    chunk of ADDJOB, GETJOB or ACKJOB --dataReceived--> ... the whole path inside the process ... --> write
                                      \\__ sys.setprofile: each call, of Python and of C functions _/
                                       \\_ sys.settrace: each instruction of the interpreter ______/

The node is the one of `benchmarks.profile`, without sockets.  Time goes on by one millisecond each time that a clock is
read, ids come from a seed, and the first commands, which wake what rests and fill what is cached, are not counted: so
the same code gives the same counts on every machine, however busy, in every run.  Only another minor version of
CPython gives others, as it compiles the same source to other instructions.

What C functions do inside is not seen, and a cache that is missed costs nothing here: a change that leaves these counts
alone may still be slower.  For that there is `python -m benchmarks`.

The counts are those of the reference build, in which everything of disqued is Python.
"""

import gc
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count as ticks
from itertools import repeat
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any
from unittest import mock

import attrs

from benchmarks.profile import SUBJECTS, Bed, Subject
from disqued.net import clients, clock
from disqued.testing.clock import WALL_MS

PIPELINES = (1, 16)
WARMING = 512  #: commands before those that are counted
COUNTED = 512  #: a multiple of what blocks and tables grow by, so that their growth is spread evenly
_MS = 1_000_000  #: nanoseconds


@attrs.frozen
class Work:
    """What one command takes, on average."""

    calls: float  #: of functions, those of C included
    instructions: float  #: of bytecode


def compiled_modules() -> list[str]:
    """Modules of disqued that are not Python here: what they do cannot be counted."""
    return sorted(
        name
        for name, module in sys.modules.items()
        if name.partition(".")[0] == "disqued" and not (getattr(module, "__file__", None) or ".py").endswith(".py")
    )


@contextmanager
def even_time() -> Iterator[None]:
    """Within this, a clock that is read goes on by a millisecond, and no command takes any time.

    What stands for the functions of `time` are C functions as well.
    """
    steady = SimpleNamespace(
        monotonic_ns=ticks(_MS, _MS).__next__,
        time_ns=ticks(WALL_MS * _MS, _MS).__next__,
    )
    with mock.patch.object(clock, "time", steady), mock.patch.object(clients, "perf_counter", repeat(0.0).__next__):
        yield


def measure(subject: Subject, folder: Path, pipeline: int, others: int = 0) -> Work:
    """Count what a command takes that comes with others in chunks of `pipeline`.

    `others`: jobs that lie in the node meanwhile, each in a queue of its own.
    """
    calls, instructions = (_count(subject, folder, pipeline, others, counter) for counter in (_calls, _instructions))
    return Work(calls, instructions)


Counter = Callable[[Callable[[bytes], None], list[bytes]], int]  #: counts what it takes to receive chunks


def _count(subject: Subject, folder: Path, pipeline: int, others: int, counter: Counter) -> float:
    with even_time():
        bed = Bed.make(folder)
        bed.add_elsewhere(others)
        commands = subject.prepare(bed, WARMING + COUNTED)
        chunks = [b"".join(commands[at : at + pipeline]) for at in range(0, len(commands), pipeline)]
        first = WARMING // pipeline
        receive = bed.client.dataReceived
        for chunk in chunks[:first]:
            receive(chunk)
        gc.collect()
        gc.disable()  # nobody's finalizer is counted
        try:
            return counter(receive, chunks[first:]) / COUNTED
        finally:
            gc.enable()


def _calls(receive: Callable[[bytes], None], chunks: list[bytes]) -> int:
    """Count the functions that are called."""
    found = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal found
        if event in ("call", "c_call"):
            found += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for chunk in chunks:
            receive(chunk)
    finally:
        sys.setprofile(before)
    return found - 1  # the call that ended it


def _instructions(receive: Callable[[bytes], None], chunks: list[bytes]) -> int:
    """Count the instructions of every function that is called."""
    found = 0

    def note(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal found
        if event == "opcode":
            found += 1
        elif event == "call":
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        return note

    before = sys.gettrace()
    # CPython 3.12 looks for instructions only if a frame has asked for them before the trace begins.
    sys._getframe().f_trace_opcodes = True
    sys.settrace(note)
    try:
        for chunk in chunks:
            receive(chunk)
    finally:
        sys.settrace(before)
    return found


def main() -> int:
    """Print the counts as rows of the table."""
    if compiled := compiled_modules():
        print(f"these modules are compiled, and cannot be counted: {', '.join(compiled)}", file=sys.stderr)
        return 2
    print(f"    {sys.version_info[:2]}: {{")
    with tempfile.TemporaryDirectory(prefix="disqued-work-") as folder:
        for name, subject in SUBJECTS.items():
            for pipeline in PIPELINES:
                work = measure(subject, Path(folder), pipeline)
                print(f'        ("{name}", {pipeline}): Work({work.calls:.2f}, {work.instructions:.1f}),')
    print("    },")
    return 0


if __name__ == "__main__":
    sys.exit(main())
