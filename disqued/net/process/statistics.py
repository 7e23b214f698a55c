"""Counters of the daemon, and what INFO says that the node does not know.

Rates are the mean of the last 16 samples, one every 100 ms, as in Disque.  An idle daemon takes none:

    resting --the first command--> sampling, a timer --16 equal samples--> resting, no timer at all

While it rests, dispatch looks at every command, so that otherwise no command has to ask whether to wake.
"""

import os
import platform
import resource
import secrets
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.task import LoopingCall

import disqued.core.node
from disqued.config import Config
from disqued.net.clients.access import Access
from disqued.net.clients.client_registry import ClientRegistry
from disqued.net.clients.traffic import Traffic
from disqued.net.cluster.bus import Bus
from disqued.net.loop.buffers import Buffers
from disqued.net.loop.certificates import TlsListeners
from disqued.net.process.crashes import CrashReports
from disqued.net.process.loading import Loader
from disqued.net.process.storekeeper import StoreKeeper
from disqued.persistence.interface import IEventLog

SAMPLES = 16
_PAGE = resource.getpagesize()


def core_build() -> str:
    """Return how the core was installed: `compiled`, or `source` for the modules as they are."""
    return "source" if disqued.core.node.__file__.endswith(".py") else "compiled"


class DaemonParts(Protocol):
    """The parts of a daemon that INFO describes."""

    config: Config
    reactor: Any
    access: Access
    buffers: Buffers
    bus: Bus
    clients: ClientRegistry
    crashes: CrashReports
    event_log: IEventLog
    loader: Loader
    stores: StoreKeeper
    tls: TlsListeners
    traffic: Traffic


