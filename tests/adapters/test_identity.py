"""The node's id and the nodes that it knows: kept, and never shared by two processes."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import pytest_twisted
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.logger import formatEvent, globalLogPublisher

from disqued.core.model.messages import PONG, Greeting
from disqued.core.model.outbox import FLUSHED
from disqued.core.model.peers import FAIL, LEAVING, KnownNode
from disqued.core.node import Node
from disqued.net.cluster import identity as identity_module
from disqued.net.cluster.identity import Identity, IdentityError
from disqued.testing.clock import WALL_MS, Clock
from disqued.wire.nodesconf import BadNodes, format_nodes, parse_nodes
from tests.adapters.inprocess import RecordingStore, start, wait_until

OTHER = b"e" * 40


def load(folder: Path) -> Identity:
    return Identity.load(folder / "nodes.conf", 7711, Random(1))


def node_of(identity: Identity) -> Node:
    """The node of a file, which has its members back."""
    node = Node(identity.node_id, Clock(now=1_000), Random(1), maxmemory=1 << 30)
    node.membership.own_address.announce("", 7711, 17711)
    identity.restore(node)
    return node


def take_in(node: Node, node_id: bytes = OTHER, host: str = "10.0.0.2") -> None:
    node.greeted(Greeting(node_id, "", 7712, 17712, 0, meets=True), host, "10.0.0.1")


def test_an_id_is_drawn_once_and_kept(tmp_path: Path) -> None:
    first = Identity.load(tmp_path / "nodes.conf", 7711, Random(1))
    first.release()
    second = Identity.load(tmp_path / "nodes.conf", 7711, Random(2))
    second.release()
    assert first.node_id == second.node_id
    assert (tmp_path / "nodes.conf").read_bytes() == b"%b :7711 myself 0 0 connected\n" % first.node_id


def test_the_id_of_a_file_of_disque_is_kept(tmp_path: Path) -> None:
    other, own = b"e" * 40, b"2" * 40
    (tmp_path / "nodes.conf").write_bytes(
        b"%b 127.0.0.1:18812 noflags 0 1795255367758 connected\n\n%b 127.0.0.1:18811 myself,leaving 0 0 connected\n"
        b"vars something 1\n" % (other, own)
    )
    identity = Identity.load(tmp_path / "nodes.conf", 7711, Random(1))
    identity.release()
    assert identity.node_id == own


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"garbage\n", "nodes.conf: line 1: expected an id of 40 hex digits and five more fields"),
        (b"\n" + b"z" * 40 + b" :1 myself 0 0 connected\n", "line 2: expected an id"),
        (b"a" * 40 + b" :1 noflags 0 0 connected\n", "no line says `myself`"),
        (b"a" * 40 + b" :1 myself 0 0 connected\n" + b"b" * 40 + b" :1 myself 0 0 connected\n", "or more than one"),
        (
            b"a" * 40 + b" :1 myself 0 0 connected\n" + b"a" * 40 + b" :1 noflags 0 0 connected\n",
            "two lines of the node",
        ),
        (
            b"a" * 40 + b" :1 myself,slave 0 0 connected\n",
            "line 1: flag 'slave' is not known; allowed are myself, fail",
        ),
        (b"a" * 40 + b" x:1 myself 0 0 connected\n", "line 1: 'x:1': expected <address>:<port>"),
        (b"a" * 40 + b" 1.2.3.4 myself 0 0 connected\n", "line 1: '1.2.3.4': expected <address>:<port>"),
        (b"a" * 40 + b" :70000 myself 0 0 connected\n", "ports up to 65535"),
        (b"a" * 40 + b" :1@ myself 0 0 connected\n", "line 1: '': expected a whole number"),
        (b"a" * 40 + b" :1 myself -1 0 connected\n", "line 1: '-1': expected a whole number"),
        (b"a" * 40 + b" :1 myself 0 0 maybe\n", "line 1: 'maybe': expected connected or disconnected"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path: Path, text: bytes, problem: str) -> None:
    (tmp_path / "nodes.conf").write_bytes(text)
    with pytest.raises(IdentityError, match=re.escape(problem)):
        Identity.load(tmp_path / "nodes.conf", 7711, Random(1))


def test_a_second_process_is_kept_away(tmp_path: Path) -> None:
    identity = Identity.load(tmp_path / "nodes.conf", 7711, Random(1))
    code = (
        "from pathlib import Path; from random import Random; from disqued.net.cluster.identity import Identity;"
        f"Identity.load(Path({str(tmp_path / 'nodes.conf')!r}), 7711, Random(1))"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    identity.release()
    assert run.returncode == 1
    assert "is locked: another disqued is running in this folder" in run.stderr


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    identity = Identity.load(tmp_path / "nodes.conf", 7711, Random(1))
    identity.path = tmp_path / "missing" / "nodes.conf"
    with pytest.raises(IdentityError, match="error saving the cluster node config: No such file or directory"):
        identity.save()
    identity.release()


def test_a_file_that_was_refused_can_be_mended_and_read(tmp_path: Path) -> None:
    (tmp_path / "nodes.conf").write_bytes(b"garbage\n")
    with pytest.raises(IdentityError):
        load(tmp_path)
    (tmp_path / "nodes.conf").unlink()
    load(tmp_path).release()


# Lines.

SOME_NODES = [
    KnownNode(b"a" * 40, "", 7711, 17711, connected=True, myself=True),
    KnownNode(b"b" * 40, "10.0.0.2", 7712, 17712, 7, 5, 6),
    KnownNode(b"c" * 40, "2001:db8::1", 7711, 9_000, connected=True),
    KnownNode(b"d" * 40, "", 60_000, 60_001),
]


def test_lines_read_as_they_were_written() -> None:
    text = format_nodes(SOME_NODES)
    assert text.splitlines() == [
        b"a" * 40 + b" :7711 myself 0 0 connected",
        b"b" * 40 + b" 10.0.0.2:7712 fail?,fail,leaving 5 6 disconnected",
        b"c" * 40 + b" 2001:db8::1:7711@9000 noflags 0 0 connected",
        b"d" * 40 + b" :60000@60001 noaddr 0 0 disconnected",
    ]
    assert parse_nodes(text) == SOME_NODES


def test_the_own_line_comes_first_and_nodes_in_handshake_are_not_known() -> None:
    trying = KnownNode(b"f" * 40, "10.0.0.9", 7711, 17711, met=False)
    text = format_nodes([SOME_NODES[1], trying, SOME_NODES[0]])
    assert b"f" * 40 + b" 10.0.0.9:7711 handshake 0 0 disconnected" in text
    assert parse_nodes(text) == SOME_NODES[:2]


@given(st.binary(max_size=200), st.integers(0, 300), st.integers(0, 20))
def test_any_file_is_read_or_refused(data: bytes, at: int, length: int) -> None:
    text = format_nodes(SOME_NODES)
    for damaged in (data, text[:at] + data + text[at + length :]):
        try:
            assert sum(node.myself for node in parse_nodes(damaged)) == 1
        except BadNodes as error:
            assert str(error)  # noqa: PT017


# Members.


def test_a_node_knows_after_a_restart_whom_it_knew_and_that_it_leaves(tmp_path: Path) -> None:
    identity = load(tmp_path)
    node = node_of(identity)
    take_in(node)
    node.message(OTHER, (1, 0, ()))
    node.membership.set_leaving(leaving=True)
    node.state.peers.by_id[OTHER].flags |= FAIL
    identity.save()
    identity.release()
    assert (tmp_path / "nodes.conf").read_bytes() == (
        b"%b 10.0.0.1:7711 myself,leaving 0 0 connected\n%b 10.0.0.2:7712 fail 0 %d disconnected\n"
        % (identity.node_id, OTHER, WALL_MS)
    )
    again = load(tmp_path)
    node = node_of(again)
    again.release()
    assert again.node_id == identity.node_id
    assert node.state.leaving
    assert node.membership.own_address.host == "10.0.0.1"
    assert [(target.host, target.bus_port, target.id) for target in node.membership.targets()] == [
        ("10.0.0.2", 17712, OTHER)
    ]


@pytest_twisted.ensureDeferred
async def test_what_changes_is_written_in_a_thread_and_what_does_not_is_not(tmp_path: Path) -> None:
    identity = load(tmp_path)
    node = node_of(identity)
    take_in(node)
    await identity.save_members(node)
    file = tmp_path / "nodes.conf"
    before = file.stat()
    assert OTHER in file.read_bytes()
    node.state.peers.by_id[OTHER].ping_sent_at += 5
    assert identity.save_members(node) is None
    assert file.stat().st_ino == before.st_ino
    identity.release()


@pytest_twisted.ensureDeferred
async def test_the_last_of_several_changes_is_the_one_that_stays(tmp_path: Path) -> None:
    identity = load(tmp_path)
    node = node_of(identity)
    take_in(node)
    writing = identity.save_members(node)
    take_in(node, b"c" * 40, "10.0.0.3")
    assert identity.save_members(node) is None
    take_in(node, b"d" * 40, "10.0.0.4")
    assert identity.save_members(node) is None
    await writing
    assert [line.id for line in parse_nodes((tmp_path / "nodes.conf").read_bytes())][1:] == [
        OTHER,
        b"c" * 40,
        b"d" * 40,
    ]
    identity.release()


def test_what_waits_is_written_before_the_folder_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = load(tmp_path)
    node = node_of(identity)
    take_in(node)
    # The thread does not come to it.
    monkeypatch.setattr(identity_module, "deferToThread", lambda function: Deferred())
    identity.save_members(node)
    assert OTHER not in (tmp_path / "nodes.conf").read_bytes()
    identity.release()
    assert OTHER in (tmp_path / "nodes.conf").read_bytes()


@pytest_twisted.ensureDeferred
async def test_a_write_that_failed_is_told_and_done_again_with_the_next_change(tmp_path: Path) -> None:
    identity = load(tmp_path)
    node = node_of(identity)
    take_in(node)
    identity.path = tmp_path / "missing" / "nodes.conf"
    with pytest.raises(IdentityError, match="No such file or directory"):
        await identity.save_members(node)
    identity.path = tmp_path / "nodes.conf"
    await identity.save_members(node)
    assert OTHER in identity.path.read_bytes()
    identity.release()


def test_a_hard_reset_is_written_with_the_new_id(tmp_path: Path) -> None:
    identity = load(tmp_path)
    before = identity.node_id
    node = node_of(identity)
    node.membership.reset(hard=True)
    identity.save()
    identity.release()
    again = load(tmp_path)
    again.release()
    assert again.node_id == identity.node_id == node.id != before


@pytest_twisted.ensureDeferred
async def test_a_restarted_daemon_looks_after_others_and_goes_on_leaving_whatever_its_journal_says(
    tmp_path: Path,
) -> None:
    lines = [
        KnownNode(b"a" * 40, "127.0.0.1", 7711, 17711, LEAVING, connected=True, myself=True),
        # Nobody is there.
        KnownNode(OTHER, "127.0.0.1", 1, 2, pong_at=5),
    ]
    (tmp_path / "nodes.conf").write_bytes(format_nodes(lines))
    running = start(tmp_path, store=RecordingStore(stored=[(FLUSHED, 1)]))
    node = running.daemon.node
    await wait_until(lambda: not running.daemon.loading)
    assert node.id == b"a" * 40
    assert node.state.leaving
    deadline = node.deadline()
    assert deadline is not None
    assert deadline <= node.state.now + 1_000
    assert node.leaving.awake_at
    assert node.membership.detector.awake_at
    await wait_until(lambda: node.leaving.is_safe)
    await running.stop()
    assert parse_nodes((tmp_path / "nodes.conf").read_bytes())[1].id == OTHER


@pytest_twisted.ensureDeferred
async def test_times_and_links_of_nodes_are_no_news_and_all_else_is(tmp_path: Path) -> None:
    identity = load(tmp_path)
    node = node_of(identity)
    take_in(node)
    await identity.save_members(node)
    peer = node.state.peers.by_id[OTHER]
    # That it has answered at all is news: until then it is asked to take this node in.
    node.begin()
    node.message(OTHER, (PONG, 0, ()))
    assert peer.pong_at
    await identity.save_members(node)
    for change in (
        lambda: setattr(peer, "pong_wall", peer.pong_wall + 5),
        lambda: setattr(peer, "ping_sent_at", peer.ping_sent_at + 5),
        lambda: setattr(peer, "linked", not peer.linked),
    ):
        change()
        assert identity.save_members(node) is None
    for change in (
        lambda: setattr(peer, "host", "10.0.0.8"),
        lambda: setattr(peer, "port", 7_713),
        lambda: setattr(peer, "bus_port", 17_713),
        lambda: setattr(peer, "flags", FAIL),
    ):
        change()
        await identity.save_members(node)
    assert b" 10.0.0.8:7713 fail " in identity.path.read_bytes()
    assert identity.save_members(node) is None
    identity.save()
    assert identity.save_members(node) is None, "it is written already"
    identity.release()


@pytest_twisted.ensureDeferred
async def test_one_thread_writes_at_a_time_and_comes_back_for_what_changed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way: list[tuple[Callable[[], None], Deferred[None]]] = []

    def later(function: Callable[[], None]) -> Deferred[None]:
        under_way.append((function, Deferred()))
        return under_way[-1][1]

    def run(meanwhile: Callable[[], object] = lambda: None) -> None:
        function, deferred = under_way.pop(0)
        function()
        meanwhile()
        deferred.callback(None)

    def change() -> None:
        take_in(node, b"e1" * 20, "10.0.0.5")
        assert identity.save_members(node) is None

    monkeypatch.setattr(identity_module, "deferToThread", later)
    identity = load(tmp_path)
    node = node_of(identity)
    take_in(node)
    writing = identity.save_members(node)
    take_in(node, b"c" * 40, "10.0.0.3")
    assert identity.save_members(node) is None
    assert len(under_way) == 1
    # A thread that has not begun takes the newest.
    run()
    assert b"c" * 40 in identity.path.read_bytes()
    assert under_way == []
    assert writing is not None
    assert writing.called
    take_in(node, b"d" * 40, "10.0.0.4")
    writing = identity.save_members(node)
    run(change)
    assert len(under_way) == 1, "there is something more to write"
    run()
    assert b"e1" * 20 in identity.path.read_bytes()
    assert writing is not None
    assert writing.called
    assert identity.save_members(node) is None
    take_in(node, b"f1" * 20, "10.0.0.6")
    identity.save_members(node)
    identity.save()
    run()
    assert b"f1" * 20 in identity.path.read_bytes()
    identity.release()


def test_a_write_goes_aside_is_synced_and_renamed_and_so_is_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut leaves the old file or the new one, never a part."""
    identity = load(tmp_path)
    before = identity.path.read_bytes()
    node = node_of(identity)
    take_in(node)
    done: list[str] = []

    def fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        done.append(f"sync {path.relative_to(tmp_path.parent)}")
        if path.is_file():
            assert OTHER in path.read_bytes()
            assert identity.path.read_bytes() == before

    replace = os.replace

    def rename(old: Path, new: Path) -> None:
        done.append("rename")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    identity.save()
    assert done == [f"sync {tmp_path.name}/nodes.conf.new", "rename", f"sync {tmp_path.name}"]
    assert OTHER in identity.path.read_bytes()
    assert not (tmp_path / "nodes.conf.new").exists()
    identity.release()


