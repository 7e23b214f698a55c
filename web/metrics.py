"""Metrics for Prometheus: of the whole node, and of each queue; written in pieces, so that nobody waits for them.

    GET /metrics            walk over the queues, SLICE_ROWS a turn --> sums --> families --+
    GET /metrics/per-queue  walk over the queues --> rows, `limit` at most --> families ----+
                                                                                            |
                     text, or OpenMetrics where the reader takes it <-- PIECE samples a turn +

A piece is a family with some of its samples, written by prometheus-client; the lines about the family are left out of
all its pieces but the first.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import attrs
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from disqued.core.glob import matches
from disqued.core.queues import Queue
from disqued.web import families
from disqued.web.families import Sums
from disqued.web.gateway import SLICE_ROWS, Gateway
from disqued.web.pulse import Pulse
from disqued.web.turns import next_turn

PIECE: Final = 100  #: samples written in one turn of the loop, less than a millisecond's work
QUEUES_SHOWN: Final = 1_000  #: queues of /metrics/per-queue, unless told otherwise
QUEUES_MAX: Final = 10_000

_END = b"# EOF\n"


@attrs.frozen
class _Row:
    """A queue at one moment."""

    label: str
    jobs_in: int
    jobs_out: int
    length: int
    age_s: float
    idle_s: float
    blocked: int
    oldest_s: float


#: Families of /metrics/per-queue: name, meaning, kind, value.
PER_QUEUE: Final[tuple[tuple[str, str, type[Any], Callable[[_Row], float]], ...]] = (
    ("disque_queue_jobs_in", "Times that a job was queued.", CounterMetricFamily, lambda row: row.jobs_in),
    ("disque_queue_jobs_out", "Times that a job was handed out.", CounterMetricFamily, lambda row: row.jobs_out),
    ("disque_queue_len_jobs", "Jobs that wait.", GaugeMetricFamily, lambda row: row.length),
    ("disque_queue_age_seconds", "Since the queue came into being.", GaugeMetricFamily, lambda row: row.age_s),
    ("disque_queue_idle_seconds", "Since the queue was used last.", GaugeMetricFamily, lambda row: row.idle_s),
    ("disque_queue_blocked_workers", "Consumers that wait.", GaugeMetricFamily, lambda row: row.blocked),
    (
        "disqued_queue_oldest_job_age_seconds", "Age of the job that waits first; 0 = none waits.",
        GaugeMetricFamily, lambda row: row.oldest_s,
    ),
)  # fmt: skip


@attrs.frozen
class _Families:
    """What an encoder takes for a registry."""

    families: Sequence[Metric]

    def collect(self) -> Sequence[Metric]:
        """All of them."""
        return self.families


class Metrics:
    """The exporter of one site; a collector of its own registry."""

    def __init__(self, gateway: Gateway, pulse: Pulse) -> None:
        """`pulse` knows the lag of the loop."""
        self.registry = CollectorRegistry(auto_describe=False)
        self._gateway = gateway
        self._pulse = pulse
        self._sums = Sums()
        self.registry.register(self)

    def describe(self) -> list[Metric]:
        """Nothing beforehand: what there is, `collect` says."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The families of the node, with what the last walk over the queues found."""
        return families.of_node(self._gateway, self._sums, self._pulse)

    async def of_node(self, accept: str) -> tuple[bytes, str]:
        """Everything about the node: text and its media type, as the header Accept says."""
        self._pulse.look()
        self._sums = await self._add_up()
        return await self._write(self.registry.collect(), accept)

    async def of_queues(self, accept: str, *, limit: int, match: bytes | None) -> tuple[bytes, str]:
        """Every queue whose name fits the pattern, `limit` at most: text and its media type."""
        self._pulse.look()
        rows, left_out = await self._rows(limit, match)
        return await self._write(_of_rows(rows, left_out), accept)

    # Looking.

    async def _add_up(self) -> Sums:
        sums = Sums()
        async for queues in self._slices():
            for queue in queues:
                _add(sums, queue)
        return sums

    async def _rows(self, limit: int, match: bytes | None) -> tuple[list[_Row], int]:
        """Queues in the order of their creation, and how many more there are."""
        clock = self._gateway.node.clock
        rows: dict[str, _Row] = {}
        left_out = 0
        async for queues in self._slices():
            now, wall = clock.now(), clock.wall()
            for queue in queues:
                if match is not None and not matches(match, queue.name):
                    continue
                label = queue.name.decode("utf-8", "backslashreplace")
                if len(rows) < limit and label not in rows:
                    rows[label] = _row(queue, label, now, wall)
                else:
                    left_out += 1
        return list(rows.values()), left_out

    async def _slices(self) -> Any:
        """All queues, some in each turn of the loop."""
        serial = 0
        while queues := self._gateway.node.state.queues.from_serial(serial, SLICE_ROWS):
            yield queues
            serial = queues[-1].serial + 1
            await next_turn(self._gateway.reactor)

    # Writing.

    async def _write(self, found: Iterable[Metric], accept: str) -> tuple[bytes, str]:
        encode, media = choose_encoder(accept)
        texts: list[bytes] = []
        for piece, headless in _pieces(found):
            texts.append(_text(encode, piece, headless=headless))
            await next_turn(self._gateway.reactor)
        if "openmetrics" in media:
            texts.append(_END)
        return b"".join(texts), media


