"""The table of commands: what each is called, how it is written, what it does, what it answers.

A command is an attrs class.  Its fields are its grammar, its docstring is its manual, the decorator says the rest,
`run` is its code:

    @command("QLEN", group="queues", flags=Flag.READ | Flag.FAST, since="0.1.0", reply=integer("jobs"), cost="O(1)")
    @attrs.define
    class QLen:
        \"\"\"Length of a queue on this node.\"\"\"

        queue: bytes = positional("Queue to measure.")

        def run(self, node: Node, client: Client) -> int: ...

The parser of a command is generated from its fields as Python source and compiled once: no loop over a grammar
stands on the way of an ADDJOB.  Arity, COMMAND, COMMAND DOCS and the reference pages are read off the same fields.

A command with subcommands (CONFIG GET, CONFIG SET) is a `Container`; each subcommand is a command of its own.
"""

import inspect
import linecache
from collections.abc import Callable, Iterable, Iterator
from enum import Flag as EnumFlag
from enum import auto
from typing import Any, Final, TypeVar

import attrs

from disqued.commands import runnable, shapes
from disqued.commands.runnable import Runnable
from disqued.commands.shapes import Shape
from disqued.commands.values import BYTES, Kind, readable, reader_of_ids
from disqued.core.node import Call
from disqued.errors import (
    BadJobId,
    CommandError,
    EmptyKey,
    NotAnInteger,
    NothingNamed,
    SyntaxFault,
    TooManyWords,
    UnknownCommand,
    WrongArity,
)
from disqued.wire.pieces import Text

WORDS_MAX = 1_024  #: words of a command at most, but for those that take very many job ids
TWICE: Final = "{} is given twice; allowed is once"
LONG = 500  #: words of a command on many job ids that are dealt with in one step

#: Returned by a command whose client is now blocked: its reply comes in a later step.
BLOCKED: Final = runnable.BLOCKED
Parser = Callable[[list[bytes]], Call]  #: the words of a command, with its name -> what is to be run

#: Returned by a command that has no reply at all.
NO_REPLY: Final = shapes.NO_REPLY


class Flag(EnumFlag):
    """What a command is, in Disque's words."""

    NONE = 0
    WRITE = auto()
    READ = auto()
    DENY_OOM = auto()  #: refused when memory is full
    ADMIN = auto()
    LOADING = auto()  #: answered while the journal is loaded
    FAST = auto()


FLAG_WORDS = {
    Flag.WRITE: b"write",
    Flag.READ: b"readonly",
    Flag.DENY_OOM: b"denyoom",
    Flag.ADMIN: b"admin",
    Flag.LOADING: b"loading",
    Flag.FAST: b"fast",
}


