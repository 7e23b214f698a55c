"""What the lines of one job, of all nodes together, say against it: the rules of the audit, without Spark.

    lines of a job and a scope, of all nodes --judge--> findings: losses, faults, notes, and what is not known

Order.  Lines of one node are in the order of (boot, seq).  Between nodes nothing is ordered by the clocks of their
walls: `age_us`, the time since the job was created, goes by monotonic clocks and travels with the job, so that it says
of two lines of one job which was first, but for what a message is under way.  Only where a node was started again does
it go by what the journal and the wall clock say; there it proves nothing.

Proof.  That a line is missing proves something only where the log of that node is whole: from the last line of the job
to a line behind the end of the job's time, in one boot, without a gap, with the time between them measured by a clock
that was not set meanwhile.  `NodeLog` knows that.  Everything else is not known, and never a fault.

docs/explanation/audit.md says for people what each kind means.  Times are microseconds.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import attrs

# Severities.
LOSS: Final = "loss"
FAULT: Final = "fault"
NOTE: Final = "note"

# Kinds, the worst first.
LOST: Final = "lost"
TWICE_ONCE: Final = "once_delivered_twice"
DELIVERED_AFTER_ACK: Final = "delivered_after_ack"
ACKED_TWICE: Final = "acked_twice"
DELIVERED_DEAD: Final = "delivered_dead"
TRIED_TOO_OFTEN: Final = "tried_too_often"
ORPHANED: Final = "orphaned"
GAP: Final = "gap"
DOUBLE: Final = "double"
REDELIVERED: Final = "redelivered_after_ack"
ACKED_APART: Final = "acked_apart"
DELIVERED_APART: Final = "delivered_apart"
NOT_KNOWN: Final = "not_known"

SEVERITY: Final = {
    LOST: LOSS, TWICE_ONCE: FAULT, DELIVERED_AFTER_ACK: FAULT, ACKED_TWICE: FAULT, DELIVERED_DEAD: FAULT,
    TRIED_TOO_OFTEN: FAULT, ORPHANED: FAULT, GAP: FAULT, DOUBLE: FAULT, REDELIVERED: NOTE, ACKED_APART: NOTE,
    DELIVERED_APART: NOTE, NOT_KNOWN: NOTE,
}  # fmt: skip

SECOND_US: Final = 1_000_000
#: How long after the end of a job's time a node has said so, at the latest.
SETTLE_US: Final = 60 * SECOND_US
#: Lines of a crashed boot that are younger may tell of what never left the node.
UNSAID_US: Final = 2 * SECOND_US
#: Jobs that ended which a node remembers at least; one that it has forgotten may come back as a copy that was late.
ENDED_KEPT: Final = 20_000


class EventLine(NamedTuple):
    """One event of a job, as far as the rules need it."""

    node: str
    boot: int
    seq: int
    ts_us: int
    event: str
    age_us: int | None
    ttl_us: int | None
    is_once: bool | None  #: its producer, or its delivery, says that it is delivered once at most; None = does not say
    retry_us: int | None
    peer: str | None
    reason: str | None
    queue: str | None
    max_tries: int | None
    keep_dead_us: int | None


@attrs.frozen
class Finding:
    """Something that the audit has found."""

    kind: str
    job_id: str | None
    scope: str | None
    queue: str | None
    node: str | None
    boot: int | None
    seq: int | None
    at_us: int | None
    detail: str

    @property
    def severity(self) -> str:
        """LOSS, FAULT or NOTE."""
        return SEVERITY[self.kind]


@attrs.frozen
class AuditTolerance:
    """What is allowed for."""

    skew_us: int = 5 * SECOND_US  #: by which ages on two nodes may differ: messages that are under way
    patience_us: int = 900 * SECOND_US  #: for which nodes may be apart, so that one has not heard of an ack


@attrs.frozen
class Stretch:
    """Lines of one boot without a gap, during which the clock was not set."""

    first: int
    last: int  #: numbers of its lines
    first_us: int
    last_us: int
    goes_on: bool  #: the next stretch follows without a gap: the clock was set, no more


@attrs.frozen
class BootLog:
    """What there is of the log of one boot."""

    stretches: tuple[Stretch, ...]
    stopped: bool  #: it ends in good order
    has_next: bool  #: there is a later boot of this node
    flushes: tuple[int, ...] = ()  #: numbers of the lines where all jobs were flushed

    def passed(self, seq: int, ts_us: int) -> int:
        """Microseconds from a line on for which the log of this boot is whole, at least."""
        at = bisect_right([stretch.first for stretch in self.stretches], seq) - 1
        if at < 0:
            return 0
        passed_us = max(0, self.stretches[at].last_us - ts_us)
        while self.stretches[at].goes_on and at + 1 < len(self.stretches):
            at += 1
            passed_us += max(0, self.stretches[at].last_us - self.stretches[at].first_us)
        return passed_us

    def flushed_after(self, seq: int) -> bool:
        """Tell whether all jobs were flushed behind a line."""
        return any(flush > seq for flush in self.flushes)

    def is_unsaid(self, line: "EventLine") -> bool:
        """Tell whether a line may tell of what nobody heard: the process ended in a crash just then."""
        return not self.stopped and self.stretches[-1].last_us - line.ts_us <= UNSAID_US


@attrs.frozen
class EventLogs:
    """What there is of the logs of all nodes: {(node, boot): ...}."""

    boots: dict[tuple[str, int], BootLog]

    def of(self, line: EventLine) -> BootLog:
        return self.boots[line.node, line.boot]


_DONE: Final = frozenset({None, "fast", "peer"})  #: reasons of acks that end a job on their node
_OWN: Final = frozenset({None, "fast"})  #: of these: said by a client
_ENDS: Final = frozenset({"expire", "delete", "evict", "refuse", "cancelled"})
#: Events that show that a node has a job; an `add` does not where other nodes alone have copies.
_HOLDS: Final = frozenset(
    {"add", "replicate", "enqueue", "deliver", "working", "nack", "requeue", "leave", "dead", "redriven"}
)
_ELSEWHERE: Final = "elsewhere"
_COMES: Final = frozenset({"add", "replicate"})


def _is_ack(line: EventLine) -> bool:
    return line.event == "cancelled" or (line.event == "ack" and line.reason in _DONE)


def _holds(line: EventLine) -> bool:
    return line.event in _HOLDS and line.reason != _ELSEWHERE


def judge(
    job_id: str, scope: str, lines: Iterable[EventLine], logs: EventLogs, limits: AuditTolerance
) -> list[Finding]:
    """Judge what all nodes tell of a job, or of what one group did with an event (`scope`)."""
    # A line that is there twice is a fault of the log, and told as that.
    once = {_order(line): line for line in lines}
    return _Case(job_id, scope, [once[place] for place in sorted(once)], logs, limits).findings()


class _Case:
    """The lines of one job and scope."""

    def __init__(
        self, job_id: str, scope: str, lines: Sequence[EventLine], logs: EventLogs, limits: AuditTolerance
    ) -> None:
        self.job_id = job_id
        self.scope = scope
        self.lines = lines
        self.logs = logs
        self.limits = limits
        self.by_node: dict[str, list[EventLine]] = {}
        for line in lines:
            self.by_node.setdefault(line.node, []).append(line)
        self.queue = next((line.queue for line in lines if line.queue is not None), None)
        self.is_once = any(line.is_once for line in lines)
        #: Or nothing says that it is not, as the lines of who added it and of who delivered it are not there.
        self.may_be_once = self.is_once or not any(line.event in ("add", "deliver") for line in lines)
        self.ttl_us = next((line.ttl_us for line in lines if line.ttl_us is not None), None) or ttl_of(job_id)
        self.max_tries = next((line.max_tries for line in lines if line.max_tries is not None), None)
        self.keep_dead_us = next((line.keep_dead_us for line in lines if line.keep_dead_us is not None), 0)
        #: Every node that tells of it did so in one boot, so that ages say the same everywhere.
        self.is_steady = all(lines[0].boot == lines[-1].boot for lines in self.by_node.values())

    def finding(self, kind: str, line: EventLine | None, detail: str) -> Finding:
        if line is None:
            return Finding(kind, self.job_id, self.scope or None, self.queue, None, None, None, None, detail)
        return Finding(
            kind, self.job_id, self.scope or None, self.queue, line.node, line.boot, line.seq, line.ts_us, detail
        )

    def findings(self) -> list[Finding]:
        found: list[Finding] = []
        for lines in self.by_node.values():
            found += self._on_one_node(lines)
            found += self._tries(lines)
        found += self._between_nodes()
        if not self.scope:
            found += self._at_most_once()
            found += self._ends()
        return found

    # One node: by (boot, seq).

    def _on_one_node(self, lines: list[EventLine]) -> list[Finding]:
        found: list[Finding] = []
        acked: EventLine | None = None
        is_back = False
        for line in lines:
            if _is_ack(line):
                if acked is not None and acked.boot == line.boot and not is_back:
                    found.append(self.finding(ACKED_TWICE, line, f"acknowledged at {_at(acked)} by this node already"))
                acked, is_back = line, False
            elif line.event == "evict":
                acked = None
            elif acked is not None and line.event in _COMES:
                is_back = line.seq - acked.seq > ENDED_KEPT or self.may_be_once
            elif acked is not None and line.event == "deliver":
                is_known = acked.boot == line.boot and not is_back
                kind = DELIVERED_AFTER_ACK if is_known else REDELIVERED
                found.append(self.finding(kind, line, f"this node knew of its ack at {_at(acked)}"))
        return found

    def _tries(self, lines: list[EventLine]) -> list[Finding]:
        """Look for deliveries of a dead job, and for more tries of a generation than the job may have.

        A node that was started again may have lost what it knew.
        """
        found: list[Finding] = []
        dead: EventLine | None = None
        tries = 0
        boot = lines[0].boot
        for line in lines:
            if line.boot != boot or line.event in _COMES or line.event in ("redriven", "leave") or self._ends_it(line):
                dead, tries, boot = None, 0, line.boot
            if line.event == "dead":
                dead = line
            elif line.event == "requeue" and line.reason == "unseen":
                tries -= 1
            elif line.event == "deliver":
                tries += 1
                if dead is not None:
                    detail = f"it is dead since {_at(dead)}, and was not redriven"
                    found.append(self.finding(DELIVERED_DEAD, line, detail))
                elif self.max_tries and tries == self.max_tries + 1:
                    detail = f"try {tries} on this node; the job may have {self.max_tries}"
                    found.append(self.finding(TRIED_TOO_OFTEN, line, detail))
        return found

    # Several nodes: by age.

    def _between_nodes(self) -> list[Finding]:
        if len(self.by_node) == 1:
            return []
        found: list[Finding] = []
        acked = [line for line in self.lines if line.event == "ack" and line.age_us is not None]
        own = [line for line in acked if line.reason in _OWN]
        if len({line.node for line in own}) > 1:
            last = max(own, key=_age)
            nodes = " and ".join(sorted({line.node for line in own}))
            found.append(self.finding(ACKED_APART, last, f"clients acknowledged it at {nodes}"))
        acks = [line for line in own if line.reason is None]
        if acks:
            found += self._unheard(min(acks, key=_age))
        found += self._several_at_once()
        return found

    def _unheard(self, ack: EventLine) -> list[Finding]:
        """Look for nodes that go on with a job long after another one was told that it is done."""
        found: list[Finding] = []
        for node, lines in self.by_node.items():
            if node == ack.node:
                continue
            late: list[EventLine] = []
            for line in lines:
                if _is_ack(line):
                    break
                if line.event in ("deliver", "expire") and _age(line) > _age(ack) + self.limits.skew_us:
                    late.append(line)
            delivered = [line for line in late if line.event == "deliver"]
            if late and self.is_steady and _age(late[-1]) - _age(ack) > self.limits.patience_us:
                found.append(self.finding(ORPHANED, late[-1], _told(late[-1], ack)))
            elif delivered:
                found.append(self.finding(REDELIVERED, delivered[-1], _told(delivered[-1], ack)))
        return found

    def _several_at_once(self) -> list[Finding]:
        """Look for deliveries of two nodes of which the second comes while a consumer has the first."""
        had: EventLine | None = None
        for line in sorted((line for line in self.lines if line.age_us is not None), key=_age):
            if line.event == "deliver":
                retry_us = next((line.retry_us for line in self.lines if line.retry_us is not None), None)
                if had is not None and had.node != line.node and (retry_us or 0) > _age(line) - _age(had):
                    return [self.finding(DELIVERED_APART, line, f"a consumer of {had.node} has it ({_at(had)})")]
                had = line
            elif had is not None and (_is_ack(line) or line.event in ("nack", "requeue", "leave")):
                had = None
        return []

    # Jobs that are delivered once at most.

    def _at_most_once(self) -> list[Finding]:
        if not self.is_once:
            return []
        heard: list[EventLine] = []
        for lines in self.by_node.values():
            of_node: list[EventLine] = []
            for line in lines:
                if line.event == "deliver":
                    of_node.append(line)
                elif line.event == "requeue" and line.reason == "unseen" and of_node:
                    of_node.pop()
            heard += of_node
        firm = [line for line in heard if not self.logs.of(line).is_unsaid(line)]
        if len(heard) < 2:
            return []
        if len(firm) < 2:
            return [self.finding(NOT_KNOWN, heard[-1], "delivered twice, once of these as its node crashed")]
        return [self.finding(TWICE_ONCE, firm[-1], f"it was delivered at {_at(firm[0])}, and is to be once at most")]

    def _ends(self) -> list[Finding]:
        """Look for nodes that have a job and never say what became of it."""
        adds = [line for line in self.lines if line.event == "add"]
        if any(line.event == "refuse" for line in self.lines):
            return []
        ended = any(map(self._ends_it, self.lines))
        open_: list[EventLine] = []
        for lines in self.by_node.values():
            line = self._last_sign(lines)
            if line is not None:
                open_.append(line)
        if not open_:
            return []
        proven = [line for line in open_ if self._says_no_more(line)]
        if not ended:
            if not adds:
                return []
            holders = [line for line in proven if _holds(line)]
            if holders:
                return [self.finding(LOST, holders[-1], "its time is over, and no node tells of an end")]
            if self._is_over(open_):
                return [self.finding(NOT_KNOWN, open_[-1], "no node tells of an end, where logs are not whole")]
            return []
        return [
            self.finding(ORPHANED, line, "it has ended, and this node never says what became of what it has")
            for line in proven
            if _holds(line)
        ]

    def _ends_it(self, line: EventLine) -> bool:
        return _is_ack(line) or line.event in _ENDS or (line.event == "leave" and self.is_once)

    def _last_sign(self, lines: list[EventLine]) -> EventLine | None:
        """The last line by which a node shows that it has the job, if no end follows it."""
        last: EventLine | None = None
        for line in lines:
            if self._ends_it(line) or (line.event == "leave" and self.may_be_once):
                last = None
            elif line.event in _HOLDS:
                # A node that has shown that it keeps a copy does so still when it adds nothing to that.
                last = line
        return last

    def _says_no_more(self, line: EventLine) -> bool:
        """Tell whether the log of its node is whole until the job's time was over, and says nothing of an end."""
        log = self.logs.of(line)
        if not self.ttl_us or log.flushed_after(line.seq):
            return False
        left_us = max(0, self._time_of(line) - _age(line)) + SETTLE_US
        return log.passed(line.seq, line.ts_us) >= left_us

    def _time_of(self, line: EventLine) -> int:
        """How long a node keeps a job at most: longer if it is dead, or if its copy may have come as a dead one."""
        may_be_dead = any(other.event in ("dead", "redriven", "replicate") for other in self.by_node[line.node])
        return (self.ttl_us or 0) + (self.keep_dead_us or 0) * may_be_dead

    def _is_over(self, lines: list[EventLine]) -> bool:
        """Tell whether a job's time should be over by the end of the logs, so that somebody should know its end."""
        for line in lines:
            log = self.logs.of(line)
            if log.flushed_after(line.seq):
                return False
            left_us = max(0, self._time_of(line) - _age(line)) + SETTLE_US
            if not log.has_next and log.passed(line.seq, line.ts_us) < left_us:
                return False
        return bool(self.ttl_us)


