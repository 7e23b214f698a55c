"""Commands on commands: which there are, which were slow, and where time went.

COMMAND and COMMAND INFO answer six elements per command, as Disque did.  COMMAND DOCS, which Disque did not have,
answers as Redis 7 does, so that redis-cli shows hints and help.

Source: Disque 1.0-rc1; the COMMAND DOCS page of the Redis manual.
"""

from collections.abc import Iterable
from typing import Any

import attrs

from disqued.commands.connection import DONE
from disqued.commands.host import Session
from disqued.commands.shapes import OK, Shape, array, bulk, integer, mapping, null_or, tuple_of
from disqued.commands.slowlog import SlowCommand
from disqued.commands.table import (
    FLAG_WORDS,
    TABLE,
    Arg,
    Command,
    Container,
    Field,
    Flag,
    command,
    container,
    flag,
    optional,
    positional,
    rest,
    subcommands,
)
from disqued.commands.values import BYTES, Kind, readable, whole
from disqued.core.model.outbox import Client
from disqued.core.node import Node
from disqued.errors import CommandError
from disqued.wire.replies import Status

# COMMAND.

_COMMAND = Flag.READ | Flag.LOADING
_MISUSE = "Unknown subcommand or wrong number of arguments"


def _command_misuse(word: str, known: bool) -> str:
    return f"{_MISUSE}." if known else f"{_MISUSE} - allowed are {subcommands('COMMAND')}"


# Arity 0 stands for any number, as in Disque.
container("COMMAND", group="server", flags=_COMMAND, summary="Describe the commands.", misuse=_command_misuse, arity=0)

_ROW = tuple_of(
    "[name, arity, [flags], 0, 0, 0]", bulk("name"), integer("arity"),
    array(Shape("status", lambda value: isinstance(value, Status)), "flags"),
    *[integer("positions of keys: there are none")] * 3,
)  # fmt: skip


def _describe(entry: Command | Container) -> list[Any]:
    flags = [Status(word) for one, word in FLAG_WORDS.items() if one in entry.flags]
    return [_bar_name(entry), entry.arity, flags, 0, 0, 0]


@command(
    "COMMAND", group="server", flags=_COMMAND, reply=array(_ROW, "of [name, arity, [flags], 0, 0, 0]"), cost="O(N)"
)
@attrs.define
class CommandAll:
    """Describe every command: its name, its arity and its flags.

    The arity counts the name; a negative one is the least number of words, 0 is any number.
    """

    def run(self, node: Node, client: Client) -> list[Any]:
        return [_describe(TABLE[key]) for key in sorted(TABLE)]


@command("COMMAND COUNT", group="server", flags=_COMMAND, reply=integer("commands"), cost="O(1)")
@attrs.define
class CommandCount:
    """Count the commands; those with subcommands count once."""

    def run(self, node: Node, client: Client) -> int:
        return len(TABLE)


@command(
    "COMMAND INFO", group="server", flags=_COMMAND,
    reply=array(null_or(_ROW), "of [name, arity, [flags], 0, 0, 0]; null for a name that is none"),
    cost="O(N) in the names",
)  # fmt: skip
@attrs.define
class CommandInfo:
    """Describe some commands as COMMAND does."""

    names: list[bytes] = rest("Commands to describe; a subcommand is config|get.", BYTES)

    def run(self, node: Node, client: Client) -> list[Any]:
        found = map(_look_up, self.names)
        return [None if entry is None else _describe(entry) for entry in found]


def _look_up(name: bytes) -> Command | Container | None:
    """Find a command by its name, or a subcommand by both joined with a bar; in any case."""
    first, bar, second = name[:80].upper().partition(b"|")
    entry = TABLE.get(first)
    if not bar:
        return entry
    return entry.children.get(second) if isinstance(entry, Container) else None


def _bar_name(entry: Command | Container) -> bytes:
    return entry.name.lower().replace(" ", "|").encode()


@command("COMMAND LIST", group="server", flags=_COMMAND, reply=array(bulk("name"), "names"), cost="O(N)")
@attrs.define
class CommandList:
    """Name every command and subcommand; a subcommand is config|get."""

    def run(self, node: Node, client: Client) -> list[bytes]:
        names: list[bytes] = []
        for key in sorted(TABLE):
            entry = TABLE[key]
            names.append(_bar_name(entry))
            if isinstance(entry, Container):
                names += (_bar_name(entry.children[word]) for word in sorted(entry.children))
        return names


