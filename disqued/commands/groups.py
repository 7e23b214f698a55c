"""Commands on what groups of consumers made of logs: figures, and where a group begins.

    QSTATUS  QINFO  QGROUP LIST|START|RETURN|FORGET

Source: the README of bananaq for QSTATUS and QINFO; QGROUP is ours.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import attrs

from disqued.commands import okq
from disqued.commands.parts import SPELT_PER_PART, Making, in_order, in_parts, picked, spelt
from disqued.commands.permission import Sees, seen_by
from disqued.commands.shapes import OK, Shape, array, bulk, integer, tuple_of
from disqued.commands.streams import DONE, GROUP, check_new_group, queue_of_log, settled
from disqued.commands.table import Flag, command, container, positional, rest, subcommands
from disqued.commands.values import JOB_ID, QUEUE, Kind
from disqued.core.model.groups import Entry, Group
from disqued.core.model.ids import is_job_id
from disqued.core.model.messages import RETURN
from disqued.core.model.outbox import Client
from disqued.core.model.unfinished import Parts
from disqued.core.node import Node
from disqued.errors import CommandError, OutOfMemory, UnknownJob, WrongType
from disqued.wire.replies import EncodedList, Status

COUNTED_PER_PART = 1_000  #: groups counted in one step
NAMED_PER_PART = 5_000  #: names of groups spelt in one step

# Looking.


def statistics(node: Node, name: bytes, group_name: bytes) -> tuple[int, ...]:
    """The figures of a group of a queue, in the order of STATISTICS."""
    queue = node.state.queues.by_name.get(name)
    log = None if queue is None else queue.stream
    group = None if log is None else log.groups.get(group_name)
    total = 0 if log is None else len(log)
    if group is None:
        return (total, 0, 0, 0, total, node.streams.members.count(name, group_name))
    return (total, group.leased, group.redo, group.done, group.available, node.streams.consumers_of(group))


def _groups(node: Node, name: bytes) -> Making[list[bytes]]:
    """The groups of a queue that there is anything to say of, by name."""
    queue = node.state.queues.by_name.get(name)
    groups = [] if queue is None or queue.stream is None else list(queue.stream.groups.values())
    known = yield from picked(group.name if group.is_known else None for group in groups)
    names = list(dict.fromkeys([*known, *node.streams.members.groups(name)]))
    return (yield from in_order(names))


def _is_log(node: Node, name: bytes) -> bool:
    """Tell whether a queue is shown with its groups: it has events, or groups, or was named with one."""
    queue = node.state.queues.by_name.get(name)
    log = None if queue is None else queue.stream
    if node.streams.members.has(name) or (log is not None and log.has_content):
        return True
    return log is not None and any(group.is_known for group in log.groups.values())


def _candidates(node: Node, sees: Sees | None) -> Iterator[bytes | None]:
    """Names of active queues that may be seen, each once; None for each that is looked at and is none."""
    seen: set[bytes] = set()
    for queue in list(node.state.queues.by_name.values()):
        is_active = okq.is_active(node, queue) or _is_log(node, queue.name)
        if is_active and (sees is None or sees(queue.name)):
            seen.add(queue.name)
            yield queue.name
        else:
            yield None
    for name in chain(node.consumers.names(), node.streams.members.queues()):
        is_new = name not in seen and (sees is None or sees(name))
        seen.add(name)
        yield name if is_new else None


def _active(node: Node, names: list[bytes], sees: Sees | None) -> Making[list[bytes]]:
    """The queues that are asked for, each once, or all active ones by name that may be seen.

    Raises CommandError when these are too many.
    """
    if names:
        return list(dict.fromkeys(names))
    found = yield from picked(_candidates(node, sees), okq.SHOWN_AT_ONCE)
    if len(found) > okq.SHOWN_AT_ONCE:
        raise CommandError(okq.TOO_MANY)
    return sorted(found)


def _queues_among(words: list[bytes]) -> list[bytes]:
    """The queues among the words of QSTATUS and QINFO: those before GROUPS."""
    at = next((at for at, word in enumerate(words) if word.upper() == b"GROUPS"), len(words))
    return words[:at]


#: The figures of some groups of a queue: [(group, figures in the order of STATISTICS), ...].
_Figures = list[tuple[bytes, tuple[int, ...]]]


def _figures(node: Node, words: list[bytes], name: bytes) -> Making[_Figures]:
    """The figures of the groups of a queue that QSTATUS and QINFO are to show."""
    wanted = words[len(_queues_among(words)) + 1 :]
    if not wanted and not _is_log(node, name):
        return [(okq.GROUPLESS, okq.statistics(node, name))]
    groups = wanted or (yield from _groups(node, name))
    figures: _Figures = []
    for at in range(0, len(groups), COUNTED_PER_PART):
        if at:
            yield
        figures += [(group, statistics(node, name, group)) for group in groups[at : at + COUNTED_PER_PART]]
    return figures


def _named(values: tuple[int, ...]) -> list[Any]:
    """Figures with their names before them."""
    return [part for pair in zip(okq.STATISTICS, values, strict=True) for part in pair]


_STATUS_WORDS = "Queues, then GROUPS and groups; all unless given."
_FIGURES = Shape(
    "array: of name and integer in turn: " + ", ".join(word.decode() for word in okq.STATISTICS),
    lambda value: isinstance(value, list) and value[::2] == list(okq.STATISTICS),
)
_BY_GROUP = Shape(
    "array: of group and its figures in turn",
    lambda value: isinstance(value, list) and len(value) % 2 == 0 and all(map(_FIGURES.matches, value[1::2])),
)


@command(
    "QSTATUS", group="logs", flags=Flag.READ,
    reply=array(tuple_of("[queue, groups]", bulk("queue"), _BY_GROUP), "of [queue, groups]"),
    cost="O(N) in the queues and groups", errors=(okq.TOO_MANY,),
)  # fmt: skip
@attrs.define
class QStatus:
    """Count the events of queues by what groups made of them, on this node.

    total is all events of the queue; of these are inprogress with consumers of the group, redo were with one and are
    available again, done are acknowledged, available were never given to the group: total = inprogress + redo + done +
    available.  consumers wait in QGET or QNOTIFY, or are registered.  A queue of work has one group, called -.  Queues
    come as asked for, or by name.  A queue whose name is GROUPS cannot be asked for by it.
    """

    words: list[bytes] = rest(_STATUS_WORDS, QUEUE, minimum=0)

    def queues_named(self) -> list[bytes]:
        """Those before GROUPS."""
        return _queues_among(self.words)

    def run(self, node: Node, client: Client) -> Any:
        """Count; BLOCKED while there is much to count."""
        return in_parts(node, client, self._parts(node, list(self.words), seen_by(client)))

    @staticmethod
    def _parts(node: Node, words: list[bytes], sees: Sees | None) -> Parts:
        reply = EncodedList()
        shown = 0
        for name in (yield from _active(node, _queues_among(words), sees)):
            figures = yield from _figures(node, words, name)
            groups = EncodedList()
            for at in range(0, len(figures), SPELT_PER_PART):
                if at:
                    yield
                piece = figures[at : at + SPELT_PER_PART]
                groups.add([part for group, values in piece for part in (group, _named(values))])
            reply.add([[name, groups]])
            shown += len(figures)
            if shown >= SPELT_PER_PART:
                shown = 0
                yield
        return reply


@command(
    "QINFO", group="logs", flags=Flag.READ, reply=array(bulk("line"), "of lines, one for each queue and group"),
    cost="O(N) in the queues and groups", errors=(okq.TOO_MANY,),
)  # fmt: skip
@attrs.define
class QInfo:
    """Show what QSTATUS counts in lines for people: queue, group, and the figures by name."""

    words: list[bytes] = rest(_STATUS_WORDS, QUEUE, minimum=0)

    def queues_named(self) -> list[bytes]:
        """Those before GROUPS."""
        return _queues_among(self.words)

    def run(self, node: Node, client: Client) -> Any:
        """Write the lines; BLOCKED while there is much to count."""
        return in_parts(node, client, self._parts(node, list(self.words), seen_by(client)))

    @staticmethod
    def _parts(node: Node, words: list[bytes], sees: Sees | None) -> Parts:
        shown: list[tuple[bytes, _Figures]] = []
        widths = [0] * (2 + len(okq.STATISTICS))
        counted = 0
        for name in (yield from _active(node, _queues_among(words), sees)):
            figures = yield from _figures(node, words, name)
            shown.append((name, figures))
            for at in range(0, len(figures), SPELT_PER_PART):
                if at:
                    yield
                rows = [_columns(name, group, values) for group, values in figures[at : at + SPELT_PER_PART]]
                for column, cells in enumerate(zip(*rows, strict=True)):
                    widths[column] = max(widths[column], *map(len, cells))
            counted += len(figures)
            if counted >= SPELT_PER_PART:
                counted = 0
                yield
        return (yield from spelt(
            b" ".join(map(bytes.ljust, _columns(name, group, values), widths)).rstrip(b" ")
            for name, figures in shown for group, values in figures
        ))  # fmt: skip


def _columns(name: bytes, group: bytes, values: tuple[int, ...]) -> list[bytes]:
    """What QINFO shows of a group, before it is put under each other."""
    return [name, group, *(b"%b:%d" % pair for pair in zip(okq.STATISTICS, values, strict=True))]


# Groups.


def _group_misuse(word: str, known: bool) -> str:
    if known:
        return f"wrong number or kind of arguments for QGROUP {word.upper()}"
    return f"QGROUP takes a subcommand and a queue - allowed are {subcommands('QGROUP')}"


container(
    "QGROUP", group="logs", flags=Flag.WRITE, summary="What groups of consumers made of a log.", misuse=_group_misuse
)


@command("QGROUP LIST", group="logs", flags=Flag.READ, reply=array(bulk("group"), "names of groups"), cost="O(N log N)")
@attrs.define
class QGroupList:
    """Name the groups of a queue that have consumers, or have or had events of it."""

    queue: bytes = positional("Queue to look at.", QUEUE)

    def run(self, node: Node, client: Client) -> Any:
        """Name them, by name; BLOCKED when there are very many."""
        queue_of_log(node, self.queue)
        return in_parts(node, client, self._parts(node))

    def _parts(self, node: Node) -> Parts:
        names = yield from _groups(node, self.queue)
        return (yield from spelt(iter(names), NAMED_PER_PART))


def _read_start(text: bytes) -> bytes:
    if is_job_id(text):
        return text
    word = text[:8].upper()
    if word not in (b"FIRST", b"NOW"):
        raise CommandError("a group starts FIRST, NOW, or at the id of an event")
    return word


_START = Kind(
    "string", _read_start, "FIRST | NOW | the id of an event",
    errors=("ERR a group starts FIRST, NOW, or at the id of an event",),
)  # fmt: skip


@command(
    "QGROUP START", group="logs", flags=Flag.WRITE | Flag.DENY_OOM, reply=OK, cost="O(N) in the events of the queue",
    errors=(WrongType, UnknownJob, OutOfMemory),
)  # fmt: skip
@attrs.define
class QGroupStart:
    """Let a group begin at the oldest event, behind all that are there now, or at one of them.

    What consumers of the group have, and what it is done with, is forgotten: their QACK is answered 0.  Events before
    the beginning count as done.
    """

    queue: bytes = positional("Queue of the group.", QUEUE)
    group: bytes = positional("Group to start.", GROUP)
    at: bytes = positional("Where it begins.", _START)

    def run(self, node: Node, client: Client) -> Status:
        """Start it.  Raises UnknownJob (NOJOB)."""
        queue_of_log(node, self.queue)
        check_new_group(node, self.queue, self.group)
        log = node.state.stream(self.queue)
        if self.at == b"FIRST":
            # A stamp before all events tells a group that was started from one that was forgotten.
            floor = {node.id[:8]: 0}
        elif self.at == b"NOW":
            floor = node.group_starts.floor_now(log)
        else:
            event = node.state.jobs.get(self.at)
            if not isinstance(event, Entry) or event.stream is not log:
                raise UnknownJob
            makers = {node.id[:8], *(node_id[:8] for node_id in node.state.peers.by_id), *log.seen}
            floor = dict.fromkeys(makers, event.ctime - 1)
        node.group_starts.start(log, self.group, floor, now=self.at == b"NOW")
        return DONE


@command(
    "QGROUP RETURN", group="logs", flags=Flag.WRITE, reply=integer("events that were given back"),
    cost="O(log N) per event", errors=(WrongType,),
)  # fmt: skip
@attrs.define
class QGroupReturn:
    """Give events back that consumers of a group have: the group gets them at once, before all others."""

    queue: bytes = positional("Queue of the events.", QUEUE)
    group: bytes = positional("Group that has them.", GROUP)
    ids: list[bytes] = rest("Events to give back; of several the first is the first again.", JOB_ID)

    def run(self, node: Node, client: Client) -> Any:
        """Give them back; returns how many somebody had, or BLOCKED while other nodes are asked."""
        queue_of_log(node, self.queue)
        return settled(node, client, RETURN, self.queue, self.group, ids=self.ids[::-1])


@command(
    "QGROUP FORGET", group="logs", flags=Flag.WRITE, reply=integer("1 when this node knew of such a group, else 0"),
    cost="O(N) in the events of the queue", errors=(WrongType, OutOfMemory),
)  # fmt: skip
@attrs.define
class QGroupForget:
    """Forget what a group made of a log, on all nodes; should it come again it is new, and begins at the oldest event.

    Nodes that cannot be reached hear of it when they come back.
    """

    queue: bytes = positional("Queue of the group.", QUEUE)
    group: bytes = positional("Group to forget.", GROUP)

    def run(self, node: Node, client: Client) -> int:
        queue = queue_of_log(node, self.queue)
        group: Group | None = None if queue is None or queue.stream is None else queue.stream.groups.get(self.group)
        is_known = group is not None and group.is_known
        if is_known or node.state.peers.linked:
            check_new_group(node, self.queue, self.group)
            node.group_starts.start(node.state.stream(self.queue), self.group, {})
        return int(is_known)