def _order(line: EventLine) -> tuple[str, int, int]:
    return line[:3]


def _age(line: EventLine) -> int:
    return line.age_us or 0


def _at(line: EventLine) -> str:
    return f"{line.node} boot {line.boot} seq {line.seq}"


def _told(late: EventLine, ack: EventLine) -> str:
    apart_s = (_age(late) - _age(ack)) / SECOND_US
    return f"{late.event} {apart_s:.1f} s after {ack.node} was told that it is done ({_at(ack)})"


def ttl_of(job_id: str) -> int:
    """The longest time that a job may live, as its id tells, in microseconds; 0 = it does not tell."""
    field = job_id[42:46] if job_id.startswith("DI") else ""
    try:
        return (int(field, 16) + 1) * 60 * SECOND_US if field != "ffff" else 0
    except ValueError:
        return 0


# Numbers of lines.


def missing(first: int, last: int, seqs: Sequence[int]) -> list[tuple[int, int]]:
    """The ranges of numbers from first to last that are not among these, which are in order."""
    known = [first - 1, *seqs, last + 1]
    return [(before + 1, after - 1) for before, after in pairwise(known) if after - before > 1]


def finding_of_log(kind: str, place: tuple[str, int, int], at_us: int | None, detail: str) -> Finding:
    """Something that is wrong with a log itself, at (node, boot, seq)."""
    node, boot, seq = place
    return Finding(kind, None, None, None, node, boot, seq, at_us, detail)


def line_of(row: dict[str, Any]) -> EventLine:
    """Make a line of the columns of an event."""
    ttl_s, retry_s, reason = row.get("ttl_s"), row.get("retry_s"), row.get("reason")
    keep_dead_s = row.get("keep_dead_s")
    is_add = row["event"] == "add"
    return EventLine(row["node"], row["boot"], row["seq"], row["ts_us"], row["event"],
                     0 if is_add else row.get("age_us"), None if ttl_s is None else int(ttl_s * SECOND_US),
                     True if reason == "once" or (is_add and retry_s == 0) else None,
                     None if retry_s is None else int(retry_s * SECOND_US), row.get("peer"), reason,
                     row.get("queue"), row.get("max_tries"),
                     None if keep_dead_s is None else int(keep_dead_s * SECOND_US))  # fmt: skip
