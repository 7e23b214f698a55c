"""Tables and columns of reports.sqlite, and the marks in its header.

    queues      what a queue did in an hour or a day, and how long that took   (queue, grain, at)
    slo         a day of a queue held against its targets                      (date, queue, measure)
    audits      each check of the event logs of all nodes: its verdict         (id)
    faults      what such a check found, the first of it                       (audit, number)
    findings    what `doctor` found when it ran last                           (number)
    runs        each run of a job of `disqued-spark`                           (id)

Moments are texts, ``2026-11-22T10:00:00Z``, and days ``2026-11-22``, both of UTC, so that their order is that of texts.
Spans are whole microseconds and end with ``_us``, as in the event log; shares are numbers from 0 to 1.  What may be not
known is NULL.  Each row says when it was computed.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import attrs

APPLICATION_ID: Final = 0x4449_5350  #: "DISP", at byte 68 of the file
VERSION: Final = 1  #: `user_version`, at byte 60: that of the tables below

GRAINS: Final = ("hour", "day")
MEASURES: Final = ("wait", "run", "age")
VERDICTS: Final = ("clean", "faults", "loss")
STATUSES: Final = ("done", "failed")
FAULTS_MAX: Final = 1_000  #: of one audit

_FORMS: Final = {
    "moment": (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII), "a moment as 2026-11-22T10:00:00Z"),
    "date": (re.compile(r"\d{4}-\d\d-\d\d", re.ASCII), "a day as 2026-11-22"),
}
_TYPES: Final[Mapping[str, type]] = {"INTEGER": int, "REAL": float, "TEXT": str}


@attrs.frozen
class Column:
    """One column."""

    name: str
    kind: str  #: INTEGER, REAL or TEXT
    doc: str
    needed: bool = False  #: it is never NULL
    form: str = ""  #: of a text: moment, or date
    words: tuple[str, ...] = ()  #: the only ones that a text may be; none = it may be any

    @property
    def type(self) -> type:
        """What its values are in Python."""
        return _TYPES[self.kind]

    def wrong(self, value: Any) -> str:
        """What a value would have to be; empty = it may stand here."""
        if value is None:
            return "something" if self.needed else ""
        if self.words and value not in self.words:
            return f"one of {', '.join(self.words)}"
        if self.form:
            pattern, allowed = _FORMS[self.form]
            return "" if isinstance(value, str) and pattern.fullmatch(value) else allowed
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if self.kind == "TEXT":
            return "" if isinstance(value, str) else "a text"
        if self.kind == "INTEGER":
            return "" if is_whole and -(2**63) <= value < 2**63 else "a whole number of 64 bits"
        return "" if is_whole or isinstance(value, float) else "a number"


@attrs.frozen
class Table:
    """One table."""

    name: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    numbered: bool = False  #: its key is a number that SQLite gives out

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


def _whole(name: str, doc: str, *, needed: bool = False) -> Column:
    return Column(name, "INTEGER", doc, needed=needed)


def _text(name: str, doc: str, *, needed: bool = False, form: str = "", words: tuple[str, ...] = ()) -> Column:
    return Column(name, "TEXT", doc, needed=needed, form=form, words=words)


def _latencies(measure: str, what: str) -> tuple[Column, ...]:
    return tuple(_whole(f"{measure}_p{share}_us", f"{share} % of {what} at most so long") for share in (50, 95, 99))


_COMPUTED: Final = _text("computed_at", "when this row was computed", needed=True, form="moment")
_QUEUE: Final = _text("queue", "name of the queue, as the event log writes it", needed=True)
_DATE: Final = _text("date", "the day, UTC", needed=True, form="date")

QUEUES: Final = Table(
    "queues",
    ("queue", "grain", "at"),
    (
        _QUEUE,
        _text("grain", "hour or day", needed=True, words=GRAINS),
        _text("at", "when that hour or day began", needed=True, form="moment"),
        _whole("adds", "jobs that producers added"),
        _whole("delivers", "deliveries to consumers"),
        _whole("acks", "jobs that consumers acknowledged"),
        _whole("nacks", "jobs given back"),
        _whole("requeues", "jobs queued again since no ack came in time"),
        _whole("expires", "jobs whose TTL ended"),
        _whole("deletes", "jobs deleted"),
        _whole("evicts", "jobs dropped since memory was short"),
        _whole("bytes", "bytes of the bodies of jobs that were added"),
        *_latencies("wait", "deliveries were in the queue before"),
        *_latencies("run", "acknowledged jobs were with their consumer"),
        *_latencies("age", "acknowledged jobs were there altogether"),
        _COMPUTED,
    ),
)
SLO: Final = Table(
    "slo",
    ("date", "queue", "measure"),
    (
        _DATE,
        _QUEUE,
        _text("measure", "wait: in the queue; run: with the consumer; age: altogether", needed=True, words=MEASURES),
        _whole("count", "how many were measured"),
        _whole("p50_us", "half of them took at most so long"),
        _whole("p95_us", "95 % of them"),
        _whole("p99_us", "99 % of them"),
        _whole("target_us", "how long it may take"),
        Column("over", "REAL", "share that took longer than the target"),
        _whole("deliveries", "deliveries on that day"),
        _whole("redeliveries", "those that were not the first of their job"),
        Column("redelivery", "REAL", "redeliveries as a share of the deliveries"),
        _COMPUTED,
    ),
)
AUDITS: Final = Table(
    "audits",
    ("id",),
    (
        _whole("id", "number of the audit"),
        _text("checked_at", "when the logs were checked", needed=True, form="moment"),
        _text("since", "the events that were looked at begin here", form="moment"),
        _text("until", "and end here", form="moment"),
        _whole("nodes", "nodes that told of them"),
        _whole("events", "how many they are"),
        _text("verdict", "clean, faults or loss", needed=True, words=VERDICTS),
        _text("counts", "JSON: how often each kind was found", needed=True),
        _COMPUTED,
    ),
    numbered=True,
)
_PLACE: Final = (
    _text("job_id", "the job"),
    _text("scope", "epoch:group for an event of a log"),
    _text("queue", "its queue"),
    _text("node", "first 8 hex digits of the node that told of it"),
    _whole("boot", "boot of that node"),
    _whole("seq", "number of the event in that boot"),
    _whole("at_us", "when, in unix microseconds by the clock of that node"),
    _text("detail", "what was found, in words"),
)
FAULTS: Final = Table(
    "faults",
    ("audit", "number"),
    (
        _whole("audit", "the audit that found it", needed=True),
        _whole("number", "its place among those of the audit, from 1", needed=True),
        _text("kind", "what it is", needed=True),
        *_PLACE,
    ),
)
FINDINGS: Final = Table(
    "findings",
    ("number",),
    (
        _whole("number", "its place, from 1", needed=True),
        _DATE,
        _text("kind", "what it is", needed=True),
        _text("queue", "the queue that it is about"),
        _text("job_id", "the job that it is about, or an example"),
        _whole("count", "how many jobs it is about"),
        _whole("since_us", "since when, in unix microseconds"),
        _text("detail", "what was found, in words"),
        _text("advice", "what to do about what is of this kind"),
        _COMPUTED,
    ),
)
RUNS: Final = Table(
    "runs",
    ("id",),
    (
        _whole("id", "number of the run"),
        _text("job", "verb of disqued-spark", needed=True),
        _text("began_at", "when it began", needed=True, form="moment"),
        Column("seconds", "REAL", "how long it took", needed=True),
        _text("status", "done or failed", needed=True, words=STATUSES),
        _whole("rows", "rows that it wrote"),
        _text("note", "what is to be said of it; of one that failed, why"),
        _COMPUTED,
    ),
    numbered=True,
)

TABLES: Final = {table.name: table for table in (QUEUES, SLO, AUDITS, FAULTS, FINDINGS, RUNS)}
#: By name: table and columns, for reading the newest first.
INDEXES: Final = {
    "queues_by_time": ("queues", ("grain", "at")),
    "slo_by_queue": ("slo", ("queue", "date")),
    "runs_by_job": ("runs", ("job", "id")),
}


def moment(unix_s: float) -> str:
    """A moment as the tables have it."""
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
