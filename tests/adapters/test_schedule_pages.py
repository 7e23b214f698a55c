"""The pages of schedules: when each comes, what became of its last jobs, and what can be done about it."""

import json
import re
import shlex
from html import unescape
from typing import Any

import pytest

from disqued.web.pages import schedule_actions
from disqued.web.views import schedule_views
from tests.adapters.http import AdminClient
from tests.adapters.inprocess import wait_until
from tests.adapters.test_pages import (
    OPERATOR,
    VIEWER,
    Admin,
    async_test,
    inputs_of,
    page,
    run,
    with_tokens,
    words,
)

NIGHTLY = ("0 2 * * *", "TZ", "Europe/Berlin")


async def scheduled(client: AdminClient, name: bytes | str = "nightly", *more: str | int) -> None:
    """Set a schedule of the queue reports, at the times of a cron line unless `more` begins with others."""
    when = more or NIGHTLY
    await run(client.running, "SCHEDULE", "SET", name, *when, "QUEUE", "reports", "BODY", "the sales")


def figures(html: str) -> str:
    """Put the value of each figure before its name."""
    return words(re.sub(r"<dt>(.*?)</dt><dd>(.*?)</dd>", r"\2 \1", html, flags=re.DOTALL))


async def fired(client: AdminClient) -> bytes:
    """Let a schedule of every second fire, and pause it; return the id of its last job."""
    await scheduled(client, "beat", "EVERY", 1, "RETRY", 600)
    schedules = client.site.gateway.view.schedules
    await wait_until(lambda: bool(schedules.runs_of(b"beat", 1)))
    await run(client.running, "SCHEDULE", "PAUSE", "beat")
    return schedules.runs_of(b"beat", 1)[0].job_id


@async_test
async def test_schedules_are_in_a_table_with_when_they_come(admin: Admin) -> None:
    client = admin()
    assert "No schedules yet" in await page(client, "/schedules")
    await scheduled(client)
    await scheduled(client, "weekly", "EVERY", 604_800)
    await run(client.running, "SCHEDULE", "PAUSE", "weekly")
    text = figures(html := await page(client, "/schedules"))
    assert "Schedules 2" in text
    assert "1 Paused" in text
    text = words(html)
    assert "nightly 0 2 * * * Europe/Berlin reports active 2" in text
    assert re.search(r"weekly EVERY 604800 \S reports paused \S \S \S", text)
    assert "weekly" not in (found := words(await page(client, "/schedules?q=NIGHT")))
    assert "nightly" in found
    assert "No schedules match" in await page(client, "/schedules?q=nobody")


@async_test
async def test_a_schedule_has_its_page(admin: Admin) -> None:
    client = admin()
    await scheduled(client)
    html = await page(client, "/schedules/nightly")
    assert html.count("<li><time>") == schedule_views.COMING_SHOWN
    assert "No runs since" in html
    text = words(html)
    assert "Time zone Europe/Berlin Queue reports Body the sales" in text
    for verb in ("PAUSE", "FIRE", "DEL"):
        assert f"SCHEDULE {verb} nightly" in html
        assert f"/api/commands/SCHEDULE/{verb}" in html


@async_test
async def test_the_spans_of_a_schedule_are_shown_with_their_fractions(admin: Admin) -> None:
    client = admin()
    await scheduled(client, "beat", "EVERY", "1.5", "JITTER", "0.25", "DELAY", "0.5", "RETRY", 0, "TTL", "90.5")
    html = await page(client, "/schedules/beat")
    assert "EVERY 1.5" in html
    assert "Jitter 250 ms Delay 500 ms" in words(html)
    assert "Time to live 90.5 s" in words(html)
    every = form_of(html, "schedule-change").partition('name="every"')[2].partition(">")[0]
    assert 'value="1.5"' in every
    assert 'inputmode="decimal" pattern="[0-9]*[.]?[0-9]*"' in every


