"""The Klein app: a request finds its route, passes the checks, and its answer becomes HTTP.

    request --> Root: segments of the path as bytes --> Klein: which route?
                                                          |
         Access: who asks, may they --> query and body, as the route declares --> the route's coroutine
                                                          |
                      JSON, a Reply, or a problem document <-- value, CommandError, Problem; writes are audited

A queue may have any name, so each segment of a path is quoted again before Klein sees it: a slash that came as %2F
stays inside its segment, and bytes that are no UTF-8 pass.  Routes get the bytes.
"""

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from klein import Klein
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.logger import Logger
from twisted.web.resource import IResource, Resource
from werkzeug.exceptions import HTTPException
from zope.interface import implementer

from disqued.errors import CommandError
from disqued.web import api  # noqa: F401 - declares its routes
from disqued.web.problems import Problem
from disqued.web.routes import ROUTES, Asked, Param, Reply, Route, Visitor
from disqued.web.site import Site
from disqued.web.values import dump

log = Logger()

JSON: Final = "application/json"
#: On every answer: nothing of it is kept, framed, or taken for something else.
HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@implementer(IResource)
class Root(Resource):
    """The top of the site: takes every path."""

    isLeaf = True

    def __init__(self, site: Site) -> None:
        super().__init__()
        self._klein = _app(site).resource()

    def render(self, request: Any) -> Any:
        """Hand a request to Klein."""
        request.postpath = [quote_from_bytes(segment, safe="").encode("ascii") for segment in request.postpath]
        return self._klein.render(request)


def _app(site: Site) -> Klein:
    app = Klein()
    app.url_map.merge_slashes = False
    app.url_map.strict_slashes = False
    for number, entry in enumerate(ROUTES):
        app.route(entry.path, methods=[entry.method], endpoint=f"{number} {entry.path}")(_endpoint(site, entry))
    app.handle_errors(HTTPException)(_not_found)
    return app


def _endpoint(site: Site, entry: Route) -> Any:
    def answer(request: Any, **path: str) -> Deferred[bytes]:
        return ensureDeferred(
            _answer(site, entry, request, {name: unquote_to_bytes(text) for name, text in path.items()})
        )

    answer.__name__ = f"{entry.method} {entry.path}"
    return answer


def _not_found(request: Any, failure: Any) -> bytes:
    error = failure.value
    headers: dict[str, str] = {}
    allowed = getattr(error, "valid_methods", None)
    if allowed:
        headers["Allow"] = ", ".join(sorted(allowed))
        detail = f"{request.method.decode('latin-1')} is not possible here; allowed: {headers['Allow']}"
    else:
        detail = "there is nothing at this path; /api/openapi.json tells what there is"
    return _write(request, Problem(error.code or 404, detail, headers=headers).reply())


async def _answer(site: Site, entry: Route, request: Any, path: Mapping[str, bytes]) -> bytes:
    visitor: Visitor | None = None
    body: Any = None
    try:
        visitor = site.access.visitor(request)
        site.access.admit(visitor, entry, request)
        body = _read_body(entry, request)
        asked = Asked(visitor, path, _read_query(entry, request), body, _headers(request), request)
        value = await entry.act(site, asked)
        reply = value if isinstance(value, Reply) else Reply(dump(value), JSON)
    except Problem as problem:
        reply = problem.reply()
    except CommandError as error:
        reply = Problem.of(error).reply()
    except Exception:  # a bug of ours
        log.failure("Internal error in {method} {path}", method=entry.method, path=entry.path)
        reply = Problem(500, "internal error; the log has its traceback", code="ERR").reply()
    if entry.writes and visitor is not None:
        site.audit.note(
            {
                "who": visitor.name, "role": visitor.role.name.lower(), "from": visitor.address,
                "method": entry.method, "path": request.path.decode("latin-1"), "asked": body, "status": reply.status,
            }
        )  # fmt: skip
    return _write(request, reply)


def _write(request: Any, reply: Reply) -> bytes:
    """Set status and headers; returns the body."""
    request.setResponseCode(reply.status)
    for name, value in {**HEADERS, **reply.headers, "Content-Type": reply.media}.items():
        request.setHeader(name, value)
    return b"" if request.method == b"HEAD" else reply.body


def _headers(request: Any) -> dict[str, str]:
    return {
        name.decode("latin-1").lower(): values[-1].decode("latin-1")
        for name, values in request.requestHeaders.getAllRawHeaders()
    }


def _read_query(entry: Route, request: Any) -> dict[str, Any]:
    known = {param.name: param for param in entry.query}
    found: dict[str, Any] = {}
    for raw_name, values in request.args.items():
        name = raw_name.decode("utf-8", "backslashreplace")
        param = known.get(name)
        if param is None:
            allowed = ", ".join(known) or "none"
            raise Problem(400, f"there is no parameter {name[:100]!r} here; allowed: {allowed}")
        if len(values) > 1 and not param.repeats:
            raise Problem(400, f"{name} is given {len(values)} times; once is allowed")
        read = [_read_param(param, value) for value in values]
        found[name] = read if param.repeats else read[0]
    return found


def _read_param(param: Param, raw: bytes) -> Any:
    kind, allowed = param.schema.get("type"), param.schema.get("enum")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        if param.schema.get("format") == "bytes":
            return raw
        raise Problem(400, f"{param.name}: this is no UTF-8") from None
    if param.schema.get("format") == "bytes":
        return raw
    if kind == "integer":
        low, high = param.schema.get("minimum", -(2**63)), param.schema.get("maximum", 2**63 - 1)
        if not text.removeprefix("-").isascii() or not text.removeprefix("-").isdigit() or not low <= int(text) <= high:
            raise Problem(400, f"{param.name}={text[:100]}: allowed are whole numbers from {low} to {high}")
        return int(text)
    if kind == "boolean":
        if text not in ("true", "false"):
            raise Problem(400, f"{param.name}={text[:100]}: allowed are true and false")
        return text == "true"
    if allowed is not None and text not in allowed:
        raise Problem(400, f"{param.name}={text[:100]}: allowed are {', '.join(allowed)}")
    return text


def _read_body(entry: Route, request: Any) -> Any:
    if entry.body is None:
        return None
    raw = request.content.read()
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise Problem(400, "the body is no JSON text in UTF-8") from None
