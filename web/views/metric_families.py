"""What /metrics says of a node: every family of metrics, made of one look at the node and its daemon.

Names follow Prometheus: the prefix disqued_, base units, `_total` for what only grows.  `disqued_queue_*` are those of
the metrics of each queue, here for all queues of the node together.  docs/operations/metrics.md lists them all; a test
holds it against what is exported.
"""

import platform
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from disqued import __version__
from disqued.commands.table import every_command
from disqued.core.model.counters import Counters
from disqued.core.model.peers import FAILING
from disqued.core.view import NodeView
from disqued.web.gateway import Gateway
from disqued.web.views.pulse import Pulse

BUCKETS_SHOWN: Final = 25  #: buckets of a histogram up to 2 ** 24 ms, which is more than four hours; then +Inf

_Labelled = Mapping[str, float]


@attrs.define
class QueueTotals:
    """What a walk over all queues adds up to; None = there is no queue, or no job."""

    queues: int = 0
    queued: int = 0  #: jobs
    oldest_ctime: int | None = None  #: of the job that was created first
    created_at: int | None = None  #: of the queue that was created first, monotonic milliseconds
    accessed_at: int | None = None  #: when any queue was used last, monotonic milliseconds


def _count(name: str, doc: str, value: float) -> Metric:
    return CounterMetricFamily(name, doc, value=value)


def _gauge(name: str, doc: str, value: float) -> Metric:
    return GaugeMetricFamily(name, doc, value=value)


