"""Several real daemons that know each other, and what a test does to them.

    start --> join --> kill, freeze, leave, cut off ... --> all back --> every node idle and empty

A node keeps its number, its port and its folder over restarts, so it comes back as the node that it was.  A frozen
process (SIGSTOP) is there for the kernel, and for nobody else: its connections stay open and nothing answers.

Times are seconds unless the name says ms.
"""

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import attrs
import redis

from tests.integration.daemon import DAEMON, HOST, LIMIT, PLAIN, Daemon, environment, launch, wait_until
from tests.limits import seconds
from tests.network import Network

#: A node that is slow has not failed, so this grows with every other limit.
NODE_TIMEOUT_MS = round(seconds(1) * 1_000)
QUICK = ("--cluster-node-timeout", str(NODE_TIMEOUT_MS))
HOSTED_PORT = 7711  #: every host has its own
SECRET = "a bus that other hosts reach needs one"
DURABLE = ("--persistence", "aof", "--appendfsync", "always")

AnyCluster = TypeVar("AnyCluster", bound="Cluster")


def cluster_info(daemon: Daemon) -> dict[str, str]:
    """Read CLUSTER INFO."""
    lines = str(daemon.call("CLUSTER", "INFO")).splitlines()
    return dict(line.split(":", 1) for line in lines if line)


def flags(daemon: Daemon, node_id: str) -> set[str]:
    """Tell what a node thinks of another: `fail?`, `fail`, `leaving` ... as CLUSTER NODES shows it."""
    for line in str(daemon.call("CLUSTER", "NODES")).splitlines():
        shown_id, _, words = line.split()[:3]
        if shown_id == node_id:
            return set(words.split(","))
    return set()


def registered(daemon: Daemon) -> int:
    """Count the jobs that a node knows of, those that are done and not yet forgotten everywhere included."""
    with daemon.redis() as client:
        return int(client.info("jobs")["registered_jobs"])


def wait_reached(daemon: Daemon, others: int) -> None:
    """Wait until a node can give jobs to exactly so many others."""
    wait_until(
        lambda: cluster_info(daemon)["cluster_reachable_nodes"] == str(others),
        f"{others} nodes that the one in {daemon.directory} reaches",
    )


