"""Who consumes a queue, as all nodes tell of it."""

from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred, ensureDeferred, succeed
from twisted.internet.task import Clock

from disqued.web.pages.render import fragment
from disqued.web.views.consumer_views import ConsumerRow, consumers_of
from disqued.web.views.everywhere import Everywhere

A, B, C = b"a" * 40, b"b" * 40, b"c" * 40


def told(consumer: bytes | None, waiting: int | None, jobs: int, oldest: int | None, worker: bytes = b"") -> list[Any]:
    """A row of QCONSUMERS."""
    return [
        b"consumer", consumer, b"address", b"10.0.0.9:4711", b"client", 7, b"connected", 0, b"worker", worker,
        b"group", b"", b"waiting-for", waiting, b"jobs", jobs, b"oldest-for", oldest, b"of-later-nodes", 1,
    ]  # fmt: skip


def asked(*rows: tuple[bytes, bytes, Any]) -> list[ConsumerRow]:
    def call(words: list[bytes], *, address: str) -> "Deferred[Any]":
        assert words[:5] == [b"CLUSTER", b"ASK", b"*", b"QCONSUMERS", b"mail"]
        return succeed(list(rows))

    gateway: Any = SimpleNamespace(reactor=Clock(), clients=SimpleNamespace(call=call), id=A)
    outcome: list[list[ConsumerRow]] = []
    ensureDeferred(consumers_of(Everywhere(gateway), gateway, b"mail")).addCallback(outcome.append)
    return outcome[0]


def test_consumers_of_all_nodes_are_in_one_table_those_with_the_oldest_job_first() -> None:
    rows = asked(
        (A, b"ok", [told(b"<b>", 3_000, 0, None)]),
        (B, b"ok", [told(None, None, 1, 1_000), told(b"x", None, 2, 9_000, b"press-1")]),
        (C, b"silent", None),
    )
    assert [(row.node, row.is_here, row.jobs) for row in rows] == [
        ("bbbbbbbb", False, 2), ("bbbbbbbb", False, 1), ("aaaaaaaa", True, 0)
    ]  # fmt: skip
    html = fragment("_consumers.html", {"consumers": rows})
    assert 'href="/workers/press-1"' in html
    assert "unknown since a restart" in html
    assert ("&lt;b&gt;" in html, "<b>" in html) == (True, False)
    assert "No consumers." in fragment("_consumers.html", {"consumers": []})
