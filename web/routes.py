"""The table of routes: what each is called, who may ask for it, what it takes and answers.

A route is a coroutine; the decorator says the rest, and the OpenAPI document, the reference page and the test that
walks over every route, method and role are read off the same table:

    @route("GET", "/api/qstat/<queue>", role=Role.VIEWER, summary="Statistics of a queue", reply={...schema...})
    async def qstat(site: Site, asked: Asked) -> Any:
        ...

What a coroutine returns becomes JSON (`web.values`), or is a `Reply` if it is anything else; a CommandError that it
raises becomes a problem document (`web.problems`).
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import attrs

from disqued.commands.table import is_callable

if TYPE_CHECKING:
    from disqued.web.bodies import Body
    from disqued.web.site import Site

Schema = Mapping[str, Any]  #: JSON schema, draft 2020-12

# Media types.
JSON: Final = "application/json"
HTML: Final = "text/html; charset=utf-8"
STREAM: Final = "text/event-stream"

LOGIN: Final = "/login"  #: where a browser gives a token


def object_of(**properties: Schema) -> Schema:
    """The schema of an object with these properties, all of them, and no other."""
    return {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False,
    }  # fmt: skip


class Role(IntEnum):
    """Who may do what; each may do what those before it may."""

    NOBODY = 0  #: no token: the health checks alone
    VIEWER = 1  #: looks
    OPERATOR = 2  #: acts on jobs and queues
    ADMIN = 3  #: changes the node and the cluster


def never() -> bool:
    """Be the answer to whether a visitor is gone where there is no connection to look at."""
    return False


@attrs.frozen
class Visitor:
    """Who asks."""

    name: str  #: of the token; `local` on loopback without tokens
    role: Role
    sees_bodies: bool  #: bodies of jobs are a right of their own
    address: str  #: ``ip:port``
    is_gone: Callable[[], bool] = attrs.field(default=never, eq=False, repr=False)  #: it has closed its connection


def _bounded(schema: Schema) -> Schema:
    """Give a whole number of a query string the bounds that all of them have."""
    return {"minimum": -(2**63), "maximum": 2**63 - 1, **schema} if schema.get("type") == "integer" else schema


@attrs.frozen
class Param:
    """A parameter of the query string."""

    name: str
    doc: str
    schema: Schema = attrs.field(factory=lambda: {"type": "string"}, converter=_bounded)  #: of one value
    repeats: bool = False  #: it may be given several times; the value is the list of all


@attrs.frozen
class Asked:
    """What was asked for, checked and read."""

    visitor: Visitor
    path: Mapping[str, bytes]  #: placeholders of the path: the bytes that stood there, unquoted
    query: Mapping[
        str, Any
    ]  #: by name: str, int, bool or a list of these, as the schema says; absent ones are not there
    body: Any  #: JSON value; None where the route takes none
    headers: Mapping[str, str]  #: by lower-case name
    request: Any  #: the Twisted request, for routes that stream


@attrs.frozen
class Reply:
    """An answer that is not plain JSON with status 200."""

    body: "bytes | Body"
    media: str
    status: int = 200
    headers: Mapping[str, str] = attrs.field(factory=dict)


Act = Callable[["Site", Asked], Awaitable[Any]]


@attrs.frozen
class Route:
    """A route."""

    method: str
    path: str  #: ``/api/qstat/<queue>``; a placeholder takes any bytes, an encoded slash too
    role: Role
    summary: str
    act: Act
    doc: str = ""  #: the docstring of the coroutine
    query: tuple[Param, ...] = ()
    body: Schema | None = None  #: of the JSON body; None = it takes none
    reply: Schema = attrs.field(factory=dict)
    media: str = "application/json"
    commands: tuple[str, ...] = ()  #: what it runs and cannot do without; a test runs each without it
    writes: bool = False  #: it changes something: it is audited, and protected against other sites
    needs_bodies: bool = False  #: nothing is left without the right to see bodies
    also: Mapping[int, Schema] = attrs.field(factory=dict)  #: JSON replies with other statuses that are no problems
    errors: tuple[str, ...] = ()  #: error words of commands that it may answer
    tag: str = "node"
    takes_form: bool = False  #: the body may be a form of a browser, too: a mapping of strings
    is_large: bool = False  #: its body may hold a whole job; others hold names, ids and settings
    listed: bool = True  #: in the OpenAPI document; pages and files are not
    at: str = ""  #: path and query of the example in the reference, placeholders filled in; "" = the path itself
    example: Any = None  #: JSON body of the example
    example_status: int = 200  #: what the example answers; a test runs it


def missing_command(entry: Route) -> str | None:
    """Return the first command of a route that this node does not have under its name."""
    return next((name for name in entry.commands if not is_callable(name)), None)


#: In the order in which they were declared.
ROUTES: Final[list[Route]] = []


def route(method: str, path: str, *, role: Role, summary: str, **more: Any) -> Callable[[Act], Act]:
    """Enter a coroutine into the table."""

    def enter(act: Act) -> Act:
        doc = inspect.cleandoc(act.__doc__ or "")
        ROUTES.append(Route(method, path, role, summary, act, **{"doc": doc, **more}))
        return act

    return enter
