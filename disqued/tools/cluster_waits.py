"""Waiting for what the nodes of a cluster do by themselves: see each other, and hand on what one of them holds.

    wait_joined   every node --CLUSTER NODES--> pairs that do not see each other --> none
    empty         CLUSTER LEAVING yes --> CLUSTER INFO --> cluster_safe_to_stop:yes

Spans are seconds; a bar shows how far it is.
"""

from collections.abc import Sequence
from typing import Final

from disqued.client.replies import read_info
from disqued.tools.cluster_views import look_at_all, unseen
from disqued.tools.connecting import NodeConnection
from disqued.tools.members import Member
from disqued.tools.waiting import bar, wait_until

_WHY: Final = "a node that is refused says why in its log: another cluster-secret, or no way to a bus port"


def wait_joined(known: Sequence[Member], wait_s: float) -> None:
    """Wait until all of these nodes see each other.  Raises Failed."""
    pairs = len(known) * (len(known) - 1)
    with bar("nodes see each other") as drawn:

        def missing() -> str:
            views = look_at_all(known)
            silent = [f"{view.name}: {view.error}" for view in views if view.error]
            blind = silent or unseen(views)
            drawn.show(pairs - len(blind), pairs, "")
            return "; ".join([*blind, _WHY]) if blind else ""

        wait_until(missing, wait_s, "all nodes see each other")


def empty(node: NodeConnection, member: Member, wait_s: float) -> None:
    """Let a node leave, and wait until it may be stopped.

    Raises Failed, and the errors of `disqued.client.errors`.
    """
    node.call("CLUSTER", "LEAVING", "yes")
    most = 0
    with bar(f"{member.address} hands its jobs on") as drawn:

        def missing() -> str:
            nonlocal most
            facts = read_info(node.call("CLUSTER", "INFO"), b"")
            left = int(facts["cluster_leaving_jobs_left"])
            most = max(most, left)
            waits_for = facts["cluster_leaving_waits_for"]
            drawn.show(most - left, most, waits_for)
            if facts["cluster_safe_to_stop"] == "yes":
                return ""
            return f"{left} jobs are left on it; {waits_for or 'it looks whether that was all'}"

        wait_until(missing, wait_s, f"{member.address} has handed on all that it held")
