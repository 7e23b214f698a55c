"""Settings of a daemon while it runs: what the node reads of them, and CONFIG SET and REWRITE with their errors.

    CONFIG SET name value --change--> Config --follow_...--> node.state, streams, tasks, bus, event log ...
                                             --subscribe--> Access, ClientRegistry, StoreKeeper

Source: Disque 1.0-rc1, src/config.c, whose error texts these are.
"""

from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

from disqued.commands.dispatch import Dispatch
from disqued.config import SETTINGS, Config, ConfigError, NoConfigFile, NotMutable, UnknownDirective
from disqued.core.node import Node
from disqued.errors import CommandError
from disqued.net.cluster.bus import Bus
from disqued.persistence.interface import IEventLog

log = Logger()

#: Settings of the event log's files.
_OF_EVENTS = ("events-file-size", "events-file-seconds", "events-keep-days", "events-keep-size")


def follow_node(config: Config, node: Node) -> None:
    """Let the node have its settings, now and whenever one changes."""

    def set_policy(policy: str) -> None:
        node.state.memory.evicts = policy != "noeviction"

    def set_add_timeout(timeout_ms: int) -> None:
        node.streams.add_timeout_ms = timeout_ms

    def set_pool_size(size: int) -> None:
        node.streams.background.limit = size

    def set_node_timeout(timeout_ms: int) -> None:
        node.state.peers.timeout_ms = timeout_ms

    def set_task_retry(seconds: int) -> None:
        node.tasks.retry_ms = seconds * 1_000

    def set_result_max(size: int) -> None:
        node.acks.result_max = size

    def set_unique_scope(scope: str) -> None:
        node.tasks.unique_anywhere = scope == "global"

    def set_dead_ttl(seconds: int) -> None:
        node.state.shared.dead_ttl_ms = seconds * 1_000
        node.placement.renew_options()

    def set_lists(_: object) -> None:
        lists = node.lists
        lists.ttl_ms = config.rq_ttl * 1_000
        lists.replicate, lists.pool_size = config.rq_replicate, config.bg_push_pool_size
        node.queueing.leases.keeps_orphans = config.rq_orphans == "pending"

    follows: dict[str, Callable[[Any], None]] = {
        "maxmemory": node.state.memory.set_limit,
        "maxmemory-policy": set_policy,
        "qadd-timeout": set_add_timeout,
        "bg-qadd-pool-size": set_pool_size,
        "cluster-node-timeout": set_node_timeout,
        "dead-ttl": set_dead_ttl,
        "wq-retry": set_task_retry,
        "result-max": set_result_max,
        "wq-unique-scope": set_unique_scope,
        **dict.fromkeys(("rq-ttl", "rq-replicate", "rq-orphans", "bg-push-pool-size"), set_lists),
    }
    _follow(config, follows)


def follow_bus(config: Config, bus: Bus) -> None:
    """Let the links have the limits that are set, now and whenever one changes."""
    follows: dict[str, Callable[[Any], None]] = {
        "cluster-link-buffer-limit": bus.set_buffer_limit,
        "proto-max-bulk-len": bus.set_largest_body,
    }
    _follow(config, follows)


def follow_slow(config: Config, dispatch: Dispatch) -> None:
    """Let slow log and latency monitor have their thresholds whenever one changes."""
    slowlog, latency = dispatch.slowlog, dispatch.latency

    def set_slow(usec: int) -> None:
        slowlog.threshold_us = usec
        dispatch.find_slow()

    def set_latency(threshold_ms: int) -> None:
        latency.threshold_ms = threshold_ms
        dispatch.find_slow()

    config.subscribe("slowlog-log-slower-than", set_slow)
    config.subscribe("slowlog-max-len", slowlog.set_length)
    config.subscribe("latency-monitor-threshold", set_latency)


def follow_events(config: Config, event_log: IEventLog, is_loading: Callable[[], bool]) -> None:
    """Let the event log follow its settings; what it is to hold, only after the load."""

    def set_events(wanted: str) -> None:
        if not is_loading():
            event_log.follow(wanted)

    config.subscribe("events", set_events)
    for name in _OF_EVENTS:
        config.subscribe(name, lambda _: event_log.configure(config))


def _follow(config: Config, follows: dict[str, Callable[[Any], None]]) -> None:
    """Call what is given for each setting now, and with each new value."""
    for name, action in follows.items():
        config.subscribe(name, action)
        action(getattr(config, name.replace("-", "_")))


class LiveSettings:
    """The settings of a running daemon, as CONFIG reads and changes them."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def matching(self, pattern: bytes) -> list[tuple[bytes, bytes]]:
        return [
            (name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in self._config.matching(pattern)
        ]

    def change(self, name: bytes, value: bytes) -> None:
        """Change a setting now.  Raises CommandError with Disque's text, and what is allowed behind it."""
        name_text, value_text = (text.decode("utf-8", "surrogateescape") for text in (name, value))
        told = len(self._config.warnings)
        try:
            self._config.set(name_text, value_text)
        except UnknownDirective as error:
            hint = f"; did you mean {error.suggestion}?" if error.suggestion else ""
            raise CommandError(f"Unsupported CONFIG parameter: {name_text}{hint}") from None
        except NotMutable as error:
            raise CommandError(f"Unsupported CONFIG parameter: {name_text}; it {error.problem}") from None
        except ConfigError as error:
            log.warn("CONFIG SET refused: {reason}", reason=str(error))
            if error.directive == "persistence" and error.problem:
                raise CommandError(f"The store stays as it is: {error.problem}") from None
            if error.value is None:
                raise CommandError(f"Unsupported CONFIG parameter: {name_text}") from None
            refusal = f"Invalid argument '{SETTINGS[name_text.lower()].shown(value_text)}' for CONFIG SET '{name_text}'"
            raise CommandError(f"{refusal} - {error.reason}" if error.reason else refusal) from None
        for warning in self._config.warnings[told:]:
            log.warn("{warning}", warning=warning)

    def rewrite(self) -> None:
        try:
            self._config.rewrite()
        except NoConfigFile:
            raise CommandError("The server is running without a config file") from None
        except OSError as error:
            raise CommandError(f"Rewriting config file: {error.strerror}") from None
