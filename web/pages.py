"""The admin page: what a person sees in a browser.  It is complete without a script; the script adds what moves.

    / cluster and node    /queues    /queues/<queue>, /queue?name=..    /jobs/<id>    /actions    /settings    /login

A page is filled by a coroutine, which looks at the node for a bounded while in each turn of the loop.  The parts of it
that change by themselves are templates of their own, which `live` sends again.
"""

from typing import Any, Final
from urllib.parse import urlencode

import attrs

from disqued.config import SETTINGS, Setting, Status
from disqued.core.job import KIND_NAMES, KIND_WORK, RETRY_NEVER_MS, STATE_NAMES, Job
from disqued.core.messages import Vitals
from disqued.core.node import Node
from disqued.core.peers import FAIL, FULL, LEAVING, PFAIL, KnownNode
from disqued.core.queues import Queue
from disqued.core.vitals import Account, own_vitals
from disqued.web import actions, group_views, job_views, shown, worker_views
from disqued.web.masking import MASK, SECRET_SETTINGS
from disqued.web.problems import Problem
from disqued.web.queue_views import SORTS, Cut, View, first_of, row_of, walk
from disqued.web.render import page
from disqued.web.routes import Asked, Param, Role, Visitor
from disqued.web.site import Site

Values = dict[str, Any]

ACTIONS_SHOWN: Final = 200  #: of the log of actions
PEEKED: Final = 10  #: jobs of a queue that are shown without being asked for
PEEKED_BYTES: Final = 400  #: of each body
BODY_BYTES: Final = 65_536  #: of the body on the page of a job
_FLAGS: Final = ((PFAIL, "not answering"), (FAIL, "failing"), (LEAVING, "leaving"), (FULL, "full"))


# The cluster and this node.


def overview_values(site: Site) -> Values:
    """What the overview shows, now."""
    gateway = site.gateway
    node, facts = gateway.node, gateway.facts()
    state, memory, stats = node.state, node.state.memory, facts.get("Stats", {})
    server = facts.get("Server", {})
    return {
        "nodes": _node_rows(site),
        "memory": {"used": memory.used, "limit": memory.limit, "level": memory.level,
                   "resident": facts.get("Memory", {}).get("used_memory_rss", 0)},
        "counts": {"jobs": len(state.jobs), "queues": len(state.queues.by_name), "blocked": len(state.blocked),
                   "acked": len(state.acked), "clients": facts.get("Clients", {}).get("connected_clients", 0)},
        "rates": {**site.live.rates.of_node(node),
                  "commands": stats.get("instantaneous_ops_per_sec", 0),
                  "received": float(stats.get("instantaneous_input_kbps", 0)) * 1_024,
                  "sent": float(stats.get("instantaneous_output_kbps", 0)) * 1_024},
        "uptime_ms": int(server.get("uptime_in_seconds", 0)) * 1_000,
        "store": gateway.config.persistence, "trouble": _trouble(site),
    }  # fmt: skip


def _node_rows(site: Site) -> list[Values]:
    """Rows of this node, then of the others with what they told of themselves, then the addresses that are tried."""
    node = site.gateway.node
    own, *others = (_node_row(node, known) for known in (*node.membership.lines(), *node.membership.tried()))
    vitals, rates = own_vitals(node.state), site.live.rates.of_node(node)
    return [own | _vital_values(vitals, rates["in"], rates["out"]), *others]


def _vital_values(vitals: Vitals, queued_rate: float | None, given_rate: float | None) -> Values:
    return {
        "version": vitals.version.decode("ascii"), "memory": vitals.memory, "limit": vitals.limit,
        "jobs": vitals.jobs, "in_rate": queued_rate, "out_rate": given_rate,
    }  # fmt: skip


def _rates_now(node: Node, known: KnownNode, told: Account) -> tuple[float | None, float | None]:
    """The rates that a node told of, while it goes on telling."""
    is_old = node.clock.now() - told.at > node.membership.timeout_ms or known.flags & (PFAIL | FAIL)
    return (None, None) if is_old or not known.connected else (told.queued_rate, told.given_rate)


def _node_row(node: Node, known: KnownNode) -> Values:
    flags = [text for bit, text in _FLAGS if known.flags & bit]
    if not known.met:
        flags.append("being called")
    host = known.host or ("this machine" if known.myself else "?")
    told = known.account
    said = {} if told is None else _vital_values(told.vitals, *_rates_now(node, known, told))
    return said | {
        "id": known.id.decode("ascii", "replace"), "address": f"{host}:{known.port}", "flags": flags,
        "myself": known.myself, "linked": known.connected, "bad": bool(known.flags & (PFAIL | FAIL)),
        "pong_ms": max(0, node.clock.wall() - known.pong_at) if known.pong_at else None,
    }  # fmt: skip


