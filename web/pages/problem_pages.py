"""Problem pages: HTML for browsers, problem+json for programs.

    Accept: text/html, outside /api     a page in the style of all others
    everything else                     application/problem+json

What is wrong may be wrong with the request itself, before there is a route or anybody knows who asks: such a page has
no menu, nor does it say which node this is.
"""

from typing import Any
from urllib.parse import unquote_to_bytes

from twisted.logger import Logger

from disqued.web.http.exchange import Reply, Visitor
from disqued.web.http.problems import Problem
from disqued.web.pages import render
from disqued.web.site import Site

log = Logger()


def wants_page(request: Any, path: bytes) -> bool:
    """Tell whether a person asks, in a browser, for something that is no business of programs alone."""
    if unquote_to_bytes(path).split(b"/")[1:2] == [b"api"]:
        return False
    # As bytes: what was sent need be no text.
    ranges = b",".join(request.requestHeaders.getRawHeaders(b"accept", [])).lower().split(b",")
    return any(one.partition(b";")[0].strip() == b"text/html" for one in ranges)


def problem_reply(site: Site, visitor: Visitor, request: Any, problem: Problem, path: bytes) -> Reply:
    """Return the answer that tells a visitor of a problem with this path."""
    if not wants_page(request, path):
        return problem.reply()
    try:
        return render.problem_page(site, visitor, request, problem)
    except Exception:  # a bug of ours; what is wrong with pages may be wrong with this one
        log.failure("Internal error in the page of a problem")
        return problem.reply()
