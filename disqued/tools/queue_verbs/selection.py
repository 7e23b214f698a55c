"""Which jobs of a queue a verb is meant for, on whatever node: by their state, when they failed, and why.

every node --JSCAN QUEUE, STATE--> jobs --failures--> those that are meant, each once, those first that failed first
how many there are --a question at a terminal, or --yes--> the verb acts
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import attrs
import click

from disqued.client.replies import read_facts, read_list
from disqued.tools.connecting import Failed, NodeConnection, Target
from disqued.tools.members import Member
from disqued.tools.polling import ask_all
from disqued.tools.values import Moment, options

PAGE: Final = 1_000
IDS_AT_ONCE: Final = 500  #: jobs that one command is sent for

#: Give a verb the options that choose jobs, besides their states.
selection_options: Final = options(
    click.option("--failed-since", type=Moment(), metavar="TIME",
                 help="Only jobs whose last failure is not older: 10m, 2h, 1d, or '2026-11-22 10:15' (UTC)."),
    click.option("--reason", metavar="TEXT", help="Only jobs whose last failure has this text in its reason."),
    click.option("--limit", type=click.IntRange(1), metavar="N",
                 help="So many at most, those first that failed first.  [default: all]"),
    click.option("--dry-run", is_flag=True, help="Say how many jobs are meant, and change nothing."),
    click.option("--yes", is_flag=True, help="Do not ask; needed where no terminal is."),
)  # fmt: skip


@attrs.frozen
class Selection:
    """Which jobs are meant; None is no condition."""

    queue: bytes
    states: Sequence[str]  #: words that JSCAN takes
    failed_since: float | None = None  #: unix seconds
    reason: str | None = None
    limit: int | None = None

    def fits(self, failures: Sequence[Any]) -> bool:
        """Return whether a job with these failures is meant."""
        if self.failed_since is None and self.reason is None:
            return True
        if not failures:
            return False
        at, _, _, reason = failures[-1]
        since = self.failed_since is None or at >= self.failed_since * 1_000
        return since and (self.reason is None or os.fsencode(self.reason) in reason)


@attrs.frozen
class SelectedJob:
    """A job that is meant, and a node that has it in that state."""

    id: bytes
    state: str
    member: Member
    failed_at: int  #: unix milliseconds; 0 = no failure is known


def select(target: Target, wanted: Selection) -> list[SelectedJob]:
    """Ask all nodes for the jobs that are meant; those that do not answer are named on standard error."""
    found: dict[bytes, SelectedJob] = {}
    for member, jobs in ask_all(target, lambda node: list(_walk(node, wanted))):
        for job_id, state, failed_at in jobs:
            found.setdefault(job_id, SelectedJob(job_id, state, member, failed_at))
    return sorted(found.values(), key=lambda job: (job.failed_at, job.id))[: wanted.limit]


def _walk(node: NodeConnection, wanted: Selection) -> Iterator[tuple[bytes, str, int]]:
    """Walk over the jobs of a node that are meant."""
    for state in wanted.states:
        cursor = b"0"
        while True:
            reply = node.call("JSCAN", cursor, "QUEUE", wanted.queue, "STATE", state, "COUNT", PAGE, "REPLY", "ALL")
            cursor, rows = reply
            for row in read_list(rows):
                facts: Any = read_facts(row, b"")
                failures = facts.get("failures", ())
                if wanted.fits(failures):
                    yield facts["id"], state, failures[-1][0] if failures else 0
            if cursor == b"0":
                break


def confirm(would: str, does: str, *, yes: bool) -> None:
    """Ask whether to act, unless it was said already: `N jobs of mail would end`, `ends them`.

    Raises Failed where there is no terminal to ask at, and Abort for a no.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Failed(f"{would}; --yes {does}")
    click.confirm(f"{would}. Go on?", abort=True, err=True)


def chunks(ids: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Cut ids into what one command is sent."""
    left = list(ids)
    for start in range(0, len(left), IDS_AT_ONCE):
        yield left[start : start + IDS_AT_ONCE]