@attrs.frozen
class Arg:
    """One element of a command's grammar."""

    style: str  #: positional, optional, option, flag or rest
    doc: str
    kind: Kind
    keyword: bytes | None = None  #: word before the value; for a flag the word itself
    repeats: bool = False  #: an option that may be given several times; the value is the tuple of all
    once: bool = False  #: an option or a flag that is refused when it is given twice; otherwise the last one counts
    parts: tuple[str, ...] = ()  #: names of the values after the keyword, where there are several
    spare: bool = False  #: the last of these may be left out: the next word is that value only if it is a number
    words: tuple[str, ...] = ()  #: words before each of these, where they have some; the first one's is the keyword
    kinds: tuple[Kind, ...] = ()  #: of each of these, where they have words and are not all of `kind`
    leads: bool = False  #: an optional argument that is nowhere but directly behind the positional ones
    last: str = ""  #: of a flag behind which nothing is allowed: the error of what follows
    minimum: int = 0  #: of a rest
    long: bool = False  #: a rest that may have any length; see `rest`
    bare: bool = False  #: a rest whose word may be left out
    no_id: str = ""  #: of a rest of job ids: the error of a word that is neither one nor an option

    @property
    def read(self) -> Callable[[bytes], Any] | None:
        """The reader of one value; None: it is taken as it is."""
        read = self.kind.read
        return reader_of_ids(read, self.no_id) if self.no_id and read is not None else read

    @property
    def errors(self) -> tuple[str, ...]:
        """Lines of the errors that a value may meet."""
        plain = f"{BadJobId.code} {BadJobId.__doc__}"
        told = f"{BadJobId.code} {self.no_id}" if self.no_id else plain
        lines = dict.fromkeys(line for kind in (self.kind, *self.kinds) for line in kind.errors)
        return tuple(told if line == plain else line for line in lines)

    def kind_of(self, part: str) -> Kind:
        """The kind of one of several values after the keyword."""
        return self.kinds[self.parts.index(part)] if self.kinds else self.kind

    @property
    def width(self) -> int:
        """Values after the keyword."""
        return len(self.parts) or 1

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the values after the keyword that must be there."""
        return self.parts[:-1] if self.spare else self.parts

    @property
    def written(self) -> str:
        """The values after the keyword as they are written, where there are several."""
        words = self.words or ("",) * len(self.parts)
        told = [f"{word} {part}".strip() for word, part in zip(words, self.parts, strict=True)]
        return " ".join([*told[:-1], f"[{told[-1]}]"] if self.spare else told)

    @property
    def misuse(self) -> str:
        """The error when values, or words between them, are missing."""
        keyword = (self.keyword or b"").decode()
        if self.parts:
            return f"{keyword} without its parts: expected {keyword} {self.written}"
        return f"{keyword} without its value: allowed are {self.kind.allowed}"

    @property
    def twice(self) -> str:
        """The error when it is given twice and may be given once."""
        return TWICE.format((self.keyword or b"").decode())


def positional(doc: str, kind: Kind = BYTES) -> Any:
    """A value that must be there, at its place."""
    return attrs.field(metadata={"arg": Arg("positional", doc, kind)})


def optional(doc: str, kind: Kind = BYTES, default: Any = None, *, leads: bool = False) -> Any:
    """A value that may be there, after the positional ones."""
    return attrs.field(default=default, metadata={"arg": Arg("optional", doc, kind, leads=leads)})


def option(
    word: str, doc: str, kind: Kind, default: Any = None, *, parts: tuple[str, ...] = (), spare: bool = False,
    words: tuple[str, ...] = (), kinds: tuple[Kind, ...] = (), once: bool = False,
) -> Any:  # fmt: skip
    """A word and its value, anywhere after the positional ones; the last one counts, or a second is refused (`once`).

    With `parts`, the names of several values, what is read is the tuple of them all; `spare`: the last of them, a
    number, may be left out.  `words` are those before each of these values, where they have some: the first has the
    word of the option, and `("", "PER", "BURST")` reads ``RATE 10 PER 1 BURST 20``; `kinds`, with words alone: their
    kinds, where they differ.
    """
    arg = Arg("option", doc, kind, word.encode(), parts=parts, spare=spare, words=words, kinds=kinds, once=once)
    return attrs.field(default=default, metadata={"arg": arg})


def repeated(word: str, doc: str, kind: Kind, *, parts: tuple[str, ...] = ()) -> Any:
    """A word and its value, any number of times; the value is the tuple of all.  `parts` as in `option`."""
    arg = Arg("option", doc, kind, word.encode(), repeats=True, parts=parts)
    return attrs.field(default=(), metadata={"arg": arg})


def flag(word: str, doc: str, *, last: str = "") -> Any:
    """A word that is there or not; `last` makes it the last word and is the error of what follows it."""
    return attrs.field(default=False, metadata={"arg": Arg("flag", doc, BYTES, word.encode(), last=last)})


def rest(
    doc: str, kind: Kind = BYTES, *, word: str | None = None, minimum: int = 1, long: bool = False, bare: bool = False
) -> Any:
    """All the remaining values; with a word, those after the word, which must be there unless the minimum is 0.

    Without a word options may stand among them: a value that is spelled as the word of an option that has what follows
    it is that option, so that the first of several values is better a `positional`, which may be spelled in any way.
    Where the word may be left out (`bare`) they begin with the first word that is no option, too.

    One that is `long` may have any length.  A command of more than `LONG` words is not read at once: the parser
    returns what the class method `in_parts` makes of the words.
    """
    keyword = None if word is None else word.encode()
    arg = Arg("rest", doc, kind, keyword, minimum=minimum, long=long, bare=bare)
    return attrs.field(default=(), metadata={"arg": arg})


@attrs.frozen
class Field:
    """A field of a command class and its grammar."""

    name: str
    arg: Arg
    default: Any

    @property
    def label(self) -> str:
        """What people call it: with dashes; one of several values by its singular."""
        label = self.name.replace("_", "-")
        if self.arg.style != "rest":
            return label
        return label.removesuffix("es") if label.endswith("sses") else label.removesuffix("s")


def _nothing(value: Any) -> list[bytes]:
    return []


def _told(value: Any) -> Iterable[bytes]:
    """Return what may be ids of jobs in the reply of a command that may add some."""
    job_ids: Iterable[bytes] | None = getattr(value, "job_ids", None)
    if job_ids is None:
        return [word for word in (value if isinstance(value, list) else [value]) if isinstance(word, bytes)]
    return job_ids


@attrs.define
class Command(Runnable):
    """A command, or a subcommand, as the table knows it."""

    name: str  #: upper case; a subcommand has two words
    group: str
    flags: Flag
    since: str
    cost: str
    reply: Shape
    arity: int  #: arguments with the name; negative: at least as many
    summary: str  #: first line of the docstring
    manual: str  #: the lines after it, without their indentation
    fields: tuple[Field, ...]
    errors: tuple[str, ...]  #: lines of errors that it may answer, beyond those of its arguments
    parse: Parser
    make: Callable[..., Call]
    shows_bodies: bool = False  #: its answer may hold bodies of jobs, or words of other commands, which may be bodies
    bodies_field: str = ""  #: it does so when this field asks for it, and not otherwise; "" = there is no such field
    is_of_connection: bool = False  #: it concerns the connection that it comes on, and means nothing without that
    is_large: bool = False  #: what it is sent may be as large as a job

    def encoder(self, protocol: int) -> Callable[[Any], Text]:
        """The encoder of this command's replies for RESP 2 or 3."""
        return self.encode2 if protocol == 2 else self.encode3


