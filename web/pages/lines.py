"""What can be done from the page, and the lines of redis-cli and curl that do the same.

    Action --template--> a form, whose JSON body the script sends     the same fields
       |                                                                    |
       +--redis_line, curl_line--> lines to copy, which the script writes anew while somebody types

A line is for a POSIX shell.  Words that are plain text are quoted for the shell; where a word holds bytes that no
argument should (control characters, NUL, what is no UTF-8), the command goes to redis-cli on its standard input, in
redis-cli's own quotes.  No line holds a secret: curl's takes the token from ``$TOKEN``, and redis-cli itself reads the
password from the environment variable REDISCLI_AUTH.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from disqued.web.http.exchange import Role
from disqued.web.http.values import as_json
from disqued.web.routes import ROUTES, missing_command

_PLAIN: Final = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


@attrs.frozen
class Input:
    """A field of a form."""

    name: str  #: of the JSON body; `backoff.first` is a part of a field
    label: str
    #: text, area, number; seconds: a number with a fraction; choice: one of `choices`; flag: a box, which stands for
    #: true; list: words with spaces between; pairs: the same, such as name=value; picked: the jobs selected in a table
    kind: str = "text"
    value: str = ""  #: what stands in it first
    hint: str = ""  #: what stands in it while it is empty
    word: str = ""  #: redis-cli's word before the value, or that of a flag; with one, an empty field is left out
    spare: bool = False  #: an empty field is left out without a word, too
    needed: bool = False  #: the browser does not send the form while it is empty
    choices: Sequence[str] = ()  #: the values of a select box; with a hint, an empty field is one, too
    labels: Mapping[str, str] = attrs.field(factory=dict)  #: of choices that do not speak for themselves

    @property
    def is_optional(self) -> bool:
        """True if the request has no such field while it is empty."""
        return self.spare or bool(self.word) or self.kind in ("number", "seconds", "pairs")

    @property
    def is_left_out(self) -> bool:
        """True if the request has no such field while nobody has typed anything."""
        return not self.value and self.is_optional

    def of(self, text: str) -> Any:
        """The JSON value that a text in the field stands for."""
        if self.kind == "picked":
            return [text]
        if self.kind == "list":
            return text.split()
        if self.kind == "pairs":
            return [{"name": name, "value": value} for name, value in _pairs(text)]
        if self.kind == "flag":
            return bool(text)
        if self.kind == "seconds":
            return float(text) if "." in text else int(text)
        return int(text) if self.kind == "number" else text

    @property
    def texts(self) -> list[str]:
        """The words of the command while nobody has typed anything."""
        if self.kind == "list":
            return self.value.split()
        if self.kind == "pairs":
            return [text for pair in _pairs(self.value) for text in (self.word, *pair)]
        if self.is_left_out:
            return []
        if self.kind == "flag":
            return [self.word]
        return [self.word, self.value] if self.word else [self.value]


def _pairs(text: str) -> list[tuple[str, str]]:
    """The names and values in words such as name=value."""
    return [(name, value) for name, _, value in (word.partition("=") for word in text.split())]


#: The jobs that are selected in the table of the page.
PICKED: Final = Input("ids", "", "picked", "<id>")


@attrs.frozen
class Action:
    """One thing that can be done: a POST with a JSON body, which is a command, too."""

    key: str  #: for ids of elements; unique on a page
    label: str  #: on the button
    path: str  #: of the API
    words: Sequence[bytes | Input]  #: the command
    fixed: Mapping[str, Any]  #: what of the JSON body is not asked for
    done: str  #: what is said when it has worked
    confirm: str = ""  #: the question before it; empty = none is asked; of jobs that are counted, what becomes of them
    previews: bool = False  #: a dry run answers instants, in unix seconds, which are told before the question
    counted: str = ""  #: where the API tells, as `len`, how many it is about; they are counted before the question
    role: Role = Role.OPERATOR
    ends: bool = False  #: the job may be gone afterwards
    danger: bool = False  #: it ends or drops something: the button has the danger color
    redis: str | None = None  #: the line of redis-cli, where it is no single command; empty = there is none

    @property
    def is_possible(self) -> bool:
        """False while `rename-command` keeps the node from what the action does."""
        return all(
            missing_command(entry) is None for entry in ROUTES if (entry.method, entry.path) == ("POST", self.path)
        )

    @property
    def inputs(self) -> list[Input]:
        """What is asked for in the form."""
        return [word for word in self.words if isinstance(word, Input) and word.kind != "picked"]

    @property
    def body(self) -> dict[str, Any]:
        """The JSON body while nobody has typed anything."""
        found: dict[str, Any] = as_json(dict(self.fixed))
        for one in self.words:
            if isinstance(one, Input) and not one.is_left_out:
                name, _, part = one.name.partition(".")
                value = one.of(one.value)
                found[name] = {**found.get(name, {}), part: value} if part else value
        return found

    @property
    def command(self) -> list[bytes]:
        """The command while nobody has typed anything."""
        words: list[bytes] = []
        for word in self.words:
            words += [word] if isinstance(word, bytes) else [text.encode() for text in word.texts]
        return words

    @property
    def script(self) -> str:
        """What the script needs to know, as JSON."""
        words: list[Any] = []
        if self.redis is None:
            words = [as_json(word) if isinstance(word, bytes) else {"input": word.name} for word in self.words]
        return json.dumps({"path": self.path, "fixed": as_json(dict(self.fixed)), "words": words})


def quoted(text: str) -> str:
    """A word for a POSIX shell."""
    return text if _PLAIN.fullmatch(text) else "'" + text.replace("'", "'\\''") + "'"


def redis_line(words: Sequence[bytes], port: int, host: str = "") -> str:
    """The line of redis-cli that runs a command, here or on another host."""
    start = f"redis-cli -h {quoted(host)} -p {port}" if host else f"redis-cli -p {port}"
    texts = [_as_argument(word) for word in words]
    if None not in texts:
        return " ".join([start, *(quoted(text) for text in texts if text is not None)])
    inner = " ".join(map(_redis_quoted, words))
    return f"printf '%s\\n' {quoted(inner)} | {start}"


def _as_argument(word: bytes) -> str | None:
    """A word as text, where it can be seen and passed as an argument."""
    try:
        text = word.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _redis_quoted(word: bytes) -> str:
    """A word in redis-cli's quotes: ``"a\\x00b"``."""
    if _PLAIN.fullmatch(word.decode("latin-1")):
        return word.decode("ascii")
    escaped = (chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\x{b:02x}" for b in word)
    return '"' + "".join(escaped) + '"'


def curl_line(path: str, body: Mapping[str, Any], base: str, *, with_token: bool) -> str:
    """The line of curl that asks for the same; the token, where one is needed, is in ``$TOKEN``."""
    token = ' -H "Authorization: Bearer $TOKEN"' if with_token else ""
    text = json.dumps(body, separators=(",", ":"))
    return f"curl{token} -H 'Content-Type: application/json' -d {quoted(text)} {quoted(base + path)}"