def _trouble(site: Site) -> list[str]:
    """What an operator should know at once."""
    gateway, found = site.gateway, []
    if site.access.complaint:
        found.append("The file of tokens is not in force as it is; those of before are. The log says why.")
    if site.audit.failures:
        found.append(f"Actions that could not be written to the log of actions: {site.audit.failures}.")
    if gateway.loading:
        found.append("The node is loading its store; commands hear LOADING.")
    if gateway.paused:
        found.append("Commands are put off: CLIENT PAUSE, or the node stops.")
    if gateway.store_failure:
        found.append(f"Nothing can be added: {gateway.store_failure}")
    if gateway.node.state.memory.level >= 2:
        found.append("Memory is nearly full; what may be dropped is dropped.")
    if gateway.node.state.leaving:
        found.append("The node is leaving the cluster: it drains, and takes no new jobs.")
    return found


@page("/", "overview", "Page: the cluster, and this node")
async def overview(site: Site, asked: Asked) -> tuple[str, Values]:
    """Nodes, facts, rates."""
    return "overview.html", {**overview_values(site), "trial": actions.add_job(None)}


# Queues.

_VIEW: Final = (
    Param("q", "Part of the names"),
    Param("sort", "Column", {"type": "string", "enum": list(SORTS)}),
    Param("page", "Which page of a hundred", {"type": "integer", "minimum": 1}),
)


def view_of(asked: Asked) -> View:
    """The view that a query asks for."""
    query = asked.query
    return View(query.get("q", ""), query.get("sort", "name"), query.get("page", 1))


def queues_values(view: View, cut: Cut) -> Values:
    """What the table of queues shows."""

    def link(**changes: Any) -> str:
        chosen = attrs.evolve(view, page=1, **changes) if "page" not in changes else attrs.evolve(view, **changes)
        return "/queues?" + urlencode({"q": chosen.text, "sort": chosen.sort, "page": chosen.page})

    return {"view": view, "cut": cut, "link": link}


@page("/queues", "queues", "Page: queues", query=_VIEW)
async def queues(site: Site, asked: Asked) -> tuple[str, Values]:
    """A table of queues."""
    view = view_of(asked)
    async with site.large_walk:
        cut = await view.cut(await walk(site.gateway, site.live.rates), site.gateway.reactor)
    return "queues.html", {**queues_values(view, cut), "add": actions.add_job(None)}


# One queue.


def queue_values(site: Site, name: bytes, visitor: Visitor) -> Values:
    """What changes by itself on the page of a queue."""
    node = site.gateway.node
    queue = node.state.queues.by_name.get(name)
    row = None if queue is None else row_of(node, queue, site.live.rates)
    peeked = [job_row(node, job, visitor) for job in first_of(node, name, PEEKED)]
    totals = None
    if queue is not None:
        totals = {"in": queue.jobs_in, "out": queue.jobs_out, "acked": queue.acked, "requeued": queue.requeued,
                  "idle_ms": node.clock.now() - queue.accessed_at, "created": queue.created_wall,
                  "held": len(queue.leased) + sum(group.leased for group in group_views.groups_of(queue)),
                  "elsewhere": len(queue.elsewhere)}  # fmt: skip
    pauses = actions.pause(name, row.pause if row is not None else "none")
    return {
        "queue": name,
        "row": row,
        "totals": totals,
        "peeked": peeked,
        "visitor": visitor,
        "pauses": pauses,
        "held": [] if queue is None else worker_views.held_of(node, queue, visitor),
        "groups": [] if queue is None else group_views.group_rows(node, queue),
        "kind": None if queue is None else _kind_of(queue),
    }


def _kind_of(queue: Queue) -> str | None:
    """What a queue is for: work or log; None while nothing is in it, or both."""
    if queue.kind is not None:
        return KIND_NAMES[queue.kind].decode()
    # What consumers of other nodes have is work; both are in it after a partition alone.
    return KIND_NAMES[KIND_WORK].decode() if queue.elsewhere and queue.log is None else None


