"""Pages of the daemon itself: settings, the log of actions, and the login."""

from typing import Any, Final

from disqued.config import SETTINGS, Setting, Status
from disqued.web.http.exchange import QueryParameter, Request, Role
from disqued.web.masking import MASK, SECRET_SETTINGS
from disqued.web.pages import actions
from disqued.web.pages.render import Values, page
from disqued.web.site import Site

ACTIONS_SHOWN: Final = 200  #: of the log of actions


@page("/actions", "actions", "Page: what was done through the admin side", role=Role.ADMIN)
async def log_of_actions(site: Site, asked: Request) -> tuple[str, Values]:
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
async def settings(site: Site, asked: Request) -> tuple[str, Values]:
    """Every setting, its value and its reason."""
    rows = [_setting_row(SETTINGS[name], value) for name, value in site.gateway.config.matching("*")]
    groups: dict[str, list[Values]] = {}
    for row in rows:
        groups.setdefault(row["setting"].group, []).append(row)
    return "settings.html", {"groups": groups}


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
