"""What a job has to do since it was last done: which batches of events are new to it, and which days may be computed.

    state of ingest   {"batch": 12,                          batches up to 12 are there as a whole
                       "epoch": "5f0c..."}                   another one: batches are numbered from 0 again
    state of a job    {"batch": 9, "epoch": "5f0c...",       it knows those up to 9
                       "seen": {"2026-11-20": ["1f0e2d3c"]}, days and nodes of which it saw events
                       "whole_from": "2026-11-20"}           events of days before this one were removed since then

A day is computed of all its events.  So a day of which events are no longer there (somebody has removed the first days
of the table) keeps the rows that it has, whatever comes later.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import attrs

from disqued.pipeline.days import has_day, is_day
from disqued.pipeline.jobs.ingest import batch_number, came_after, came_until
from disqued.pipeline.jobs.lifecycle import DAY_US, day_of, start_us
from disqued.pipeline.run import PipelineRun
from disqued.pipeline.tables import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOTHING: Final = -1  #: the batch before the first


@attrs.frozen
class JobChange:
    """What is new to a job."""

    events: "DataFrame"  #: all there are, of whole batches
    new: "DataFrame"  #: those of them that the job does not know
    nodes: list[str]  #: that told of events
    dates: list[str]  #: days of files; what else a folder is named after is left out, with its events
    epoch: str  #: of the numbers of batches
    batch: int  #: the last whole batch; NOTHING = there is none
    known: int  #: the last that the job knows
    seen: dict[str, list[str]]  #: days, and the nodes that told of events in files of them
    whole_from: str  #: events of days before this one were there once, and are no longer

    @property
    def is_there(self) -> bool:
        """Tell whether there is anything new."""
        return self.batch > self.known

    def kept(self, days: Iterable[str]) -> tuple[list[str], list[str]]:
        """Part days into those that may be computed, and those of which events are no longer there; sorted."""
        named = sorted(set(days))
        return [day for day in named if day >= self.whole_from], [day for day in named if day < self.whole_from]

    def days(
        self, run: PipelineRun, again: str | None, there: Iterable[str], told: Callable[["DataFrame"], "DataFrame"]
    ) -> set[str]:
        """Name the days to look at: those from `again` on, and those that new events tell of, by `told`."""
        days = set(days_from(again, there))
        if self.is_there:
            run.say(f"looking for days with news: batches {self.known + 1} to {self.batch}")
            days |= {row.date for row in told(self.new).collect()}
        return days

    def to_compute(self, run: PipelineRun, days: Iterable[str]) -> list[str]:
        """Name those of the days that may be computed, and say what is done with all of them."""
        todo, left = self.kept(days)
        if left:
            run.say(f"events before {self.whole_from} are no longer there: {len(left)} days stay as they are")
        run.say(f"computing {len(todo)} days, {todo[0]} to {todo[-1]}" if todo else "nothing is new")
        return todo

    def of_files_from(self, day: str) -> "DataFrame":
        """The events from a day on; a day before it, since clocks go back at times."""
        return self.events.where(f"date >= '{day_of(start_us(day) - DAY_US)}'")

    def note(self) -> dict[str, Any]:
        """What the job notes of it when it is done."""
        seen = {day: nodes for day, nodes in self.seen.items() if day >= self.whole_from}
        return {"batch": self.batch, "epoch": self.epoch, "seen": seen, "whole_from": self.whole_from}


def news(run: PipelineRun) -> JobChange:
    """Look up what is new to a job."""
    tables, state, ingest = run.tables, run.tables.state(run.job), run.tables.state("ingest")
    parts = tables.parts(EVENTS)
    dates = sorted({date for date, _, _ in parts if is_day(date)})
    # Of a batch that is being written some parts may be there already; only ingest knows when it has all.
    there = max((batch_number(batch) for _, _, batch in parts), default=NOTHING)
    epoch, batch = ingest.get("epoch", ""), ingest.get("batch", there)
    known = state["batch"] if state.get("epoch") == epoch else NOTHING
    events = came_until(tables.read(EVENTS), batch).where(has_day())
    seen: dict[str, set[str]] = defaultdict(set)
    for date, node, _ in parts:
        if is_day(date):
            seen[date].add(node)
    known_days = ((date, nodes) for date, nodes in state.get("seen", {}).items() if is_day(date))
    gone = [date for date, nodes in known_days if not seen[date].issuperset(nodes)]
    whole_from = max([state.get("whole_from", ""), *(day_of(start_us(date) + DAY_US) for date in gone)])
    return JobChange(events=events, new=came_after(events, known), nodes=sorted({node for _, node, _ in parts}),
                     dates=dates, epoch=epoch, batch=batch, known=known,
                     seen={date: sorted(some) for date, some in seen.items()}, whole_from=whole_from)  # fmt: skip


def days_from(day: str | None, days: Iterable[str]) -> list[str]:
    """Name those days that are not before one; none if that is None."""
    return [] if day is None else sorted({other for other in days if is_day(other) and other >= day})
