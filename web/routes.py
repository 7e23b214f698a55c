"""The table of routes: each operation with the coroutine that carries it out.

The decorator says what the coroutine is for, and the OpenAPI document, the reference page and the test that walks over
every route, method and role are read off the same table:

    @route("GET", "/api/qstat/<queue>", role=Role.VIEWER, summary="Statistics of a queue", reply={...schema...})
    async def qstat(site: Site, asked: Asked) -> Any:
        ...

The value of a coroutine becomes JSON (`http.values`), unless it is a `Reply`; a CommandError that it raises becomes a
problem document (`http.problems`).
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs

from disqued.commands.table import is_callable
from disqued.web.http.exchange import Operation, Request, Role
from disqued.web.site import Site

Act = Callable[[Site, Request], Awaitable[Any]]


@attrs.frozen(kw_only=True)
class Route(Operation):
    """An operation and its coroutine."""

    act: Act


def missing_command(operation: Operation) -> str | None:
    """Return the first command of an operation that this node does not have under its name."""
    return next((name for name in operation.commands if not is_callable(name)), None)


#: In the order in which they were declared.
ROUTES: Final[list[Route]] = []


def route(method: str, path: str, *, role: Role, summary: str, **more: Any) -> Callable[[Act], Act]:
    """Enter a coroutine into the table."""

    def enter(act: Act) -> Act:
        doc = inspect.cleandoc(act.__doc__ or "")
        ROUTES.append(Route(method, path, role, summary, act=act, **{"doc": doc, **more}))
        return act

    return enter