@command(
    "COMMAND DOCS", group="server", flags=_COMMAND,
    reply=mapping("of name to summary, since, group, complexity, arguments, subcommands"), cost="O(N) in the names",
)  # fmt: skip
@attrs.define
class CommandDocs:
    """Document some commands, or all, as Redis 7 does; names that are none are left out."""

    names: list[bytes] = rest("Commands to document; all unless given.", BYTES, minimum=0)

    def run(self, node: Node, client: Client) -> dict[bytes, Any]:
        found = map(_look_up, self.names) if self.names else (TABLE[key] for key in sorted(TABLE))
        return {_bar_name(entry): document(entry) for entry in found if entry is not None}


def document(entry: Command | Container) -> dict[bytes, Any]:
    """What COMMAND DOCS says of a command."""
    if isinstance(entry, Command):
        return _document_command(entry)
    children = [entry.children[word] for word in sorted(entry.children)]
    texts = {
        b"summary": entry.summary.encode(),
        b"since": min(child.since for child in children).encode(),
        b"group": entry.group.encode(),
        b"complexity": b"Depends on subcommand.",
    }
    return {**texts, b"subcommands": {_bar_name(child): _document_command(child) for child in children}}


def _document_command(entry: Command) -> dict[bytes, Any]:
    docs: dict[bytes, Any] = {
        b"summary": entry.summary.encode(),
        b"since": entry.since.encode(),
        b"group": entry.group.encode(),
        b"complexity": entry.cost.encode(),
    }
    if entry.fields:
        docs[b"arguments"] = [_document_field(field) for field in entry.fields]
    return docs


def _document_field(field: Field) -> dict[bytes, Any]:
    arg, name = field.arg, field.label.encode()
    if arg.style == "flag":
        return {b"name": name, b"type": b"pure-token", b"token": arg.keyword, b"flags": [Status(b"optional")]}
    docs = {b"name": name, **_document_value(arg, name)}
    if arg.keyword is not None:
        docs[b"token"] = arg.keyword
    flags = [Status(word) for word in _flags_of(arg)]
    if flags:
        docs[b"flags"] = flags
    return docs


def _flags_of(arg: Arg) -> Iterable[bytes]:
    if arg.style in ("optional", "option") or (arg.style == "rest" and not arg.minimum):
        yield b"optional"
    if arg.style == "rest" or arg.repeats:
        yield b"multiple"
    if arg.repeats:
        yield b"multiple_token"


def _document_value(arg: Arg, name: bytes) -> dict[bytes, Any]:
    """Type of a value, and what it is made of where it is made of several."""
    if arg.parts:
        parts: list[dict[bytes, Any]] = [
            {b"name": part.encode(), b"type": arg.kind_of(part).name.encode()} for part in arg.parts
        ]
        for part, word in zip(parts, arg.words, strict=False):
            if word:
                part[b"token"] = word.encode()
        if arg.spare:
            parts[-1][b"flags"] = [Status(b"optional")]
        return {b"type": b"block", b"arguments": parts}
    docs: dict[bytes, Any] = {b"type": arg.kind.name.encode()}
    if arg.kind.words:
        words = (word.encode() for word in arg.kind.words)
        docs[b"arguments"] = [{b"name": word, b"type": b"pure-token", b"token": word} for word in words]
    else:
        docs[b"display_text"] = name
    return docs


# SLOWLOG.

container(
    "SLOWLOG", group="server", flags=Flag.READ, summary="Commands that took long.",
    misuse="Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN.",
)  # fmt: skip

_SLOW_COUNT = 10
_WORDS = array(bulk("word"), "words")
_SLOW_ROW = [integer("id"), integer("unix seconds"), integer("microseconds"), _WORDS]
_SLOW = tuple_of("[id, unix seconds, microseconds, [words]]", *_SLOW_ROW)
_SLOW_FULL = tuple_of("with FULL also the client's address and name", *_SLOW_ROW, bulk("address"), bulk("name"))