def _counts(name: str, doc: str, label: str, values: _Labelled) -> Metric:
    family = CounterMetricFamily(name, doc, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _gauges(name: str, doc: str, label: str, values: _Labelled) -> Metric:
    family = GaugeMetricFamily(name, doc, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _histogram(name: str, doc: str, buckets: list[int], sum_ms: int) -> Metric:
    """A histogram of seconds from one of powers of two in milliseconds (`core.model.counters`)."""
    total = 0
    shown: list[tuple[str, float]] = []
    for power, count in enumerate(buckets[:BUCKETS_SHOWN]):
        total += count
        shown.append((repr(2**power / 1_000), total))
    shown.append(("+Inf", sum(buckets)))
    return HistogramMetricFamily(name, doc, buckets=shown, sum_value=sum_ms / 1_000)


def of_node(gateway: Gateway, sums: QueueTotals, pulse: Pulse) -> Iterator[Metric]:
    """Every family of the node, in the order in which they are exported."""
    node, facts = gateway.view, gateway.facts()
    yield from _of_daemon(gateway, facts)
    yield from _of_queues(node, sums)
    yield from _of_jobs(node.counters)
    yield from _of_schedules(node)
    yield from _of_workers(node)
    yield from _of_lists(node)
    yield from _of_commands()
    yield from _of_store(gateway, facts.get("Persistence", {}))
    yield from _of_events(facts.get("Events", {}))
    yield from _of_cluster(node, facts.get("Cluster", {}))
    yield from _of_process(node, pulse, facts)


def _of_daemon(gateway: Gateway, facts: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    node = gateway.view
    build = GaugeMetricFamily(
        "disqued_build_info", "Version of disqued and of Python; always 1.", labels=["version", "python"]
    )
    build.add_metric([__version__, platform.python_version()], 1)
    yield build
    yield _gauge("disqued_uptime_seconds", "Since the start.", facts.get("Server", {}).get("uptime_in_seconds", 0))
    yield _gauge("disqued_loading", "1 while the jobs are loaded from the store.", gateway.loading)
    yield _gauge("disqued_leaving", "1 while the node leaves its cluster and takes no new jobs.", node.is_leaving)
    yield _gauge("disqued_read_only", "1 while the journal fails and no jobs are added.", node.is_read_only)
    yield _gauge("disqued_paused", "1 while no commands run: CLIENT PAUSE, or the end.", gateway.paused)
    if ends := gateway.tls.ends:
        yield _gauges("disqued_certificate_expiry_timestamp_seconds",
                      "When a certificate that this node shows ends, since 1970; only with TLS.", "listener",
                      ends)  # fmt: skip


def _of_queues(node: NodeView, sums: QueueTotals) -> Iterator[Metric]:
    counters = node.counters
    now, wall = node.now(), node.wall()
    yield _count("disqued_queue_jobs_in", "Times that a job was queued; what was given back unseen is left out.",
                 counters.queued - counters.returned)  # fmt: skip
    yield _count("disqued_queue_jobs_out", "Times that a job was handed out, to consumers and to other nodes.",
                 counters.given)  # fmt: skip
    yield _gauge("disqued_queue_len_jobs", "Jobs that wait in the queues.", sums.queued)
    age_ms = 0 if sums.created_at is None else now - sums.created_at
    yield _gauge("disqued_queue_age_seconds", "Age of the oldest queue.", age_ms / 1_000)
    idle_ms = 0 if sums.accessed_at is None else now - sums.accessed_at
    yield _gauge("disqued_queue_idle_seconds", "Since any queue was used last.", max(0, idle_ms) / 1_000)
    yield _gauge("disqued_queue_blocked_workers", "Consumers that wait in GETJOB.", node.blocked_count)
    yield _gauge("disqued_queues", "Queues of this node.", sums.queues)
    oldest_ms = 0 if sums.oldest_ctime is None else max(0, wall - sums.oldest_ctime // 1_000_000)
    yield _gauge("disqued_oldest_job_age_seconds",
                 "Age of the oldest job that is the first of a queue; 0 = none waits.", oldest_ms / 1_000)  # fmt: skip
    acked, waiting, jobs = node.acked_count, node.pending_count, node.job_count
    dead, failing, delayed = node.dead_failing_delayed()
    yield _gauges(
        "disqued_jobs", "Jobs that this node holds, by state.", "state",
        {"queued": sums.queued, "acked": acked,
         "active": max(0, jobs - acked - waiting - sums.queued - dead),
         "wait-repl": waiting, "dead": dead},
    )  # fmt: skip
    yield _gauge("disqued_jobs_failing", "Jobs that failed and are not dead, as far as this node knows.",
                 failing)  # fmt: skip
    yield _gauge("disqued_jobs_delayed", "Jobs that this node queues when their delay is over.", delayed)


def _of_jobs(counters: Counters) -> Iterator[Metric]:
    plain = counters.acked - counters.fast_acked - counters.acks_heard
    yield _count("disqued_jobs_added", "Jobs of producers of this node.", counters.added)
    yield _counts("disqued_jobs_refused", "Jobs that were not kept, for want of copies or because the journal failed.",
                  "reason", {"copies": counters.refused, "journal": counters.lost_additions})  # fmt: skip
    yield _count("disqued_jobs_queued", "Times that a job came into a queue.", counters.queued)
    yield _count("disqued_jobs_requeued", "Of these: again, without a NACK.", counters.requeued)
    yield _count("disqued_jobs_dequeued", "Jobs that left a queue and were not delivered.", counters.dequeued)
    yield _count("disqued_deliveries", "Times that a job was handed to a consumer.", counters.delivered)
    yield _count(
        "disqued_redeliveries",
        "Deliveries of jobs that had been queued before, with RETRY above 0.",
        counters.redelivered,
    )
    yield _count(
        "disqued_deliveries_returned", "Deliveries to consumers that were gone; the job went back.", counters.returned
    )
    yield _counts("disqued_acks", "Jobs that were acknowledged, by who said so.", "how",
                  {"ackjob": plain, "fastack": counters.fast_acked, "other_node": counters.acks_heard})  # fmt: skip
    yield _count("disqued_nacks", "Jobs that were given back by NACK.", counters.nacked)
    yield _count("disqued_jobs_died", "Jobs that died here: after the last of their tries, or by NACK DEAD.",
                 counters.buried)  # fmt: skip
    yield _count("disqued_jobs_redriven", "Dead jobs that this node queued again.", counters.redriven)
    yield _count(
        "disqued_jobs_cancelled",
        "Jobs that ended here by CANCEL, a purge or with their queue; each counts on one node of the cluster.",
        counters.cancelled - counters.cancels_heard,
    )
    yield _count(
        "disqued_results_kept",
        "Outcomes of jobs with RESULT, cancelled ones too, that this node kept.",
        counters.outcomes,
    )
    yield _count("disqued_working", "Times that WORKING put a delivery off.", counters.working)
    yield _count("disqued_jobs_expired", "Jobs whose time was over before they were acknowledged.", counters.expired)
    yield _count("disqued_jobs_deleted", "Jobs that were dropped by DELJOB, or by another node.", counters.deleted)
    yield _counts("disqued_jobs_evicted", "Jobs that were dropped for want of memory, by what they were.", "reason",
                  {"acked": counters.evicted_acked, "delivered_once": counters.evicted_once})  # fmt: skip
    yield _count("disqued_copies_received", "Copies taken for other nodes.", counters.copies)
    yield _count("disqued_jobs_imported", "Jobs that other nodes brought.", counters.imported)
    yield _count("disqued_jobs_exported", "Jobs that were brought to other nodes.", counters.exported)
    yield _histogram("disqued_job_wait_seconds", "From the queueing of a job to its delivery.",
                     counters.waiting_buckets, counters.waiting_ms)  # fmt: skip
    yield _histogram("disqued_job_in_flight_seconds", "From the delivery of a job, or its last WORKING, to its ack.",
                     counters.flight_buckets, counters.flight_ms)  # fmt: skip


def _of_schedules(node: NodeView) -> Iterator[Metric]:
    counters = node.counters
    schedules, paused, refused, behind_ms = node.schedules.figures
    yield _gauges("disqued_schedules", "Schedules of the cluster, as far as this node was told.", "state",
                  {"active": schedules - paused, "paused": paused})  # fmt: skip
    yield _gauge("disqued_schedules_refused", "Of these: those whose next job was refused here, and is tried again.",
                 refused)  # fmt: skip
    yield _gauge("disqued_schedules_behind_seconds",
                 "Since the first instant that has come and is not over; 0 = there is none.",
                 behind_ms / 1_000)  # fmt: skip
    yield _counts(
        "disqued_schedule_instants", "Instants that this node fired, or passed over since a job was not over or beyond"
        " CATCHUP.", "how",
        {"on_time": counters.instants_fired - counters.instants_late, "late": counters.instants_late,
         "skipped": counters.instants_skipped, "missed": counters.instants_missed},
    )  # fmt: skip
    yield _count("disqued_schedule_refusals", "Times that the job of an instant was refused; it is tried again.",
                 counters.firings_refused)  # fmt: skip


def _of_workers(node: NodeView) -> Iterator[Metric]:
    counters = node.counters
    yield _gauges("disqued_workers", "Live workers: of this node, and of others as far as it was told.", "home",
                  {"here": len(node.workers_here), "elsewhere": len(node.workers_elsewhere)})  # fmt: skip
    yield _gauge("disqued_worker_leases", "Jobs and events in the hands of workers of this node.", node.units_held)
    yield _count(
        "disqued_worker_deaths", "Workers of this node that died, or were said to be dead.", counters.workers_died
    )
    yield _count("disqued_tasks_returned", "Tasks that went back to their queue, by their worker or since it ended.",
                 counters.tasks_given_back)  # fmt: skip
    yield _count("disqued_tasks_duplicate", "Times that tasks were refused since a unique one was there already.",
                 counters.unique_refused)  # fmt: skip


def _of_lists(node: NodeView) -> Iterator[Metric]:
    yield _gauge("disqued_background_pushes", "Pushes under way though their clients were answered (NOBLOCK).",
                 node.background_pushes)  # fmt: skip
    yield _count("disqued_background_pushes_failed", "Of these: those that came to nothing.",
                 node.counters.background_failed)  # fmt: skip
    yield _count("disqued_recoveries",
                 "Elements of lists that consumers had, and that were handed to another one (RQ.RECOVER).",
                 node.counters.recovered)  # fmt: skip


def _of_commands() -> Iterator[Metric]:
    used = [(entry.name.lower(), entry.tally) for entry in every_command() if entry.tally.calls]
    yield _counts("disqued_commands", "Commands that were run.", "command", {name: tally.calls for name, tally in used})
    yield _counts("disqued_command_seconds", "Time that commands took, without their commit and network.", "command",
                  {name: tally.usec / 1e6 for name, tally in used})  # fmt: skip


def _of_store(gateway: Gateway, facts: Mapping[str, Any]) -> Iterator[Metric]:
    commits = gateway.commits
    yield _count("disqued_commits", "Commits of the journal that were done.", commits.done)
    yield _count("disqued_commit_failures", "Commits of the journal that failed.", commits.failed)
    yield _count("disqued_commit_seconds", "Time that commits took, their fsync included where one is waited for.",
                 commits.seconds)  # fmt: skip
    yield _count("disqued_fsyncs_delayed", "Writes that waited since a sync took too long (aof).",
                 facts.get("aof_delayed_fsync", 0))  # fmt: skip
    yield _gauge("disqued_fsync_pending", "1 while a sync is under way (aof).", facts.get("aof_pending_bio_fsync", 0))
    yield _gauge("disqued_journal_size_bytes", "Size of the journal (aof).", facts.get("aof_current_size", 0))
    yield _gauge("disqued_journal_rewriting", "1 while the journal is written anew (aof).",
                 facts.get("aof_rewrite_in_progress", 0))  # fmt: skip


def _of_events(facts: Mapping[str, Any]) -> Iterator[Metric]:
    yield _count("disqued_events_written", "Lines of the event log that were written.", facts.get("events_written", 0))
    yield _count("disqued_events_lost",
                 "Lines of the event log that could not be written, or for which too much waited.",
                 facts.get("events_lost", 0))  # fmt: skip


def _of_cluster(node: NodeView, facts: Mapping[str, Any]) -> Iterator[Metric]:
    failing = sum(bool(peer.flags & FAILING) for peer in node.peers)

    def fact(name: str) -> float:
        return float(facts.get(f"cluster_{name}", 0))

    yield _gauges("disqued_cluster_nodes",
                  "Other nodes of the cluster: known, linked (our link is open), suspected or failed.", "state",
                  {"known": len(node.peers), "linked": node.linked_count, "failing": failing})  # fmt: skip
    yield _gauges("disqued_bus_links", "Open links of the cluster bus.", "direction",
                  {"out": fact("links_out"), "in": fact("links_in")})  # fmt: skip
    yield _counts("disqued_bus_messages", "Messages on the bus.", "direction",
                  {"out": fact("stats_messages_sent"), "in": fact("stats_messages_received")})  # fmt: skip
    yield _counts("disqued_bus_bytes", "Bytes on the bus.", "direction",
                  {"out": fact("net_output_bytes"), "in": fact("net_input_bytes")})  # fmt: skip
    yield _counts("disqued_bus_dropped_messages", "Messages that were not sent: no link, or too much waited.", "reason",
                  {"no_link": fact("dropped_without_link"), "buffer_full": fact("dropped_buffer_full")})  # fmt: skip
    refused = {
        name: fact(f"frames_{name}") for name in ("forged", "replayed", "oversized", "malformed")
    } | {"bad_message": fact("bad_messages")}  # fmt: skip
    yield _counts("disqued_bus_bad_frames", "Frames that changed nothing and ended their link.", "reason", refused)
    yield _counts("disqued_bus_handshakes_refused", "Links that did not come about.", "by",
                  {"us": fact("handshakes_refused"), "others": fact("handshakes_refused_by_others")})  # fmt: skip
    yield _gauge("disqued_bus_buffered_bytes", "Bytes that wait for other nodes.", fact("buffered_bytes"))


def _of_process(node: NodeView, pulse: Pulse, facts: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    lags = pulse.lags
    clients, stats, cpu = facts.get("Clients", {}), facts.get("Stats", {}), facts.get("CPU", {})
    yield _gauge(
        "disqued_loop_lag_seconds", "How late the loop was when it was looked at last.", lags[-1] if lags else 0
    )
    yield _gauge("disqued_loop_lag_worst_seconds", "The same, the worst of the last 60 looks.", max(lags, default=0))
    yield _gauge("disqued_memory_used_bytes", "What jobs and queues take, as maxmemory counts it.", node.memory.used)
    yield _gauge("disqued_memory_limit_bytes", "maxmemory.", node.memory.limit)
    yield _gauge("disqued_memory_level", "0 .. 3: all is well, no copies here, evicting, full.", node.memory.level)
    yield _gauge(
        "disqued_resident_memory_bytes", "Memory of the process.", facts.get("Memory", {}).get("used_memory_rss", 0)
    )
    yield _counts(
        "disqued_cpu_seconds", "Processor time of the process.", "mode",
        {"user": float(cpu.get("used_cpu_user", 0)), "system": float(cpu.get("used_cpu_sys", 0))})  # fmt: skip
    yield _gauge("disqued_clients", "Connected clients.", clients.get("connected_clients", 0))
    yield _count("disqued_connections", "Connections that were accepted.", stats.get("total_connections_received", 0))
    yield _count("disqued_connections_rejected", "Of these: turned away.", stats.get("rejected_connections", 0))
    yield _gauge("disqued_clients_unauthenticated", "Clients that have to authenticate and have not yet.",
                 clients.get("unauthenticated_clients", 0))  # fmt: skip
    yield _count("disqued_clients_unauthenticated_ended", "Clients that were ended since they did not authenticate.",
                 stats.get("unauthenticated_clients_ended", 0))  # fmt: skip
    yield _gauge("disqued_connection_buffers_bytes",
                 "What connections hold outside maxmemory: requests and replies under way.",
                 clients.get("mem_clients_normal", 0))  # fmt: skip
    yield _gauge("disqued_connection_buffers_limit_bytes", "What they may hold, all together.",
                 clients.get("mem_clients_limit", 0))  # fmt: skip
    yield _count("disqued_connections_ended_for_memory", "Connections that were ended since they held the most.",
                 clients.get("mem_clients_ended", 0))  # fmt: skip
    yield _counts(
        "disqued_acl_access_denied", "What was refused to clients.", "reason",
        {
            **{why: stats.get(f"acl_access_denied_{why}", 0) for why in ("auth", "cmd", "key", "channel")},
            "delayed": stats.get("acl_access_delayed_auth", 0),
        },
    )  # fmt: skip
    yield _counts(
        "disqued_client_bytes", "Bytes from and to clients.", "direction",
        {"in": stats.get("total_net_input_bytes", 0), "out": stats.get("total_net_output_bytes", 0)})  # fmt: skip
    yield _count("disqued_internal_errors", "Bugs that were met; the log has them.", stats.get("internal_errors", 0))