@async_test
async def test_a_schedule_whose_jobs_are_refused_says_why(admin: Admin) -> None:
    client = admin()
    await run(client.running, "PAUSE", "reports", "in")
    await scheduled(client, "beat", "EVERY", 1)
    schedules = client.site.gateway.view.schedules
    assert "refused" not in words(await page(client, "/schedules/beat"))
    await wait_until(lambda: schedules.refusal_of(b"beat") is not None)
    text = words(await page(client, "/schedules/beat"))
    assert re.search(r"refused The run of \S+ \S+, by node \w{8} : PAUSED Queue paused in input, try later", text)
    assert "active refused PAUSED Queue paused" in words(await page(client, "/schedules"))


@async_test
async def test_the_last_instants_are_shown_with_what_became_of_their_jobs(admin: Admin) -> None:
    client = admin()
    job_id = (await fired(client)).decode()
    html = await page(client, "/schedules/beat")
    assert f'href="/jobs/{job_id}"' in html
    assert f"queued {job_id}" in words(html)
    await run(client.running, "ACKJOB", job_id)
    assert f"acked {job_id}" in words(await page(client, "/schedules/beat"))
    assert "acked" in words(await page(client, "/schedules"))


@async_test
async def test_a_schedule_is_paused_resumed_fired_and_deleted(admin: Admin) -> None:
    client = admin()
    await scheduled(client)
    assert (await client.post("/api/commands/SCHEDULE/PAUSE", {"name": "nightly"})).body == {"reply": "OK"}
    html = await page(client, "/schedules/nightly")
    assert "SCHEDULE RESUME nightly" in html
    assert "SCHEDULE PAUSE" not in html
    assert "None: the schedule is paused or done" in html
    assert (await client.post("/api/commands/SCHEDULE/RESUME", {"name": "nightly"})).body == {"reply": "OK"}
    assert "SCHEDULE PAUSE nightly" in await page(client, "/schedules/nightly")
    assert (await client.post("/api/commands/SCHEDULE/FIRE", {"name": "nightly"})).body["reply"].startswith("DI")
    assert (await client.post("/api/commands/SCHEDULE/DEL", {"name": "nightly"})).body == {"reply": 1}
    assert "no schedule nightly known to this node" in await page(client, "/schedules/nightly", status=404)


@async_test
async def test_a_viewer_sees_schedules_without_bodies_and_buttons(admin: Admin, tmp_path: Any) -> None:
    client = with_tokens(admin, tmp_path)
    await scheduled(client, "nightly", *NIGHTLY, "HEADER", "secret-name", "secret-value")
    html = await page(client, "/schedules/nightly", VIEWER)
    assert "the sales" not in html
    assert "secret-" not in html
    assert html.count("withheld") == 2
    assert "SCHEDULE DEL" not in html
    assert "SCHEDULE DEL" in await page(client, "/schedules/nightly", OPERATOR)
    as_viewer = {"Authorization": f"Bearer {VIEWER}"}
    for verb in ("PAUSE", "RESUME", "FIRE", "DEL"):
        refused = await client.post(f"/api/commands/SCHEDULE/{verb}", {"name": "nightly"}, headers=as_viewer)
        assert refused.status == 403
    assert client.site.gateway.view.policies.schedules


@pytest.mark.parametrize(
    ("name", "path"),
    [
        (b".", "/schedule?name=."), (b"..", "/schedule?name=.."), (b"a/b", "/schedules/a%2Fb"),
        (b"\xff<script>x</script>", "/schedules/%FF%3Cscript%3Ex%3C%2Fscript%3E"), (b"'\"&", "/schedules/%27%22%26"),
    ],
)  # fmt: skip
@async_test
async def test_any_bytes_are_the_name_of_a_schedule(admin: Admin, name: bytes, path: str) -> None:
    client = admin()
    await scheduled(client, name)
    html = await page(client, "/schedules")
    assert f'href="{path}"' in html
    assert "<script>x" not in html
    html = await page(client, path)
    assert "<script>x" not in html
    assert "the sales" in html


@async_test
async def test_what_a_schedule_says_is_no_markup(admin: Admin) -> None:
    client = admin()
    evil = "<script>x</script>"
    words = ("0 2 * * *", "QUEUE", evil, "BODY", evil, "HEADER", evil, evil)
    await run(client.running, "SCHEDULE", "SET", "evil", *words)
    for path in ("/schedules", "/schedules/evil", f"/schedules?q={evil}"):
        html = await page(client, path)
        assert "<script>x" not in html
        assert "&lt;script&gt;x" in html


