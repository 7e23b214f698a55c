"""What the log tells of the cluster, and how often nodes.conf is written."""

from collections.abc import Iterator
from typing import Any, cast

import attrs
import pytest
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from disqued.core.model.peers import FAIL, FULL, LEAVING, PFAIL, Peer
from disqued.net.cluster.identity import IdentityError
from disqued.net.cluster.topology import SAVE_PAUSE_S, Topology
from tests.core_fixtures import Server

OTHER = b"f" * 40


@attrs.define
class Files:
    """Counts how often the file is written."""

    saved: int = 0
    #: How often it was written before anybody could say another word.
    saved_at_once: int = 0
    is_full: bool = False
    fails_later: bool = False  #: in the thread that writes

    def save(self) -> None:
        """Count, or fail."""
        if self.is_full:
            raise IdentityError("no room")
        self.saved_at_once += 1

    def save_members(self, node: Any) -> None:
        """Count, or fail."""
        self.saved += 1
        if self.fails_later:
            raise IdentityError("no room, either")


@attrs.define
class Links:
    """Counts how often links follow."""

    followed: int = 0

    def follow_soon(self) -> None:
        """Count."""
        self.followed += 1


class Bench:
    """A node whose members somebody else changes."""

    def __init__(self) -> None:
        self.server = Server()
        self.node = self.server.node
        self.peers = self.node.state.peers.by_id
        self.reactor, self.files, self.links = Clock(), Files(), Links()
        self.members = Topology(self.node, cast("Any", self.links), cast("Any", self.files), self.reactor)
        self.told: list[str] = []
        self.levels: list[str] = []

    def hear(self, event: LogEvent) -> None:
        """Keep a line of the log."""
        self.told.append(formatEvent(event))
        self.levels.append(event["log_level"].name)

    def change(self) -> list[str]:
        """Say that something changed; returns what the log told of it."""
        self.told.clear()
        self.members.changed()
        return list(self.told)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    globalLogPublisher.addObserver(bench.hear)
    yield bench
    globalLogPublisher.removeObserver(bench.hear)


def test_the_log_tells_each_change_of_a_node_once(bench: Bench) -> None:
    where = f"Node {'f' * 40} at 10.0.0.2, port 7711,"
    peer = bench.peers[OTHER] = Peer(OTHER, "10.0.0.2", 7711, 17711)
    assert bench.change() == [f"{where} is known now"]
    assert bench.change() == []
    for flags, condition in (
        (PFAIL, "does not answer"),
        (PFAIL | FAIL, "has failed: most nodes say so"),
        (0, "answers"),
        (LEAVING, "is leaving"),
    ):
        peer.flags = flags
        assert bench.change() == [f"{where} {condition}"]
        assert bench.change() == []
    del bench.peers[OTHER]
    assert bench.change() == [f"Node {'f' * 40} is forgotten"]


def test_the_log_warns_of_nodes_that_do_not_answer_and_names_the_worst_of_a_node(bench: Bench) -> None:
    peer = bench.peers[OTHER] = Peer(OTHER, "10.0.0.2", 7711, 17711)
    bench.change()
    full = "takes no copies now, its memory is low or its journal fails"
    for flags, condition, level in (
        (FULL, full, "info"),
        (FULL | LEAVING, "is leaving", "info"),
        (FULL | LEAVING | PFAIL, "does not answer", "warn"),
        (FULL | LEAVING | FAIL, "has failed: most nodes say so", "warn"),
        (FULL, full, "info"),
    ):
        peer.flags = flags
        bench.levels.clear()
        (line,) = bench.change()
        assert line.endswith(f", port 7711, {condition}")
        assert bench.levels == [level]


def test_a_node_that_fails_as_soon_as_it_is_known_is_logged_as_known(bench: Bench) -> None:
    bench.peers[OTHER] = Peer(OTHER, "10.0.0.2", 7711, 17711)
    bench.peers[OTHER].flags = PFAIL
    assert [line.partition("7711, ")[2] for line in bench.change()] == ["is known now"]
    assert bench.change() == []