@attrs.define
class Container:
    """A command that only has subcommands."""

    name: str
    flags: Flag
    arity: int
    summary: str
    group: str
    #: (subcommand as sent, whether it exists) -> error text.
    misuse: Callable[[str, bool], str]
    children: dict[bytes, Command] = attrs.field(factory=dict)
    #: What the bare name does, where it does anything.
    alone: Command | None = None

    def resolve(self, args: list[bytes]) -> Command:
        """Find the subcommand that is meant.  Raises CommandError."""
        if len(args) == 1 and self.alone is not None:
            return self.alone
        if len(args) < abs(self.arity):
            raise WrongArity(self.name.lower())
        child = self.children.get(args[1][:32].upper())
        if child is None:
            raise CommandError(self.misuse(readable(args[1]), False))
        return child

    def parse(self, args: list[bytes]) -> Call:
        """Parse the subcommand that is meant."""
        child = self.resolve(args)
        try:
            return child.parse(args)
        except WrongArity:
            raise CommandError(self.misuse(readable(args[1]), True)) from None


#: Name in upper case: command or container.
TABLE: dict[bytes, Command | Container] = {}
#: Commands without subcommands by upper-case and lower-case name: the look-up of the hot path.
PLAIN: dict[bytes, Command] = {}

#: Every command by its name, whatever `rename-command` does.
MANUAL: dict[str, Command] = {}

C = TypeVar("C", bound=type)


def command(
    name: str, *, group: str, flags: Flag, reply: Shape, cost: str, since: str = "0.1.0", arity: int | None = None,
    errors: tuple[type[CommandError] | str, ...] = (),
    cache: Callable[[Parser], Parser] | None = None, once: bool = False, fault: str = SyntaxFault.__doc__ or "",
    **nature: Any,
) -> Callable[[C], C]:  # fmt: skip
    """Enter an attrs class into the table.

    `arity` is given where it differs from what the fields say.  `errors` are classes whose docstring is their text, or
    texts of plain ERR lines.  `cache` puts a parse cache before its parser (`commands/parse_cache.py`).  `once`: each
    option is given once.  `fault` begins the error of a wrong word, as Disque has it; what is wrong and what is allowed
    follows.  `nature` is what else `Command` knows of it: shows_bodies, bodies_field, is_of_connection, is_large.
    """

    def enter(cls: C) -> C:
        fields = tuple(
            Field(item.name, item.metadata["arg"], None if item.default is attrs.NOTHING else item.default)
            for item in attrs.fields(cls)
        )
        options = [field.arg.keyword.decode() for field in fields if field.arg.keyword is not None]
        fields = tuple(_told_of_options(field, options) for field in fields)
        if once:
            fields = tuple(map(_given_once, fields))
        summary, _, manual = inspect.cleandoc(cls.__doc__ or "").partition("\n")
        words = name.split()
        told = errors if fault == SyntaxFault.__doc__ else (*errors, f"{fault} - <what is wrong, and what is allowed>")
        least = _arity(fields, len(words)) if arity is None else arity
        parse = _generate(name, cls, fields, least, _complaint_of(fields, fault))
        entry = Command(
            name=name, group=group, flags=flags, since=since, cost=cost, reply=reply, arity=least, summary=summary,
            manual=manual.strip(), fields=fields, errors=tuple(map(_error_line, told)), parse=parse, make=cls,
            **nature,
        )  # fmt: skip
        adds_data = Flag.DENY_OOM in flags
        entry.prepare(
            parse if cache is None else cache(parse), reply.encode2, reply.encode3, reply.handed or _nothing,
            reply.promised or (_told if adds_data else None),
            adds_data=adds_data, needs_journal=adds_data or name == "PING",
            hands_out=reply.handed is not None and Flag.WRITE in flags,
        )  # fmt: skip
        _enter(words, entry)
        return cls

    return enter


