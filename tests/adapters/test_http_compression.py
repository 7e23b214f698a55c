"""Answers in gzip, and answers that the client has already: fewer bytes, and the same content."""

import json
import re
from collections.abc import Callable
from html import unescape
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_twisted
from twisted.web.http_headers import Headers

from disqued.web.http import bodies
from disqued.web.http.bodies import Body, LongValues
from disqued.web.http.compression import LEAST, PACKER_BYTES, takes_gzip
from disqued.web.pages import assets
from tests.adapters.http import AdminClient, Answer, admin
from tests.adapters.inprocess import Running, wait_until

Launch = Callable[..., Running]
async_test = pytest_twisted.ensureDeferred

GZIP = {"Accept-Encoding": "gzip, deflate, br"}
OVERVIEW_MAX = 150_000  #: bytes that the overview takes, with all of its files and its chart


@pytest_twisted.async_yield_fixture
async def client(launch: Launch) -> Any:
    running = launch()
    await wait_until(lambda: not running.daemon.loading)
    asked = admin(running)
    yield asked
    await asked.stop()


def without(answer: Answer, *names: str) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name not in (*names, "date")}


# gzip.


@pytest.mark.parametrize(
    ("accepted", "takes"),
    [
        ("gzip", True), ("GZIP;q=0.001", True), ("gzip;q=0", False), ("gzip;q=0.000", False), ("", False),
        ("deflate, br", False), ("*", True), ("*;q=0, gzip", True), ("gzip;q=0, *", False), ("identity", False),
        ("identity, gzip;q=0.5", False), ("identity;q=0.5, gzip;q=0.5", True), ("gzip;q=2", False),
        ("gzip;q=nan", False), ("gzip; q=0.5; x=1", True), (",, gzip ,", True), ("gzipped", False),
    ],
)  # fmt: skip
def test_a_client_says_whether_it_takes_gzip(accepted: str, takes: bool) -> None:
    request = SimpleNamespace(requestHeaders=Headers({"Accept-Encoding": [accepted]}))
    assert takes_gzip(request) is takes


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@async_test
async def test_what_another_site_causes_is_not_compressed(client: AdminClient, site: str) -> None:
    asked = {**GZIP, "Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
    assert "content-encoding" not in (await client.get("/", headers=asked)).headers
    for ours in ("same-origin", "none"):
        found = await client.get("/", headers={**GZIP, "Sec-Fetch-Site": ours})
        assert found.headers["content-encoding"] == "gzip"


@pytest.mark.parametrize("path", ["/settings", "/api/openapi.json", "/metrics", "/api/info"])
@async_test
async def test_pages_json_and_metrics_are_the_same_in_fewer_bytes(client: AdminClient, path: str) -> None:
    plain = client.begin("GET", path)
    small = client.begin("GET", path, headers=GZIP)
    before, after = await plain.answer(), await small.answer()
    assert after.headers["content-encoding"] == "gzip"
    assert before.headers["vary"] == after.headers["vary"] == "Accept-Encoding"
    if path in ("/settings", "/api/openapi.json"):
        assert before.body == after.body
    assert 2 * len(small.received) < len(plain.received)
    head = await client.request("HEAD", path, headers=GZIP)
    assert (head.body, head.headers["content-encoding"]) == (b"", "gzip")


@async_test
async def test_what_is_short_or_streams_is_sent_as_it_is(client: AdminClient) -> None:
    short = await client.get("/healthz", headers=GZIP)
    assert (short.headers.get("content-encoding"), short.headers["vary"]) == (None, "Accept-Encoding")
    stream = client.begin("GET", "/api/events", headers=GZIP)
    await wait_until(lambda: b"data: " in stream.received)
    assert b"content-encoding" not in stream.received.lower()
    stream.hang_up()


@async_test
async def test_bodies_of_jobs_are_compressed_while_they_are_sent(client: AdminClient) -> None:
    resp = await client.running.connect()
    body = b"0123456789" * 30_000
    job_id = await resp.call("ADDJOB", "q", body, 0)
    for path in (f"/api/show/{job_id.decode()}", "/api/qpeek/q"):
        exchange = client.begin("GET", path, headers=GZIP)
        answer = await exchange.answer()
        assert (answer.headers["content-encoding"], "content-length" in answer.headers) == ("gzip", False)
        assert body.decode() in json.dumps(answer.body)
        assert len(exchange.received) < 5_000


def test_a_piece_is_sent_whole_and_the_compressor_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "PIECE", 3_000)
    body = Body(LongValues(), bytes(60_000))
    before = body.size
    body.pack()
    assert (body.size - before, body.length) == (PACKER_BYTES, None)
    pieces = list(iter(body.next_piece, b""))
    assert len(pieces) == 21, "twenty, and the end"
    body.close()
    assert body.size == 0


