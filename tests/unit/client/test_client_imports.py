"""No client loads the library of another, and what is missing is told with the extra that brings it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def run(program: str) -> str:
    """Run a program in an interpreter of its own; returns what it prints."""
    argv = [sys.executable, "-W", "error", "-c", program]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("line", "absent"),
    [
        ("import disqued.client", ["redis", "txredisapi", "twisted"]),
        ("import disqued.client.blocking", ["txredisapi", "twisted"]),
        ("import disqued.client.aio", ["redis", "txredisapi", "twisted"]),
        ("from disqued.client import Client, Worker", ["redis", "twisted.internet.reactor"]),
    ],
)
def test_what_is_not_asked_for_is_not_loaded(line: str, absent: list[str]) -> None:
    assert run(f"import sys\n{line}\nprint([name for name in {absent} if name in sys.modules])") == "[]"


@pytest.mark.parametrize(
    ("library", "line"),
    [("txredisapi", "from disqued.client import Client"), ("redis", "from disqued.client.blocking import Client")],
)
def test_a_missing_library_is_told_with_the_extra_that_brings_it(library: str, line: str) -> None:
    program = (
        f"import sys; sys.modules['{library}'] = None\ntry:\n    {line}\nexcept ImportError as error: print(error)"
    )
    assert 'pip install "disqued[client]"' in run(program)


def test_a_name_that_is_not_there_is_told_as_usual() -> None:
    assert run("import disqued.client\nprint(hasattr(disqued.client, 'Clinet'))") == "False"


def test_all_clients_have_the_same_commands_with_the_same_documentation() -> None:
    program = """
import disqued.client, disqued.client.aio, disqued.client.blocking, inspect
sides = disqued.client.Client, disqued.client.blocking.Client, disqued.client.aio.Client
names = [{name for name in dir(side) if name[0] != '_'} - {'reactor'} for side in sides]
assert names[0] == names[1] == names[2], names
commands = '''add get ack fast_ack nack working enqueue dequeue delete cancel redrive wait_jobs outcome wait show qlen
    qpeek qstat slots pause throttle set_schedule schedule schedules delete_schedule
    pause_schedule resume_schedule fire_schedule next_of_schedule purge policy set_policy unset_policy
    hello info call'''
for name in commands.split():
    one, *others = (getattr(side, name) for side in sides)
    for other in others:
        assert one.__doc__ == other.__doc__ and one.__doc__, name
        assert inspect.signature(one) == inspect.signature(other), name
print('alike')
"""
    assert run(program) == "alike"
