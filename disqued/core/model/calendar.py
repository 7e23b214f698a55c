"""Schedules of jobs: what one says, when it comes, and the ids of its jobs.

    instants    cron line: as `clock.Calendar` says; EVERY: n spans after the schedule was set; AT: one
    id          DI 00000000 <32 digits: hash of name, version and instant> <TTL> SQ     the same on every node
    jitter      a delay of the job, derived from name and instant

A schedule is a register of its name (`policies`), and the version of the register is the version of the schedule.
What ADDJOB would derive from options, defaults of the queue and settings is derived once, when the schedule is set:
so each node makes the same job of an instant.

Times are unix milliseconds, spans milliseconds.
"""

from functools import lru_cache
from hashlib import shake_128
from typing import Final, NamedTuple

from disqued.core.model.clock import Calendar
from disqued.core.model.job import JobOptions
from disqued.core.model.spans import seconds_text
from disqued.core.model.terms import NO_TERMS, SCHEDULE_NAME, Headers, Terms, cost_of_terms

# Kinds of schedules.
CRON: Final = 1
EVERY: Final = 2
AT: Final = 3
KIND_NAMES: Final = {CRON: b"cron", EVERY: b"every", AT: b"at"}

NAME_MAX: Final = 255  #: bytes of the name of a schedule
LINE_MAX: Final = 255  #: bytes of a cron line, and of the name of a time zone
CATCH_UP_MAX: Final = 1_000
CATCH_UP: Final = 1  #: unless SCHEDULE SET says more
NO_NODE: Final = b"00000000"  #: stands in the ids of scheduled jobs where other ids name the node that made the job
ON_TIME_MS: Final = 10_000  #: an instant that is older has been missed, and CATCHUP says whether it counts
UTC: Final = b"UTC"
TIME_HEADER: Final = b"schedule-time"  #: header of each job of a schedule, besides its name: unix seconds

RANKED_MAX: Final = 1_000  #: orders of nodes that are remembered
_DIGITS: Final = 16  # bytes of the hash in an id


class JobTemplate(NamedTuple):
    """What the jobs of a schedule are."""

    queue: bytes
    body: bytes
    ttl_ms: int
    retry_ms: int
    delay_ms: int
    replicate: int  #: 0 = as many copies as can be made, up to the default
    maxlen: int  #: 0 = no limit
    asynchronous: bool
    terms: Terms


class ScheduleSetting(NamedTuple):
    """What a schedule says."""

    kind: int  #: CRON, EVERY or AT
    line: bytes  #: of CRON; else empty
    number: int  #: of EVERY the span, of AT the instant, else 0
    zone: bytes  #: name of the time zone of a cron line
    skips: bool  #: OVERLAP skip: no job while the last one is not over
    catch_up: int  #: how many missed instants count
    jitter_ms: int  #: the longest delay that is derived for a job
    job: JobTemplate


# What became of an instant that is over; where nodes say different things of one, the greater one holds.
MISSED: Final = 1  #: no node fired it in time
IN_PAUSE: Final = 2  #: the schedule was paused
SKIPPED: Final = 3  #: the last job was not over (OVERLAP skip)
FIRED: Final = 4  #: it has a job
OUTCOME_NAMES: Final = {MISSED: b"missed", IN_PAUSE: b"paused", SKIPPED: b"skipped", FIRED: b"fired"}
OUTCOMES_KEPT: Final = 5  #: outcomes of instants that a register holds, the latest ones
ERROR_MAX: Final = 200  #: bytes of the error of a refusal

#: An instant that is over, and what became of it.
InstantOutcome = tuple[int, int]


class LastFiring(NamedTuple):
    """The last job of a schedule and the outcomes of its last instants, as the register of its last instant has them.

    Two of them have a join, which neither order nor repetition changes: the job of the later instant, and of each
    instant the greater outcome.
    """

    job_id: bytes  #: of the last job; empty = there has been none
    fired_at: int = 0  #: instant of that job; 0 = none
    outcomes: tuple[InstantOutcome, ...] = ()  #: in order, each instant once, `OUTCOMES_KEPT` at most


class Refusal(NamedTuple):
    """Why the job of an instant was refused."""

    instant: int
    error: bytes  #: code and text, printable UTF-8


def joined(one: LastFiring, other: LastFiring) -> LastFiring:
    """Return what two sides know together of the last instants of a schedule."""
    fired_at, job_id = max((one.fired_at, one.job_id), (other.fired_at, other.job_id))
    outcomes = dict(one.outcomes)
    for instant, outcome in other.outcomes:
        outcomes[instant] = max(outcome, outcomes.get(instant, 0))
    return LastFiring(job_id, fired_at, tuple(sorted(outcomes.items())[-OUTCOMES_KEPT:]))