@attrs.define
class Cluster:
    """Nodes by number, from 0; all of them run unless a test has said otherwise."""

    directory: Path
    options: Sequence[str] = (*QUICK, *DURABLE)
    nodes: list[Daemon] = attrs.field(factory=list)
    ids: list[str] = attrs.field(factory=list)  #: of the nodes
    #: Every process that was ever started, each of which has to have ended well.
    started: list[Daemon] = attrs.field(factory=list)

    def start(self, count: int) -> None:
        """Start nodes, and join them: one is told of all others, and the rest of the mesh completes itself."""
        for number in range(count):
            self.nodes.append(self._ready(self.launch(number)))
            self.ids.append(str(self.nodes[number].call("CLUSTER", "MYID")))
        self.join()

    def join(self) -> None:
        """Let the first node meet the others, and wait until each knows and reaches each."""
        for number, other in enumerate(self.nodes[1:], start=1):
            assert self.nodes[0].call("CLUSTER", "MEET", self.address(number), other.port) == "OK"
        self.wait_joined()

    def wait_joined(self) -> None:
        """Wait until every node can give jobs to every other one."""
        for daemon in self.nodes:
            wait_reached(daemon, len(self.nodes) - 1)

    def wait_empty(self, limit: float = LIMIT) -> None:
        """Wait until no node knows of any job, and none waits for an acknowledgement to be heard."""
        for daemon in self.nodes:
            try:
                wait_until(lambda daemon=daemon: registered(daemon) == 0, f"no job in {daemon.directory}", limit)
            except AssertionError as error:
                raise AssertionError(f"{error}; {self.tell_left()}") from error

    def tell_left(self, most: int = 5) -> str:
        """Say of some of the jobs that are left what each node knows of them."""
        lines: list[str] = []
        for daemon in self.nodes:
            with daemon.redis(encoding_errors="backslashreplace") as client:
                _, ids = client.execute_command("JSCAN", 0, "COUNT", most)
                shown = [client.execute_command("SHOW", job_id) for job_id in ids[:most]]
            lines += [f"{daemon.directory.name}: {row}" for row in shown]
        return "\n".join(["left are:", *lines])

    def kill(self, *numbers: int) -> None:
        """End processes as a power cut would, all at the same moment."""
        for number in numbers:
            self.nodes[number].process.kill()
        for number in numbers:
            self.nodes[number].kill()

    def stop(self, number: int) -> None:
        """End a process as systemd would."""
        self.nodes[number].stop()

    def restart(self, *numbers: int) -> None:
        """Start nodes that have ended again, as the nodes that they were."""
        for number in numbers:
            self.nodes[number] = self._ready(self.launch(number, self.nodes[number].port))

    def replace(self, number: int) -> None:
        """Put a new node in the place of one that has ended, whose data is gone; the others forget the old one."""
        shutil.rmtree(self.nodes[number].directory)
        for other in self.others(number):
            assert other.call("CLUSTER", "FORGET", self.ids[number]) == "OK"
        self.restart(number)
        self.ids[number] = str(self.nodes[number].call("CLUSTER", "MYID"))
        inviting = (number + 1) % len(self.nodes)
        assert self.nodes[inviting].call("CLUSTER", "MEET", self.address(number), self.nodes[number].port) == "OK"

    def freeze(self, number: int) -> None:
        """Stop a process in the middle of whatever it does."""
        self.nodes[number].process.send_signal(signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        """Let a frozen process go on."""
        self.nodes[number].process.send_signal(signal.SIGCONT)

    def others(self, number: int) -> list[Daemon]:
        """Name all nodes but one."""
        return [daemon for other, daemon in enumerate(self.nodes) if other != number]

    def wait_lost(self, number: int, watchers: Iterable[Daemon] | None = None) -> None:
        """Wait until the others, or those given, know that a node does not answer."""
        for watcher in self.others(number) if watchers is None else watchers:
            wait_until(
                lambda watcher=watcher: flags(watcher, self.ids[number]) & {"fail", "fail?"},
                f"the node in {watcher.directory} misses number {number}",
            )

    def end(self) -> None:
        """End all, and hold each process to what a sound daemon leaves behind."""
        for number in range(len(self.nodes)):
            with contextlib.suppress(ProcessLookupError):
                self.thaw(number)
        for daemon in self.started:
            daemon.stop()

    def abandon(self) -> None:
        """End whatever still runs, after a failure that is told already."""
        for daemon in self.started:
            if daemon.process.poll() is None:
                daemon.process.kill()
                daemon.process.wait(LIMIT)

    def launch(self, number: int, port: int = 0) -> Daemon:
        """Start the process of a node; port 0 = any."""
        return launch(self.directory / f"node-{number}", self.options, port=port)

    def _ready(self, daemon: Daemon) -> Daemon:
        self.started.append(daemon)
        daemon.wait_ready()
        return daemon

    def address(self, number: int) -> str:
        """Name the address at which other nodes reach a node."""
        return HOST


@attrs.define
class HostedDaemon(Daemon):
    """A daemon on a host of its own."""

    def redis(self, **options: object) -> redis.Redis:
        """Connect from this host, which is not on that network."""
        path = str(socket_of(self.directory))
        return redis.Redis(unix_socket_path=path, **{**PLAIN, **options})


def socket_of(directory: Path) -> Path:
    """Name the socket of a node."""
    return directory.with_suffix(".socket")


@attrs.define
class HostedCluster(Cluster):
    """One node on each host of a network; clients come by Unix sockets, which no cut touches."""

    network: Network = attrs.field(kw_only=True)

    def address(self, number: int) -> str:
        """Name the address that other nodes reach."""
        return self.network.address(number)

    def launch(self, number: int, port: int = 0) -> Daemon:
        """Start a node on its host, where no port is taken."""
        directory = self.directory / f"node-{number}"
        directory.mkdir(exist_ok=True)
        log_file = directory.with_suffix(".log")
        argv = [*self.network.inside(number), *DAEMON, *self._settings(number, directory)]
        with log_file.open("ab") as log:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(), cwd="/"
            )
        return HostedDaemon(process, HOSTED_PORT, directory, log_file)

    def _settings(self, number: int, directory: Path) -> Sequence[str]:
        own = ("--dir", str(directory), "--unixsocket", str(socket_of(directory)))
        clients = ("--port", str(HOSTED_PORT), "--bind", HOST)
        bus = ("--cluster-bind", self.address(number), "--cluster-secret", SECRET)
        return (*own, *clients, *bus, *self.options)


@contextlib.contextmanager
def ends_well(cluster: AnyCluster) -> Iterator[AnyCluster]:
    """Let no process of a cluster outlive the `with`, and look at each of them when nothing has failed before."""
    try:
        yield cluster
        cluster.end()
    finally:
        cluster.abandon()
