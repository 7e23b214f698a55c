"""The log of actions: every write is in it, no secret and no body is, and it stands in nobody's way."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from disqued.web import audit as module
from disqued.web.audit import RECENT, REFUSED_A_MINUTE, AuditLog
from disqued.web.masking import masked
from disqued.web.routes import ROUTES
from tests.adapters.http import AdminClient, admin
from tests.adapters.inprocess import Running

Launch = Callable[..., Running]
async_test = pytest_twisted.ensureDeferred
BASE64 = {"base64": "cmVxdWlyZXBhc3M="}  # requirepass
SECRET, BODY = "s3cret-0123456789", "the body of a job"


def entry(**more: Any) -> dict[str, Any]:
    return {"who": "ann", "role": "operator", "from": "127.0.0.1:1", "method": "POST", "path": "/api/x", "asked": None,
            "status": 200, **more}  # fmt: skip


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def test_an_entry_is_a_line_of_json_that_only_we_may_read(path: Path) -> None:
    log = AuditLog(path)
    log.note(entry(asked={"queue": "q\nr"}), ADD)
    log.note(entry(status=403))
    first, second = lines(path)
    assert first["asked"] == {"queue": "q\nr"}
    assert first["at"].endswith("Z")
    assert (second["who"], second["status"]) == ("ann", 403)
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(log.recent) == [first, second]
    log.close()


def test_a_file_that_was_rotated_away_is_opened_anew(path: Path) -> None:
    log = AuditLog(path)
    log.note(entry(path="/1"))
    old = path.rename(path.with_suffix(".1"))
    log.note(entry(path="/2"))
    path.unlink()
    log.note(entry(path="/3"))
    assert [line["path"] for line in lines(old)] == ["/1"]
    assert [line["path"] for line in lines(path)] == ["/3"]
    log.close()


def test_a_file_that_cannot_be_written_is_counted_and_taken_up_again(path: Path) -> None:
    log = AuditLog(path / "no" / "folder")
    log.note(entry())
    log.note(entry())
    assert log.failures == 2
    assert len(log.recent) == 2
    (path / "no").mkdir(parents=True)
    log.note(entry(path="/later"))
    assert log.failures == 2
    assert [line["path"] for line in lines(path / "no" / "folder")] == ["/later"]
    log.close()


def test_a_full_disk_tears_no_later_entry(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AuditLog(path)
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(module.os, "write", lambda file, data: write(file, data[:10]))
        log.note(entry(path="/torn"))
    log.note(entry(path="/whole"))
    torn, whole = path.read_bytes().splitlines()
    assert len(torn) == 10
    assert json.loads(whole)["path"] == "/whole"
    assert log.failures == 1
    log.close()
    again = AuditLog(path)
    assert [line["path"] for line in again.recent] == ["/whole"]


def test_what_an_earlier_process_wrote_is_shown(path: Path) -> None:
    first = AuditLog(path)
    first.note(entry(path="/before"))
    first.close()
    again = AuditLog(path)
    assert [line["path"] for line in again.recent] == ["/before"]
    assert again.recent.maxlen == RECENT


def test_strangers_cannot_fill_the_disk(path: Path) -> None:
    log = AuditLog(path)
    for _ in range(REFUSED_A_MINUTE + 5):
        log.note(entry(who="nobody", role="nobody", status=401))
    log.note(entry())
    assert len(lines(path)) == REFUSED_A_MINUTE + 1
    assert log.left_out == 5
    log.close()


ADD, BULK, CONFIG, JOBS, LOGIN, PAUSE = (
    next(entry.body for entry in ROUTES if (entry.method, entry.path) == ("POST", path))
    for path in ("/api/add", "/api/bulk/move", "/api/config", "/api/ack", "/login", "/api/pause")
)


@pytest.mark.parametrize(
    ("schema", "asked", "shown"),
    [
        (ADD, {"queue": "q", "body": BODY, "timeout": 0, "asynchronous": True},
         {"queue": "q", "body": {"length": len(BODY)}, "timeout": 0, "asynchronous": True}),
        (ADD, {"queue": {"base64": "/wA="}, "body": {"base64": "/wA="}},
         {"queue": {"base64": "/wA="}, "body": {"length": 2}}),
        (ADD, {"queue": 7, "body": "é"}, {"queue": 7, "body": {"length": 2}}),
        (ADD, {"queue": {"base64": [BODY]}, "body": 7}, {"queue": "object with 1 field", "body": {"length": 1}}),
        (ADD, {"queue": [BODY], "body": {"deep": BODY}}, {"queue": "list of 1 element", "body": "object with 1 field"}),
        (ADD, {"timeout": BODY, "ttl": 0, "asynchronous": BODY},
         {"timeout": "string of 17 characters", "ttl": "whole number", "asynchronous": "string of 17 characters"}),
        (ADD, {"queue": "q", "Body": BODY, BODY: [BODY]},
         {"queue": "q", "unknown": ["string of 17 characters", "list of 1 element"]}),
        (ADD, {"queue": "q", **{str(number): 1.5 for number in range(50)}},
         {"queue": "q", "unknown": ["number"] * 20, "left_out": 30}),
        (ADD, {"queue": "x" * 300}, {"queue": "x" * 256 + "... (44 more)"}),
        (JOBS, {"ids": ["DI"] * 25}, {"ids": ["DI"] * 20 + [{"left_out": 5}]}),
        (PAUSE, {"queue": "q", "words": ["in", BODY]}, {"queue": "q", "words": ["in", "string of 17 characters"]}),
        (BULK, {"filter": {"queue": "q", "state": ["active"], "body_contains": BODY}, "token": SECRET, "to": "r"},
         {"filter": {"queue": "q", "state": ["active"], "body_contains": {"length": 17}}, "token": "***", "to": "r"}),
        (CONFIG, {"name": "requirepass", "value": SECRET}, {"name": "requirepass", "value": "***"}),
        (CONFIG, {"name": "RequirePass", "value": SECRET}, {"name": "RequirePass", "value": "***"}),
        (CONFIG, {"name": BASE64, "value": SECRET}, {"name": BASE64, "value": "***"}),
        (CONFIG, {"name": "redis-url", "value": [SECRET]}, {"name": "redis-url", "value": "***"}),
        (CONFIG, {"name": "timeout", "value": "5"}, {"name": "timeout", "value": "5"}),
        (CONFIG, {"name": "timeout", "value": [SECRET]}, {"name": "timeout", "value": "list of 1 element"}),
        (CONFIG, {"name": "timeouts", "value": True}, {"name": "string of 8 characters", "value": "true or false"}),
        (LOGIN, {"token": SECRET, "next": "/"}, {"next": "/", "token": "***"}),
        (None, {"queue": "q"}, "object with 1 field"),
        (None, None, None),
    ],
)  # fmt: skip
def test_what_is_shown_of_a_request_that_was_understood(schema: Any, asked: Any, shown: Any) -> None:
    assert masked(asked, schema, understood=True) == shown


@pytest.mark.parametrize(
    ("schema", "asked", "shown"),
    [
        (ADD, {"queue": "mail", "body": BODY, "timeout": -1},
         {"queue": "string of 4 characters", "body": {"length": 17}, "timeout": "whole number"}),
        (ADD, {"timeout": 5, "asynchronous": False}, {"timeout": 5, "asynchronous": False}),
        (PAUSE, {"queue": 5, "words": ["in"]}, {"queue": "whole number", "words": ["in"]}),
        (CONFIG, {"name": "timeout", "value": SECRET}, {"name": "timeout", "value": "string of 17 characters"}),
        (LOGIN, {"token": SECRET, "next": SECRET}, {"next": "string of 17 characters", "token": "***"}),
    ],
)  # fmt: skip
def test_of_a_request_that_was_refused_no_text_is_shown(schema: Any, asked: Any, shown: Any) -> None:
    assert masked(asked, schema, understood=False) == shown


# Through HTTP.


@pytest.fixture
def client(launch: Launch, path: Path) -> AdminClient:
    return admin(launch(f"http-audit-file {path}"))


@async_test
async def test_every_write_is_noted_with_who_and_what_came_of_it(client: AdminClient, path: Path) -> None:
    await client.get("/api/info")
    await client.post("/logout")
    await client.post("/logout", headers={"Origin": "http://evil.example"})
    assert [(line["who"], line["path"], line["status"]) for line in lines(path)] == [
        ("local", "/logout", 204), ("local", "/logout", 403),
    ]  # fmt: skip
    answer = await client.get("/api/audit?count=1")
    assert [line["status"] for line in answer.body["entries"]] == [403]
    assert (await client.get("/api/audit?count=0")).status == 400


@async_test
async def test_no_secret_and_no_body_reaches_the_file(client: AdminClient, path: Path) -> None:
    await client.post("/login", {"token": SECRET})
    await client.request(
        "POST", "/login", body=f"token={SECRET}".encode(), headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    await client.post("/api/commands/ADDJOB", {"queue": "q", "body": BODY, "timeout": 0})
    await client.post("/api/commands/CONFIG/SET", {"name": "requirepass", "value": SECRET})
    assert len(lines(path)) == 4
    assert SECRET not in path.read_text()
    assert BODY not in path.read_text()


SLIPS: list[tuple[str, Any]] = [
    ("/api/config", {"name": "requirepass ", "value": SECRET}),
    ("/api/config", {"value": SECRET}),
    ("/api/config", {"name": ["requirepass"], "value": SECRET}),
    ("/api/config", f"requirepass {SECRET}"),
    ("/api/config", {"name": "timeout", "value": SECRET}),
    ("/api/config", {"name": f"requirepass {SECRET}", "value": ""}),
    ("/api/config", {f"requirepass {SECRET}": ""}),
    ("/api/add", ["mail", SECRET, 0]),
    ("/api/add", {"queue": "m", "data": SECRET, "timeout": 0}),
    ("/api/add", {"queue": "m", "body": [SECRET], "timeout": 0}),
    ("/api/add", {"queue": "m", "body": "x", "timeout": SECRET}),
    ("/api/add", SECRET),
    ("/api/commands/ADDJOB", {"queue": "m", "job": SECRET, "timeout": 0}),
    ("/api/commands/ADDJOB", {"queue": SECRET, "body": "m", "timeout": "0"}),
    ("/login", {"tokn": SECRET}),
    ("/login", {"token": "wrong", "next": SECRET}),
    ("/login", SECRET),
]


@pytest.fixture
def guarded(launch: Launch, path: Path) -> AdminClient:
    """An admin side with a password, and an admin who asks."""
    client = admin(launch(f"http-audit-file {path}\nrequirepass a-password"))
    client.headers["Authorization"] = "Bearer a-password"
    return client


async def everything_noted(client: AdminClient, path: Path) -> str:
    """The log of actions as it is in the file, in memory, and in an answer."""
    answer = await client.get("/api/audit?count=1000")
    assert answer.status == 200
    return f"{path.read_text()} {list(client.site.audit.recent)} {answer.body}"


@pytest.mark.parametrize(("where", "asked"), SLIPS)
@async_test
async def test_a_slip_gives_no_secret_away(guarded: AdminClient, path: Path, where: str, asked: Any) -> None:
    assert (await guarded.post(where, asked)).status in (400, 401)
    assert guarded.site.audit.recent[-1]["path"] == where
    assert SECRET not in await everything_noted(guarded, path)


def json_around(secret: str, *names: str) -> st.SearchStrategy[Any]:
    """JSON values with a secret somewhere: fields that the route knows and others, in objects and lists."""
    leaves = st.sampled_from([secret, f"requirepass {secret}", "requirepass", "timeout", "", "yes", 0, 1.5, True, None])
    fields = st.sampled_from([*names, "base64", "unknown", secret])
    nested = st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(fields, inner, max_size=5), max_leaves=12
    )
    flat = st.fixed_dictionaries({}, optional=dict.fromkeys(names, leaves))
    return st.one_of(flat, nested).filter(lambda value: secret in json.dumps(value))


REQUESTS = st.one_of(
    st.tuples(st.just("/api/config"), json_around(SECRET, "name", "value")),
    st.tuples(st.just("/api/add"), json_around(SECRET, "queue", "body", "timeout", "retry", "asynchronous")),
    st.tuples(st.just("/login"), json_around(SECRET, "token", "next")),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100)
@given(REQUESTS)
@async_test
async def test_whatever_is_refused_its_text_is_not_in_the_log(guarded: AdminClient, path: Path, asked: Any) -> None:
    noted = len(guarded.site.audit.recent)
    guarded.site.audit._refused = 0  # the limit on strangers is not what is looked at
    answer = await guarded.post(*asked)
    assert len(guarded.site.audit.recent) == noted + 1
    assert answer.status in (200, 204, 400, 401, 403, 429)
    if answer.status >= 400:
        assert SECRET not in json.dumps(guarded.site.audit.recent[-1])
        assert SECRET not in path.read_text().splitlines()[-1]


@given(REQUESTS, st.sampled_from([400, 401, 403, 413, 415, 429, 500]))
def test_no_refusal_shows_text(asked: tuple[str, Any], status: int) -> None:
    log = AuditLog(None)
    schema = next(entry.body for entry in ROUTES if (entry.method, entry.path) == ("POST", asked[0]))
    log.note(entry(asked=asked[1], status=status), schema)
    assert SECRET not in json.dumps(log.recent[-1])


@async_test
async def test_a_refused_stranger_is_noted_as_nobody(launch: Launch, path: Path) -> None:
    client = admin(launch(f"http-audit-file {path}\nrequirepass {SECRET}"))
    assert (await client.post("/api/commands/ADDJOB", {"queue": "q", "body": BODY})).status == 401
    (line,) = lines(path)
    assert (line["who"], line["role"], line["status"], line["asked"]) == ("nobody", "nobody", 401, None)


@async_test
async def test_a_request_goes_on_when_its_entry_cannot_be_written(launch: Launch, tmp_path: Path) -> None:
    client = admin(launch(f"http-audit-file {tmp_path}/none/audit.jsonl"))
    assert (await client.post("/logout")).status == 204
    assert (await client.get("/api/audit")).body["missing"] == 1


def test_what_another_program_wrote_into_the_file_is_no_entry(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    log = AuditLog(path)
    log.note(entry())
    log.close()
    lines = [b'{"at": "2026-11-21T20:00:00Z"}', b'{"at": 5, "who": 1}', b"[" * 100_000, b"null", path.read_bytes()]
    path.write_bytes(b"\n".join(lines))
    assert len(AuditLog(path).recent) == 1
