"""The declaration of a setting: one class attribute that says all there is to know about it.

    class Network(Section):
        timeout = Value(WholeNumber(), 0, "Idle time after which ...", unit="seconds", mutable=True)
                        |              |  |
                        kind           |  documentation; its first sentence is the summary
                                       default

The attribute names the setting, with - for _, and reads its value from a `Config`, with the type of the kind.

    the words of a line --parse_words--+                     +--format---> CONFIG GET
    an option, CONFIG SET ---parse-----+--> a typed value ---+
                                                             +--written--> the file

A kind (`kinds`) refuses a text with ValueError and knows no names; a setting raises BadValue with its own name, and the
reader of a file adds the line.
"""

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, cast, overload

import attrs

from disqued.config import credentials
from disqued.config.errors import BadValue
from disqued.config.kinds import Kind

T = TypeVar("T")

HIDDEN: Final = "(redacted)"  #: stands for a secret in errors


class Status(enum.Enum):
    """The effect of a directive."""

    LIVE = "live"  #: the daemon acts on it
    PLANNED = "planned"  #: the feature that it steers does not exist yet
    OBSOLETE = "obsolete"  #: a name of Disque that can mean nothing here


class Section:
    """Settings below one heading; a class that inherits several sections has the settings of all."""

    heading: ClassVar[str] = ""
    settings: ClassVar[Mapping[str, "Setting[Any]"]] = {}  #: by name, in the order of their declaration

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        found: dict[str, Setting[Any]] = {}
        for base in cls.__bases__:
            found.update(getattr(base, "settings", {}))
        for setting in vars(cls).values():
            if isinstance(setting, Setting):
                setting.group = cls.heading
                found[setting.name] = setting
        cls.settings = found

    def __init__(self) -> None:
        self._values: dict[str, Any] = {name: setting.default for name, setting in self.settings.items()}

    def __getitem__(self, name: str) -> Any:
        return self._values[name]


@attrs.define(eq=False)
class Setting(Generic[T]):
    """One directive."""

    kind: Kind[T]
    default: T
    doc: str  #: one paragraph with the reason; its first sentence is the summary
    unit: str = attrs.field(default="", kw_only=True)
    mutable: bool = attrs.field(default=False, kw_only=True)  #: CONFIG SET may change it
    status: Status = attrs.field(default=Status.LIVE, kw_only=True)
    reason: str = attrs.field(default="", kw_only=True)  #: why it has no effect; empty when live
    listed: bool = attrs.field(default=True, kw_only=True)  #: CONFIG GET shows it
    secret: bool = attrs.field(default=False, kw_only=True)  #: the value is a secret, or may hold one
    example: str = attrs.field(default="", kw_only=True)  #: for disqued.conf, when the default makes no line
    name: str = attrs.field(default="", init=False)  #: as people write it
    group: str = attrs.field(default="", init=False)  #: the heading of its section

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.name = attribute.replace("_", "-")

    def parse(self, text: str) -> T:
        """Read a value. Raises: BadValue."""
        return self._checked(text, lambda: self.kind.parse(text))

    def parse_words(self, words: Sequence[str]) -> T:
        """Read the words of a line. Raises: BadValue."""
        return self._checked(" ".join(words) if words else None, lambda: self.kind.parse_words(words))

    def _checked(self, text: str | None, parse: Callable[[], T]) -> T:
        try:
            return parse()
        except UnicodeEncodeError:
            raise self.fault(text, "holds a character that UTF-8 cannot write", self.kind.describe()) from None
        except ValueError as error:
            raise self.fault(text, str(error), self.kind.describe()) from None

    def fault(self, text: str | None, problem: str, allowed: str = "", *, path: str = "", line: int = 0) -> BadValue:
        """Make the error about a value, which hides that of a secret."""
        value = None if text is None else self.shown(text)
        return BadValue(self.name, value, allowed=allowed, problem=problem, path=path, line=line)

    def shown(self, text: str) -> str:
        """A value that was given, as a log and an error may show it."""
        return HIDDEN if self.secret and text else text

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


class Value(Setting[T]):
    """A setting whose attribute is its value: `config.tcp_backlog` is `config["tcp-backlog"]`."""

    @overload
    def __get__(self, section: None, owner: type[Section]) -> Self: ...
    @overload
    def __get__(self, section: Section, owner: type[Section]) -> T: ...
    def __get__(self, section: Section | None, owner: type[Section]) -> Self | T:
        return self if section is None else cast("T", section[self.name])


class File(Setting[str]):
    """A setting that names a file: its attribute is an absolute path, `dir` and the name, or None when it is empty."""

    @overload
    def __get__(self, section: None, owner: type[Section]) -> Self: ...
    @overload
    def __get__(self, section: Section, owner: type[Section]) -> Path | None: ...
    def __get__(self, section: Section | None, owner: type[Section]) -> Self | Path | None:
        if section is None:
            return self
        name = credentials.written_out(section[self.name])
        return cast("Path", section["dir"]) / name if name else None
