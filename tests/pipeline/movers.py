"""The programs that move jobs, each started as a process of its own, which a test may let die at a step of a move.

    Cli        disqued move
    Http       POST /api/bulk/move: the mover is the daemon itself
    Standin    what `disqued-spark replay` does with a batch, called in the order in which Spark calls it; needs no JVM
    Spark      disqued-spark replay

A mover dies by SIGKILL, which it sends itself instead of taking a step of the machine in `disqued.moves`.
"""

import contextlib
import http.client
import io
import json
import pickle
import subprocess
import sys

import attrs
import pyarrow as pa

from disqued.pipeline import command
from disqued.pipeline.connector.mover import QueueMover as BatchMover
from disqued.pipeline.connector.options import ConnectorUse, read_options
from disqued.pipeline.connector.stream import QueuesStreamReader
from tests.integration.daemon import DAEMON, HOST, Daemon, environment
from tests.limits import LIMIT
from tests.pipeline.readers import next_of

#: Between the copy of a job and its acknowledgement here; and before the copy, when an at-most-once job is claimed.
BEFORE_END, BEFORE_COPY = "_end", "_copy"
DIES = """
import os, signal
from disqued import moves
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
    yield
moves.{step} = die
"""


@attrs.define
class Outcome:
    """What a mover said in the end."""

    moved: int = 0
    refused: str = ""  #: why jobs were refused, "" = none was


def dying(step: str | None, program: str) -> list[str]:
    """Name a program of Python that is killed at a step of its first move; None = it lives."""
    return [sys.executable, "-c", ("" if step is None else DIES.format(step=step)) + program]


def run(program: list[str], *words: str, dies: bool) -> subprocess.CompletedProcess[str]:
    """Run a mover to its end, be it by a signal."""
    ended = subprocess.run(
        [*program, *words], capture_output=True, text=True, timeout=LIMIT, check=False, env=environment(), cwd="/"
    )
    assert (ended.returncode == -9) == dies, ended.stdout + ended.stderr
    return ended


class Cli:
    """The command line."""

    def program(self, step: str | None) -> list[str] | None:
        """The program of the daemon; None = as usual."""
        return None

    def move(self, node: Daemon, http_port: int, dies: str | None = None) -> Outcome:
        """Move the jobs of the queue `mail` to `letters`."""
        program = dying(dies, "from disqued.cli import main; main()")
        ended = run(program, "move", "mail", "letters", "-p", str(node.port), dies=dies is not None)
        words = ended.stdout.split()
        return Outcome(int(words[0]) if words else 0, ended.stderr.rpartition(": ")[2].strip())


@attrs.define
class Http:
    """The HTTP API, which dies with its node."""

    #: Which jobs are meant: those that consumers have are active.
    states: tuple[str, ...] = ("active", "queued")

    def program(self, step: str | None) -> list[str] | None:
        """The program of the daemon; None = as usual."""
        if step is None:
            return None
        return [*dying(step, "from twisted.scripts.twistd import run; run()"), *DAEMON[1:]]

    def move(self, node: Daemon, http_port: int, dies: str | None = None) -> Outcome:
        """Move the jobs of the queue `mail` to `letters`."""
        connection = http.client.HTTPConnection(HOST, http_port, timeout=LIMIT)
        wanted = {"queue": "mail", "state": self.states}
        body = json.dumps({"filter": wanted, "to": "letters", "dry_run": False, "token": None})
        try:
            connection.request("POST", "/api/bulk/move", body, {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())
        except (http.client.RemoteDisconnected, ConnectionError):
            assert dies is not None, node.log()
            assert node.wait_end() == -9
            return Outcome()
        finally:
            connection.close()
        assert dies is None, answer
        return Outcome(answer["done"], answer["failed"][0]["detail"] if answer["failed"] else "")


class Standin:
    """Spark, without a JVM."""

    def program(self, step: str | None) -> list[str] | None:
        """The program of the daemon; None = as usual."""
        return None

    def move(self, node: Daemon, http_port: int, dies: str | None = None) -> Outcome:
        """Move the jobs of the queue `mail` to `letters`."""
        program = dying(dies, "from tests.pipeline.movers import main; main()")
        ended = run(program, f"{HOST}:{node.port}", dies=dies is not None)
        if dies is not None:
            return Outcome()
        return Outcome(*json.loads(ended.stdout))


class Spark:
    """Spark itself; its tasks are processes that no test reaches into, so that this one does not die."""

    def program(self, step: str | None) -> list[str] | None:
        """The program of the daemon; None = as usual."""
        return None

    def move(self, node: Daemon, http_port: int, dies: str | None = None) -> Outcome:
        """Move the jobs of the queue `mail` to `letters`."""
        assert dies is None
        with contextlib.redirect_stderr(io.StringIO()) as told:
            words = ["replay", "--queues", "mail", "--to", "letters", "--address", f"{HOST}:{node.port}"]
            status = command.run(words)
        last = told.getvalue().splitlines()[-1]
        if status:
            return Outcome(0, last.rpartition(": ")[2])
        return Outcome(int(last.partition("done: ")[2].split()[0]))


def main() -> None:
    """Move as `disqued-spark replay` does: batch by batch, each task with copies of what it is given."""
    address = {"address": sys.argv[1]}
    reader = QueuesStreamReader(read_options({**address, "queues": "mail", "minPartitions": "2"}, ConnectorUse.STREAM))
    moved, refused = 0, list[str]()
    try:
        reader.prepareForTriggerAvailableNow()
        start = reader.initialOffset()
        while not refused and (end := next_of(reader, start)) != start:
            reader.commit(start)
            for part in reader.partitions(start, end):
                there, mover, mine = pickle.loads(pickle.dumps((reader, BatchMover(address, "letters"), part)))
                [result] = mover.move_batches(there.read(mine))
                assert isinstance(result, pa.RecordBatch)
                [row] = result.to_pylist()
                moved += row["moved"]
                refused += row["refused"]
            if not refused:
                start = end
        if not refused:
            reader.commit(start)
    finally:
        reader.stop()
    sys.stdout.write(json.dumps([moved, refused[0] if refused else ""]))
