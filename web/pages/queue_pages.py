"""Pages of queues: a table of all, and for each its figures, its jobs and its groups.

Figures are those of the whole cluster (`views.queue_views`); what is of this node alone says so.
"""

from itertools import islice
from typing import Any, Final
from urllib.parse import urlencode

import attrs

from disqued.commands.queues import policy_value
from disqued.commands.slots import left_ms, partition_text
from disqued.core.model.gates import NO_LIMITS, Gate
from disqued.core.model.job import KIND_LOG, KIND_NAMES, KIND_WORK, STATE_NAMES, Job
from disqued.core.model.phases import PHASE_NAMES
from disqued.core.model.queues import PAUSE_NAMES, Queue
from disqued.core.model.spans import seconds_text
from disqued.core.view import NodeView
from disqued.web.http.exchange import QueryParameter, Request, Visitor
from disqued.web.http.problems import Problem
from disqued.web.pages import actions
from disqued.web.pages.render import MissingProblem, Values, fragment, page
from disqued.web.site import Site
from disqued.web.turns import next_turn
from disqued.web.views import group_views, job_views, node_labels, rendering
from disqued.web.views.consumer_views import consumers_of
from disqued.web.views.everywhere import ClusterReply
from disqued.web.views.queue_views import (
    SORTS,
    PeekedJob,
    QueueQuery,
    QueueRow,
    Sources,
    next_jobs,
    pause_note,
    pauses_of,
)

DRAWN_ROWS: Final = 5  #: rows of the table of queues that are drawn in a turn of the loop, half a millisecond's work
SLOTS_SHOWN: Final = 20
PEEKED: Final = 10  #: jobs of a queue that are shown without being asked for
GROUPS_SHOWN: Final = 5  #: throttled groups that are named
THROTTLES_SHOWN: Final = 20  #: throttled groups in the table of throttles
PEEKED_BYTES: Final = 400  #: of each body


# Queues.

_VIEW: Final = (
    QueryParameter("q", "Part of the names, or a glob"),
    QueryParameter("sort", "Column", {"type": "string", "enum": list(SORTS)}),
    QueryParameter("page", "Which page of a hundred", {"type": "integer", "minimum": 1}),
)


def view_of(asked: Request) -> QueueQuery:
    """The view that a query asks for."""
    query = asked.query
    return QueueQuery(query.get("q", ""), query.get("sort", "name"), query.get("page", 1))


async def queues_values(site: Site, view: QueueQuery) -> Values:
    """What the table of queues shows."""
    node, found = site.gateway.view, await site.queues.all_queues()
    cut = await view.cut(found.rows, site.gateway.turns)

    def link(**changes: Any) -> str:
        chosen = attrs.evolve(view, page=1, **changes) if "page" not in changes else attrs.evolve(view, **changes)
        return "/queues?" + urlencode({"q": chosen.text, "sort": chosen.sort, "page": chosen.page})

    return {"view": view, "cut": cut, "link": link, "sources": _shown_sources(site, found.sources), "found": found,
            "pause_notes": {row.name: pause_note(node, row) for row in cut.rows if row.pause}}  # fmt: skip


async def drawn_rows(site: Site, values: Values) -> str:
    """Draw the rows of the table, some in a turn of the loop; of the same walk each view is drawn once."""
    cut, drawn = values["cut"], values["found"].drawn
    html: str | None = drawn.get(values["view"])
    if html is None:
        html = ""
        for at in range(0, max(1, len(cut.rows)), DRAWN_ROWS):
            await next_turn(site.gateway.turns)
            some = attrs.evolve(cut, rows=cut.rows[at : at + DRAWN_ROWS])
            html += fragment("_queue_rows.html", {**values, "cut": some})
        drawn[values["view"]] = html
    return html


def _shown_sources(site: Site, sources: Sources) -> node_labels.ShownSources:
    age_s = site.gateway.reactor.seconds() - sources.asked_at
    reply = ClusterReply(sources.asked_at, sources.replies)
    return node_labels.shown_sources(site.gateway.view, reply, age_s, sources.failure)


