"""Nodes on pages: how far a drain has come, in words."""

from typing import Any

import pytest
from twisted.internet.defer import succeed

from disqued.core.model.peers import FAIL, LEAVING, KnownNode
from disqued.web.views.cluster_answers import fields_of
from disqued.web.views.everywhere import ClusterReply, NodeReply
from disqued.web.views.node_states import Drains, NodeDetails

NODE, OTHER = b"a" * 40, b"b" * 40


def info(left: int, acks: int = 0, waits_for: str = "", safe: str = "no", leaving: str = "yes") -> dict[str, str]:
    return {
        "cluster_leaving": leaving, "cluster_leaving_jobs_left": str(left), "cluster_leaving_acks_left": str(acks),
        "cluster_leaving_waits_for": waits_for, "cluster_safe_to_stop": safe,
    }  # fmt: skip


def known(node_id: bytes, flags: int = 0) -> KnownNode:
    return KnownNode(node_id, "10.0.0.1", 7711, 0, flags=flags)


def lines(facts: dict[str, str]) -> bytes:
    return "".join(f"{name}:{value}\r\n" for name, value in facts.items()).encode()


class FakeEverywhere:
    """Answers CLUSTER INFO of nodes at once, and counts the questions."""

    def __init__(self) -> None:
        self.asked = 0
        self.replies: list[NodeReply] = []

    def ask(self, *_: bytes) -> Any:
        self.asked += 1
        return succeed(ClusterReply(0.0, self.replies))


@pytest.fixture
def everywhere() -> FakeEverywhere:
    return FakeEverywhere()


@pytest.fixture
def drains(everywhere: FakeEverywhere) -> Drains:
    return Drains(everywhere)  # type: ignore[arg-type]


def test_a_drain_counts_from_the_most_that_was_left(drains: Drains) -> None:
    sentences = []
    for facts in (
        info(300),
        info(1_450),
        info(120, waits_for="jobs are on their way"),
        info(0, 7),
        info(0, safe="yes"),
    ):
        drain = drains.take(NODE, facts)
        assert drain is not None
        sentences.append(drain.sentence.replace("\u202f", ","))
    assert sentences == [
        "Leaving: 300 of 300 jobs are left.",
        "Leaving: 1,450 of 1,450 jobs are left.",
        "Leaving: 120 of 1,450 jobs are left. It is not safe to stop yet: jobs are on their way.",
        "Leaving: no jobs are left, 7 acknowledgements are.",
        "Drained: the node may be stopped, and nothing is lost. What its consumers have comes again.",
    ]


def test_a_drain_that_is_stopped_is_forgotten(drains: Drains) -> None:
    drains.take(NODE, info(500))
    assert drains.take(NODE, info(0, leaving="no")) is None
    assert drains.of(NODE) is None
    drain = drains.take(NODE, info(5))
    assert drain is not None
    assert (drain.most, drain.gone, drain.short) == (5, 0, "leaving: 5 of 5 jobs are left")


def test_the_nodes_are_asked_only_while_one_leaves(drains: Drains, everywhere: FakeEverywhere) -> None:
    drains.refresh([known(NODE), known(OTHER, LEAVING | FAIL)])
    assert everywhere.asked == 0
    everywhere.replies = [NodeReply(NODE, b"ok", lines(info(3))), NodeReply(OTHER, b"away", None)]
    drains.refresh([known(NODE, LEAVING), known(OTHER, LEAVING)])
    assert everywhere.asked == 1
    drain = drains.of(NODE)
    assert drain is not None
    assert (drain.left, drains.of(OTHER)) == (3, None)
    assert not drains.is_safe(NODE)
    drains.refresh([])
    assert drains.of(NODE) is None


@pytest.mark.parametrize(
    ("reply", "fields"),
    [
        (
            NodeReply(NODE, b"ok", b"# Server\r\nport:1\r\nempty:\r\nuri:a:b\r\n"),
            {"port": "1", "empty": "", "uri": "a:b"},
        ),
        (NodeReply(NODE, b"error", b"ERR no:such"), {}),
        (NodeReply(NODE, b"silent", None), {}),
    ],
)
def test_lines_are_read(reply: NodeReply, fields: dict[str, str]) -> None:
    assert fields_of(reply) == fields


def test_what_is_wrong_with_a_node_is_said_and_fields_that_it_does_not_have_are_none() -> None:
    facts = {"loading": "1", "aof_last_write_status": "err", "memory_level": "2", "maxmemory": "?"}
    one = NodeDetails({"states": []}, facts, None, None, "")
    assert len(one.troubles) == 3
    assert "The last write of its store failed: err." in one.troubles
    assert (one.number("maxmemory"), one.number("none")) == (0, 0)
    assert NodeDetails({"states": []}, {}, None, None, "").troubles == []
    assert one.badge == ("good", "healthy")


def test_a_drained_node_says_what_it_keeps(drains: Drains) -> None:
    drain = drains.take(NODE, info(0, safe="yes"))
    one = NodeDetails({"states": []}, {"registered_jobs": "168"}, drain, None, "")
    assert one.state.endswith(" It keeps 168 copies of jobs, and other nodes have all of these.")
    assert one.badge == ("good", "drained")
