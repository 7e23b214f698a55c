"""Files of the page: style, script, the charts' library.  They are read once, at the start.

They lie in ``static/``, those of the reports in a folder of that name of their own.

/static/<version>/<name>: the version is a hash over all of them, so that browsers may keep each for ever; a page of
another version names other URLs.  Names are those of the table: nothing else in the file system can be reached.  Each
is kept in gzip, too, which the start of the daemon makes in turns of the loop.
"""

import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

import attrs

from disqued.web.http.compression import LEAST, packed_in_turns
from disqued.web.http.exchange import Reply, Request, Role
from disqued.web.http.problems import Problem
from disqued.web.routes import route
from disqued.web.site import Site
from disqued.web.turns import SharedTurns

MEDIA: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
FOR_EVER: Final = "public, max-age=31536000, immutable"


@attrs.define
class Asset:
    """One file."""

    body: bytes
    media: str
    packed: bytes = b""  #: in gzip, once that is made


@cache
def assets() -> dict[str, Asset]:
    """Every file by its name; those of ``vendor/`` stand beside the others."""
    folder = files("disqued.web.pages") / "static"
    found = [*folder.iterdir(), *(folder / "vendor").iterdir(), *(files("disqued.reports") / "static").iterdir()]
    return {entry.name: _read(entry) for entry in sorted(found, key=lambda entry: entry.name) if entry.is_file()}


def _read(entry: Traversable) -> Asset:
    return Asset(entry.read_bytes(), MEDIA["." + entry.name.rpartition(".")[2]])


async def pack(turns: SharedTurns) -> None:
    """Make what is kept in gzip."""
    for asset in assets().values():
        if not asset.packed and len(asset.body) >= LEAST:
            asset.packed = await packed_in_turns(asset.body, turns)


@cache
def version() -> str:
    """Hash over names and contents, 16 hex digits."""
    digest = hashlib.sha256()
    for name, asset in assets().items():
        digest.update(f"{name} {len(asset.body)} ".encode())
        digest.update(asset.body)
    return digest.hexdigest()[:16]


def url(name: str) -> str:
    """Where a file is served.  Raises KeyError for a name that is none."""
    assets()[name]
    return f"/static/{version()}/{name}"


@route("GET", "/static/<version>/<name>", role=Role.NOBODY, summary="A file of the page", media="text/css",
       listed=False)  # fmt: skip
async def static(site: Site, asked: Request) -> Reply:
    """The file; another version is none that may be kept."""
    asset = assets().get(asked.path["name"].decode("utf-8", "replace"))
    if asset is None or asked.path["version"].decode("utf-8", "replace") != version():
        raise Problem(404, "there is no such file; the pages name those that there are")
    return Reply(asset.body, asset.media, headers={"Cache-Control": FOR_EVER}, packed=asset.packed)