def test_the_log_tells_when_a_leaving_node_can_be_stopped(bench: Bench) -> None:
    peer = bench.peers[OTHER] = Peer(OTHER, "10.0.0.2", 7711, 17711)
    bench.change()
    bench.server.add()
    bench.node.leaving.set(leaving=True)
    assert bench.change() == ["This node is leaving and must not be stopped yet: jobs are on their way"]
    assert bench.change() == []
    bench.server.advance(2_000)
    assert bench.change() == [
        "This node is leaving and must not be stopped yet: no node can be reached that takes jobs"
    ]
    bench.node.flush()
    bench.server.advance(5_000)
    assert bench.change() == ["This node is leaving, and nothing is lost when it is stopped now"]
    bench.node.leaving.set(leaving=False)
    assert bench.change() == []
    assert peer.id == OTHER


def test_a_node_with_the_same_id_is_told_of_once(bench: Bench) -> None:
    bench.node.membership.own_address.twin = "10.0.0.9:17711"
    (line,) = bench.change()
    assert line.startswith("The node at 10.0.0.9:17711 says that it has the id of this one")
    assert bench.change() == []
    bench.node.membership.own_address.twin = "10.0.0.8:17711"
    assert len(bench.change()) == 1, "another one"
    bench.node.membership.own_address.twin = ""
    assert bench.change() == []
    bench.node.membership.own_address.twin = "10.0.0.8:17711"
    assert len(bench.change()) == 1, "it is there again"


def test_the_file_is_written_once_for_many_changes_and_at_the_end(bench: Bench) -> None:
    for _ in range(10):
        bench.members.changed()
    assert (bench.links.followed, bench.files.saved) == (10, 0)
    bench.reactor.advance(0)
    assert bench.files.saved == 1
    bench.members.changed()
    bench.reactor.advance(SAVE_PAUSE_S / 2)
    assert bench.files.saved == 1
    bench.members.stop()
    assert bench.files.saved == 2
    assert bench.reactor.getDelayedCalls() == []
    bench.members.stop()
    assert bench.files.saved == 2


def test_the_file_is_written_with_a_pause_in_between(bench: Bench) -> None:
    bench.reactor.advance(1_000)
    bench.members.changed()
    bench.reactor.advance(0)
    assert bench.files.saved == 1
    bench.reactor.advance(SAVE_PAUSE_S / 4)
    bench.members.changed()
    bench.reactor.advance(SAVE_PAUSE_S / 2)
    bench.members.changed()
    assert bench.files.saved == 1
    bench.reactor.advance(SAVE_PAUSE_S / 4 + 0.001)
    assert bench.files.saved == 2
    bench.reactor.advance(10)
    assert bench.files.saved == 2
    bench.members.changed()
    bench.reactor.advance(0)
    assert bench.files.saved == 3, "the pause is over"


def test_a_write_that_fails_is_logged_and_tried_with_the_next_change(bench: Bench) -> None:
    bench.files.fails_later = True
    bench.members.changed()
    bench.told.clear()
    bench.reactor.advance(0)
    assert bench.told == ["What is known of the cluster is not saved: no room, either"]
    bench.members.changed()
    bench.reactor.advance(SAVE_PAUSE_S)
    assert bench.files.saved == 2


def test_a_node_that_was_forgotten_and_comes_again_is_written_down_again(bench: Bench) -> None:
    for _ in range(2):
        bench.peers[OTHER] = Peer(OTHER, "10.0.0.2", 7711, 17711)
        assert bench.change() == [f"Node {'f' * 40} at 10.0.0.2, port 7711, is known now"]
        del bench.peers[OTHER]
        assert bench.change() == [f"Node {'f' * 40} is forgotten"]
        assert bench.change() == []
    assert bench.files.saved_at_once == 2


def test_who_is_new_is_written_down_before_another_word_is_said(bench: Bench) -> None:
    bench.change()
    assert bench.files.saved_at_once == 0
    bench.peers[OTHER] = Peer(OTHER, "10.0.0.2", 7711, 17711)
    bench.change()
    assert bench.files.saved_at_once == 1
    bench.peers[OTHER].flags = PFAIL
    bench.change()
    del bench.peers[OTHER]
    bench.change()
    assert bench.files.saved_at_once == 1, "these can wait"


def test_a_node_that_cannot_be_written_down_is_known_all_the_same(bench: Bench) -> None:
    bench.files.is_full = True
    bench.peers[OTHER] = Peer(OTHER, "10.0.0.2", 7711, 17711)
    assert bench.change()[-1] == "What is known of the cluster is not saved: no room"
    bench.reactor.advance(0)
    assert bench.files.saved == 1, "it is tried again"
