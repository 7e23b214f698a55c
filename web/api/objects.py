"""Jobs, queues and settings as objects, without what their reader may not see.

    SHOW   [b"id", b"DI...", b"queue", b"mail", ..., b"body", b"hi"]  ->  {"id": "DI...", "queue": "mail", ...}

Who may not see bodies gets the same object without `body` and what else clients made up, its headers, progress and
result, and `"body_withheld": true` in their place.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from disqued.core.model.phases import PHASE_NAMES
from disqued.web.http.exchange import Schema, Visitor, object_of
from disqued.web.http.values import BYTES
from disqued.web.masking import MASK, SECRET_SETTINGS

_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_SPAN: Final[Schema] = {"type": "number", "minimum": 0}
_MAYBE: Final[Schema] = {"type": ["integer", "null"], "minimum": 0}
_ID: Final[Schema] = {"type": "string"}
_IDS: Final[Schema] = {"type": "array", "items": _ID}
_WITHHELD: Final[Schema] = {"const": True, "description": "There is a body, and the token has no right to see it."}

_JOB: Final[dict[str, Schema]] = {
    "id": _ID,
    "queue": {"anyOf": [BYTES, {"type": "null"}]},
    "state": {"enum": ["wait-repl", "active", "queued", "acked", "dead"]},
    "repl": _COUNT,
    "ttl": {**_COUNT, "description": "Seconds that are left."},
    "ctime": {**_COUNT, "description": "Unix milliseconds times 1000000, plus a counter."},
    "delay": {**_SPAN, "description": "Seconds."},
    "retry": {**_SPAN, "description": "Seconds; 0 = delivered at most once."},
    "nacks": _COUNT,
    "additional-deliveries": _COUNT,
    "nodes-delivered": _IDS,
    "nodes-confirmed": _IDS,
    "next-requeue-within": {**_MAYBE, "description": "Milliseconds."},
    "next-awake-within": {**_MAYBE, "description": "Milliseconds."},
}
_GROUPS: Final[Schema] = {
    "type": "array",
    "items": {"type": "array", "items": {"anyOf": [BYTES, _COUNT]}, "minItems": 4, "maxItems": 4},
    "description": "Of an event alone: group; in progress, redo or done; deliveries; milliseconds until its deadline.",
}
#: What only some jobs have: terms, and what became of them.
_FATED: Final[dict[str, Schema]] = {
    "max-tries": {**_COUNT, "description": "Deliveries before the job is dead; 0 = no limit."},
    "backoff": {
        "type": "array", "items": _SPAN, "minItems": 2, "maxItems": 2,
        "description": "Seconds after the first NACK, and at most.",
    },
    "keep-dead": {**_SPAN, "description": "Seconds that a dead job stays beyond its TTL."},
    "keep-result": {**_SPAN, "description": "Seconds that its result is kept."},
    "headers": {"type": "array", "items": object_of(name=BYTES, value=BYTES)},
    "group": {**BYTES, "description": "Its group within the queue."},
    "generation": {**_COUNT, "description": "Times that it was redriven."},
    "attempt": {**_COUNT, "description": "The number of its delivery, or of the next one while it waits."},
    "failures": {
        "type": "array",
        "items": object_of(
            at={**_COUNT, "description": "Unix milliseconds."}, node=_ID,
            who={**BYTES, "description": "Name or address of the consumer; empty = the node noticed it."},
            reason=BYTES,
        ),
        "description": "Its last tries that failed, oldest first.",
    },
    "cancelled": {"const": True},
    "progress": BYTES,
    "result": BYTES,
    "rival-results": {"const": True, "description": "Nodes that could not hear each other took different results."},
    "blocked": {**BYTES, "description": "Why it may not be handed out now, as far as is known here; empty if it may."},
}  # fmt: skip
_PHASE: Final[Schema] = {"enum": [name.decode() for name in PHASE_NAMES], "description": "Where it is, for this node."}
#: Of a job in flight alone.
_HELD: Final[dict[str, Schema]] = {
    "consumer": {
        "anyOf": [BYTES, {"type": "null"}],
        "description": "Who has it: id of a worker, or name or address of a client; null = not known here.",
    },
    "in-flight-for": {**_MAYBE, "description": "Milliseconds since it was handed out; null = not known here."},
}
#: Behind these, of a job with a result, and of one that waits in the queue of the node.
_LAST: Final[dict[str, Schema]] = {
    "result-from": object_of(
        "When it was acknowledged, and which node accepted that.",
        at={**_COUNT, "description": "Unix milliseconds."}, node=_ID,
    ),
    "place": {**_COUNT, "description": "Its place in the queue of this node, 1 for the next; up to 500."},
}  # fmt: skip
JOB: Final[Schema] = object_of(
    "A job as SHOW describes it.", **_JOB, body={"anyOf": [BYTES, {"type": "null"}]}, body_withheld=_WITHHELD,
    groups=_GROUPS, key={**BYTES, "description": "Of a job that was added with a KEY alone, and is not done."},
    **_FATED, phase=_PHASE, **_HELD, **_LAST,
    optional=("body", "body_withheld", "groups", "key", *_FATED, *_HELD, *_LAST))  # fmt: skip
PEEKED: Final[Schema] = object_of(
    queue=BYTES, id=_ID, body=BYTES, body_withheld=_WITHHELD, optional=("body", "body_withheld")
)
POLICY: Final[Schema] = object_of(
    "A policy as QPOLICY GET describes it.",
    queue=BYTES,
    fields={
        "type": "array",
        "items": object_of(
            name={"type": "string", "description": "As in QPOLICY SET, and PAUSE."},
            value={"type": "string", "description": "As in QPOLICY SET."}, node=_ID,
            at={**_COUNT, "description": "When it was set, in unix seconds."},
        ),
    },
)  # fmt: skip
QUEUE: Final[Schema] = object_of(
    "A queue as QSTAT FULL describes it.",
    **{
        "name": BYTES, "len": _COUNT, "age": {**_COUNT, "description": "Seconds."},
        "idle": {**_COUNT, "description": "Seconds."}, "blocked": {**_COUNT, "description": "Consumers that wait."},
        "import-from": _IDS, "import-rate": {**_COUNT, "description": "Jobs a second."}, "jobs-in": _COUNT,
        "jobs-out": _COUNT, "pause": {"enum": ["none", "in", "out", "all"]}, "produced": _COUNT, "consumed": _COUNT,
        "sources": _IDS, "ctime": {**_COUNT, "description": "Unix seconds."},
        "pause-reason": {"type": "string", "description": "Why the cluster paused it; empty for none."},
        "pause-by": {"type": "string", "description": "Who said the last PAUSE for the whole cluster."},
        "pause-at": {**_COUNT, "description": "When, in unix seconds; 0 = never."},
        "pause-node": {"enum": ["none", "in", "out", "all"], "description": "The pause of this node alone."},
        "dead": {**_COUNT, "description": "Dead jobs that this node holds."},
        "failing": {**_COUNT, "description": "Other jobs that failed, as far as this node knows."},
        "delayed": {**_COUNT, "description": "Jobs that this node queues when their delay is over."},
        "groups": {**_COUNT, "description": "Groups of which jobs wait here, where they are kept apart."},
        "throttled-for": {**_COUNT, "description": "Seconds for which THROTTLE holds the whole queue back."},
        "inflight": {**_COUNT, "description": "Jobs with consumers at the same time; 0 = no limit."},
        "group-inflight": {**_COUNT, "description": "The same of each group."},
        "rate": {"type": "string", "description": "As in QPOLICY SET; empty for none."},
        "group-rate": {"type": "string", "description": "The same of each group."},
        "partition": {"enum": ["", "strict", "available"], "description": "Of a queue with limits."},
        "slots": {**_COUNT, "description": "Jobs of it with consumers in the whole cluster, as far as is known here."},
        "slots-awaited": {**_COUNT, "description": "Jobs for which this node has asked the steward in vain so far."},
        "steward": {"type": "string", "description": "Id of the node that gives slots; empty without limits."},
        "slots-blocked": {"type": "string", "description": "Why no slot is given now; empty if nothing is known."},
        "in-flight": {**_COUNT, "description": "Jobs that are with consumers of this node."},
        "elsewhere": {**_COUNT, "description": "Jobs neither in the queue of this node nor with its consumers."},
        "done": {**_COUNT, "description": "Acknowledged jobs: kept until all nodes know, or for a result."},
        "oldest": {"type": "integer", "description": "Age of the job that waits first, in seconds; -1 if none does."},
        "delivered": {**_COUNT, "description": "Jobs handed to consumers: jobs-out without those for other nodes."},
        "slots-lost": {**_COUNT, "description": "Slots of nodes that are gone or began anew, as the steward says."},
        "owned": {**_COUNT, "description": "Of a log: events that this node hands out; others have copies."},
    },
    optional=("owned",),
)  # fmt: skip


def by_name(values: Sequence[Any]) -> dict[str, Any]:
    """An object of names and values that take turns."""
    return {name.decode("ascii"): value for name, value in zip(values[::2], values[1::2], strict=True)}


#: Of a job: what its producer and its consumers made up.
_SECRET: Final = frozenset({"body", "headers", "progress", "result"})


def job_object(values: Sequence[Any]) -> dict[str, Any]:
    """A job as SHOW answers it, as an object; pairs that take turns in the answer are objects, too."""
    job = by_name(values)
    if "headers" in job:
        words = job["headers"]
        job["headers"] = [{"name": name, "value": value} for name, value in zip(words[::2], words[1::2], strict=True)]
    if "failures" in job:
        job["failures"] = [dict(zip(("at", "node", "who", "reason"), row, strict=True)) for row in job["failures"]]
    if "result-from" in job:
        job["result-from"] = dict(zip(("at", "node"), job["result-from"], strict=True))
    return job | {name: True for name in ("cancelled", "rival-results") if name in job}


def shown_to(visitor: Visitor, job: Mapping[str, Any]) -> dict[str, Any]:
    """A job, without its body if the visitor may not see that."""
    if visitor.sees_bodies:
        return dict(job)
    return {name: value for name, value in job.items() if name not in _SECRET} | {"body_withheld": True}


def peeked(visitor: Visitor, row: Sequence[bytes]) -> dict[str, Any]:
    """A row ``(queue, id, body)`` of QPEEK as an object."""
    return shown_to(visitor, dict(zip(("queue", "id", "body"), row, strict=True)))


def without_secrets(settings: dict[bytes, bytes]) -> dict[str, Any]:
    """Settings without what nobody needs to see."""
    texts = {name.decode("ascii", "backslashreplace"): value for name, value in settings.items()}
    return {name: MASK if name in SECRET_SETTINGS and value else value for name, value in texts.items()}
