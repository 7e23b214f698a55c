"""What the figures depend on: the machine, its load, the versions of everything, the commit.

The server runs on one processor and the client on another, where there are two: else the scheduler moves them about
and the figures of one round say nothing about the next.
"""

import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attrs

ROOT = Path(__file__).resolve().parent.parent
#: What daemons have for a core: ``compiled``, what `make compiled` put into build/compiled, or the ``source``.
BUILD = os.environ.get("DISQUED_BUILD", "source")
#: PYTHONPATH of daemons.
IMPORT_PATH = os.pathsep.join(map(str, (ROOT / "build" / "compiled", ROOT) if BUILD == "compiled" else (ROOT,)))


@attrs.frozen
class Processors:
    """Where servers and clients run; both None when they are not bound to a processor."""

    server: int | None
    client: int | None

    @classmethod
    def find(cls) -> "Processors":
        """Choose two of the processors that this process may use."""
        allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        return cls(allowed[0], allowed[1]) if len(allowed) > 1 else cls(None, None)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Within this, processes are started on the processor of the servers."""
        if self.server is None:
            yield
            return
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self.server})
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)

    def become_client(self) -> None:
        """Move this process, and the programs that it starts from now on, to the processor of the clients."""
        if self.client is not None:
            os.sched_setaffinity(0, {self.client})

    def __str__(self) -> str:
        if self.server is None:
            return "server and client not bound to processors"
        return f"server on CPU {self.server}, client on CPU {self.client}"


def facts(processors: Processors, redis: str) -> dict[str, Any]:
    """Everything that a figure depends on."""
    return {
        "cpu": _processor_name(),
        "cpus": os.cpu_count(),
        "placement": str(processors),
        "load_average": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "core": BUILD,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "twisted": version("twisted"),
        "hiredis": version("hiredis"),
        "redis": redis,
        "commit": commit(),
    }


def stamp(known: dict[str, Any]) -> str:
    """The same in a line."""
    return (
        f"{known['cpu']} x{known['cpus']}, {known['system']}, load {known['load_average']} at the start, "
        f"{known['placement']}; core {known['core']}, {known['python']}, Twisted {known['twisted']}, "
        f"hiredis {known['hiredis']}, redis {known['redis']}; commit {known['commit']}"
    )


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def commit() -> str:
    """The commit that is measured, with a + when files differ from it."""
    try:
        head = _git("rev-parse", "--short", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--", "disqued", "persistence") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()
