r"""How replies are printed: as redis-cli prints them, byte for byte.

    tree      (integer) 5   "quoted\n"   (nil)   1) nested, numbered      people at a terminal
    raw       5             as it is     empty   one a line               programs: the default where no terminal is
    csv       5,"quoted\n",NULL
    json      [5,"quoted\n",null]; a map is an object

Bytes in, bytes out; each ends with its line.  Source: redis-cli 7, observed.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from disqued.tools.cli.command_lines import quoted
from disqued.tools.cli.replies import Reply, ReplyKind

Form: TypeAlias = Callable[[Reply], bytes]

_EMPTY: Final = {
    ReplyKind.ARRAY: b"(empty array)\n", ReplyKind.MAP: b"(empty hash)\n", ReplyKind.SET: b"(empty set)\n",
    ReplyKind.PUSH: b"(empty push)\n",
}  # fmt: skip
_SIGNS: Final = {ReplyKind.MAP: b"#", ReplyKind.SET: b"~"}
_JSON_ESCAPES: Final = {
    **{code: b"\\u%04x" % code for code in range(32)},
    ord('"'): b'\\"', ord("\\"): b"\\\\", ord("\n"): b"\\n", ord("\f"): b"\\f", ord("\r"): b"\\r", ord("\t"): b"\\t",
    ord("\b"): b"\\b",
}  # fmt: skip
_NEEDS_ESCAPE: Final = bytes(_JSON_ESCAPES)


def tree(reply: Reply) -> bytes:
    """Draw a reply for people."""
    return b"".join(_tree(reply, b""))


def _tree(reply: Reply, indent: bytes) -> Iterator[bytes]:
    kind, text = reply.kind, reply.text
    match kind:
        case ReplyKind.ERROR:
            yield b"(error) %b\n" % text
        case ReplyKind.STATUS | ReplyKind.VERBATIM:
            yield text + b"\n"
        case ReplyKind.INTEGER:
            yield b"(integer) %b\n" % text
        case ReplyKind.DOUBLE:
            yield b"(double) %b\n" % text
        case ReplyKind.STRING:
            yield quoted(text) + b"\n"
        case ReplyKind.NIL:
            yield b"(nil)\n"
        case ReplyKind.BOOLEAN:
            yield b"(true)\n" if text == b"t" else b"(false)\n"
        case ReplyKind.BIG_NUMBER:
            yield b"(big number) %b\n" % text
        case _:
            yield from _branches(reply, indent) if reply.items else (_EMPTY[kind],)


def _branches(reply: Reply, indent: bytes) -> Iterator[bytes]:
    step = 2 if reply.kind is ReplyKind.MAP else 1
    items, sign = reply.items, _SIGNS.get(reply.kind, b")")
    width = len(b"%d" % (len(items) // step))
    below = indent + b" " * (width + 2)
    for at in range(0, len(items), step):
        # Before the first stands what the caller has written.
        yield b"%b%*d%b " % (indent if at else b"", width, at // step + 1, sign)
        if step == 1:
            yield from _tree(items[at], below)
        else:
            value = b"".join(_tree(items[at + 1], below))
            begins = b"\n" + below if items[at + 1].items and value.count(b"\n") > 1 else b""
            yield b"%b => %b%b" % (b"".join(_tree(items[at], below)).removesuffix(b"\n"), begins, value)


def raw(delimiter: bytes = b"\n") -> Form:
    """Make the form for programs; the delimiter stands between the items of an aggregate."""

    def form(reply: Reply) -> bytes:
        return _raw(reply, delimiter) + b"\n"

    return form


def _raw(reply: Reply, delimiter: bytes) -> bytes:
    match reply.kind:
        case ReplyKind.ERROR:
            return reply.text + b"\n"
        case ReplyKind.NIL:
            return b""
        case ReplyKind.BOOLEAN:
            return b"(true)" if reply.text == b"t" else b"(false)"
        case ReplyKind.MAP:
            items = [_raw(item, delimiter) for item in reply.items]
            return delimiter.join(b"%b %b" % pair for pair in zip(items[::2], items[1::2], strict=True))
        case ReplyKind.ARRAY | ReplyKind.SET | ReplyKind.PUSH:
            return delimiter.join(_raw(item, delimiter) for item in reply.items)
    return reply.text


def csv(reply: Reply) -> bytes:
    """Write a reply as one line of comma-separated values."""
    return _csv(reply) + b"\n"


def _csv(reply: Reply) -> bytes:
    single = _single(reply, quoted, error=b"ERROR,", nil=b"NULL")
    return b",".join(map(_csv, reply.items)) if single is None else single


def _single(reply: Reply, spell: Callable[[bytes], bytes], *, error: bytes, nil: bytes) -> bytes | None:
    """Write what is one value, and None for what has others in it: `spell` writes texts, `error` stands before one."""
    match reply.kind:
        case ReplyKind.ERROR:
            return error + spell(reply.text)
        case ReplyKind.STATUS | ReplyKind.STRING | ReplyKind.VERBATIM:
            return spell(reply.text)
        case ReplyKind.NIL:
            return nil
        case ReplyKind.BOOLEAN:
            return b"true" if reply.text == b"t" else b"false"
        case ReplyKind.INTEGER | ReplyKind.DOUBLE | ReplyKind.BIG_NUMBER:
            return reply.text
    return None


def json(reply: Reply) -> bytes:
    """Write a reply as JSON, in one line; what is no UTF-8 stays as it is."""
    return _json(reply) + b"\n"


def _json(reply: Reply) -> bytes:
    single = _single(reply, _string, error=b"error:", nil=b"null")
    if single is not None:
        return single
    if reply.kind is ReplyKind.MAP:
        items = reply.items
        return b"{%b}" % b",".join(
            b"%b:%b" % (_key(key), _json(value)) for key, value in zip(items[::2], items[1::2], strict=True)
        )
    return b"[%b]" % b",".join(map(_json, reply.items))


def _key(reply: Reply) -> bytes:
    """What an object has as a name: a string, whatever it was."""
    written = _json(reply)
    return written if written.endswith(b'"') else b'"%b"' % written


def _string(text: bytes) -> bytes:
    if any(code in text for code in _NEEDS_ESCAPE):
        text = b"".join(_JSON_ESCAPES.get(code) or bytes((code,)) for code in text)
    return b'"%b"' % text