def _listed(options: list[str], last: str = "and") -> str:
    return f" {last} ".join(filter(None, (", ".join(options[:-1]), options[-1])))


def _given_once(field: Field) -> Field:
    arg = field.arg
    once = arg.style == "flag" or (arg.style == "option" and not arg.repeats)
    return attrs.evolve(field, arg=attrs.evolve(arg, once=once))


def _complaint_of(fields: tuple[Field, ...], fault: str) -> Callable[[bytes], SyntaxFault]:
    """Make the error of a word that is no option, lacks its value or stands at the wrong place."""
    args = [field.arg for field in fields if field.arg.keyword is not None]
    texts = {arg.keyword: arg.misuse for arg in args if arg.style != "flag"}
    for arg in args:  # words within RATE, such as PER
        alike = [other.keyword.decode() for other in args if other.words == arg.words and other.keyword is not None]
        for word in filter(None, arg.words):
            texts[word.encode()] = f"{word} at the wrong place: expected {_listed(alike, 'or')} {arg.written}"
    allowed = [field.label for field in fields if field.arg.style == "optional"]
    allowed += [arg.keyword.decode() for arg in args if arg.keyword is not None]

    def complaint(word: bytes) -> SyntaxFault:
        known = texts.get(word[:32].upper())
        unknown = f"unknown option {readable(word)!r}; expected {_listed(allowed, 'or')}"
        return SyntaxFault(f"{fault} - {known or unknown}")

    return complaint


def _told_of_options(field: Field, options: list[str]) -> Field:
    """Let the error of a word among job ids say what is allowed there."""
    arg = field.arg
    if arg.style != "rest" or arg.keyword is not None or arg.kind.names != "job":
        return field
    those = f"option{'s' if len(options) > 1 else ''} {_listed(options)}" if options else ""
    allowed = f"job ids, and the {those}" if those else "job ids alone"
    return attrs.evolve(field, arg=attrs.evolve(arg, no_id=f"{BadJobId.__doc__} - allowed are {allowed}"))


def container(
    name: str, *, group: str, flags: Flag, summary: str, misuse: Callable[[str, bool], str] | str, arity: int = -2
) -> None:
    """Enter a command that only has subcommands; `misuse` is as in `Container`, or the one text that it returns."""

    def text_of(word: str, known: bool) -> str:
        return misuse if isinstance(misuse, str) else misuse(word, known)

    TABLE[name.encode()] = Container(name=name, flags=flags, arity=arity, summary=summary, group=group, misuse=text_of)


def _error_line(error: type[CommandError] | str) -> str:
    if isinstance(error, str):
        return f"ERR {error}"
    return error.code if error is EmptyKey else f"{error.code} {error.__doc__}"


def _enter(words: list[str], entry: Command) -> None:
    key = words[0].encode()
    MANUAL[entry.name] = entry
    if len(words) == 1:
        parent = TABLE.get(key)
        if isinstance(parent, Container):
            parent.alone = entry
            return
        TABLE[key] = PLAIN[key] = PLAIN[key.lower()] = entry
    else:
        parent = TABLE[key]
        assert isinstance(parent, Container)
        parent.children[words[1].encode()] = entry


