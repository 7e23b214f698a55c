"""Is the node alive, has it started, and can it be given work?  For load balancers and orchestrators; needs no token.

    /healthz    200 as long as the loop of the process runs
    /startupz   200 once the jobs are loaded
    /readyz     200 while commands that add jobs can succeed; else 503 with the reasons

Nothing here tells more than that: no names, no paths, no text of errors.
"""

from typing import Any, Final

from disqued.web.gateway import Gateway
from disqued.web.http.exchange import Reply, Request, Role
from disqued.web.http.values import dump
from disqued.web.routes import route
from disqued.web.site import Site

_STATUS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "status": {"type": "string", "enum": ["ok", "not ready"]},
        "reasons": {"type": "array", "items": {"type": "string"}, "description": "Words; empty when all is well."},
    },
    "required": ["status", "reasons"],
}


def obstacles(gateway: Gateway) -> list[str]:
    """Why the node cannot be given work now, a word each; none = it can."""
    found = {
        "loading": gateway.loading,
        "store-failed": gateway.store_failure is not None,
        "leaving": gateway.view.is_leaving,
        "ending": gateway.ending,
        "paused": gateway.paused and not gateway.ending,
    }
    return [word for word, is_so in found.items() if is_so]


def _reply(reasons: list[str]) -> Reply:
    status = "not ready" if reasons else "ok"
    body = dump({"status": status, "reasons": reasons})
    return Reply(body, "application/json", 503 if reasons else 200)


@route("GET", "/healthz", role=Role.NOBODY, summary="Is the process alive?", reply=_STATUS, tag="health")
async def healthz(site: Site, asked: Request) -> Reply:
    """200 whenever it can be answered at all: restart the process when it is not."""
    return _reply([])


@route("GET", "/readyz", role=Role.NOBODY, summary="Can jobs be added?", reply=_STATUS, also={503: _STATUS},
       tag="health")  # fmt: skip
async def readyz(site: Site, asked: Request) -> Reply:
    """503 with the reasons while producers had better go elsewhere.

    The words are `loading`, `store-failed`, `leaving`, `ending` and `paused`.
    """
    return _reply(obstacles(site.gateway))


@route("GET", "/startupz", role=Role.NOBODY, summary="Are the jobs loaded?", reply=_STATUS, also={503: _STATUS},
       tag="health")  # fmt: skip
async def startupz(site: Site, asked: Request) -> Reply:
    """503 while the jobs are loaded from the store."""
    return _reply(["loading"] if site.gateway.loading else [])
