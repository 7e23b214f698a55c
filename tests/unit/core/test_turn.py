"""The commit rule, on a node whose outside is a list of what it was asked for."""

from random import Random
from typing import Any

import pytest

from disqued.core.model.job import RETRY_NEVER_MS
from disqued.core.model.messages import GOTACK, PING, PONG, REPLJOB, SETACK, Message
from disqued.core.model.outbox import GONE_REFUSED, JOB_ADDED, JOB_GONE, QUEUE_PAUSED, Record
from disqued.core.node import Node
from disqued.core.turn import Messages, Turn
from disqued.errors import CommandError
from disqued.testing.clock import Clock
from tests.core_fixtures import NODE_ID, make_job

PAUSED: Record = (QUEUE_PAUSED, b"q", 1)
FULL = "No space left on device"


class Client:
    """A recipient whose replies are the ids that they promise."""

    def __init__(self) -> None:
        self.due: list[Any] = []
        self.held: list[Any] = []
        self.heard: list[Any] = []

    @property
    def is_held(self) -> bool:
        return bool(self.held)

    def is_gone(self) -> bool:
        return False

    def unblock(self, value: Any) -> None:
        self.due.append(value)

    def flush(self) -> None:
        self.heard += self.due
        self.due = []

    def hold(self) -> None:
        self.held += self.due
        self.due = []

    def release(self) -> None:
        self.heard += self.held
        self.held = []

    def take_back(self, unkept: set[bytes], error: CommandError) -> list[bytes]:
        taken = []
        for replies in (self.held, self.due):
            for at, reply in enumerate(replies):
                if reply in unkept:
                    taken.append(reply)
                    replies[at] = str(error)
        return taken


class Outside:
    """What a turn asks for, noted; commits are done at once, fail, or take their time."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.sent: list[Message] = []
        self.records: list[Record] = []
        self.outcome: str | None = ""

    def append(self, records: list[Record]) -> None:
        self.records += records

    def commit(self) -> str | None:
        self.asked.append("commit")
        return self.outcome

    def send(self, messages: Messages) -> None:
        self.sent += [message for _, message in messages]

    def wake_at(self, at: int) -> None:
        """Nothing is due in these tests."""

    def failing(self, before: str | None) -> None:
        self.asked.append("failing")

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.asked.append(name)

    def take(self) -> list[str]:
        """What was asked for since this was last called."""
        asked, self.asked = self.asked, []
        return asked


class Bench:
    """A turn, its node and its outside."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.node = Node(NODE_ID, self.clock, Random(1), maxmemory=1 << 30)
        self.outside = Outside()
        self.turn = Turn(self.node, self.outside)
        self.turn.give_to(self.outside)
        self.node.state.journaling = True
        self.node.begin()

    def add(self, client: Client) -> bytes:
        """A step in which a client adds a job."""
        options = self.node.state.shared.options(60_000, RETRY_NEVER_MS, 0, 1)
        job_id = self.node.additions.add(client, b"q", b"body", options, maxlen=0, timeout_ms=0, asynchronous=False)
        assert isinstance(job_id, bytes)
        client.due.append(job_id)
        self.turn.finish_step(client)
        return job_id

    def say(self, client: Client, word: str, *messages: Message, record: Record | None = None) -> None:
        """A step that is answered with a word, sends messages and may have something to commit."""
        client.due.append(word)
        self.node.outbox.messages += [(b"peer", message) for message in messages]
        if record is not None:
            self.node.outbox.journal.append(record)
        self.turn.finish_step(client)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_steps_of_one_turn_share_one_commit_and_nobody_is_answered_before_it(bench: Bench) -> None:
    one, two = Client(), Client()
    ids = [bench.add(one), bench.add(two), bench.add(one)]
    assert (one.heard, two.heard) == ([], [])
    assert bench.outside.take() == ["end_turn_soon"]
    bench.turn.end()
    assert bench.outside.take() == ["commit"]
    assert (one.heard, two.heard) == ([ids[0], ids[2]], [ids[1]])
    assert [record[1].id for record in bench.outside.records if record[0] == JOB_ADDED] == ids
    bench.turn.end()
    assert bench.outside.take() == []


def test_a_failed_commit_is_answered_with_its_reason_and_the_jobs_are_gone(bench: Bench) -> None:
    client, other = Client(), Client()
    bench.outside.outcome = FULL
    job_id = bench.add(client)
    bench.say(other, "pong", (REPLJOB,), (SETACK,), (GOTACK,))
    bench.turn.end()
    assert client.heard == [f"Errors writing to the AOF file: {FULL}"]
    assert other.heard == ["pong"]
    assert bench.outside.sent == [(SETACK,)]
    assert bench.node.state.jobs.get(job_id) is None
    assert bench.outside.records[-1] == (JOB_GONE, job_id, GONE_REFUSED)
    assert bench.node.state.durability.read_only
    assert bench.outside.take() == ["end_turn_soon", "commit", "failing", "try_again_later"]


def test_it_is_tried_again_until_it_succeeds_and_nothing_is_committed_meanwhile(bench: Bench) -> None:
    client = Client()
    bench.outside.outcome = FULL
    bench.add(client)
    bench.turn.end()
    bench.outside.take()
    bench.turn.try_again()
    assert bench.outside.take() == ["repair", "commit", "try_again_later"]
    bench.outside.outcome = "the server is away"
    bench.turn.try_again()
    assert bench.outside.take() == ["repair", "commit", "failing", "try_again_later"]
    assert bench.turn.failure == "the server is away"
    bench.say(client, "paused", record=PAUSED)
    bench.turn.end()
    assert client.heard[1:] == ["paused"]
    assert bench.outside.take() == ["end_turn_soon"]
    bench.outside.outcome = ""
    bench.turn.try_again()
    assert bench.outside.take() == ["repair", "commit", "failing"]
    assert bench.turn.failure is None
    assert not bench.node.state.durability.read_only