def job_row(node: Node, job: Job, visitor: Visitor) -> Values:
    """A job in a table."""
    seen = visitor.sees_bodies
    return {
        "id": job.id.decode("ascii", "replace"), "state": STATE_NAMES[job.state].decode(), "size": len(job.body),
        "age_ms": max(0, node.clock.wall() - job.ctime // 1_000_000), "nacks": job.nacks,
        "again": job.redeliveries, "body": shown.body(job.body, PEEKED_BYTES) if seen else None,
    }  # fmt: skip


_STATES: Final = ("queued", "active", "wait-repl", "acked", "any")
_SEARCH: Final = (
    Param("state", "State of the jobs", {"type": "string", "enum": list(_STATES)}),
    Param("text", "Part of the body", {"type": "string", "format": "bytes"}),
    Param("older", "Seconds since they were added, at least", {"type": "string"}),
    Param("cursor", "Where to go on", {"type": "integer", "minimum": 0, "maximum": 2**48}),
)


_NAME: Final = Param("name", "Which queue", {"type": "string", "format": "bytes"})


@page("/queues/<queue>", "queues", "Page: a queue", query=_SEARCH)
@page("/queue", "queues", "Page: a queue, whose name cannot stand in a path", query=(_NAME, *_SEARCH))
async def queue(site: Site, asked: Asked) -> tuple[str, Values]:
    """A queue, and the jobs in it that are looked for."""
    query, visitor = asked.query, asked.visitor
    name: bytes | None = asked.path.get("queue", query.get("name"))
    if name is None:
        raise Problem(400, "the parameter name is needed: the name of a queue")
    text: bytes = query.get("text", b"")
    if text and not visitor.sees_bodies:
        raise Problem(403, f"{visitor.name} may not see the bodies of jobs, nor look for text in them")
    wanted = job_views.Search(
        name, query.get("state", "queued"), text, _seconds(query.get("older", "")) * 1_000, query.get("cursor", 0)
    )
    found = await job_views.search(site.gateway, wanted)
    node = site.gateway.node
    further = ""
    if found.cursor:
        terms = {"state": wanted.state, "text": text, "older": wanted.older_ms // 1_000, "cursor": found.cursor}
        further = "?" + urlencode({"name": name, **terms} if "name" in query else terms)
    return "queue.html", {
        **queue_values(site, name, visitor), "wanted": wanted, "states": _STATES, "further": further,
        "is_named": name in shown.NO_SEGMENTS,
        "found": found, "jobs": [job_row(node, job, visitor) for job in found.jobs],
        "known": len(node.state.jobs), "add": actions.add_job(name), "ways_with_groups": actions.on_groups(name),
        "ways_with_log": actions.on_log(name),
        "bulk": actions.bulk(wanted, site.gateway.config.port), "selected": actions.selected(),
    }  # fmt: skip


def _seconds(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Problem(400, f"older={text[:100]}: allowed are whole numbers of seconds, below 1000000000")
    return int(text)


# One job.


@page("/jobs/<job>", "queues", "Page: a job")
async def job(site: Site, asked: Asked) -> tuple[str, Values]:
    """Everything that this node knows of a job."""
    job_id, node = asked.path["job"], site.gateway.node
    found = node.state.jobs.get(job_id)
    if found is None:
        raise Problem(
            404, f"there is no job {shown.name(job_id, 60)} on this node: it is done, dropped, or never was here"
        )
    is_known = found.holders is None or bool(found.holders)
    holders = sorted(found.holders) if found.holders is not None else [node.id]
    body = shown.body(found.body, BODY_BYTES) if asked.visitor.sees_bodies and is_known else None
    return "job.html", {
        "job": found, "job_id": job_id, "is_known": is_known, "state": STATE_NAMES[found.state].decode(), "body": body,
        "holders": holders, "confirmed": sorted(found.confirmed or ()), "origin": job_id[2:10].decode("latin-1"),
        "kind": KIND_NAMES[found.options.kind].decode(), "worker": job_views.worker_of(node, found),
        "alias": job_views.name_of(found), "groups": group_views.of_event(node, found),
        "why": job_views.why_not_running(node, found), "timeline": job_views.timeline(node, found),
        "ways": actions.on_job(job_id) if found.options.kind == KIND_WORK else actions.on_event(found.queue, job_id),
        "now": node.clock.wall(), "is_manual": found.options.retry_ms >= RETRY_NEVER_MS,
    }  # fmt: skip


# The log, settings, the way in.


@page("/actions", "actions", "Page: what was done through the admin side", role=Role.ADMIN)
async def log_of_actions(site: Site, asked: Asked) -> tuple[str, Values]:
    """The newest actions first."""
    return "actions.html", {"entries": list(site.audit.recent)[::-1][:ACTIONS_SHOWN], "missing": site.audit.failures}


def _setting_row(setting: Setting[Any], value: str) -> Values:
    is_secret = setting.name in SECRET_SETTINGS and bool(value)
    change = None
    if setting.mutable and setting.status is Status.LIVE:
        way = actions.set_setting(setting, "" if is_secret else value)
        change = way if way.is_possible else None
    return {"setting": setting, "value": MASK if is_secret else value, "change": change}


@page("/settings", "settings", "Page: settings")
async def settings(site: Site, asked: Asked) -> tuple[str, Values]:
    """Every setting, its value and its reason."""
    rows = [_setting_row(SETTINGS[name], value) for name, value in site.gateway.config.matching("*")]
    groups: dict[str, list[Values]] = {}
    for row in rows:
        groups.setdefault(row["setting"].group, []).append(row)
    return "settings.html", {"groups": groups}


@page(
    "/login", "login", "Page: give a token", role=Role.NOBODY,
    query=(
        Param("next", "Where to go on"),
        Param("failed", "Why it did not work before", {"type": "string", "enum": ["token", "wait"]}),
    ),
)  # fmt: skip
async def login(site: Site, asked: Asked) -> tuple[str, Values]:
    """Ask for a token."""
    return "login.html", {"next": asked.query.get("next", "/"), "failed": asked.query.get("failed", "")}