@page("/queues", "queues", "Page: queues", query=_VIEW)
async def queues(site: Site, asked: Request) -> tuple[str, Values]:
    """A table of the queues of all nodes."""
    values = await queues_values(site, view_of(asked))
    return "queues.html", {**values, "drawn": await drawn_rows(site, values), "add": actions.add_job(None)}


# One queue.


async def queue_values(site: Site, name: bytes, visitor: Visitor, *, fresh_s: float) -> Values:
    """What changes by itself on the page of a queue; figures of other nodes are at most `fresh_s` old."""
    found = await site.queues.one(name, fresh_s)
    node = site.gateway.view
    queue, row = node.queue(name), found.total
    here = found.on_nodes.get(node.id)
    first = await next_jobs(site.everywhere, node, name, count=PEEKED, head=PEEKED_BYTES + 1, fresh_s=fresh_s)
    peeked = [_peeked_row(node, queue, job, visitor) for job in first]
    # What is paused on other nodes alone is resumed there.
    pause = PAUSE_NAMES[node.pause_of(name).bits].decode() if here is None else here.pause_word
    rows = zip(node_labels.labels(node, found.on_nodes), found.on_nodes.values(), strict=True)
    consumers = await consumers_of(site.everywhere, node, name, fresh_s=fresh_s)
    return {
        "queue": name,
        "row": row,
        "own": here,
        "sources": _shown_sources(site, found.sources),
        "on_nodes": list(rows),
        "minute": site.history.acked_in_minute(name),
        "peeked": peeked,
        "visitor": visitor,
        "pauses": actions.pause(name, pause, node.pause_of(name).reason.decode()),
        "paused": pauses_of(node, name, row),
        "throttled": None if queue is None or queue.gate is None else _throttled(queue.gate, node.wall()),
        "throttles": _throttles(node.policies.gates.get(name), node.wall()),
        "consumers": consumers,
        "more_held": consumers.more_than_held(0 if row is None else row.in_flight),
        "groups": [] if queue is None else group_views.group_rows(node, queue),
        "in_progress": 0 if queue is None else sum(group.leased for group in group_views.groups_of(queue)),
        "policy": [
            (field.decode(), policy_value(field, register.value).decode(), register.set_at, register.node_id)
            for field, register in node.policy_of(name).items()
        ],
        "limits": limits_of(node, name, 0 if row is None else row.slots_lost),
        "slots": slot_rows(node, name),
        "kind": _kind_of(queue, row),
    }


def _peeked_row(node: NodeView, queue: Queue | None, one: PeekedJob, visitor: Visitor) -> Values:
    """A job that is handed out next; why that may not happen is known of those of this node."""
    job = node.job(one.id) if one.is_here else None
    blocked = "" if job is None or queue is None else _shown(node.limits.hindrance(queue, job))
    return {"id": one.id.decode("ascii", "replace"), "node_id": one.node_id.decode("ascii", "replace"),
            "node": one.node, "is_here": one.is_here, "age_ms": one.age_ms, "size": one.size, "blocked": blocked,
            "body": rendering.body(one.head, PEEKED_BYTES) if visitor.sees_bodies else None}  # fmt: skip


def _throttled(gate: Gate, wall: int) -> tuple[str, str] | None:
    """For how long a queue is throttled, and which of its groups are; None = nothing is."""
    groups = gate.groups
    if not gate.until and not groups:
        return None
    shown = [
        f"{rendering.name(group, 40)} for {rendering.span(max(0, until - wall))}"
        for group, until in islice(groups.items(), GROUPS_SHOWN)
    ]
    shown += [f"{len(groups) - GROUPS_SHOWN} more"] if len(groups) > GROUPS_SHOWN else []
    whole = rendering.span(max(0, gate.until - wall)) if gate.until else f"{len(groups)} groups"
    return whole, ", ".join(shown)


def _throttles(gate: Gate | None, wall: int) -> list[tuple[bytes, int, int]]:
    """Group (empty = the queue itself), end and milliseconds left of each throttle, the first of them."""
    if gate is None:
        return []
    ends = [(b"", gate.until)] if gate.until else []
    ends += islice(gate.groups.items(), THROTTLES_SHOWN)
    return [(group, until, max(0, until - wall)) for group, until in ends]


