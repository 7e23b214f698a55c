"""Schedules under faults: what must be so of the jobs that nodes add by themselves.

    SCHEDULE SET on a node --> answered: its instants count from then on, until the heal
    GETJOB WITHHEADERS --> name and instant of a job --> ACKJOB, now and then at another node

    one id         all jobs of an instant have one id, on whatever nodes they were made
    none missed    each instant that counts has a job that was delivered; CATCHUP lets no instant go
    not early      no job is delivered before the clock of a node has shown its instant
    acks last      a job whose acknowledgement was taken by a node that knew it does not come after the heal
    exactly once   where nothing fails, each job is delivered once, and soon after its instant
    told truly     of the last instants all nodes tell the same, after the heal: which have a job, and these come, and
                   which have none, since they were missed or skipped, and no job of theirs is ever delivered

Clocks may be wrong: each node's by some seconds for all its life (`Profile.off_ms`), or set by minutes and set right
again (the fault `set_clock`).  The clock that is ahead of all others fires an instant, and that is over then; a clock
that is set back lets nothing come again.  What is missed while all clocks are behind comes once they are set right.
Two schedules may miss instants, or skip them: they are there for what is told of those.

The jobs live for longer than the clocks differ: else an acknowledgement may be forgotten before the other side of a
partition makes its job.

Times are integer milliseconds; instants are unix milliseconds.
"""

from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs

from disqued.core.cluster.schedules import LOOKED_EVERY_MS, RUNS_TOLD
from disqued.errors import CommandError
from disqued.testing.checker import GRACE_MS, Ledger
from disqued.testing.clients import RECONNECT_MS, Actor, Connection, Load, Operator
from disqued.testing.clock import WALL_MS

if TYPE_CHECKING:
    from disqued.testing.server import SimServer

QUEUE: Final = b"beats"
CATCH_UP: Final = b"1000"  #: more instants than there are in an age
CONVERGED_MS: Final = 10_000  #: after the heal, in which all nodes hear what became of the instants before it
SETTLED_MS: Final = 20_000  #: after the heal, in which every instant before it is fired
TTL_S: Final = 20_000  #: of jobs
SOON_MS: Final = 1_000  #: after its instant and its jitter a job is delivered where nothing fails
#: Words behind the name of each schedule, and its seconds within a minute; none: from when it was set, every so many.
_EVERY_S: Final = 5
_JITTER_S: Final = 3
_KINDS: Final[dict[bytes, tuple[tuple[bytes, ...], tuple[int, ...]]]] = {
    b"span": ((b"EVERY", b"%d" % _EVERY_S), ()),
    b"line": ((b"*/8 * * * * *",), tuple(range(0, 60, 8))),
    b"zone": ((b"15,45 * * * * *", b"TZ", b"Asia/Kathmandu"), (15, 45)),
    b"jitter": ((b"5-55/10 * * * * *", b"JITTER", b"%d" % _JITTER_S), tuple(range(5, 60, 10))),
    b"lapse": ((b"3-53/10 * * * * *", b"CATCHUP", b"0"), tuple(range(3, 60, 10))),
    b"skip": ((b"1/4 * * * * *", b"OVERLAP", b"skip", b"CATCHUP", b"1"), tuple(range(1, 60, 4))),
}
#: Kinds of which not each instant has a job.
_INCOMPLETE: Final = (b"lapse", b"skip")


@attrs.define
class Beat:
    """An instant of a schedule, and what became of it."""

    ids: set[bytes] = attrs.field(factory=set)
    deliveries: int = 0
    first_at: int = 0  #: when it was delivered first
    firm_at: int | None = None  #: when an acknowledgement was taken by a node that knew the job


