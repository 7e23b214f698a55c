"""The JSON API: what can be done to jobs, queues, this node and the cluster, each by the command that does it.

A body is a JSON object with the names of the command's fields; `fields` turns it into the words of the command.
"""

from typing import Any, Final

from disqued.core.cluster.questions import ANSWER_MS, AWAY, REFUSED, SILENT
from disqued.core.model.ids import is_job_id
from disqued.web.api.fields import COMMANDS, error_words, names, read_object, schema, words
from disqued.web.http.exchange import Request, Role, Schema, object_of
from disqued.web.http.problems import STATUS, Problem
from disqued.web.http.values import as_bytes
from disqued.web.routes import route
from disqued.web.site import Site
from disqued.web.views.job_reports import job_everywhere

ID: Final = "DI0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0SQ"  #: of the job in the examples


OK: Final = object_of(ok={"const": True})


@route("POST", "/api/add", role=Role.OPERATOR, summary="Add a job to a queue", body=schema(COMMANDS["ADDJOB"]),
       reply=object_of(id={"type": "string"}), tag="jobs", writes=True, errors=error_words(COMMANDS["ADDJOB"]),
       commands=("ADDJOB",), is_large=True,
       example={"queue": "mail", "body": "to: ann", "delay": 5})  # fmt: skip
async def add(site: Site, asked: Request) -> dict[str, Any]:
    """ADDJOB: the answer comes when enough nodes hold the job, or is NOREPL after `timeout`.

    With a `key` the same request may be sent again, here or to another node, until it is answered: one job is added.
    """
    return {"id": await site.call(asked.visitor, *words(COMMANDS["ADDJOB"], asked.body))}


def _on_jobs(path: str, name: str, summary: str, doc: str) -> None:
    """Declare a route for a command that takes job ids and answers to how many it applied."""
    entry = COMMANDS[name]

    async def act(site: Site, asked: Request) -> dict[str, Any]:
        if "ids" not in read_object(asked.body, names(entry)):
            raise Problem(400, "the field ids is needed: a list of job ids")
        return {"changed": await site.call(asked.visitor, *words(entry, asked.body))}

    act.__doc__ = doc
    act.__name__ = path.rpartition("/")[2]
    route("POST", path, role=Role.OPERATOR, summary=summary, body={**schema(entry), "required": ["ids"]},
          reply=object_of(changed={"type": "integer", "minimum": 0}), tag="jobs", writes=True,
          errors=error_words(entry), commands=(name,), example={"ids": [ID]})(act)  # fmt: skip


_on_jobs(
    "/api/ack", "ACKJOB", "Acknowledge jobs",
    "They are done and are never delivered again.  `result` goes with one job.",
)  # fmt: skip
_on_jobs(
    "/api/nack", "NACK", "Give jobs back",
    "The try has failed: each is queued again, now or after its back-off or `delay`, and is dead after its last try.",
)  # fmt: skip
_on_jobs("/api/enqueue", "ENQUEUE", "Queue jobs that are active", "Delivered, delayed and dequeued ones are active.")
_on_jobs("/api/dequeue", "DEQUEUE", "Take jobs out of their queue", "They stay active: their retry timer goes on.")
_on_jobs("/api/delete", "DELJOB", "Drop jobs from this node", "Other nodes that hold them keep them.")


@route(
    "POST", "/api/queue-now", role=Role.OPERATOR, summary="Queue a job wherever it is, unless it is queued already",
    body=object_of(id={"type": "string"}),
    reply=object_of(
        changed={"type": "integer", "minimum": 0, "description": "1 if it was queued."},
        text={"type": "string", "description": "What became of it, for people."},
    ),
    tag="jobs", writes=True, errors=error_words(COMMANDS["ENQUEUE"]), commands=("ENQUEUE", "CLUSTER ASK", "SHOW"),
    example={"id": ID},
)  # fmt: skip
async def queue_now(site: Site, asked: Request) -> dict[str, Any]:
    """ENQUEUE on the node that knows most of the job; any node may be asked.

    A job that is in the queue of a node that answers, or with a consumer there, is left alone: `changed` is 0.
    """
    found = read_object(asked.body, ["id"])
    if not isinstance(found.get("id"), str):
        raise Problem(400, "the field id is needed: the id of a job")
    job_id = as_bytes(found["id"])
    if not is_job_id(job_id):
        raise Problem(400, "the field id is not the id of a job: ids are 48 bytes, DI…SQ, or 40 of Disque 1.0, D-…")
    best = (await job_everywhere(site.everywhere, site.gateway.view, job_id, fresh_s=0)).best
    if best is None:
        raise Problem(404, f"no node that answers has the job {found['id']}", code="NOJOB")
    if best.phase in _LEFT_ALONE:
        return {"changed": 0, "text": f"Left alone: it is {_LEFT_ALONE[best.phase]} node {best.short} already."}
    changed = await on_node(site, asked, best.node_id, "ENQUEUE", job_id)
    done = f"Queued on node {best.short}." if changed else f"Left alone: ENQUEUE does not apply on node {best.short}."
    return {"changed": changed, "text": done}


