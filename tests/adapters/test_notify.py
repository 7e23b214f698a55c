"""What systemd is told, on a clock that the test turns."""

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from disqued.net.process.notify import EXTENSION_S, LOOK_S, STATUS_S, Notifier, Supervision


class Manager:
    """A socket, and what arrived there."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.setblocking(False)
        self.told_by: list[Any] = []  #: what is to be closed with it

    def heard(self) -> list[str]:
        """Take what has arrived."""
        messages = []
        while True:
            try:
                messages.append(self.socket.recv(65_536).decode())
            except BlockingIOError:
                return messages


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path / "notify")
    yield made
    for end in made.told_by:
        end()
    made.socket.close()


def daemon() -> Any:
    """As much of a daemon as is looked at."""
    peers = SimpleNamespace(by_id={})
    loader = SimpleNamespace(slices=0, progress=lambda: f"Loading: {loader.slices}")
    return SimpleNamespace(
        loader=loader, store_failure=None,
        node=SimpleNamespace(state=SimpleNamespace(jobs=[], queues=[], peers=peers)),
    )  # fmt: skip


def supervision(manager: Manager, clock: Clock, of: Any, **variables: str) -> Supervision:
    made = Supervision.of(of, clock, {"NOTIFY_SOCKET": manager.path, **variables})
    made.start()
    manager.told_by.append(made.stopped)
    return made


def test_more_time_is_asked_for_while_a_load_goes_on_and_not_when_it_is_stuck(manager: Manager) -> None:
    clock, of = Clock(), daemon()
    supervision(manager, clock, of)
    for slices in (1, 2):
        of.loader.slices = slices
        clock.advance(LOOK_S)
        assert manager.heard() == [f"EXTEND_TIMEOUT_USEC={EXTENSION_S}000000\nSTATUS=Loading: {slices}"]
    clock.pump([LOOK_S] * 100)
    assert manager.heard() == []


def test_the_watchdog_is_told_twice_in_its_span_from_the_start_to_the_very_end(manager: Manager) -> None:
    clock, of = Clock(), daemon()
    made = supervision(manager, clock, of, WATCHDOG_USEC="6000000")
    made.ready()
    made.stopping("Stopping")
    manager.heard()
    clock.pump([3.0] * 4)
    assert manager.heard() == ["WATCHDOG=1"] * 4
    made.stopped()
    clock.pump([3.0] * 4)
    assert manager.heard() == []


@pytest.mark.parametrize("variables", [{}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"}])
def test_a_watchdog_that_is_none_or_another_process_s_is_told_nothing(
    manager: Manager, variables: dict[str, str]
) -> None:
    clock = Clock()
    supervision(manager, clock, daemon(), **variables)
    clock.pump([LOOK_S] * 10)
    assert "WATCHDOG=1" not in manager.heard()


def test_a_status_is_told_when_it_has_changed(manager: Manager) -> None:
    clock, of = Clock(), daemon()
    made = supervision(manager, clock, of)
    made.ready()
    assert manager.heard() == ["READY=1\nSTATUS=Serves 0 jobs in 0 queues"]
    clock.pump([STATUS_S] * 3)
    assert manager.heard() == []
    state = of.node.state
    state.jobs, state.queues, state.peers.by_id, of.store_failure = [1, 2], [1], {b"a": 1}, "no\nspace"
    clock.pump([STATUS_S] * 3)
    assert manager.heard() == ["STATUS=Serves 2 jobs in 1 queues; 2 nodes are known; takes no jobs now: no space"]


def test_a_node_is_not_ready_before_a_port_that_takes_its_time_is_open(manager: Manager) -> None:
    clock, of, opened = Clock(), daemon(), Deferred[None]()
    made = supervision(manager, clock, of)
    made.wait_for(opened)
    made.ready()
    clock.pump([STATUS_S] * 3)
    assert manager.heard() == []
    opened.callback(None)
    assert manager.heard() == ["READY=1\nSTATUS=Serves 0 jobs in 0 queues"]


def test_a_node_that_is_not_ready_says_nothing_of_a_reload(manager: Manager) -> None:
    clock, of = Clock(), daemon()
    made = supervision(manager, clock, of)
    made.reloading()
    made.reloaded()
    assert manager.heard() == []
    made.ready()
    made.stopping("Stopping")
    manager.heard()
    made.reloading()
    made.reloaded()
    assert manager.heard() == []


def test_a_node_that_stops_before_it_is_ready_never_says_that_it_is(manager: Manager) -> None:
    clock, of = Clock(), daemon()
    made = supervision(manager, clock, of)
    made.stopping("Stopping")
    made.ready()
    clock.pump([STATUS_S] * 3)
    assert manager.heard() == ["STOPPING=1\nSTATUS=Stopping"]


def test_what_a_full_socket_does_not_take_waits_in_its_order_and_pings_do_not(manager: Manager) -> None:
    clock = Clock()
    notifier = Notifier(manager.path, clock)
    manager.told_by.append(notifier.close)
    room = 0
    while notifier.mention("WATCHDOG=1"):
        room += 1
    notifier.tell("READY=1")
    assert not notifier.mention("WATCHDOG=1")
    notifier.tell("STOPPING=1")
    clock.pump([1.0] * 5)
    assert manager.heard() == ["WATCHDOG=1"] * room
    assert not notifier.mention("STATUS=too early")
    clock.pump([1.0])
    assert manager.heard() == ["READY=1", "STOPPING=1"]
    assert clock.getDelayedCalls() == []


def test_what_waits_at_the_end_is_given_up(manager: Manager) -> None:
    clock = Clock()
    notifier = Notifier(manager.path, clock)
    while notifier.mention("WATCHDOG=1"):
        pass
    notifier.tell("STOPPING=1")
    notifier.close()
    assert clock.getDelayedCalls() == []


def test_the_variables_are_taken_away_from_other_processes(manager: Manager) -> None:
    variables = {"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "HOME": "/"}
    Supervision.of(daemon(), Clock(), variables).stopped()
    assert variables == {"HOME": "/"}


@pytest.mark.parametrize("address", ["", "vsock:2:1234"])
def test_without_an_address_that_can_be_written_to_nothing_is_said(address: str) -> None:
    notifier = Notifier(address, Clock())
    assert not notifier
    notifier.tell("READY=1")
    assert notifier.mention("WATCHDOG=1")
