"""The pages of workers: who is alive, what they have, and what can be done about it."""

import re
from typing import Any

import pytest

from disqued.web.views import consumer_views
from tests.adapters.http import AdminClient
from tests.adapters.inprocess import wait_until
from tests.adapters.test_pages import (
    OPERATOR,
    VIEWER,
    Admin,
    async_test,
    page,
    run,
    with_tokens,
    words,
)

OTHER = b"0f0c644fd3ccb51c2cedbd47fcb6f312646c993c"


async def at_work(client: AdminClient, worker: bytes = b"press-1", *more: str) -> str:
    """A worker that has one of two tasks of the queue mail; returns the id of its job."""
    await run(client.running, "WORKER", "START", "ID", worker, "TTL", 60_000, *more)
    await run(client.running, "WQ.WORK", "mail")
    await run(client.running, "WQ.ENQUEUE", "mail", "UNIQUE", "TASKS", "to: ann", "to: bob")
    [[_, process, _]] = await run(client.running, "WQ.DEQUEUE", "mail")
    return str(process.partition(b":")[0].decode())


@async_test
async def test_workers_are_in_a_table_with_what_they_have(admin: Admin) -> None:
    client = admin()
    assert "No live workers" in await page(client, "/workers")
    await at_work(client, b"press-1", "NAME", "the old press", "BIND")
    text = words(await page(client, "/workers"))
    assert "Workers 1" in text
    assert "press-1 the old press" in text
    assert "1 min" in text
    assert "bound mail 1" in text
    for part in ("OLD", "PRESS", "p*-1", "*old*"):
        assert "press-1" in words(await page(client, f"/workers?q={part}"))
    assert "press-1" not in words(await page(client, "/workers?q=p*-2"))
    assert "No workers match" in await page(client, "/workers?q=nobody")


@async_test
async def test_a_worker_has_its_page(admin: Admin) -> None:
    client = admin()
    job_id = await at_work(client)
    html = await page(client, "/workers/press-1")
    assert job_id in html
    assert "/jobs/" in html
    assert "to: ann" in html
    assert "WORKER FAIL press-1" in html
    assert "/api/commands/WORKER/FAIL" in html
    assert (await client.post("/api/commands/WORKER/FAIL", {"id": "press-1"})).body == {"reply": 1}
    assert "no worker press-1 on any node" in await page(client, "/workers/press-1", status=404)
    assert "1 Died this node" in words(_figures(await page(client, "/workers")))


def _figures(html: str) -> str:
    """Put the value of each figure before its name."""
    return re.sub(r"<dt>(.*?)</dt><dd>(.*?)</dd>", r"\2 \1", html, flags=re.DOTALL)


@pytest.mark.parametrize(
    ("worker", "path"),
    [
        (b".", "/worker?id=."), (b"..", "/worker?id=.."), (b"a/b", "/workers/a%2Fb"),
        (b"\xff<b>", "/workers/%FF%3Cb%3E"), (b"'\"&", "/workers/%27%22%26"),
    ],
)  # fmt: skip
@async_test
async def test_any_bytes_are_the_id_of_a_worker(admin: Admin, worker: bytes, path: str) -> None:
    client = admin()
    await at_work(client, worker)
    assert f'href="{path.replace("&", "&amp;")}"' in await page(client, "/workers")
    html = await page(client, path)
    assert "<b>" not in html
    assert "to: ann" in html
    assert f'href="{path}"' in await page(client, "/queues/mail")


@async_test
async def test_a_queue_and_a_job_say_who_has_it(admin: Admin) -> None:
    client = admin()
    job_id = await at_work(client)
    await run(client.running, "ADDJOB", "mail", "x", 0, "RETRY", 60)
    await run(client.running, "GETJOB", "COUNT", 2, "FROM", "mail")
    text = words((await page(client, "/queues/mail")).partition('id="h-consumers"')[2].partition("</section>")[0])
    assert f"press-1 {client.site.gateway.view.id[:8].decode()} this node" in text
    text = words((await page(client, "/queues/mail")).partition('id="h-held"')[2].partition("</section>")[0])
    assert f"{job_id[:18]}… press-1" in text
    assert len(re.findall(r"127\.0\.0\.1:\d+", text)) == 2
    await run(client.running, "CLIENT", "SETNAME", "postman")
    text = words((await page(client, "/queues/mail")).partition('id="h-held"')[2].partition("</section>")[0])
    assert len(re.findall(r"postman \(127\.0\.0\.1:\d+\)", text)) == 2
    text = words(await page(client, f"/jobs/{job_id}"))
    assert re.search("It is in flight: press-1 of node .* has it, .* A worker keeps it as long as it lives", text)
    assert "Type job, removed once acknowledged" in text
    assert "Name (unique task)" in text
    assert "in-flight press-1" in text


