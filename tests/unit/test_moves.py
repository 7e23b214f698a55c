"""The state machine that moves jobs: what it promises at every step, on real nodes without sockets.

    here: Server --Ask--> machine --Ask--> there: Server        a test ends the machine, or lets others act, at any step

A job counts as moved once it is there, and in no queue here.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from disqued import moves
from disqued.commands.values import in_seconds
from disqued.core.model.job import QUEUED, NamedJob
from disqued.core.model.terms import Terms as JobTerms
from disqued.errors import CommandError, WrongType
from disqued.moves import (
    PAUSE_S,
    Ask,
    Broken,
    Effect,
    Has,
    Job,
    Lost,
    Machine,
    Refusal,
    Side,
    Tally,
    Terms,
    Wait,
    key_of,
    move_chosen,
    move_delivered,
    move_known,
    read_shown,
    run,
    words_of,
)
from disqued.testing.clock import Clock
from tests.core_fixtures import Server

ID = b"DI" + b"0" * 44 + b"SQ"
RETRY_S = 5
TERMS = Terms(b"mail", b"letters")
STEPS = 12  #: more than a machine takes for one batch


class Killed(BaseException):
    """The mover is no more: it does nothing from then on."""


@attrs.define
class World:
    """Two nodes, and a mover between them."""

    clock: Clock = attrs.field(factory=lambda: Clock(now=1_000))
    here: Server = attrs.field(init=False)
    there: Server = attrs.field(init=False)
    asked: list[tuple[Side, str]] = attrs.field(factory=list)
    sent: list[Ask] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.here = Server(seed=1, clock=self.clock)
        self.there = Server(seed=2, clock=self.clock)

    def perform(self, effect: Effect) -> Any:
        """Carry out an effect."""
        if isinstance(effect, Wait):
            self.clock.advance(int(effect.seconds * 1_000))
            return None
        first = effect.commands[0][0]
        self.asked.append((effect.side, first.decode() if isinstance(first, bytes) else str(first)))
        self.sent.append(effect)
        server = self.here if effect.side is Side.HERE else self.there
        return [ask(server, words) for words in effect.commands]

    def come_back(self) -> None:
        """Let the retry time of every job pass."""
        self.here.advance(RETRY_S * 1_000 + 2_000)

    def chosen(self) -> list[Job]:
        """All jobs of the queue here, as the HTTP API describes them."""
        found = [job for job in self.here.state.jobs if job.queue == b"mail" and not job.options.kind]
        return [
            Job(
                job.id, job.body, 100, in_seconds(job.options.retry_ms), job.options.replicate,
                job.alias[1:] if isinstance(job, NamedJob) else key_of(job.id),
                has=Has.QUEUE if job.state == QUEUED else Has.OTHERS,
                terms=words_of(
                    job.options.terms.max_tries, (0, 0), 0, in_seconds(job.options.terms.keep_result_ms), ()
                ),
            )
            for job in sorted(found, key=lambda job: job.body)
        ]  # fmt: skip

    def all_there(self) -> list[bytes]:
        """The bodies of all jobs there, in their order."""
        return [row[2] for row in self.there("QPEEK", "letters", 1_000)]

    def all_here(self) -> list[bytes]:
        """The bodies of the jobs that wait here."""
        return [row[2] for row in self.here("QPEEK", "mail", 1_000)]

    def is_empty_here(self) -> bool:
        """True when nothing is left here, in whatever state."""
        return not len(self.here.state.jobs)


def ask(server: Server, words: Any) -> Any:
    try:
        return server(*words)
    except CommandError as error:
        return Refusal(error.code, error.text, error)


def fill(server: Server, count: int, *options: str | int) -> list[bytes]:
    made = [b"%02d" % number for number in range(count)]
    for body in made:
        server.add("mail", body, "RETRY", RETRY_S, "TTL", 1_000, *options)
    return made


#: Ways to begin a move: a batch that GETJOB gave, and one that was chosen by its ids.
Begin = Callable[[World], Machine[Any]]
BEGINNINGS: dict[str, Begin] = {
    "delivered": lambda world: move_delivered(TERMS, 100),
    "chosen": lambda world: move_chosen(TERMS, world.chosen()),
}
both = pytest.mark.parametrize("begin", BEGINNINGS.values(), ids=BEGINNINGS)
first_and_second = pytest.mark.parametrize(
    ("first", "second"),
    [(one, two) for one in BEGINNINGS.values() for two in BEGINNINGS.values()],
    ids=[f"{one}-{two}" for one in BEGINNINGS for two in BEGINNINGS],
)


def drive(
    world: World, machine: Machine[Any], at: int, event: Callable[[], None], *, is_after: bool = False
) -> Tally | None:
    """Run a machine; before (or after) its step number `at` something happens, which may raise."""
    step = 0

    def perform(effect: Effect) -> Any:
        nonlocal step
        step += 1
        if step - 1 == at and not is_after:
            event()
        answer = world.perform(effect)
        if step - 1 == at and is_after:
            event()
        return answer

    result: Tally | None = run(machine, perform)
    return result


def kill() -> None:
    raise Killed


class Dead:
    """Performs steps until the mover is killed, and none afterwards."""

    def __init__(self, world: World, at: int, *, is_after: bool) -> None:
        self.world, self.at, self.is_after = world, at, is_after
        self.step = 0

    def __call__(self, effect: Effect) -> Any:
        if self.step > self.at:
            raise Killed
        self.step += 1
        if self.step > self.at and not self.is_after:
            raise Killed
        answer = self.world.perform(effect)
        if self.step > self.at:
            raise Killed
        return answer


def kills() -> Iterator[tuple[int, bool]]:
    return ((at, is_after) for at in range(STEPS) for is_after in (False, True))


def finish(world: World, begin: Begin) -> None:
    """Run movers until nothing is left here, as somebody does who runs the same command again."""
    for _ in range(10):
        world.come_back()
        run(begin(world), world.perform)
        if world.is_empty_here():
            return
    raise AssertionError(f"left here: {list(world.here.state.jobs)}")


# A crash.


@first_and_second
@pytest.mark.parametrize("options", [(), ("KEY", "order-17")], ids=["no-key", "key"])
def test_a_mover_that_is_killed_at_any_step_loses_nothing_and_the_next_one_doubles_nothing(
    first: Begin, second: Begin, options: tuple[str, ...]
) -> None:
    dead = 0
    for at, is_after in kills():
        world = World()
        made = fill(world.here, 1 if options else 3, *options)
        try:
            run(first(world), Dead(world, at, is_after=is_after))
        except Killed:
            dead += 1
        found = {job.body for server in (world.here, world.there) for job in server.state.jobs}
        assert found == set(made), "no step leaves a job on no side"
        finish(world, second)
        assert sorted(world.all_there()) == made, (at, is_after)
    assert dead >= 6, "there are steps to be killed at"


@first_and_second
def test_two_movers_at_the_same_time_neither_lose_nor_double_a_job(first: Begin, second: Begin) -> None:
    for at in range(STEPS):
        world = World()
        made = fill(world.here, 3)

        def other(world: World = world) -> None:
            run(second(world), world.perform)

        drive(world, first(world), at, other)
        finish(world, second)
        assert sorted(world.all_there()) == made, at


@first_and_second
def test_an_at_most_once_job_is_added_at_most_once_wherever_the_mover_is_killed(first: Begin, second: Begin) -> None:
    moved = 0
    for at, is_after in kills():
        world = World()
        world.here.add("mail", b"once", "RETRY", 0, "REPLICATE", 1)
        seen = list[bytes]()
        for number, begin in enumerate((first, second, second)):
            with contextlib.suppress(Killed, Lost):
                run(begin(world), Dead(world, STEPS if number else at, is_after=is_after))
            # A consumer there is done with it at once, so that its key is free again.
            for _, job_id, body in world.there.get("letters", count=10):
                seen.append(body)
                world.there("ACKJOB", job_id)
            world.come_back()
        assert len(seen) + len(world.all_here()) <= 1, (at, is_after)
        moved += len(seen)
    assert moved or first is second is BEGINNINGS["chosen"]


def test_two_attempts_at_the_same_batch_add_an_at_most_once_job_once() -> None:
    for at in range(STEPS):
        world = World()
        world.here.add("mail", b"once", "RETRY", 0, "REPLICATE", 1)
        rows = [(row[1], row[2]) for row in world.here.get("mail")]
        seen = list[bytes]()

        # As tasks of Spark that do the same work; a consumer there is done with what the other one has added.
        def other(world: World = world, rows: Any = rows, seen: list[bytes] = seen) -> None:
            run(move_known(TERMS, rows), world.perform)
            for _, job_id, body in world.there.get("letters", count=10):
                seen.append(body)
                world.there("ACKJOB", job_id)

        drive(world, move_known(TERMS, rows), at, other)
        assert seen + world.all_there() == [b"once"], at


# Consumers meanwhile.


@both
def test_a_consumer_that_asks_meanwhile_and_the_mover_never_both_have_a_job(begin: Begin) -> None:
    consumed = 0
    for at in range(STEPS):
        world = World()
        made = fill(world.here, 3)
        taken = list[bytes]()

        def consume(world: World = world, taken: list[bytes] = taken) -> None:
            for _, job_id, body in world.here.get("mail", count=2):
                taken.append(body)
                world.here("ACKJOB", job_id)

        drive(world, begin(world), at, consume)
        assert sorted(taken + world.all_there()) == made, at
        assert world.is_empty_here()
        consumed += len(taken)
    assert consumed > 0


def test_a_job_that_a_consumer_took_before_it_was_held_is_counted_as_gone_and_left_alone() -> None:
    world = World()
    fill(world.here, 3)
    chosen = world.chosen()
    [(_, job_id, body)] = world.here.get("mail")
    tally = run(move_chosen(TERMS, chosen), world.perform)
    assert (tally.moved, tally.gone, tally.refused) == (2, 1, [])
    assert body not in world.all_there()
    assert world.here("ACKJOB", job_id) == 1


def test_a_copy_stays_when_somebody_else_has_acknowledged_the_job_meanwhile() -> None:
    world = World()
    fill(world.here, 2)
    first, second = world.chosen()

    def acknowledge() -> None:
        world.here("ACKJOB", first.id)

    # It may have been another mover, which counts on this very copy.
    tally = drive(world, move_chosen(TERMS, [first, second]), 2, acknowledge)
    assert tally is not None
    assert (tally.moved, tally.overtaken) == (1, 1)
    assert world.all_there() == [b"00", b"01"]


def test_jobs_that_are_done_when_they_are_looked_at_are_not_moved() -> None:
    world = World()
    fill(world.here, 2)
    [_, (_, job_id, _)] = rows = world.here.get("mail", count=2)
    world.here("ACKJOB", job_id)
    tally = run(move_known(TERMS, [(row[1], row[2]) for row in rows]), world.perform)
    assert (tally.moved, tally.gone + len(tally.unknown)) == (1, 1)
    assert world.all_there() == [b"00"]


# Refusals.


@both
def test_what_is_refused_there_is_where_it_was(begin: Begin) -> None:
    world = World()
    made = fill(world.here, 3)
    world.there("PAUSE", "letters", "in")
    tally = run(begin(world), world.perform)
    assert [(job.body, refusal.code) for job, refusal in tally.refused] == [(body, "PAUSED") for body in made]
    assert (tally.moved, world.all_here(), world.all_there()) == (0, made, [])
    world.there("PAUSE", "letters", "none")
    assert run(begin(world), world.perform).moved == 3


@both
@pytest.mark.parametrize("options", [(), ("MAXTRIES", 1), ("MAXTRIES", 3, "BACKOFF", 5)])
def test_a_refused_job_has_had_no_try_however_often_it_is_refused(begin: Begin, options: tuple[str | int, ...]) -> None:
    world = World()
    made = fill(world.here, 3, *options)
    world.there("PAUSE", "letters", "in")
    for _ in range(4):
        run(begin(world), world.perform)
        assert world.all_here() == made
    for job in world.here.state.jobs:
        assert (job.nacks, job.additional_deliveries, job.options.fate.failures) == (0, 0, ())
    assert [len(world.here("QPEEK", "mail", 10, *dead)) for dead in ((), ("DEAD",))] == [3, 0]


@both
def test_jobs_that_come_back_as_the_other_side_is_away_have_had_no_try(begin: Begin) -> None:
    world = World()
    made = fill(world.here, 2, "MAXTRIES", 1)
    with pytest.raises(ConnectionError):
        run(begin(world), Away(world, is_after=False, times=1_000))
    assert world.all_here() == made


def test_an_older_node_that_has_no_untried_queues_jobs_without_terms() -> None:
    world = World()
    made = fill(world.here, 2)
    world.there("PAUSE", "letters", "in")

    def perform(effect: Effect) -> Any:
        if isinstance(effect, Ask) and effect.commands[0][0] == "NACK":
            return [Refusal("ERR", "syntax error", CommandError("syntax error"))]
        return world.perform(effect)

    run(move_delivered(TERMS, 10), perform)
    assert world.all_here() == made


# The producer.


@both
@pytest.mark.parametrize("wait", ["now", "later"])
def test_the_producer_of_a_moved_job_is_not_told_that_somebody_has_done_it(begin: Begin, wait: str) -> None:
    world = World()
    fill(world.here, 1, "RESULT", 60)
    [job_id] = [job.id for job in world.here.state.jobs]
    if wait == "now":
        world.here("WAITJOB", 5_000, job_id, client="producer")
    tally = run(begin(world), world.perform)
    assert (tally.moved, tally.overtaken, world.all_there()) == (1, 0, [b"00"])
    world.here.advance(100)
    if wait == "now":
        [[row]] = world.here.answers["producer"]
    else:
        [row] = world.here("WAITJOB", 5_000, job_id)
    assert row[1] == b"cancelled"
    assert world.here("QLEN", "mail") == 0
    world.come_back()
    assert world.all_here() == []


def test_a_user_who_may_not_cancel_acknowledges_jobs_with_terms() -> None:
    world = World()
    fill(world.here, 2, "RESULT", 60)

    def perform(effect: Effect) -> Any:
        if isinstance(effect, Ask) and effect.commands[0][0] == "CANCEL":
            return [Refusal("NOPERM", "no", CommandError("no"))]
        return world.perform(effect)

    assert run(move_chosen(TERMS, world.chosen()), perform).moved == 2
    assert world.all_there() == [b"00", b"01"]


def test_a_job_with_terms_that_somebody_has_done_meanwhile_counts_as_overtaken() -> None:
    world = World()
    fill(world.here, 2, "MAXTRIES", 3)
    first, second = world.chosen()

    def acknowledge() -> None:
        world.here("ACKJOB", first.id)

    tally = drive(world, move_chosen(TERMS, [first, second]), 2, acknowledge)
    assert tally is not None
    assert (tally.moved, tally.overtaken) == (1, 1)


def test_a_refused_job_that_a_consumer_has_stays_with_it() -> None:
    world = World()
    fill(world.here, 2)
    [(_, _, taken)] = world.here.get("mail")
    world.there("PAUSE", "letters", "in")
    tally = run(move_chosen(TERMS, world.chosen()), world.perform)
    assert (len(tally.refused), taken, world.all_here()) == (2, b"00", [b"01"])


def test_an_at_most_once_job_that_is_refused_is_added_here_again_with_its_key() -> None:
    world = World()
    world.here.add("mail", b"once", "RETRY", 0, "REPLICATE", 1, "KEY", "mine")
    world.there("PAUSE", "letters", "in")
    tally = run(move_delivered(TERMS, 10), world.perform)
    assert tally is not None
    assert [refusal.code for _, refusal in tally.refused] == ["PAUSED"]
    [(_, job_id, body)] = world.here("QPEEK", "mail", 10)
    shown = world.here.show(job_id)
    assert shown is not None
    assert (body, shown["key"], shown["retry"]) == (b"once", b"mine", 0)


def test_an_at_most_once_job_that_cannot_be_put_back_is_named_with_its_body() -> None:
    world = World()
    world.here.add("mail", b"once", "RETRY", 0, "REPLICATE", 1)

    def pause() -> None:
        world.here("PAUSE", "mail", "in")
        world.there("PAUSE", "letters", "in")

    with pytest.raises(Lost, match=r"neither be added there nor put back; their bodies are \[b'once'\]"):
        drive(world, move_delivered(TERMS, 10), 3, pause)


def test_an_at_most_once_job_that_was_not_delivered_to_the_mover_is_refused_untouched() -> None:
    world = World()
    fill(world.here, 1)
    once = world.here.add("mail", b"once", "RETRY", 0, "REPLICATE", 1)
    tally = run(move_chosen(TERMS, world.chosen()), world.perform)
    [(job, refusal)] = tally.refused
    assert (job.id, refusal.text) == (once, moves.ONCE)
    assert (tally.moved, world.all_here()) == (1, [b"once"])


def test_jobs_whose_acknowledgement_is_refused_are_named() -> None:
    world = World()
    fill(world.here, 2)

    def perform(effect: Effect) -> Any:
        if isinstance(effect, Ask) and effect.commands[0][0] == "ACKJOB":
            return [Refusal("TRYAGAIN", "later", CommandError("later"))]
        return world.perform(effect)

    tally = run(move_chosen(TERMS, world.chosen()), perform)
    assert (tally.moved, [job.body for job, _ in tally.both]) == (0, [b"00", b"01"])
    finish(world, BEGINNINGS["delivered"])
    assert world.all_there() == [b"00", b"01"]


def test_a_refused_getjob_is_raised_as_the_runner_knows_it() -> None:
    world = World()
    world.here("QADD", "mail", 100, "event")
    with pytest.raises(WrongType):
        run(move_delivered(TERMS, 10), world.perform)


# The other side goes away.


@attrs.define
class Away:
    """Performs steps of a world whose other side breaks some times: before commands arrive there, or after."""

    world: World
    is_after: bool
    times: int = 1
    error: Exception = attrs.field(factory=lambda: ConnectionError("it broke"))

    def __call__(self, effect: Effect) -> Any:
        if not isinstance(effect, Ask) or effect.side is Side.HERE or not self.times:
            return self.world.perform(effect)
        self.times -= 1
        if self.is_after:
            self.world.perform(effect)
        raise Broken(may_be_done=self.is_after) from self.error


def patient(world: World) -> Terms:
    return attrs.evolve(TERMS, patience_s=1.0, clock=lambda: world.clock.now() / 1_000)


@pytest.mark.parametrize("is_after", [False, True])
def test_what_may_be_there_is_added_again_in_the_same_words(is_after: bool) -> None:
    world = World()
    made = fill(world.here, 3)
    began = world.clock.now()
    tally = run(move_delivered(patient(world), 10), Away(world, is_after, times=2))
    assert tally is not None
    assert (tally.moved, world.all_there()) == (3, made)
    assert world.clock.now() - began == 2 * int(PAUSE_S * 1_000)
    additions = [each for each in world.sent if each.side is Side.THERE]
    assert len(additions) == (3 if is_after else 1)
    assert all(each == additions[0] for each in additions)


@both
def test_jobs_come_back_when_the_other_side_stays_away(begin: Begin) -> None:
    world = World()
    made = fill(world.here, 3)
    with pytest.raises(ConnectionError, match="it broke"):
        run(begin(world), Away(world, is_after=False, times=1_000))
    assert world.all_here() == made


def test_patience_has_an_end() -> None:
    world = World()
    fill(world.here, 1)
    began = world.clock.now()
    with pytest.raises(ConnectionError):
        run(move_delivered(patient(world), 10), Away(world, is_after=False, times=1_000))
    assert 1_000 <= world.clock.now() - began <= 1_000 + int(PAUSE_S * 1_000)


def test_an_at_most_once_job_that_may_be_there_is_never_added_again() -> None:
    world = World()
    made = fill(world.here, 1)
    once = world.here.add("mail", b"once", "RETRY", 0, "REPLICATE", 1)
    with pytest.raises(Lost, match=f"1 at-most-once jobs .* cannot be given back: {once.decode()}"):
        run(move_delivered(patient(world), 10), Away(world, is_after=True))
    assert [side for side, _ in world.asked].count(Side.THERE) == 1
    assert world.all_here() == made


def test_an_at_most_once_job_that_was_not_sent_is_added_again_or_put_back() -> None:
    world = World()
    world.here.add("mail", b"once", "RETRY", 0, "REPLICATE", 1)
    with pytest.raises(ConnectionError):
        run(move_delivered(patient(world), 10), Away(world, is_after=False, times=1_000))
    assert world.all_here() == [b"once"]
    tally = run(move_delivered(patient(world), 10), Away(world, is_after=False))
    assert tally is not None
    assert (tally.moved, world.all_there()) == (1, [b"once"])


@both
def test_an_interrupt_gives_back_what_was_taken(begin: Begin) -> None:
    world = World()
    made = fill(world.here, 3)

    def perform(effect: Effect) -> Any:
        if isinstance(effect, Ask) and effect.side is Side.THERE:
            raise KeyboardInterrupt
        return world.perform(effect)

    with pytest.raises(KeyboardInterrupt):
        run(begin(world), perform)
    assert world.all_here() == made


def test_a_machine_that_nobody_goes_on_with_ends_without_a_word() -> None:
    world = World()
    fill(world.here, 1)
    machine = move_delivered(TERMS, 10)
    given = world.perform(next(machine))
    adds = machine.send(world.perform(machine.send(given)))
    assert isinstance(adds, Ask)
    assert adds.side is Side.THERE
    machine.close()


# Order, options, counts.


@both
def test_jobs_are_moved_in_their_order(begin: Begin) -> None:
    world = World()
    made = fill(world.here, 20)
    tally = run(begin(world), world.perform)
    assert (tally.moved, world.all_there(), world.is_empty_here()) == (20, made, True)


def test_the_order_of_steps_is_the_promise() -> None:
    world = World()
    fill(world.here, 1)
    run(move_delivered(TERMS, 10), world.perform)
    run(move_chosen(TERMS, []), world.perform)
    here, there = Side.HERE, Side.THERE
    assert world.asked == [(here, "GETJOB"), (here, "SHOW"), (there, "ADDJOB"), (here, "ACKJOB")]
    world.asked.clear()
    fill(world.here, 1)
    run(move_chosen(TERMS, world.chosen()), world.perform)
    assert world.asked == [(here, "DEQUEUE"), (there, "ADDJOB"), (here, "ACKJOB")]
    world.asked.clear()
    world.here.add("mail", b"once", "RETRY", 0, "REPLICATE", 1)
    run(move_delivered(TERMS, 10), world.perform)
    assert world.asked == [(here, "GETJOB"), (here, "SHOW"), (here, "ACKJOB"), (there, "ADDJOB")]


def test_an_empty_queue_ends_a_move() -> None:
    world = World()
    assert run(move_delivered(TERMS, 10), world.perform) is None
    job_id = world.here.add("mail", b"x", "RETRY", RETRY_S)

    # A batch of jobs that are all over is passed over.
    def done() -> None:
        world.here("ACKJOB", job_id)

    assert drive(world, move_delivered(TERMS, 10), 1, done) is None


JOB = Job(ID, b"body", 50, 5, 2, b"move/" + ID)


def shown(**facts: object) -> list[object]:
    given: dict[str, object] = {"state": b"active", "ttl": 50, "retry": 5, "repl": 2, **facts}
    return [part for name, value in given.items() for part in (name.encode(), value)]


def options_of(words: moves.Words) -> dict[Any, Any]:
    return dict(zip(words[4::2], words[5::2], strict=True))


def test_a_job_keeps_the_rest_of_its_life_and_its_options() -> None:
    assert read_shown(ID, b"body", shown()) == JOB
    assert TERMS.addition(JOB) == (
        b"ADDJOB", b"letters", b"body", 5000, b"REPLICATE", 2, b"TTL", 50, b"RETRY", 5, b"KEY", b"move/" + ID,
    )  # fmt: skip
    assert options_of(TERMS.addition(attrs.evolve(JOB, delay_s=7)))[b"DELAY"] == 7


def test_a_key_of_its_own_stays() -> None:
    assert read_shown(ID, b"body", shown(key=b"order-17")) == attrs.evolve(JOB, key=b"order-17")


def test_a_job_that_is_done_is_not_read() -> None:
    assert read_shown(ID, b"body", shown(state=b"acked")) is None


def test_terms_override_options_but_never_the_key() -> None:
    terms = Terms(b"mail", b"letters", replicate=3, retry_s=60, ttl_s=900, delay_s=4, add_s=1.5)
    assert terms.addition(JOB)[3] == 1_500
    assert options_of(terms.addition(JOB)) == {
        b"REPLICATE": 3, b"TTL": 900, b"RETRY": 60, b"DELAY": 4, b"KEY": JOB.key,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("job", "terms"),
    [(attrs.evolve(JOB, retry_s=0), attrs.evolve(TERMS, replicate=3)), (JOB, attrs.evolve(TERMS, retry_s=0))],
)
def test_a_job_that_is_given_once_has_one_copy(job: Job, terms: Terms) -> None:
    assert options_of(terms.addition(job))[b"REPLICATE"] == 1


@pytest.mark.parametrize(
    ("job", "ttl", "retry"),
    [(attrs.evolve(JOB, ttl_s=0), "0.001", 5), (attrs.evolve(JOB, ttl_s=2**40, retry_s=2**40), 2**31 - 1, 2**31 - 1)],
)
def test_spans_are_such_that_a_node_takes_them(job: Job, ttl: int, retry: int) -> None:
    options = options_of(TERMS.addition(job))
    assert (options[b"TTL"], options[b"RETRY"]) == (ttl, retry)
    assert b"DELAY" not in options_of(TERMS.addition(attrs.evolve(job, ttl_s=1, delay_s=9)))
    assert options_of(TERMS.restoration(attrs.evolve(job, delay_s=9)))[b"TTL"] == ttl


@pytest.mark.parametrize("told", [0.25, b"0.25"], ids=["RESP3", "RESP2"])
def test_fractions_of_seconds_go_with_a_job(told: float | bytes) -> None:
    spans = {"max-tries": 2, "backoff": [told, 60], "keep-dead": told, "keep-result": 7, "headers": []}
    job = read_shown(ID, b"body", shown(retry=told, **spans))
    assert job is not None
    assert TERMS.addition(attrs.evolve(job, ttl_s=0.5, delay_s=0.125)) == (
        b"ADDJOB", b"letters", b"body", 5000, b"REPLICATE", 2, b"TTL", "0.5", b"RETRY", "0.25", b"DELAY", "0.125",
        b"MAXTRIES", 2, b"BACKOFF", "0.25", 60, b"KEEPDEAD", "0.25", b"RESULT", 7, b"KEY", b"move/" + ID,
    )  # fmt: skip


@both
def test_a_job_keeps_its_fractions_however_it_is_moved(begin: Begin) -> None:
    world = World()
    fill(world.here, 1, "RETRY", "0.25", "RESULT", "1.5")
    run(begin(world), world.perform)
    (job,) = world.there.state.jobs
    assert (job.options.retry_ms, job.options.terms.keep_result_ms) == (250, 1_500)


def test_a_job_that_was_delivered_keeps_its_terms() -> None:
    world = World()
    terms = (
        "MAXTRIES",
        5,
        "BACKOFF",
        2,
        60,
        "KEEPDEAD",
        600,
        "RESULT",
        30,
        "HEADER",
        "kind",
        b"\xff",
        "HEADER",
        "a",
        "",
        "GROUP",
        b"acme\xff",
    )
    fill(world.here, 1, *terms)
    run(move_delivered(TERMS, 100), world.perform)
    (job,) = world.there.state.jobs
    assert job.options.terms == JobTerms(
        5, 2_000, 60_000, 600_000, 30_000, ((b"kind", b"\xff"), (b"a", b"")), b"acme\xff"
    )


@both
def test_a_job_keeps_its_retry_limit_however_it_is_moved(begin: Begin) -> None:
    world = World()
    fill(world.here, 1, "MAXTRIES", 5)
    run(begin(world), world.perform)
    (job,) = world.there.state.jobs
    assert job.options.terms.max_tries == 5


def test_terms_that_promise_nothing_are_no_words() -> None:
    assert words_of(0, (0, 0), 0, 0, ()) == ()
