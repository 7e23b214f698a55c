"""What goes wrong, as it is told: a page to whoever sits before a browser, a problem document to every program."""

from pathlib import Path

import pytest

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
    monkeypatch.setattr("disqued.web.pages.overview_values", lambda site: {}["planted"])
    client = admin()
    html = await page(client, "/", status=500)
    assert_problem_page(html, "Internal error", "the log has its traceback.")
    assert "planted" not in html
    monkeypatch.setattr("disqued.web.render.common", lambda *_: {}["planted"])
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
    assert client.site.gateway.node.id.decode()[:8] not in html
    assert 'href="/queues"' not in html
    assert_problem_page(html, "Not found", "there is nothing at this path")
