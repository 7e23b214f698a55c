"""kill -9 on what streams of Spark consist of, again and again, while they move jobs.

    source   producer --> queue of 3 nodes --stream--> Parquet              at the end: every job once in the table
    sink     lines of files --stream--> queue of 3 nodes --> consumers      at the end: every line one job, delivered

    a round   each stream has done a batch since the last round; a moment that is drawn at random; a kill
    kills     the driver with all its processes, its JVM alone, an executor, its Python, a node (started again from its
              journal); of the sink also a task that fails, and all tasks, so that Spark aborts the batch

One driver runs the streams, so that each kill is one of each.  A driver that has ended is started again, and goes on
from its checkpoints, as whoever runs one for long would do.  What a client was not answered may have happened or not:
such jobs may be there once, and need not.  Times are seconds.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import ClassVar

import attrs
import pyarrow.parquet as pq
import redis

from tests.integration.cluster import Cluster
from tests.integration.daemon import HOST, Daemon, wait_until
from tests.limits import LIMIT
from tests.torture.sparkcluster import SparkCluster, children, descendants, environment, kill

RETRY_S = 10  #: of a job: it comes back after that when a driver was killed between lease and log
AT_ONCE = 50  #: jobs that are added with one write, and lines of a file
BACKLOG = 2_000  #: jobs, or lines, that may wait for the stream
PROGRESS = 900.0  #: until a stream that can work has done a batch, on a busy machine
DRAINED = 1_800.0  #: until everything has arrived after the last kill
SPARK = "tests.torture.sparkdriver"
STANDIN = "tests.torture.standin"
BREATH = 0.05
MOMENT = 3.0  #: at most, between a batch and the kill after it, or between the end of a node and its start
ANSWER = 30.0  #: that a node may need on a busy machine
AWAY = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError)


@attrs.define
class Tally:
    """What a campaign has done and found."""

    kills: Counter[str] = attrs.field(factory=Counter)
    drivers: int = 0  #: started
    failed: int = 0  #: that ended by themselves, since a batch failed
    jobs: int = 0  #: that had to arrive
    unsure: int = 0  #: that may or may not have been added
    again: int = 0  #: deliveries of a job that a consumer had had, and whose acknowledgement was not answered
    faults: list[str] = attrs.field(factory=list)

    def line(self) -> str:
        """The figures."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kills.items())) or "none"
        return (
            f"{self.kills.total()} kills ({kinds}), {self.drivers} drivers ({self.failed} ended by themselves),"
            f" {self.jobs} jobs ({self.unsure} unsure, {self.again} delivered again), faults: {len(self.faults)}"
        )