def limits_of(node: NodeView, name: bytes, lost: int = 0) -> list[tuple[str, str]]:
    """The limits of a queue in words, and how much of each is in use as far as this node knows.

    `lost` are slots of nodes that are gone or began anew, as the steward says.
    """
    limits, queue = node.limits.of(name), node.queue(name)
    if limits == NO_LIMITS:
        return []
    if queue is not None and queue.kind == KIND_LOG:
        return [("Limits", "set for jobs; they do not apply to the events of this log")]
    used = f"{len(node.limits.slots_of(name))} in use"
    found = [("Jobs in flight", f"{used}, max {limits.in_flight}" if limits.in_flight else used)]
    if lost:
        way = "after Queue now on the page of such a job the next consumer of the node that queues it gets it"
        found.append(
            ("Slots of nodes that are gone", f"{lost}: free when their jobs are acknowledged or come again; {way}")
        )
    if limits.group_in_flight:
        found.append(("In flight per group", f"max {limits.group_in_flight}"))
    for label, rate in (("Rate limit", limits.rate), ("Rate limit per group", limits.group_rate)):
        if rate is not None:
            found.append((label, f"{rate.tokens} jobs per {_text(seconds_text(rate.per_ms))} s, burst {rate.burst}"))
    found.append(("During a partition", partition_text(limits).decode()))
    found.append(("Steward", f"node {_text(node.limits.steward_of(name))[:8]}"))
    standstill = node.limits.standstill(name)
    if standstill:
        found.append(("Delivery", f"stopped: {_shown(standstill)}"))
    return found


def slot_rows(node: NodeView, name: bytes) -> list[Values]:
    """The first slots of a queue."""
    now = node.now()
    return [
        {"id": _text(slot.job_id), "group": slot.group, "client": node.limits.client_of(name, slot),
         "node": _text(slot.node_id), "left_ms": left_ms(slot, node.job(slot.job_id), now)}
        for slot in islice(node.limits.slots_of(name).values(), SLOTS_SHOWN)
    ]  # fmt: skip


def _text(data: bytes) -> str:
    return data.decode("ascii", "replace")


def _shown(reason: bytes) -> str:
    return rendering.name(reason, 400) if reason else ""


def _kind_of(queue: Queue | None, row: QueueRow | None) -> str | None:
    """What a queue is for: work or log; None while nothing is in it, or both."""
    if queue is not None and queue.kind is not None:
        return KIND_NAMES[queue.kind].decode()
    if row is None:
        return None
    # What consumers of other nodes have is work; both are in it after a partition alone.
    if row.is_log:
        return KIND_NAMES[KIND_LOG].decode()
    return KIND_NAMES[KIND_WORK].decode() if row.length or row.in_flight else None


