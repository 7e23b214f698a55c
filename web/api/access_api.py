"""The login form, the logout, and the log of actions."""

from typing import Any, Final
from urllib.parse import quote

from disqued.web.audit import RECENT
from disqued.web.http.exchange import HTML, JSON, LOGIN, QueryParameter, Reply, Request, Role, object_of
from disqued.web.http.origins import FORM
from disqued.web.http.problems import Problem
from disqued.web.routes import route
from disqued.web.site import Site

_LOGIN_BODY: Final = object_of(
    token={"type": "string", "description": "A token of http-token-file, or the password of requirepass."},
    next={"type": "string", "description": "Path on this site to go to afterwards, of a form."},
    optional=("next",),
)
_ENTRY: Final = {
    "type": "object",
    "properties": {
        "at": {"type": "string", "format": "date-time"},
        "who": {"type": "string"},
        "role": {"type": "string"},
        "from": {"type": "string"},
        "method": {"type": "string"},
        "path": {"type": "string"},
        "asked": {},
        "status": {"type": "integer"},
    },
    "required": ["at", "who", "role", "from", "method", "path", "status"],
}


@route("POST", LOGIN, role=Role.NOBODY, summary="Open a session of a browser with a token", body=_LOGIN_BODY,
       reply={"type": "object"}, writes=True, takes_form=True, tag="access", listed=False)  # fmt: skip
async def login(site: Site, asked: Request) -> Reply:
    """Sets the cookie of the session.

    A form is answered with a redirect to `next`, or back to the form: with `failed=token`, or with `failed=wait` after
    too many wrong ones.  JSON is answered with 204.
    """
    fields = asked.body
    if not isinstance(fields, dict) or not isinstance(fields.get("token"), str) or set(fields) - {"token", "next"}:
        raise Problem(400, "allowed are the fields token, a string, and next, a path on this site")
    is_form, target = _is_form(asked), local_path(fields.get("next"))
    try:
        _, cookie = site.access.login(fields["token"], asked.request)
    except Problem as problem:
        if not is_form:
            raise
        failed = "wait" if problem.status == 429 else "token"
        location = f"{LOGIN}?failed={failed}&next={quote(target, safe='')}"
        wait = {name: value for name, value in problem.headers.items() if name == "Retry-After"}
        return Reply(b"", HTML, 303, {"Location": location, **wait})
    if not is_form:
        return Reply(b"", JSON, 204, {"Set-Cookie": cookie})
    return Reply(b"", HTML, 303, {"Location": target, "Set-Cookie": cookie})


@route("POST", "/logout", role=Role.NOBODY, summary="Close the session of a browser", reply={"type": "object"},
       writes=True, takes_form=True, tag="access", listed=False)  # fmt: skip
async def logout(site: Site, asked: Request) -> Reply:
    """Takes the cookie away."""
    cookie = {"Set-Cookie": site.access.logout(asked.request)}
    if not _is_form(asked):
        return Reply(b"", JSON, 204, cookie)
    return Reply(b"", HTML, 303, {"Location": LOGIN, **cookie})


@route(
    "GET", "/api/audit", role=Role.ADMIN, summary="The log of actions of this node, newest first",
    query=(
        QueryParameter(
            "count", f"How many entries at most; the last {RECENT} are kept.",
            {"type": "integer", "minimum": 1, "maximum": RECENT, "default": 100},
        ),
    ),
    reply={
        "type": "object",
        "properties": {
            "entries": {"type": "array", "items": _ENTRY},
            "missing": {"type": "integer", "description": "Entries that could not be written to the file."},
            "left_out": {"type": "integer", "description": "Refused requests of strangers that were too many."},
        },
        "required": ["entries", "missing", "left_out"],
    },
    tag="access", example="-H 'Accept: application/json'",
)  # fmt: skip
async def audit(site: Site, asked: Request) -> dict[str, Any]:
    """Who changed what through HTTP, or was not allowed to; bodies of jobs, tokens and passwords are never in it."""
    count = asked.query.get("count", 100)
    newest = list(site.audit.recent)[-count:][::-1]
    return {"entries": newest, "missing": site.audit.failures, "left_out": site.audit.left_out}


def local_path(text: Any) -> str:
    """A path on this site that a form may name; / for everything else."""
    if not isinstance(text, str) or not text.startswith("/") or text.startswith(("//", "/\\")):
        return "/"
    return text if text.isascii() and text.isprintable() and "\\" not in text else "/"


def _is_form(asked: Request) -> bool:
    return asked.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM
