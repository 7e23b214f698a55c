"""What goes wrong, as it is told: a page to whoever sits before a browser, a problem document to every program."""

import re
from pathlib import Path

import pytest

from disqued.web.http.head_lines import HEADER_BYTES
from tests.adapters.http import read_answer
from tests.adapters.inprocess import wait_until
from tests.adapters.test_pages import BROWSER, VIEWER, Admin, async_test, page, with_tokens, words


def assert_problem_page(html: str, title: str, detail: str) -> None:
    assert f"<title>{title} · disqued</title>" in html
    assert detail in words(html)
    assert '<a href="/">Back to the overview</a>' in html


@async_test
async def test_a_browser_on_a_path_that_is_none_gets_a_page(admin: Admin) -> None:
    client = admin()
    for path in ("/none", "/queues/a/b", "/%61pis", "/jobs/x?y=1", "/%3Cscript%3E", "/" + "x" * 2_000):
        html = await page(client, path, status=400 if "?" in path else 404)
        assert "<script>" not in html
    assert_problem_page(await page(client, "/none", status=404), "Not found", "there is nothing at this path")


@async_test
async def test_a_method_that_is_not_possible_is_a_page_that_says_which_are(admin: Admin) -> None:
    answer = await admin().get("/logout", headers=BROWSER)
    assert (answer.status, answer.headers["allow"]) == (405, "OPTIONS, POST")
    assert_problem_page(answer.body.decode(), "Method not allowed", "allowed are OPTIONS, POST")


@async_test
async def test_a_role_that_is_not_enough_is_a_page_that_says_so(admin: Admin, tmp_path: Path) -> None:
    html = await page(with_tokens(admin, tmp_path), "/actions", VIEWER, status=403)
    assert_problem_page(html, "Not allowed", "vic has the role viewer; allowed from admin on.")
    assert 'href="/queues"' in html


@async_test
async def test_a_bug_is_a_page_without_its_traceback(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disqued.web.pages.overview.overview_values", lambda _, **__: {}["planted"])
    client = admin()
    html = await page(client, "/", status=500)
    assert_problem_page(html, "Internal error", "the log has its traceback.")
    assert "planted" not in html
    monkeypatch.setattr("disqued.web.pages.render.common", lambda *_: {}["planted"])
    answer = await client.get("/", headers=BROWSER)
    assert (answer.status, answer.headers["content-type"]) == (500, "application/problem+json")


@async_test
async def test_programs_get_the_document_of_a_problem(admin: Admin, tmp_path: Path) -> None:
    client = with_tokens(admin, tmp_path)
    bearer = {"Authorization": f"Bearer {VIEWER}"}
    for path, status in (("/none", 404), ("/actions", 403), ("/logout", 405), ("/jobs/none", 404), ("/?x=1", 400)):
        for accepted in ({}, {"Accept": "*/*"}, {"Accept": "application/json, text/*"}):
            answer = await client.get(path, headers=bearer | accepted)
            assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json"), path
            assert answer.body["status"] == status
    for path, status in (("/api/none", 404), ("/%61pi/none", 404), ("/api", 404), ("/api/audit", 403)):
        answer = await client.get(path, headers=bearer | BROWSER)
        assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json"), path


@async_test
async def test_a_stranger_learns_nothing_of_the_node_from_a_problem(admin: Admin, tmp_path: Path) -> None:
    client = with_tokens(admin, tmp_path)
    html = await page(client, "/none", status=404)
    assert client.site.gateway.view.id.decode()[:8] not in html
    assert 'href="/queues"' not in html
    assert_problem_page(html, "Not found", "there is nothing at this path")


@async_test
async def test_a_host_that_is_not_ours_is_a_page_in_the_style_of_all_others(admin: Admin) -> None:
    client = admin()
    strange = {"Host": "evil.example"}
    answer = await client.get("/queues", headers=BROWSER | strange)
    html = answer.body.decode()
    assert (answer.status, answer.headers["content-type"]) == (421, "text/html; charset=utf-8")
    assert "<title>Another host · disqued</title>" in html
    assert "'evil.example' is not a host of this node; allowed are localhost" in words(html)
    assert answer.headers["content-security-policy"].startswith("default-src 'self'")
    [style] = re.findall(r'href="(/static/[^"]*/disqued\.css)"', html)
    assert (await client.get(style, headers=strange)).status == 200
    for path, accepted in (("/queues", {}), ("/queues", {"Accept": "*/*"}), ("/api/info", BROWSER)):
        answer = await client.get(path, headers=strange | accepted)
        assert (answer.status, answer.headers["content-type"]) == (421, "application/problem+json"), path


@async_test
async def test_whoever_asks_under_another_host_learns_nothing_of_the_node(admin: Admin) -> None:
    """A site that lets its name point here sees what is answered, though everybody who asks from here is an admin."""
    client = admin()
    html = (await client.get("/", headers=BROWSER | {"Host": "evil.example"})).body.decode()
    assert client.site.gateway.view.id.decode()[:8] not in html
    assert 'href="/queues"' not in html
    assert "local, admin" not in words(html)


@async_test
async def test_a_request_without_one_host_is_told_so_on_a_page(admin: Admin) -> None:
    client = admin()
    exchange = client.begin("GET", "/", headers=BROWSER | {"X": "1\r\nHost: 127.0.0.1:7780"})
    answer = await exchange.answer()
    assert (answer.status, answer.headers["content-type"]) == (400, "text/html; charset=utf-8")
    assert "host is given twice; once is allowed." in words(answer.body.decode())


@async_test
async def test_cookies_of_other_programs_that_are_too_large_are_a_page(admin: Admin) -> None:
    client = admin()
    cookies = {"Cookie": "x=" + "y" * HEADER_BYTES}
    for path, accepted, media in (
        ("/queues", BROWSER, "text/html; charset=utf-8"), ("/queues", {}, "application/problem+json"),
        ("/api/info", BROWSER, "application/problem+json"),
    ):  # fmt: skip
        exchange = client.begin("GET", path, headers=accepted | {"Accept-Encoding": "gzip"} | cookies)
        await wait_until(lambda exchange=exchange: b"\r\n\r\n" in exchange.received)
        answer = read_answer(exchange.received)
        exchange.hang_up()
        assert (answer.status, answer.headers["content-type"]) == (431, media)
        if accepted is BROWSER and media.startswith("text/html"):
            assert_problem_page(answer.body.decode(), "Headers too large", "are longer than 16384 bytes")
            assert answer.headers["content-security-policy"].startswith("default-src 'self'")


@async_test
async def test_a_bug_before_there_is_a_route_is_a_page(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    client = admin()
    monkeypatch.setattr(client.site.access.hosts, "check", lambda request: {}["planted"])
    assert_problem_page(await page(client, "/", status=500), "Internal error", "the log has its traceback.")
    answer = await client.get("/")
    assert (answer.status, answer.body["code"]) == (500, "ERR")


@async_test
async def test_headers_that_are_no_text_are_no_harm(admin: Admin) -> None:
    client = admin()
    exchange = client.begin("GET", "/", headers={"Accept": "text/\xb3", "X": "1\r\nHost: 127.0.0.1:7780"})
    answer = await exchange.answer()
    assert (answer.status, answer.headers["content-type"]) == (400, "application/problem+json")
    refused = await client.request("POST", "/api/commands/PING", body=b"{}", headers={"Content-Type": "text/\xb3\xff"})
    assert refused.status == 415, refused
    sound = await client.get("/", headers={"Accept": "text/html, text/\xb3"})
    assert sound.status == 200
