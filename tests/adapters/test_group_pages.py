"""Logs on the pages: the groups of a queue, what each made of an event, and what can be done."""

import re
from pathlib import Path

from disqued.web.api.commands_api import role_of
from disqued.web.api.fields import COMMANDS
from disqued.web.pages import actions
from disqued.web.views import rendering
from tests.adapters.http import AdminClient
from tests.adapters.inprocess import wait_until
from tests.adapters.test_pages import OPERATOR, VIEWER, Admin, async_test, page, run, with_tokens, words


async def add(client: AdminClient, queue: str = "events", *bodies: str) -> list[str]:
    return [(await run(client.running, "QADD", queue, 60, body)).decode() for body in bodies]


def part(html: str, section: str) -> str:
    """What a section of a page says."""
    return words(html.partition(f'id="{section}"')[2].partition("</section>")[0])


@async_test
async def test_a_log_shows_its_events_and_groups(admin: Admin) -> None:
    client = admin()
    first, second, _ = await add(client, "events", "one", "two", "three")
    html = await page(client, "/queues/events")
    assert "No consumer groups yet" in html
    assert "two" in part(html, "h-peek")
    assert "Matches: 3" in words(html)
    assert "Events 3" in words(html)
    assert f"Oldest event {rendering.NONE}" not in words(html)
    assert 'data-backlog="Events"' in html
    await run(client.running, "QGET", "events", "mailers", "EX", 60)
    await run(client.running, "QGET", "events", "mailers", "EX", 0)
    await run(client.running, "QGET", "events", "<b>", "EX", 60)
    html = await page(client, "/queues/events")
    assert "In flight this node 2" in words(html)
    assert "mailers 3 1 0 1 1 0" in part(html, "h-groups")
    assert "<b> 3 1 0 0 2 0" in part(html, "h-groups")
    assert "QGROUP START events" in html
    assert "<b>" not in html
    assert "mailers in progress" in (said := part(await page(client, f"/jobs/{first}"), "h-groups"))
    assert "<b> in progress" in said
    said = part(await page(client, f"/jobs/{second}"), "h-groups")
    assert "mailers done" in said
    assert "<b> available" in said


@async_test
async def test_an_event_is_given_back_and_a_group_forgotten_by_what_the_page_says(admin: Admin) -> None:
    client = admin()
    [event_id] = await add(client, "events", "one")
    await run(client.running, "QGET", "events", "mailers")
    html = await page(client, f"/jobs/{event_id}")
    assert "ACKJOB" not in html
    assert "each group of consumers is given it" in html
    asked = {"queue": "events", "group": "mailers", "ids": [event_id]}
    assert (await client.post("/api/commands/QGROUP/RETURN", asked)).body == {"reply": 1}
    assert "mailers redo" in part(await page(client, f"/jobs/{event_id}"), "h-groups")
    asked = {"queue": "events", "group": "mailers"}
    assert (await client.post("/api/commands/QGROUP/FORGET", asked)).body == {"reply": 1}
    assert "No consumer groups" in await page(client, "/queues/events")


@async_test
async def test_groups_are_live(admin: Admin) -> None:
    client = admin()
    await add(client, "events", "one", "two")
    watching = client.begin("GET", "/api/events?page=queue&queue=events")
    await wait_until(lambda: b'"groups"' in watching.received)
    await run(client.running, "QGET", "events", "mailers")
    await wait_until(lambda: b"mailers" in watching.received)
    watching.hang_up()


@async_test
async def test_work_has_no_groups(admin: Admin) -> None:
    client = admin()
    await run(client.running, "ADDJOB", "mail", "x", 0)
    html = await page(client, "/queues/mail")
    assert "h-groups" not in html
    assert "jobs Type" in words(html) or "Type jobs" in words(html)


@async_test
async def test_a_log_is_emptied_after_its_events_have_been_counted(admin: Admin, tmp_path: Path) -> None:
    client = with_tokens(admin, tmp_path)
    await add(client, "a/b", "one", "two")
    await run(client.running, "QGET", "a/b", "mailers")
    html = await page(client, "/queues/a%2Fb", OPERATOR)
    assert "redis-cli -p 7711 QFLUSH a/b" in part(html, "h-groups")
    [counted] = re.findall(r'data-counted="([^"]*)"', html)
    bearer = {"Authorization": f"Bearer {OPERATOR}"}
    assert (await client.get(counted, headers=bearer)).body["len"] == 2
    assert "QFLUSH" not in await page(client, "/queues/a%2Fb", VIEWER)
    asked = {"queue": "a/b"}
    refused = await client.post("/api/commands/QFLUSH", asked, headers={"Authorization": f"Bearer {VIEWER}"})
    assert refused.status == 403
    assert (await client.post("/api/commands/QFLUSH", asked, headers=bearer)).body == {"reply": "OK"}
    assert (await client.get(counted, headers=bearer)).body["len"] == 0
    assert "mailers" not in await page(client, "/queues/a%2Fb", OPERATOR)


def test_who_may_empty_a_log_is_who_may_run_the_command() -> None:
    for queue in (b"events", b".", b"\xff"):
        [flush] = actions.on_log(queue)
        assert flush.role is role_of(COMMANDS["QFLUSH"])
        assert flush.confirm
        assert flush.command == [b"QFLUSH", queue]