class ScheduleAge:
    """The schedules of one age, and what must be so of them."""

    def __init__(
        self, servers: "list[SimServer]", name: str, *, is_calm: bool, retry_s: int, are_clocks_set: bool
    ) -> None:
        self._servers = servers
        self._events = servers[0].events
        self._name = name.encode()
        self._is_calm = is_calm
        self._retry_s = retry_s
        #: A clock that was set right is looked at after so long.
        self._settled_ms = SETTLED_MS + (LOOKED_EVERY_MS if are_clocks_set else 0)
        self._set_at: dict[bytes, int] = {}  #: by the names of schedules that are set
        self._beats: dict[tuple[bytes, int], Beat] = {}
        self._takers: list[ScheduleTaker] = []
        self._until = 0  #: instants until then count
        self._healed_at: int | None = None
        self._wrong: list[str] = []
        #: What nodes have told of instants: whether there is a job.
        self._told: dict[tuple[bytes, int], set[bool]] = {}

    @property
    def wall(self) -> int:
        """What the clocks should show."""
        return WALL_MS + self._events.now

    @property
    def latest(self) -> int:
        """The latest time that the clock of a node has shown."""
        return max(server.clock.latest for server in self._servers)

    @property
    def deliveries(self) -> int:
        """Count the jobs that were delivered."""
        return sum(beat.deliveries for beat in self._beats.values())

    def begin(self, checker: Ledger, load: Load, draws: Iterable[Random]) -> None:
        """Set the schedules, and let consumers come, one for each generator."""
        for kind, (words, _) in _KINDS.items():
            name = b"%b %b" % (kind, self._name)
            catch_up = () if kind in _INCOMPLETE else (b"CATCHUP", CATCH_UP)
            options = (*catch_up, b"RETRY", b"%d" % self._retry_s, b"TTL", b"%d" % TTL_S)
            what = [b"SCHEDULE", b"SET", name, *words, b"QUEUE", QUEUE, b"BODY", name, *options]
            self._servers[0].command(Operator(partial(self._was_set, name)), what)
        for number, rng in enumerate(draws):
            taker = ScheduleTaker(self._servers, checker, load, f"taker {number}", rng)
            taker.age = self
            self._takers.append(taker)
            taker.plan(rng.randint(1, 1_000))

    def _was_set(self, name: bytes, value: Any) -> None:
        if isinstance(value, Exception):
            self._wrong.append(f"SCHEDULE SET {name!r} was refused: {value}")
        else:
            policies = self._servers[0].state.queues.policies
            self._set_at[name] = max(at.set_at for (place, _), at in policies.registers.items() if place == name)

    def healed(self) -> None:
        """The faults are over: what has come until now counts."""
        self._healed_at = self._events.now
        self._until = self.wall

    def finish(self, passes: Callable[[int], None]) -> None:
        """Let the instants before the heal be fired while time passes, and delete the schedules."""
        if self._set_at:
            passes(CONVERGED_MS)
            self._note_told()
            passes(self._settled_ms - CONVERGED_MS)
            self._note_told()
        for name in self._set_at:
            self._servers[0].command(Operator(), [b"SCHEDULE", b"DEL", name])

    def _note_told(self) -> None:
        """Note what each node tells of the last instants before the heal."""
        for name in self._set_at:
            for number, server in enumerate(self._servers):
                runs = [run for run in server.node.schedules.runs_of(name, RUNS_TOLD) if run.instant <= self._until]
                expected = self._instants(name, runs[0].instant if runs else 0)[-len(runs) :]
                if runs and [run.instant for run in reversed(runs)] != expected:
                    self._wrong.append(f"told truly: {name!r} at node {number} has runs {runs}, not of {expected}")
                for run in runs:
                    self._told.setdefault((name, run.instant), set()).add(bool(run.job_id))

    def _untrue(self) -> list[str]:
        """What was told of instants and is not so."""
        return [
            f"told truly: {name!r} at {instant}: nodes say whether there is a job: {said}, and"
            f" {'it' if (name, instant) in self._beats else 'none'} came"
            for (name, instant), said in self._told.items()
            if said != {(name, instant) in self._beats}
        ]

    def end(self) -> None:
        """Let the consumers go."""
        for taker in self._takers:
            taker.end()

    def taken(self, job_id: bytes, headers: list[bytes]) -> None:
        """Note a delivery."""
        found = dict(zip(headers[::2], headers[1::2], strict=True))
        name, second = found[b"schedule-name"], int(found[b"schedule-time"])
        latest = self.latest
        instant = next((one for one in self._instants(name, latest) if one // 1_000 == second), None)
        if instant is None:
            self._wrong.append(f"not early: {name!r} has no instant {second} until {latest}, and {job_id!r} came")
            return
        beat = self._beats.setdefault((name, instant), Beat())
        beat.ids.add(job_id)
        beat.deliveries += 1
        beat.first_at = beat.first_at or self.wall
        if beat.firm_at is not None and self._healed_at is not None:
            after_heal = self._events.now > self._healed_at + GRACE_MS
            if after_heal and beat.firm_at < self._events.now - GRACE_MS:
                self._wrong.append(f"acks last: {job_id!r}, acknowledged at {beat.firm_at}, came at {self._events.now}")

    def acked(self, job_id: bytes) -> None:
        """Note that a node that knew a job took its acknowledgement."""
        for beat in self._beats.values():
            if job_id in beat.ids and beat.firm_at is None:
                beat.firm_at = self._events.now

    def _instants(self, name: bytes, until: int) -> list[int]:
        """The instants of a schedule, found without a calendar."""
        set_at = self._set_at.get(name)
        if set_at is None:
            return []
        seconds = _KINDS[name.split(b" ")[0]][1]
        if not seconds:
            return list(range(set_at + _EVERY_S * 1_000, until + 1, _EVERY_S * 1_000))
        first, last = set_at // 1_000 + 1, until // 1_000
        return [second * 1_000 for second in range(first, last + 1) if second % 60 in seconds]

    def missing(self) -> list[tuple[bytes, int]]:
        """Instants that count, and of which nobody has seen a job."""
        counts = [
            (name, instant)
            for name in self._set_at
            if name.split(b" ")[0] not in _INCOMPLETE
            for instant in self._instants(name, self._until)
        ]
        return [place for place in counts if place not in self._beats]

    def wrong(self) -> list[str]:
        """What is not as it must be."""
        several = [
            f"one id: {name!r} at {instant} has {sorted(beat.ids)}"
            for (name, instant), beat in self._beats.items()
            if len(beat.ids) > 1
        ]
        missed = [f"none missed: {name!r} at {instant} was never delivered" for name, instant in self.missing()]
        return [*self._wrong, *several, *missed, *self._untrue(), *(self._uncalm() if self._is_calm else ())]

    def _uncalm(self) -> list[str]:
        """What must not be where nothing fails."""
        return [
            f"exactly once: {name!r} at {instant} came {beat.deliveries} times, after {beat.first_at - instant} ms"
            for (name, instant), beat in self._beats.items()
            if beat.deliveries > 1
            or beat.first_at - instant > SOON_MS + (_JITTER_S * 1_000 if name.startswith(b"jitter") else 0)
        ]  # fmt: skip


class ScheduleTaker(Actor):
    """Takes jobs of schedules and acknowledges them, here or elsewhere."""

    age: ScheduleAge
    _held: bytes | None = None  #: the job that it works on
    _acking: bytes | None = None  #: the job that it has acknowledged, and has no answer yet

    def go_on(self) -> None:
        """Acknowledge what it has, or ask for more."""
        connection = self.connect()
        if connection is None:
            self.plan(RECONNECT_MS)
        elif self._held is None:
            timeout = b"%d" % self.rng.choice((500, 3_000))
            words = [b"GETJOB", b"TIMEOUT", timeout, b"WITHHEADERS", b"FROM", QUEUE]
            connection.server.command(connection, words)
        else:
            if self.rng.random() < self.load.acks_elsewhere:
                connection.close()
                connection = self.connect()
                if connection is None:
                    self.plan(RECONNECT_MS)
                    return
            self._acking, self._held = self._held, None
            connection.server.command(connection, [b"ACKJOB", self._acking])

    def heard(self, connection: Connection, value: Any) -> None:
        """Work on the job, or note that it is done."""
        if self._acking is not None:
            if value == 1:
                self.age.acked(self._acking)
            self._acking = None
            self.plan(self.rng.randint(0, 50))
            return
        if isinstance(value, CommandError) or not value:
            if self.rng.random() < 0.5:
                connection.close()
            self.plan(self.rng.randint(50, 300))
            return
        _, job_id, _, _, headers, *_ = value[0]
        self.events.note(job_id)
        self.age.taken(job_id, headers)
        self._held = job_id
        self.plan(self.rng.randint(0, self.load.work_ms))

    def disconnected(self, connection: Connection) -> None:
        """What it had comes again, to whoever asks."""
        self._held = self._acking = None
        super().disconnected(connection)