def job_row(node: NodeView, job: Job, visitor: Visitor) -> Values:
    """A job in a table."""
    seen = visitor.sees_bodies
    return {"id": job.id.decode("ascii", "replace"), "state": STATE_NAMES[job.state].decode(),
            "phase": PHASE_NAMES[node.phases.of(job)].decode(), "size": len(job.body),
            "age_ms": max(0, node.wall() - job.ctime // 1_000_000), "nacks": job.nacks, "again": job.redeliveries,
            "body": rendering.body(job.body, PEEKED_BYTES) if seen else None}  # fmt: skip


_STATES: Final = ("ready", "in-flight", "delayed", "elsewhere", "done", "dead", "wait-repl", "any")
#: Words of links that were made before these.
_OLD_STATES: Final = ("queued", "active", "acked")
_SEARCH: Final = (
    QueryParameter("state", "State of the jobs", {"type": "string", "enum": [*_STATES, *_OLD_STATES]}),
    QueryParameter("text", "Part of the body", {"type": "string", "format": "bytes"}),
    QueryParameter("older", "Seconds since they were added, at least", {"type": "string"}),
    QueryParameter("cursor", "Where to go on", {"type": "integer", "minimum": 0, "maximum": 2**48}),
)


_NAME: Final = QueryParameter("name", "Which queue", {"type": "string", "format": "bytes"})


@page("/queues/<queue>", "queues", "Page: a queue", query=_SEARCH)
@page("/queue", "queues", "Page: a queue, whose name cannot stand in a path", query=(_NAME, *_SEARCH))
async def queue(site: Site, asked: Request) -> tuple[str, Values]:
    """A queue, and the jobs in it that are looked for."""
    query, visitor = asked.query, asked.visitor
    name: bytes | None = asked.path.get("queue", query.get("name"))
    if name is None:
        raise Problem(400, "missing parameter name: the name of a queue")
    text: bytes = query.get("text", b"")
    if text and not visitor.sees_bodies:
        raise Problem(403, f"{visitor.name} has no permission to see job bodies, nor to search them")
    wanted = job_views.JobSearch(
        name, query.get("state", "ready"), text, _seconds(query.get("older", "")) * 1_000, query.get("cursor", 0)
    )
    found = await job_views.search(site.gateway, wanted)
    # Whoever has just done something reloads the page to see it.
    values = await queue_values(site, name, visitor, fresh_s=0)
    node = site.gateway.view
    if not (values["row"] or found.jobs or await _is_known(site, name, values)):
        shown = f"there is no queue {rendering.name(name, 60)} on {_where(values['sources'])}"
        hints = [("Adding a job creates it, and so does a policy.", "")]
        raise MissingProblem(
            shown, "NOQUEUE", hints=hints, ways=[actions.add_job(name), *actions.policy(name, is_set=False)[:1]]
        )
    further = ""
    if found.cursor:
        terms = {"state": wanted.state, "text": text, "older": wanted.older_ms // 1_000, "cursor": found.cursor}
        further = "?" + urlencode({"name": name, **terms} if "name" in query else terms)
    return "queue.html", {**values, "wanted": wanted, "further": further,
                          "states": _STATES if wanted.state in _STATES else (*_STATES, wanted.state),
                          "is_named": name in rendering.NO_SEGMENTS, "found": found,
                          "jobs": [job_row(node, job, visitor) for job in found.jobs], "known": node.job_count,
                          **_actions(values, wanted, found, site.gateway.config.port)}  # fmt: skip


def _actions(values: Values, wanted: job_views.JobSearch, found: job_views.SearchResult, port: int) -> Values:
    """Return the actions that can apply to a queue as it is now."""
    name, is_log = wanted.queue, values["kind"] == KIND_NAMES[KIND_LOG].decode()
    # Events are not jobs: no command of jobs applies to them.
    bulk = [] if is_log else actions.bulk(wanted, port)
    if not (found.jobs or found.cursor):
        bulk = [one for one in bulk if one.key == "bulk-purge"]  # other nodes may have some
    return {
        "add": None if is_log else actions.add_job(name),
        "ways_with_groups": actions.on_groups(name) if values["groups"] else [],
        "ways_with_log": actions.on_log(name) if is_log and values["row"] is not None and values["row"].length else [],
        "ways_with_policy": actions.policy(name, is_set=bool(values["policy"])),
        "ways_with_throttle": actions.throttle(name),
        "bulk": bulk,
        "selected": actions.selected() if found.jobs and not is_log else [],
    }


def _where(sources: node_labels.ShownSources) -> str:
    """Name the nodes that do not have a queue."""
    if sources.failure:
        return f"this node, and the others cannot be asked: {sources.failure}"
    missing = ", ".join(f"{one.short} (which {one.why})" for one in sources.missing)
    return f"any node that answers; the figures of {missing} are missing" if missing else "any node"


async def _is_known(site: Site, name: bytes, values: Values) -> bool:
    """Return whether something is set for a queue that is not on this node, or a job of it is."""
    if any(values[part] for part in ("policy", "throttles", "slots", "limits")):
        return True
    if site.gateway.view.pause_of(name).bits:
        return True
    return bool((await job_views.search(site.gateway, job_views.JobSearch(name, "any"))).jobs)


def _seconds(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Problem(400, f"older={text[:100]}: expected a whole number of seconds below 1000000000")
    return int(text)