class Driver:
    """The process of a driver, and those that it starts."""

    def __init__(self, program: str, roles: Sequence[str], place: Path, address: str, tally: Tally) -> None:
        self._argv = [sys.executable, "-m", *program.split(), *roles, "--address", address, "--place", str(place)]
        self._place = place
        self._tally = tally
        self._process: subprocess.Popen[bytes] | None = None

    def keep(self) -> None:
        """Start it, unless it runs."""
        if self._process is not None:
            if self._process.poll() is None:
                return
            self.kill()
            self._tally.failed += 1
        self._tally.drivers += 1
        with (self._place / f"driver-{self._tally.drivers}.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(),
                cwd=self._place,
                start_new_session=True,
            )

    def kill(self) -> None:
        """End all of it at the same moment."""
        assert self._process is not None
        below = descendants(self._process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pid in below:
            kill(pid)
        self._process.wait(LIMIT)
        self._process = None

    def kill_jvm(self) -> None:
        """End its JVM alone; the Python beside it lives until it notices."""
        assert self._process is not None
        for pid, line in descendants(self._process.pid).items():
            if "org.apache.spark.deploy.SparkSubmit" in line:
                kill(pid)
        self._process.wait(PROGRESS)
        self.kill()

    def tasks(self) -> list[int]:
        """Process ids of the tasks that a stand-in has forked: its streams are its children, and they are theirs."""
        assert self._process is not None
        streams = children(self._process.pid)
        return [pid for stream in streams for pid in children(stream)]

    def log(self) -> str:
        """The end of what the last one has said."""
        path = self._place / f"driver-{self._tally.drivers}.log"
        return path.read_text(errors="replace")[-3_000:]


class Stream(ABC):
    """One stream, what goes in, and what has come out."""

    role: ClassVar[str]

    def __init__(self, place: Path, nodes: Cluster, random: Random) -> None:
        self.place = place / self.role
        self.nodes = nodes
        self.random = random
        self.no_more = threading.Event()  #: nothing goes in any more
        self.over = threading.Event()
        for name in ("in", "out", "state", "told"):
            (self.place / name).mkdir(parents=True)

    @abstractmethod
    def work(self) -> list[Callable[[], None]]:
        """What threads do beside the stream, until it is over."""

    @abstractmethod
    def has_arrived(self) -> bool:
        """Tell whether everything has come out."""

    @abstractmethod
    def judge(self, tally: Tally) -> None:
        """Compare what has come out with what went in."""

    def is_drained(self) -> bool:
        """Tell whether everything has come out, and no node has anything left."""
        with contextlib.suppress(*AWAY):
            return self.has_arrived() and not any(left_on(node, self.role) for node in self.nodes.nodes)
        return False

    def batches(self) -> int:
        """The number of the last batch that the checkpoint has as done; -1 = none."""
        commits = (self.place / "state" / "commits").glob("[0-9]*")
        return max((int(each.name) for each in commits if each.name.isdigit()), default=-1)


class Campaign:
    """Rounds on streams."""

    def __init__(
        self, roles: Sequence[str], place: Path, nodes: Cluster, spark: SparkCluster | str, random: Random
    ) -> None:
        """`spark`: a cluster, or a program that does without; see SPARK and STANDIN."""
        self.tally = Tally()
        self.nodes = nodes
        self.random = random
        self.streams = [STREAMS[role](place, nodes, random) for role in roles]
        self._place = place
        self._spark = spark
        address = ",".join(f"{HOST}:{node.port}" for node in nodes.nodes)
        program = spark if isinstance(spark, str) else f"{SPARK} --master {spark.master}"
        self._driver = Driver(program, roles, place, address, self.tally)

    def kinds(self) -> dict[str, Callable[[], None]]:
        """What may happen in a round, by its name."""
        kinds = {"driver": self._driver.kill, "node": self._kill_node}
        if self._spark == STANDIN:
            kinds["task"] = lambda: self._kill_one(self._driver.tasks)
        else:
            kinds["driver's JVM"] = self._driver.kill_jvm
        if not isinstance(self._spark, str):
            executors, workers = self._spark.executors, self._spark.python_workers
            kinds["executor"] = lambda: self._kill_one(executors)
            kinds["executor's Python"] = lambda: self._kill_one(workers)
        if any(stream.role == "sink" for stream in self.streams):
            kinds |= {"task failed": self._fail_once, "batch aborted": self._fail_always}
        return kinds

    # Running.

    def run(
        self, rounds: int, until: float, say: Callable[[str], None], chosen: Collection[str] | None = None
    ) -> Tally:
        """Kill so often, unless the time is over before; then let everything arrive, and look.  `chosen`: kinds."""
        work = [each for stream in self.streams for each in stream.work()]
        threads = [threading.Thread(target=each, daemon=True) for each in work]
        for thread in threads:
            thread.start()
        try:
            for kind in self._plan(rounds, chosen or self.kinds()):
                self._wait_progress()
                if time.monotonic() > until:
                    break
                time.sleep(self.random.random() * MOMENT)
                self.kinds()[kind]()
                self.tally.kills[kind] += 1
                say(self.tally.line())
            self._wait_progress()
            for stream in self.streams:
                stream.no_more.set()
            wait_until(self._is_done, f"all has arrived; {self.tally.line()}\n{self._driver.log()}", DRAINED)
        finally:
            for stream in self.streams:
                stream.no_more.set()
                stream.over.set()
            for thread in threads:
                thread.join(LIMIT)
            self._driver.kill()
        for stream in self.streams:
            stream.judge(self.tally)
        return self.tally

    def _plan(self, rounds: int, chosen: Collection[str]) -> Iterator[str]:
        """Each kind as often as the others, in any order."""
        while rounds > 0:
            kinds = list(chosen)
            self.random.shuffle(kinds)
            yield from kinds[:rounds]
            rounds -= len(kinds)

    def _is_done(self) -> bool:
        self._driver.keep()
        return all(stream.is_drained() for stream in self.streams)

    def _wait_progress(self) -> None:
        """Wait until each stream has done a batch, from now on."""
        before = [stream.batches() for stream in self.streams]

        def is_on() -> bool:
            self._driver.keep()
            return all(stream.batches() > number for stream, number in zip(self.streams, before, strict=True))

        try:
            wait_until(is_on, "a batch is done", PROGRESS)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.tally.line()}\n{self._driver.log()}") from None

    # Kills.

    def _kill_node(self) -> None:
        number = self.random.randrange(len(self.nodes.nodes))
        self.nodes.kill(number)
        time.sleep(self.random.random() * MOMENT)
        self.nodes.restart(number)
        self.nodes.wait_joined()

    def _kill_one(self, running: Callable[[], list[int]]) -> None:
        def has_killed() -> bool:
            pids = running()
            return bool(pids) and kill(self.random.choice(pids))

        wait_until(has_killed, "somebody who can be killed", PROGRESS)

    def _fail_once(self) -> None:
        told = self._place / "sink" / "told" / "once"
        told.touch()
        wait_until(lambda: self._driver.keep() or not told.exists(), "a task that fails", PROGRESS)

    def _fail_always(self) -> None:
        told, failed = self._place / "sink" / "told" / "always", self.tally.failed
        told.touch()
        wait_until(lambda: self._driver.keep() or self.tally.failed > failed, "a batch that is aborted", PROGRESS)
        told.unlink()


