"""The pages of schedules: a table of all, and for each when it comes and what became of its last jobs.

/schedules    /schedules/<schedule>, /schedule?name=...
"""

from typing import Final
from urllib.parse import urlencode

from disqued.web.http.exchange import QueryParameter, Request, Visitor
from disqued.web.http.problems import Problem
from disqued.web.pages import schedule_actions
from disqued.web.pages.render import Values, page
from disqued.web.site import Site
from disqued.web.views import queue_views, rendering, schedule_views
from disqued.web.views.schedule_views import SchedulePage, ScheduleQuery

BODY_BYTES: Final = 2_000  #: of the body that are shown

_VIEW: Final = (
    QueryParameter("q", "Part of the names, or a glob"),
    QueryParameter("page", "Which page of a hundred", {"type": "integer", "minimum": 1}),
)
_NAME: Final = QueryParameter("name", "Which schedule", {"type": "string", "format": "bytes"})


def schedules_values(site: Site, view: ScheduleQuery, cut: SchedulePage) -> Values:
    """What the table of schedules shows."""

    def link(page: int) -> str:
        return "/schedules?" + urlencode({"q": view.text, "page": page})

    node = site.gateway.view
    return {"view": view, "cut": cut, "link": link, "figures": node.schedules.figures, "counters": node.counters}


@page("/schedules", "schedules", "Page: schedules", query=_VIEW)
async def schedules(site: Site, asked: Request) -> tuple[str, Values]:
    """A table of schedules."""
    view = ScheduleQuery(asked.query.get("q", ""), asked.query.get("page", 1))
    async with site.large_walk:
        cut = await view.cut(site.gateway)
    return "schedules.html", {**schedules_values(site, view, cut), "add": schedule_actions.set_new()}


def schedule_values(site: Site, name: bytes, visitor: Visitor) -> Values:
    """What changes by itself on the page of a schedule; `one` is None when there is none of this name any more."""
    node = site.gateway.view
    one = schedule_views.details_of(node, name)
    body = None
    if one is not None and visitor.sees_bodies:
        body = rendering.body(one.setting.job.body, BODY_BYTES)
    pauses = [] if one is None else schedule_actions.pause(name, is_paused=one.row.state == "paused")
    paused = [] if one is None else queue_views.pauses_of(node, one.row.queue)
    return {"schedule": name, "one": one, "body": body, "visitor": visitor, "now": node.wall(), "pauses": pauses,
            "paused": paused}  # fmt: skip


@page("/schedules/<schedule>", "schedules", "Page: a schedule")
@page("/schedule", "schedules", "Page: a schedule, whose name cannot stand in a path", query=(_NAME,))
async def schedule(site: Site, asked: Request) -> tuple[str, Values]:
    """A schedule, its next instants and its last ones."""
    name: bytes | None = asked.path.get("schedule", asked.query.get("name"))
    if name is None:
        raise Problem(400, "missing parameter name: the name of a schedule")
    values = schedule_values(site, name, asked.visitor)
    if values["one"] is None:
        raise Problem(404, f"no schedule {rendering.name(name, 60)} known to this node")
    setting = values["one"].setting
    # The form holds body and headers.
    change = schedule_actions.change(name, setting) if asked.visitor.sees_bodies else None
    return "schedule.html", {**values, "ways": schedule_actions.on_schedule(name), "change": change,
                             "kept": list(schedule_actions.kept_of(setting.job))}  # fmt: skip
