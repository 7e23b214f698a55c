"""What a node says of its commands (COMMAND DOCS), as completion, hints and help.

    ADDJOB mail hello 0 RETRY _          typed until here
      |     |     |    |   |
      |  queue  body timeout  its value is wanted: hint `retry [REPLICATE replicate] [DELAY delay] ...`
    the command                               completion: nothing, a value is free

A word belongs to the argument that is wanted next, if that has to be there and has no token; else to the option whose
token it is; else to the one before that may be given several times; else to the next that needs no token.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Self

import attrs

from disqued.tools.cli.link import Link
from disqued.tools.cli.replies import Reply, ReplyKind

_PURE_TOKEN = "pure-token"  # noqa: S105 - a type of arguments
_BESIDE = ("HELP", "QUIT", "EXIT", "CLEAR")


@attrs.frozen
class Argument:
    """One argument of a command."""

    name: str
    kind: str
    token: str = ""
    optional: bool = False
    #: It may be given several times.
    multiple: bool = False
    #: Of a block all, of a choice one.
    parts: "tuple[Argument, ...]" = ()

    @classmethod
    def of(cls, reply: Reply) -> Self:
        """Read an argument as COMMAND DOCS tells it."""
        facts = _facts(reply)
        flags = {_text(flag) for flag in facts["flags"].items} if "flags" in facts else set()
        return cls(name=_text(facts["display_text"]) if "display_text" in facts else _text(facts["name"]),
                   kind=_text(facts["type"]), token=_text(facts["token"]) if "token" in facts else "",
                   optional="optional" in flags, multiple="multiple" in flags,
                   parts=tuple(map(cls.of, facts["arguments"].items)) if "arguments" in facts else ())  # fmt: skip

    @property
    def values(self) -> "tuple[Argument, ...]":
        """What stands behind the token."""
        if self.kind == _PURE_TOKEN:
            return ()
        return self.parts if self.kind == "block" else (attrs.evolve(self, token="", optional=False, multiple=False),)

    @property
    def tokens(self) -> tuple[str, ...]:
        """The words that it may begin with; none = any word."""
        if self.token:
            return (self.token,)
        if self.kind == "oneof":
            return tuple(token for part in self.parts for token in part.tokens)
        return self.parts[0].tokens if self.kind == "block" else ()

    @property
    def is_free(self) -> bool:
        """Whether any word may be its first."""
        return not self.token and (not self.parts or (self.kind == "block" and self.parts[0].is_free))

    def begun_with(self, word: str) -> "tuple[Argument, ...] | None":
        """What is to follow when a word is the first of it; None = the word is none of its tokens."""
        if self.token:
            return self.values if word.upper() == self.token.upper() else None
        if self.kind == "oneof":
            return next((then for part in self.parts if (then := part.begun_with(word)) is not None), None)
        if self.kind == "block":
            then = self.parts[0].begun_with(word)
            return None if then is None else then + self.parts[1:]
        return None

    def __str__(self) -> str:
        if self.kind == "oneof":
            said = f"<{' | '.join(map(str, self.parts))}>"
        elif self.kind == "block":
            said = " ".join(map(str, self.parts))
        else:
            said = "" if self.kind == _PURE_TOKEN else self.name
        if self.multiple:
            said = f"{said} [{said} ...]"
        said = f"{self.token} {said}".strip() if self.token else said
        return f"[{said}]" if self.optional else said


@attrs.frozen
class Document:
    """One command, or one subcommand."""

    name: str  #: as it is typed: `CONFIG GET`
    summary: str = ""
    since: str = ""
    group: str = ""
    complexity: str = ""
    arguments: tuple[Argument, ...] = ()
    subcommands: "Mapping[str, Document]" = attrs.Factory(dict)  #: by their last word, in capitals

    @classmethod
    def of(cls, name: str, reply: Reply) -> Self:
        """Read what COMMAND DOCS says of a command."""
        facts = _facts(reply)
        inner = _facts(facts["subcommands"]) if "subcommands" in facts else {}
        return cls(
            name=name.upper().replace("|", " "),
            **{what: _text(facts[what]) for what in ("summary", "since", "group", "complexity") if what in facts},
            arguments=tuple(map(Argument.of, facts["arguments"].items)) if "arguments" in facts else (),
            subcommands={each.upper().rpartition("|")[2]: cls.of(each, told) for each, told in inner.items()},
        )

    @property
    def syntax(self) -> str:
        return " ".join([self.name, *map(str, self.arguments)])

    def help(self) -> str:
        """What `help` prints of it."""
        lines = ["", f"  {self.syntax}", f"  summary: {self.summary}"]
        lines += [f"  complexity: {self.complexity}"] if self.complexity else []
        lines += [f"  since: {self.since}", f"  group: {self.group}"]
        lines += [f"    {each.syntax}\n        {each.summary}" for each in self.subcommands.values()]
        return "\n".join([*lines, "", ""])


@attrs.define
class Position:
    """Where in the arguments of a command the next word would stand."""

    #: What the argument that was begun still wants.
    within: tuple[Argument, ...] = ()
    #: An argument that may be given once more.
    again: Argument | None = None
    #: Arguments that were not given yet.
    rest: list[Argument] = attrs.Factory(list)

    def hint(self) -> str:
        """What may follow, as the syntax says it."""
        once_more = [] if self.within or self.again is None else [f"[{_once(self.again)} ...]"]
        return " ".join([*map(str, self.within), *once_more, *map(str, self.rest)])

    def tokens(self) -> list[str]:
        """The words that may be next, as far as they are known ones."""
        if self.within:
            return list(self.within[0].tokens)
        if self.rest and not self.rest[0].optional and not self.rest[0].token:
            return list(self.rest[0].tokens)
        return [token for argument in self.rest for token in argument.tokens]


def follow(arguments: Iterable[Argument], words: Sequence[str]) -> Position | None:
    """Walk over the words behind a command; None when one of them fits nowhere."""
    position = Position(rest=list(arguments))
    for word in words:
        if position.within:
            wanted, *later = position.within
            position.within = (wanted.begun_with(word) or ()) + tuple(later)
            continue
        taken = _take(position, word)
        if taken is None:
            return None
        argument, position.within = taken
        position.again = argument if argument.multiple else None
        if argument in position.rest:
            position.rest.remove(argument)
    return position


def _take(position: Position, word: str) -> tuple[Argument, tuple[Argument, ...]] | None:
    """The argument that a word begins, and what that wants then."""
    rest = position.rest
    if rest and position.again is None and rest[0].is_free and not rest[0].optional:
        return rest[0], _behind_free(rest[0])
    for argument in rest:
        then = argument.begun_with(word)
        if then is not None:
            return argument, then
    if position.again is not None:
        return position.again, _behind_free(attrs.evolve(position.again, token=""))
    return next(((argument, _behind_free(argument)) for argument in rest if argument.is_free), None)


def _behind_free(argument: Argument) -> tuple[Argument, ...]:
    return argument.parts[1:] if argument.kind == "block" else ()


def _once(argument: Argument) -> str:
    return str(attrs.evolve(argument, token="", multiple=False, optional=False))


@attrs.frozen
class Documents:
    """All commands of a node."""

    commands: Mapping[str, Document] = attrs.Factory(dict)  #: by their names, in capitals

    @classmethod
    def fetched(cls, link: Link) -> Self:
        """Ask a node; one that does not tell has none.  Raises Unreachable, Uncertain, NotTrusted, ServerError."""
        reply = link.call([b"COMMAND", b"DOCS"])
        return cls() if reply.kind is ReplyKind.ERROR else cls.of(reply)

    @classmethod
    def of(cls, reply: Reply) -> Self:
        return cls({name.upper(): Document.of(name, told) for name, told in _facts(reply).items()})

    def find(self, words: Sequence[str]) -> tuple[Document, list[str]] | None:
        """The command that a line begins with, its subcommand if it has one, and the words behind; None = no such."""
        if not words or (document := self.commands.get(words[0].upper())) is None:
            return None
        if len(words) > 1 and (inner := document.subcommands.get(words[1].upper())) is not None:
            return inner, list(words[2:])
        return document, list(words[1:])

    def hint(self, words: Sequence[str]) -> str:
        """What may follow the words of a line; empty when that is nothing, or not known."""
        found = self.find(words)
        if found is None:
            return ""
        document, typed = found
        if document.subcommands:
            return "" if typed else "subcommand [argument ...]"
        position = follow(document.arguments, typed)
        return "" if position is None else position.hint()

    def completions(self, words: Sequence[str], begun: str) -> Iterator[tuple[str, str]]:
        """Known words that the next may be, which begins so: each with what it means, if that is told."""
        for word, meaning in self._next_words(words):
            if word.upper().startswith(begun.upper()):
                yield word.lower() if begun and begun == begun.lower() else word, meaning

    def _next_words(self, words: Sequence[str]) -> Iterator[tuple[str, str]]:
        if words and words[0].upper() == "HELP":
            words = words[1:]
            if words and not (len(words) == 1 and self.find(words)):
                return
        if not words:
            yield from sorted((name, told.summary) for name, told in self.commands.items())
            yield from ((name, "") for name in _BESIDE if name not in self.commands)
            return
        found = self.find(words)
        if found is None:
            return
        document, typed = found
        if document.subcommands and not typed:
            yield from ((name, told.summary) for name, told in document.subcommands.items())
            return
        position = follow(document.arguments, typed)
        if position is not None:
            yield from ((token, "") for token in position.tokens())

    def help(self, about: str) -> str:
        """What `help` prints: of a command, of the commands of a group (`@jobs`), or of itself."""
        if not about:
            groups = ", ".join(f"@{group}" for group in sorted({told.group for told in self.commands.values()}))
            return (
                "\n  help COMMAND     explain a command, or a subcommand\n"
                f"  help @GROUP      list the commands of a group: {groups}\n"
                "  TAB              complete a command, a subcommand or an option\n"
                "  quit             end\n\n"
            )
        if about.startswith("@"):
            named = [told for told in self.commands.values() if told.group == about[1:].lower()]
            return "".join(told.help() for told in named) or f"there is no group {about}; `help` lists them\n"
        found = self.find(about.split())
        return found[0].help() if found else f"there is no command {about}; TAB lists those that there are\n"


def _facts(reply: Reply) -> dict[str, Reply]:
    """Names and values in turn, as RESP2 has them, or a map."""
    items = reply.items
    return {_text(name): value for name, value in zip(items[::2], items[1::2], strict=True)}


def _text(reply: Reply) -> str:
    return reply.text.decode(errors="replace")
