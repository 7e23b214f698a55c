"""Where a request comes from: whether this is the site that the browser believes to talk to, and whose page it shows.

A page of a stranger can do two things from the browser of someone who may do much here: let its own name point to our
address, so that its scripts read what we answer (DNS rebinding), and have the browser send us a write.  Against the
first a request has to name a host that is ours, as `Hosts` knows them; against the second browsers say where a request
comes from.

    Host: localhost, a loopback address, an address that we are reached at, one of http-hosts      else 421
    Sec-Fetch-Site: same-origin or none, or not there;  Origin: this very host, or not there       else 403
    Content-Type: application/json, which no page can send to another site without asking first     else 415
"""

import ipaddress
import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from disqued.web.http.exchange import JSON
from disqued.web.http.problems import Problem

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_NAME = re.compile(r"[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*")
_PORTS: Final = {"http": 80, "https": 443}
FORM: Final = "application/x-www-form-urlencoded"


def header(request: Any, name: str) -> str | None:
    """A header that may be there once.  Raises Problem 400."""
    values = request.requestHeaders.getRawHeaders(name.encode("ascii"), [])
    if len(values) > 1:
        raise Problem(400, f"{name} is given {len(values)} times; once is allowed")
    return values[0].decode("utf-8", "surrogateescape") if values else None


def split_host(text: str) -> tuple[str, int | None] | None:
    """Name, lower case and without brackets, and port of ``name:port``; None when it is none."""
    match = _HOST.fullmatch(text)
    if match is None:
        return None
    port = match["port"]
    return match["name"].strip("[]").lower(), None if port is None else int(port)


class Hosts:
    """The hosts that are ours."""

    def __init__(self, addresses: Iterable[str], names: str) -> None:
        """`names` are separated by spaces.  Raises ValueError."""
        self._names = {"localhost"}
        for name in names.split():
            if not _NAME.fullmatch(name) and not _is_address(name.strip("[]")):
                raise ValueError(f"{name[:100]!r} is no host; allowed are names and addresses without a port")
            self._names.add(name.strip("[]").lower())
        self._addresses = {ipaddress.ip_address(address) for address in addresses}

    def check(self, request: Any) -> None:
        """Refuse a request to another host.  Raises Problem 400, 421."""
        text = header(request, "Host")
        if text is None:
            raise Problem(400, "there is no Host header; it has to name the host that is asked")
        host = split_host(text)
        if host is None or not self._is_ours(host[0], request):
            raise Problem(
                421,
                f"{text[:100]!r} is not a host of this node; allowed are localhost, its own addresses and the names in"
                " http-hosts",
            )

    def _is_ours(self, name: str, request: Any) -> bool:
        if name in self._names:
            return True
        if not _is_address(name):
            return False
        address = ipaddress.ip_address(name)
        if address.is_unspecified:
            return False
        # Bound to all addresses it is reached at one that no setting names.
        here = getattr(request.getHost(), "host", "")
        return address.is_loopback or address in self._addresses or name == here


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def check_read(request: Any) -> None:
    """Refuse a look that a page of another site causes: it hears nothing, but costs the node, and its time tells.

    Somebody who follows a link from there is let in.  Raises Problem 403.
    """
    if header(request, "Sec-Fetch-Site") == "cross-site" and header(request, "Sec-Fetch-Mode") != "navigate":
        raise Problem(403, "Sec-Fetch-Site is 'cross-site': another site asks for this; allowed are links to it")


def check_write(request: Any, *, has_session: bool, takes_form: bool) -> None:
    """Refuse a write that another site may have caused.  Raises Problem 400, 403, 415.

    With the session of a browser something has to say where the write comes from: Sec-Fetch-Site, Origin, or, from
    browsers that send neither, the header X-Disqued: 1, which no other site can set.
    """
    site, origin = header(request, "Sec-Fetch-Site"), header(request, "Origin")
    if site not in (None, "same-origin", "none"):
        raise Problem(403, f"Sec-Fetch-Site is {site[:100]!r}: another site asks for this; allowed are its own pages")
    if origin is not None and not _is_same(origin, header(request, "Host") or ""):
        raise Problem(403, f"Origin is {origin[:100]!r}: another site asks for this; allowed are its own pages")
    if has_session and site is None and origin is None and header(request, "X-Disqued") != "1":
        raise Problem(
            403, "nothing says which page asks; with a session Sec-Fetch-Site, Origin or X-Disqued: 1 is needed"
        )
    media, charset = media_of(request)
    if charset not in ("", "utf-8", "utf8"):
        raise Problem(415, f"Content-Type has the charset {charset[:100]!r}; allowed is utf-8")
    if media != JSON and not (takes_form and media == FORM):
        raise Problem(415, f"Content-Type is {media[:100]!r}; allowed is {JSON}{f' or {FORM}' if takes_form else ''}")


def media_of(request: Any) -> tuple[str, str]:
    """Return the media type of a body and its charset, both in lower case and empty where they are not given."""
    media, *parameters = (header(request, "Content-Type") or "").lower().split(";")
    words = (parameter.partition("=") for parameter in parameters)
    charset = next((value.strip().strip('"') for name, _, value in words if name.strip() == "charset"), "")
    return media.strip(), charset


def _is_same(origin: str, host: str) -> bool:
    """True when an Origin is the site that the Host header names; a proxy may have taken TLS off."""
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return False
    ours = split_host(host)
    if ours is None or parts.scheme not in _PORTS or parts.path or parts.query or parts.username is not None:
        return False
    default = _PORTS[parts.scheme]
    return (parts.hostname or "", port or default) == (ours[0], ours[1] or default)
