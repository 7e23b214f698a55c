"""Commands on the daemon: is it there, how is it, how is it set, and stop.

INFO puts together what the node knows and what its host tells (`Host.facts`): the fields that Disque had, in Disque's
order, then whatever more the host tells in that section.

Source: Disque 1.0-rc1, src/server.c, src/config.c, src/debug.c, whose replies and error texts these are.
"""

from collections.abc import Mapping
from math import isfinite
from typing import Any

import attrs

from disqued import __version__
from disqued.commands.connection import DONE
from disqued.commands.host import Session
from disqued.commands.shapes import OK, SILENCE, array, bulk, either, integer, mapping, status, tuple_of
from disqued.commands.table import (
    BLOCKED,
    NO_REPLY,
    Flag,
    command,
    container,
    every_command,
    flag,
    optional,
    positional,
)
from disqued.commands.values import BYTES, PATTERN, Kind
from disqued.core.model.memory import COUNTS_COST, JOB_COST, QUEUE_COST
from disqued.core.model.outbox import Client
from disqued.core.node import Node
from disqued.core.view import NodeView
from disqued.errors import CommandError
from disqued.wire.replies import Status

DISQUE_VERSION = "1.0-rc1"  #: whose replies are served; programs of Disque's users look at it


@command(
    "PING", group="connection", flags=Flag.READ | Flag.FAST, reply=either(status("PONG"), bulk("the message")),
    cost="O(1)",
)  # fmt: skip
@attrs.define
class Ping:
    """Answer PONG, or the message."""

    message: bytes | None = optional("What to answer.", BYTES)

    def run(self, node: Node, client: Client) -> bytes:
        return Status(b"PONG") if self.message is None else self.message


@command("ECHO", group="connection", flags=Flag.READ | Flag.FAST, reply=bulk("the message"), cost="O(1)")
@attrs.define
class Echo:
    """Answer the message; redis-cli ends a bulk load with it."""

    message: bytes = positional("What to answer.", BYTES)

    def run(self, node: Node, client: Client) -> bytes:
        return self.message


@command(
    "TIME", group="server", flags=Flag.READ | Flag.FAST,
    reply=tuple_of("[unix seconds, microseconds]", bulk("seconds"), bulk("microseconds")), cost="O(1)",
)  # fmt: skip
@attrs.define
class Time:
    """Wall clock of this node."""

    def run(self, node: Node, client: Session) -> list[bytes]:
        seconds, microseconds = divmod(client.host.microseconds(), 1_000_000)
        return [b"%d" % seconds, b"%d" % microseconds]


@command(
    "ROLE", group="server", flags=Flag.READ | Flag.FAST,
    reply=tuple_of(
        "[master, offset of the replication, replicas] of a master of Redis without replicas",
        bulk("master"),
        integer("0"),
        array(bulk("a replica"), "none"),
    ),
    cost="O(1)",
)  # fmt: skip
@attrs.define
class Role:
    """What clients of Redis ask for to find a node that takes writes, and each node does; HELLO has the real nodes."""

    def run(self, node: Node, client: Client) -> list[Any]:
        return [b"master", 0, []]


# INFO.

