"""The recorded commands, played on a node of ours, and both replies made comparable.

    data/*.jsonl --> play: each command in its turn, the node flushed before each case --> Exchange
                                                                                             |
                   recorded reply (masked when it was recorded)  <-- settled ------+---------+
                   our reply --> masked in the same way --> settled ---------------+

Masked are job ids in the order in which they came, the node's id, its port, creation times and facts of the machine;
each is looked at before it is masked.  Numbers that count down are compared with a tolerance: Disque shifts a retry
by up to 250 ms at random and reads its clock every 100 ms, and meanwhile time passes.

Times are milliseconds.
"""

import json
import re
import socket
import time
from functools import partial
from pathlib import Path
from typing import BinaryIO

import attrs

from tests.compat.replies import Reply, array, bulk, change_fields, fields, parse, read_raw, walk

RECORDING = Path(__file__).with_name("data") / "disque-1.0-rc1.jsonl"
JITTER_MS = 350
WALL_SLACK_S = 2  #: by which two readings of the wall clock may disagree about the order of things

#: Fields that time moves, with the milliseconds that their unit has.
MOVING_MS = {b"ttl": 1_000, b"next-requeue-within": 1, b"age": 1_000, b"idle": 1_000}
VARIES = b"<varies>"


@attrs.frozen
class Recorded:
    """One line of the recording."""

    number: int  #: from 1
    case: str
    args: tuple[str, ...]  #: latin-1, masks of job ids included
    reply: bytes

    @property
    def name(self) -> str:
        """Name it for a test's id."""
        words = " ".join(word if word.isascii() else repr(word) for word in self.args)
        return f"{self.number:03d} {self.case}: {words}"


def load() -> list[Recorded]:
    """Read the recording."""
    lines = RECORDING.read_text(encoding="ascii").splitlines()
    found = map(json.loads, lines)
    return [
        Recorded(number, line["case"], tuple(line["args"]), line["reply"].encode("latin-1"))
        for number, line in enumerate(found, 1)
    ]


@attrs.define
class Run:
    """What is known of the node that the commands are played on."""

    node_id: bytes
    port: int
    directory: Path
    began_s: float  #: wall clock
    ids: dict[bytes, bytes] = attrs.field(factory=dict)  #: a job id of ours to its mask