def words_of(setting: ScheduleSetting) -> bytes:
    """Return when a schedule comes, as SCHEDULE SET takes it: spans and instants in seconds."""
    if setting.kind == CRON:
        return setting.line
    return b"%b %b" % (KIND_NAMES[setting.kind].upper(), seconds_text(setting.number))


def is_of_schedule(job_id: bytes) -> bool:
    """Return whether an id is that of an instant of a schedule."""
    return job_id[2:10] == NO_NODE


@lru_cache(RANKED_MAX)
def ranked(name: bytes, node_ids: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return nodes in the order in which they are to see to a schedule: by rendezvous hash, the same on every node."""
    return tuple(sorted(node_ids, key=lambda node_id: shake_128(name + node_id, usedforsecurity=False).digest(8)))


def derived_id(name: bytes, version: tuple[int, bytes], instant: int, ttl_suffix: bytes) -> bytes:
    """Return the id of the job of an instant."""
    counter, node_id = version
    text = b"%b:%d:%b:%d" % (node_id, counter, name, instant)
    return b"DI" + NO_NODE + shake_128(text, usedforsecurity=False).hexdigest(_DIGITS).encode() + ttl_suffix


def jitter_of(name: bytes, setting: ScheduleSetting, instant: int) -> int:
    """Return the delay that is derived for the job of an instant."""
    if not setting.jitter_ms:
        return 0
    digest = shake_128(b"%b@%d" % (name, instant), usedforsecurity=False).digest(8)
    return int.from_bytes(digest, "big") % (setting.jitter_ms + 1)


def headers_of(name: bytes, setting: ScheduleSetting, instant: int) -> Headers:
    """Return the headers of the job of an instant."""
    return (*setting.job.terms.headers, (SCHEDULE_NAME, name), (TIME_HEADER, b"%d" % (instant // 1_000)))


def options_of(name: bytes, setting: ScheduleSetting, instant: int, replicate: int) -> JobOptions:
    """Return the options of the job of an instant, with so many copies."""
    job = setting.job
    return JobOptions(
        ttl_ms=job.ttl_ms, retry_ms=job.retry_ms, delay_ms=job.delay_ms + jitter_of(name, setting, instant),
        replicate=replicate, terms=job.terms._replace(headers=headers_of(name, setting, instant)),
    )  # fmt: skip


def next_instants(setting: ScheduleSetting, set_at: int, calendar: Calendar, wall: int, count: int) -> list[int]:
    """Return the first instants of a schedule after a time, in order; it was set at `set_at`."""
    wall = max(wall, set_at)
    if setting.kind == CRON:
        return calendar.after(setting.line, setting.zone, wall, count)
    if setting.kind == AT:
        return [setting.number] if setting.number > wall else []
    passed = (wall - set_at) // setting.number
    return [set_at + (passed + n) * setting.number for n in range(1, count + 1)]


def last_instants(  # noqa: PLR0917 - a span and how many of it
    setting: ScheduleSetting, set_at: int, calendar: Calendar, since: int, wall: int, count: int
) -> list[int]:
    """Return the last instants of a schedule after `since` and not after `wall`, in order; it was set at `set_at`."""
    since = max(since, set_at)
    if since >= wall:
        return []
    if setting.kind == CRON:
        return calendar.before(setting.line, setting.zone, since, wall, count)
    if setting.kind == AT:
        return [setting.number] if since < setting.number <= wall else []
    last = (wall - set_at) // setting.number
    first = max((since - set_at) // setting.number + 1, last - count + 1)
    return [set_at + n * setting.number for n in range(first, last + 1)]


def that_count(instants: list[int], setting: ScheduleSetting, wall: int) -> list[int]:
    """Return those of past instants that are to be fired: all that are on time, and the last ones that were missed."""
    missed = [instant for instant in instants if wall - instant > ON_TIME_MS]
    on_time = instants[len(missed) :]
    return [*missed[max(0, len(missed) - setting.catch_up) :], *on_time]


def looked_at(setting: ScheduleSetting) -> int:
    """Return how many past instants `that_count` needs."""
    return setting.catch_up + ON_TIME_MS // 1_000 + 1


def cost_of_schedule(setting: ScheduleSetting) -> int:
    """Return the bytes that the texts and numbers of a schedule take."""
    job = setting.job
    numbers = 8 * (len(setting) + len(job))
    headers = cost_of_terms(job.terms) if job.terms is not NO_TERMS else 0
    return numbers + len(setting.line) + len(setting.zone) + len(job.queue) + len(job.body) + headers