def test_a_released_folder_can_be_used_by_the_next_and_a_second_release_is_harmless(tmp_path: Path) -> None:
    first = load(tmp_path)
    with pytest.raises(IdentityError, match="is locked"):
        load(tmp_path)
    first.release()
    second = load(tmp_path)
    first.release()
    with pytest.raises(IdentityError, match="is locked"):
        load(tmp_path)
    second.release()
    assert (tmp_path / "nodes.conf.lock").stat().st_mode & 0o777 == 0o600


def test_what_keeps_waiting_and_cannot_be_written_does_not_keep_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity_module, "deferToThread", lambda function: Deferred())
    identity = load(tmp_path)
    node = node_of(identity)
    take_in(node)
    identity.save_members(node)
    identity.path = tmp_path / "missing" / "nodes.conf"
    identity.release()
    load(tmp_path).release()


def test_descriptors_are_given_back_when_a_folder_cannot_be_used(tmp_path: Path) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    (tmp_path / "nodes.conf").write_bytes(b"garbage\n")
    before = opened()
    for _ in range(3):
        with pytest.raises(IdentityError, match="line 1"):
            load(tmp_path)
    assert opened() == before
    (tmp_path / "nodes.conf").unlink()
    identity = load(tmp_path)
    for _ in range(3):
        with pytest.raises(IdentityError, match="is locked"):
            load(tmp_path)
    assert opened() == before + 1
    identity.save()
    assert opened() == before + 1
    identity.release()
    assert opened() == before


