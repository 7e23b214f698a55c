"""The parts of the simulator: events in order, disks that lose what they may and no more, links, campaigns."""

import json
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest

from disqued.core.model.outbox import GONE_DELETED, JOB_ADDED, JOB_GONE
from disqued.persistence.interface import StoreFailed
from disqued.testing import __main__ as program
from disqued.testing.campaign import Outcome, Story
from disqued.testing.clients import Operator
from disqued.testing.clock import NodeClock
from disqued.testing.disk import SimDisk
from disqued.testing.driver import STAGES
from disqued.testing.events import EventQueue
from disqued.testing.journal import ALWAYS, NO, NONE, SimJournal
from disqued.testing.profiles import named
from disqued.testing.server import SimServer
from disqued.testing.world import World
from tests.core_fixtures import make_job
from tests.torture import simulated

# Events.


def test_events_happen_in_the_order_of_their_time_and_then_of_their_planning() -> None:
    events, happened = EventQueue(), []
    for at, name in ((5, "c"), (1, "a"), (5, "d"), (2, "b"), (99, "late")):
        events.at(at, lambda name: happened.append((events.now, name)), name)
    events.run(50)
    assert happened == [(1, "a"), (2, "b"), (5, "c"), (5, "d")]
    assert events.now == 50
    events.run(100)
    assert happened[-1] == (99, "late")


def test_what_is_planned_for_the_past_happens_now() -> None:
    events, happened = EventQueue(), []
    events.run(10)
    events.at(3, happened.append, "x")
    events.run(10)
    assert happened == ["x"]


def test_a_trace_tells_what_happened_and_when() -> None:
    def trace(*facts: tuple[int, bytes]) -> str:
        events = EventQueue()
        for at, fact in facts:
            events.at(at, events.note, fact)
        events.run(10)
        return events.trace

    assert trace((1, b"a"), (2, b"b")) == trace((1, b"a"), (2, b"b"))
    assert len({trace((1, b"a"), (2, b"b")), trace((1, b"a"), (3, b"b")), trace((1, b"b"), (2, b"a"))}) == 3


def test_clocks_of_nodes_go_at_one_rate_and_agree_in_nothing_else() -> None:
    events = EventQueue()
    one, other = NodeClock(events, 7), NodeClock(events, 1_000)
    other.drift_ms = -3_600_000
    before = one.now(), other.now(), one.wall(), other.wall()
    events.run(10)
    assert [
        after - at for after, at in zip((one.now(), other.now(), one.wall(), other.wall()), before, strict=True)
    ] == [10] * 4
    assert one.now() != other.now()
    assert one.wall() - other.wall() == 3_600_000


# Disks and journals.


def test_a_crash_keeps_what_is_synced_and_any_prefix_of_the_rest() -> None:
    lengths = set()
    for seed in range(300):
        disk = SimDisk(Random(seed))
        disk.append(b"s" * 700)
        disk.sync()
        disk.append(b"w" * 900)
        lost = disk.lose_power()
        assert disk.data.startswith(b"s" * 700)
        kept = bytes(disk.data[700:]).rstrip(b"\0")
        assert not kept.strip(b"w")
        assert lost == (len(kept) < 900)
        lengths.add(len(kept))
    assert len(lengths) > 100


def test_a_disk_that_is_full_or_does_not_sync_says_so_and_keeps_what_it_has() -> None:
    disk = SimDisk(Random(1))
    disk.append(b"abc")
    disk.is_full = disk.fails_sync = True
    for attempt in (lambda: disk.append(b"d"), disk.sync, lambda: disk.replace(b"x")):
        with pytest.raises(OSError, match=r"No space|Input/output"):
            attempt()
    assert (bytes(disk.data), disk.unsynced) == (b"abc", 3)


def journal(disk: SimDisk, policy: str = ALWAYS) -> SimJournal:
    """A journal that has been loaded."""
    made = SimJournal(disk, policy, NodeClock(EventQueue(), 5), restores_queues=False)
    list(made.load())
    return made


def stored(disk: SimDisk) -> list[bytes]:
    """The ids that the records of a disk name."""
    made = SimJournal(disk, ALWAYS, NodeClock(EventQueue(), 5), restores_queues=False)
    return [record[1].id if record[0] == JOB_ADDED else record[1] for record in made.load()]


