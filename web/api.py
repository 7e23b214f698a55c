"""The JSON API: what there is to read, and what can be done.  Every route is a command of the table, or several."""

from typing import Any

from disqued.web.routes import Asked, Param, Role, route
from disqued.web.site import Site


@route(
    "GET", "/api/info", role=Role.VIEWER, summary="Facts about this node, as INFO tells them",
    query=(Param("section", "One section alone: server, clients, memory, ..."),),
    reply={"type": "object", "additionalProperties": {"type": "object"}}, tag="node",
)  # fmt: skip
async def info(site: Site, asked: Asked) -> dict[str, Any]:
    """Sections, and in each the fields and their values."""
    text: bytes = await site.call(asked.visitor, "INFO", asked.query.get("section", "default"))
    sections: dict[str, Any] = {}
    fields: dict[str, str] = {}
    for line in text.decode("utf-8", "backslashreplace").splitlines():
        if line.startswith("#"):
            fields = sections[line[1:].strip().lower()] = {}
        elif ":" in line:
            name, value = line.split(":", 1)
            fields[name] = value
    return sections