class Source(Stream):
    """Jobs into a table."""

    role = "source"

    def __init__(self, place: Path, nodes: Cluster, random: Random) -> None:
        super().__init__(place, nodes, random)
        self._added: dict[str, str] = {}  #: bodies by job id
        self._tried = 0

    def work(self) -> list[Callable[[], None]]:
        return [self._produce]

    def _produce(self) -> None:
        """Add jobs on one node after the other, as long as not too many wait."""
        while not self.no_more.is_set():
            with contextlib.suppress(*AWAY):
                node = self.random.choice(self.nodes.nodes)
                with node.redis(retry=None, socket_timeout=ANSWER) as client:
                    if client.execute_command("QLEN", self.role) < BACKLOG / len(self.nodes.nodes):
                        self._add(client)
            self.no_more.wait(BREATH)

    def _add(self, client: redis.Redis) -> None:
        numbers = range(self._tried, self._tried + AT_ONCE)
        self._tried += AT_ONCE
        pipeline = client.pipeline(transaction=False)
        for number in numbers:
            pipeline.execute_command("ADDJOB", self.role, number, 5_000, "REPLICATE", 2, "RETRY", RETRY_S)
        for number, reply in zip(numbers, pipeline.execute(raise_on_error=False), strict=True):
            if isinstance(reply, str):
                self._added[reply] = str(number)

    def has_arrived(self) -> bool:
        return True  # what has left its queue has

    def judge(self, tally: Tally) -> None:
        batches: dict[tuple[str, str], list[str]] = defaultdict(list)
        for row, batch in read_table(self.place / "out"):
            batches[row].append(batch)
        tally.jobs += len(self._added)
        tally.unsure += self._tried - len(self._added)
        tally.faults += [f"lost: {each}" for each in self._added.items() if each not in batches]
        tally.faults += [f"in the table in {names}: {each}" for each, names in batches.items() if len(names) > 1]
        told = set(self._added.values())
        strange = [each for each in batches if self._added.get(each[0]) != each[1] and each[1] in told]
        tally.faults += [f"not added: {each}" for each in strange]


