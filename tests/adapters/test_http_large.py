"""Large bodies are read in a thread, in pieces that are short, and as any other body is."""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
import pytest_twisted
from hypothesis import assume, given
from hypothesis import strategies as st

from disqued.web.api.fields import COMMANDS, words
from disqued.web.channel import HOLD_STEP
from disqued.web.http import inputs, jsontext, values
from disqued.web.http.inputs import AT_ONCE_MAX
from disqued.web.http.jsontext import FIELDS_MAX, PIECE, REST_MAX, STRING_MAX, BadJSON, read, read_large
from disqued.web.http.problems import Problem
from disqued.web.http.values import Large, as_bytes
from tests.adapters.http import AdminClient, Exchange, read_answer
from tests.adapters.inprocess import wait_until

Admin = Callable[..., AdminClient]
async_test = pytest_twisted.ensureDeferred

JSON = {"Content-Type": "application/json"}
BODY = bytes(range(256)) * 4_096  #: a mebibyte that is no text


def encoded(body: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(body).decode()}


def job(body: bytes = BODY, queue: str = "mail") -> bytes:
    """What POST /api/add is sent."""
    return json.dumps({"queue": queue, "body": encoded(body), "timeout": 0}).encode()


# Reading.


def read_tiny(raw: bytes) -> Any:
    """Read a text as if everything was long: strings of a few characters, and what is left without them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("STRING_MAX", 3), ("PIECE", 16), ("REST_MAX", 0)):
            patch.setattr(jsontext, name, value)
        patch.setattr(values, "PIECE", 16)
        return read_large(raw)


def plain(value: Any) -> Any:
    """A value with all that stands for bytes as bytes, however it is kept."""
    if isinstance(value, list):
        return [plain(element) for element in value]
    if isinstance(value, str | Large):
        return as_bytes(value)
    if not isinstance(value, dict):
        return (type(value), value)
    try:
        return as_bytes(value)
    except ValueError:
        return {as_bytes(name): plain(element) for name, element in value.items()}


def outcome(reader: Callable[[bytes], Any], raw: bytes) -> Any:
    """What a reader makes of a text, or that it refuses it."""
    try:
        return plain(reader(raw))
    except BadJSON:
        return BadJSON


TEXTS = st.text(st.characters(exclude_categories=())) | st.text('\\"/u0123dD89aAbB{}[], \n', max_size=60)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: (
        st.lists(inner) | st.dictionaries(TEXTS, inner) | st.builds(encoded, st.binary(max_size=100))
        | st.builds(lambda text: {"base64": text}, st.text("AB=/", max_size=40))
    ),
)  # fmt: skip


@given(value=VALUES, escapes=st.booleans(), slashes=st.booleans())
def test_a_large_text_is_read_as_any_other(value: Any, escapes: bool, slashes: bool) -> None:
    text = json.dumps(value, ensure_ascii=escapes)
    raw = (text.replace("/", "\\/") if slashes else text).encode("utf-8", "surrogatepass")
    assert outcome(read_tiny, raw) == outcome(read, raw)


@given(
    inside=st.lists(
        st.sampled_from([
            "\\ud83d", "\\ude00", "\\uD83D\\uDE00", "\\u00e9", "é", "\U0001f600", "\\\\", '\\"', "\\n", "\\u", "\\x",
            "a", "\\", "\x00", "ud83d", "0000",
        ]),
        max_size=40,
    ),
)  # fmt: skip
def test_escapes_are_read_as_elsewhere_wherever_a_piece_ends(inside: list[str]) -> None:
    raw = f'"{"".join(inside)}"'.encode()
    assert outcome(read_tiny, raw) == outcome(read, raw)


@pytest.mark.parametrize("before", range(20))
@pytest.mark.parametrize("text", [r"\ud83d\ude00\ud83d\ude00", r"\ud83d\ude00\n\ud83d\ude00é"])
def test_halves_of_a_pair_stay_together(before: int, text: str) -> None:
    raw = f'"{"a" * before}{text}{"a" * 20}"'.encode()
    assert plain(read_tiny(raw)) == plain(read(raw))


@pytest.mark.parametrize("before", range(20))
@pytest.mark.parametrize("text", [r"\ud83d\ud83d\ude00", r"\ude00\ud83d", r"\ud83d", r"\ude00", r"\ud83d\n\ude00"])
def test_half_of_a_pair_is_refused_in_values_and_names(before: int, text: str) -> None:
    for form in ('"%s"', '["%s"]', '{"%s": 1}', '{"a": "%s"}'):
        raw = (form % ("a" * before + text)).encode()
        for reader in (read, read_tiny):
            with pytest.raises(BadJSON, match="half of a surrogate pair"):
                reader(raw)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b'{"queue": "a", "body": 1, "queue": "a"}', "the field 'queue' is given twice"),
        (b'[{"a": {"b": 1, "\\u0062": 2}}]', "the field 'b' is given twice"),
        (b'{"%b": 1, "%b": 1}' % (b"long" * 9, b"long" * 9), "is given twice"),
        (b"\xef\xbb\xbf{}", "begins with a byte order mark"),
        ("{}".encode("utf-16"), "byte 0 is not UTF-8"),
        ("{}".encode("utf-16-le"), "at character 1"),
        (b'{"a": "\xff"}', "is not UTF-8|no UTF-8"),
        (b'{"a": "\xed\xa0\xbd"}', "is not UTF-8|no UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 40_000, "nested too deeply"),
        (b"1" * 5_000, "an integer has too many digits"),
        (b'{"a": -%b}' % (b"1" * 5_000), "an integer has too many digits"),
        (b"1e999", "larger than any number"),
        (b"[NaN]", "NaN is not JSON"),
        (b"[-Infinity]", "-Infinity is not JSON"),
        (b'["a\x00b"]', "Invalid control character|at character"),
        (b'{"a": 1,}', "at character"),
        (b"{'a': 1}", "at character"),
        (b"[1] 2", "Extra data at character 4"),
        (b"", "at character 0"),
    ],
)  # fmt: skip
def test_what_programs_read_differently_is_refused_with_its_reason(raw: bytes, says: str) -> None:
    for reader in (read, read_tiny):
        with pytest.raises(BadJSON, match=says):
            reader(raw)


@given(value=VALUES, at=st.integers(0, 200), put=st.binary(max_size=3), take=st.integers(0, 3))
def test_what_is_no_json_is_refused_as_elsewhere(value: Any, at: int, put: bytes, take: int) -> None:
    whole = json.dumps(value).encode()
    at %= len(whole) + 1
    raw = whole[:at] + put + whole[at + take :]
    assume(json.detect_encoding(raw) == "utf-8")
    assert outcome(read_tiny, raw) == outcome(read, raw)


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e999", '{"a": [Infinity]}', "", "[1", '"', '{"a": "b}'])
def test_what_python_takes_for_json_and_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_tiny(text.encode())


@pytest.mark.parametrize("raw", [
    job(b"x" * 5_000_000), json.dumps({"body": "é\n\U0001f600" * 1_000_000}).encode(),
    json.dumps({"elements": ["x" * 1_000] * 3_000}, ensure_ascii=False).encode(),
])  # fmt: skip
def test_no_call_of_the_parser_takes_much_at_once(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    taken: list[int] = []

    def noting(parse: Callable[..., Any]) -> Callable[..., Any]:
        def noted(text: Any, *more: Any, **options: Any) -> Any:
            taken.append(len(text))
            return parse(text, *more, **options)

        return noted

    monkeypatch.setattr(values, "a2b_base64", noting(values.a2b_base64))
    monkeypatch.setattr(json, "loads", noting(json.loads))
    decoders: list[tuple[int, Any]] = []
    choose = jsontext._decoder

    def noted_choice(length: int) -> Any:
        decoders.append((length, choose(length)))
        return decoders[-1][1]

    monkeypatch.setattr(jsontext, "_decoder", noted_choice)
    read_large(raw)
    assert max(taken, default=0) <= PIECE + 2
    [(left, decoder)] = decoders
    quick = json.JSONDecoder().scan_once
    assert isinstance(decoder.scan_once, type(quick)) is (left <= REST_MAX)
    assert type(quick) is not type(lambda: None), "this Python has a parser in C"


def test_a_large_text_has_so_many_fields_at_most() -> None:
    def text(count: int) -> bytes:
        return json.dumps({f"k{number}": "{" for number in range(count)}).encode()

    assert len(read_large(text(FIELDS_MAX))) == FIELDS_MAX
    assert len(text(FIELDS_MAX)) > 2 * PIECE
    with pytest.raises(BadJSON, match="it has too many fields; 50000 are allowed in all of its objects together"):
        read_large(text(FIELDS_MAX + 1))
    many = json.dumps([{"a": 1, "b": 2}] * (FIELDS_MAX // 2 + 1)).encode()
    with pytest.raises(BadJSON, match="it has too many fields"):
        read_large(many)
    assert read_large(json.dumps(['":' * 1_000] * 100).encode()) == ['":' * 1_000] * 100


def test_of_many_fields_the_one_that_is_given_twice_is_found_in_one_pass() -> None:
    raw = b"{" + b",".join(b'"k%d":1' % number for number in (*range(FIELDS_MAX - 1), FIELDS_MAX - 2)) + b"}"
    with pytest.raises(BadJSON, match=f"the field 'k{FIELDS_MAX - 2}' is given twice"):
        read_large(raw)


def test_a_long_string_is_bytes_wherever_a_command_wants_them_and_refused_elsewhere() -> None:
    long = Large(b"x" * STRING_MAX)
    entry = COMMANDS["ADDJOB"]
    assert words(entry, {"queue": "q", "body": long, "timeout": 0})[2] == long.data
    for field, says in (("timeout", "timeout is a long string; allowed are numbers"), ("asynchronous", "long")):
        with pytest.raises(Problem, match=says):
            words(entry, {"queue": "q", "body": "x", "timeout": 0, field: long})
    with pytest.raises(ValueError, match="base64 is not valid"):
        as_bytes({"base64": long})


@pytest.mark.parametrize(
    "text", ["A", "AA", "AAA", "AAAA=", "AAAA==", "AAAA===", "AAAA====", "A===", "AA=A", "AA==AAAA", "é", "A A="]
)
def test_what_is_no_base64_is_refused_long_or_short(text: str) -> None:
    for value in (read_tiny(json.dumps({"base64": text}).encode()), {"base64": text}):
        with pytest.raises(ValueError, match="base64 is not valid"):
            as_bytes(value)


# Serving.


@attrs.define
class Readers:
    """Who reads bodies: the thread of each, and how long the body was."""

    noted: list[tuple[int, int]] = attrs.field(factory=list)
    may_go_on: threading.Event = attrs.field(factory=threading.Event)
    at_work: int = 0
    most_at_work: int = 0

    def note(self, parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        def noted(raw: bytes) -> Any:
            self.noted.append((threading.get_ident(), len(raw)))
            return parse(raw)

        return noted

    def wait(self, raw: bytes) -> Any:
        """Read when the test says so."""
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        self.may_go_on.wait(60)
        self.at_work -= 1
        return read_large(raw)


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Readers]:
    found = Readers()
    found.may_go_on.set()
    monkeypatch.setattr(inputs, "read", found.note(read))
    monkeypatch.setattr(inputs, "read_large", found.note(found.wait))
    yield found
    found.may_go_on.set()


async def length(client: AdminClient, queue: str = "mail") -> int:
    return int((await client.get(f"/api/qstat/{queue}")).body["len"])


@async_test
async def test_a_large_body_is_read_in_another_thread_and_a_small_one_here(admin: Admin, readers: Readers) -> None:
    client = admin()
    for body in (b"x", BODY):
        assert (await client.request("POST", "/api/add", body=job(body), headers=JSON)).status == 200
    (small, few), (large, many) = readers.noted
    assert small == threading.get_ident() != large
    assert few <= AT_ONCE_MAX < many
    [_, job_shown] = (await client.get("/api/qpeek/mail")).body["jobs"]
    assert job_shown["body"] == encoded(BODY)
    assert [entry["asked"]["body"] for entry in client.site.audit.recent] == [{"length": 1}, {"length": len(BODY)}]


@async_test
async def test_a_large_body_that_is_wrong_is_refused_as_a_small_one_is(admin: Admin) -> None:
    client = admin()
    for text, says in (
        (job()[:-1], "the body is no JSON text in UTF-8"), (job().replace(b"AAEC", b"A=EC", 1), "base64 is not valid"),
        (b"[" * (AT_ONCE_MAX + 1), "no JSON"), (job().replace(b'"timeout": 0', b'"timeout": "0"'), "are numbers"),
        (b'["' + b"x" * AT_ONCE_MAX + b'"]', "the body is a list"),
        (b'"' + b"x" * AT_ONCE_MAX + b'"', "the body is a long string"),
    ):  # fmt: skip
        answer = await client.request("POST", "/api/add", body=text, headers=JSON)
        assert answer.status == 400
        assert says in answer.body["detail"]


@async_test
async def test_answers_on_a_connection_come_in_the_order_of_its_requests(admin: Admin, readers: Readers) -> None:
    client = admin()
    readers.may_go_on.clear()
    exchange = client.begin("POST", "/api/add", body=job(), headers={**JSON, "Connection": "keep-alive"})
    exchange.send(b"GET /api/qstat/mail HTTP/1.1\r\nHost: 127.0.0.1:7780\r\nConnection: close\r\n\r\n")
    await wait_until(lambda: readers.at_work == 1)
    # The loop goes on meanwhile, for others.
    assert (await client.get("/api/hello")).status == 200
    assert not exchange.received
    readers.may_go_on.set()
    await wait_until(lambda: exchange.ended)
    first, _, second = exchange.received.partition(b"HTTP/1.1 200 OK\r\n")[2].partition(b"HTTP/1.1 ")
    assert b'"id":"DI' in first
    assert read_answer(b"HTTP/1.1 " + second).body["len"] == 1


@async_test
async def test_one_large_body_is_read_after_the_other_and_counted_until_its_answer(
    admin: Admin, readers: Readers
) -> None:
    client = admin()
    readers.may_go_on.clear()
    exchanges = [client.begin("POST", "/api/add", body=job(), headers=JSON) for _ in range(3)]
    await wait_until(lambda: readers.at_work == 1)
    assert client.running.daemon.buffers.used == pytest.approx(3 * len(job()), abs=3 * HOLD_STEP)
    readers.may_go_on.set()
    assert [(await exchange.answer()).status for exchange in exchanges] == [200] * 3
    assert readers.most_at_work == 1
    assert client.running.daemon.buffers.used == 0
    assert await length(client) == 3


@async_test
async def test_who_hangs_up_adds_nothing_and_holds_nobody_up(admin: Admin, readers: Readers) -> None:
    client = admin()
    readers.may_go_on.clear()

    def begin() -> Exchange:
        return client.begin("POST", "/api/add", body=job(), headers=JSON)

    gone, waiting, staying = begin(), begin(), begin()
    await wait_until(lambda: readers.at_work == 1)
    gone.hang_up()
    waiting.hang_up()
    assert client.running.daemon.buffers.used == pytest.approx(len(job()), abs=HOLD_STEP)
    assert readers.most_at_work == 1
    readers.may_go_on.set()
    assert (await staying.answer()).status == 200
    assert len(readers.noted) == 2, "what nobody waits for is not begun"
    assert readers.most_at_work == 1
    assert await length(client) == 1
    assert {entry["status"] for entry in client.site.audit.recent} == {200, 499}