def rename(old: str, new: str) -> None:
    """Call a command by another name, or by none when that is empty.  Raises KeyError when there is no such command."""
    key, target = old.upper().encode("utf-8", "surrogateescape"), new.upper().encode("utf-8", "surrogateescape")
    entry = TABLE.pop(key)
    plain = PLAIN.pop(key, None)
    PLAIN.pop(key.lower(), None)
    if target:
        TABLE[target] = entry
        if plain is not None:
            PLAIN[target] = PLAIN[target.lower()] = plain


def manual() -> Iterator[Command]:
    """All commands and subcommands by the names of this manual, those that `rename-command` took away included."""
    for name in sorted(MANUAL):
        yield MANUAL[name]


def name_of(words: list[bytes]) -> str:
    """Return the name in this manual of the command that words in capitals begin with."""
    both = b" ".join(words[:2]).decode("latin-1")
    return both if both in MANUAL else words[0].decode("latin-1")


def subcommands(name: str) -> str:
    """Return the subcommands of a command, as an error lists them."""
    return ", ".join(sorted(each.partition(" ")[2] for each in MANUAL if each.startswith(f"{name} ")))


def is_callable(name: str) -> bool:
    """Return whether clients can call a command by its name in this manual; `rename-command` may prevent that."""
    entry, parent = MANUAL[name], TABLE.get(name.partition(" ")[0].encode())
    if isinstance(parent, Container):
        return parent.alone is entry or entry in parent.children.values()
    return parent is entry


def find(args: list[bytes]) -> Command:
    """Find the command that is meant.  Raises UnknownCommand, WrongArity, CommandError."""
    entry = TABLE.get(args[0][:32].upper())
    if entry is None:
        raise UnknownCommand(args[0])
    if isinstance(entry, Container):
        return entry.resolve(args)
    return entry


def find_within(args: list[bytes]) -> Command:
    """Find the command that parts of the process mean by its name in this manual, whatever `rename-command` does."""
    name = name_of([word[:32].upper() for word in args[:2]])
    return find(args) if name not in MANUAL or is_callable(name) else MANUAL[name]


def parse(entry: Command, args: list[bytes]) -> Call:
    """Parse the arguments of a command that was found, with the errors of its container."""
    parent = TABLE.get(args[0][:32].upper())
    if isinstance(parent, Container) and parent.alone is not entry:
        return parent.parse(args)
    return entry.parse(args)


def every_command() -> Iterator[Command]:
    """All commands and subcommands, by name."""
    for key in sorted(TABLE):
        entry = TABLE[key]
        if isinstance(entry, Command):
            yield entry
        else:
            if entry.alone is not None:
                yield entry.alone
            for word in sorted(entry.children):
                yield entry.children[word]


def _arity(fields: tuple[Field, ...], words: int) -> int:
    """Derive the arity from the grammar."""
    least = words
    open_ended = False
    for field in fields:
        arg = field.arg
        if arg.style == "positional":
            least += 1
        elif arg.style == "rest":
            least += arg.minimum + (arg.keyword is not None and arg.minimum > 0 and not arg.bare)
            open_ended = True
        else:
            open_ended = True
    return -least if open_ended else least


def _generate(
    name: str, cls: type, fields: tuple[Field, ...], arity: int, complaint: Callable[[bytes], SyntaxFault]
) -> Parser:
    """Write and compile the parser of a command; `complaint` makes the error of a word that is no option."""
    space: dict[str, Any] = {
        "make": cls, "WrongArity": WrongArity, "TooManyWords": TooManyWords, "SyntaxFault": SyntaxFault,
        "NotAnInteger": NotAnInteger, "NothingNamed": NothingNamed, "CommandError": CommandError,
        "complaint": complaint, "in_parts": getattr(cls, "in_parts", None),
    }  # fmt: skip
    source = _source(name, fields, arity, len(name.split()), space)
    filename = f"<parser of {name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), space)  # noqa: S102 - our own text, made of the table's names alone
    result: Parser = space["parse"]
    return result