def left_on(node: Daemon, queue: str) -> list[str]:
    """Name the jobs of a queue on a node that are not done."""
    states = ("STATE", "queued", "STATE", "active", "STATE", "wait-repl")
    with node.redis(retry=None, socket_timeout=ANSWER) as client:
        _, ids = client.execute_command("JSCAN", 0, "BUSYLOOP", "QUEUE", queue, *states)
    return list(ids)


def read_table(out: Path) -> Iterator[tuple[tuple[str, str], str]]:
    """Read the ids and bodies of a table that a stream has written, with the batch that each stands in.

    Only files count that the log of the table names.  Source: FileStreamSinkLog of Spark: a batch has a file `N`; every
    tenth, `N.compact`, has all that came before, too.
    """
    log = {path.name: path for path in (out / "_spark_metadata").iterdir() if not path.name.startswith(".")}
    compact = max((int(name.removesuffix(".compact")) for name in log if name.endswith(".compact")), default=-1)
    chosen = {name: path for name, path in log.items() if name.isdigit() and int(name) > compact}
    if compact >= 0:
        chosen[f"{compact}.compact"] = log[f"{compact}.compact"]
    for batch, path in chosen.items():
        for line in path.read_text().splitlines()[1:]:
            name = json.loads(line)["path"].removeprefix("file://")
            table = pq.read_table(name, columns=["id", "body"])
            for id_, body in zip(table["id"].to_pylist(), table["body"].to_pylist(), strict=True):
                yield (id_, body.decode()), f"{batch}/{Path(name).name[:10]}"


class Sink(Stream):
    """Lines of files as jobs."""

    role = "sink"

    def __init__(self, place: Path, nodes: Cluster, random: Random) -> None:
        super().__init__(place, nodes, random)
        self._lines = 0
        self._seen: dict[str, dict[str, int]] = defaultdict(dict)  #: by line: deliveries by job id
        self._done: set[str] = set()  #: jobs whose acknowledgement was answered
        self._again: list[str] = []  #: deliveries of such a job
        self._guard = threading.Lock()

    def work(self) -> list[Callable[[], None]]:
        return [self._produce, *(partial(self._consume, number) for number in range(len(self.nodes.nodes)))]

    def _produce(self) -> None:
        """Write files, as long as not too many lines wait."""
        while not self.no_more.is_set():
            if self._lines - len(self._seen) < BACKLOG:
                lines = range(self._lines, self._lines + AT_ONCE)
                self._lines += AT_ONCE
                path = self.place / f"{self._lines}.txt"
                path.write_text("".join(f"{number}\n" for number in lines))
                path.rename(self.place / "in" / path.name)
            self.no_more.wait(BREATH)

    def _consume(self, number: int) -> None:
        while not self.over.is_set():
            with (
                contextlib.suppress(*AWAY),
                self.nodes.nodes[number].redis(retry=None, socket_timeout=ANSWER) as client,
            ):
                while not self.over.is_set():
                    for _, id_, body in (
                        client.execute_command("GETJOB", "TIMEOUT", 200, "COUNT", 20, "FROM", self.role) or ()
                    ):
                        self._note(id_, body)
                        client.execute_command("ACKJOB", id_)
                        with self._guard:
                            self._done.add(id_)
            self.over.wait(BREATH)

    def _note(self, id_: str, body: str) -> None:
        with self._guard:
            seen = self._seen[body]
            seen[id_] = seen.get(id_, 0) + 1
            if id_ in self._done:
                self._again.append(id_)

    def has_arrived(self) -> bool:
        return len(self._seen) == self._lines

    def judge(self, tally: Tally) -> None:
        tally.jobs += self._lines
        tally.faults += [f"lost: line {each}" for each in range(self._lines) if str(each) not in self._seen]
        tally.faults += [f"{len(ids)} jobs: line {body}" for body, ids in self._seen.items() if len(ids) > 1]
        tally.faults += [f"delivered after its end: {each}" for each in self._again]
        tally.again = sum(sum(ids.values()) - 1 for ids in self._seen.values())


STREAMS: dict[str, type[Stream]] = {"source": Source, "sink": Sink}
