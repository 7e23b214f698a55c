"""What the pages show of schedules: when each comes, and what became of its last instants, as far as this node knows.

    all schedules --500 a turn of the loop--> those with the text in the name --> page of a hundred, 25 a turn

Instants are unix milliseconds, spans milliseconds.
"""

from typing import Final

import attrs

from disqued.commands.schedules import standing_of
from disqued.core.cluster.instants import LastRefusal, Run
from disqued.core.cluster.schedules import RUNS_TOLD
from disqued.core.model.calendar import CRON, ScheduleSetting, words_of
from disqued.core.model.policies import SCHEDULE_FIELD
from disqued.core.view import NodeView
from disqued.web.gateway import SLICE_ROWS, Gateway
from disqued.web.turns import next_turn
from disqued.web.views import rendering

PAGE_ROWS: Final = 100  #: schedules on a page
SLICE_SCHEDULES: Final = 25  #: whose instants are worked out in a turn of the loop, some milliseconds' work
COMING_SHOWN: Final = 5  #: next instants of one schedule


@attrs.frozen
class ScheduleRow:
    """A schedule at one moment."""

    name: bytes
    when: bytes  #: cron line, EVERY seconds or AT unix-seconds
    zone: bytes  #: empty unless it is a cron line
    queue: bytes
    state: str  #: active, paused or done
    next_at: int | None  #: None = it does not come
    last: Run | None  #: the last instant that is over
    refusal: LastRefusal | None  #: of an instant that was not fired later


@attrs.frozen
class ScheduleDetails:
    """All that is shown of one schedule."""

    row: ScheduleRow
    setting: ScheduleSetting
    runs: list[Run]  #: the latest first
    coming: list[int]  #: next instants
    set_at: int
    set_on: bytes  #: id of the node


@attrs.frozen
class ScheduleQuery:
    """Which schedules somebody looks at."""

    text: str = ""  #: part of the name or a glob, in any case; empty = all
    page: int = 1

    async def cut(self, gateway: Gateway) -> "SchedulePage":
        """Find and cut, in the order of the names; a schedule that is deleted meanwhile is left out."""
        node = gateway.view
        names = list(node.policies.schedules)
        if self.text:
            everything, names = names, []
            for at in range(0, len(everything), SLICE_ROWS):
                if at:
                    await next_turn(gateway.turns)
                names += filter(self._lets_through, everything[at : at + SLICE_ROWS])
        names.sort()
        pages = max(1, -(-len(names) // PAGE_ROWS))
        page = min(max(1, self.page), pages)
        rows: list[ScheduleRow] = []
        for at in range((page - 1) * PAGE_ROWS, min(page * PAGE_ROWS, len(names)), SLICE_SCHEDULES):
            if rows:
                await next_turn(gateway.turns)
            some = names[at : min(at + SLICE_SCHEDULES, page * PAGE_ROWS)]
            rows += (row for row in (row_of(node, name) for name in some) if row is not None)
        return SchedulePage(rows, len(names), page, pages)

    def _lets_through(self, name: bytes) -> bool:
        return rendering.is_named(self.text, name)


@attrs.frozen
class SchedulePage:
    """A page of schedules."""

    rows: list[ScheduleRow]
    found: int  #: schedules that the filter lets through
    page: int
    pages: int


def row_of(node: NodeView, name: bytes) -> ScheduleRow | None:
    """Describe a schedule as it is now; None when there is none of this name."""
    setting = node.policies.schedules.get(name)
    if setting is None:
        return None
    coming, runs = node.schedules.next_of(name, 1), node.schedules.runs_of(name, 1)
    return ScheduleRow(
        name, words_of(setting), setting.zone if setting.kind == CRON else b"", setting.job.queue,
        standing_of(node.policies, node.schedules, name).decode(), coming[0] if coming else None,
        runs[0] if runs else None, node.schedules.refusal_of(name),
    )  # fmt: skip


def details_of(node: NodeView, name: bytes) -> ScheduleDetails | None:
    """Describe all of a schedule; None when there is none of this name."""
    row = row_of(node, name)
    if row is None:
        return None
    register = node.policies.registers[name, SCHEDULE_FIELD]
    return ScheduleDetails(
        row, node.policies.schedules[name], node.schedules.runs_of(name, RUNS_TOLD),
        node.schedules.next_of(name, COMING_SHOWN), register.set_at, register.node_id,
    )  # fmt: skip
