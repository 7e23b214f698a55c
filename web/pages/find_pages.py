"""The search field in the head of every page: a job by its id, or a queue by its name."""

from typing import Final
from urllib.parse import urlencode

from disqued.core.model.ids import is_job_id
from disqued.web.http.exchange import HTML, QueryParameter, Reply, Request, Role
from disqued.web.pages import actions
from disqued.web.pages.render import MissingProblem
from disqued.web.routes import route
from disqued.web.site import Site
from disqued.web.views import rendering
from disqued.web.views.cluster_answers import ask_all, missing_nodes

_WANTED: Final = QueryParameter("q", "Id of a job, or name of a queue or a part of it", {"type": "string"})


@route("GET", "/find", role=Role.VIEWER, summary="Page: where a job or a queue is", media="text/html", listed=False,
       query=(_WANTED,))  # fmt: skip
async def find(site: Site, asked: Request) -> Reply:
    """Lead to what is meant: to a job, to the one queue, or to the list of those that have the text in their names."""
    text = asked.query.get("q", "").strip()
    wanted = text.encode("utf-8", "surrogateescape")
    if not wanted:
        return _to("/queues")
    if is_job_id(wanted):
        return _to(f"/jobs/{rendering.segment(wanted)}")
    node = site.gateway.view
    exact = await ask_all(site.everywhere, node, b"QSTAT", wanted)
    if any(each.value is not None for each in exact.answered):
        return _to(rendering.queue_path(wanted))
    async with site.large_walk:
        _, found = await site.everywhere.walk(b"QSCAN", count=2_000)
    part = wanted.lower()
    names = {name for elements in found.values() for name in elements if part in bytes(name).lower()}
    if len(names) > 1:
        return _to("/queues?" + urlencode({"q": text}))
    if names:
        return _to(rendering.queue_path(names.pop()))
    hints = [
        ("Ids of jobs are 48 bytes, DI…SQ, or 40 of Disque 1.0, D-…; tables show their beginnings alone.", ""),
        *((f"{one.sentence} It may have such a queue.", "") for one in missing_nodes(node, exact)),
    ]
    detail = f"{rendering.name(wanted, 60)} is neither the id of a job nor in the name of a queue"
    raise MissingProblem(detail, "NOQUEUE", hints=hints, ways=[actions.add_job(wanted)])


def _to(path: str) -> Reply:
    return Reply(b"", HTML, 303, {"Location": path})