#: Fields of Disque by section, in its order, with their values where the host tells none.  None: only when told.
#: What describes a build in C has the values that Redis gives when it does not know.
INFO_FIELDS: dict[str, dict[str, Any]] = {
    "Server": {
        "disque_version": DISQUE_VERSION, "disqued_version": __version__, "disque_git_sha1": "00000000",
        "disque_git_dirty": 0, "disque_build_id": 0, "os": None, "arch_bits": None, "multiplexing_api": None,
        "gcc_version": "0.0.0", "process_id": None, "run_id": None, "tcp_port": None, "uptime_in_seconds": None,
        "uptime_in_days": None, "hz": 10, "executable": None, "config_file": None,
    },
    "Clients": {
        "connected_clients": None, "client_longest_output_list": None, "client_biggest_input_buf": None,
        "blocked_clients": None,
    },
    "Memory": {
        "used_memory": None, "used_memory_human": None, "used_memory_rss": None, "used_memory_peak": None,
        "used_memory_peak_human": None, "mem_fragmentation_ratio": None, "mem_allocator": None, "maxmemory": None,
        "memory_level": None,
    },
    "Jobs": {"registered_jobs": None, "dead_jobs": None, "failing_jobs": None, "jobs_died": None},
    "Queues": {
        "registered_queues": None, "limited_queues": None, "slots": None, "background_pushes": None,
        "background_pushes_failed": None,
    },
    "Schedules": {},
    "Persistence": {
        "loading": 0, "aof_enabled": 0, "aof_state": "off", "aof_rewrite_in_progress": 0, "aof_rewrite_scheduled": 0,
        "aof_last_rewrite_time_sec": -1, "aof_current_rewrite_time_sec": -1, "aof_last_bgrewrite_status": "ok",
        "aof_last_write_status": "ok",
    },
    "Events": {
        "events": None, "events_written": None, "events_lost": None, "events_files_published": None,
        "events_waiting_bytes": None, "events_last_error": None,
    },
    "Stats": {
        "total_connections_received": None, "total_commands_processed": None, "instantaneous_ops_per_sec": None,
        "total_net_input_bytes": None, "total_net_output_bytes": None, "instantaneous_input_kbps": None,
        "instantaneous_output_kbps": None, "rejected_connections": None, "latest_fork_usec": None,
    },
    # What Redis clients read as they connect: every node takes writes, and none is a replica of another one.
    "Replication": {
        "role": "master", "connected_slaves": 0, "master_failover_state": "no-failover", "master_replid": None,
        "master_replid2": "0" * 40, "master_repl_offset": 0, "second_repl_offset": -1, "repl_backlog_active": 0,
        "repl_backlog_size": 0, "repl_backlog_first_byte_offset": 0, "repl_backlog_histlen": 0,
    },
    "Cluster": {},
    "CPU": {"used_cpu_sys": None, "used_cpu_user": None, "used_cpu_sys_children": None, "used_cpu_user_children": None},
    "Commandstats": {},
}  # fmt: skip

#: Sections that INFO without a word leaves out.
_ON_REQUEST = frozenset({"Commandstats"})


_UNITS = "BKMGTP"