@attrs.frozen
class Exchange:
    """One recorded command with both replies."""

    recorded: Recorded
    raw: bytes  #: what our node sent
    lasted_ms: int  #: since the case began
    ended_s: float  #: wall clock
    run: Run

    @property
    def command(self) -> tuple[str, ...]:
        """The words that decide what it is: the name, and the subcommand of those that have one."""
        words = tuple(word.upper() for word in self.recorded.args)
        return words[:2] if words[0] in ("CLIENT", "CLUSTER", "COMMAND", "CONFIG", "DEBUG") else words[:1]

    def theirs(self) -> Reply:
        """The recorded reply, ready to be compared."""
        return self._settled(parse(self.recorded.reply))

    def ours(self) -> Reply:
        """The reply of our node, masked, ready to be compared; `theirs` decides what is near enough."""
        reply = self._settled(walk(parse(self.raw), self._mask))
        return self._brought_near(reply, self.theirs())

    # Masks.

    def _mask(self, part: Reply) -> Reply:
        """Mask what no two runs share."""
        if part.kind == "*":
            return change_fields(part, {b"ctime": self._mask_ctime})
        if part.text is None:
            return part
        text = self.run.ids.get(part.text, part.text).replace(self.run.node_id, b"<node>")
        if text == b"%d" % self.run.port:
            text = b"<port>"
        if self.command == ("CLUSTER", "NODES"):
            text = text.replace(b" :%d " % self.run.port, b" :<port> ")
        return attrs.evolve(part, text=text)

    def _mask_ctime(self, value: Reply) -> Reply:
        assert value.text is not None
        return attrs.evolve(value, text=b"<ns>") if self._is_recent(int(value.text) / 1e9) else value

    def _is_recent(self, unix_s: float) -> bool:
        """Tell whether a moment lies within the run."""
        return self.run.began_s - WALL_SLACK_S <= unix_s <= self.ended_s + WALL_SLACK_S

    # What both replies go through.

    def _settled(self, reply: Reply) -> Reply:
        """Bring what has no order into one, and what depends on the moment into a form that does not."""
        reply = walk(walk(reply, _awake_by_requeue), _out_of_queue)
        match self.command:
            case ("JSCAN",) if reply.kind == "*":
                cursor, elements = reply.items
                return array(cursor, _sorted(elements))
            case ("COMMAND",):
                return _sorted(reply)
            case ("CONFIG", "GET") if self.recorded.args[-1] == "*":
                return self._settled_config(reply)
            case ("INFO",):
                return _settled_info(reply)
            case ("TIME",):
                return self._settled_time(reply)
            case ("SLOWLOG",) if reply.kind == ":":
                # A machine with other things to do logs slow commands.
                return Reply(":", VARIES)
        return reply

    def _settled_config(self, reply: Reply) -> Reply:
        pairs = sorted(zip(reply.items[::2], reply.items[1::2], strict=True), key=lambda pair: pair[0].text or b"")
        path = str(self.run.directory).encode()
        # Another setting may have the very number that is our port in this run.
        port = bulk(b"%d" % self.run.port)
        pairs = [(name, port if value.text == b"<port>" and name.text != b"port" else value) for name, value in pairs]
        flat = array(*(part for pair in pairs for part in pair))
        return change_fields(flat, {b"dir": lambda value: bulk((value.text or b"").replace(path, b"<path>"))})

    def _settled_time(self, reply: Reply) -> Reply:
        texts = [item.text or b"" for item in reply.items]
        is_time = len(texts) == 2 and all(map(bytes.isdigit, texts)) and int(texts[1]) < 1_000_000
        is_recorded = bytes(reply) == self.recorded.reply
        return Reply("+", VARIES) if is_time and (is_recorded or self._is_recent(int(texts[0]))) else reply

    def _brought_near(self, ours: Reply, theirs: Reply) -> Reply:
        """Take over numbers that time alone moves, where they are near enough; ours may have more at its end."""
        more = ours.items[len(theirs.items) :]
        if len(ours.items) < len(theirs.items):
            return ours
        items = (self._brought_near(mine, other) for mine, other in zip(ours.items, theirs.items, strict=False))
        ours = attrs.evolve(ours, items=(*items, *more))
        recorded = fields(theirs)
        near = {
            name: partial(self._near, other=recorded[name], unit_ms=unit_ms)
            for name, unit_ms in MOVING_MS.items()
            if name in recorded
        }
        return change_fields(ours, near)

    def _near(self, mine: Reply, *, other: Reply, unit_ms: int) -> Reply:
        """Take over a number that is as near as the time that has passed allows."""
        if mine.kind != ":" or mine.text is None or other.kind != ":" or other.text is None:
            return mine
        apart_ms = abs(int(mine.text) - int(other.text)) * unit_ms
        return other if apart_ms <= self.lasted_ms + max(JITTER_MS, unit_ms) else mine


def _sorted(elements: Reply) -> Reply:
    return attrs.evolve(elements, items=tuple(sorted(elements.items, key=bytes)))


#: A job that is neither in its queue nor delayed, of which a recorded reply does not tell whether a consumer has it.
OUT_OF_QUEUE = b"in-flight or elsewhere"


def _out_of_queue(part: Reply) -> Reply:
    """Say of a job that is out of its queue no more than that: not who has it, nor of another one its place in it."""
    known = fields(part) if part.kind == "*" else {}
    if b"phase" not in known:
        return part
    part = attrs.evolve(part, items=part.items[: part.items.index(bulk(b"phase")) + 2])
    if known[b"phase"].text not in (b"in-flight", b"elsewhere"):
        return part
    return change_fields(part, {b"phase": lambda _: bulk(OUT_OF_QUEUE)})


