"""Sessions: what stands for a token in a browser, so that no page ever sees the token again.

The cookie is a random id; here it is known by its SHA-256, with that of the token that opened it.  A session ends
after twelve hours, at the logout, with the process, or when its token is taken out of the file.  Times are seconds.
"""

import secrets
from collections import OrderedDict
from typing import Final

import attrs

from disqued.web.http.tokens import digest_of

LIFE_S: Final = 12 * 3_600
SESSIONS_MAX: Final = 1_000  #: the oldest ends when there are more


@attrs.frozen
class _Session:
    token: bytes  #: digest of the token
    ends_at: float


class Sessions:
    """Those that are open."""

    def __init__(self) -> None:
        self._open: OrderedDict[bytes, _Session] = OrderedDict()

    def begin(self, token: bytes, now: float) -> str:
        """Open one for a token's digest; returns what the cookie is to hold."""
        name = secrets.token_urlsafe(32)
        self._open[digest_of(name)] = _Session(token, now + LIFE_S)
        if len(self._open) > SESSIONS_MAX:
            self._open.popitem(last=False)
        return name

    def token(self, name: str, now: float) -> bytes | None:
        """The digest of the token of a session; None when there is no such session."""
        key = digest_of(name)
        session = self._open.get(key)
        if session is not None and session.ends_at <= now:
            del self._open[key]
            return None
        return None if session is None else session.token

    def end(self, name: str) -> None:
        """Close one, if it is open."""
        self._open.pop(digest_of(name), None)
