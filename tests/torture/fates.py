"""The bank with jobs that fail on purpose, and with jobs whose results somebody waits for.

    failing    MAXTRIES, BACKOFF     each consumer fails it: NACK with REASON, DELAY or DEAD, or silence
               dead                  found by JSCAN and WAITJOB; some are redriven between faults, all in the end
               redriven              a job like any other: it must be acknowledged, or be dead once more
    asked      RESULT                its consumer says a result, and WAITJOB on a random node must answer it

Besides the books of the bank, this must be so:

    tries      no job is delivered more than MAXTRIES times between two REDRIVE; once more so often for each fault
               that it has lived through, as a node that was away, or was cut off, is another side
    dead       no job that is dead comes before REDRIVE, but on such a side; each becomes dead, and is found so
    result     what WAITJOB answers as acknowledged has a result that a consumer gave
    answered   each job that is over is answered as over, unless its holders lost their memory

Times are milliseconds unless the name says s.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import attrs
import redis

from disqued.testing.checker import GRACE_MS, Request, shown
from tests.bank import BREATH, LONG_S, Bank, Tally, now
from tests.integration.daemon import Daemon, wait_until

FAILING, ASKED = 0.1, 0.15  #: of the jobs that must arrive
TRIES = (1, 2, 3)
OPEN_MAX = 150  #: failing jobs that are not over
WAITED_AT_ONCE = 8
WAIT_MS = 1_000
KEPT_S = 60  #: results are kept: longer than a fault lasts
REST_MS = 2 * GRACE_MS  #: that a dead job must stay dead before it is redriven


@attrs.define
class FateTally(Tally):
    """What became of jobs with terms."""

    failed: Counter[str] = attrs.field(factory=Counter)  #: tries, by the way in which they were failed
    dead: int = 0
    redriven: int = 0
    answers: Counter[str] = attrs.field(factory=Counter)  #: rows of WAITJOB by state
    over_tries: int = 0  #: deliveries beyond MAXTRIES, which a fault excuses

    def line(self) -> str:
        """The figures."""
        words = (f"{count} {word}" for word, count in sorted((self.failed + self.answers).items()))
        fates = (
            f"{self.dead} dead, {self.redriven} redriven, {self.over_tries} tries on other sides; {', '.join(words)}"
        )
        return f"{Tally.line(self)}; {fates}"


@attrs.define
class Failing:
    """A job that fails."""

    max_tries: int
    asked_at: int
    tries: int = 0  #: since the last REDRIVE
    dead_at: int = 0  #: when somebody first heard that it is dead; 0 = it is not
    is_found: bool = False  #: by JSCAN
    redriven_at: int = 0  #: the last time; 0 = it was not
    is_over: bool = False  #: a consumer has sent its acknowledgement
    history: list[str] = attrs.field(factory=list)  #: what clients saw, and what failed meanwhile

    def note(self, what: str) -> None:
        """Note what somebody saw."""
        self.history.append(f"{now()} {what}")


class FateBank(Bank):
    """Clients of daemons that fail some jobs, and wait for others."""

    tally: FateTally

    def __init__(self, daemons: Sequence[Daemon], seed: int) -> None:
        super().__init__(daemons, seed)
        self.tally = FateTally()
        self._failing: dict[int, Failing] = {}  #: by number
        self._asked: set[int] = set()  #: numbers of jobs whose results are kept
        self._waited: dict[bytes, Request] = {}  #: jobs that WAITJOB has yet to answer as over
        self._given: dict[bytes, set[bytes]] = {}  #: results that consumers gave
        self._faults: list[list[int]] = []  #: [begin, end] of times in which nodes were apart; end 0 = they are
        self._redrives_all = False

    # What a campaign asks for.

    def apart(self, what: str) -> None:
        """Begin a fault: not all nodes hear each other."""
        with self._guard:
            self._faults.append([now(), 0])
            self._note(what)

    def together(self, what: str) -> None:
        """End it: all nodes hear each other."""
        with self._guard:
            self._faults[-1][1] = now()
            self._note(what)

    def _note(self, what: str) -> None:
        for job in self._failing.values():
            if not job.is_over:
                job.note(what)

    def close(self) -> None:
        """Wait until each job that must be dead is, then redrive all, and until each wait is answered."""
        with self._guard:
            self.checker.healed(now())
        self._no_more.set()
        self._wait_until_none(self._alive, "every failing job dead, and found by JSCAN")
        self._wait_until_none(lambda: [*map(self.checker.known, self._unanswered())], "every wait answered")
        self._redrives_all = True
        super().close()
        self._wait_until_none(lambda: [*map(self.checker.known, self._unanswered())], "every wait answered")

    def _wait_until_none(self, left: Callable[[], list[Request | None]], what: str) -> None:
        def is_done() -> bool:
            with self._guard:
                return bool(self._failures) or not left()

        try:
            wait_until(is_done, what)
        except AssertionError as late:
            with self._guard:
                jobs = [f"{shown(request)} {self._failing.get(request.number)}" for request in left()[:5] if request]
            raise AssertionError("\n".join((str(late), self.tally.line(), *jobs, *self.checker.violations))) from None
        self._raise()

    def _alive(self) -> list[Request | None]:
        """Failing jobs that are not known to be dead yet."""
        return [
            request
            for number, job in self._failing.items()
            if not (job.is_found or job.redriven_at)
            and self.checker.is_missing(request := self.checker.requests[number])
        ]

    def _unanswered(self) -> list[bytes]:
        return [
            job_id
            for job_id, request in self._waited.items()
            if (request.number in self._failing or request.ack_sent) and not self.checker.may_be_lost(request)
        ]

    # Producers.

    def _new_request(self, node: int, random: Random) -> Request:
        request = super()._new_request(node, random)
        if request.retry_ms and request.waits_for_copies:
            luck = random.random()
            with self._guard:
                if luck < FAILING and sum(not job.redriven_at for job in self._failing.values()) < OPEN_MAX:
                    self._failing[request.number] = Failing(random.choice(TRIES), request.asked_at)
                elif luck > 1 - ASKED:
                    self._asked.add(request.number)
        return request

    def addition_of(self, request: Request) -> tuple[object, ...]:
        """Make the words of ADDJOB, with terms."""
        words = super().addition_of(request)
        if job := self._failing.get(request.number):
            return (*words, "MAXTRIES", job.max_tries, "BACKOFF", 1, 2, "KEEPDEAD", LONG_S)
        return (*words, "RESULT", KEPT_S) if request.number in self._asked else words

    def _note_answer(self, request: Request, job_id: bytes) -> None:
        super()._note_answer(request, job_id)
        with self._guard:
            if request.number in self._failing and request.number in self._open:
                # It is not over for a while, and nobody waits for that to add more.
                self._open.discard(request.number)
                self._open_of[self._account(request)] -= 1
            if request.number in self._failing or request.number in self._asked:
                self._waited[job_id] = request

    # Consumers.

    def _note_delivery(self, request: Request, job_id: bytes, node: int) -> None:
        super()._note_delivery(request, job_id, node)
        job = self._failing.get(request.number)
        if job is None:
            return
        job.tries += 1
        job.note(f"delivered by {node}")
        faults = sum(not end or end >= job.asked_at for _, end in self._faults)
        if job.tries > job.max_tries * (1 + faults):
            self.checker.blame(f"tries: {shown(request)} is delivered the {job.tries}. time; {job}")
        self.tally.over_tries += job.tries > job.max_tries
        if job.dead_at and now() > job.dead_at + GRACE_MS and not faults:
            self.checker.blame(f"dead: {shown(request)} is delivered, and was not redriven; {job}")

    def _treat(self, node: int, random: Random, client: redis.Redis, job_id: bytes) -> None:
        request = self._by_id.get(job_id)
        job = None if request is None else self._failing.get(request.number)
        if job is None:
            super()._treat(node, random, client, job_id)
            return
        if job.redriven_at:
            self._acknowledge(node, client, job_id)
            job.is_over = True
            job.note("acknowledged")
            return
        way = random.choice(("reason", "reason", "silence", "delay", "bury"))
        with self._guard:
            self.tally.failed[way] += 1
            job.note(way)
        if way == "silence":
            return
        words = {"reason": (), "delay": ("DELAY", 1), "bury": ("DEAD",)}[way]
        known = client.execute_command("NACK", job_id, "REASON", f"by {way}", *words)
        with self._guard:
            job.note(f"NACK answered {known}")
            if known and way == "bury":
                self._note_dead(job)

    def result_of(self, job_id: bytes) -> tuple[object, ...]:
        """Make a result that no other consumer gives."""
        with self._guard:
            request = self._by_id.get(job_id)
            if request is None or request.number not in self._asked:
                return ()
            given = self._given.setdefault(job_id, set())
            given.add(result := b"%b, no. %d" % (job_id, len(given)))
        return "RESULT", result

    # Those who wait, and those who redrive.

    def _tasks(self) -> list[Callable[[int, Random, redis.Redis], None]]:
        return [*super()._tasks(), self._wait, self._redrive]

    def _wait(self, node: int, random: Random, client: redis.Redis) -> None:
        """Wait on this node for jobs that were added on any."""
        with self._guard:
            waited = list(self._waited)
        some = random.sample(waited, min(WAITED_AT_ONCE, len(waited)))
        if not some:
            self._over.wait(BREATH)
            return
        rows = client.execute_command("WAITJOB", WAIT_MS, "ANY", *some)
        with self._guard:
            for job_id, state, result, _, _ in rows:
                self._note_state(job_id, state.decode(), result)
        if any(row[1] == b"unknown" for row in rows):
            self._over.wait(10 * BREATH)  # while nodes are apart it is so for long

    def _note_state(self, job_id: bytes, state: str, result: bytes | None) -> None:
        self.tally.answers[state] += 1
        request = self._waited.get(job_id)
        if request is None or state == "pending" or (state == "unknown" and not self.checker.may_be_lost(request)):
            return
        if state == "unknown":
            del self._waited[job_id]
            return
        job = self._failing.get(request.number)
        if state == "acked" and job is None:
            if result not in self._given.get(job_id, ()):
                self.checker.blame(f"result: WAITJOB says {result!r} of {shown(request)}, which no consumer gave")
        elif state == "dead" and job is not None:
            self._note_dead(job)
        elif not (state == "acked" and job is not None and job.redriven_at):
            self.checker.blame(f"state: WAITJOB says {state} of {shown(request)}")
        del self._waited[job_id]

    def _redrive(self, node: int, random: Random, client: redis.Redis) -> None:
        """Find dead jobs on this node, and redrive some that have been dead for a while."""
        _, found = client.execute_command("JSCAN", 0, "BUSYLOOP", "STATE", "dead", "REPLY", "ID")
        wanted: dict[bytes, list[bytes]] = {}
        strangers: list[bytes] = []
        with self._guard:
            for job_id in found:
                request = self.checker.known(job_id)
                job = None if request is None else self._failing.get(request.number)
                if request is None or job is None:
                    strangers.append(job_id)  # its ADDJOB was not answered, and nobody has had it yet
                    continue
                if job.redriven_at and now() < job.redriven_at + GRACE_MS:
                    continue  # REDRIVE is under way, of which this node may not have heard
                job.is_found = True
                self._note_dead(job)
                has_rested = now() > job.dead_at + REST_MS and random.random() < 0.3
                if self._redrives_all or has_rested:
                    job.redriven_at, job.tries, job.dead_at = now(), 0, 0
                    job.note("redriven")
                    self._waited.pop(job_id, None)
                    wanted.setdefault(request.queue, []).append(job_id)
        for queue, job_ids in wanted.items():
            self.tally.redriven += client.execute_command("REDRIVE", queue, "ID", *job_ids)
        for job_id in strangers if self._redrives_all else ():
            if (shown := client.execute_command("SHOW", job_id)) is not None:
                client.execute_command("REDRIVE", shown[shown.index(b"queue") + 1], "ID", job_id)
        self._over.wait(10 * BREATH)

    def _note_dead(self, job: Failing) -> None:
        # What was said before REDRIVE may be heard behind it.
        if not job.dead_at and now() > job.redriven_at + GRACE_MS:
            job.dead_at = now()
            job.note("dead")
            self.tally.dead += 1
