"""Jobs that somebody waits for: which nodes have asked, and what has changed since they were told.

Only data: `work.outcomes` fills the table and tells the nodes.  Nearly always nobody waits, and both are empty.
"""

from typing import Final

from disqued.core.model.job import Job
from disqued.core.model.schedule import Timed

WATCHED_MAX: Final = 100_000  #: jobs in the table; nodes that wait for more ask again now and then

Watchers = dict[bytes, int]  #: nodes, this one among them, and until when each is told


class ChangedJobs(Timed):
    """Watched jobs of which something changed in this step; due at once."""

    __slots__ = ("jobs",)

    def __init__(self) -> None:
        self.awake_at = 0
        #: By id: the job as it was, why it is gone (GONE_...; empty = it was acknowledged, or is still there), and its
        #: tries so far: a job that is gone does not count the last one any more.
        self.jobs: dict[bytes, tuple[Job, bytes, int]] = {}
