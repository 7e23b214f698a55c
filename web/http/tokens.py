"""Tokens: the file that says who may do what, read again when it changes.

    # name  role      [bodies]  token
    ann     operator  bodies    yXo3wQf7...      sees the bodies of jobs
    grafana viewer              2pKc90vB...

A name may stand there twice, with two tokens: that is how one is replaced without a gap.  A token is known by its
SHA-256 alone once it has been read, and what a visitor gives is held against every one of them, so that the time which
that takes says nothing.
"""

import hmac
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs
from twisted.logger import Logger

from disqued.acl import passwords
from disqued.files import PrivateFileError, read_private
from disqued.web.http.exchange import Role

log = Logger()

ROLES: Final = {"viewer": Role.VIEWER, "operator": Role.OPERATOR, "admin": Role.ADMIN}
FILE_MAX: Final = 1 << 20  #: bytes of the file
TOKEN_MIN, TOKEN_MAX = 16, 512  #: characters of a token
LOOK_S: Final = 1.0  #: the file is looked at this often at most

_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_GRAMMAR: Final = "allowed is: name, role (viewer, operator or admin), the word bodies or nothing, token"


class TokenError(Exception):
    """The file cannot be used; `str()` says which, where, and what would do."""


@attrs.frozen
class Token:
    """What a token stands for."""

    name: str
    role: Role
    sees_bodies: bool
    digest: bytes  #: SHA-256


def digest_of(text: str) -> bytes:
    """What is kept of a token."""
    return passwords.digest_of(text.encode("utf-8", "surrogateescape"))


def find(tokens: Iterable[Token], text: str) -> Token | None:
    """The token that was given, if it is one: all of them are compared, whatever the first ones are."""
    digest, found = digest_of(text), None
    for token in tokens:
        if hmac.compare_digest(token.digest, digest):
            found = token
    return found


def parse(text: str, path: Path) -> tuple[Token, ...]:
    """Read the text of the file.  Raises TokenError."""
    tokens: list[Token] = []
    known: dict[bytes, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        try:
            token = _parse_line(line)
        except ValueError as error:
            raise TokenError(f"{path}, line {number}: {error}") from None
        if token is None:
            continue
        before = known.setdefault(token.digest, number)
        if before != number:
            raise TokenError(f"{path}, line {number}: its token stands on line {before}, too; once is allowed")
        tokens.append(token)
    return tuple(tokens)


def _parse_line(line: str) -> Token | None:
    """Read a line; None for one that says nothing.  Raises ValueError, which never shows the token."""
    words = line.split()
    comment = next((at for at, word in enumerate(words) if word.startswith("#")), len(words))
    words = words[:comment]
    if not words:
        return None
    if len(words) not in (3, 4) or (len(words) == 4 and words[2] != "bodies"):
        raise ValueError(f"{len(words)} words, {'and the third is not bodies; ' if len(words) == 4 else ''}{_GRAMMAR}")
    name, role, text = words[0], words[1], words[-1]
    if not _NAME.fullmatch(name):
        raise ValueError("the name is none; allowed are 1 to 64 letters, digits, dots, dashes, underlines and @")
    if role not in ROLES:
        raise ValueError(f"there is no role {role[:32]!r}; allowed are {', '.join(ROLES)}")
    if not TOKEN_MIN <= len(text) <= TOKEN_MAX or not text.isascii() or not text.isprintable():
        raise ValueError(
            f"the token of {name} is none; allowed are {TOKEN_MIN} to {TOKEN_MAX} visible ASCII characters"
        )
    return Token(name, ROLES[role], len(words) == 4, digest_of(text))


def read(path: Path) -> bytes:
    """Read the bytes of the file.  Raises TokenError when it is not there, or open to others."""
    try:
        data = read_private(path, FILE_MAX + 1)
    except PrivateFileError as error:
        raise TokenError(str(error)) from None
    if len(data) > FILE_MAX:
        raise TokenError(f"{path}: it is too long; allowed are {FILE_MAX} bytes")
    return data


class TokenFile:
    """The tokens of a file, as it is now."""

    def __init__(self, path: Path, now: float) -> None:
        """Read the file; `now` in seconds.  Raises TokenError."""
        self._path = path
        self._data = read(path)
        self._tokens = parse(self._data.decode("utf-8", "replace"), path)
        if not self._tokens:
            raise TokenError(f"{path}: there is no token in it; {_GRAMMAR}")
        self._looked_at = now
        #: Why the file as it is now is not what is in force; empty = it is.
        self.complaint: str = ""

    def tokens(self, now: float) -> tuple[Token, ...]:
        """What is in force: the file is looked at again if need be; the old ones hold while it is bad."""
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            try:
                self._look()
            except TokenError as error:
                self._complain(str(error))
        return self._tokens

    def _look(self) -> None:
        data = read(self._path)
        if data == self._data and not self.complaint:
            return
        if not data:
            raise TokenError(
                f"{self._path}: it is empty, as if it was just being written; a comment alone ends all tokens"
            )
        self._tokens = parse(data.decode("utf-8", "replace"), self._path)
        if data != self._data:
            log.info("There are new tokens in {path}: {count} of them", path=str(self._path), count=len(self._tokens))
        self._data, self.complaint = data, ""

    def _complain(self, reason: str) -> None:
        if reason != self.complaint:
            self.complaint = reason
            log.error("http-token-file {reason}; the tokens stay as they were", reason=reason)
