"""Pages of the daemon itself: settings, the log of actions, and the login."""

from typing import Any, Final

from disqued.config import SETTINGS, Setting, Status
from disqued.config.kinds import Choice, Kind, YesNo
from disqued.web.http.exchange import QueryParameter, Request, Role
from disqued.web.masking import MASK, SECRET_SETTINGS
from disqued.web.pages import actions
from disqued.web.pages.render import Values, page
from disqued.web.site import Site
from disqued.web.views.rendering import is_named

ACTIONS_SHOWN: Final = 200  #: of the log of actions


@page("/actions", "actions", "Page: what was done through the admin side", role=Role.ADMIN)
async def log_of_actions(site: Site, asked: Request) -> tuple[str, Values]:
    """The newest actions first."""
    return "actions.html", {"entries": list(site.audit.recent)[::-1][:ACTIONS_SHOWN], "missing": site.audit.failures}


def _setting_row(setting: Setting[Any], value: str) -> Values:
    is_secret = setting.name in SECRET_SETTINGS and bool(value)
    is_live = setting.status is Status.LIVE
    change = None
    if setting.mutable and is_live:
        way = actions.set_setting(setting, "" if is_secret else value, _choices(setting.kind))
        change = way if way.is_possible else None
    default = setting.kind.format(setting.default)
    return {"setting": setting, "value": MASK if is_secret else value, "change": change, "is_live": is_live,
            "default": default, "is_changed": is_live and not is_secret and value != default}  # fmt: skip


def _choices(kind: Kind[Any]) -> tuple[str, ...]:
    """Return the values of a kind that allows only some; empty for any other kind."""
    if isinstance(kind, Choice):
        return kind.words
    return ("yes", "no") if isinstance(kind, YesNo) else ()


@page("/settings", "settings", "Page: settings", query=(QueryParameter("q", "Glob, or part of a name or a text"),))
async def settings(site: Site, asked: Request) -> tuple[str, Values]:
    """The settings that match, by section: value, meaning, and a form where it can be changed."""
    text = asked.query.get("q", "")
    rows = [
        _setting_row(SETTINGS[name], value)
        for name, value in site.gateway.config.matching("*")
        if is_named(text, name.encode()) or text.casefold() in SETTINGS[name].doc.casefold()
    ]
    groups: dict[str, list[Values]] = {}
    for row in rows:
        groups.setdefault(row["setting"].group, []).append(row)
    return "settings.html", {"groups": groups, "text": text, "count": len(rows)}


@page(
    "/login", "login", "Page: give a token", role=Role.NOBODY,
    query=(
        QueryParameter("next", "Where to go on"),
        QueryParameter("failed", "Why it did not work before", {"type": "string", "enum": ["token", "wait"]}),
    ),
)  # fmt: skip
async def login(site: Site, asked: Request) -> tuple[str, Values]:
    """Ask for a token."""
    return "login.html", {"next": asked.query.get("next", "/"), "failed": asked.query.get("failed", "")}
