"""The pages of failing and of dead jobs: those of the whole cluster, each once, and what can be done with them.

/failing?queue=...&reason=...&since=...    /dead?queue=...&reason=...&since=...

They are live: what moves on them is what the last walk has found (`FailedJobs.watch`).  What is done with all jobs that
match, or with those selected, goes through `api.failed`: a dry run counts first.
"""

from typing import Any, Final
from urllib.parse import urlencode

from disqued.web.http.exchange import Request
from disqued.web.pages.actions import ACT, ENDED, REDRIVEN
from disqued.web.pages.lines import PICKED, Action, Input, quoted
from disqued.web.pages.render import Values, page
from disqued.web.site import Site
from disqued.web.views import rendering
from disqued.web.views.failed_jobs import DEAD, FAILING, FILTERS, PAGE, FailedQuery, ShownJobs

_BURIED: Final = "Buried jobs are dead letters: they are not delivered until they are redriven."
#: What can be done: the word of the API, buttons for all jobs that match and for those selected, what is said
#: afterwards, what becomes of the jobs, and whether it ends them.
_WAYS: Final = {
    FAILING: (
        (
            "retry",
            "Try all now",
            "Try selected now",
            "Jobs queued: {result}.",
            "This queues jobs now, instead of at their next try.",
            False,
        ),
        ("bury", "Bury all", "Bury selected", "Jobs buried: {result}.", _BURIED, False),
        (
            "cancel",
            "Cancel (all nodes)",
            "Cancel selected",
            "Jobs cancelled: {result}.",
            f"{ENDED} One in flight ends once its consumer returns it or runs out of time.",
            True,
        ),
    ),
    DEAD: (
        ("redrive", "Redrive all", "Redrive selected", "Jobs redriven: {result}.", REDRIVEN, False),
        ("purge", "Purge (all nodes)", "Purge selected", "Jobs purged: {result}.", ENDED, True),
    ),
}
_REASON: Final = Input("why", "Reason", hint="none", word="REASON")


def ways_with_all(wanted: FailedQuery) -> list[Action]:
    """What can be done with all jobs of a list."""
    meant: dict[str, Any] = {"queue": wanted.queue} if wanted.queue else {}
    if wanted.reason:
        meant["reason"] = wanted.reason
    if wanted.since:
        meant["since"] = rendering.input_moment(wanted.since)
    fixed = {"filter": meant, **ACT, **({} if meant else {"all": True})}
    found = []
    for word, label, _, done, fate, ends in _WAYS[wanted.kind]:
        command = _command(wanted, word)
        redis = None if command else ""
        found.append(
            Action(f"bulk-{word}", label, f"/api/{wanted.kind}/{word}", command or _inputs(word), fixed, done, fate,
                   danger=ends, redis=redis)
        )  # fmt: skip
    return found


def ways_with_selected(kind: str) -> list[Action]:
    """What can be done with the jobs of a list that are selected."""
    fixed = {"filter": {"ids": [PICKED.value]}, **ACT}
    return [
        Action(
            f"selected-{word}", label, f"/api/{kind}/{word}", _inputs(word), fixed, done, fate, danger=ends, redis=""
        )
        for word, _, label, done, fate, ends in _WAYS[kind]
    ]


def _inputs(word: str) -> tuple[Input, ...]:
    return (_REASON,) if word == "bury" else ()


def _command(wanted: FailedQuery, word: str) -> tuple[bytes, ...]:
    """The command that does it with all dead jobs of a queue; empty where no single one does."""
    if wanted.kind != DEAD or wanted.reason or wanted.since or not wanted.queue or wanted.is_glob:
        return ()
    return (b"REDRIVE", wanted.queue) if word == "redrive" else (b"QPURGE", wanted.queue, b"STATE", b"dead")


#: What changes by itself: ids of elements, and their templates.
PARTS: Final = {
    "found-count": "_failed_count.html", "found-gaps": "_failed_gaps.html", "found-rows": "_failed_rows.html",
    "found-at": "_failed_at.html",
}  # fmt: skip


def live_values(site: Site, wanted: FailedQuery, shown: ShownJobs) -> Values:
    """What changes by itself on the page of a list."""
    return {"wanted": wanted, "is_dead": wanted.kind == DEAD, "found": shown.found, "cut": shown.cut,
            "now": site.gateway.view.wall()}  # fmt: skip


async def _values(site: Site, asked: Request, kind: str) -> Values:
    wanted = FailedQuery.of(asked, kind)
    shown = await site.failed.open(wanted, asked.query.get("page", 1))
    has_some = bool(shown.cut.count)
    terms = {name: asked.query[name] for name in ("queue", "reason", "since") if asked.query.get(name)}

    def link(page: int) -> str:
        return f"/{kind}?{urlencode({**terms, 'page': page})}"

    config = site.gateway.config
    return {
        **live_values(site, wanted, shown), "since": rendering.input_moment(wanted.since), "link": link,
        "events": urlencode({"page": kind, "queue": terms.get("queue", ""), "q": wanted.reason,
                             "since": terms.get("since", ""), "n": shown.cut.page}),
        "ways": ways_with_all(wanted) if has_some else [],
        "selected": ways_with_selected(kind) if has_some else [],
        "export": f"/api/dead/export?{urlencode(terms)}" if terms else "/api/dead/export",
        "export_line": _export_line(config.persistence, str(config.dir)),
    }  # fmt: skip


def _export_line(persistence: str, folder: str) -> str:
    """The command line that exports a store with the bodies of its jobs; empty if there is none."""
    return "" if persistence == "none" else f"disqued export --persistence {persistence} --dir {quoted(folder)}"


@page("/failing", "failing", "Page: failing jobs of all nodes", query=(*FILTERS, PAGE))
async def failing(site: Site, asked: Request) -> tuple[str, Values]:
    """A table of the jobs of all nodes that have failed and are tried again."""
    return "failed.html", await _values(site, asked, FAILING)


@page("/dead", "dead", "Page: dead jobs of all nodes", query=(*FILTERS, PAGE))
async def dead(site: Site, asked: Request) -> tuple[str, Values]:
    """A table of the dead letters of all nodes."""
    return "failed.html", await _values(site, asked, DEAD)
