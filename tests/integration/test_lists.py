"""Reliable lists and okq's events on a real daemon: the clients that people have, and what a kill leaves."""

import re
import signal
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
import redis

from tests.integration.daemon import Daemon, wait_until
from tests.limits import LIMIT

Start = Callable[..., Daemon]
ID = re.compile(r"\d{13}-\d+")


def test_redis_py_pushes_pops_and_acknowledges(start: Start) -> None:
    daemon = start()
    with daemon.redis() as client:
        one, two = client.execute_command("RQ.PUSH", "q", "a", "b")
        assert ID.fullmatch(one)
        assert client.execute_command("RQ.POP", "COUNT", 5, "q") == [["q", one, "a"], ["q", two, "b"]]
        assert client.execute_command("RQ.POP", "q") == []
        assert client.execute_command("RQ.POP", "BLOCK", 20, "q") is None
        assert client.execute_command("RQ.ACK", "q", two, two) == [two]
        [(name, body, at, elapsed, deliveries)] = client.execute_command("RQ.INSPECT", "q", "PENDING", 0, 10)
        assert (name, body, deliveries) == (one, "a", 1)
        assert 0 <= elapsed < 60_000 < at


def test_a_client_of_resp3_gets_nulls_of_its_own(start: Start) -> None:
    daemon = start()
    with daemon.redis(protocol=3) as client:
        assert client.execute_command("QRPOP", "q") is None
        client.execute_command("QLPUSH", "q", "one", "x")
        assert client.execute_command("QRPOP", "q") == ["one", "x"]


def test_consumers_that_block_are_served_in_their_order(start: Start) -> None:
    daemon = start()
    answers: dict[str, Any] = {}

    def wait(name: str) -> None:
        with daemon.redis() as client:
            answers[name] = client.execute_command("RQ.POP", "BLOCK", -1, "q")

    threads = []
    for number, name in enumerate(("anna", "bob"), 1):
        threads.append(Thread(target=wait, args=(name,), daemon=True))
        threads[-1].start()
        daemon.wait_blocked(number)
    daemon.call("RQ.PUSH", "q", "first", "second")
    for thread in threads:
        thread.join(60)
    assert {name: rows[0][2] for name, rows in answers.items()} == {"anna": "first", "bob": "second"}


def test_a_registration_ends_with_its_connection(start: Start) -> None:
    daemon = start()
    with daemon.redis() as client:
        client.execute_command("QREGISTER", "mail")
        assert "consumers:1" in daemon.call("QINFO", "mail")[0]  # type: ignore[index]
    wait_until(lambda: "consumers:0" in daemon.call("QINFO", "mail")[0], "no consumer")  # type: ignore[index]


def test_after_a_kill_both_lists_are_there(start: Start) -> None:
    daemon = start("--appendonly", "yes", "--appendfsync", "always")
    ids = daemon.call("RQ.PUSH", "q", "a", "b", "c")
    daemon.call("RQ.POP", "q")
    before = daemon.call("RQ.INSPECT", "q", "PENDING", 0, 9)
    daemon.process.send_signal(signal.SIGKILL)
    daemon.process.wait(LIMIT)
    daemon.ended = True
    again = start("--appendonly", "yes", "--appendfsync", "always", directory=daemon.directory)
    [[name, body, at, _, deliveries]] = again.call("RQ.INSPECT", "q", "PENDING", 0, 9)  # type: ignore[misc]
    assert [name, body, deliveries] == [before[0][0], "a", 1]  # type: ignore[index]
    # Four times a moment of one clock becomes one of the other, both in whole milliseconds: two of them take one off.
    assert abs(at - before[0][2]) <= 2  # type: ignore[index]
    assert [row[1] for row in again.call("RQ.INSPECT", "q", 0, 9)] == ["b", "c"]  # type: ignore[union-attr,attr-defined]
    assert again.call("RQ.ACK", "q", *ids) == ids[:1]  # type: ignore[misc,index]


@pytest.mark.parametrize(
    ("words", "text"),
    [(("RQ.INSPECT", "none", 0, 1), "EMPTYKEY"), (("QRPOP", "q", "EX", -1), "bad expires value: -1 < 0")],
)
def test_an_error_has_its_word(start: Start, words: tuple[object, ...], text: str) -> None:
    daemon = start()
    with daemon.redis() as client, pytest.raises(redis.exceptions.ResponseError, match=f"^{text}$"):
        client.execute_command(*words)