@command(
    "SLOWLOG GET", group="server", flags=Flag.READ,
    reply=Shape(
        "array: of [id, unix seconds, microseconds, [words]], newest first; with FULL also [..., address, name]",
        lambda value: array(_SLOW, "").matches(value) or array(_SLOW_FULL, "").matches(value),
    ),
    cost="O(count)", shows_bodies=True,
)  # fmt: skip
@attrs.define
class SlowLogGet:
    """Commands that took longer than slowlog-log-slower-than, newest first.

    At most 32 words of a command are kept, and at most 128 bytes of a word; passwords are hidden.
    """

    count: int = optional("How many; a negative number: all.", whole("count"), _SLOW_COUNT)
    full: bool = flag("FULL", "Answer the address and the name of the client, too.")

    def run(self, node: Node, client: Session) -> list[Any]:
        entries = list(client.host.slowlog)
        chosen = entries if self.count < 0 else entries[: self.count]
        return [self._row(entry) for entry in chosen]

    def _row(self, entry: SlowCommand) -> list[Any]:
        row: list[Any] = [entry.id, entry.noted_at, entry.usec, entry.args]
        return [*row, entry.address, entry.name] if self.full else row


@command("SLOWLOG LEN", group="server", flags=Flag.READ, reply=integer("entries"), cost="O(1)")
@attrs.define
class SlowLogLen:
    """Count the entries of the slow log."""

    def run(self, node: Node, client: Session) -> int:
        return len(client.host.slowlog)


@command("SLOWLOG RESET", group="server", flags=Flag.READ, reply=OK, cost="O(N) in the entries")
@attrs.define
class SlowLogReset:
    """Empty the slow log."""

    def run(self, node: Node, client: Session) -> Status:
        client.host.slowlog.clear()
        return DONE


# LATENCY.

_LATENCY = Flag.ADMIN | Flag.READ | Flag.LOADING

container(
    "LATENCY", group="server", flags=_LATENCY, summary="When the daemon was slow, and in doing what.",
    misuse="syntax error - LATENCY takes LATEST, HISTORY event, GRAPH event, RESET [event ...] or DOCTOR",
)  # fmt: skip


EVENT = Kind("string", readable, "an event of LATENCY LATEST")


@command(
    "LATENCY LATEST", group="server", flags=_LATENCY,
    reply=array(
        tuple_of("event", bulk("event"), *[integer("number")] * 3),
        "of [event, unix seconds of the last sample, its milliseconds, milliseconds of the worst ever]",
    ),
    cost="O(N) in the events",
)  # fmt: skip
@attrs.define
class LatencyLatest:
    """Last and worst sample of every event."""

    def run(self, node: Node, client: Session) -> list[Any]:
        events = client.host.latency.events
        return [
            [name.encode(), event.samples[-1].noted_at, event.samples[-1].ms, event.worst_ms]
            for name, event in events.items()
        ]


@command(
    "LATENCY HISTORY", group="server", flags=_LATENCY,
    reply=array(tuple_of("sample", integer("time"), integer("span")), "of [unix seconds, milliseconds], oldest first"),
    cost="O(1)",
)  # fmt: skip
@attrs.define
class LatencyHistory:
    """Samples of an event: the last 160, one a second at most."""

    event: str = positional("Event to look at.", EVENT)

    def run(self, node: Node, client: Session) -> list[Any]:
        """Return the samples; none for an unknown event."""
        event = client.host.latency.events.get(self.event)
        return [] if event is None else [[sample.noted_at, sample.ms] for sample in event.samples]


@command(
    "LATENCY GRAPH", group="server", flags=_LATENCY, reply=bulk("a drawing in ASCII"), cost="O(1)",
    errors=("No samples available for event '<event>'",),
)  # fmt: skip
@attrs.define
class LatencyGraph:
    """Draw the samples of an event."""

    event: str = positional("Event to draw.", EVENT)

    def run(self, node: Node, client: Session) -> bytes:
        host = client.host
        if self.event not in host.latency.events:
            raise CommandError(f"No samples available for event '{self.event}'")
        return host.latency.graph(self.event, host.microseconds() // 1_000_000).encode()


@command("LATENCY DOCTOR", group="server", flags=_LATENCY, reply=bulk("a report"), cost="O(1)")
@attrs.define
class LatencyDoctor:
    """Say in words what the samples tell, and what can be done about it."""

    def run(self, node: Node, client: Session) -> bytes:
        return client.host.latency.report(client.host.microseconds() // 1_000_000).encode()


@command(
    "LATENCY RESET", group="server", flags=_LATENCY, reply=integer("events that had samples"), cost="O(N) in the events"
)
@attrs.define
class LatencyReset:
    """Forget the samples of some events, or of all."""

    events: list[str] = rest("Events to forget; all unless given.", EVENT, minimum=0)

    def run(self, node: Node, client: Session) -> int:
        latency = client.host.latency
        return latency.reset(self.events or list(latency.events))
