"""redis-benchmark as the client of both servers, so that the client costs the same.

It sends any command it is given, over many connections, pipelined or not.  It ends at the first error reply, so a
figure always belongs to commands that were carried out.
"""

import csv
import subprocess
from collections.abc import Sequence

import attrs

CONNECTIONS = 50


class LoadFailed(Exception):
    """redis-benchmark did not do what it was asked; the text says why."""


@attrs.frozen
class Report:
    """What redis-benchmark says of a load."""

    rate: float  #: commands a second
    p99_ms: float  #: how long 99 of 100 commands took at most, as their client saw it


def parse_report(output: str) -> Report:
    """Read the output of `redis-benchmark --csv`.  Raises LoadFailed."""
    rows = list(csv.reader(line for line in output.splitlines() if line.startswith('"')))
    header = rows[0] if rows else []
    if len(rows) != 2 or not {"rps", "p99_latency_ms"} <= set(header):
        raise LoadFailed(f"no figures from redis-benchmark but {output.strip()[:200]!r}")
    found = dict(zip(header, rows[1], strict=True))
    try:
        return Report(float(found["rps"]), float(found["p99_latency_ms"]))
    except ValueError:
        raise LoadFailed(f"{rows[1]} holds no rate or no time of requests") from None


def whole(count: float, pipeline: int, connections: int = CONNECTIONS) -> int:
    """Round a number of commands so that every connection sends the same number of full pipelines."""
    unit = pipeline * connections
    return max(1, round(count / unit)) * unit


def run(
    port: int, command: Sequence[str], count: int, pipeline: int, limit_s: float, *, encrypted: bool = False
) -> Report:
    """Send a command `count` times, to a port with TLS if it is to be encrypted.  Raises LoadFailed."""
    arguments = ["redis-benchmark", "-h", "127.0.0.1", "-p", str(port), "-c", str(CONNECTIONS), "-n", str(count)]
    if encrypted:
        arguments += ["--tls", "--insecure"]
    try:
        done = subprocess.run(
            [*arguments, "-P", str(pipeline), "--csv", *command],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=max(1.0, limit_s),
            check=False,
        )
    except FileNotFoundError:
        raise LoadFailed("redis-benchmark is not installed (Debian package redis-tools)") from None
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"{count} times {' '.join(command)[:60]} took more than {limit_s:.0f} s") from None
    if done.returncode or "Error from server" in done.stdout:
        raise LoadFailed(f"{' '.join(command)[:60]}: {(done.stdout + done.stderr).strip()[-200:]}")
    return parse_report(done.stdout)
