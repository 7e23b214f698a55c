"""The Twisted client in programs that are not Twisted's: a clear error that names the three clients."""

import subprocess
import sys

import pytest

from tests.limits import slowness

IMPORTS = ("from disqued.client.blocking import Client", "from disqued.client.aio import Client")


def run(program: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", "from disqued.client import Client\n" + program],
        capture_output=True, check=False, text=True, timeout=60 * slowness(),
    )  # fmt: skip
    return done.returncode, done.stderr


ASYNCIO = """
import asyncio
async def main():
    {what}
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        (
            "client = Client()\nprint(client.add('q', 'x'))",
            0,
            "a command sent nothing, as it is the client for Twisted",
        ),
        ("c = Client()\nc.add('q', 'x')\nc.get('q')\nc.qlen('q') + 1", 1, "3 commands sent nothing"),
        (
            "with Client() as client:\n    client.add('q', 'x')",
            1,
            "TypeError: disqued.client.Client is the client for Tw",
        ),
        (
            ASYNCIO.format(what="await Client().add('q', 'x')"),
            1,
            "RuntimeError: disqued.client.Client is the client for",
        ),
        (ASYNCIO.format(what="[name async for name in Client().scan_queues()]"), 1, "and this is asyncio. Choose a"),
    ],
    ids=["script", "result", "with", "asyncio", "walk"],
)
def test_a_program_without_a_reactor_reads_the_three_ways(program: str, status: int, said: str) -> None:
    found, complained = run(program)
    assert found == status
    assert said in complained
    assert all(each in complained for each in IMPORTS)
    assert "whose reactor runs the program" in complained


REACT = """
from twisted.internet import reactor
from twisted.internet.task import react
client = Client("127.0.0.1:1", patience=0.1)
early = client.qlen("q")
early.addErrback(lambda failure: print("early", failure.type.__name__))
async def main(reactor):
    try:
        await client.qlen("q")
    except Exception as error:
        print("late", type(error).__name__)
    await client.close()
from twisted.internet.defer import ensureDeferred
try:
    react(lambda reactor: ensureDeferred(main(reactor)))
finally:
    client.qlen("q").addErrback(lambda failure: None)
"""


def test_a_program_of_twisted_reads_nothing_of_that() -> None:
    """It may call its client before its reactor runs, and when that has ended."""
    assert run(REACT) == (0, "")
