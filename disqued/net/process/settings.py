"""Settings of a daemon while it runs: what the node reads of them, and CONFIG SET and REWRITE with their errors.

    CONFIG SET name value --change--> Config --follow--> node.membership, node.logs, node.tasks, node.lists ...
                                             --subscribe--> the daemon, for what is its own

Source: Disque 1.0-rc1, src/config.c, whose error texts these are.
"""

from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

from disqued.config import SETTINGS, Config, ConfigError, NoConfigFile, NotMutable, UnknownDirective
from disqued.core.node import Node
from disqued.errors import CommandError

log = Logger()


def follow(config: Config, node: Node) -> None:
    """Let the node have its settings, now and whenever one changes."""

    def set_policy(policy: str) -> None:
        node.state.memory.evicts = policy != "noeviction"

    def set_add_timeout(timeout_ms: int) -> None:
        node.logs.add_timeout_ms = timeout_ms

    def set_pool_size(size: int) -> None:
        node.logs.background.limit = size

    def set_node_timeout(timeout_ms: int) -> None:
        node.membership.timeout_ms = timeout_ms

    def set_task_retry(seconds: int) -> None:
        node.tasks.retry_s = seconds

    def set_unique_scope(scope: str) -> None:
        node.tasks.unique_anywhere = scope == "global"

    def set_lists(_: object) -> None:
        lists = node.lists
        lists.ttl_s, lists.replicate, lists.pool_size = config.rq_ttl, config.rq_replicate, config.bg_push_pool_size
        node.delivery.leases.keeps_orphans = config.rq_orphans == "pending"

    follows: dict[str, Callable[[Any], None]] = {
        "maxmemory": node.state.memory.set_limit,
        "maxmemory-policy": set_policy,
        "qadd-timeout": set_add_timeout,
        "bg-qadd-pool-size": set_pool_size,
        "cluster-node-timeout": set_node_timeout,
        "wq-retry": set_task_retry,
        "wq-unique-scope": set_unique_scope,
        **dict.fromkeys(("rq-ttl", "rq-replicate", "rq-orphans", "bg-push-pool-size"), set_lists),
    }
    for name, action in follows.items():
        config.subscribe(name, action)
        action(getattr(config, name.replace("-", "_")))


def change(config: Config, name: bytes, value: bytes) -> None:
    """Change a setting now.  Raises CommandError with Disque's text, and what is allowed behind it."""
    name_text, value_text = (text.decode("utf-8", "surrogateescape") for text in (name, value))
    told = len(config.warnings)
    try:
        config.set(name_text, value_text)
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
    for warning in config.warnings[told:]:
        log.warn("{warning}", warning=warning)


def rewrite(config: Config) -> None:
    """Write the settings in force to the configuration file.  Raises CommandError."""
    try:
        config.rewrite()
    except NoConfigFile:
        raise CommandError("The server is running without a config file") from None
    except OSError as error:
        raise CommandError(f"Rewriting config file: {error.strerror}") from None
