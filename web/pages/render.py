"""Pages as HTML: Jinja's environment, and what every page has: who asks, where we are, what may be done.

Everything that a template prints is escaped.  What went wrong is a page, too, for whoever asks for pages.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, wraps
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

import disqued
from disqued.reports.value_formats import FILTERS, count
from disqued.web.gateway import NAME_MAX
from disqued.web.http.exchange import HTML, QueryParameter, Reply, Request, Role, Visitor
from disqued.web.http.origins import header
from disqued.web.http.problems import Problem
from disqued.web.pages import assets, lines
from disqued.web.routes import route
from disqued.web.site import Site
from disqued.web.views import rendering
from disqued.wire.texts import raw


@cache
def environment() -> Environment:
    """The templates, and the filters that show values."""
    made = Environment(loader=ChoiceLoader([PackageLoader("disqued.web.pages"), PackageLoader("disqued.reports")]),
                       autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
                       auto_reload=False)  # fmt: skip
    made.filters.update(name=rendering.name, segment=rendering.segment, span=rendering.span,
                        set_span=rendering.set_span, size=rendering.size, number=count, rate=rendering.rate,
                        moment=rendering.moment, sentence=rendering.sentence, queue_path=rendering.queue_path,
                        worker_path=rendering.worker_path, schedule_path=rendering.schedule_path,
                        history_path=rendering.history_path, **FILTERS, raw=raw)  # fmt: skip
    made.globals.update(asset=assets.url, version=disqued.__version__, Role=Role, NAME_MAX=NAME_MAX)
    return made


def fragment(template: str, values: Mapping[str, Any]) -> str:
    """Part of a page."""
    return environment().get_template(template).render(values)


def common(site: Site, visitor: Visitor, request: Any, here: str) -> dict[str, Any]:
    """What every page is given; `here` is the entry of the menu, or login where there is none."""
    config = site.gateway.config
    scheme = "https" if request.isSecure() else "http"
    base = f"{scheme}://{_host_of(request)}"
    with_token = not site.access.is_open

    def redis_line(action: lines.Action) -> str:
        return lines.redis_line(action.command, config.port) if action.redis is None else action.redis

    def curl_line(action: lines.Action) -> str:
        return lines.curl_line(action.path, action.body, base, with_token=with_token)

    return {"visitor": visitor, "here": here, "base": base, "redis_port": config.port, "with_token": with_token,
            "with_password": bool(config.password_digest), "redis_line": redis_line, "curl_line": curl_line,
            "node_id": site.gateway.view.id.decode("ascii", "replace"), "has_reports": site.reports.path is not None,
            "may_act": visitor.role >= Role.OPERATOR, "may_change": visitor.role >= Role.ADMIN}  # fmt: skip


def _host_of(request: Any) -> str:
    """The host as it was asked for; it may be said twice where that is just what is wrong."""
    try:
        return header(request, "Host") or "localhost"
    except Problem:
        return "localhost"


def _page(
    template: str, values: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Reply:
    return Reply(fragment(template, values).encode("utf-8", "replace"), HTML, status, headers or {})


class MissingProblem(Problem):
    """404: what a page is about is not on this node; with what can be done about that."""

    def __init__(
        self, detail: str, code: str, *, hints: Sequence[tuple[str, str]] = (), ways: Sequence[lines.Action] = (),
        heading: str = "",
    ) -> None:  # fmt: skip
        """`hints` are sentences, each with a line to type or ""; `ways` create what is missing; `heading`: of the page.

        Without a heading it has the name of the status.
        """
        super().__init__(404, detail, code=code)
        self.heading = heading
        self.hints = hints
        self.ways = ways


def problem_page(site: Site, visitor: Visitor, request: Any, problem: Problem) -> Reply:
    """What is wrong, as a page; strangers see no menu on it, nor which node this is."""
    here = "login" if visitor.role is Role.NOBODY else ""
    hints, ways = (problem.hints, problem.ways) if isinstance(problem, MissingProblem) else ((), ())
    heading = (isinstance(problem, MissingProblem) and problem.heading) or problem.document["title"]
    shown = {"problem": problem, "heading": heading, "hints": hints, "ways": _possible(list(ways))}
    values = {**common(site, visitor, request, here), **shown}
    return _page("problem.html", values, problem.status, problem.headers)


def _possible(value: Any) -> Any:
    """Leave out the actions that the node cannot do; None for a single one."""
    if isinstance(value, lines.Action):
        return value if value.is_possible else None
    if isinstance(value, list):
        return [one for one in value if not isinstance(one, lines.Action) or one.is_possible]
    return value


def page_of(site: Site, asked: Request, here: str, template: str, values: Mapping[str, Any]) -> Reply:
    """Make a page of a template and its values; `here` is the entry of the menu."""
    offered = {name: _possible(value) for name, value in values.items()}
    return _page(template, {**common(site, asked.visitor, asked.request, here), **offered})


Values = dict[str, Any]  #: what a template shows
Fill = Callable[[Site, Request], Awaitable[tuple[str, Values]]]


def page(
    path: str, here: str, summary: str, *, role: Role = Role.VIEWER, query: tuple[QueryParameter, ...] = ()
) -> Callable[[Fill], Fill]:
    """Make a page of a coroutine that says which template, and what is in it."""

    def enter(fill: Fill) -> Fill:
        @wraps(fill)
        async def show(site: Site, asked: Request) -> Reply:
            return page_of(site, asked, here, *await fill(site, asked))

        route("GET", path, role=role, summary=summary, media="text/html", listed=False, query=query)(show)
        return fill

    return enter