def test_while_a_commit_takes_its_time_later_turns_wait_for_the_next_one(bench: Bench) -> None:
    first, second, reader = Client(), Client(), Client()
    bench.outside.outcome = None
    bench.add(first)
    bench.turn.end()
    assert bench.outside.take() == ["end_turn_soon", "commit", "await_commit"]
    bench.add(second)
    bench.add(first)
    bench.say(reader, "pong", (PING,), (SETACK,))
    assert reader.heard == ["pong"]
    bench.turn.end()
    assert (first.heard, second.heard) == ([], [])
    assert bench.outside.sent == [(PING,)]
    assert "commit" not in bench.outside.take()
    bench.turn.committed("")
    assert len(first.heard) == 1
    assert second.heard == []
    assert bench.outside.take() == ["end_turn_soon"]
    bench.outside.outcome = ""
    bench.turn.end()
    assert (len(first.heard), len(second.heard)) == (2, 1)
    assert bench.outside.sent == [(PING,), (SETACK,)]


def test_a_late_failure_takes_back_what_came_meanwhile_as_well(bench: Bench) -> None:
    first, second = Client(), Client()
    bench.outside.outcome = None
    ids = [bench.add(first)]
    bench.say(first, "more", (PONG,), (REPLJOB,))
    bench.turn.end()
    assert bench.outside.sent == [(PONG,)]
    ids += [bench.add(second), bench.add(first)]
    bench.turn.committed(FULL)
    error = f"Errors writing to the AOF file: {FULL}"
    assert first.heard == [error, "more", error]
    assert second.heard == [error]
    assert bench.outside.sent == [(PONG,)]
    assert [bench.node.state.jobs.get(job_id) for job_id in ids] == [None] * 3


def test_without_a_journal_a_client_is_answered_at_once_or_when_its_round_is_over(bench: Bench) -> None:
    bench.node.state.journaling = False
    client = Client()
    bench.say(client, "one", (SETACK,))
    assert client.heard == ["one"]
    assert bench.outside.sent == []
    bench.turn.begin_round()
    bench.say(client, "two")
    assert client.heard == ["one"]
    bench.turn.end_round()
    assert client.heard == ["one", "two"]
    bench.turn.end()
    assert bench.outside.sent == [(SETACK,)]
    assert "commit" not in bench.outside.take()


def test_what_else_uses_the_store_keeps_commits_away_until_it_is_over(bench: Bench) -> None:
    client = Client()
    bench.turn.occupy()
    bench.add(client)
    bench.turn.end()
    assert client.heard == []
    assert "commit" not in bench.outside.take()
    bench.turn.vacate()
    bench.turn.go_on()
    bench.turn.end()
    assert len(client.heard) == 1


def test_what_waits_for_a_rest_is_done_once_between_two_commits(bench: Bench) -> None:
    client = Client()
    bench.turn.rest_soon()
    assert bench.outside.take() == ["end_turn_soon"]
    bench.turn.end()
    assert bench.outside.take() == ["rested"]
    bench.outside.outcome = None
    bench.add(client)
    bench.turn.end()
    bench.turn.rest_soon()
    bench.add(client)
    bench.turn.end()
    assert "rested" not in bench.outside.take()
    bench.turn.committed("")
    assert bench.outside.take() == ["rested", "end_turn_soon"]
    bench.turn.end()
    bench.turn.committed("")
    assert "rested" not in bench.outside.take()
    bench.turn.occupy()
    bench.turn.rest_soon()
    bench.turn.fail(FULL)
    bench.turn.end()
    assert "rested" not in bench.outside.take()


def test_a_store_that_fails_between_commits_refuses_what_has_not_been_committed(bench: Bench) -> None:
    kept, refused = Client(), Client()
    bench.add(kept)
    bench.turn.end()
    job_id = bench.add(refused)
    bench.say(refused, "more", (REPLJOB,), (PING,))
    bench.turn.fail(FULL)
    assert len(kept.heard) == 1
    assert refused.heard == [f"Errors writing to the AOF file: {FULL}", "more"]
    assert bench.node.state.jobs.get(job_id) is None
    assert bench.outside.sent == [(PING,)]
    assert bench.outside.take()[-1] == "try_again_later"


def test_a_closed_turn_tells_nobody_of_anything(bench: Bench) -> None:
    client = Client()
    bench.turn.is_closed = True
    bench.add(client)
    bench.turn.end()
    assert client.heard == []
    assert bench.outside.take() == []


def test_each_tick_asks_to_be_woken_for_what_is_due_next() -> None:
    bench = Bench()
    wakes: list[int] = []
    bench.outside.wake_at = wakes.append  # type: ignore[method-assign]
    bench.node.state.schedule.add(make_job(), bench.clock.now() + 60_000)
    bench.turn.finish_step(None)
    bench.turn.finish_step(None)
    [first] = wakes
    # Far deadlines are known roughly, so that this wake only looks at them again.
    bench.clock.advance(first - bench.clock.now())
    bench.turn.tick()
    [_, second] = wakes
    assert first < second <= 60_000