class Statistics:
    """Counters and rates of one daemon."""

    SAMPLE_S = 0.1

    def __init__(self, started_at: int) -> None:
        self.started_at = started_at  #: monotonic milliseconds
        self.run_id = secrets.token_hex(20)
        self.executable = executable()  # now: going into the background changes the current folder
        self.resting = True  #: nothing happens, and no timer runs; whoever sees a command begin calls `wake`
        self._sampling: LoopingCall | None = None
        self._rest_or_wake: Callable[[], None] = lambda: None
        self.reset()

    def reset(self) -> None:
        """Zero the counters."""
        #: (monotonic ms, commands run, bytes in, bytes out), oldest first.
        self._samples: deque[tuple[int, int, int, int]] = deque(maxlen=SAMPLES + 1)

    def watch(self, daemon: DaemonParts, rest_or_wake: Callable[[], None]) -> None:
        """Take samples of a daemon from its next command on; `rest_or_wake` is called when `resting` has changed."""
        self._sampling = LoopingCall(self._sample_or_rest, daemon)
        self._sampling.clock = daemon.reactor
        self._rest_or_wake = rest_or_wake

    def wake(self) -> None:
        """A command begins: take samples again, if they are not taken."""
        if self.resting and self._sampling is not None:
            self.resting = False
            self._samples.clear()  # what came while nobody looked belongs to no rate
            self._sampling.start(self.SAMPLE_S)
            self._rest_or_wake()

    def stop(self) -> None:
        """Take no samples any more."""
        if self._sampling is not None and self._sampling.running:
            self._sampling.stop()

    def _sample_or_rest(self, daemon: DaemonParts) -> None:
        self.sample(daemon)
        samples = self._samples
        if len(samples) > SAMPLES and samples[0][1:] == samples[-1][1:]:
            self.stop()
            self.resting = True
            self._rest_or_wake()

    def sample(self, daemon: DaemonParts) -> None:
        """Note the counters as they are now."""
        traffic = daemon.traffic
        self._samples.append(
            (traffic.node.clock.now(), traffic.dispatch.commands_run, traffic.bytes_in, traffic.bytes_out)
        )

    def _rates(self) -> tuple[int, float, float]:
        """Commands a second, KiB/s in, KiB/s out."""
        if len(self._samples) < 2:
            return 0, 0.0, 0.0
        first, last = self._samples[0], self._samples[-1]
        seconds = max(1, last[0] - first[0]) / 1_000
        commands, received, sent = (max(0, last[index] - first[index]) / seconds for index in (1, 2, 3))
        return round(commands), received / 1_024, sent / 1_024

    def facts(self, daemon: DaemonParts) -> dict[str, dict[str, Any]]:
        """Sections and fields of INFO that only the daemon knows."""
        return {
            "Server": self._server(daemon),
            "Clients": {**daemon.clients.facts(), **daemon.buffers.facts()},
            "Memory": {"used_memory_rss": resident_bytes(), "mem_allocator": "pymalloc"},
            "Persistence": self._persistence(daemon),
            "Events": daemon.event_log.facts(),
            "Cluster": daemon.bus.facts(),
            "Stats": self._stats(daemon),
            "CPU": _cpu(),
        }

    def _server(self, daemon: DaemonParts) -> dict[str, Any]:
        uptime = (daemon.traffic.node.clock.now() - self.started_at) // 1_000
        config = daemon.config
        return {
            "os": f"{platform.system()} {platform.release()} {platform.machine()}",
            "arch_bits": 64 if sys.maxsize > 2**32 else 32,
            "multiplexing_api": type(daemon.reactor).__name__.removesuffix("Reactor").lower(),
            "python_version": platform.python_version(),
            "core_build": core_build(),
            "process_id": os.getpid(),
            "run_id": self.run_id,
            "tcp_port": config.port,
            **daemon.tls.facts(),
            "uptime_in_seconds": uptime,
            "uptime_in_days": uptime // 86_400,
            "executable": self.executable,
            "config_file": "" if config.file is None else str(config.file),
        }

    @staticmethod
    def _persistence(daemon: DaemonParts) -> dict[str, Any]:
        loading = daemon.traffic.dispatch.loading
        facts = {"loading": int(loading), **daemon.stores.facts(), **disk_space(daemon.config.dir)}
        return facts | daemon.loader.facts() if loading else facts

    def _stats(self, daemon: DaemonParts) -> dict[str, Any]:
        commands, received, sent = self._rates()
        return {
            "total_connections_received": daemon.clients.accepted,
            "total_commands_processed": daemon.traffic.dispatch.commands_run,
            "instantaneous_ops_per_sec": commands,
            "total_net_input_bytes": daemon.traffic.bytes_in,
            "total_net_output_bytes": daemon.traffic.bytes_out,
            "instantaneous_input_kbps": f"{received:.2f}",
            "instantaneous_output_kbps": f"{sent:.2f}",
            "rejected_connections": daemon.clients.refused,
            "latest_fork_usec": 0,
            "internal_errors": daemon.crashes.count,
            "unauthenticated_clients_ended": daemon.clients.unauthenticated.ended,
            **daemon.access.facts(),
        }


def executable() -> str:
    """The path of the program that runs; that of the interpreter when there is no such file, as with `python -c`."""
    path = os.path.realpath(sys.argv[0])
    return path if os.path.isfile(path) else sys.executable


def resident_bytes() -> int:
    """Resident memory of this process; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        return 0


def disk_space(folder: str | os.PathLike[str]) -> dict[str, int]:
    """Bytes of the file system of a folder, and those that are free to this user; nothing where that is not known."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return {}
    return {"dir_free_bytes": found.f_bavail * found.f_frsize, "dir_size_bytes": found.f_blocks * found.f_frsize}


def _cpu() -> dict[str, Any]:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "used_cpu_sys": f"{own.ru_stime:.2f}",
        "used_cpu_user": f"{own.ru_utime:.2f}",
        "used_cpu_sys_children": f"{children.ru_stime:.2f}",
        "used_cpu_user_children": f"{children.ru_utime:.2f}",
    }