def test_a_journal_brings_back_what_it_was_given() -> None:
    disk = SimDisk(Random(1))
    first = journal(disk)
    one, two = make_job(1), make_job(2)
    first.append([(JOB_ADDED, one), (JOB_ADDED, two)])
    first.commit()
    first.append([(JOB_GONE, one.id, GONE_DELETED)])
    first.commit()
    assert first.is_clean
    assert stored(disk) == [one.id, two.id, one.id]


def test_a_journal_that_is_cut_anywhere_brings_back_the_records_before() -> None:
    whole = SimDisk(Random(1))
    made = journal(whole, NO)
    ids = [make_job(number).id for number in range(5)]
    made.append([(JOB_ADDED, make_job(number)) for number in range(5)])
    made.commit()
    assert whole.unsynced
    found = set()
    for seed in range(100):
        disk = SimDisk(Random(seed))
        disk.data, disk.synced = bytearray(whole.data), whole.synced
        disk.lose_power()
        loaded = stored(disk)
        assert loaded == ids[: len(loaded)]
        found.add(len(loaded))
        again = journal(disk)
        again.append([(JOB_ADDED, make_job(9))])
        again.commit()
        assert stored(disk) == [*loaded, make_job(9).id]
    assert len(found) > 3


def test_a_journal_on_a_full_disk_keeps_what_it_was_given_and_one_that_cannot_sync_must_be_written_anew() -> None:
    disk = SimDisk(Random(1))
    made = journal(disk)
    disk.is_full = True
    made.append([(JOB_ADDED, make_job(1))])
    with pytest.raises(StoreFailed) as caught:
        made.commit()
    assert not caught.value.final
    disk.is_full, disk.fails_sync = False, True
    with pytest.raises(StoreFailed) as caught:
        made.commit()
    assert caught.value.final
    disk.fails_sync = False
    with pytest.raises(StoreFailed):
        made.commit()
    made.rewrite([(JOB_ADDED, make_job(2))])
    made.commit()
    assert stored(disk) == [make_job(2).id]


def test_without_a_journal_nothing_is_written() -> None:
    disk = SimDisk(Random(1))
    made = journal(disk, NONE)
    assert not made.records
    assert disk.unsynced == 0


# Nodes.


class Answers:
    """A client that keeps what it hears."""

    is_gone = False

    def __init__(self) -> None:
        self.heard: list[object] = []

    def answered(self, value: object) -> None:
        self.heard.append(value)

    def lost(self) -> None:
        self.heard.append("lost")


@pytest.fixture
def world() -> World:
    """Three nodes that have met."""
    made = World(1, named("calm"))
    made.join()
    return made


def ask(world: World, server: SimServer, *words: str) -> list[object]:
    client = Answers()
    server.command(client, [word.encode() for word in words])
    world._pass(50)
    return client.heard


def test_nodes_copy_deliver_and_collect(world: World) -> None:
    one, other = world.servers[:2]
    (job_id,) = ask(world, one, "ADDJOB", "q", "body", "1000", "REPLICATE", "3", "RETRY", "10")
    assert all(len(server.state.jobs) == 1 for server in world.servers)
    assert ask(world, other, "GETJOB", "TIMEOUT", "20", "FROM", "q") == [[(b"q", job_id, b"body")]]
    assert isinstance(job_id, bytes)
    assert ask(world, other, "ACKJOB", job_id.decode()) == [1]
    assert not any(len(server.state.jobs) for server in world.servers)


@pytest.mark.parametrize("stage", STAGES)
def test_who_dies_in_a_commit_has_told_nobody_what_was_not_safe(world: World, stage: str) -> None:
    one = world.servers[0]
    one.power_failure.plan(stage, lambda: one.kill(power=True))
    heard = ask(world, one, "ADDJOB", "q", "body", "1000", "REPLICATE", "1")
    assert heard == ["lost"]
    one.start()
    # Up to the sync it may be there or not; after it, it is.
    if stage in STAGES[2:]:
        assert len(one.state.jobs) == 1


def test_a_blocked_path_holds_what_is_sent_and_a_cut_one_loses_it(world: World) -> None:
    one, other = world.servers[:2]
    for cut, copies in ((False, 1), (True, 0)):
        path = world.network.path(one, other)
        path.block()
        one.node.begin()
        job = make_job(1 + cut, now=one.state.now)
        one.state.send(other.id, (3, job, True))
        one.driver.finish_step()
        world._pass(50)
        assert not len(other.state.jobs)
        if cut:
            assert path.link is not None
            path.link.break_off()
        path.unblock()
        world._pass(50)
        assert len(other.state.jobs) == copies
        other.command(Operator(), [b"DELJOB", job.id])
        world._pass(50)


