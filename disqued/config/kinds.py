"""The kinds of values that settings take: how they are read, shown and written, and which are allowed.

A kind refuses a text with ValueError, whose own text says more where `describe` alone would not do.  Sizes are bytes.

Source: Disque 1.0-rc1, whose units these are.
"""

import abc
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Generic, Self, TypeVar
from urllib.parse import unquote

import attrs

from disqued.config.quoting import as_bytes, as_text, quoted, split_words

T = TypeVar("T")

MAX_ADDRESSES: Final = 16
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


class Kind(abc.ABC, Generic[T]):
    """A type of values: how they are read, shown and written, and which are allowed."""

    @abc.abstractmethod
    def parse(self, text: str) -> T:
        """Read one value. Raises: ValueError, with a text when `describe` alone would not say what is wrong."""

    def format(self, value: T) -> str:
        """Show it as CONFIG GET does; `parse` reads it back."""
        return str(value)

    @abc.abstractmethod
    def describe(self) -> str:
        """Say what is allowed: a plural, to follow "allowed are"."""

    def written(self, value: T) -> str:
        """Write it as the rest of a line of the file."""
        return self.format(value)

    def parse_words(self, words: Sequence[str]) -> T:
        """Read the words of a line of the file."""
        if len(words) != 1:
            raise ValueError(f"takes one value, not {len(words)}{_comment_hint(words)}")
        return self.parse(words[0])


def _comment_hint(words: Sequence[str]) -> str:
    commented = any(word.startswith("#") for word in words)
    return " (a comment needs a line of its own)" if commented else ""


_WHOLE = re.compile(r"-?[0-9]{1,19}")
_SIZE = re.compile(r"([0-9]{1,19})([kmg]?b?)", re.IGNORECASE)
_FACTORS = {"": 1, "b": 1, "k": 10**3, "kb": 2**10, "m": 10**6, "mb": 2**20, "g": 10**9, "gb": 2**30}


@attrs.frozen
class WholeNumber(Kind[int]):
    """A whole number in a range."""

    low: int = 0
    high: int = INT32_MAX

    def parse(self, text: str) -> int:
        if not _WHOLE.fullmatch(text) or not self.low <= int(text) <= self.high:
            raise ValueError
        return int(text)

    def describe(self) -> str:
        return f"whole numbers from {self.low} to {self.high}"


@attrs.frozen
class KeepAlive(WholeNumber):
    """Seconds, or yes and no as Disque's CONFIG SET knows them."""

    high: int = 32767  # more the system does not take
    yes: int = 300

    def parse(self, text: str) -> int:
        spoken = {"yes": self.yes, "no": 0}.get(text.lower())
        return super().parse(text) if spoken is None else spoken

    def describe(self) -> str:
        return f"{super().describe()}, yes (which means {self.yes}) and no (0)"


@attrs.frozen
class Octal(Kind[int]):
    """Permission bits."""

    high: int

    def parse(self, text: str) -> int:
        if not re.fullmatch("[0-7]{1,6}", text) or int(text, 8) > self.high:
            raise ValueError
        return int(text, 8)

    def format(self, value: int) -> str:
        return f"{value:o}"

    def describe(self) -> str:
        return f"octal numbers from 0 to {self.high:o}"


@attrs.frozen
class Size(Kind[int]):
    """A number of bytes; 1k is 1000, 1kb is 1024."""

    low: int = 0
    high: int = INT64_MAX

    def parse(self, text: str) -> int:
        match = _SIZE.fullmatch(text)
        if match is None:
            raise ValueError
        size = int(match[1]) * _FACTORS[match[2].lower()]
        if size > INT64_MAX:
            raise ValueError("too large to be counted in 63 bits")
        if not self.low <= size <= self.high:
            raise ValueError
        return size

    def written(self, value: int) -> str:
        for unit in ("gb", "mb", "kb"):
            if value and value % _FACTORS[unit] == 0:
                return f"{value // _FACTORS[unit]}{unit}"
        return str(value)

    def describe(self) -> str:
        least = self.written(self.low) if self.low >= 1024 else f"{self.low} byte{'s' * (self.low != 1)}"
        bounds = f"from {least} to {self.written(self.high)}" if self.high < INT64_MAX else f"from {least} up"
        return f"sizes {bounds}, such as 100mb"