def _awake_by_requeue(part: Reply) -> Reply:
    """Say how long before the requeue a job is looked at, rather than when."""
    known = fields(part) if part.kind == "*" else {}
    awake, requeue = known.get(b"next-awake-within"), known.get(b"next-requeue-within")
    if awake is None or requeue is None or not awake.text or not requeue.text:
        return part
    before_ms = int(requeue.text) - int(awake.text)
    return change_fields(part, {b"next-awake-within": lambda _: bulk(b"%d ms before the requeue" % before_ms)})


#: Fields of INFO that tell of the machine or of the moment, besides those masked in the recording.
_INFO_VARIES = re.compile(rb"arch_bits|multiplexing_api|total_net_output_bytes|instantaneous_\w+")


def _settled_info(reply: Reply) -> Reply:
    """Make an array of INFO's lines; facts of the machine and of the moment are masked."""
    return array(*(bulk(_settled_info_line(line)) for line in (reply.text or b"").split(b"\r\n")))


#: Fields whose values were masked in the recording, or that Disque did not have.
_INFO_MASKED = re.compile(
    rb"disque_git_sha1|disque_build_id|os|gcc_version|process_id|run_id|tcp_port|uptime_in_\w+|hz|executable|"
    rb"config_file|used_\w+|mem_\w+|disqued_version|python_version|core_build|master_replid|cluster_bus_port|"
    rb"dir_\w+_bytes"
)


def _settled_info_line(line: bytes) -> bytes:
    field, colon, _ = line.partition(b":")
    if colon and (_INFO_VARIES.fullmatch(field) or _INFO_MASKED.fullmatch(field)):
        return field + b":" + VARIES
    return line


# Playing.


class Client:
    """A connection that sends commands and hands out replies as they are."""

    def __init__(self, host: str, port: int, patience_s: float) -> None:
        self._socket = socket.create_connection((host, port), timeout=patience_s)
        self._stream: BinaryIO = self._socket.makefile("rb")

    def call(self, *args: bytes) -> bytes:
        """Send a command and take the bytes of its reply."""
        words = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in args)
        return self.send(b"*%d\r\n%b" % (len(args), words))

    def send(self, data: bytes) -> bytes:
        """Send bytes as they are and take the bytes of one reply."""
        self.send_only(data)
        return self.read()

    def send_only(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def read(self) -> bytes:
        """Take the bytes of the next reply."""
        return read_raw(self._stream)

    def is_ended(self) -> bool:
        """Tell whether the other end closes without another word."""
        try:
            return self._stream.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        """End the connection."""
        self._stream.close()
        self._socket.close()


def play(client: Client, run: Run) -> list[Exchange]:
    """Play the whole recording on a fresh node."""
    exchanges: list[Exchange] = []
    given: dict[str, bytes] = {}
    case, case_began = "", 0.0
    for recorded in load():
        if recorded.case != case:
            case, case_began = recorded.case, time.monotonic()
            assert client.call(b"DEBUG", b"FLUSHALL") == b"+OK\r\n"
        raw = client.call(*(given.get(word, word.encode("latin-1")) for word in recorded.args))
        _note_id(recorded, raw, given, run)
        lasted_ms = round((time.monotonic() - case_began) * 1_000) + 1
        exchanges.append(Exchange(recorded, raw, lasted_ms, time.time(), run))
    return exchanges


def _note_id(recorded: Recorded, raw: bytes, given: dict[str, bytes], run: Run) -> None:
    """Remember the id of a job, when one was recorded and one was given."""
    mask = re.fullmatch(rb"\+(<id\d+>)\r\n", recorded.reply)
    if mask is not None and mask[1].decode() not in given and raw.startswith(b"+"):
        job_id = raw[1:-2]
        given[mask[1].decode()] = job_id
        run.ids[job_id] = mask[1]
