"""Pages of what is in the whole cluster: connections, the search field, and the job page as it moves."""

import re
from pathlib import Path

import pytest

from disqued.web.pages import actions
from disqued.web.pages.find_pages import JOBS_SHOWN
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
    walks_at_once,  # noqa: F401 - a fixture
    ways,
    with_tokens,
    words,
)
from tests.limits import LIMIT


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
    assert ways(html) == {"kill", "unblock"}
    found = words(await page(client, "/connections?q=PRESS"))
    assert ("press-1" in found, "mailer" in found) == (True, False)
    html = await page(client, "/connections?sort=name")
    assert html.index("mailer") < html.index("press-1")
    assert "No connections match" in await page(client, "/connections?q=nobody")
    number = await connection.call("CLIENT", "ID")
    connection.send("GETJOB", "FROM", "q")
    await wait_until(lambda: any(each.is_blocked for each in client.running.daemon.clients.sessions()))
    _, unblocking = actions.on_connections()
    assert (await client.post(unblocking.path, {"id": number})).body == {"reply": 1}
    assert await connection.replies(1) == [None]
    assert (await client.post("/api/commands/CLIENT/KILL", {"id": number})).body == {"reply": 1}
    await connection.closed()
    assert "mailer" not in await page(client, "/connections")


@async_test
async def test_each_connection_leads_to_the_jobs_that_it_has(admin: Admin, tmp_path: Path) -> None:
    client = with_tokens(admin, tmp_path)
    worker, idle = await client.running.connect(), await client.running.connect()
    await worker.call("CLIENT", "SETNAME", "worker-7")
    await idle.call("CLIENT", "SETNAME", "idle")
    ids = [(await worker.call("ADDJOB", queue, f"to {queue}", 0, "RETRY", 60)).decode() for queue in ("mail", "post")]
    for queue in ("mail", "post"):
        await worker.call("GETJOB", "FROM", queue)
    path = f"/client?node={client.site.gateway.view.id.decode()}&amp;id={await worker.call('CLIENT', 'ID')}"
    html = await page(client, "/connections?q=worker-7&sort=jobs", ADMIN)
    assert f'<a href="{path}" aria-label="Jobs in flight: 2">2</a>' in html
    assert "/client?" not in await page(client, "/connections?q=idle", ADMIN)
    for queue in ("mail", "post"):
        assert f'href="{path}"' in await page(client, f"/queues/{queue}", OPERATOR)
    said = words(html := await page(client, path.replace("&amp;", "&"), OPERATOR))
    assert "worker-7 number" in said
    assert "Jobs in flight 2, all queues" in said
    for job_id, queue in zip(ids, ("mail", "post"), strict=True):
        assert f'href="/jobs/{job_id}"' in html
        assert f"to {queue}" in said
    assert await idle.call("CLIENT", "KILL", "USER", "default") == 1
    await worker.closed()
    said = words(await page(client, path.replace("&amp;", "&"), OPERATOR))
    assert "It is not connected to this node any more." in said
    assert "to mail" in said, "what it has stays with it"


@pytest.mark.parametrize(
    ("query", "status", "error"),
    [
        ("", 400, "both node, the id of a node, and id, the number of a client, are needed"),
        ("?node=nowhere&id=1", 404, "no node nowhere: allowed are the nodes of the overview"),
        ("?node=nowhere&id=x", 400, "id"),
    ],
)
@async_test
async def test_a_client_is_named_by_its_node_and_its_number(admin: Admin, query: str, status: int, error: str) -> None:
    assert error in await page(admin(), f"/client{query}", status=status)


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
    assert "none&lt; is neither the id of a job nor in the name of a queue, worker or client" in html
    assert "Only admins" not in html
    assert ways(html) == {"add"}


