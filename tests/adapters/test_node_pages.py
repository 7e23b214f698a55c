"""The page of a node, in memory: what it says, to whom, and what it offers."""

from collections.abc import Callable
from pathlib import Path

import pytest_twisted

from disqued.wire.replies import Status
from tests.adapters.http import AdminClient
from tests.adapters.inprocess import wait_until
from tests.adapters.test_pages import ADMIN, OPERATOR, page, run, with_tokens, words

Admin = Callable[..., AdminClient]
async_test = pytest_twisted.ensureDeferred


def path_of(client: AdminClient) -> str:
    return f"/nodes/{client.running.daemon.node.id.decode()}"


@async_test
async def test_a_node_says_what_it_is_and_has(admin: Admin) -> None:
    client = admin()
    await run(client.running, "ADDJOB", "mail", "x", 0)
    said = words(await page(client, path_of(client)))
    assert "healthy The node answers and takes jobs." in said
    assert "Jobs copies of other nodes' jobs included 1" in said
    assert "Store none" in said
    assert f'href="{path_of(client)}"' in await page(client, "/")


@async_test
async def test_a_drain_begins_shows_itself_and_ends(admin: Admin) -> None:
    client = admin(bus=True)
    path, node_id = path_of(client), client.running.daemon.node.id.decode()
    html = await page(client, path)
    assert 'id="do-drain"' in html
    assert 'id="do-stay"' not in html
    assert f"CLUSTER ASK {node_id} CLUSTER LEAVING yes" in html
    watching = client.begin("GET", f"/api/events?page=node&node={node_id}")
    await wait_until(lambda: b"healthy" in watching.received)
    assert await run(client.running, "CLUSTER", "ASK", node_id, "CLUSTER", "LEAVING", "yes") == [
        [node_id.encode(), b"ok", Status(b"OK")]
    ]
    await wait_until(lambda: b"Drained: the node may be stopped" in watching.received)
    html = await page(client, path)
    assert 'id="do-stay"' in html
    assert 'id="do-drain"' not in html
    assert f"CLUSTER ASK {node_id} CLUSTER LEAVING no" in html
    assert 'data-ways="stay"' in html
    await client.post("/api/drain", {"leaving": False, "node": node_id})
    assert 'data-ways="drain"' in await page(client, path)
    watching.hang_up()


@async_test
async def test_only_an_admin_is_offered_to_drain(admin: Admin, tmp_path: Path) -> None:
    client = with_tokens(admin, tmp_path)
    assert "do-drain" in await page(client, path_of(client), ADMIN)
    assert "do-drain" not in await page(client, path_of(client), OPERATOR)


@async_test
async def test_a_node_that_is_not_known_is_a_404_in_words(admin: Admin) -> None:
    client = admin()
    said = words(await page(client, "/nodes/%3Cb%3E%FF", status=404))
    assert r"no node <b>\xff is known to this node: its id is as CLUSTER NODES shows it, 40 hex digits" in said
    watching = client.begin("GET", f"/api/events?page=node&node={'f' * 40}")
    await wait_until(lambda: b"no longer knows the node" in watching.received)
    watching.hang_up()


@async_test
async def test_a_node_that_puts_commands_off_says_so_on_its_page(admin: Admin) -> None:
    client = admin()
    await run(client.running, "CLIENT", "PAUSE", 60_000)
    said = words(html := await page(client, path_of(client)))
    assert "not answering" in said
    assert "do-drain" not in html, "what does not answer does not drain"
    assert "refuses to answer: TRYAGAIN" in said
