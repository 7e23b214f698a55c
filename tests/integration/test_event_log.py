"""The event log of a real daemon: whole after kill -9, without gaps, switched while it runs, and in nobody's way."""

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.daemon import Daemon, launch, wait_until

ALL = ("--events", "all")


@contextmanager
def running(folder: Path, options: Sequence[str] = ()) -> Iterator[Daemon]:
    """A daemon for as long as the `with` lasts."""
    daemon = launch(folder, options)
    try:
        yield daemon
    finally:
        daemon.stop()


def published(folder: Path) -> list[dict[str, Any]]:
    """The lines of all published files, in their order."""
    paths = sorted((folder / "events").rglob("events-*.jsonl"), key=lambda path: path.name)
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def gaps(lines: list[dict[str, Any]]) -> list[int]:
    """Boots whose numbers do not go from 1 to their last without a gap."""
    boots: dict[int, list[int]] = {}
    for line in lines:
        boots.setdefault(line["boot"], []).append(line["seq"])
    return [boot for boot, seqs in boots.items() if seqs != list(range(1, len(seqs) + 1))]


def facts(daemon: Daemon) -> dict[str, Any]:
    with daemon.redis() as client:
        return dict(client.info("events"))


def work(daemon: Daemon, count: int) -> None:
    with daemon.redis() as client:
        for number in range(count):
            job_id = client.execute_command("ADDJOB", "q", f"body {number}", 0)
            client.execute_command("GETJOB", "FROM", "q")
            client.execute_command("ACKJOB", job_id)


def test_what_happened_is_there_after_the_daemon_has_ended(tmp_path: Path) -> None:
    with running(tmp_path, ALL) as daemon:
        work(daemon, 20)
        wait_until(lambda: facts(daemon)["events_written"] >= 61, "all lines are written")
        idle_at = time.time()
        wait_until(lambda: time.time() > idle_at + 0.05, "a moment in which nothing happens")
        ends_at = time.time()
    lines = published(tmp_path)
    assert Counter(line["event"] for line in lines) == {"start": 1, "add": 20, "deliver": 20, "ack": 20, "stop": 1}
    assert lines[-1]["ts_us"] >= (ends_at - 0.002) * 1_000_000
    assert lines[0]["reason"] == "clean"
    assert not gaps(lines)
    assert not any("body" in json.dumps(line) for line in lines)


def test_a_kill_leaves_whole_lines_that_the_next_start_publishes(tmp_path: Path) -> None:
    with running(tmp_path, ALL) as daemon:
        work(daemon, 50)
        wait_until(lambda: facts(daemon)["events_written"] >= 151, "all lines are written")
        daemon.kill()
    assert published(tmp_path) == []
    with running(tmp_path, ALL) as daemon:
        wait_until(lambda: len(published(tmp_path)) >= 151, "what was left open is published")
    lines = published(tmp_path)
    assert not gaps(lines)
    starts = [line for line in lines if line["event"] == "start"]
    assert [line["reason"] for line in starts] == ["clean", "crash"]
    assert "after_boot" not in starts[0]
    last = lines[lines.index(starts[1]) - 1]
    assert (starts[1]["after_boot"], starts[1]["after_seq"]) == (last["boot"], last["seq"])


def test_it_is_switched_and_published_while_the_daemon_runs(tmp_path: Path) -> None:
    with running(tmp_path) as daemon, daemon.redis() as client:
        work(daemon, 3)
        assert not (tmp_path / "events").exists()
        client.execute_command("CONFIG", "SET", "events", "terminal")
        work(daemon, 3)
        client.execute_command("CONFIG", "SET", "events", "all")
        work(daemon, 2)
        client.execute_command("CONFIG", "SET", "events", "off")
        wait_until(lambda: len(published(tmp_path)) >= 13, "the file is published")
        work(daemon, 2)
        assert facts(daemon)["events"] == "off"
    lines = published(tmp_path)
    ends = ["start", *["ack"] * 3, "stop"]
    assert [line["event"] for line in lines] == [*ends, "start", *["add", "deliver", "ack"] * 2, "stop"]
    assert (lines[0]["reason"], lines[-1]["reason"]) == ("on", "off")
    assert not gaps(lines)


def test_a_folder_that_cannot_be_used_stops_nobody_and_is_tried_again(tmp_path: Path) -> None:
    obstacle = tmp_path / "events"
    obstacle.write_text("in the way")
    with running(tmp_path, ALL) as daemon:
        wait_until(lambda: facts(daemon)["events_last_error"], "the trouble is told")
        work(daemon, 3)
        assert "Events are not written" in daemon.log()
        obstacle.unlink()
        wait_until(lambda: facts(daemon)["events_written"] >= 10, "what waited is written")
    assert Counter(line["event"] for line in published(tmp_path))["ack"] == 3


def test_two_nodes_share_a_folder(tmp_path: Path) -> None:
    shared = ("--events-dir", str(tmp_path / "events"), *ALL)
    with running(tmp_path / "a", shared) as one, running(tmp_path / "b", shared) as other:
        work(one, 2)
        work(other, 3)
    lines = published(tmp_path)
    assert Counter(line["event"] for line in lines)["add"] == 5
    assert len(list((tmp_path / "events").glob("date=*/node=*"))) == 2


def test_a_node_that_becomes_another_one_tells_so_under_its_new_name(tmp_path: Path) -> None:
    with running(tmp_path, ALL) as daemon:
        work(daemon, 2)
        before = daemon.call("CLUSTER", "MYID")
        daemon.call("CLUSTER", "RESET", "HARD")
        work(daemon, 1)
        after = daemon.call("CLUSTER", "MYID")
    assert before != after
    acks = {
        str(node)[:8]: sum(
            '"ack"' in path.read_text() for path in (tmp_path / "events").glob(f"*/node={str(node)[:8]}/*")
        )
        for node in (before, after)
    }
    assert acks == {str(before)[:8]: 1, str(after)[:8]: 1}
    assert not gaps(published(tmp_path))
    [old] = (tmp_path / "events").glob(f"*/node={str(before)[:8]}/*")
    # The jobs are gone by the log of the node that had them.
    assert [json.loads(line)["event"] for line in old.read_text().splitlines()][-2:] == ["flush", "stop"]


def test_a_folder_that_is_removed_is_told_of_and_made_anew(tmp_path: Path) -> None:
    with running(tmp_path, ALL) as daemon:
        work(daemon, 3)
        wait_until(lambda: facts(daemon)["events_written"] >= 10, "all lines are written")
        shutil.rmtree(tmp_path / "events")
        work(daemon, 2)
        wait_until(lambda: facts(daemon)["events_written"] >= 16, "what follows is written")
        told = facts(daemon)
        assert told["events_lost"] == 10
        assert "it was removed or moved while it was written and 10 events with it" in str(told["events_last_error"])
        assert "removed or moved" in daemon.log()
    lines = published(tmp_path)
    assert [line["seq"] for line in lines] == list(range(11, 18))