@async_test
async def test_files_are_kept_in_gzip(client: AdminClient) -> None:
    await assets.pack(client.site.gateway.turns)
    for name, asset in assets.assets().items():
        answer = await client.get(assets.url(name), headers=GZIP)
        assert answer.body == asset.body
        is_long = len(asset.body) >= LEAST
        assert bool(asset.packed) is is_long
        assert answer.headers["content-length"] == str(len(asset.packed if is_long else asset.body))
        assert answer.headers["cache-control"] == assets.FOR_EVER
        assert (await client.get(assets.url(name))).body == asset.body


# What the client has.


@pytest.mark.parametrize("path", ["/settings", "/api/hello", "/api/openapi.json", "static"])
@async_test
async def test_what_the_client_has_is_not_sent_again(client: AdminClient, path: str) -> None:
    path = assets.url("disqued.js") if path == "static" else path
    first = await client.get(path)
    tag = first.headers["etag"]
    assert re.fullmatch(r'W/"[0-9a-f]{32}"', tag)
    assert (await client.get(path, headers=GZIP)).headers["etag"] == tag
    for known in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        for method, more in (("GET", {}), ("GET", GZIP), ("HEAD", {})):
            again = await client.request(method, path, headers={"If-None-Match": known, **more})
            assert (again.status, again.body) == (304, b"")
            assert without(again) == without(first, "content-type", "content-length")
    for other in ('"other"', f'"{tag[3:-2]}"', f'"x{tag[3:-1]}"', "W/", ""):
        assert (await client.get(path, headers={"If-None-Match": other})).status == 200


@async_test
async def test_writes_and_problems_have_no_etag(client: AdminClient) -> None:
    always = {"If-None-Match": "*"}
    for answer in (
        await client.post("/api/commands/PING", {}, headers=always), await client.get("/none", headers=always),
        await client.get("/api/qstat/none", headers=always), await client.get("/api/info?x=1", headers=always),
    ):  # fmt: skip
        assert "etag" not in answer.headers
        assert answer.status in (200, 400, 404)


@async_test
async def test_who_may_not_see_an_answer_does_not_learn_that_it_is_the_same(launch: Launch) -> None:
    running = launch("requirepass sesame")
    await wait_until(lambda: not running.daemon.loading)
    client = admin(running)
    assert (await client.get("/api/hello", headers={"If-None-Match": "*"})).status == 401
    await client.stop()


# The budget of a page.


@async_test
async def test_the_overview_takes_few_bytes_with_all_that_it_loads(client: AdminClient) -> None:
    await assets.pack(client.site.gateway.turns)
    random, node = Random(1), client.site.history._node
    for slot in range(1, 3_601):
        node.note(slot, 1, (random.randrange(500), random.randrange(500), random.randrange(500)), slot, slot / 7)
    page = (await client.get("/")).body.decode()
    script = assets.assets()["disqued.js"].body.decode()
    paths = {"/", *re.findall(r'(?:src|href)="(/static/[^"]+)"', page)}
    paths |= {assets.url(name) for name in re.findall(r'from "\./([^"]+)"', script)}
    [history] = re.findall(r'data-history="([^"]+)"', page)
    assert '?? "1h";' in script, "what a chart shows first"
    paths.add(f"{unescape(history)}?range=1h&step=1s")
    assert len(paths) >= 7, paths
    sizes = {}
    for path in paths:
        exchange = client.begin("GET", path, headers=GZIP)
        assert (await exchange.answer()).status == 200
        sizes[path] = len(exchange.received)
    assert sum(sizes.values()) < OVERVIEW_MAX, sizes
