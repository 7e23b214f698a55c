"""The page of reports: what Spark has computed of the event logs of all nodes, drawn without a script.

/reports    /reports?queue=mail&grain=day
"""

import shlex
from typing import Any, Final
from urllib.parse import urlencode

from disqued.reports.blocks import Blocks, ReportQuery, all_blocks, command_line, is_over
from disqued.reports.layout import GRAINS
from disqued.web.http.exchange import QueryParameter, Request
from disqued.web.http.problems import Problem
from disqued.web.pages.render import page
from disqued.web.site import Site
from disqued.web.views.reports_file import MISSING
from disqued.wire.texts import raw, text

_VIEW: Final = (
    QueryParameter("queue", "Which queue; none, or an empty one: all", {"type": "string", "format": "bytes"}),
    QueryParameter("grain", "By hour or day", {"type": "string", "enum": list(GRAINS)}),
)


@page("/reports", "reports", "Page: reports", query=_VIEW)
async def reports(site: Site, asked: Request) -> tuple[str, dict[str, Any]]:
    """Charts, tables and verdicts, each with the time of its computation."""
    queue = text(asked.query.get("queue", b"")) or None
    view = ReportQuery(queue, asked.query.get("grain", "hour"))
    path = site.reports.path
    blocks: Blocks | None = None
    try:
        blocks = await site.reports.ask(lambda reader: all_blocks(reader, view))
    except Problem as problem:
        # That nothing was computed yet is no fault: the page says how that is done.
        if problem.code != MISSING or path is None:
            raise

    def link(name: str | None, grain: str = view.grain) -> str:
        return "/reports?" + urlencode({"grain": grain} if name is None else {"queue": raw(name), "grain": grain})

    def command(block: str) -> str:
        return command_line(block, shlex.quote(str(path)))

    return "reports.html", {"view": view, "blocks": blocks, "grains": GRAINS, "link": link, "command": command,
                            "is_over": is_over}  # fmt: skip