@async_test
async def test_a_viewer_sees_workers_without_bodies_and_buttons(admin: Admin, tmp_path: Any) -> None:
    client = with_tokens(admin, tmp_path)
    await at_work(client)
    html = await page(client, "/workers/press-1", VIEWER)
    assert "to: ann" not in html
    assert "withheld" in html
    assert "WORKER FAIL" not in html
    assert "WORKER FAIL" in await page(client, "/workers/press-1", OPERATOR)


@async_test
async def test_a_worker_that_is_not_named_is_asked_for(admin: Admin) -> None:
    assert "the id of a worker" in await page(admin(), "/worker", status=400)


@async_test
async def test_very_many_workers_are_cut_into_pages(admin: Admin) -> None:
    client = admin()
    for number in range(250):
        await run(client.running, "WORKER", "START", "ID", f"w{number}")
    html = await page(client, "/workers?q=w&page=3")
    assert "Page 3" in html
    assert (html.count("<tr data-key"), "page=2" in html, "page=4" in html) == (50, True, False)
    assert "page=2" in await page(client, "/workers")


@pytest.mark.parametrize(
    ("query", "held"),
    [
        ("page=workers&q=press", b"worker-rows"), ("page=worker&worker=press-1", b"to: ann"),
        ("page=queue&queue=mail", b"held"),
    ],
)  # fmt: skip
@async_test
async def test_the_pages_of_workers_are_live(admin: Admin, query: str, held: bytes) -> None:
    client = admin()
    await at_work(client)
    watching = client.begin("GET", f"/api/events?{query}")
    await wait_until(lambda: held in watching.received and b"press-1" in watching.received + query.encode())
    await run(client.running, "WORKER", "FAIL", "press-1")
    await wait_until(lambda: watching.received.count(b'{"html"') >= 2)
    watching.hang_up()


@async_test
async def test_what_consumers_of_other_nodes_have_of_a_list_stands_beside_what_those_of_this_one_have(
    admin: Admin,
) -> None:
    client = admin()
    for body in ("here", "far", "away"):
        await run(client.running, "RQ.PUSH", "letters", body)
    await run(client.running, "RQ.POP", "letters")
    node = client.site.gateway.node
    queue = node.state.queues.by_name[b"letters"]
    here, (far, away) = next(iter(queue.leased)).job, [unit.job for unit in queue.units]
    await run(client.running, "DEQUEUE", far.id, away.id)
    for job, elapsed_ms in ((far, 3_600_000), (away, 60_000)):
        node.begin()
        node.queueing.leases.note_elsewhere(job, OTHER, elapsed_ms, 2)
        client.running.daemon.turn.finish_step(None)
    html = (await page(client, "/queues/letters")).partition('id="held"')[2].partition("</tbody>")[0]
    assert re.findall(r'data-key="([^"]*)"', html) == [job.id.decode() for job in (far, away, here)]
    other, this = f"not known {OTHER[:8].decode()}", node.id[:8].decode()
    assert re.search(
        rf"{other} 1 h 2 .* {other} 1 min( \d+ s)? 2 .* 127\.0\.0\.1:\d+ {this} this node \d+ m?s 1", words(html)
    )
    figures = words(_figures(await page(client, "/queues/letters")))
    assert "1 In flight" in figures, "what other nodes have is in the figures of these"
    said = words(await page(client, f"/jobs/{far.id.decode()}"))
    assert f"a consumer of node {OTHER[:8].decode()} has had it for 1 h" in said
    assert f"Delivered to a consumer by node {OTHER[:8].decode()}" in said
    said = words(await page(client, f"/jobs/{here.id.decode()}"))
    assert re.search(
        r"Now: It is in flight: 127\.0\.0\.1:\d+ of node .* has it.* so far\. Should that not be done with it, RQ",
        said,
    )
    assert "Retry none: redelivered on request only" in said


@async_test
async def test_of_very_much_that_other_nodes_have_a_few_are_shown(admin: Admin) -> None:
    client = admin()
    await run(client.running, "RQ.PUSH", "letters", *map(str, range(2 * consumer_views.HELD_SHOWN)))
    node = client.site.gateway.node
    jobs = [unit.job for unit in node.state.queues.by_name[b"letters"].units]
    await run(client.running, "DEQUEUE", *(job.id for job in jobs))
    node.begin()
    for number, job in enumerate(jobs):
        node.queueing.leases.note_elsewhere(job, OTHER, 1_000 * number, 1)
    client.running.daemon.turn.finish_step(None)
    html = (await page(client, "/queues/letters")).partition('id="held"')[2].partition("</tbody>")[0]
    assert re.findall(r'data-key="([^"]*)"', html) == [
        job.id.decode() for job in jobs[: consumer_views.HELD_SHOWN - 1 : -1]
    ]
