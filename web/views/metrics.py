"""Metrics for Prometheus: of the whole node, and of each queue; written in pieces, so that nobody waits for them.

    GET /metrics            walk over the queues, LOOKED_AT a turn --> sums --> families --PIECE samples a turn--+
    GET /metrics/per-queue  walk over the queues --> rows, `limit` at most --> families --LINES samples a turn---+
                            and their groups, `limit` at most, too
                                                                                                                 |
                                           text, or OpenMetrics where the reader takes it <----------------------+

prometheus-client writes everything but the samples of queues: these are very many, and are the same in both formats.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import attrs
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from disqued.core.model.glob import matches
from disqued.core.model.phases import PhaseCounts
from disqued.core.model.queues import Queue
from disqued.web.gateway import NAME_MAX, Gateway
from disqued.web.turns import next_turn
from disqued.web.views import group_views, metric_families
from disqued.web.views.metric_families import QueueTotals
from disqued.web.views.pulse import Pulse

PIECE: Final = 50  #: samples written by prometheus-client in one turn of the loop, less than a millisecond's work
LINES: Final = 500  #: samples of queues written in one turn, less than that: they are all alike
LOOKED_AT: Final = 200  #: queues looked at in one turn
QUEUES_SHOWN: Final = 1_000  #: queues of /metrics/per-queue, unless told otherwise
QUEUES_MAX: Final = 10_000

_END = b"# EOF\n"


#: The labels of a sample, and its values: one for each family, in their order.
_Row = tuple[Any, ...]
#: Name, meaning, kind.
_Families = tuple[tuple[str, str, type[Any]], ...]

#: Families of /metrics/per-queue, and of the groups of these queues.
PER_QUEUE: Final[_Families] = (
    ("disqued_queue_jobs_in", "Times that a job was queued.", CounterMetricFamily),
    (
        "disqued_queue_jobs_out",
        "Times that a job was handed out, to consumers and to other nodes.",
        CounterMetricFamily,
    ),
    ("disqued_queue_len_jobs", "Jobs that wait, and events that are kept.", GaugeMetricFamily),
    ("disqued_queue_age_seconds", "Since the queue came into being.", GaugeMetricFamily),
    ("disqued_queue_idle_seconds", "Since the queue was used last.", GaugeMetricFamily),
    ("disqued_queue_blocked_workers", "Consumers that wait.", GaugeMetricFamily),
    ("disqued_queue_oldest_job_age_seconds", "Age of the job that waits first; 0 = none waits.", GaugeMetricFamily),
    ("disqued_queue_dead_jobs", "Dead jobs that this node holds.", GaugeMetricFamily),
    ("disqued_queue_failing_jobs", "Other jobs that failed, as far as this node knows.", GaugeMetricFamily),
    ("disqued_queue_delayed_jobs", "Jobs that this node queues when their delay is over.", GaugeMetricFamily),
    ("disqued_queue_ready_jobs", "Jobs in the queue of this node, and events that are kept.", GaugeMetricFamily),
    ("disqued_queue_in_flight_jobs", "Jobs with consumers of this node.", GaugeMetricFamily),
    (
        "disqued_queue_elsewhere_jobs",
        "Jobs neither in the queue of this node nor with consumers of it: mostly copies for other nodes.",
        GaugeMetricFamily,
    ),
    ("disqued_queue_done_jobs", "Acknowledged jobs: kept until all nodes know, or for a result.", GaugeMetricFamily),
    (
        "disqued_slots_in_use",
        "Jobs with consumers in the whole cluster, as this node knows; 0 without limits.",
        GaugeMetricFamily,
    ),
    ("disqued_slots_limit", "How many there may be (INFLIGHT); 0 = no limit.", GaugeMetricFamily),
    ("disqued_slots_awaited", "Jobs for which this node has asked for a slot and has none yet.", GaugeMetricFamily),
    ("disqued_slots_refused", "Of these: those that have to wait, as the steward has answered.", GaugeMetricFamily),
)


PER_GROUP: Final[_Families] = (
    ("disqued_group_available_events", "Events that a group has yet to be given: how far it lags behind.",
     GaugeMetricFamily),
    ("disqued_group_redo_events", "Events that wait for a group again.", GaugeMetricFamily),
    ("disqued_group_inprogress_events", "Events that consumers of a group have.", GaugeMetricFamily),
    ("disqued_group_done_events", "Events that a group is done with, of those that are kept.", GaugeMetricFamily),
    ("disqued_group_consumers", "Consumers of a group that wait, or are registered.", GaugeMetricFamily),
)  # fmt: skip


@attrs.frozen
class _Registry:
    """What an encoder takes for a registry."""

    families: Sequence[Metric]

    def collect(self) -> Sequence[Metric]:
        return self.families


class Metrics:
    """The exporter of one site; it has nothing to do with the registry of the process."""

    def __init__(self, gateway: Gateway, pulse: Pulse) -> None:
        """`pulse` knows the lag of the loop."""
        self._gateway = gateway
        self._pulse = pulse

    async def of_node(self, accept: str) -> tuple[bytes, str]:
        """Everything about the node: text and its media type, as the header Accept says."""
        self._pulse.look()
        sums = await self._add_up()
        return await self._write(metric_families.of_node(self._gateway, sums, self._pulse), accept)

    async def of_queues(self, accept: str, *, limit: int, match: bytes | None) -> tuple[bytes, str]:
        """Every queue whose name fits the pattern, `limit` at most: text and its media type."""
        self._pulse.look()
        groups: list[_Row] = []
        rows, left_out, groups_left_out = await self._rows(limit, match, groups)
        encode, media = _encoder(accept)
        texts = [_text(encode, _about_rows(len(rows), left_out, len(groups), groups_left_out))]
        for families, samples, labels in ((PER_QUEUE, rows, ["queue"]), (PER_GROUP, groups, ["queue", "group"])):
            for place, (name, doc, kind) in enumerate(families, 1):
                texts.append(_text(encode, [kind(name, doc, labels=labels)]))
                sample = f"{name}_total" if kind is CounterMetricFamily else name
                for at in range(0, len(samples), LINES):
                    lines = [f"{sample}{{{row[0]}}} {row[place]}\n" for row in samples[at : at + LINES]]
                    texts.append("".join(lines).encode("utf-8", "backslashreplace"))
                    await next_turn(self._gateway.turns)
        return _ended(texts, media), media

    # Looking.

    async def _add_up(self) -> QueueTotals:
        sums = QueueTotals()
        async for queues in self._slices():
            for queue in queues:
                if queue.serial:
                    _add(sums, queue)
        return sums

    async def _rows(self, limit: int, match: bytes | None, groups: list[_Row]) -> tuple[list[_Row], int, int]:
        """Queues in the order in which they came, how many more there are, and how many more groups.

        What there is to say of the groups of these queues is added to `groups`, `limit` at most.
        """
        node = self._gateway.view
        rows: dict[str, _Row] = {}
        left_out = groups_left_out = 0
        async for queues in self._slices():
            now, wall = node.now(), node.wall()
            for queue in queues:
                if match is not None and not matches(match, queue.name):
                    continue
                label = _label(queue.name) if len(queue.name) <= NAME_MAX else None
                if label is not None and len(rows) < limit and label not in rows:
                    rows[label] = (
                        *_row(queue, label, now, wall),
                        *node.dead_failing_delayed(queue.name),
                        *_phases(node.phases.count(queue.name)),
                        len(node.limits.slots_of(queue.name)),
                        node.limits.of(queue.name).in_flight,
                        *node.limits.awaited(queue),
                    )
                    groups_left_out += self._add_groups(queue, label, limit, groups)
                else:
                    left_out += 1
        return list(rows.values()), left_out, groups_left_out

    def _add_groups(self, queue: Queue, label: str, limit: int, groups: list[_Row]) -> int:
        """Add the groups of a queue to those that are shown, as far as there is room; returns how many had none."""
        if queue.stream is None:
            return 0
        found = group_views.groups_of(queue)
        unseen = len(queue.stream.groups) - len(found) if len(queue.stream.groups) > group_views.GROUPS_LOOKED_AT else 0
        room = max(0, limit - len(groups))
        for group in found[:room]:
            row = group_views.row_of(self._gateway.view, group)
            labels = f'queue="{label}",group="{_label(group.name)}"'
            groups.append((labels, row.available, row.redo, row.inprogress, row.done, row.consumers))
        return len(found[room:]) + unseen

    async def _slices(self) -> Any:
        """All queues, and what stands in for those with jobs alone (serial 0); some in each turn of the loop."""
        serial = 0
        while True:
            queues, serial = self._gateway.view.known_from(serial, LOOKED_AT)
            if not serial:
                return
            yield queues
            await next_turn(self._gateway.turns)

    # Writing.

    async def _write(self, found: Iterable[Metric], accept: str) -> tuple[bytes, str]:
        encode, media = _encoder(accept)
        texts: list[bytes] = []
        for piece in _pieces(found):
            texts.append(_text(encode, piece))
            await next_turn(self._gateway.turns)
        return _ended(texts, media), media


def _encoder(accept: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
    """The writer for a header Accept, and its media type; one that cannot be read asks for nothing in particular."""
    try:
        return choose_encoder(accept)
    except (TypeError, ValueError):  # it compares what is no number with a version
        return choose_encoder("")


def _pieces(found: Iterable[Metric]) -> Iterator[list[Metric]]:
    """Families, several small ones together."""
    piece: list[Metric] = []
    size = 0
    for family in found:
        if piece and size + len(family.samples) > PIECE:
            yield piece
            piece, size = [], 0
        piece.append(family)
        size += len(family.samples)
    yield piece


def _text(encode: Callable[[Any], bytes], found: Sequence[Metric]) -> bytes:
    """Families as text."""
    return encode(_Registry(found)).removesuffix(_END)


def _ended(texts: list[bytes], media: str) -> bytes:
    if "openmetrics" in media:
        texts.append(_END)
    return b"".join(texts)


def _add(sums: QueueTotals, queue: Queue) -> None:
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
    return (f'queue="{label}"', queue.jobs_in, queue.jobs_out, queue.length, (now - queue.created_at) / 1_000,
            max(0, now - queue.accessed_at) / 1_000, len(queue.waiters), oldest_ms / 1_000)  # fmt: skip


def _phases(counts: PhaseCounts) -> tuple[int, ...]:
    return counts.ready, counts.in_flight, counts.elsewhere, counts.done


def _about_rows(count: int, left_out: int, groups: int, groups_left_out: int) -> list[Metric]:
    told = (
        ("queues_exported", "Queues that are in this answer.", count),
        ("queues_left_out",
         "Queues that fit and are not in this answer: more than `limit`, or with names of kilobytes.", left_out),
        ("groups_exported", "Groups of consumers that are in this answer.", groups),
        ("groups_left_out", "Groups of these queues that are not in this answer: more than `limit`.", groups_left_out),
    )  # fmt: skip
    return [GaugeMetricFamily(f"disqued_{name}", doc, value=value) for name, doc, value in told]


def _label(name: bytes) -> str:
    """The name of a queue as the value of a label."""
    text = name.decode("utf-8", "backslashreplace")
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