@async_test
async def test_the_beginning_of_an_id_leads_to_its_job(admin: Admin) -> None:
    client = admin()
    ids = [await add(client, "mail", "x") for _ in range(40)]
    for beginning in (ids[0][:18], ids[0][:18] + "%E2%80%A6", ids[0][:47]):  # with the ellipsis of a table, too
        answer = await client.get(f"/find?q={beginning}")
        assert (answer.status, answer.headers["location"]) == (303, f"/jobs/{ids[0]}"), beginning
    beginning = ids[0][:14]  # which sixteen ids share
    alike = sorted(job_id for job_id in ids if job_id.startswith(beginning))
    html = await page(client, f"/find?q={beginning}")
    assert re.findall(r'<a href="/jobs/([^"]+)">Job ', html) == alike[:JOBS_SHOWN]
    assert len(alike) > 1
    await run(client.running, "ADDJOB", old := "D-dcb833cf-8YL1NT17e9+wsA/09NqxscQI-05a1", "x", 0)
    html = await page(client, f"/find?q={UNKNOWN[:18]}", status=404)
    assert f"no job has an id that begins with {UNKNOWN[:18]}" in html
    assert ways(html) == set(), "the beginning of an id is no name for a new queue"
    for short in ("DI0f0c", "D-0f0c", ids[0][:13]):
        html = await page(client, f"/find?q={short}", status=404)
        assert f"{short} is too short to find a job by its id: 14 characters or more are needed" in html
        assert "has a button that copies the whole id" in html
        assert ways(html) == set()
    assert (await client.get(f"/find?q={old[:20]}")).headers["location"].startswith("/queues/D-dcb833cf")
    assert ways(await page(client, "/find?q=DIRECT", status=404)) == {"add"}