def _source(name: str, fields: tuple[Field, ...], arity: int, words: int, space: dict[str, Any]) -> str:
    """The text of a parser: check the arity, read the options from left to right, then the values in their places."""
    refuse = f"raise WrongArity({name.lower()!r})"
    loose = [field for field in fields if field.arg.style in ("option", "flag", "optional")]
    tail = next((field for field in fields if field.arg.style == "rest"), None)
    lines = ["def parse(args):", "    n = len(args)", *_counted(name, arity, words, fields)]
    values: list[str] = []
    place = words
    for field in fields:
        arg = field.arg
        read = _reader(field, space)
        if arg.style == "positional":
            values.append(read.format(f"args[{place}]"))
            place += 1
        else:
            values.append(f"v_{field.name}")
            space[f"d_{field.name}"] = field.default
            lines.append(f"    v_{field.name} = {'[]' if arg.repeats else f'd_{field.name}'}")
    if tail is not None and tail.arg.keyword is None and not loose:
        if place + tail.arg.minimum > max(words, -arity):
            lines.append(f"    if n < {place + tail.arg.minimum}: {refuse}")
        lines.append(_assign_rest(tail, f"args[{place}:]", space, 4))
    elif loose or tail is not None:
        lines += _options(loose, tail, place, space)
        if tail is not None and tail.arg.minimum and tail.arg.keyword is None:
            needed = (name.lower(), tail.arg.doc.rstrip("."))
            lines.append(f"    if len(v_{tail.name}) < {tail.arg.minimum}: raise NothingNamed{needed!r}")
    for field in loose:
        if field.arg.repeats:
            lines.append(f"    v_{field.name} = tuple(v_{field.name})")
    lines.append(f"    return make({', '.join(values)})")
    return "\n".join(lines) + "\n"


def _counted(name: str, arity: int, words: int, fields: tuple[Field, ...]) -> list[str]:
    """The lines of a parser that look at the number of words, and nothing more than they must: they are always run."""
    refuse = f"raise WrongArity({name.lower()!r})"
    lines: list[str] = []
    if arity >= 0:
        lines.append(f"    if n != {arity}: {refuse}")
    elif -arity > words:  # those of the name are there
        lines.append(f"    if n < {-arity}: {refuse}")
    if any(field.arg.long for field in fields):
        lines.append(f"    if n > {LONG}: return in_parts(args)")
    elif arity < 0:
        have_places = all(field.arg.style in ("positional", "optional") for field in fields)
        most = words + len(fields) if have_places else WORDS_MAX
        lines.append(f"    if n > {most}: raise TooManyWords({name.lower()!r}, {most})")
    return lines


def _reader(field: Field, space: dict[str, Any]) -> str:
    """A format with one place for the expression that is read."""
    read = field.arg.read
    if read is None:
        return "{0}"
    space[f"r_{field.name}"] = read
    return f"r_{field.name}({{0}})"


def _assign_rest(field: Field, expression: str, space: dict[str, Any], indent: int) -> str:
    reader = field.arg.read
    if reader is None:
        return f"{' ' * indent}v_{field.name} = {expression}"
    space[f"r_{field.name}"] = reader
    return f"{' ' * indent}v_{field.name} = [r_{field.name}(value) for value in {expression}]"


def _refuse_twice(field: Field, bit: int) -> list[str]:
    """The lines that refuse an option that was given before."""
    if not field.arg.once:
        return []
    return [f"            if given & {bit}: raise CommandError({field.arg.twice!r})", f"            given |= {bit}"]


def _worded(field: Field, branch: str, space: dict[str, Any], bit: int) -> list[str]:
    """The lines that read an option with words between its values."""
    arg = field.arg
    read = _reader(field, space)
    refuse = f"raise CommandError({arg.misuse!r})"
    words = [word.encode() for word in arg.words]
    needed = len(arg.required)
    lines = [f"        {branch} word == {arg.keyword!r}:", *_refuse_twice(field, bit), "            j = i"]
    reads = [read] * len(words)
    for place, kind in enumerate(arg.kinds):
        space[f"r_{field.name}_{place}"] = kind.read
        reads[place] = f"r_{field.name}_{place}({{0}})"
    values: list[str] = []
    for word in words[:needed]:
        if word:
            lines.append(f"            if j >= n or args[j].upper() != {word!r}: {refuse}")
            lines.append("            j += 1")
        lines.append(f"            if j >= n: {refuse}")
        values.append(f"v{len(values)}")
        lines.append(f"            {values[-1]} = {reads[len(values) - 1].format('args[j]')}")
        lines.append("            j += 1")
    lines.append(f"            v_{field.name} = ({''.join(f'{value}, ' for value in values)})")
    if arg.spare:
        lines.append(f"            if j < n and args[j].upper() == {words[-1]!r}:")
        lines.append(f"                if j + 1 >= n: {refuse}")
        lines.append(f"                v_{field.name} += ({reads[-1].format('args[j + 1]')},)")
        lines.append("                j += 2")
    lines.append("            i = j")
    return lines