# Campaigns.


def test_a_campaign_goes_on_where_it_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.jsonl"
    done = [Outcome(Story(profile, seed, 4.0), 4.0, 1.0) for profile in ("calm",) for seed in (1, 2)]
    log.write_text("".join(json.dumps(attrs.asdict(outcome)) + "\n" for outcome in done) + '{"story": {"pro')
    assert list(simulated.read(log)) == done
    assert simulated.main(["--hours", "8", "--log", str(log)]) == 0
    assert "in all: 2 stories, 8 cluster-hours" in capsys.readouterr().out
    left = simulated.left({("calm", 1), ("calm", 2), ("busy", 1)}, [])
    assert [(story.profile, story.seed) for story in (next(left), next(left))] == [("busy", 2), ("order", 1)]
    left = simulated.left({("busy", 1)}, ["busy"])
    assert [(story.profile, story.seed) for story in (next(left), next(left))] == [("busy", 2), ("busy", 3)]


def test_a_campaign_that_has_failed_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps(attrs.asdict(Outcome(Story("storm", 3, 4.0), 4.0, 1.0, failure="lost"))) + "\n")
    assert simulated.main(["--hours", "4", "--log", str(log)]) == 1
    assert "failed: storm 3" in capsys.readouterr().out


def test_the_program_tells_a_story_and_says_how_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--profile", "patient", "--seed", "3", "--hours", "0.1"]) == 0
    assert capsys.readouterr().out.startswith("patient 3: ok, ")
    assert program.main(["--profile", "network", "--hours", "0.1", "--nodes", "3", "--without", "mess"]) == 0
    assert capsys.readouterr().out.startswith("network 1: ok, ")
    with pytest.raises(SystemExit):
        program.main(["--nodes", "1"])


# Event logs.


def _lines(folder: Path) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Published lines by node and boot, in the order of their numbers."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for path in folder.glob("date=*/node=*/events-*.jsonl"):
        for text in path.read_bytes().splitlines():
            line = json.loads(text)
            found.setdefault((path.parent.name.removeprefix("node="), line["boot"]), []).append(line)
    return {boot: sorted(lines, key=lambda line: int(line["seq"])) for boot, lines in sorted(found.items())}


def test_a_story_is_the_same_with_event_logs_as_without(tmp_path: Path) -> None:
    profile = named("storm", hours=0.05)
    told = World(3, profile, events=tmp_path).run()
    assert told.trace == World(3, profile).run().trace
    logs = _lines(tmp_path)
    assert len({node for node, _ in logs}) == profile.nodes
    assert not list(tmp_path.glob("date=*/node=*/_open*"))
    assert sum(line["event"] == "add" for lines in logs.values() for line in lines) > told.jobs // 2
    for lines in logs.values():
        assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
        assert lines[0]["event"] == "start"
    words = {lines[0]["reason"] for lines in logs.values()}
    assert words == {"clean", "crash"}
    last = {node: lines[-1]["event"] for (node, _), lines in logs.items()}
    assert set(last.values()) == {"stop"}
    clocks = [line["reason"] for lines in logs.values() for line in lines if line["event"] == "clock"]
    assert set(clocks) <= {"ahead", "back"}


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_takes_what_was_not_written_and_the_power_the_end_of_the_file(tmp_path: Path, power: bool) -> None:
    world = World(1, named("calm"), events=tmp_path)
    server = world.servers[0]
    server.start()
    for _ in range(200):
        server.command(Operator(), [b"ADDJOB", b"q", b"x", b"0"])
        world.events.run(world.events.now + 10)
    world.events.run(world.events.now + 500)
    server.command(Operator(), [b"ADDJOB", b"q", b"late", b"0"])
    world.events.run(world.events.now + 100)
    server.kill(power=power)
    server.start()
    server.stop()
    first, second = _lines(tmp_path).values()
    added = [line["seq"] for line in first if line["event"] == "add"]
    assert added == list(range(2, len(added) + 2))
    assert len(added) < 200 if power else len(added) == 200
    assert [(line["event"], line.get("reason")) for line in second] == [("start", "crash"), ("stop", None)]