@async_test
async def test_a_table_that_no_answer_holds_is_looked_through(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disqued.commands.scans.ELEMENTS_MAX", 3)
    client = admin()
    ids = [await add(client, "mail", "x") for _ in range(40)]
    alike = sorted(job_id for job_id in ids if job_id.startswith(ids[20][:14]))
    assert len(alike) > 3
    html = await page(client, f"/find?q={ids[20][:14]}")
    assert re.findall(r'<a href="/jobs/([^"]+)">Job ', html) == alike


@async_test
async def test_the_search_field_leads_to_a_worker_or_to_a_client(admin: Admin, tmp_path: Path) -> None:
    client = with_tokens(admin, tmp_path)
    connection = await client.running.connect()
    await add(client, "press-jobs", "x")
    await connection.call("CLIENT", "SETNAME", "press-client")
    await connection.call("WORKER", "START", "ID", "worker-1", "NAME", "the old one", "TTL", 0)
    await connection.call("WORKER", "START", "ID", "worker-2", "TTL", 0)
    for text, target in (
        ("worker-1", "/workers/worker-1"), ("OLD", "/workers/worker-1"), ("worker", "/workers?q=worker"),
        ("press-c", "/connections?q=press-c"),
    ):  # fmt: skip
        answer = await client.get(f"/find?q={text}", headers={"Authorization": f"Bearer {ADMIN}"})
        assert (answer.status, answer.headers.get("location")) == (303, target), text
    said = words(await page(client, "/find?q=press-c", OPERATOR, status=404))
    assert "Only admins find clients by their names." in said
    html = await page(client, "/find?q=press", ADMIN)
    assert 'href="/queues/press-jobs">1 queue</a>' in html
    assert 'href="/connections?q=press">1 client</a>' in html
    assert "worker" not in words(html.partition("<main")[2])


@async_test
async def test_a_node_is_found_by_its_id_as_pages_show_it_and_by_its_address(admin: Admin) -> None:
    client = admin()
    node = client.running.daemon.node
    for text in (node.id.decode()[:8], node.id.decode()):
        answer = await client.get(f"/find?q={text}")
        assert (answer.status, answer.headers["location"]) == (303, f"/nodes/{node.id.decode()}")
    html = await page(client, f"/find?q={'DI' + node.id.decode()[:8] + 'A' * 38}", status=404)
    assert "Create it" not in html


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
    await wait_until(lambda: b"No node knows this job any more: it has ended." in watching.received)
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


@async_test
async def test_the_overview_says_what_is_wrong_and_where_to_act(admin: Admin) -> None:
    client = admin()
    await add(client, "mail<b>", "x")
    await run(client.running, "PAUSE", "mail<b>", "all", "REASON", "smtp <i>is down")
    html = await page(client, "/")
    assert "mail<b>" not in html
    assert "<i>" not in html
    assert '<a href="/queues/mail%3Cb%3E" dir="ltr">mail&lt;b&gt;</a>: ' in html
    text = words(html)
    assert "warning 1 queue is paused mail<b> : Adds and delivery are paused on all nodes by " in text
    assert ": smtp <i>is down. 1 ready job, the oldest added " in text
    assert "Nothing needs attention" not in text
    assert 'href="/queues?sort=paused"' in html
    assert re.search("Jobs ready 1 .* Figures of one node, less than 1 s old.", text)
    await run(client.running, "PAUSE", "mail<b>", "none")
    assert "1 queue is paused" not in await page(client, "/")


@async_test
async def test_the_overview_is_calm_where_nothing_is_wrong(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    space = {"dir_free_bytes": 1 << 30, "dir_size_bytes": 1 << 31}
    monkeypatch.setattr("disqued.net.process.statistics.disk_space", lambda _: space)
    client = admin()
    calm = "Nothing needs attention: the only node answers, memory and disks have room, and no queue is paused,"
    assert calm in words(await page(client, "/"))
    assert (await client.get("/api/overview")).body["attention"] == []
    space["dir_free_bytes"] = 1 << 20
    text = words(await page(client, "/"))
    assert "error Disk space is low on 1 node This node has 1.0 MiB of 2.0 GiB free where its data are." in text
    assert "Nothing needs attention" not in text


@async_test
async def test_the_overview_as_json_says_the_same_and_its_age(admin: Admin) -> None:
    client = admin()
    assert (await client.get("/api/overview")).body["oldest"] == []
    await add(client, b"mail\xff", "x")
    await run(client.running, "PAUSE", b"mail\xff", "in")
    _, _, found = await client.get("/api/overview")
    assert (found["nodes"], found["missing"], found["failure"]) == (1, [], "")
    assert found["age_ms"] < LIMIT * 1_000
    [group] = [group for group in found["attention"] if group["kind"] == "paused"]
    assert (group["severity"], group["count"], group["path"]) == ("warning", 1, "/queues?sort=paused")
    [finding] = group["findings"]
    assert finding["queue"] == {"base64": "bWFpbP8="}
    assert finding["text"].startswith("Adds are paused on all nodes by ")
    assert (found["cluster"]["ready"], found["cluster"]["queues"]) == (1, 1)
    assert found["cluster"]["disk"]["node"] == client.site.gateway.view.id.decode()
    [oldest] = found["oldest"]
    assert (oldest["queue"], oldest["ready"]) == (finding["queue"], 1)


@async_test
async def test_the_overview_of_a_node_that_puts_commands_off_says_so(admin: Admin) -> None:
    client = admin()
    await add(client, "mail", "x")
    await run(client.running, "CLIENT", "PAUSE", 60_000)
    text = words(await page(client, "/"))
    assert "error The nodes cannot be asked now The node runs no commands now: CLIENT PAUSE" in text
    assert "error This node needs attention Commands are suspended by CLIENT PAUSE" in text
    assert "No node answers, so there are no figures." in text
    _, _, found = await client.get("/api/overview")
    assert (found["nodes"], found["cluster"]) == (0, None)
    assert "CLIENT PAUSE" in found["failure"]
    assert [group["kind"] for group in found["attention"]][:2] == ["cannot-ask", "this-node"]


@async_test
async def test_the_overview_is_live_with_what_is_wrong(admin: Admin) -> None:
    client = admin()
    watching = client.begin("GET", "/api/events?page=overview")
    await wait_until(lambda: b'"findings"' in watching.received and b'"cluster"' in watching.received)
    assert b"1 queue is paused" not in watching.received
    await add(client, "mail", "x")
    await run(client.running, "PAUSE", "mail", "out", "REASON", "deploy")
    await wait_until(lambda: b"1 queue is paused" in watching.received and b"deploy" in watching.received)
    watching.hang_up()
