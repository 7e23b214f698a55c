"""Pages of what is in the whole cluster: connections, the search field, and the job page as it moves."""

from pathlib import Path

from tests.adapters.inprocess import wait_until
from tests.adapters.test_pages import (
    ADMIN,
    OPERATOR,
    UNKNOWN,
    Admin,
    add,
    async_test,
    page,
    run,
    ways,
    with_tokens,
    words,
)


@async_test
async def test_connections_are_in_a_table_that_is_filtered_and_sorted(admin: Admin) -> None:
    client = admin()
    for name in ("press-1", "mailer"):
        connection = await client.running.connect()
        await connection.call("CLIENT", "SETNAME", name)
    html = await page(client, "/connections")
    text = words(html)
    assert "Connections 2" in text
    assert f"{client.site.gateway.view.id[:8].decode()} this node" in text
    assert "CLIENT SETNAME" in text
    assert ways(html) == {"kill"}
    found = words(await page(client, "/connections?q=PRESS"))
    assert ("press-1" in found, "mailer" in found) == (True, False)
    html = await page(client, "/connections?sort=name")
    assert html.index("mailer") < html.index("press-1")
    assert "No connections match" in await page(client, "/connections?q=nobody")
    number = await connection.call("CLIENT", "ID")
    assert (await client.post("/api/commands/CLIENT/KILL", {"id": number})).body == {"reply": 1}
    await connection.closed()
    assert "mailer" not in await page(client, "/connections")


@async_test
async def test_connections_are_for_those_who_may_list_clients(admin: Admin, tmp_path: Path) -> None:
    client = with_tokens(admin, tmp_path)
    await page(client, "/connections", OPERATOR, status=403)
    assert "/connections" not in await page(client, "/", OPERATOR)
    assert 'href="/connections"' in await page(client, "/connections", ADMIN)


@async_test
async def test_the_search_field_leads_to_a_job_or_to_a_queue(admin: Admin) -> None:
    client = admin()
    job_id = await add(client, "mail", "x")
    await add(client, "post-1", "x")
    await add(client, "post-2", "x")
    assert 'action="/find"' in await page(client, "/")
    for text, target in (
        (f"+{job_id}+", f"/jobs/{job_id}"), (UNKNOWN, f"/jobs/{UNKNOWN}"), ("mail", "/queues/mail"),
        ("AI", "/queues/mail"), ("post-1", "/queues/post-1"), ("post", "/queues?q=post"), ("", "/queues"),
    ):  # fmt: skip
        answer = await client.get(f"/find?q={text}")
        assert (answer.status, answer.headers["location"]) == (303, target), text
    html = await page(client, "/find?q=none%3C", status=404)
    assert "none&lt; is neither the id of a job nor in the name of a queue" in html
    assert ways(html) == {"add"}


@async_test
async def test_the_page_of_a_job_is_live(admin: Admin) -> None:
    client = admin()
    job_id = await add(client, "mail", "x", "RETRY", 60)
    assert f'data-events="page=job&amp;job={job_id}"' in await page(client, f"/jobs/{job_id}")
    watching = client.begin("GET", f"/api/events?page=job&job={job_id}")
    await wait_until(lambda: b"at about place 1" in watching.received)
    await run(client.running, "GETJOB", "FROM", "mail")
    await wait_until(lambda: b"It is in flight" in watching.received)
    await run(client.running, "ACKJOB", job_id)
    await wait_until(lambda: b"No node that answers knows this job" in watching.received)
    watching.hang_up()


@async_test
async def test_a_node_that_puts_commands_off_says_so_instead_of_a_job(admin: Admin) -> None:
    client = admin()
    job_id = await add(client, "mail", "x")
    await run(client.running, "CLIENT", "PAUSE", 60_000)
    assert "this node cannot ask for the job now: refuses to answer: TRYAGAIN" in await page(
        client, f"/jobs/{job_id}", status=503
    )
    assert "refuses to answer: TRYAGAIN" in await page(client, "/workers")