@attrs.frozen
class YesNo(Kind[bool]):
    """A switch."""

    def parse(self, text: str) -> bool:
        if text.lower() not in ("yes", "no"):
            raise ValueError
        return text.lower() == "yes"

    def format(self, value: bool) -> str:
        return "yes" if value else "no"

    def describe(self) -> str:
        return "yes and no"


@attrs.frozen
class Choice(Kind[str]):
    """One of a few words."""

    words: tuple[str, ...]

    def parse(self, text: str) -> str:
        if text.lower() not in self.words:
            raise ValueError
        return text.lower()

    def describe(self) -> str:
        return " and ".join(filter(None, (", ".join(self.words[:-1]), self.words[-1])))


@attrs.frozen
class OnlyNo(Choice):
    """A switch that this daemon cannot turn on."""

    instead: str

    def parse(self, text: str) -> str:
        try:
            return super().parse(text)
        except ValueError:
            raise ValueError(self.instead) from None

    def describe(self) -> str:
        return "nothing but no"


@attrs.frozen
class Text(Kind[str]):
    """Any text, the empty one as well."""

    max_bytes: int = 4096

    def parse(self, text: str) -> str:
        if len(as_bytes(text)) > self.max_bytes:
            raise ValueError
        return as_text(as_bytes(text))  # so that bytes given singly and together are the same text

    def written(self, value: str) -> str:
        return quoted(value)

    def describe(self) -> str:
        return f"texts of at most {self.max_bytes} bytes"


@attrs.frozen
class FilePath(Text):
    """The path of a file, or nothing."""

    def parse(self, text: str) -> str:
        if "\0" in text:
            raise ValueError
        return super().parse(text)

    def describe(self) -> str:
        return 'paths without NUL bytes, and "" for none'


class FolderPath(FilePath):
    """The path of a folder, which need not be there yet."""

    def parse(self, text: str) -> str:
        if not text:
            raise ValueError
        return super().parse(text)

    def describe(self) -> str:
        return "paths without NUL bytes"


@attrs.frozen
class StoreName(Text):
    """The name of a store; whether a store of this name is installed is known at the start only."""

    max_bytes: int = 64
    known: tuple[str, ...] = ()  #: those that come with disqued

    def parse(self, text: str) -> str:
        name = text.lower()
        if len(name) > self.max_bytes or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
            raise ValueError
        return name

    def written(self, value: str) -> str:
        return value

    def describe(self) -> str:
        return f"{', '.join(self.known)} and names of stores that plugins bring (of a-z, 0-9 and - within)"


@attrs.frozen
class Prefix(Text):
    """What names begin with that are kept among those of others."""

    max_bytes: int = 128

    def parse(self, text: str) -> str:
        if not text or not text.isprintable() or any(character in " {}" for character in text):
            raise ValueError
        return super().parse(text)

    def describe(self) -> str:
        return f"texts of 1 to {self.max_bytes} bytes without blanks, braces and control characters"


@attrs.frozen
class RedisUrl(Text):
    """Where a Redis server is: redis://[[user]:password@]host[:port][/db]."""

    def parse(self, text: str) -> str:
        RedisAddress.of(text)
        return super().parse(text)

    def describe(self) -> str:
        return "URLs redis://[[user]:password@]host[:port][/db], an IPv6 host in [], what is special as %HH"


@attrs.frozen(kw_only=True)
class RedisAddress:
    """The parts of a Redis server's URL."""

    host: str
    port: int
    db: int
    user: str  #: empty: the default user
    password: str = attrs.field(repr=False)  #: empty: none

    @classmethod
    def of(cls, url: str) -> Self:
        """Take a URL apart. Raises: ValueError, which says what is wrong and never shows the password."""
        scheme, mark, rest = url.partition("://")
        if not mark or scheme.lower() != "redis":
            raise ValueError("the URL has to begin with redis:// (TLS, rediss://, is not spoken)")
        if not rest.isprintable() or any(character in rest for character in " ?#"):
            raise ValueError("blanks, control characters, ? and # are not possible in it")
        authority, _, path = rest.partition("/")
        account, _, place = authority.rpartition("@")
        user, _, password = account.partition(":")
        if user and not password:
            raise ValueError("the user has no password")
        host, port = _host_and_port(place)
        return cls(host=host, port=port, db=_database(path), user=unquote(user), password=unquote(password))


