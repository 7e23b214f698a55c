"""A job costs as many messages in a cluster of a hundred nodes as in one of twenty, and what grows is known.

What is counted, and how: `tests/simulation/message_cost.py`.
"""

import pytest

from disqued.core.model.peers import TIMEOUT_MS
from tests.simulation.message_cost import Counting

#: Messages a job at most, of each kind, however many nodes there are.
MOST = {
    # The copies, and the move to the consumer: who takes the job is a holder, too, if it is none of the first three.
    "REPLJOB": 2.0, "GOTJOB": 2.0, "YOURJOBS": 1.0, "QUEUED": 2.0,
    # Everywhere forgotten.
    "SETACK": 3.0, "GOTACK": 3.0, "DELJOB": 3.0,
    # Who brought something is asked again, and four others are, when a job has come and while none comes.
    "NEEDJOBS": 10.0,
}  # fmt: skip
MOST_IN_ALL = 26.0
AT_HOME = {"REPLJOB": 2.0, "GOTJOB": 2.0, "SETACK": 2.0, "GOTACK": 2.0, "DELJOB": 2.0}
LOADS = ("one node to another", "all nodes to one", "one node to all", "all nodes to all")
PING_PONG_VITALS = 3


@pytest.mark.parametrize("size", [5, 20, 100])
def test_a_job_costs_no_more_messages_the_more_nodes_there_are_and_what_grows_is_known(size: int) -> None:
    counting = Counting(size)
    others = size - 1
    visit = counting.visits()
    steady = counting.steady()
    resting = counting.resting(TIMEOUT_MS, TIMEOUT_MS // 2)

    # A job, with consumers that wait.
    assert tuple(steady.loads) == LOADS
    for load, cost in steady.loads.items():
        too_many = {kind: count for kind, count in cost.per_job.items() if count > MOST.get(kind, 0.0)}
        assert not too_many, load
        assert cost.whole <= MOST_IN_ALL, load
    # Taken where it was added it asks nobody.
    assert steady.loads["all nodes to all"].per_job == AT_HOME

    # Grows with the nodes: a node on which somebody waits asks each other one every half minute.
    assert steady.waiting.per_job == {"NEEDJOBS": steady.waits * others}
    # A consumer that comes once asks each other one, and tells it that nobody waits any more.
    assert visit.per_job.pop("NEEDJOBS") == 2 * others
    assert all(count <= MOST[kind] for kind, count in visit.per_job.items())
    # A node pings each other one once in half a time-out, and one more every second.
    asked_a_second = others / (TIMEOUT_MS / 2_000)
    assert PING_PONG_VITALS * asked_a_second * 0.9 <= resting.gossip <= PING_PONG_VITALS * (asked_a_second + 1)
