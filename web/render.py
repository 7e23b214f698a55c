"""Pages as HTML: Jinja's environment, and what every page has: who asks, where we are, what may be done.

Everything that a template prints is escaped.  A page that is not found is a page, too.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import cache, wraps
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

import disqued
from disqued.errors import CommandError
from disqued.web import assets, lines, shown
from disqued.web.problems import Problem
from disqued.web.routes import Asked, Param, Reply, Role, route
from disqued.web.site import Site

HTML: Final = "text/html; charset=utf-8"


@cache
def environment() -> Environment:
    """The templates, and the filters that show values."""
    made = Environment(
        loader=PackageLoader("disqued.web"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    made.filters.update(
        name=shown.name, segment=shown.segment, span=shown.span, size=shown.size, number=shown.count,
        rate=shown.rate, moment=shown.moment,
    )  # fmt: skip
    made.globals.update(asset=assets.url, version=disqued.__version__, Role=Role)
    return made


def fragment(template: str, values: Mapping[str, Any]) -> str:
    """Part of a page."""
    return environment().get_template(template).render(values)


def common(site: Site, asked: Asked, here: str) -> dict[str, Any]:
    """What every page is given; `here` is the entry of the menu."""
    request, config = asked.request, site.gateway.config
    scheme = "https" if request.isSecure() else "http"
    base = f"{scheme}://{asked.headers.get('host', 'localhost')}"
    with_token = not site.access.is_open

    def redis_line(action: lines.Action) -> str:
        return lines.redis_line(action.command, config.port) if action.redis is None else action.redis

    def curl_line(action: lines.Action) -> str:
        return lines.curl_line(action.path, action.body, base, with_token=with_token)

    return {
        "visitor": asked.visitor, "here": here, "base": base, "redis_port": config.port, "with_token": with_token,
        "redis_line": redis_line, "curl_line": curl_line, "node_id": site.gateway.node.id.decode("ascii", "replace"),
        "may_act": asked.visitor.role >= Role.OPERATOR, "may_change": asked.visitor.role >= Role.ADMIN,
    }  # fmt: skip


Fill = Callable[[Site, Asked], Awaitable[tuple[str, dict[str, Any]]]]


def page(
    path: str, here: str, summary: str, *, role: Role = Role.VIEWER, query: tuple[Param, ...] = ()
) -> Callable[[Fill], Fill]:
    """Make a page of a coroutine that says which template, and what is in it; errors become pages."""

    def enter(fill: Fill) -> Fill:
        @wraps(fill)
        async def show(site: Site, asked: Asked) -> Reply:
            values = common(site, asked, here)
            status, headers = 200, {}
            try:
                template, more = await fill(site, asked)
            except CommandError as error:
                problem = Problem.of(error)
                template, more, status, headers = "problem.html", {"problem": problem}, problem.status, problem.headers
            except Problem as problem:
                template, more, status, headers = "problem.html", {"problem": problem}, problem.status, problem.headers
            text = fragment(template, {**values, **more})
            return Reply(text.encode("utf-8", "replace"), HTML, status, headers)

        route("GET", path, role=role, summary=summary, media="text/html", listed=False, query=query)(show)
        return fill

    return enter