def test_a_folder_or_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match=r"cannot open .*/none/nodes.conf.lock: No such file or directory"):
        load(tmp_path / "none")
    (tmp_path / "nodes.conf").mkdir()
    with pytest.raises(IdentityError, match=r"cannot read .*/nodes.conf: Is a directory"):
        load(tmp_path)


@pytest.mark.parametrize("content", [b"", b" \n\n"])
def test_an_empty_file_gives_a_new_id_and_a_warning(tmp_path: Path, content: bytes) -> None:
    lines: list[str] = []
    globalLogPublisher.addObserver(observer := lambda event: lines.append(str(formatEvent(event))))
    load(tmp_path).release()
    assert lines == [], "a new folder is nothing to warn of"
    (tmp_path / "nodes.conf").write_bytes(content)
    identity = Identity.load(tmp_path / "nodes.conf", 7711, Random(2))
    identity.release()
    globalLogPublisher.removeObserver(observer)
    assert lines == [f"{tmp_path}/nodes.conf is empty: this node gets a new id, and is to be met again"]
    assert parse_nodes((tmp_path / "nodes.conf").read_bytes())[0].id == identity.node_id


def test_a_node_that_leaves_only_because_it_stops_does_not_leave_after_its_start(tmp_path: Path) -> None:
    identity = load(tmp_path)
    node = node_of(identity)
    node.membership.set_leaving(leaving=True)
    identity.hides_leaving = True
    identity.save()
    assert parse_nodes(identity.path.read_bytes())[0].flags == 0
    identity.hides_leaving = False
    identity.save()
    assert parse_nodes(identity.path.read_bytes())[0].flags == LEAVING
    identity.release()


def test_a_node_without_a_port_of_its_own_is_written_with_that_of_its_clients(tmp_path: Path) -> None:
    identity = load(tmp_path)
    node = Node(identity.node_id, Clock(now=1_000), Random(1), maxmemory=1 << 30)
    identity.restore(node)
    node.membership.own_address.announce("", 0, 0)
    identity.save()
    assert parse_nodes(identity.path.read_bytes())[0].port == 7711
    node.membership.own_address.announce("", 7_800, 17_800)
    identity.save()
    assert parse_nodes(identity.path.read_bytes())[0].port == 7_800
    identity.release()
