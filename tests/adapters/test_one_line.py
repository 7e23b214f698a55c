"""No line of a reply holds an end of line that a client sent: whatever it sends, one command has one reply.

Every command of the table is sent with an end of line, and what reads as another reply behind it, in each of its
places, and what comes back is taken apart strictly.
"""

from collections.abc import Callable, Iterator

import pytest
import pytest_twisted

from disqued.commands.categories import PUBSUB
from disqued.commands.table import Command, every_command
from tests.adapters.inprocess import Running, pack, wait_until

Launch = Callable[..., Running]
async_test = pytest_twisted.ensureDeferred

FORGED = b"-FORGED"
EVIL = b"a\r\n" + FORGED + b"\r\n+b"
COMMANDS = {entry.name: entry for entry in every_command()}


def frames(data: bytes) -> Iterator[bytes]:
    """The replies in a stream, each as it stands.  Raises AssertionError for what is none."""
    while data:
        end = _frame_end(data, 0)
        yield data[:end]
        data = data[end:]


def _frame_end(data: bytes, at: int) -> int:
    kind = data[at : at + 1]
    end = data.index(b"\r\n", at)
    line = data[at + 1 : end]
    assert b"\r" not in line, line
    assert b"\n" not in line, line
    end += 2
    if kind in b"$=":
        length = int(line)
        assert length < 0 or data[end + length : end + length + 2] == b"\r\n"
        return end if length < 0 else end + length + 2
    if kind in b"*~>%":
        for _ in range(int(line) * (2 if kind == b"%" else 1)):
            end = _frame_end(data, end)
        return end
    assert kind in b"+-:,#_(", kind
    return end


def lines_of(entry: Command) -> Iterator[list[bytes]]:
    """The command with the evil word in each place that it has, one more, and in all of them."""
    words = [word.encode() for word in entry.name.split()]
    some = {"integer": b"1", "double": b"1"}
    for field in entry.fields:
        value = some.get(field.arg.kind.name, b"x")
        if field.arg.style == "positional" or (field.arg.style == "rest" and not field.arg.keyword):
            words.append(value)
        elif field.arg.keyword is not None:
            words += [field.arg.keyword, *[value] * (0 if field.arg.style == "flag" else field.arg.width)]
        else:
            words.append(value)
    for at in range(len(words)):
        yield [*words[:at], EVIL, *words[at + 1 :]]
    yield [*words, EVIL]
    name = [word.encode() for word in entry.name.split()]
    for count in range(1, 5):
        yield [*name, *[EVIL] * count]


async def checked(running: Running, sent: bytes, *, before: bytes = b"") -> list[bytes]:
    """Send something on a connection of its own and see that all that comes back are replies; returns them."""
    client = await running.connect()
    session = running.daemon.clients.sessions()[-1]
    last = b"+PONG\r\n"

    def is_over() -> bool:
        data = bytes(client.received)
        return (
            client.lost
            or session.is_blocked
            or session.reply_mode != "on"
            or data.endswith((last, b"pong\r\n$0\r\n\r\n"))
        )

    client.transport.write(before + sent + pack("PING"))
    await client.until(is_over) if not session.is_blocked else None
    await wait_until(is_over)
    found = list(frames(bytes(client.received)))
    client.transport.abortConnection()
    assert all(not frame.startswith(FORGED) for frame in found), found
    return found


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("name", sorted(COMMANDS))
@async_test
async def test_no_command_answers_with_more_than_its_reply(launch: Launch, name: str, protocol: int) -> None:
    running = launch()
    for words in lines_of(COMMANDS[name]):
        sent = pack(*words)
        found = await checked(running, sent, before=pack("HELLO", 3) if protocol == 3 else b"")
        if found and found[-1] == b"+PONG\r\n" and name not in PUBSUB:
            assert len(found) == (3 if protocol == 3 else 2), words


@pytest.mark.parametrize(
    "sent",
    [
        pack(EVIL),
        pack(EVIL, EVIL),
        pack("CONFIG", EVIL),
        pack("CONFIG", "SET", EVIL, "x"),
        pack("CONFIG", "SET", "loglevel", EVIL),
        pack("CONFIG", "SET", "maxmemory", EVIL),
        pack("ACL", EVIL),
        pack("ACL", "SETUSER", EVIL),
        pack("ACL", "SETUSER", "ann", EVIL),
        pack("ACL", "SETUSER", "ann", b"+" + EVIL),
        pack("ACL", "SETUSER", "ann", b"<" + EVIL),
        pack("ACL", "CAT", EVIL),
        pack("ACL", "DRYRUN", EVIL, "PING"),
        pack("ACL", "DRYRUN", "default", EVIL),
        pack("HELLO", EVIL),
        pack("HELLO", "3", "AUTH", EVIL, EVIL),
        pack("DEBUG", "ERROR", EVIL),
        pack("DEBUG", EVIL),
        pack("SCAN", EVIL),
        b'PING "a\\r\\n-FORGED\\r\\nb" x\r\n',
        b'"a\\r\\n-FORGED\\r\\nb"\r\n',
        b'CONFIG SET "a\\r\\n-FORGED\\r\\nb" x\r\n',
    ],
)
@async_test
async def test_no_error_holds_an_end_of_line(launch: Launch, sent: bytes) -> None:
    found = await checked(launch(), sent)
    assert len(found) == 2
    assert found[0][:1] == b"-"


@async_test
async def test_no_refusal_of_a_user_holds_one(launch: Launch) -> None:
    running = launch()
    admin = await running.connect()
    await admin.call("ACL", "SETUSER", "ann", "on", "nopass", "~mine", "+@all", "-config")
    before = pack("AUTH", "ann", "x")
    for sent in (pack("QLEN", EVIL), pack("SUBSCRIBE", EVIL), pack("CONFIG", "GET", EVIL), pack("AUTH", EVIL, EVIL)):
        found = await checked(running, sent, before=before)
        assert len(found) == 3
        assert found[1][:1] == b"-"
    await admin.call("ACL", "LOG")
    assert len(list(frames(bytes(admin.received)))) == 2


def test_the_check_would_find_a_forged_reply() -> None:
    assert len(list(frames(b"-ERR a\r\n-FORGED\r\n"))) == 2
    with pytest.raises(AssertionError):
        list(frames(b"-ERR a\nb\r\n"))
    with pytest.raises(AssertionError):
        list(frames(b"-ERR a\r\nb\r\n"))