def _host_and_port(place: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\[\]:@]+))(?::([0-9]{1,5}))?", place)
    if match is None:
        raise ValueError("the host, or its port, is not one")
    port = int(match[3] or 6379)
    if not 1 <= port <= 65535:
        raise ValueError("the port is not from 1 to 65535")
    return match[1] or unquote(match[2]), port


def _database(path: str) -> int:
    if not re.fullmatch("[0-9]{0,5}", path):
        raise ValueError("what follows the last / is not the number of a database")
    return int(path or 0)


@attrs.frozen
class FileName(Text):
    """A name within the folder `dir`."""

    max_bytes: int = 255

    def parse(self, text: str) -> str:
        if text in ("", ".", "..") or "/" in text or "\0" in text:
            raise ValueError
        return super().parse(text)

    def describe(self) -> str:
        return f"file names without / of 1 to {self.max_bytes} bytes"


@attrs.frozen
class Folder(Kind[Path]):
    """A folder that exists; kept absolute, so that a later change of the current folder means nothing."""

    def parse(self, text: str) -> Path:
        if not text or "\0" in text:
            raise ValueError
        try:
            path = os.path.realpath(as_text(as_bytes(text)))
        except OSError as error:
            raise ValueError(f"the current folder is not known ({error.strerror})") from None
        if not os.path.isdir(path):
            raise ValueError("there is no such folder" if not os.path.lexists(path) else "this is not a folder")
        return Path(path)

    def written(self, value: Path) -> str:
        return quoted(str(value))

    def describe(self) -> str:
        return "paths of existing folders"


@attrs.frozen
class Addresses(Kind[tuple[str, ...]]):
    """IP addresses to listen on."""

    def parse(self, text: str) -> tuple[str, ...]:
        return self.parse_words(text.split())

    def parse_words(self, words: Sequence[str]) -> tuple[str, ...]:
        if not 1 <= len(words) <= MAX_ADDRESSES:
            raise ValueError
        addresses = tuple(map(self._address, words))
        if len(set(addresses)) < len(addresses):
            raise ValueError("an address is given twice")
        return addresses

    @staticmethod
    def _address(word: str) -> str:
        if not re.fullmatch(r"[0-9A-Za-z.:%_-]+", word):
            raise ValueError
        try:
            return str(ipaddress.ip_address(word))
        except ValueError:
            raise ValueError(f"{word} is not an address") from None

    def format(self, value: tuple[str, ...]) -> str:
        return " ".join(value)

    def describe(self) -> str:
        return f"1 to {MAX_ADDRESSES} IPv4 and IPv6 addresses (0.0.0.0 and :: stand for all interfaces)"


@attrs.frozen
class AddressesOrNone(Addresses):
    """IP addresses to listen on, or nothing."""

    def parse_words(self, words: Sequence[str]) -> tuple[str, ...]:
        return () if list(words) in ([], [""]) else super().parse_words(words)

    def written(self, value: tuple[str, ...]) -> str:
        return self.format(value) or '""'

    def describe(self) -> str:
        return f'{super().describe()}, and "" for none'


@attrs.frozen
class AddressOrNone(Kind[str]):
    """The IP address of one machine, or nothing."""

    def parse(self, text: str) -> str:
        if not text:
            return ""
        (address,) = Addresses().parse_words([text])
        if "%" in address:
            raise ValueError("an address that other machines are told can name no interface of this one")
        if ipaddress.ip_address(address).is_unspecified:
            raise ValueError(f"{address} stands for all interfaces and is not one address")
        return address

    def written(self, value: str) -> str:
        return value or '""'

    def describe(self) -> str:
        return 'IPv4 and IPv6 addresses, and "" for none'


