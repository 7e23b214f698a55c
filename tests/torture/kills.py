"""kill -9 on real daemons, again and again, in the middle of what they do.

    a round    start on what the last one left --killed while it loads--> start again
               every job that was acknowledged is there, every job whose end was acknowledged is not
               producers and consumers at work; in some rounds a compaction, or several
               after a moment: kill -9

Producers and consumers are threads, each with a connection; what the daemon had not answered when it was killed may
have happened or not.  Times are seconds.
"""

import contextlib
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import attrs
import redis

from tests.integration.daemon import DAEMON, HOST, Daemon, environment, free_port, launch
from tests.limits import LIMIT

PRODUCERS = 3
CONSUMERS = 2
BODY = 300  #: bytes of a job
PER_LOOK = 500  #: jobs looked for with one write


@attrs.define
class Tally:
    """What a campaign has done and found."""

    rounds: int = 0
    killed_while_loading: int = 0
    killed_while_compacting: int = 0
    compactions: int = 0
    added: int = 0  #: jobs whose addition was acknowledged
    ended: int = 0  #: jobs whose end was acknowledged
    lost: list[str] = attrs.field(factory=list)  #: ids of jobs that should be there and are not
    risen: list[str] = attrs.field(factory=list)  #: ids of jobs that should not be there and are

    def line(self) -> str:
        """The figures."""
        return (
            f"{self.rounds} kills ({self.killed_while_loading} while loading, {self.killed_while_compacting} while"
            f" compacting, {self.compactions} compactions begun), {self.added} additions and {self.ended}"
            f" ends acknowledged; lost: {len(self.lost)}, risen: {len(self.risen)}"
        )


class Campaign:
    """Rounds on one folder."""

    def __init__(self, directory: Path, policy: str, random: Random) -> None:
        self.tally = Tally()
        self._directory = directory
        self._random = random
        self._options = ("--persistence", "aof", "--appendfsync", policy)
        self._alive: set[str] = set()
        self._ended: set[str] = set()
        self._unsure: set[str] = set()  #: an end was asked for, and not answered
        self._guard = threading.Lock()
        self._stopping = False

    def round(self, *, load_s: float, compacts: bool, kills_loading: bool) -> None:
        """Start, look, work, kill."""
        if kills_loading:
            self._kill_while_loading()
        daemon = launch(self._directory, self._options)
        try:
            self._look(daemon)
            self._work(daemon, load_s, compacts=compacts)
        finally:
            if not daemon.ended:
                daemon.kill()
        self.tally.rounds += 1

    def finish(self) -> None:
        """Look once more at what is left."""
        daemon = launch(self._directory, self._options)
        self._look(daemon)
        daemon.stop()

    def _kill_while_loading(self) -> None:
        argv = [
            *DAEMON,
            "--port",
            str(free_port()),
            "--bind",
            HOST,
            "--http-port",
            "0",
            "--dir",
            str(self._directory),
            *self._options,
        ]
        log = self._directory.with_name(f"{self._directory.name}.loading.log")
        with log.open("wb") as output:
            process = subprocess.Popen(argv, stdout=output, stderr=output, env=environment(), cwd="/")
        # The lock is what it takes first; then it reads for a while.
        lock = self._directory / "disque.aof.lock"
        while process.poll() is None and not _is_open(process.pid, lock):
            time.sleep(0.001)
        time.sleep(self._random.random() * 0.05)
        process.kill()
        process.wait(LIMIT)
        self.tally.killed_while_loading += 1

    def _look(self, daemon: Daemon) -> None:
        """Compare what there is with what there should be."""
        with daemon.redis() as client:
            for ids, wanted, wrong in ((self._alive, True, self.tally.lost), (self._ended, False, self.tally.risen)):
                for some in _pieces(sorted(ids)):
                    shown = client.pipeline(transaction=False)
                    for job_id in some:
                        shown.execute_command("SHOW", job_id)
                    for job_id, answer in zip(some, shown.execute(), strict=True):
                        if (answer is not None) != wanted:
                            wrong.append(job_id)
            # An end that nobody heard of may have happened.
            for job_id in sorted(self._unsure):
                (self._ended if client.execute_command("SHOW", job_id) is None else self._alive).add(job_id)
        self._unsure.clear()

    def _work(self, daemon: Daemon, load_s: float, *, compacts: bool) -> None:
        self._stopping = False
        work = [self._produce] * PRODUCERS + [self._consume] * CONSUMERS + ([self._compact] if compacts else [])
        threads = [threading.Thread(target=self._run, args=(task, daemon)) for task in work]
        for thread in threads:
            thread.start()
        time.sleep(load_s * (0.2 + self._random.random()))
        if compacts:
            with daemon.redis() as client:
                self.tally.killed_while_compacting += client.info("persistence")["aof_rewrite_in_progress"]
        daemon.kill()
        self._stopping = True
        for thread in threads:
            thread.join()

    def _run(self, task: object, daemon: Daemon) -> None:
        assert callable(task)
        with contextlib.suppress(redis.exceptions.ConnectionError), daemon.redis(retry=None) as client:
            while not self._stopping:
                task(client)

    def _produce(self, client: redis.Redis) -> None:
        job_id = client.execute_command("ADDJOB", "queue", "x" * BODY, 0, "RETRY", 3_600, "TTL", 86_400)
        with self._guard:
            self.tally.added += 1
            # Its consumer may have heard of it first.
            if job_id not in self._ended and job_id not in self._unsure:
                self._alive.add(job_id)

    def _consume(self, client: redis.Redis) -> None:
        for _, job_id, _ in client.execute_command("GETJOB", "TIMEOUT", 50, "COUNT", 5, "FROM", "queue") or ():
            with self._guard:
                self._unsure.add(job_id)
                self._alive.discard(job_id)
            client.execute_command("ACKJOB", job_id)
            with self._guard:
                self._unsure.discard(job_id)
                self._ended.add(job_id)
                self.tally.ended += 1

    def _compact(self, client: redis.Redis) -> None:
        with contextlib.suppress(redis.exceptions.ResponseError):  # one is in progress
            client.execute_command("BGREWRITEAOF")
            self.tally.compactions += 1
        time.sleep(0.005)


def _pieces(ids: list[str]) -> Iterator[list[str]]:
    for at in range(0, len(ids), PER_LOOK):
        yield ids[at : at + PER_LOOK]


def _is_open(pid: int, path: Path) -> bool:
    with contextlib.suppress(OSError):
        return any(str(entry.readlink()) == str(path) for entry in Path(f"/proc/{pid}/fd").iterdir())
    return False