@async_test
async def test_a_schedule_that_is_not_named_is_asked_for(admin: Admin) -> None:
    assert "the name of a schedule" in await page(admin(), "/schedule", status=400)


@async_test
async def test_very_many_schedules_are_cut_into_pages_and_others_have_their_turn(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = admin()
    for number in range(2 * schedule_views.PAGE_ROWS + 1):
        await scheduled(client, b"s%03d" % number, "EVERY", 3_600)
    turns = 0

    def turn(reactor: Any, before: Any = schedule_views.next_turn) -> Any:
        nonlocal turns
        turns += 1
        if turns == 2:
            client.running.daemon.node.schedules.delete(b"s099")
        return before(reactor)

    monkeypatch.setattr(schedule_views, "next_turn", turn)
    html = await page(client, "/schedules")
    assert turns == schedule_views.PAGE_ROWS // schedule_views.SLICE_SCHEDULES - 1
    assert html.count('href="/schedules/s') == schedule_views.PAGE_ROWS - 1
    assert "Page 1 of 3" in words(html)
    assert 'href="/schedules?q=&amp;page=2"' in html
    assert "Page 2 of 2" in words(await page(client, "/schedules?page=9"))


@async_test
async def test_what_changes_is_sent_again(admin: Admin) -> None:
    client = admin()
    await fired(client)
    exchange = client.begin("GET", "/api/events?page=schedules")
    await wait_until(lambda: b"schedule-rows" in exchange.received)
    assert b"beat" in exchange.received
    exchange.hang_up()
    exchange = client.begin("GET", "/api/events?page=schedule&schedule=beat")
    await wait_until(lambda: b"schedule-now" in exchange.received)
    await run(client.running, "SCHEDULE", "DEL", "beat")
    await wait_until(lambda: b"was deleted" in exchange.received)
    exchange.hang_up()


SET = "/api/commands/SCHEDULE/SET"


def form_of(html: str, key: str) -> str:
    """Return the form with a button."""
    return html.partition(f'id="do-{key}"')[0].rpartition("<form")[2]


@async_test
async def test_a_schedule_is_set_on_the_page_with_every_option_of_the_command(admin: Admin) -> None:
    client = admin()
    add = schedule_actions.set_new()
    names = {one.name for one in add.inputs}
    assert names == inputs_of("SCHEDULE SET", ("dry_run",)) | {"name", "line"}
    assert names == set(re.findall(r'name="([^"]+)"', form_of(await page(client, "/schedules"), "schedule-set")))
    typed = {"name": "beat", "every": 60, "queue": "reports", "body": "", "overlap": "skip", "maxlen": 9}
    (first, second, *more) = (await client.post(add.path, {**add.body, **typed, "dry_run": True})).body["reply"]
    assert (second - first, len(more)) == (60, 3)
    assert not client.site.gateway.view.policies.schedules
    assert (await client.post(add.path, {**add.body, **typed})).body == {"reply": "OK"}
    assert re.search(r"beat EVERY 60 \S reports active", words(await page(client, "/schedules")))
    for wrong, error in (
        ({"every": 60, "line": "* * * * *"}, "SCHEDULE SET takes one of a cron line, EVERY seconds"),
        ({"line": "61 * * * *"}, "61"), ({"every": 60, "zone": "UTC"}, "TZ goes with a cron line"), ({"at": 1}, "AT"),
    ):  # fmt: skip
        refused = await client.post(add.path, {**add.body, "name": "x", "queue": "q", "body": "", **wrong})
        assert refused.status == 400
        assert error in refused.body["detail"]


SAID = [
    ("*/5 9-17 * * mon-fri", "TZ", "Europe/Berlin", "OVERLAP", "skip", "CATCHUP", 0, "JITTER", 30),
    ("@hourly", "DELAY", 5, "RETRY", 0, "REPLICATE", 1, "TTL", 900, "MAXLEN", 10, "ASYNC"),
    ("EVERY", 90, "MAXTRIES", 3, "BACKOFF", 2, 60, "KEEPDEAD", 0, "RESULT", 70, "GROUP", "acme", "HEADER", "a", "b=c"),
    ("AT", 2**33, "KEEPDEAD", 90, "HEADER", "empty", ""), ("EVERY", 60, "MAXTRIES", 9, "BACKOFF", 30),
    ("EVERY", "1.5", "JITTER", "0.25", "DELAY", "0.5", "RETRY", "0.125", "TTL", "90.5", "MAXTRIES", 3, "BACKOFF", "0.5",
     "60.75", "KEEPDEAD", "1.001", "RESULT", "2.5"),
    ("EVERY", 60, "GROUP", b"\xff", "HEADER", "two words", "x y", "HEADER", "raw", b"\xfe\x00"),
]  # fmt: skip
BODIES = ["", "the sales", '\n <b>"line"</b>\n\nline\n', b"\xff\x00", "one\r\ntwo"]


@pytest.mark.parametrize("queue", ["reports", b"\xff", ""])
@pytest.mark.parametrize("said", SAID, ids=range(len(SAID)))
@async_test
async def test_the_form_that_changes_a_schedule_says_what_the_schedule_says(
    admin: Admin, said: tuple[str | int, ...], queue: bytes | str
) -> None:
    client = admin()
    policies = client.site.gateway.view.policies
    for body in BODIES:
        await run(client.running, "SCHEDULE", "SET", b"a/\xff", *said, "QUEUE", queue, "BODY", body)
        before = policies.schedules[b"a/\xff"]
        change = schedule_actions.change(b"a/\xff", before)
        html = await page(client, "/schedules/a%2F%FF")
        curl = html.partition('id="do-schedule-change"')[2].partition('data-line="curl">')[2].partition("</code>")[0]
        *_, asked, url = shlex.split(unescape(curl))
        assert url.endswith(SET)
        await run(client.running, "SCHEDULE", "DEL", b"a/\xff")
        assert (await client.post(SET, json.loads(asked))).body == {"reply": "OK"}
        assert policies.schedules[b"a/\xff"] == before
        await run(client.running, "SCHEDULE", "DEL", b"a/\xff")
        assert await run(client.running, *change.command) == b"OK"
        assert policies.schedules[b"a/\xff"] == before


@async_test
async def test_what_no_field_can_hold_is_kept_and_said(admin: Admin) -> None:
    client = admin()
    more = ("GROUP", b"\xff", "HEADER", "two words", "x y")
    await run(client.running, "SCHEDULE", "SET", "raw", "EVERY", 9, "QUEUE", "q", "BODY", b"\xff", *more)
    html = await page(client, "/schedules/raw")
    assert "stay as they are: body, headers, group." in html
    names = set(re.findall(r'name="([^"]+)"', form_of(html, "schedule-change")))
    assert {"line", "every", "queue"} <= names
    assert not {"body", "headers", "group"} & names
    await scheduled(client)
    assert "stay as they are" not in await page(client, "/schedules/nightly")


@async_test
async def test_those_who_see_no_bodies_change_no_schedule_as_that_would_take_its_body_away(
    admin: Admin, tmp_path: Any
) -> None:
    (tmp_path / "tokens").write_text(f"vic viewer bodies {VIEWER}\nolga operator {OPERATOR}\n")
    (tmp_path / "tokens").chmod(0o600)
    client = admin(f"http-token-file {tmp_path / 'tokens'}")
    await scheduled(client)
    assert "schedule-change" not in (html := await page(client, "/schedules/nightly", OPERATOR))
    assert "needs the permission to see bodies" in html
    assert "do-schedule-set" in await page(client, "/schedules", OPERATOR)
    for path in ("/schedules", "/schedules/nightly"):
        html = await page(client, path, VIEWER)
        assert "SCHEDULE SET" not in html
        assert "needs the permission" not in html
    body = {"name": "nightly", "every": 1, "queue": "q", "body": "x"}
    refused = await client.post(SET, body, headers={"Authorization": f"Bearer {VIEWER}"})
    assert refused.status == 403
    assert client.site.gateway.view.policies.schedules[b"nightly"].line == b"0 2 * * *"
