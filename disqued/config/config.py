"""The values of one daemon's settings: taken from files and arguments, changed through `set`, written back."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Self

import attrs

from disqued.acl.passwords import digest_of, is_short
from disqued.config import checks
from disqued.config.combined import CombinedSettings
from disqued.config.declaration import Setting
from disqued.config.errors import BadValue, ConfigError, NoConfigFile, NotMutable
from disqued.config.kinds import RedisAddress, Renames
from disqued.config.quoting import as_bytes, as_text
from disqued.config.reader import Directive, StatedSettings, read_file, read_text, setting_called
from disqued.config.rewrite import rewritten
from disqued.core.model import glob
from disqued.files import replace_file

#: Two names of one thing: which store is used.
_STORE_NAMES: Final = ("persistence", "appendonly")


@attrs.frozen
class _Place:
    """Where the value that counts was given."""

    path: str
    line: int


class Config(CombinedSettings):
    """The settings of one daemon: read, checked, then changed through `set`.

    `config.tcp_backlog` is a value with its type, `config["tcp-backlog"]` the same by the name of the setting.  Reading
    costs a look-up: code that needs a value often keeps it and subscribes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._values["dir"] = self.settings["dir"].parse(".")
        self.file: Path | None = None  #: absolute path of the file that `rewrite` writes
        self.warnings: list[str] = []  #: what the start should tell: no effect, given twice
        self._places: dict[str, _Place] = {}
        self._included: dict[str, Any] = {}  # what files that the main file includes gave last
        self._subscribers: dict[str, list[Callable[[Any], None]]] = {}
        self._file_digest = b""  # of the password that requirepass-file holds, once it was read
        self._file_is_short = False  # that password

    @classmethod
    def from_text(cls, text: str, origin: str = "disqued.conf") -> Self:
        """Read the text of a file; `origin` names it in errors and is where relative includes start.

        Raises: ConfigError.
        """
        config = cls()
        config._take_all(read_text(text, origin, cls.settings))
        return config

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file, which `rewrite` will write. Raises: ConfigError."""
        config = cls()
        config._take_all(read_file(os.fspath(path), cls.settings))
        config.file = Path(os.path.realpath(path))
        return config

    def apply_arguments(self, arguments: Iterable[tuple[str, str]]) -> None:
        """Take options of the command line, (name, text) in their order; they win over the file.

        Raises: ConfigError, which names the option.
        """
        stated = StatedSettings()
        for name, text in arguments:
            try:
                self._apply_argument(name.lstrip("-"), text, stated)
            except ConfigError as error:
                if not error.path:
                    error.directive = f"--{error.directive}"
                raise error.at("command line") from None

    def _apply_argument(self, name: str, text: str, stated: StatedSettings) -> None:
        setting = setting_called(name, self.settings)
        value = setting.parse(text)
        if setting.name == "include":
            self._take_all(read_file(value, self.settings), rewritten=False)
            return
        stated.add(setting, value)
        self._take(setting, value, _Place("command line", 0))

    def check(self) -> None:
        """Refuse what no single directive shows, once file and command line are read.

        Raises: BadValue.
        """
        try:
            checks.check(self)
        except BadValue as error:
            raise error.at(*self.place_of(error.directive)) from None

    def holds_secret(self, name: str) -> bool:
        """Return whether the value of a setting is a secret, or contains one."""
        return bool(RedisAddress.of(self.redis_url).password) if name == "redis-url" else bool(self[name])

    def place_of(self, name: str) -> tuple[str, int]:
        """Where a setting was given last: the file and the line from 1 on, "command line" and 0; "" for nowhere."""
        place = self._places.get(name, _Place("", 0))
        return place.path, place.line

    def is_given(self, name: str) -> bool:
        """Return whether a file or the command line gives a setting."""
        return name in self._places

    @property
    def password_digest(self) -> bytes:
        """SHA-256 of what clients have to give: of the setting, or of the file; b"" = nothing.

        What the file holds is kept in no other way; what the setting gives has to be shown and written back.
        """
        if self._file_digest or not self.requirepass:
            return self._file_digest
        return digest_of(as_bytes(self.requirepass))

    @property
    def has_short_password(self) -> bool:
        """True when what clients have to give is found by trying."""
        if self._file_digest or not self.requirepass:
            return self._file_is_short
        return is_short(as_bytes(self.requirepass))

    def use_password(self, password: str) -> None:
        """Use the password in requirepass-file from now on; call the subscribers of requirepass when it has changed."""
        digest = digest_of(as_bytes(password))
        if digest == self._file_digest:
            return
        self._file_digest, self._file_is_short = digest, is_short(as_bytes(password))
        for callback in self._subscribers.get("requirepass", ()):
            callback(password)

    def matching(self, pattern: bytes | str) -> list[tuple[str, str]]:
        """Names and values as CONFIG GET shows them, for names that a glob pattern covers, in any case."""
        wanted = pattern.encode("utf-8", "surrogatepass") if isinstance(pattern, str) else pattern
        return [
            (name, setting.kind.format(self[name]))
            for name, setting in self.settings.items()
            if setting.listed and glob.matches(wanted, name.encode(), ignore_case=True)
        ]

    def subscribe(self, name: str, callback: Callable[[Any], None]) -> None:
        """Have `callback` called with each new value of a setting; it may raise ConfigError to refuse it.

        A setting that changes along with another (persistence and appendonly) is told of, too.
        """
        self._subscribers.setdefault(setting_called(name, self.settings).name, []).append(callback)

    def set(self, name: str, text: str) -> None:
        """Change a setting while the daemon runs, or leave everything as it was.

        Raises: UnknownDirective, NotMutable, BadValue, and what a subscriber refuses with.
        """
        setting = setting_called(name, self.settings)
        if not setting.mutable:
            raise NotMutable(setting.name)
        if setting.name == "requirepass" and self.requirepass_file is not None:
            raise setting.fault(text, "the password is that of requirepass-file; change it there")
        new = self._with_linked(setting.name, setting.parse(text))
        old = {name: self[name] for name in new}
        self._values |= new
        try:
            self._check_change(setting, text)
            self._tell(new, old)
        except Exception:
            self._values |= old
            raise
        self._places |= dict.fromkeys(new, _Place("", 0))
        self._warn(setting.warning)

    def _with_linked(self, name: str, value: Any) -> dict[str, Any]:
        """A new value, and that of the other name of the same thing if it follows."""
        if name == "persistence" and self.appendonly != (value == "aof"):
            return {name: value, "appendonly": value == "aof"}
        if name == "appendonly" and value != (self.persistence == "aof"):
            return {name: value, "persistence": "aof" if value else "none"}
        return {name: value}

    def _tell(self, new: dict[str, Any], old: dict[str, Any]) -> None:
        """Tell the subscribers; when one refuses, those that were told before it hear of the old values again."""
        told: list[tuple[Callable[[Any], None], str]] = []
        try:
            for name, value in new.items():
                for callback in self._subscribers.get(name, ()):
                    callback(value)
                    told.append((callback, name))
        except Exception:
            self._values |= old
            for callback, name in reversed(told):
                callback(old[name])
            raise

    def _check_change(self, setting: Setting[Any], text: str) -> None:
        try:
            self.check()
        except BadValue as error:
            raise setting.fault(text, str(error)) from None

    def rewrite(self) -> None:
        """Bring the file up to date, in one step that a crash cannot leave half done; see `rewrite`.

        Where a secret stands among the settings, other users of the machine may read it no more.

        Raises: NoConfigFile, OSError.
        """
        if self.file is None:
            raise NoConfigFile
        try:
            old = as_text(self.file.read_bytes())
        except FileNotFoundError:
            old = ""
        new = rewritten(old, self.settings, self._values, self._included)
        secrets = (name for name, setting in self.settings.items() if setting.secret)
        replace_file(self.file, as_bytes(new), is_private=any(map(self.holds_secret, secrets)))

    def _take_all(self, files: Iterable[Directive], *, rewritten: bool = True) -> None:
        """Take what files give; `rewritten`: the first of them is the one that `rewrite` writes."""
        for given in files:
            setting = given.setting
            if given.earlier and setting.name != "rename-command":
                lines = f"lines {given.earlier} and {given.line}"
                self._warn(f"{given.path}: {setting.name} is given on {lines}; the last one counts")
            try:
                self._take(setting, given.value, _Place(given.path, given.line))
            except ConfigError as error:
                raise error.at(given.path, given.line) from None
            if rewritten and given.included:
                names = _STORE_NAMES if setting.name in _STORE_NAMES else (setting.name,)
                self._included.update((name, self[name]) for name in names)

    def _take(self, setting: Setting[Any], value: Any, place: _Place) -> None:
        """Let a value count from here on."""
        name = setting.name
        if name == "rename-command":
            value = self._renames_with(value, place)
        self._values |= self._with_linked(name, value)
        self._places[name] = place
        self._warn(setting.warning)

    def _renames_with(self, added: tuple[tuple[str, str], ...], place: _Place) -> tuple[tuple[str, str], ...]:
        """Renames add up; those of the command line replace what the file says of the same command."""
        replaced = {old for old, _ in added} if not place.line else set()
        pairs = (*(pair for pair in self.rename_command if pair[0] not in replaced), *added)
        try:
            Renames().check(pairs)
        except ValueError as error:
            raise self.settings["rename-command"].fault(Renames().format(added), str(error)) from None
        return pairs

    def _warn(self, warning: str) -> None:
        if warning and warning not in self.warnings:
            self.warnings.append(warning)
