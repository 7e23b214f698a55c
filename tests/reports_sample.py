"""A file of reports for tests and pictures: three queues over some weeks, an audit that found something, and runs."""

import math
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from disqued.pipeline.reports.store import Reports
from disqued.reports.layout import moment

NOW = int(datetime(2026, 11, 22, 10, 5, tzinfo=UTC).timestamp())
HOUR_S = 3_600
DAY_S = 24 * HOUR_S
#: Name, jobs an hour at noon, milliseconds that its jobs wait and are worked on.
QUEUES = (("mail", 4_200, 35, 180), ("invoices", 900, 400, 2_600), ("thumbnails", 2_300, 90, 750))
TARGETS_US = {"wait": 1_000_000, "run": 5_000_000, "age": 10_000_000}


def write(path: Path, now: int = NOW, days: int = 28) -> None:
    """Make the file as runs of all jobs would."""
    with closing(Reports(path, lambda: now)) as reports:
        reports.put_queues(_spans("hour", now // HOUR_S * HOUR_S, HOUR_S, min(days, 8) * 24))
        reports.put_queues(_spans("day", now // DAY_S * DAY_S, DAY_S, days))
        reports.put_slo(_targets(now // DAY_S * DAY_S, days))
        reports.put_audit(_audit(now - 2 * DAY_S, "loss", {"lost": 1, "acked-twice": 2}), FAULTS)
        reports.put_audit(_audit(now - DAY_S, "clean", {}), [])
        reports.put_findings(FINDINGS)
        for number, job in enumerate(("ingest", "lifecycle", "rollup", "slo", "audit", "doctor")):
            began = now - 900 + 60 * number
            reports.note_run(job, began=began, ended=began + 9.4 + number, status="done", rows=120_000 >> number)
        reports.note_run(
            "audit", began=now - 60, ended=now - 55, status="failed", rows=0, note="Misused: no such folder /srv/events"
        )


def _busy(at: int) -> float:
    """How busy it is at some time of the day and the week."""
    day = 0.55 - 0.45 * math.cos(2 * math.pi * (at % DAY_S) / DAY_S)
    return day * (0.35 if (at // DAY_S + 4) % 7 in (0, 6) else 1.0)


def _spans(grain: str, last: int, step_s: int, steps: int) -> Iterator[dict[str, Any]]:
    for number in range(steps):
        at = last - (steps - 1 - number) * step_s
        for place, (queue, rate, wait_ms, run_ms) in enumerate(QUEUES):
            load = _busy(at + place * HOUR_S) if step_s == HOUR_S else (0.4 if (at // DAY_S + 4) % 7 in (0, 6) else 1.0)
            adds = round(rate * load * step_s / HOUR_S * (1 + 0.1 * math.sin(number * (place + 2))))
            again = round(adds * 0.004 * (1 + math.sin(number / 3) ** 2))
            yield {
                "queue": queue, "grain": grain, "at": moment(at), "adds": adds, "delivers": adds + again - adds // 90,
                "acks": adds - adds // 60, "nacks": again // 3, "requeues": again - again // 3, "expires": adds // 900,
                "deletes": 0, "evicts": 0, "bytes": adds * 310,
                **_latencies("wait", wait_ms * (1 + 2 * load**3)), **_latencies("run", run_ms * (1 + load / 4)),
                **_latencies("age", (wait_ms + run_ms) * (1 + load)),
            }  # fmt: skip


def _latencies(measure: str, half_ms: float) -> dict[str, int]:
    return {
        f"{measure}_p{part}_us": round(half_ms * 1_000 * factor) for part, factor in ((50, 1), (95, 2.4), (99, 4.1))
    }


def _targets(last: int, days: int) -> Iterator[dict[str, Any]]:
    for number in range(days):
        at = last - (days - 1 - number) * DAY_S
        for queue, rate, wait_ms, run_ms in QUEUES:
            half = {"wait": wait_ms * 3, "run": run_ms, "age": wait_ms + run_ms}
            for measure, target_us in TARGETS_US.items():
                p99 = round(half[measure] * 4_100 * (1 + 0.2 * math.sin(number)))
                deliveries = rate * 14
                again = round(deliveries * 0.012 * (1 + 0.8 * math.sin(number / 2)))
                yield {
                    "date": moment(at)[:10], "queue": queue, "measure": measure, "count": deliveries - again,
                    "p50_us": half[measure] * 1_000, "p95_us": p99 * 6 // 10, "p99_us": p99, "target_us": target_us,
                    "over": 0.031 if p99 > target_us else 0.0004, "deliveries": deliveries, "redeliveries": again,
                    "redelivery": again / deliveries,
                }  # fmt: skip


def _audit(checked: int, verdict: str, counts: dict[str, int]) -> dict[str, Any]:
    midnight = checked // DAY_S * DAY_S
    return {
        "checked_at": moment(checked), "since": moment(midnight - DAY_S), "until": moment(midnight), "nodes": 3,
        "events": 284_133, "verdict": verdict, "counts": counts,
    }  # fmt: skip


FAULTS: tuple[dict[str, Any], ...] = (
    {
        "kind": "lost", "job_id": "D-1f0e2d3c-4kZb0rYpVwQm2sLn7dXt8uAe-05a1", "queue": "invoices", "node": "1f0e2d3c",
        "boot": 1_795_330_562, "seq": 52_114, "at_us": 1_795_164_301_250_000,
        "detail": "its producer heard that it was added; its TTL is over, and no node tells of an end",
    },
    {
        "kind": "acked-twice", "job_id": "D-77aa01bc-9rTq1xWnKc3vHd5mZs6bJy0g-05a1", "queue": "mail",
        "node": "77aa01bc", "boot": 1_795_331_000, "seq": 9_127, "at_us": 1_795_170_777_000_000,
        "detail": "acknowledged on this node, which had heard of an ack before",
    },
)  # fmt: skip
FINDINGS: tuple[dict[str, Any], ...] = (
    {
        "date": "2026-11-22", "kind": "no_consumers", "queue": "thumbnails", "count": 1_204,
        "since_us": 1_795_250_000_000_000, "detail": "nobody has taken a job of this queue for 13 h",
        "advice": "Jobs wait and nobody takes them. See whether consumers of this queue run.",
    },
    {
        "date": "2026-11-22", "kind": "poison", "queue": "invoices", "job_id": FAULTS[0]["job_id"], "count": 1,
        "since_us": 1_795_240_000_000_000, "detail": "given back 41 times",
        "advice": "Consumers give these jobs back (NACK). Look at the body of one.",
    },
)  # fmt: skip
