"""One promise of everything that moves jobs: the same suite for the command line, the HTTP API and Spark.

What each single step promises is in tests/unit/test_moves.py; here whole programs move jobs of a real node.
"""

import threading
from collections.abc import Callable
from pathlib import Path

import attrs
import pyarrow as pa
import pytest

from disqued.client.errors import Unreachable
from disqued.moves import ONCE
from disqued.pipeline.connector.mover import QueueMover as BatchMover
from tests.integration.daemon import Daemon, free_port, wait_until
from tests.pipeline.movers import BEFORE_COPY, BEFORE_END, Cli, Http, Outcome, Spark, Standin
from tests.pipeline.trio import Trio, addresses

Mover = Cli | Http | Standin | Spark
MORTALS: dict[str, Mover] = {"cli": Cli(), "http": Http(), "standin": Standin()}
MOVERS: dict[str, Mover] = {**MORTALS, "spark": Spark()}
mortal = pytest.mark.parametrize("mortal", MORTALS.values(), ids=MORTALS)
JOURNAL = ("--persistence", "aof", "--appendfsync", "always")


@pytest.fixture(params=MOVERS)
def mover(request: pytest.FixtureRequest) -> Mover:
    """Each of the movers; Spark is started where it is needed."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    return MOVERS[request.param]


@attrs.define
class Place:
    """A node whose jobs are moved."""

    start: Callable[..., Daemon]
    directory: Path
    http_port: int
    node: Daemon

    def move(self, mover: Mover) -> Outcome:
        """Let a mover move the jobs that wait."""
        return mover.move(self.node, self.http_port)

    def die_moving(self, mover: Mover, step: str) -> None:
        """Let a mover die at a step; where that ends the node, it is started again."""
        program = mover.program(step)
        if program is not None:
            self.node.stop()
            self.node = self._started(program)
        mover.move(self.node, self.http_port, dies=step)
        if program is not None:
            self.node = self._started(None)

    def _started(self, program: list[str] | None) -> Daemon:
        return self.start(
            *JOURNAL, "--http-port", str(self.http_port), directory=self.directory, port=self.node.port, program=program
        )

    def fill(self, count: int, *options: object) -> list[str]:
        """Add jobs; returns their bodies."""
        made = [f"{number:03}" for number in range(count)]
        for body in made:
            self.node.call("ADDJOB", "mail", body, 0, "RETRY", 1, *options)
        return made

    def bodies(self, queue: str) -> list[str]:
        """The bodies of the jobs that wait, in their order."""
        return [row[2] for row in self.node.call("QPEEK", queue, 1_000)]

    def left(self, queue: str = "mail") -> list[str]:
        """Ids of all jobs of a queue, queued or active."""
        return self.node.call("JSCAN", "COUNT", 1_000, "QUEUE", queue, "STATE", "active", "STATE", "queued")[1]

    def wait_waiting(self, queue: str, count: int) -> None:
        """Wait until so many jobs wait: after a crash they come back one retry time later."""
        wait_until(lambda: self.node.call("QLEN", queue) == count, f"{count} jobs that wait in {queue}")

    def finish(self, mover: Mover) -> None:
        """Move what comes back, until nothing is left."""

        def is_finished() -> bool:
            self.move(mover)
            return not self.left()

        wait_until(lambda: not self.left() or self.bodies("mail"), "jobs that come back")
        wait_until(is_finished, "the rest, moved as it comes back")

    def facts(self, queue: str) -> dict[str, object]:
        """What the node knows of the first job of a queue."""
        row = self.node.call("SHOW", self.node.call("QPEEK", queue, 1)[0][1])
        return dict(zip(row[::2], row[1::2], strict=True))


@pytest.fixture
def place(start: Callable[..., Daemon], tmp_path: Path) -> Place:
    """A node with a journal and an HTTP port."""
    port, directory = free_port(), tmp_path / "node"
    return Place(start, directory, port, start(*JOURNAL, "--http-port", str(port), directory=directory))


def test_all_jobs_are_moved(place: Place, mover: Mover) -> None:
    made = place.fill(120)
    assert place.move(mover) == Outcome(120)
    moved = place.bodies("letters")
    # The HTTP API walks over the registry, which has no order.
    assert (sorted(moved) if isinstance(mover, Http) else moved, place.left()) == (made, [])
    assert place.move(mover) == Outcome(0)


#: Who dies, who goes on, and the options of the jobs.  tests/unit/test_moves.py has every pair.
DEATHS = [
    *((pair, ()) for pair in ("cli cli", "cli http", "http http", "http standin", "standin standin", "standin spark")),
    ("standin cli", ("KEY", "order-17")),
]


@pytest.mark.parametrize(("pair", "options"), DEATHS, ids=[pair.replace(" ", "-") for pair, _ in DEATHS])
def test_a_kill_between_copy_and_acknowledgement_doubles_nothing(
    request: pytest.FixtureRequest, place: Place, pair: str, options: tuple[str, ...]
) -> None:
    first, _, second = pair.partition(" ")
    if second == "spark":
        request.getfixturevalue("spark")
    mortal, mover = MORTALS[first], MOVERS[second]
    made = place.fill(1 if options else 30, *options)
    place.die_moving(mortal, BEFORE_END)
    assert place.left("letters"), "it died behind copies"
    assert len(place.left()) == len(made), "and before they were acknowledged"
    place.finish(mover)
    place.wait_waiting("letters", len(place.left("letters")))
    assert sorted(place.bodies("letters")) == made


@mortal
def test_a_kill_before_the_copy_loses_nothing(place: Place, mortal: Mover) -> None:
    made = place.fill(30)
    place.die_moving(mortal, BEFORE_COPY)
    assert place.bodies("letters") == []
    place.finish(mortal)
    assert sorted(place.bodies("letters")) == made


def test_what_a_job_was_given_travels_with_it(place: Place, mover: Mover) -> None:
    place.node.call("ADDJOB", "mail", "one", 0, "TTL", 500, "RETRY", 7, "KEY", "order-17")
    place.move(mover)
    moved = place.facts("letters")
    assert (moved["retry"], moved["repl"], moved["key"], moved["body"]) == (7, 1, "order-17", "one")
    assert 400 < moved["ttl"] <= 500
    place.node.call("ADDJOB", "letters", "again", 0, "KEY", "order-17")
    assert place.bodies("letters") == ["one"]


def test_a_job_without_a_key_gets_the_one_of_every_mover(place: Place, mover: Mover) -> None:
    job_id = place.node.call("ADDJOB", "mail", "one", 0)
    place.node.call("ADDJOB", "letters", "one", 0, "KEY", f"move/{job_id}")
    assert place.move(mover) == Outcome(1), "what is there already was moved before"
    assert (place.bodies("letters"), place.left()) == (["one"], [])
    assert place.facts("letters")["key"] == f"move/{job_id}"


def test_an_at_most_once_job_is_moved_as_one_or_is_refused_and_stays(place: Place, mover: Mover) -> None:
    place.node.call("ADDJOB", "mail", "once", 0, "RETRY", 0)
    if isinstance(mover, Http):
        assert place.move(mover) == Outcome(0, ONCE)
        assert (place.bodies("mail"), place.bodies("letters")) == (["once"], [])
    else:
        assert place.move(mover) == Outcome(1)
        assert (place.bodies("mail"), place.facts("letters")["retry"]) == ([], 0)


@pytest.mark.parametrize("mortal", [MORTALS["cli"], MORTALS["standin"]], ids=["cli", "standin"])
@pytest.mark.parametrize("step", [BEFORE_COPY, BEFORE_END])
def test_an_at_most_once_job_is_never_added_by_the_next_attempt(place: Place, mortal: Mover, step: str) -> None:
    place.node.call("ADDJOB", "mail", "once", 0, "RETRY", 0)
    place.die_moving(mortal, step)
    [*copies] = place.node.call("GETJOB", "NOHANG", "COUNT", 10, "FROM", "letters") or []
    assert len(copies) == (step == BEFORE_END)
    for _, job_id, _ in copies:
        place.node.call("ACKJOB", job_id)
    place.move(mortal)
    assert (place.bodies("letters"), place.bodies("mail")) == ([], [])


def test_a_job_that_a_consumer_takes_meanwhile_is_its_alone(place: Place, mover: Mover) -> None:
    mover = Http(("queued",)) if isinstance(mover, Http) else mover
    made = [f"{number:03}" for number in range(300)]
    for body in made:
        place.node.call("ADDJOB", "mail", body, 0, "RETRY", 600)
    consumed = list[str]()
    over = threading.Event()

    def consume() -> None:
        with place.node.redis() as client:
            while not over.is_set():
                for _, job_id, body in client.execute_command("GETJOB", "NOHANG", "COUNT", 1, "FROM", "mail") or []:
                    consumed.append(body)
                    client.execute_command("ACKJOB", job_id)

    consumer = threading.Thread(target=consume)
    consumer.start()
    try:
        wait_until(lambda: consumed, "a job that the consumer has")
        place.move(mover)
        wait_until(lambda: not place.left(), "the last job, which the consumer has just now")
    finally:
        over.set()
        consumer.join()
    assert sorted(consumed + place.bodies("letters")) == made


def test_jobs_that_are_refused_there_stay_here(place: Place, mover: Mover) -> None:
    made = place.fill(5)
    place.node.call("PAUSE", "letters", "in")
    outcome = place.move(mover)
    assert (outcome.moved, outcome.refused.removeprefix("PAUSED ")) == (0, "Queue paused in input, try later")
    place.wait_waiting("mail", 5)
    assert (sorted(place.bodies("mail")), place.bodies("letters")) == (made, [])
    place.node.call("PAUSE", "letters", "none")
    place.finish(mover)
    assert sorted(place.bodies("letters")) == made


# Spark, and nodes that go away.


def rows(node: Daemon, queue: str) -> list[pa.RecordBatch]:
    """Take the jobs that wait on a node, as a batch of a stream has them."""
    short_id = node.call("CLUSTER", "MYID")[:8]
    found = [
        {"id": job_id, "queue": queue, "body": body.encode(), "node": short_id}
        for _, job_id, body in node.call("GETJOB", "NOHANG", "COUNT", 100, "FROM", queue)
    ]
    return [pa.RecordBatch.from_pylist(found)]


def test_jobs_of_a_node_that_is_away_are_moved_by_those_that_have_copies(trio: Trio, queue: str) -> None:
    mover = BatchMover({"address": addresses(trio.all()), "connectTimeout": "1"}, f"{queue}-to")
    for number in range(3):
        trio[0].call("ADDJOB", queue, number, 5_000, "REPLICATE", 2, "RETRY", 600)
    batches = rows(trio[0], queue)
    trio.kill(0)
    [result] = mover.move_batches(batches)
    assert result.to_pylist() == [{"moved": 3, "refused": []}]
    moved = [row[2] for node in trio.all()[1:] for row in node.call("QPEEK", f"{queue}-to", 100)]
    assert sorted(moved) == ["0", "1", "2"]


def test_a_job_that_may_be_on_a_node_that_is_away_is_not_given_up(trio: Trio, queue: str) -> None:
    mover = BatchMover({"address": addresses(trio.all()), "connectTimeout": "1"}, f"{queue}-to")
    trio[0].call("ADDJOB", queue, "alone", 0, "REPLICATE", 1, "RETRY", 600)
    batches = rows(trio[0], queue)
    mover.check_nodes()
    trio.kill(0)
    # Whether the others have noticed it yet, or not.
    for _ in range(2):
        with pytest.raises(Unreachable, match="1 jobs are on no node that answers"):
            list(mover.move_batches(batches))
        with pytest.raises(Unreachable, match="may be there alone: start that node, or make the cluster forget it"):
            mover.check_nodes()
        trio.wait_lost(0)
