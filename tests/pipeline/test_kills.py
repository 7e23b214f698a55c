"""Streams whose driver, tasks and nodes are killed: the short form of `make kills`, with a stand-in for Spark."""

import time
from pathlib import Path
from random import Random

import pytest

from tests.integration.cluster import Cluster
from tests.torture import sparkcluster, sparkkills
from tests.torture.sparkkills import STANDIN, Campaign

SECONDS = 3_600.0  #: far more than it takes
KINDS = ("driver", "task", "node")


def test_every_job_arrives_once_though_drivers_tasks_and_nodes_are_killed(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"BACKLOG": 200, "MOMENT": 0.5, "BREATH": 0.2, "RETRY_S": 5}.items():
        monkeypatch.setattr(sparkkills, name, value)
    campaign = Campaign(["source", "sink"], tmp_path / "streams", cluster, STANDIN, Random(1))
    tally = campaign.run(len(KINDS), time.monotonic() + SECONDS, lambda _: None, KINDS)
    assert not tally.faults
    assert tally.kills == dict.fromkeys(KINDS, 1)
    assert tally.jobs > 0


@pytest.mark.parametrize("pid", [0, -1, -4_711])
def test_nobody_is_killed_whom_an_id_does_not_name(pid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(sparkcluster.os, "kill", lambda *words: killed.append(words))
    with pytest.raises(AssertionError, match="is no process"):
        sparkcluster.kill(pid)
    assert killed == []
