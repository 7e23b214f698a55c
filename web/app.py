"""The Klein app: a request finds its route, passes the checks, and its answer becomes HTTP.

    request --> Root: is this our host?  segments of the path as bytes --> Klein: which route?
                                                                             |
         Access: who asks, may they --> query and body, as the route declares --> the route's coroutine
                                                          |
                      JSON, a Reply, or a problem document <-- value, CommandError, Problem; writes are audited

A queue may have any name, so each segment of a path is quoted again before Klein sees it: a slash that came as %2F
stays inside its segment, and bytes that are no UTF-8 pass.  Routes get the bytes.

A route that streams calls `answers.begin` and writes by itself; when it fails after that the connection is cut, which
tells the client that something is missing.  When a client goes away the coroutine is cancelled, and with it the command
that it waits for.

Who asks for a page without a token is sent to /login.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, quote_from_bytes, unquote_to_bytes

from klein import Klein
from twisted.internet.defer import CancelledError, Deferred, ensureDeferred
from twisted.logger import Logger
from twisted.web.resource import IResource, Resource
from twisted.web.server import NOT_DONE_YET
from werkzeug.exceptions import HTTPException
from zope.interface import implementer

from disqued.errors import CommandError
from disqued.web.api import access_api, health, monitoring, reads, reports_api  # noqa: F401 - they declare routes
from disqued.web.http import answers
from disqued.web.http.exchange import HTML, JSON, LOGIN, STREAM, Reply, Request, Role, Visitor
from disqued.web.http.inputs import read_body, read_query
from disqued.web.http.problems import Problem
from disqued.web.pages import (  # noqa: F401 - they declare routes
    assets,
    connection_pages,
    failed_pages,
    find_pages,
    job_pages,
    node_pages,
    overview,
    queue_pages,
    reports_page,
    schedule_pages,
    settings_pages,
    updates,
    worker_pages,
)
from disqued.web.pages.problem_pages import problem_reply, wants_page
from disqued.web.routes import ROUTES, Route, missing_command
from disqued.web.site import Site

log = Logger()

#: Methods of RFC 9110 and PATCH; others are not known here.
METHODS: Final = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH"})
GONE: Final = 499  #: in the log of actions: the client went away before the answer


@implementer(IResource)
class Root(Resource):
    """The top of the site: takes every path."""

    isLeaf = True

    def __init__(self, site: Site) -> None:
        super().__init__()
        self._site = site
        self._klein = _app(site).resource()

    def render(self, request: Any) -> Any:
        """Hand a request to Klein, if it was sent to this host."""
        try:
            # The style of the page that says so: everybody may have these files, they tell nothing of the node.
            if request.postpath[:1] != [b"static"]:
                self._site.access.hosts.check(request)
        except Problem as problem:
            nobody = self._site.access.nobody(request)
            request.write(answers.reply(request, problem_reply(self._site, nobody, request, problem, request.path)))
            request.finish()
            return NOT_DONE_YET
        request.postpath = [quote_from_bytes(segment, safe="").encode("ascii") for segment in request.postpath]
        return self._klein.render(request)


def _app(site: Site) -> Klein:
    app = Klein()
    app.url_map.merge_slashes = False
    app.url_map.strict_slashes = False
    for number, entry in enumerate(ROUTES):
        app.route(entry.path, methods=[entry.method], endpoint=f"{number} {entry.path}")(_endpoint(site, entry))

    @app.handle_errors(HTTPException)
    def no_route(request: Any, failure: Any) -> bytes:
        return _no_route(site, request, failure)

    return app


def _endpoint(site: Site, entry: Route) -> Any:
    def answer(request: Any, **path: str) -> Deferred[bytes]:
        return ensureDeferred(
            _answer(site, entry, request, {name: unquote_to_bytes(text) for name, text in path.items()})
        )

    answer.__name__ = f"{entry.method} {entry.path}"
    return answer


def _no_route(site: Site, request: Any, failure: Any) -> bytes:
    """Answer what no route takes: a path that is none, a method that is not possible there, or OPTIONS."""
    methods = getattr(failure.value, "valid_methods", None)
    problem = Problem(404, "there is nothing at this path; /api/openapi.json tells what there is")
    if methods:
        allowed = {"Allow": ", ".join(sorted({*methods, "OPTIONS"}))}
        if request.method == b"OPTIONS":
            return answers.reply(request, Reply(b"", JSON, 204, allowed))
        detail = f"{request.method[:32].decode('latin-1')} is not possible here; allowed are {allowed['Allow']}"
        problem = Problem(405 if request.method in METHODS else 501, detail, headers=allowed)
    return answers.reply(request, problem_reply(site, site.access.guest(request), request, problem, request.path))


async def _answer(site: Site, entry: Route, request: Any, path: Mapping[str, bytes]) -> bytes:
    """Answer a request: returns the body that is left to be written."""
    asking = _Asking(site, entry, request)
    try:
        reply = await asking.run(path)
    except Problem as problem:
        reply = asking.to_login() if asking.should_log_in(problem) else asking.told(problem)
    except CommandError as error:
        reply = asking.told(Problem.of(error))
    except CancelledError:
        asking.note(GONE)
        raise
    except Exception:  # a bug of ours
        log.failure("Internal error in {method} {path}", method=entry.method, path=entry.path)
        reply = asking.told(Problem(500, "internal error; the log has its traceback", code="ERR"))
    asking.note(200 if reply is None else reply.status)
    if not request.startedWriting:
        return await _send(site, request, reply if reply is not None else Reply(b"", entry.media))
    if reply is not None:
        request.transport.abortConnection()
    return b""


async def _send(site: Site, request: Any, reply: Reply) -> bytes:
    """Send an answer; one that breaks off ends the connection, so that it never looks complete."""
    try:
        return await answers.send(site.kept, request, reply)
    except CancelledError:
        raise
    except Exception:  # a bug of ours
        log.failure("Internal error while an answer is sent")
        request.transport.abortConnection()
        return b""


class _Asking:
    """One request to a route."""

    def __init__(self, site: Site, entry: Route, request: Any) -> None:
        self._site = site
        self._entry = entry
        self._request = request
        self._visitor: Visitor | None = None
        self._body: Any = None

    async def run(self, path: Mapping[str, bytes]) -> Reply | None:
        """Do what is asked; returns None when the answer has been streamed.  Raises Problem, CommandError."""
        site, entry, request = self._site, self._entry, self._request
        access = site.access
        self._visitor = access.guest(request) if entry.role is Role.NOBODY else access.visitor(request)
        access.admit(self._visitor, entry, request)
        missing = missing_command(entry)
        if missing is not None:
            raise Problem.no_command(missing)
        self._body = await read_body(entry, request, site.in_thread)
        query = read_query(entry, request)
        if entry.media == STREAM and request.method == b"HEAD":
            return Reply(b"", STREAM)
        value = await entry.act(site, Request(self._visitor, path, query, self._body, _headers(request), request))
        if request.startedWriting:
            return None
        return value if isinstance(value, Reply) else await site.json(value)

    def should_log_in(self, problem: Problem) -> bool:
        """Tell whether this is a person before a page, who has no session yet."""
        is_page = self._entry.media.startswith("text/html") and self._entry.method == "GET"
        return problem.status == 401 and is_page and wants_page(self._request, self._request.path)

    def told(self, problem: Problem) -> Reply:
        """Return the answer that tells the visitor of a problem."""
        visitor = self._visitor or self._site.access.guest(self._request)
        return problem_reply(self._site, visitor, self._request, problem, self._request.path)

    def to_login(self) -> Reply:
        """The way to the login form, and from there back here."""
        target = quote(self._request.uri.decode("latin-1"), safe="")
        return Reply(b"", HTML, 303, {"Location": f"{LOGIN}?next={target}"})

    def note(self, status: int) -> None:
        """Write a write into the log of actions."""
        if not self._entry.writes:
            return
        who, request = self._visitor or self._site.access.nobody(self._request), self._request
        self._site.audit.note(
            {
                "who": who.name, "role": who.role.name.lower(), "from": who.address, "method": self._entry.method,
                "path": request.path.decode("latin-1"), "asked": self._body, "status": status,
            },
            self._entry.body,
        )  # fmt: skip


def _headers(request: Any) -> dict[str, str]:
    return {
        name.decode("latin-1").lower(): values[-1].decode("latin-1")
        for name, values in request.requestHeaders.getAllRawHeaders()
    }