def human_size(size: int) -> str:
    """A size as people read it: 512B, 1.50K, 2.00M."""
    power = min(max(0, size.bit_length() - 1) // 10, len(_UNITS) - 1)
    return f"{size / 1_024**power:.2f}{_UNITS[power]}" if power else f"{size}B"


def _node_facts(node: NodeView) -> dict[str, dict[str, Any]]:
    memory, additions = node.memory, node.background_additions
    used, peak = memory.used, max(memory.used, memory.peak)
    dead, failing, _ = node.dead_failing_delayed()
    return {
        "Clients": {"blocked_clients": node.blocked_count},
        "Memory": {
            "used_memory": used,
            "used_memory_human": human_size(used),
            "used_memory_peak": peak,
            "used_memory_peak_human": human_size(peak),
            "maxmemory": memory.limit,
            "memory_level": memory.level,
        },
        "Jobs": {
            "registered_jobs": node.job_count,
            "dead_jobs": dead,
            "failing_jobs": failing,
            "jobs_died": node.counters.buried,
        },
        "Queues": {
            "registered_queues": node.queue_count,
            "limited_queues": node.limits.queue_count,
            "slots": node.limits.slots,
            "background_pushes": node.background_pushes,
            "background_pushes_failed": node.counters.background_failed,
        },
        "Schedules": _schedule_facts(node),
        "Stats": {"background_additions": additions.running, "background_additions_failed": additions.failed},
        "Replication": {"master_replid": node.id.decode()},
    }


def _schedule_facts(node: NodeView) -> dict[str, int]:
    counters = node.counters
    schedules, paused, refused, behind_ms = node.schedules.figures
    return {
        "registered_schedules": schedules,
        "paused_schedules": paused,
        "refused_schedules": refused,
        "schedules_behind_ms": behind_ms,
        "schedule_instants_fired": counters.instants_fired,
        "schedule_instants_late": counters.instants_late,
        "schedule_instants_skipped": counters.instants_skipped,
        "schedule_instants_missed": counters.instants_missed,
        "schedule_firings_refused": counters.firings_refused,
    }


def _command_statistics() -> dict[str, str]:
    return {
        f"cmdstat_{entry.name.lower().replace(' ', '|')}": (
            f"calls={tally.calls},usec={tally.usec:.0f},usec_per_call={tally.usec / tally.calls:.2f}"
        )
        for entry in every_command()
        if (tally := entry.tally).calls
    }


def _told(fact: Any) -> str:
    if isinstance(fact, float):
        return f"{fact:.2f}"
    return str(int(fact) if isinstance(fact, bool) else fact)


def _section(name: str, node_facts: Mapping[str, Any], host_facts: Mapping[str, Any]) -> str:
    facts = {**INFO_FIELDS[name], **host_facts, **node_facts}
    if name == "Memory" and "used_memory_rss" in host_facts:
        used = facts["used_memory"]
        facts["mem_fragmentation_ratio"] = host_facts["used_memory_rss"] / used if used else 0.0
    lines = [f"{field}:{_told(fact)}\r\n" for field, fact in facts.items() if fact is not None]
    return f"# {name}\r\n{''.join(lines)}"


@command(
    "INFO", group="server", flags=Flag.READ | Flag.LOADING, reply=bulk("sections of field:value lines"),
    cost="O(N) in the clients and the schedules",
)  # fmt: skip
@attrs.define
class Info:
    """Facts and counters of this node.

    Sections are Server, Clients, Memory, Jobs, Queues, Schedules, Persistence, Events, Stats, Replication, Cluster, CPU
    and Commandstats.  Without a section, or with `default`, all but Commandstats are answered; with `all`, that too.
    An unknown section is empty.
    """

    section: bytes | None = optional("Section to answer, in any case.", BYTES)

    def run(self, node: Node, client: Session) -> bytes:
        names = self._names()
        node_facts, host_facts = _node_facts(NodeView(node)), client.host.facts()
        if "Commandstats" in names:
            node_facts["Commandstats"] = _command_statistics()
        sections = (_section(name, node_facts.get(name, {}), host_facts.get(name, {})) for name in names)
        return "\r\n".join(sections).encode("utf-8", "surrogateescape")

    def _names(self) -> list[str]:
        wanted = b"default" if self.section is None else self.section[:32].lower()
        if wanted == b"default":
            return [name for name in INFO_FIELDS if name not in _ON_REQUEST]
        if wanted in (b"all", b"everything"):
            return list(INFO_FIELDS)
        return [name for name in INFO_FIELDS if name.lower().encode() == wanted]


# CONFIG.


def _config_misuse(word: str, known: bool) -> str:
    if known:
        return f"Wrong number of arguments for CONFIG {word}"
    return "CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE"


_CONFIG = Flag.ADMIN | Flag.READ

_AT_START = (
    "Unsupported CONFIG parameter: <name>; it can be changed only in the file or on the command line, before the start"
)

container(
    "CONFIG", group="server", flags=_CONFIG, summary="Look at the settings and change them.", misuse=_config_misuse
)


@command(
    "CONFIG GET", group="server", flags=_CONFIG, reply=mapping("settings and their values"), cost="O(N) in the settings"
)
@attrs.define
class ConfigGet:
    """Settings in force whose name fits a pattern."""

    pattern: bytes = positional("Pattern with *, ? and [...]; case does not matter.", PATTERN)

    def run(self, node: Node, client: Session) -> dict[bytes, bytes]:
        return dict(client.host.settings.matching(self.pattern))


@command(
    "CONFIG SET", group="server", flags=_CONFIG, reply=OK, cost="O(1)",
    errors=(
        "Unsupported CONFIG parameter: <name>",
        _AT_START,
        "Invalid argument '<value>' for CONFIG SET '<name>' - <what is wrong; allowed are ...>",
    ),
)  # fmt: skip
@attrs.define
class ConfigSet:
    """Change a setting now; CONFIG REWRITE makes it last."""

    name: bytes = positional("Setting to change.", BYTES)
    value: bytes = positional("Its new value, as it would stand in the file.", BYTES)

    def run(self, node: Node, client: Session) -> Status:
        client.host.settings.change(self.name, self.value)
        return DONE


@command("CONFIG RESETSTAT", group="server", flags=_CONFIG, reply=OK, cost="O(N) in the commands")
@attrs.define
class ConfigResetStat:
    """Zero the counters that INFO shows."""

    def run(self, node: Node, client: Session) -> Status:
        client.host.reset_statistics()
        return DONE


@command(
    "CONFIG REWRITE", group="server", flags=_CONFIG, reply=OK, cost="O(N) in the lines of the file",
    errors=("The server is running without a config file", "Rewriting config file: <reason>"),
)  # fmt: skip
@attrs.define
class ConfigRewrite:
    """Write the settings in force to the configuration file; its comments and its order stay."""

    def run(self, node: Node, client: Session) -> Status:
        client.host.settings.rewrite()
        return DONE


@command(
    "SHUTDOWN", group="server", flags=Flag.ADMIN | Flag.READ | Flag.LOADING, reply=SILENCE,
    cost="O(1), O(N) in the jobs with REWRITE-AOF", errors=("Errors trying to SHUTDOWN. Check logs.",),
)  # fmt: skip
@attrs.define
class Shutdown:
    """End the daemon after what was acknowledged is safe.

    With REWRITE-AOF a fresh journal is written first, with the queues as they are, so that a start with
    aof-enqueue-jobs-once goes on where this run ended: at-most-once jobs included.
    """

    rewrite: bool = flag("REWRITE-AOF", "Write a fresh journal with the queues first.")

    def run(self, node: Node, client: Session) -> Any:
        """End the daemon; there is no reply."""
        return NO_REPLY if client.host.shutdown(client, rewrite=self.rewrite) else BLOCKED


@command(
    "BGREWRITEAOF", group="server", flags=Flag.ADMIN | Flag.READ,
    reply=status("Background append only file rewriting started"), cost="O(N) in the jobs, in the background",
    errors=("Background append only file rewriting already in progress",),
)  # fmt: skip
@attrs.define
class RewriteJournal:
    """Write the journal anew, without what is over, while the node goes on.

    After a disk has failed this makes the journal sound again.
    """

    def run(self, node: Node, client: Session) -> Status:
        client.host.stores.compact()
        return Status(b"Background append only file rewriting started")


# DEBUG.

SLEEP_MAX_S = 3_600
_BAD_SPAN = f"SLEEP takes seconds from 0 to {SLEEP_MAX_S}, with a decimal point if need be"


def _debug_misuse(word: str, known: bool) -> str:
    return f"Unknown DEBUG subcommand or wrong number of arguments for '{word}'"


container("DEBUG", group="server", flags=Flag.ADMIN, summary="What tests of clients need.", misuse=_debug_misuse)


@command("DEBUG FLUSHALL", group="server", flags=Flag.ADMIN, reply=OK, cost="O(N) in the jobs")
@attrs.define
class DebugFlushAll:
    """Forget every job and queue of this node; consumers that wait are answered: no jobs."""

    def run(self, node: Node, client: Client) -> Status:
        node.flush()
        return DONE


def _read_span(text: bytes) -> float:
    try:
        span = float(text)
    except ValueError:
        raise CommandError(_BAD_SPAN) from None
    if not isfinite(span) or not 0 <= span <= SLEEP_MAX_S:
        raise CommandError(_BAD_SPAN)
    return span


_SPAN = Kind(
    "double", _read_span, f"0 to {SLEEP_MAX_S} seconds", {"type": "number", "minimum": 0, "maximum": SLEEP_MAX_S},
    (f"ERR {_BAD_SPAN}",),
)  # fmt: skip


@command("DEBUG SLEEP", group="server", flags=Flag.ADMIN, reply=OK, cost="O(1)")
@attrs.define
class DebugSleep:
    """Stop the whole daemon for a while: nobody is answered meanwhile."""

    seconds: float = positional("For how long.", _SPAN)

    def run(self, node: Node, client: Session) -> Status:
        client.host.sleep(self.seconds)
        return DONE


class _SpokenError(CommandError):
    """An error line that a client asked for."""

    def __init__(self, line: bytes) -> None:
        super().__init__(line.decode("utf-8", "surrogateescape"))
        self._line = line

    @property
    def line(self) -> bytes:
        return self._line


@command(
    "DEBUG ERROR", group="server", flags=Flag.ADMIN, reply=status("never: the text comes as an error"), cost="O(1)"
)
@attrs.define
class DebugError:
    """Answer an error of the given text."""

    text: bytes = positional("Text of the error, its first word included.", BYTES)

    def run(self, node: Node, client: Client) -> Status:
        raise _SpokenError(self.text)


@command("DEBUG STRUCTSIZE", group="server", flags=Flag.ADMIN, reply=status("name:bytes of each"), cost="O(1)")
@attrs.define
class DebugStructSize:
    """Bytes that a job without its body, and a queue without its name, count towards maxmemory."""

    def run(self, node: Node, client: Client) -> Status:
        return Status(b"job:%d queue:%d" % (JOB_COST, QUEUE_COST + COUNTS_COST))


_LOADJOB = "LOADJOB is a special command only processed from AOF"


@command(
    "LOADJOB", group="jobs", flags=Flag.WRITE, reply=status("never: refused"), cost="O(1)", errors=(_LOADJOB,),
    is_large=True,
)  # fmt: skip
@attrs.define
class LoadJob:
    """A record of Disque's journal; no client may send it."""

    record: bytes = positional("The record.", BYTES)

    def run(self, node: Node, client: Client) -> Status:
        raise CommandError(_LOADJOB)
