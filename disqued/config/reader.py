"""Reading files of settings: from text to what it gives, line by line and file by file.

    port 7711            Given(port, 7711, "disqued.conf", 1)
    include more.conf    what more.conf gives, at this place
    port 7712            Given(port, 7712, "disqued.conf", 3, earlier=1)

What is given is not judged here beyond its own line and file: who takes it lets the later one win.  An error names the
closest file and line.

Source: Disque 1.0-rc1; its include takes paths from the folder that the daemon was started in.
"""

import errno
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from disqued.config.declaration import Setting
from disqued.config.errors import ConfigError, UnknownDirective
from disqued.config.quoting import as_text, split_words

Settings = Mapping[str, Setting[Any]]  #: by name


@attrs.frozen(kw_only=True)
class Directive:
    """One directive of a file."""

    setting: Setting[Any]
    value: Any
    path: str  #: the file, as it was named
    line: int
    earlier: int  #: line of the same file that gave it before; 0: none did
    included: bool  #: the file is not the first one, but one that it includes


def read_file(path: str, settings: Settings) -> Iterator[Directive]:
    """Read the file at `path` and those that it includes. Raises: ConfigError."""
    return _Reader(settings).file(path)


def read_text(text: str, origin: str, settings: Settings) -> Iterator[Directive]:
    """Read a text that came from the file `origin`. Raises: ConfigError."""
    return _Reader(settings).text(text, origin)


def setting_called(name: str, settings: Settings) -> Setting[Any]:
    """Find a setting by its name, in any case. Raises: UnknownDirective."""
    setting = settings.get(name.lower())
    if setting is None:
        raise UnknownDirective(name, settings)
    return setting


def words_of(line: str) -> list[str]:
    """The words of a line; none for a comment and for an empty line. Raises: ConfigError."""
    stripped = line.strip(" \t\r\n")
    if stripped.startswith("#"):
        return []
    try:
        return split_words(stripped)
    except UnicodeEncodeError:
        raise ConfigError(problem="the line holds something that no UTF-8 file can hold") from None
    except ValueError:
        problem = "unbalanced quotes: a quote is not closed, or a closing quote is not followed by a blank"
        raise ConfigError(stripped.split(maxsplit=1)[0], problem=problem) from None


class StatedSettings:
    """What one file, or the command line, says itself: to find lines that contradict each other."""

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}
        self.values: dict[str, Any] = {}
        self._settings: dict[str, Setting[Any]] = {}

    def add(self, setting: Setting[Any], value: Any, line: int = 0) -> None:
        """Note one directive. Raises: BadValue when it contradicts an earlier one."""
        self.lines[setting.name], self.values[setting.name] = line, value
        self._settings[setting.name] = setting
        store, appendonly = self.values.get("persistence"), self.values.get("appendonly")
        if store is None or appendonly is None or appendonly == (store == "aof"):
            return
        other = "appendonly" if setting.name == "persistence" else "persistence"
        earlier = f"{other} {self._settings[other].kind.format(self.values[other])}"
        where = f" of line {self.lines[other]}" if self.lines[other] else ""
        raise setting.fault(setting.kind.format(value), f"contradicts {earlier}{where}; keep one of the two")


def _content(path: Path) -> bytes:
    """What is in a file.  Raises OSError."""
    # A pipe with a name may have no writer, and would be waited for; those of a shell, <(...), have one.
    if path.is_fifo() and not str(path).startswith(("/dev/", "/proc/")):
        raise OSError(errno.EINVAL, "it is a pipe; a file is needed")
    return path.read_bytes()


class _Reader:
    """Reads a file and those that it includes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._chain: list[str] = []  # real paths of the files being read, outermost first

    def file(self, path: str) -> Iterator[Directive]:
        real = os.path.realpath(path)
        if real in self._chain:
            route = " > ".join(map(os.path.basename, (*self._chain, real)))
            raise ConfigError("include", path, problem=f"the file includes itself ({route})")
        try:
            text = as_text(_content(Path(path)))
        except OSError as error:
            if not self._chain:
                raise ConfigError(path=path, problem=f"cannot be read: {error.strerror}") from None
            raise ConfigError("include", path, problem=f"cannot be read: {error.strerror}") from None
        yield from self.text(text, path)

    def text(self, text: str, origin: str) -> Iterator[Directive]:
        self._chain.append(os.path.realpath(origin))
        stated = StatedSettings()
        for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
            try:
                yield from self._line(line, origin, number, stated)
            except ConfigError as error:
                raise error.at(origin, number) from None
        self._chain.pop()

    def _line(self, line: str, origin: str, number: int, stated: StatedSettings) -> Iterator[Directive]:
        words = words_of(line)
        if not words:
            return
        setting = setting_called(words[0], self._settings)
        value = setting.parse_words(words[1:])
        if setting.name == "include":
            yield from self.file(os.path.join(os.path.dirname(origin), value))
            return
        earlier = stated.lines.get(setting.name, 0)
        stated.add(setting, value, number)
        included = len(self._chain) > 1
        yield Directive(setting=setting, value=value, path=origin, line=number, earlier=earlier, included=included)