def _option(field: Field, branch: str, space: dict[str, Any], bit: int, *, is_word: bool) -> list[str]:
    """The lines that read an option or a flag; `is_word`: its word is no value where its own value is missing."""
    arg = field.arg
    head = f"        {branch} word == {arg.keyword!r}"
    if arg.style == "flag":
        ends = [f"            if i < n: raise CommandError({arg.last!r})"] if arg.last else []
        return [f"{head}:", *_refuse_twice(field, bit), f"            v_{field.name} = True", *ends]
    if arg.words:
        return _worded(field, branch, space, bit)
    read = _reader(field, space)
    width = arg.width - arg.spare
    last = "i" if width == 1 else f"i + {width - 1}"
    if is_word:
        lines = [f"{head}:", *_refuse_twice(field, bit), f"            if {last} >= n: raise complaint(word)"]
    else:
        lines = [f"{head} and {last} < n:", *_refuse_twice(field, bit)]
    several = "".join(f"{read.format(f'args[i + {offset}]')}, " for offset in range(width))
    value = f"({several})" if arg.parts else read.format("args[i]")
    lines.append(
        f"            v_{field.name}.append({value})" if arg.repeats else f"            v_{field.name} = {value}"
    )
    lines.append(f"            i += {width}")
    if arg.spare:
        lines.append("            if i < n and args[i][:1] in b'0123456789+-.':")
        lines.append(f"                v_{field.name} += ({read.format('args[i]')},)")
        lines.append("                i += 1")
    return lines


def _options(loose: list[Field], tail: Field | None, place: int, space: dict[str, Any]) -> list[str]:
    """The loop over the words after the positional ones."""
    lines = [f"    i = {place}", "    while i < n:", "        word = args[i][:32].upper()", "        i += 1"]
    if any(field.arg.once for field in loose):
        lines.insert(0, "    given = 0")
    # A word that is an option with its value, and otherwise a value itself, lacks nothing; a job id is no such word.
    may_be_value = tail is not None and tail.arg.keyword is None and tail.arg.kind.names != "job"
    branch = "if"
    for number, field in enumerate(loose):
        if field.arg.style != "optional":
            lines += _option(field, branch, space, 1 << number, is_word=not may_be_value)
            branch = "elif"
    if tail is not None and tail.arg.keyword is None:
        lines.insert(0, f"    v_{tail.name} = []")
        lines.append(f"        else: v_{tail.name}.append({_reader(tail, space).format('args[i - 1]')})")
        return lines
    if tail is not None:
        lines.append(f"        {branch} word == {tail.arg.keyword!r} and i < n:")
        lines.append(_assign_rest(tail, "args[i:]", space, 12))
        lines.append("            break")
        branch = "elif"
    for field in loose:
        if field.arg.style == "optional":
            if field.arg.leads:
                lines.append(f"        {branch} i == {place + 1}:")
            else:
                seen = f"s_{field.name}"
                lines.insert(0, f"    {seen} = False")
                lines.append(f"        {branch} not {seen}:")
                lines.append(f"            {seen} = True")
            lines.append(f"            try: v_{field.name} = {_reader(field, space).format('args[i - 1]')}")
            lines.append("            except (NotAnInteger, SyntaxFault): raise complaint(args[i - 1]) from None")
            branch = "elif"
    if tail is not None and tail.arg.bare:
        words = tuple(field.arg.keyword for field in (*loose, tail))
        lines.append(f"        {branch} word not in {words!r} and i + {tail.arg.minimum - 1} <= n:")
        lines.append(_assign_rest(tail, "args[i - 1:]", space, 12))
        lines.append("            break")
        branch = "elif"
    lines.append(f"        {'else: ' if branch == 'elif' else ''}raise complaint(args[i - 1])")
    if tail is not None and tail.arg.minimum:
        keyword = (tail.arg.keyword or b"").decode()
        needed = f"{f'[{keyword}]' if tail.arg.bare else keyword} {tail.label} ..."
        lines.append(f"    else: raise SyntaxFault({f'{SyntaxFault.__doc__} - needed as well: {needed}'!r})")
    return lines
