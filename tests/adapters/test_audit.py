"""The log of actions: every write is in it, no secret and no body is, and it stands in nobody's way."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted

from disqued.web import audit as module
from disqued.web.audit import RECENT, REFUSED_A_MINUTE, AuditLog
from disqued.web.masking import masked
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
    log.note(entry(asked={"queue": "q\nr"}))
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


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({"queue": "q", "body": BODY}, {"queue": "q", "body": {"length": len(BODY)}}),
        ({"body": {"base64": "/wA="}}, {"body": {"length": 2}}),
        ({"jobs": [{"body": "é"}]}, {"jobs": [{"body": {"length": 2}}]}),
        ({"bodies": ["a", "b"]}, {"bodies": {"count": 2}}),
        ({"Body": 7}, {"Body": {"length": 1}}),
        ({"body": {"deep": BODY}}, {"body": "***"}),
        ({"name": "requirepass", "value": SECRET}, {"name": "requirepass", "value": "***"}),
        ({"name": "RequirePass", "value": SECRET}, {"name": "RequirePass", "value": "***"}),
        ({"name": BASE64, "value": SECRET}, {"name": BASE64, "value": "***"}),
        ({"settings": {"cluster-secret": SECRET}}, {"settings": {"cluster-secret": "***"}}),
        ({"cluster_secret": SECRET}, {"cluster_secret": "***"}),
        ({"name": "redis-url", "value": [SECRET]}, {"name": "redis-url", "value": ["***"]}),
        ({"name": "timeout", "value": "5"}, {"name": "timeout", "value": "5"}),
        ({"token": SECRET, "next": "/"}, {"token": "***", "next": "/"}),
        ({"auth": ["default", SECRET]}, {"auth": "***"}),
        ({"password_or_user": SECRET}, {"password_or_user": "***"}),
        (["CONFIG", "SET", "requirepass", SECRET], ["CONFIG", "SET", "requirepass", "***"]),
        (["AUTH", "default", SECRET], ["AUTH", "***", "***"]),
        (["ADDJOB", "q", BODY, "0"], ["ADDJOB", "q", "***"]),
        (["x"] * 25, ["x"] * 20 + [{"left_out": 5}]),
        ("x" * 300, "x" * 256 + "... (44 more)"),
        (7, 7),
        (None, None),
    ],
)  # fmt: skip
def test_what_is_shown_of_a_request(asked: Any, shown: Any) -> None:
    assert masked(asked) == shown


def test_a_path_may_name_the_secret() -> None:
    assert masked({"value": SECRET}, "/api/config/requirepass") == {"value": "***"}
    assert masked(SECRET, "/api/config/require%70ass") == "***"


def test_what_is_nested_deeply_is_cut() -> None:
    deep: Any = SECRET
    for _ in range(900):
        deep = [deep]
    assert SECRET not in json.dumps(masked(deep))


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
    await client.post("/api/commands/CONFIG%20SET", {"name": "requirepass", "value": SECRET})
    assert len(lines(path)) == 4
    assert SECRET not in path.read_text()
    assert BODY not in path.read_text()


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
