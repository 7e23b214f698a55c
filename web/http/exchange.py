"""What a request asks for and what answers it, as everything above HTTP sees them.

Operation   what can be asked for: method, path, role, parameters, body, replies
Asked       one request for it, checked and read, with its Visitor
Reply       the answer, where it is not plain JSON
"""

from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from typing import Any, Final

import attrs

from disqued.web.http.bodies import Body

Schema = Mapping[str, Any]  #: JSON schema, draft 2020-12

# Media types.
JSON: Final = "application/json"
HTML: Final = "text/html; charset=utf-8"
STREAM: Final = "text/event-stream"

LOGIN: Final = "/login"  #: where a browser gives a token


def object_of(description: str = "", /, *, optional: Collection[str] = (), **properties: Schema) -> Schema:
    """The schema of an object with these properties and no other; all but the optional ones are there."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "additionalProperties": False,
            **({"required": required} if required else {}),
            **({"description": description} if description else {})}  # fmt: skip


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
class QueryParameter:
    """A parameter of the query string."""

    name: str
    doc: str
    schema: Schema = attrs.field(factory=lambda: {"type": "string"}, converter=_bounded)  #: of one value
    repeats: bool = False  #: it may be given several times; the value is the list of all


@attrs.frozen
class Request:
    """What was asked for, checked and read."""

    visitor: Visitor
    path: Mapping[str, bytes]  #: placeholders of the path: the bytes that stood there, unquoted
    #: By name: str, int, bool or a list of these, as the schema says; absent ones are not there.
    query: Mapping[str, Any]
    body: Any  #: JSON value; None where the route takes none
    headers: Mapping[str, str]  #: by lower-case name
    request: Any  #: the Twisted request, for routes that stream


@attrs.frozen
class Reply:
    """An answer that is not plain JSON with status 200."""

    body: bytes | Body
    media: str
    status: int = 200
    headers: Mapping[str, str] = attrs.field(factory=dict)
    packed: bytes = b""  #: the body in gzip, where it is kept so


@attrs.frozen
class Operation:
    """What a client can ask for: its place, who may ask, what it takes and answers."""

    method: str
    path: str  #: ``/api/qstat/<queue>``; a placeholder takes any bytes, an encoded slash too
    role: Role
    summary: str
    doc: str = ""  #: what the reference says of it
    query: tuple[QueryParameter, ...] = ()
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

    @property
    def whose(self) -> str:
        """Who may ask, in words."""
        who = "everybody" if self.role is Role.NOBODY else self.role.name.lower()
        return f"{who}{', with the right to see bodies' if self.needs_bodies else ''}"
