"""Errors about settings: each says where, what is wrong and what is allowed, and never shows a secret."""

from collections.abc import Iterable
from typing import Final, Self

from disqued.config.quoting import shown
from disqued.suggestions import near

REFERENCES: Final = "`disqued --help` and docs/reference/configuration.md"  #: where every setting is named

#: Directives of Redis that people look for here, and what there is in their place.
_INSTEAD: Final = {
    "user": "users are lines of the file that aclfile names",
    "protected-mode": "it is always on: beyond the loopback addresses a requirepass or an aclfile is needed",
    "enable-protected-configs": "what would be protected is never changed while the node runs",
}


class ConfigError(Exception):
    """A setting, or the file that it stands in, cannot be used; `str()` says where, what and what would do.

    It never holds a secret, since errors are logged and sent to clients: `Setting.fault` hides the value.
    """

    def __init__(
        self, directive: str = "", value: str | None = None, *, allowed: str = "", problem: str = "", path: str = "",
        line: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(directive, value)
        self.directive = directive
        self.value = value  #: as it was given, but for a secret; None where there is none to speak of
        self.allowed = allowed  #: a plural, to follow "allowed are"; empty where nothing is
        self.problem = problem  #: what is wrong, when `allowed` does not say it
        self.path = path  #: file or "command line"; empty for CONFIG SET
        self.line = line  #: from 1 on; 0 where there are no lines

    def at(self, path: str, line: int = 0) -> Self:
        """Note where it happened, unless a closer place is known already."""
        if not self.path:
            self.path, self.line = path, line
        return self

    def __str__(self) -> str:
        place = f"{self.path}, line {self.line}" if self.line else self.path
        subject = " ".join(shown(part) for part in (self.directive or None, self.value) if part is not None)
        return ": ".join(part for part in (place, subject, self.reason) if part)

    @property
    def reason(self) -> str:
        """What is wrong, and what is allowed, without where and with what."""
        allowed = f"allowed are {self.allowed}" if self.allowed else ""
        return "; ".join(part for part in (self.problem, allowed) if part)


class BadValue(ConfigError):
    """The value of a directive is not one of those allowed."""


class NotMutable(ConfigError):
    """The directive takes effect at the start only."""

    def __init__(self, name: str) -> None:
        super().__init__(name, problem="can be changed only in the file or on the command line, before the start")


class NoConfigFile(ConfigError):
    """There is no file to rewrite."""

    def __init__(self) -> None:
        super().__init__(problem="the server is running without a config file")


class UnknownDirective(ConfigError):
    """No directive has this name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        meant = near(name, known)
        self.suggestion: str | None = meant[0] if meant else None
        hint = f"did you mean {' or '.join(meant)}?" if meant else f"allowed are those that {REFERENCES} name"
        hint = _INSTEAD.get(name.lower(), hint)
        super().__init__(name, problem=f"unknown directive; {hint}")