def _pieces(found: Iterable[Metric]) -> Iterator[tuple[list[Metric], bool]]:
    """Small families together, large ones in pieces; with each whether it goes on with the family before."""
    piece: list[Metric] = []
    size = 0
    name = ""
    for family in found:
        if piece and size + len(family.samples) > PIECE:
            yield piece, False
            piece, size = [], 0
        if family.name == name:
            yield [family], True
        else:
            piece.append(family)
            size += len(family.samples)
        name = family.name
    if piece:
        yield piece, False


def _text(encode: Callable[[Any], bytes], found: Sequence[Metric], *, headless: bool) -> bytes:
    """Families as text; without the lines that begin one."""
    text = encode(_Families(found)).removesuffix(_END)
    if headless:
        return b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"#"))
    return text


def _add(sums: Sums, queue: Queue) -> None:
    sums.queues += 1
    length = len(queue.units)
    if length:
        sums.queued += length
        ctime = queue.units.first.job.ctime
        if sums.oldest_ctime is None or ctime < sums.oldest_ctime:
            sums.oldest_ctime = ctime
    if sums.created_at is None or queue.created_at < sums.created_at:
        sums.created_at = queue.created_at
    if sums.accessed_at is None or queue.accessed_at > sums.accessed_at:
        sums.accessed_at = queue.accessed_at


def _row(queue: Queue, label: str, now: int, wall: int) -> _Row:
    oldest_ms = max(0, wall - queue.units.first.job.ctime // 1_000_000) if len(queue.units) else 0
    return _Row(
        label, queue.jobs_in, queue.jobs_out, len(queue.units), (now - queue.created_at) / 1_000,
        max(0, now - queue.accessed_at) / 1_000, len(queue.waiters), oldest_ms / 1_000,
    )  # fmt: skip


def _of_rows(rows: Sequence[_Row], left_out: int) -> Iterator[Metric]:
    """Families of queues, large ones in pieces of the same name."""
    yield GaugeMetricFamily("disqued_queues_exported", "Queues that are in this answer.", value=len(rows))
    yield GaugeMetricFamily(
        "disqued_queues_left_out", "Queues that fit and are not in this answer: more than `limit`.", value=left_out
    )
    for name, doc, kind, value in PER_QUEUE:
        for at in range(0, len(rows), PIECE):
            family = kind(name, doc, labels=["queue"])
            for row in rows[at : at + PIECE]:
                family.add_metric([row.label], value(row))
            yield family