@attrs.frozen
class OutputLimit:
    """How much a client may leave unread before it is disconnected."""

    hard: int  #: bytes; more closes the connection at once; 0: no such limit
    soft: int  #: bytes; more than this ...
    soft_seconds: int  #: ... for so long closes it too; 0 for either: no such limit


@attrs.frozen
class OutputLimits(Kind[OutputLimit]):
    """`normal hard soft seconds`; normal clients are the only class there is."""

    _size = Size()
    _span = WholeNumber()

    def parse(self, text: str) -> OutputLimit:
        return self.parse_words(text.split())

    def parse_words(self, words: Sequence[str]) -> OutputLimit:
        if len(words) != 4 or words[0].lower() != "normal":
            raise ValueError
        return OutputLimit(self._size.parse(words[1]), self._size.parse(words[2]), self._span.parse(words[3]))

    def format(self, value: OutputLimit) -> str:
        return f"normal {value.hard} {value.soft} {value.soft_seconds}"

    def written(self, value: OutputLimit) -> str:
        return f"normal {self._size.written(value.hard)} {self._size.written(value.soft)} {value.soft_seconds}"

    def describe(self) -> str:
        return "four words: normal, hard limit, soft limit (sizes, 0 for none), whole seconds from 0 to 2147483647"


@attrs.frozen
class SomeOf(Kind[tuple[str, ...]]):
    """One or more of a few words, in any case and order; kept as the table has them."""

    known: tuple[str, ...]

    def parse(self, text: str) -> tuple[str, ...]:
        return self.parse_words(text.split())

    def parse_words(self, words: Sequence[str]) -> tuple[str, ...]:
        asked = {word.lower() for word in words}
        found = tuple(word for word in self.known if word.lower() in asked)
        if not found or len(found) < len(asked):
            raise ValueError
        return found

    def format(self, value: tuple[str, ...]) -> str:
        return " ".join(value)

    def describe(self) -> str:
        return f"one or more of {', '.join(self.known)}"


@attrs.frozen
class EndpointStrings(Kind[tuple[str, ...]]):
    """Endpoint strings of Twisted, or none; what they say is found out when they are listened at."""

    def parse(self, text: str) -> tuple[str, ...]:
        return self.parse_words(split_words(text))

    def parse_words(self, words: Sequence[str]) -> tuple[str, ...]:
        texts = tuple(filter(None, words))
        if len(texts) > MAX_ADDRESSES or any("\0" in text for text in texts):
            raise ValueError
        if len(set(texts)) < len(texts):
            raise ValueError("an endpoint is given twice")
        return texts

    def format(self, value: tuple[str, ...]) -> str:
        return " ".join(map(quoted, value))

    def written(self, value: tuple[str, ...]) -> str:
        return self.format(value) or '""'

    def describe(self) -> str:
        return f'up to {MAX_ADDRESSES} endpoint strings of Twisted (tcp:, ssl:, unix:, systemd:), and "" for none'


@attrs.frozen
class Renames(Kind[tuple[tuple[str, str], ...]]):
    """Pairs of a command's name and its new name; an empty new name removes the command."""

    def parse(self, text: str) -> tuple[tuple[str, str], ...]:
        return self.parse_words(split_words(text))

    def parse_words(self, words: Sequence[str]) -> tuple[tuple[str, str], ...]:
        if len(words) % 2 or not all(words[::2]):
            raise ValueError
        pairs = tuple((old.upper(), new.upper()) for old, new in zip(words[::2], words[1::2], strict=True))
        self.check(pairs)
        return pairs

    def check(self, pairs: tuple[tuple[str, str], ...]) -> None:
        """Refuse two new names for one command and one new name for two."""
        olds = [old for old, _ in pairs]
        news = [new for _, new in pairs if new]
        if len(set(olds)) < len(olds):
            raise ValueError("the command is renamed already")
        if len(set(news)) < len(news):
            raise ValueError("the new name is given already")

    def format(self, value: tuple[tuple[str, str], ...]) -> str:
        return " ".join(quoted(word) for pair in value for word in pair)

    def describe(self) -> str:
        return 'two words: a command and its new name, "" to remove it'
