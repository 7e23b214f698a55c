"""What a setting is: its name, its kind of values, what is said about it, and the errors about wrong ones.

    the words of a line --parse_words--+                     +--format---> CONFIG GET
    an option, CONFIG SET ---parse-----+--> a typed value ---+
                                                             +--written--> the file

A kind (config_values) refuses with ValueError and knows no names; a `Setting` adds its own and raises BadValue, and
whoever reads a file adds the line.
"""

import enum
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

import attrs

from disqued.config_values import Kind
from disqued.config_words import shown

SECRETS: Final = ("requirepass", "cluster-secret", "redis-url")  #: settings that hold one, or may
HIDDEN: Final = "(redacted)"  #: what errors show in the place of a secret


def shown_value(name: str, text: str) -> str:
    """A value that was given for a setting, as a log and an error may show it."""
    return HIDDEN if name.lower() in SECRETS and text else text


class ConfigError(Exception):
    """A setting, or the file that it stands in, cannot be used; `str()` says where, what and what would do.

    It never holds a secret: errors are logged, and answered.
    """

    def __init__(
        self,
        directive: str = "",
        value: str | None = None,
        *,
        allowed: str = "",
        problem: str = "",
        path: str = "",
        line: int = 0,
    ) -> None:
        if value is not None:
            value = shown_value(directive, value)
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


class Status(enum.Enum):
    """What giving a directive does."""

    LIVE = "live"  #: the daemon acts on it
    PLANNED = "planned"  #: the feature that it steers does not exist yet
    OBSOLETE = "obsolete"  #: a name of Disque that can mean nothing here


@attrs.frozen(kw_only=True)
class Setting:
    """One directive."""

    name: str = attrs.field(kw_only=False)
    kind: Kind[Any] = attrs.field(kw_only=False)
    default: Any = attrs.field(kw_only=False)
    doc: str = attrs.field(kw_only=False)  #: one paragraph with the reason; its first sentence is the summary
    unit: str = ""
    mutable: bool = False  #: CONFIG SET may change it
    status: Status = Status.LIVE
    reason: str = ""  #: why it has no effect; empty when live
    group: str = ""
    listed: bool = True  #: CONFIG GET shows it
    example: str = ""  #: what disqued.conf shows when the default is not a line of its own

    def parse(self, text: str) -> Any:
        """Read a value. Raises: BadValue."""
        return self._checked(text, lambda: self.kind.parse(text))

    def parse_words(self, words: Sequence[str]) -> Any:
        """Read the words of a line. Raises: BadValue."""
        return self._checked(" ".join(words) if words else None, lambda: self.kind.parse_words(words))

    def _checked(self, text: str | None, parse: Callable[[], Any]) -> Any:
        try:
            return parse()
        except UnicodeEncodeError:
            problem = "holds a character that UTF-8 cannot write"
            raise BadValue(self.name, text, allowed=self.kind.describe(), problem=problem) from None
        except ValueError as error:
            raise BadValue(self.name, text, allowed=self.kind.describe(), problem=str(error)) from None

    @property
    def summary(self) -> str:
        """The first sentence of the documentation, for `--help`."""
        return re.split(r"(?<=[.])\s", self.doc, maxsplit=1)[0]

    @property
    def default_text(self) -> str:
        """The default as the file would give it."""
        return self.kind.written(self.default)

    @property
    def warning(self) -> str:
        """What the start says when the directive is given; empty when it is live."""
        return {
            Status.LIVE: "",
            Status.PLANNED: f"directive {self.name} has no effect in this version: {self.reason}",
            Status.OBSOLETE: f"directive {self.name} has no effect: {self.reason}",
        }[self.status]
