"""The OpenAPI 3.1 document, written from the table of routes alone.

    Route("POST", "/api/add", body=..., reply=..., errors=("NOREPL", ...))
        -->  paths: /api/add: post: requestBody, responses: 200, 400, 401, 403, 503, ...

A status is named where one of the route's error words has it; `default` is what the limits of the server, or a bug,
may answer to anything.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from disqued import __version__
from disqued.web.http.exchange import QueryParameter, Reply, Request, Role, Schema
from disqued.web.http.problems import MEDIA, STATUS, TITLES
from disqued.web.http.values import dump
from disqued.web.routes import ROUTES, Route, missing_command, route
from disqued.web.site import Site

TAGS: Final = {
    "jobs": "Jobs, one by one.",
    "queues": "Queues of this node.",
    "bulk": "Actions on every job that fits a filter: a dry run first, then the act.",
    "cluster": "The nodes of the cluster.",
    "node": "This node.",
    "history": "What the charts of the pages show.",
    "reports": "What `disqued-spark` has computed of the event logs of all nodes, and when; see `reports-file`.",
    "access": "Who did what.",
    "health": "For what starts, stops and watches daemons.",
    "metrics": "For Prometheus.",
    "commands": "Any command by its name, with the names of its fields.",
}
PROBLEM: Final[Schema] = {
    "type": "object",
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": {"type": "string", "description": "What was wrong, and what is allowed."},
        "code": {"type": "string", "description": "The error word: programs branch on it. HTTP: not of a command."},
    },
    "required": ["type", "title", "status", "detail", "code"],
    "description": "A problem document, RFC 9457.",
}
#: What every route may answer that is not for everybody: who asks, whether they may, and under which name of this host.
_ACCESS: Final = (401, 403, 421)
_BODY: Final = (413, 415)  #: and every route that takes a body


@route("GET", "/api/openapi.json", role=Role.VIEWER, summary="This API as an OpenAPI 3.1 document",
       reply={"type": "object"}, tag="node")  # fmt: skip
async def openapi(site: Site, asked: Request) -> Reply:
    """Every route with its parameters, bodies, replies and errors."""
    return written()


@cache
def written() -> Reply:
    """The document does not change while the daemon runs, and takes some milliseconds to write."""
    return Reply(dump(document()), "application/json")


def document(routes: Iterable[Route] | None = None) -> dict[str, Any]:
    """The document."""
    listed = [
        entry for entry in (ROUTES if routes is None else routes) if entry.listed and missing_command(entry) is None
    ]
    paths: dict[str, Any] = {}
    for entry in listed:
        paths.setdefault(shown_path(entry), {})[entry.method.lower()] = _operation(entry)
    used = {entry.tag: None for entry in listed}
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "disqued",
            "version": __version__,
            "summary": "A distributed job queue: look at jobs and queues, and act on them",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag, "description": TAGS.get(tag, tag)} for tag in used],
        "paths": paths,
        "components": {
            "schemas": {"Problem": PROBLEM},
            "responses": {"Problem": _problem("Something is wrong.")},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "A token of http-token-file."}
            },
        },
    }


def shown_path(entry: Route) -> str:
    """The path with its placeholders as OpenAPI writes them."""
    return entry.path.replace("<", "{").replace(">", "}")


def placeholders(entry: Route) -> list[str]:
    """Names of the placeholders of a path, in their order."""
    return [segment[1:-1] for segment in entry.path.split("/") if segment.startswith("<")]


def _operation(entry: Route) -> dict[str, Any]:
    who = "" if entry.role is Role.NOBODY else f"For: {entry.whose}."
    words = f"Error words: {', '.join(entry.errors)}." if entry.errors else ""
    described = "\n\n".join(filter(None, (entry.doc, who, words)))
    found: dict[str, Any] = {
        "operationId": operation_id(entry),
        "summary": entry.summary,
        "description": described,
        "tags": [entry.tag],
        "responses": _responses(entry),
        "security": [] if entry.role is Role.NOBODY else [{"token": []}, {}],
    }
    parameters = [*map(_placeholder, placeholders(entry)), *map(_parameter, entry.query)]
    if parameters:
        found["parameters"] = parameters
    if entry.body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": entry.body}}}
    return found


def operation_id(entry: Route) -> str:
    """A name that no other route has."""
    words = entry.path.replace("<", "by_").replace(">", "").replace(".", "_").split("/")
    return "_".join((entry.method.lower(), *filter(None, words)))


def _placeholder(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1},
            "description": "Any bytes, each that is no letter, digit or one of -._~ as %XX."}  # fmt: skip


def _parameter(param: QueryParameter) -> dict[str, Any]:
    one: dict[str, Any] = {name: value for name, value in param.schema.items() if (name, value) != ("format", "bytes")}
    found: dict[str, Any] = {"name": param.name, "in": "query", "required": False, "description": param.doc}
    return {**found, "schema": {"type": "array", "items": one} if param.repeats else one}


def statuses(entry: Route) -> list[int]:
    """The statuses of what may go wrong, in their order, those that anything may answer left out."""
    found = {STATUS[word] for word in entry.errors}
    if entry.role is not Role.NOBODY:
        found.update(_ACCESS)
    if entry.query or entry.body is not None:
        found.add(400)
    if entry.body is not None:
        found.update(_BODY)
    return sorted(found)


def _responses(entry: Route) -> dict[str, Any]:
    schema = {"schema": entry.reply} if entry.reply else {}
    responses: dict[str, Any] = {"200": {"description": entry.summary, "content": {entry.media: schema}}}
    for status, also in entry.also.items():
        responses[str(status)] = {
            "description": TITLES.get(status, "Error"),
            "content": {entry.media: {"schema": also}},
        }
    for status in statuses(entry):
        words = [word for word in entry.errors if STATUS[word] == status]
        title = TITLES.get(status, "Error")
        responses[str(status)] = _problem(f"{title}: {', '.join(words)}" if words else title)
    responses["default"] = {"$ref": "#/components/responses/Problem"}
    return responses


def _problem(description: str) -> dict[str, Any]:
    content = {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": description, "content": content}
