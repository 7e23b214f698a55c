"""Who consumes a queue, as all nodes tell of it."""

from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred, ensureDeferred, succeed
from twisted.internet.task import Clock

from disqued.web.pages.render import fragment
from disqued.web.views.consumer_views import HELD_SHOWN, Consumers, consumers_of
from disqued.web.views.everywhere import Everywhere

A, B, C = b"a" * 40, b"b" * 40, b"c" * 40


def told(
    consumer: bytes | None, waiting: int | None, jobs: int, oldest: int | None, worker: bytes = b"", *held: list[Any]
) -> list[Any]:
    """A row of QCONSUMERS JOBS."""
    return [
        b"consumer", consumer, b"address", b"10.0.0.9:4711", b"client", 7, b"connected", 0, b"worker", worker,
        b"group", b"", b"waiting-for", waiting, b"jobs", jobs, b"oldest-for", oldest, b"held", [*held],
        b"of-later-nodes", 1,
    ]  # fmt: skip


class Gateway:
    """A node that knows no queue, and no other node."""

    id = A

    def __init__(self, call: Any) -> None:
        self.reactor = Clock()
        self.clients = SimpleNamespace(call=call)

    def queue(self, name: bytes) -> None:
        return None

    def known_nodes(self) -> list[Any]:
        return []

    def now(self) -> int:
        return 0


def asked(*rows: tuple[bytes, bytes, Any]) -> Consumers:
    def call(words: list[bytes], *, address: str) -> "Deferred[Any]":
        assert words[:5] == [b"CLUSTER", b"ASK", b"*", b"QCONSUMERS", b"mail"]
        return succeed(list(rows))

    gateway: Any = Gateway(call)
    outcome: list[Consumers] = []
    ensureDeferred(consumers_of(Everywhere(gateway), gateway, b"mail")).addCallback(outcome.append)
    return outcome[0]


def test_consumers_of_all_nodes_are_in_one_table_those_with_the_oldest_job_first() -> None:
    consumers = asked(
        (A, b"ok", [told(b"<b>", 3_000, 0, None)]),
        (B, b"ok", [told(None, None, 1, 1_000), told(b"x", None, 2, 9_000, b"press-1")]),
        (C, b"silent", None),
    )
    assert [(row.node, row.is_here, row.jobs) for row in consumers.rows] == [
        ("bbbbbbbb", False, 2), ("bbbbbbbb", False, 1), ("aaaaaaaa", True, 0)
    ]  # fmt: skip
    assert [one.short for one in consumers.missing] == ["cccccccc"]
    html = fragment("_consumers.html", {"consumers": consumers})
    assert html.count('href="/workers/press-1"') == 2, "of its name, and of the number of its jobs"
    assert "unknown since a restart" in html
    assert ("&lt;b&gt;" in html, "<b>" in html) == (True, False)
    assert "No consumers." in fragment("_consumers.html", {"consumers": asked((A, b"ok", []))})
    none = fragment("_consumers.html", {"consumers": asked((A, b"ok", []), (C, b"silent", None))})
    assert "No consumers on the nodes that answer." in none


def held_rows(consumers: Consumers, more: int = 0) -> str:
    return fragment("_held.html", {"consumers": consumers, "more_held": more})


def test_jobs_in_flight_are_those_of_all_nodes_that_are_held_longest_each_once() -> None:
    here = told(b"ann", None, 2, 3_000, b"", [b"DI-1", 3_000, 1], [b"DI-2", 1_000, 2])
    there = told(b"bob", None, 3, 9_000, b"", [b"DI-3", 9_000, 1], [b"DI-2", 2_000, 1], [b"DI-4", 10, 1])
    consumers = asked((A, b"ok", [here]), (B, b"ok", [there]))
    assert [(job.id, job.node, job.since_ms) for job in consumers.held] == [
        ("DI-3", "bbbbbbbb", 9_000), ("DI-1", "aaaaaaaa", 3_000), ("DI-2", "bbbbbbbb", 2_000), ("DI-4", "bbbbbbbb", 10)
    ]  # fmt: skip
    html = held_rows(consumers)
    assert f'href="/client?node={B.decode()}&amp;id=7"' in html
    assert html.count("this node") == 1
    assert "No jobs in flight on the nodes that answer." in held_rows(asked((A, b"ok", []), (C, b"silent", None)))
    assert "No jobs in flight." in held_rows(asked((A, b"ok", [])))


def test_of_very_many_jobs_in_flight_some_are_shown_and_the_others_counted() -> None:
    rows = [
        (node, b"ok", [told(b"x", None, 50, 99, b"", *([b"%b%d" % (node[:1], n), n, 1] for n in range(HELD_SHOWN)))])
        for node in (A, B)
    ]
    consumers = asked(*rows)
    assert len(consumers.held) == HELD_SHOWN
    assert (consumers.more_than_held(0), consumers.more_than_held(120)) == (80, 100)