#: Where a job is that is not queued once more, by its phase.
_LEFT_ALONE: Final = {"ready": "in the queue of", "in-flight": "with a consumer of"}


@route(
    "POST", "/api/pause", role=Role.OPERATOR, summary="Pause a queue, or let it go on", body=schema(COMMANDS["PAUSE"]),
    reply=object_of(pause={"enum": ["none", "in", "out", "all"]}), tag="queues", writes=True,
    errors=error_words(COMMANDS["PAUSE"]), commands=("PAUSE",),
    example={"queue": "mail", "words": ["in"], "reason": "deploy"},
)  # fmt: skip
async def pause(site: Site, asked: Request) -> dict[str, Any]:
    """PAUSE with the words in, out, all, none, state and node; answers the state afterwards.

    The whole cluster follows, or with node this node alone.
    """
    return {"pause": await site.call(asked.visitor, *words(COMMANDS["PAUSE"], asked.body))}


_NODE: Final[Schema] = {
    "type": "string",
    "description": "Id of the node, 40 hex digits; left out: the node that is asked.",
}


@route("POST", "/api/drain", role=Role.ADMIN, summary="Let a node leave the cluster, or stay",
       body=object_of(leaving={"type": "boolean"}, node=_NODE, optional=("node",)),
       reply=object_of(leaving={"type": "boolean"}), tag="cluster", writes=True,
       errors=error_words(COMMANDS["CLUSTER LEAVING"]), commands=("CLUSTER LEAVING", "CLUSTER ASK"),
       example={"leaving": False})  # fmt: skip
async def drain(site: Site, asked: Request) -> dict[str, Any]:
    """CLUSTER LEAVING: true moves what a node holds to the others, and it takes no new jobs; false ends that.

    With `node` another node is asked (CLUSTER ASK).  If it does not answer, 503: it may have heard, so send the same
    again, which changes nothing the second time.
    """
    found = read_object(asked.body, ["leaving", "node"])
    leaving = found.get("leaving")
    if not isinstance(leaving, bool):
        raise Problem(400, "the field leaving is needed: true or false")
    words = ("CLUSTER", "LEAVING", "yes" if leaving else "no")
    if "node" not in found:
        await site.call(asked.visitor, *words)
    elif isinstance(found["node"], str):
        await ask(site, asked, found["node"], *words)
    else:
        raise Problem(400, "the field node is not a string: allowed is the id of a node, 40 hex digits")
    return {"leaving": leaving}


async def on_node(site: Site, asked: Request, node_id: bytes, *words: bytes | str) -> Any:
    """Run a command on a node.  Raises CommandError, and Problem: another node refuses, or does not answer."""
    if node_id == site.gateway.view.id:
        return await site.call(asked.visitor, *words)
    return await ask(site, asked, node_id.decode("ascii"), *words)


async def ask(site: Site, asked: Request, node_id: str, *words: bytes | str) -> Any:
    """Let one node run a command; returns its value.  Raises CommandError, and Problem: it refuses, or is silent."""
    ((_, status, value),) = await site.call(asked.visitor, "CLUSTER", "ASK", node_id, *words)
    if status == REFUSED:
        code, _, text = value.decode("utf-8", "replace").partition(" ")
        raise Problem(STATUS.get(code, 400), f"node {node_id} refuses: {text}", code=code)
    if status == SILENT:
        raise Problem(
            503, f"node {node_id} has not answered within {ANSWER_MS // 1_000} s and may have heard: try again"
        )
    if status == AWAY:
        raise Problem(503, f"node {node_id} has no link to this node: try again when it is back")
    return value


@route("POST", "/api/config", role=Role.ADMIN, summary="Change a setting now", body=schema(COMMANDS["CONFIG SET"]),
       reply=OK, tag="node", writes=True, errors=error_words(COMMANDS["CONFIG SET"]), commands=("CONFIG SET",),
       example={"name": "slowlog-max-len", "value": 64})  # fmt: skip
async def set_config(site: Site, asked: Request) -> dict[str, Any]:
    """CONFIG SET: the value is as it would stand in the file.  CONFIG REWRITE makes it last."""
    await site.call(asked.visitor, *words(COMMANDS["CONFIG SET"], asked.body))
    return {"ok": True}


@route("POST", "/api/meet", role=Role.ADMIN, summary="Join the cluster of another node",
       body=schema(COMMANDS["CLUSTER MEET"]), reply=OK, tag="cluster", writes=True,
       errors=error_words(COMMANDS["CLUSTER MEET"]), commands=("CLUSTER MEET",),
       example={"ip": "127.0.0.1", "port": 7712})  # fmt: skip
async def meet(site: Site, asked: Request) -> dict[str, Any]:
    """CLUSTER MEET: the other node will be called; `/api/cluster/nodes` tells what came of it."""
    await site.call(asked.visitor, *words(COMMANDS["CLUSTER MEET"], asked.body))
    return {"ok": True}
