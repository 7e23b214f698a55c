"""The pages as HTML, in memory: what they say, to whom, and that nothing of it is taken for markup."""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted

from disqued.web.api.fields import COMMANDS
from disqued.web.http.exchange import Role
from disqued.web.pages import actions, assets, job_pages, lines, queue_pages, updates
from disqued.web.pages.queue_pages import DRAWN_ROWS
from disqued.web.pages.render import Values
from disqued.web.views import queue_views, rendering
from disqued.web.views.cluster_answers import MissingNode
from disqued.web.views.job_reports import ClusterJob
from disqued.web.views.job_views import JobSearch
from disqued.web.views.live import Subscription
from disqued.web.views.queue_views import PAGE_ROWS, QueueQuery
from tests.adapters.http import AdminClient
from tests.adapters.inprocess import Running
from tests.limits import LIMIT

Admin = Callable[..., AdminClient]
async_test = pytest_twisted.ensureDeferred

VIEWER, OPERATOR, ADMIN = "viewer-token-0123456789", "operator-token-0123456789", "admin-token-0123456789"
TOKENS = f"vic viewer {VIEWER}\nolga operator bodies {OPERATOR}\nada admin bodies {ADMIN}\n"

UNKNOWN = "DI0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0SQ"  #: a job that was never here
#: As Firefox says it when somebody goes to an address.
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


async def page(client: AdminClient, path: str, token: str = "", status: int = 200) -> str:
    """The HTML of a page."""
    headers = BROWSER | ({"Authorization": f"Bearer {token}"} if token else {})
    answer = await client.get(path, headers=headers)
    assert (answer.status, answer.headers["content-type"]) == (status, "text/html; charset=utf-8"), answer
    return str(answer.body.decode("utf-8"))


def words(html: str) -> str:
    """What a page says, without its markup."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def with_tokens(admin: Admin, folder: Path) -> AdminClient:
    path = folder / "tokens"
    path.write_text(TOKENS)
    path.chmod(0o600)
    return admin(f"http-token-file {path}")


async def run(running: Running, *command: bytes | str | int) -> Any:
    client = running.clients[0] if running.clients else await running.connect()
    return await client.call(*command)


async def add(client: AdminClient, queue: bytes | str, body: bytes | str, *more: str | int) -> str:
    job_id: bytes = await run(client.running, "ADDJOB", queue, body, 0, *more)
    return job_id.decode()


@pytest.fixture(autouse=True)
def walks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the table of queues is a walk of its own."""
    monkeypatch.setattr(queue_views, "REST_S", 0.0)
    monkeypatch.setattr(queue_views, "REST_TIMES", 0)


# What pages say.


@async_test
async def test_the_overview_shows_this_node(admin: Admin) -> None:
    client = admin()
    await add(client, "q", "x")
    text = await page(client, "/")
    assert client.site.gateway.view.id.decode()[:8] in text
    assert "this node" in text
    assert "1 Jobs" in words(re.sub(r"<dt>(.*?)</dt><dd>(.*?)</dd>", r"\2 \1", text))


@async_test
async def test_names_and_bodies_are_never_markup(admin: Admin) -> None:
    client = admin()
    queue, body = b"\"><script>alert(1)</script>'", b"</pre><script>alert(2)</script>"
    job_id = await add(client, queue, body)
    for path in ("/", "/queues", f"/queues/{rendering.segment(queue)}", f"/jobs/{job_id}", "/queues?q=%3Cscript%3E"):
        html = await page(client, path)
        assert re.findall(r"<script(?! type=\"module\" src=\"/static/)", html) == [], path
    assert "&lt;script&gt;alert(2)" in await page(client, f"/jobs/{job_id}")


@async_test
async def test_any_bytes_name_a_queue(admin: Admin) -> None:
    client = admin()
    for queue in (b"a/b%2F c?d#e", b"\xff\x00\n", "köln \u202e".encode(), b"x" * 300):
        await add(client, queue, "x")
        path = f"/queues/{rendering.segment(queue)}"
        assert f'href="{path}"' in await page(client, "/queues")
        assert "<dt>Ready</dt><dd>1</dd>" in await page(client, path)


@async_test
async def test_a_name_that_browsers_take_out_of_a_path_stands_in_the_query(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("disqued.web.views.job_views.LOOKED_AT_MAX", 1)
    monkeypatch.setattr("disqued.web.views.job_views.SLICE_ROWS", 1)
    client = admin()
    for queue in (".", "..", ""):
        job_id = await add(client, queue, "x")
        await add(client, queue, "y")
        path = f"/queue?name={queue}"
        for linking in ("/queues", f"/jobs/{job_id}"):
            assert f'href="{path}"' in await page(client, linking)
        html = await page(client, path + "&text=y")
        assert "<dt>Ready</dt><dd>2</dd>" in html
        assert f'<input type="hidden" name="name" value="{queue}">' in html
        further = re.search(r'href="(\?[^"]*)#jobs">Continue searching', html)
        assert further is not None
        assert "Matches: 1" in words(await page(client, "/queue" + unescape(further[1])))
        history = re.search(r'data-history="([^"]*)"', html)
        assert history is not None
        assert (await client.get(unescape(history[1]) + "&range=1h")).status == 200
    assert "there is no queue none on any node" in await page(client, "/queue?name=none", status=404)
    assert "missing parameter name" in await page(client, "/queue", status=400)


@async_test
async def test_a_queue_that_does_not_exist_is_a_page_that_offers_to_create_it(admin: Admin) -> None:
    client = admin()
    html = await page(client, "/queues/a%2Fb%3C", status=404)
    assert "there is no queue a/b&lt; on any node." in html
    assert ways(html) == {"add", "policy-set"}
    assert '-d \'{"queue":"a/b<","body":"","timeout":1000}\'' in unescape(html)
    assert (await client.post("/api/add", {"queue": "a/b<", "body": ""})).status == 200
    assert "<dt>Ready</dt><dd>1</dd>" in await page(client, "/queues/a%2Fb%3C")
    assert (await client.get("/queues/none")).body["code"] == "NOQUEUE", "programs get a document"


@async_test
async def test_who_may_not_create_a_queue_is_not_offered_to(admin: Admin, tmp_path: Path) -> None:
    client = with_tokens(admin, tmp_path)
    for token, is_offered in ((VIEWER, False), (OPERATOR, True)):
        html = await page(client, "/queues/none", token, status=404)
        assert ("Create it" in html, bool(ways(html))) == (is_offered, is_offered)


@async_test
async def test_a_queue_that_something_is_set_for_is_there(admin: Admin) -> None:
    client = admin()
    for words_of in (("PAUSE", "paused", "in"), ("QPOLICY", "limited", "SET", "INFLIGHT", 5), ("THROTTLE", "slow", 60)):
        await run(client.running, *words_of)
    await add(client, "later", "x", "DELAY", 60)
    job_id = await add(client, "taken", "x")
    await run(client.running, "GETJOB", "FROM", "taken")
    for name in ("paused", "limited", "slow", "later", "taken"):
        await page(client, f"/queues/{name}")
    await run(client.running, "ACKJOB", job_id)


@async_test
async def test_a_job_that_is_not_there_is_a_page_that_says_what_to_do(admin: Admin) -> None:
    client = admin()
    assert "there is no job DIx&lt;y: ids are 48 bytes" in await page(client, "/jobs/DIx%3Cy", status=404)
    html = await page(client, f"/jobs/{UNKNOWN}", status=404)
    end = "it was acknowledged or dropped, was lost with the only node that had it, or never was"
    assert f"there is no job {UNKNOWN} on any node: {end}" in words(html)
    assert "SHOW" not in html, "nobody knows the node that the id names"
    assert (await client.get(f"/jobs/{UNKNOWN}")).body["code"] == "NOJOB"


@async_test
async def test_a_binary_body_is_shown_in_hexadecimal(admin: Admin) -> None:
    client = admin()
    job_id = await add(client, "q", b"\x00\x01abc")
    assert "00000000  00 01 61 62 63" in await page(client, f"/jobs/{job_id}")


@async_test
async def test_a_large_body_is_cut(admin: Admin) -> None:
    client = admin()
    job_id = await add(client, "q", b"x" * (1 << 20))
    html = await page(client, f"/jobs/{job_id}")
    assert "Truncated: only the beginning" in html
    assert len(html) < 300_000
    assert len(await page(client, "/queues/q")) < 60_000


@async_test
async def test_json_is_shown_over_several_lines_and_everything_else_as_it_is(admin: Admin) -> None:
    client = admin()
    large = json.dumps({"list": list(range(2_000))})
    for body, shown, kind in (
        ('{"to":"<ann>","n":1.50,"n":2}', '{\n  "to": "<ann>",\n  "n": 1.50,\n  "n": 2\n}', "JSON, indented"),
        (large, json.dumps(json.loads(large), indent=2), "JSON, indented"), ("{no json}", "{no json}", ""),
        ('"text"', '"text"', ""),
        ("[" + " " * 70_000 + "]", "[" + " " * 65_535, "Truncated: only the beginning is shown"),
    ):  # fmt: skip
        job_id = await add(client, "q", body)
        html = await page(client, f"/jobs/{job_id}")
        found = re.search(r'<pre class="whole"[^>]*>(.*?)</pre>', html, re.DOTALL)
        assert found is not None
        assert unescape(found[1]) == shown
        assert kind in html
        assert ("JSON, indented" in html) is (kind == "JSON, indented")
    table = await page(client, "/queues/q")
    assert '<code class="body" dir="ltr">{&#34;to&#34;:&#34;&lt;ann&gt;&#34;' in table, "a line of a table stays one"


@async_test
async def test_json_in_headers_progress_and_results_is_indented(admin: Admin, tmp_path: Path) -> None:
    client = with_tokens(admin, tmp_path)
    job_id = await add(client, "q", "x", "RESULT", 60, "HEADER", "a", '{"b":1}', "HEADER", "c", "d")
    await run(client.running, "GETJOB", "FROM", "q")
    await run(client.running, "WORKING", job_id, "PROGRESS", '{"half":[]}')
    html = await page(client, f"/jobs/{job_id}", OPERATOR)
    assert '<code dir="ltr">a:</code><pre dir="ltr">{\n  &#34;b&#34;: 1\n}</pre>' in html
    assert '<code dir="ltr">c: d</code>' in html
    assert "{\n  &#34;half&#34;: []\n}</pre>" in html
    await run(client.running, "ACKJOB", job_id, "RESULT", '["sent"]')
    assert "[\n  &#34;sent&#34;\n]</pre>" in await page(client, f"/jobs/{job_id}", OPERATOR)
    withheld = await page(client, f"/jobs/{job_id}", VIEWER)
    assert "sent" not in withheld
    assert "&#34;b&#34;" not in withheld


@pytest.mark.parametrize(
    "text", ["5", '"x"', "", "{", "[1,]", "[NaN]", "[Infinity]", "[" * 2_000 + "]" * 2_000, "[" * 900 + "]" * 900]
)
def test_what_is_no_json_or_grows_too_much_is_not_indented(text: str) -> None:
    assert rendering.indented(text) is None


@pytest.mark.parametrize(
    "value", [{}, [], {"a": []}, {"a": [{}], "{": '"}'}, [[1, -2.5, 1e99], None, True, '\\"'], [","]]
)
def test_json_is_indented_as_python_does(value: Any) -> None:
    for separators in ((",", ":"), (" , ", " : ")):
        assert rendering.indented(json.dumps(value, separators=separators)) == json.dumps(value, indent=2)


@async_test
async def test_the_first_look_shows_the_rates_of_the_last_sample(admin: Admin) -> None:
    client = admin()
    client.site.history.pulse.stop()
    await client.site.history.sample(1)
    for number in range(6):
        await add(client, "q", str(number))
    assert "<dt>In/s</dt><dd>\u2013</dd>" in await page(client, "/queues/q")
    await client.site.history.sample(3)
    for path, shows in (
        ("/queues/q", "<dt>In/s</dt><dd>3.0</dd>"),
        ("/queues", 'data-label="In/s" class="num">3.0</td>'),
        ("/", "<dt>Jobs in/s</dt><dd>3.0</dd>"),
    ):
        client.site.rates.forget()  # nobody has looked
        assert shows in await page(client, path), path


# Why a job is not running.


@async_test
async def test_why_a_job_is_not_running(admin: Admin) -> None:
    client = admin()
    running = client.running

    async def why(job_id: str) -> str:
        return words(await page(client, f"/jobs/{job_id}"))

    delayed = await add(client, "later", "x", "DELAY", 100)
    assert "It is delayed until" in await why(delayed)
    first, second = await add(client, "q", "1"), await add(client, "q", "2")
    assert "at about place 2; no consumer on any node waits for jobs of this queue." in await why(second)
    await run(running, "PAUSE", "q", "out")
    assert "and may not be handed out: paused." in await why(first)
    await run(running, "PAUSE", "q", "none")
    await run(running, "GETJOB", "FROM", "q")
    assert re.search(r"Now: It is in flight: 127\.0\.0\.1:\d+ of node [0-9a-f]{8} has it", await why(first))
    await run(running, "DEQUEUE", second)
    assert "a consumer had it before a restart, or DEQUEUE took it out" in await why(second)
    once = await add(client, "once", "x", "RETRY", 0, "REPLICATE", 1)
    await run(running, "GETJOB", "FROM", "once")
    assert "It was delivered at most once, as asked (retry 0): it is never queued again." in await why(once)


@async_test
async def test_a_consumer_is_told_with_its_address_and_whether_its_connection_has_ended(admin: Admin) -> None:
    client = admin()
    job_id = await add(client, "mail", "x", "RETRY", 60)
    consumer = await client.running.connect()
    await consumer.call("CLIENT", "SETNAME", "mailer-7")
    await consumer.call("GETJOB", "FROM", "mail")
    who = r"It is in flight: mailer-7 \(127\.0\.0\.1:\d+\)"
    assert re.search(who + " of node", words(await page(client, f"/jobs/{job_id}")))
    await run(client.running, "CLIENT", "KILL", "ID", await consumer.call("CLIENT", "ID"))
    await consumer.until(lambda: consumer.lost)
    assert re.search(who + ", whose connection has ended, of node", words(await page(client, f"/jobs/{job_id}")))


def ways(html: str) -> set[str]:
    """The buttons of a page."""
    return set(re.findall(r'id="do-([\w-]+)"', html))


@async_test
async def test_a_job_shows_its_failed_tries_and_what_can_be_done_with_it_now(admin: Admin) -> None:
    client = admin()
    running = client.running
    words_of_terms = ("RETRY", 60, "MAXTRIES", 2, "BACKOFF", 30, 60, "HEADER", "trace", "<b>")
    job_id = await add(client, "mail", "x", *words_of_terms)
    path = f"/jobs/{job_id}"
    assert ways(await page(client, path)) == {"dequeue", "ack", "delete", "bury", "cancel"}, "it waits: nobody has it"
    await run(running, "GETJOB", "FROM", "mail")
    assert {"bury", "cancel"} <= ways(await page(client, path))
    await run(running, "WORKING", job_id, "PROGRESS", "half of it")
    await run(running, "NACK", job_id, "REASON", "no <i>host</i>")
    html = await page(client, path)
    assert re.search(
        r"It failed, and node [0-9a-f]{8} queues it again at [^(]* UTC \([^)]* s from now\)\. "
        r"The last failure: no <i>host</i>\.",
        words(html),
    )
    assert "Max tries 2 Backoff 30 s, doubling each time up to 1 min" in words(html)
    assert ("no <i>host</i>" in words(html), "<i>" in html, "half of it" in html) == (True, False, True)
    assert "trace: <b>" in words(html)
    await run(running, "NACK", job_id, "DEAD", "REASON", "poison")
    html = await page(client, path)
    assert "It is dead: it failed too often, or was buried." in words(html)
    assert "The last failure: poison." in words(html)
    assert ways(html) == {"redrive", "ack", "delete", "cancel"}
    assert words(html).index("poison") < words(html).index("no <i>host</i>"), "the newest is first"
    await client.post("/api/commands/REDRIVE", {"queue": "mail", "by_id": True, "ids": [job_id]})
    assert "Redriven 1 time" in words(await page(client, path))


@async_test
async def test_only_what_applies_to_a_job_as_it_is_now_is_offered(admin: Admin) -> None:
    client = admin()
    running = client.running
    delayed = await add(client, "mail", "x", "RETRY", 60, "DELAY", 600)
    assert ways(await page(client, f"/jobs/{delayed}")) == {"enqueue", "ack", "delete", "bury", "cancel"}
    once = await add(client, "once", "x", "RETRY", 0, "REPLICATE", 1)
    await run(running, "GETJOB", "FROM", "once")
    assert ways(await page(client, f"/jobs/{once}")) == {"ack", "delete", "cancel"}
    taken = await add(client, "mail", "x", "RETRY", 60, "RESULT", 60)
    await run(running, "GETJOB", "FROM", "mail")
    assert ways(await page(client, f"/jobs/{taken}")) == {"nack", "ack", "delete", "bury", "cancel"}
    await run(running, "ACKJOB", taken, "RESULT", "sent")
    assert ways(await page(client, f"/jobs/{taken}")) == {"delete"}


@async_test
async def test_only_what_applies_to_the_jobs_that_match_is_offered(admin: Admin) -> None:
    client = admin()
    running = client.running
    job_id = await add(client, "mail", "x", "RETRY", 60)
    assert {f"bulk-{key}" for key in ("ack", "purge", "move")} <= ways(await page(client, "/queues/mail"))
    offered = ways(await page(client, "/queues/mail?state=dead"))
    assert {one for one in offered if one.startswith(("bulk", "selected"))} == {"bulk-purge"}, (
        "other nodes may have some"
    )
    await run(running, "NACK", job_id, "DEAD")
    assert "bulk-redrive" in ways(await page(client, "/queues/mail?state=dead"))
    await run(running, "QADD", "events", 600, "x")
    offered = ways(await page(client, "/queues/events"))
    assert not {one for one in offered if one.startswith(("bulk", "selected", "add", "group"))}
    assert "flush" in offered
    await run(running, "QGET", "events", "mailers")
    assert {"group-start", "group-forget"} <= ways(await page(client, "/queues/events"))


@pytest.mark.parametrize("state", ["queued", "dead", "any", "acked"])
def test_what_ends_jobs_has_the_danger_color(state: str) -> None:
    ends = ("ack", "delete", "purge")
    for action in (*actions.bulk(JobSearch(b"q", state), 7711), *actions.selected()):
        assert action.danger is action.key.endswith(ends), action.key


@async_test
async def test_a_job_that_is_cancelled_or_has_a_result_says_so(admin: Admin) -> None:
    client = admin()
    job_id = await add(client, "mail", "x", "RETRY", 60, "RESULT", 60)
    await run(client.running, "GETJOB", "FROM", "mail")
    await run(client.running, "CANCEL", job_id)
    html = await page(client, f"/jobs/{job_id}")
    assert "Cancelled yes" in words(html)
    assert {"bury", "cancel"} & ways(html) == set()
    await run(client.running, "ACKJOB", job_id, "RESULT", "sent <b>")
    html = await page(client, f"/jobs/{job_id}")
    assert "Its result is kept for its time." in words(html)
    assert "sent <b>" in words(html)


@async_test
async def test_a_queue_shows_its_dead_and_failing_jobs_and_its_policy(admin: Admin) -> None:
    client = admin()
    running = client.running
    ids = [await add(client, "mail", "x", "RETRY", 60) for _ in range(3)]
    await run(running, "GETJOB", "COUNT", 3, "FROM", "mail")
    await run(running, "NACK", ids[0], "DEAD")
    await run(running, "NACK", ids[1], "DELAY", 60)
    await run(running, "QPOLICY", "mail", "SET", "MAXTRIES", 7)
    html = await page(client, "/queues/mail?state=dead")
    assert "Delayed 1 Copies elsewhere 0 Done 0 Failing 1 Dead 1 Acknowledged last minute, this node" in words(html)
    assert "Policy all nodes" in words(html)
    assert "maxtries 7" in words(html)
    assert (ids[0][:18] in html, {"bulk-redrive", "bulk-purge"} <= ways(html)) == (True, True)
    assert {"bulk-requeue", "bulk-delete"} & ways(html) == set()


def test_all_jobs_of_a_search_are_queued_only_where_it_is_said_what_that_does() -> None:
    def offered(state: str) -> dict[str, str]:
        return {one.key: one.label for one in actions.bulk(JobSearch(b"q", state), 7711)}

    assert "bulk-requeue" in offered("in-flight")
    assert offered("delayed")["bulk-requeue"] == "Queue all now: their delays end"
    for state in ("ready", "elsewhere", "done", "dead", "wait-repl", "any", "active"):
        assert "bulk-requeue" not in offered(state)
    for state, is_purged in (("ready", True), ("dead", True), ("any", True), ("delayed", False), ("done", False)):
        assert ("bulk-purge" in offered(state), "bulk-delete" in offered(state)) == (is_purged, not is_purged)


@async_test
async def test_the_table_of_queues_has_dead_and_failing_jobs_and_is_sorted_by_them(admin: Admin) -> None:
    client = admin()
    running = client.running
    for name, dead, failing in (("ann", 1, 3), ("ben", 2, 0), ("cleo", 0, 1)):
        ids = [await add(client, name, "x", "RETRY", 60) for _ in range(dead + failing)]
        await run(running, "GETJOB", "COUNT", len(ids), "FROM", name)
        for number, job_id in enumerate(ids):
            await run(running, "NACK", job_id, *(("DEAD",) if number < dead else ("DELAY", 60)))
    for sort, expected in (("dead", ["ben", "ann", "cleo"]), ("failing", ["ann", "cleo", "ben"])):
        html = await page(client, f"/queues?sort={sort}")
        rows = re.findall(r'<th scope="row"><a [^>]*>(\w+)</a></th>(.*?)</tr>', html, re.DOTALL)
        assert [name for name, _ in rows] == expected
        cell = r'data-label="(?:Failing|Dead)" class="num">(?:<a [^>]*>)?(\d+)<'
        figures = {name: re.findall(cell, row) for name, row in rows}
        assert figures == {"ann": ["1", "3"], "ben": ["2", "0"], "cleo": ["0", "1"]}


@async_test
async def test_the_form_that_adds_a_job_asks_for_its_terms(admin: Admin, tmp_path: Path) -> None:
    client = with_tokens(admin, tmp_path)
    await add(client, "mail", "x")
    for path in ("/", "/queues", "/queues/mail"):
        form = (await page(client, path, OPERATOR)).partition("/api/add")[2].partition("</form>")[0]
        asked = {"max_tries", "backoff.first", "backoff.most", "keep_dead", "result", "headers"}
        assert asked <= set(re.findall(r'name="([^"]+)"', form))


@async_test
async def test_a_queue_and_a_job_say_for_how_long_they_are_throttled(admin: Admin) -> None:
    client = admin()
    running = client.running
    job_id = await add(client, "mail", "x", "GROUP", "acme <b>")
    assert "Throttled" not in words(await page(client, "/queues/mail"))
    await run(running, "THROTTLE", "mail", 3_600, "GROUP", "acme <b>")
    html = words(await page(client, "/queues/mail"))
    assert "Throttled acme <b> for " in html
    html = words(await page(client, f"/jobs/{job_id}"))
    assert re.search(r"and may not be handed out: group acme <b> throttled for 3[56]\d\d s\.", html)
    assert "Group acme <b>" in html
    await run(running, "THROTTLE", "mail", 7_200)
    assert re.search(
        r"may not be handed out: throttled for 7[12]\d\d s\.", words(await page(client, f"/jobs/{job_id}"))
    )


@async_test
async def test_a_queue_shows_its_limits_its_slots_and_why_the_first_jobs_wait(admin: Admin) -> None:
    client = admin()
    running = client.running
    await run(running, "QPOLICY", "calls", "SET", "INFLIGHT", 5, "GROUPINFLIGHT", 1, "RATE", 1000, "PER", 1)
    taken, waits = [await add(client, "calls", "x", "RETRY", 60, "GROUP", "acme") for _ in range(2)]
    await run(running, "CLIENT", "SETNAME", "mailer-7")
    await run(running, "GETJOB", "FROM", "calls")
    html = await page(client, "/queues/calls")
    said = words(html)
    assert "Jobs in flight 1 in use, max 5 In flight per group max 1 Rate limit 1000 jobs per 1 s, burst 1000" in said
    node_id = (await run(running, "CLUSTER", "MYID")).decode()[:8]
    assert f"During a partition strict Steward node {node_id}" in said
    assert said.count(f"{taken[:18]}… acme mailer-7 {node_id}") == 1
    assert f"{waits[:18]}… group acme has its 1 running job" in said
    html = await page(client, f"/jobs/{waits}")
    assert "may not be handed out: group acme has its 1 running job." in words(html)
    await add(client, "mail", "x")
    assert "Limits" not in words(await page(client, "/queues/mail"))
    running.daemon.node.state.peers.has_quorum = False
    for name in ("calls", "new"):
        await run(running, "QPOLICY", name, "SET", "INFLIGHT", 5)
        said = words(await page(client, f"/queues/{name}"))
        assert "Delivery stopped: no majority of the nodes can be reached" in said
    await run(running, "QADD", "new", 1_000, "event")
    said = words(await page(client, "/queues/new"))
    assert "they do not apply to the events of this log" in said
    assert "no majority" not in said


@async_test
async def test_a_queue_of_delayed_jobs_alone_says_how_many_they_are(admin: Admin) -> None:
    client = admin()
    await add(client, "later", "x", "DELAY", 60)
    assert "Ready 0 " in (said := words(await page(client, "/queues/later")))
    assert "Delayed 1 " in said
    assert f"Idle {rendering.NONE} " in said
    assert "/api/history" not in await page(client, "/queues/later"), "a queue that is not here has no history"


@async_test
async def test_a_queue_of_delayed_jobs_alone_is_in_every_list(admin: Admin) -> None:
    client = admin()
    await add(client, "later", "x", "DELAY", 60)
    assert re.findall(r'<th scope="row"><a [^>]*>(\w+)</a></th>', await page(client, "/queues")) == ["later"]
    assert "Queues 1 " in (said := words(await page(client, "/")))
    assert "Delayed 1 " in said
    found = await client.get("/find?q=later", headers=BROWSER)
    assert (found.status, found.headers["location"]) == (303, "/queues/later")
    found = await client.get("/find?q=ate", headers=BROWSER)
    assert (found.status, found.headers["location"]) == (303, "/queues/later")
    names = await client.get("/api/scan/queues")
    assert names.body == {"cursor": 0, "items": ["later"]}
    (item,) = (await client.get("/api/scan/queues?reply=all")).body["items"]
    assert (item["name"], item["delayed"], item["len"], item["ctime"]) == ("later", 1, 0, 0)


@async_test
async def test_defaults_of_a_queue_are_shown_and_set_by_those_who_may(admin: Admin, tmp_path: Path) -> None:
    client = with_tokens(admin, tmp_path)
    await add(client, "mail", "x")
    html = await page(client, "/queues/mail", OPERATOR)
    assert "No policy set." in words(html)
    assert ("policy-set" in ways(html), "policy-unset" in ways(html)) == (True, False)
    await run(client.running, "QPOLICY", "mail", "SET", "TTL", 60)
    assert {"policy-set", "policy-unset"} <= ways(await page(client, "/queues/mail", OPERATOR))
    assert not ways(await page(client, "/queues/mail", VIEWER))
    assert "ttl 60" in words(await page(client, "/queues/mail", VIEWER))


@async_test
async def test_the_policy_form_has_all_limits_and_what_holds_during_a_partition(admin: Admin) -> None:
    client = admin()
    await add(client, "calls", "x")
    form = (await page(client, "/queues/calls")).partition('id="do-policy-set"')[0].rpartition("<form")[2]
    limits = {"in_flight", "group_in_flight", "partition"}
    limits |= {f"{rate}.{part}" for rate in ("rate", "group_rate") for part in ("count", "per", "burst")}
    assert limits | {"fair"} <= set(re.findall(r'name="([^"]+)"', form))
    assert re.findall(r"<option[^>]*>([^<]*)", form) == ["unchanged", "strict", "available"]
    body = {"queue": "calls", "sets": True, "group_rate": {"count": 2, "per": 1, "burst": 5}, "partition": "available"}
    assert (await client.post("/api/commands/QPOLICY", body)).status == 200
    html = words(await page(client, "/queues/calls"))
    assert "Rate limit per group 2 jobs per 1 s, burst 5 During a partition available" in html


def inputs_of(command: str, without: tuple[str, ...]) -> set[str]:
    """The fields of a form that has every option and flag of a command but some."""
    fields = [field for field in COMMANDS[command].fields if field.arg.style in ("option", "flag")]
    names = [[f"{field.name}.{part}" for part in field.arg.parts] or [field.name] for field in fields
             if field.name not in without and not field.arg.repeats]  # fmt: skip
    repeated = {field.name for field in COMMANDS[command].fields if field.arg.repeats}
    return repeated.union(*names)


@async_test
async def test_every_option_of_a_policy_is_set_and_taken_back_with_the_words_of_the_command(admin: Admin) -> None:
    client = admin()
    sets, unsets = actions.policy(b"calls")
    assert {one.name for one in sets.inputs} == inputs_of("QPOLICY", ("shows", "sets"))
    numbers: dict[str, Any] = {}
    for one in sets.inputs:
        name, _, part = one.name.partition(".")
        value = one.of("available" if one.kind == "choice" else "70")
        numbers[name] = {**numbers.get(name, {}), part: value} if part else value
    numbers["fair"] = True
    numbers["replicate"] = 1
    assert (await client.post(sets.path, {**sets.body, **numbers})).body == {"reply": "OK"}
    rows = await run(client.running, "QPOLICY", "calls", "GET")
    fields = [row[0].decode() for row in rows]
    assert len(fields) == len(numbers)
    (unset,) = unsets.inputs
    for count, field in enumerate(fields, 1):
        assert (await client.post(unsets.path, {**unsets.body, "unset": unset.of(field)})).body == {"reply": "OK"}
        assert len(await run(client.running, "QPOLICY", "calls", "GET")) == len(fields) - count
    refused = await client.post(unsets.path, {**unsets.body, "unset": ["pause"]})
    assert "unknown field 'pause'; expected one of ttl, retry" in refused.body["detail"]
    refused = await client.post(sets.path, sets.body)
    assert refused.body["detail"] == "QPOLICY takes SET and options, UNSET and fields, or GET"


def test_a_box_is_a_flag_of_the_command_and_pairs_are_its_headers() -> None:
    inputs = (
        lines.Input("fair", "Fair", "flag", "1", word="FAIR"), lines.Input("waits", "Waits", "flag", word="WAITS"),
        lines.Input("headers", "Headers", "pairs", "a=b c=d=e", word="HEADER"), lines.Input("line", "Line", spare=True),
    )  # fmt: skip
    action = lines.Action("key", "Label", "/api/x", (b"X", *inputs), {}, "Done.")
    assert action.command == [b"X", b"FAIR", b"HEADER", b"a", b"b", b"HEADER", b"c", b"d=e"]
    assert action.body == {
        "fair": True,
        "headers": [{"name": "a", "value": "b"}, {"name": "c", "value": "d=e"}],
    }


@async_test
async def test_a_throttle_is_set_on_the_page_which_says_until_when_it_lasts(admin: Admin, tmp_path: Path) -> None:
    client = with_tokens(admin, tmp_path)
    act = {"Authorization": f"Bearer {OPERATOR}"}
    await add(client, "mail", "x")
    html = await page(client, "/queues/mail", OPERATOR)
    assert "Not throttled." in words(html)
    form = html.partition('id="do-throttle"')[0].rpartition("<form")[2]
    assert re.findall(r'name="([^"]+)"', form) == ["seconds", "group"]
    assert html.count("redis-cli -p")
    assert "THROTTLE mail 30</code>" in html
    assert "throttle" not in ways(await page(client, "/queues/mail", VIEWER))
    before = client.site.gateway.view.wall()
    for body, answer in (({"seconds": 3_600}, 3_600), ({"seconds": 60, "group": "acme <b>"}, 60)):
        found = await client.post("/api/commands/THROTTLE", {"queue": "mail", **body}, headers=act)
        assert found.body == {"reply": answer}
    html = (await page(client, "/queues/mail", OPERATOR)).partition('id="throttles"')[2].partition("</tbody>")[0]
    ends = re.findall(r'scope="row">([^<]*)</th><td[^>]*>([^<]*)</td><td[^>]*>([^<]*)', html)
    assert [unescape(what) for what, _, _ in ends] == ["whole queue", "group acme <b>"]
    for (_, until, left), seconds in zip(ends, (3_600, 60), strict=True):
        assert rendering.moment(before + seconds * 1_000)[:13] <= until <= rendering.moment(before + seconds * 1_100)
        assert left != "0 ms"


def test_a_field_with_a_word_is_in_no_body_while_it_is_empty() -> None:
    (way,) = actions.throttle(b"mail")
    assert way.body == {"queue": "mail", "seconds": 30}
    assert way.command == [b"THROTTLE", b"mail", b"30"]
    assert actions.policy(b"mail")[0].body == {"queue": "mail", "sets": True}


@async_test
async def test_a_pause_says_where_it_holds_who_said_so_and_why(admin: Admin, tmp_path: Path) -> None:
    client = with_tokens(admin, tmp_path)
    act = {"Authorization": f"Bearer {OPERATOR}"}
    body = {"queue": "q", "words": ["in"], "reason": "deploy <b>of</b> billing"}
    assert (await client.post("/api/pause", body, headers=act)).body == {"pause": "in"}
    job_id = await add(client, "other", "x")
    for path in ("/queues/other", f"/jobs/{job_id}"):
        assert "paused on" not in words(await page(client, path, OPERATOR))
    banner = "Adds are paused on all nodes by olga : deploy <b>of</b> billing"
    html = await page(client, "/queues/q", OPERATOR)
    assert (banner in words(html), "<b>of" in html) == (True, False)
    assert "all nodes, by olga: deploy <b>of</b> billing" in words(await page(client, "/queues", OPERATOR))
    stat = (await client.get("/api/qstat/q", headers=act)).body
    facts = {name: stat[name] for name in ("pause", "pause-reason", "pause-by", "pause-node")}
    assert facts == {"pause": "in", "pause-reason": body["reason"], "pause-by": "olga", "pause-node": "none"}
    refused = await client.post("/api/add", {"queue": "q", "body": "x", "timeout": 0}, headers=act)
    assert (refused.status, refused.body["code"]) == (409, "PAUSED")
    assert refused.body["detail"].endswith("(deploy <b>of</b> billing; by olga)")
    await client.post("/api/pause", {"queue": "q", "words": ["out", "node"]}, headers=act)
    assert f"{banner} Delivery is paused on this node" in words(await page(client, "/queues/q", OPERATOR))
    assert "all nodes, and out on this node, by olga" in words(await page(client, "/queues", OPERATOR))
    await client.post("/api/pause", {"queue": "q", "words": ["none"]}, headers=act)
    await client.post("/api/pause", {"queue": "q", "words": ["out", "node"]}, headers=act)
    html = await page(client, "/queues/q", OPERATOR)
    assert ("Delivery is paused on this node" in words(html), "on all nodes" in words(html)) == (True, False)


@async_test
async def test_the_pages_of_a_job_and_a_schedule_say_that_their_queue_is_paused(admin: Admin) -> None:
    client = admin()
    job_id = await add(client, "mail", "x")
    await run(client.running, "SCHEDULE", "SET", "nightly", "0 2 * * *", "QUEUE", "mail", "BODY", "x")
    paths = (f"/jobs/{job_id}", "/schedules/nightly")
    for path in paths:
        assert "are paused" not in await page(client, path)
    await run(client.running, "PAUSE", "mail", "all", "REASON", "deploy")
    for path in paths:
        assert re.search(r"Adds and delivery are paused on all nodes by .* : deploy", words(await page(client, path)))


@async_test
async def test_a_queue_is_paused_on_all_nodes_or_on_this_one(admin: Admin) -> None:
    client = admin()
    for way in actions.pause(b"q", "none"):
        scope, _ = way.inputs
        assert list(scope.labels.values()) == ["all nodes", "this node"]
        for choice in scope.choices:
            assert (await client.post(way.path, {**way.body, scope.name: scope.of(choice)})).status == 200
            stat = (await client.get("/api/qstat/q")).body
            assert (stat["pause-node"] != "none") == choice.endswith(" node")
            await client.post("/api/pause", {"queue": "q", "words": ["none"]})


@async_test
async def test_the_timeline_tells_what_happened_in_order(admin: Admin) -> None:
    client = admin()
    job_id = await add(client, "q", "x", "RETRY", 60)
    await run(client.running, "GETJOB", "FROM", "q")
    await run(client.running, "NACK", job_id)
    for reason in ("no such host", "no route"):
        await run(client.running, "GETJOB", "FROM", "q")
        await run(client.running, "NACK", job_id, "REASON", reason)
    await run(client.running, "GETJOB", "FROM", "q")
    said = words(await page(client, f"/jobs/{job_id}")).partition("Timeline")[2]
    order = [
        said.index(text)
        for text in (
            "Added to node",
            "1 earlier attempt, only",
            "Failed on node",
            "Delivered to",
            "Queued again unless",
        )
    ]
    assert order == sorted(order)
    assert "Time to live" not in said


@async_test
async def test_the_page_of_an_event_has_a_timeline(admin: Admin) -> None:
    client = admin()
    event = (await run(client.running, "QADD", "events", 1_000, "something")).decode()
    said = words(await page(client, f"/jobs/{event}"))
    assert re.search(r"Timeline Added to node [0-9a-f]{8} [-\d]+ [:.\d]+ In its log", said)
    assert "Now: It is an event" in said


@async_test
async def test_a_job_that_has_ended_says_so_first(admin: Admin) -> None:
    client = admin()
    job_id = await add(client, "mail", "x")
    await run(client.running, "CANCEL", job_id)
    html = await page(client, f"/jobs/{job_id}", status=404)
    assert "<h1>The job has ended <small>404</small></h1>" in html
    assert f"job {job_id} has ended: it was cancelled." in words(html)
    document = (await client.get(f"/jobs/{job_id}")).body
    assert (document["status"], document["code"]) == (404, "NOJOB")


@async_test
async def test_every_word_of_how_a_job_ended_is_said_and_never_that_it_never_was(admin: Admin) -> None:
    client = admin()
    nobody, one = ClusterJob([], []), ClusterJob([], [MissingNode(b"f" * 40, "", "has failed")])
    ends = {
        ("acked", "acknowledged"): "has ended: it was acknowledged",
        ("expired", "its time to live is over"): "has ended: its time to live was over",
        (
            "unknown",
            "it has ended, and its result was not kept",
        ): "has ended: it was acknowledged, or dropped for want of memory; no result was kept",
        ("unknown", "it has ended: its time to live was over"): "has ended: its time to live was over",
        ("unknown", "no node that answered has it any more"): "is on no node any more, and none remembers how it ended",
    }
    for end, said in ends.items():
        assert job_pages._missing(client.site, UNKNOWN.encode(), nobody, end).detail == f"job {UNKNOWN} {said}"
    for end in (("pending", "no node that answered knows it, and another one did not answer"), ("", "")):
        said = job_pages._missing(client.site, UNKNOWN.encode(), one, end).detail
        assert said == f"no node that answers has job {UNKNOWN}: it has ended, or a node that does not answer has it"


@async_test
async def test_an_open_page_follows_a_job_to_its_end(admin: Admin) -> None:
    client = admin()
    job_id = await add(client, "mail", "x")
    watched = Subscription("job", b"", QueueQuery("", "name", 1), True, Role.ADMIN, job=job_id.encode())
    assert ">ready<" in (await updates.draw(client.site, watched))["html"]["job-state"]
    await run(client.running, "CANCEL", job_id)
    client.site.everywhere._kept.clear()
    html = (await updates.draw(client.site, watched))["html"]
    assert ">ready<" not in html["job-state"]
    assert "ended" in html["job-state"]
    assert "No node that answers has the job." in html["job-nodes"]
    assert words(html["job-timeline"]).strip() == "Ended"
    assert html["job-acts"] == ""


@async_test
async def test_a_job_that_is_queued_or_with_a_consumer_is_not_queued_once_more(admin: Admin) -> None:
    client = admin()
    job_id = await add(client, "mail", "x", "RETRY", 60, "DELAY", 600)
    node_id = (await run(client.running, "CLUSTER", "MYID")).decode()[:8]

    async def queue_now() -> tuple[int, str]:
        answer = await client.post("/api/queue-now", {"id": job_id})
        return answer.body["changed"], answer.body["text"]

    assert await queue_now() == (1, f"Queued on node {node_id}.")
    assert await queue_now() == (0, f"Left alone: it is in the queue of node {node_id} already.")
    await run(client.running, "GETJOB", "FROM", "mail")
    assert await queue_now() == (0, f"Left alone: it is with a consumer of node {node_id} already.")
    for body, status in (({"id": UNKNOWN}, 404), ({"id": "DIx"}, 400), ({"id": 1}, 400), ({}, 400)):
        assert (await client.post("/api/queue-now", body)).status == status, body


@async_test
async def test_what_the_time_of_a_job_is_for_depends_on_how_it_is(admin: Admin) -> None:
    client = admin()
    job_id = await add(client, "mail", "x", "RETRY", 60, "MAXTRIES", 3)
    assert "Time to live" in words(await page(client, f"/jobs/{job_id}"))
    await run(client.running, "NACK", job_id, "DEAD")
    said = words(await page(client, f"/jobs/{job_id}"))
    assert ("Time to live" in said, "Kept for" in said) == (False, True)


# Tables.


@async_test
async def test_queues_are_cut_into_pages_of_a_hundred(admin: Admin) -> None:
    client = admin()
    for number in range(PAGE_ROWS + 5):
        await add(client, f"q{number:03}", "x")
    first, second = await page(client, "/queues"), await page(client, "/queues?page=2")
    assert (first.count('<th scope="row">'), second.count('<th scope="row">')) == (PAGE_ROWS, 5)
    assert "q104" in second
    assert "Page 2 of 2" in await page(client, "/queues?page=99")
    assert (await page(client, "/queues?q=q00&sort=length")).count('<th scope="row">') == 10


@async_test
async def test_a_wrong_column_is_refused_with_those_that_are_allowed(admin: Admin) -> None:
    answer = await admin().get("/queues?sort=colour")
    assert answer.status == 400
    assert "length" in str(answer.body)


@async_test
async def test_a_walk_over_queues_gives_others_their_turn(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_views, "ADDED_ROWS", 3)
    monkeypatch.setattr(queue_views, "WALK_ROWS", 3)
    client = admin()
    for number in range(10):
        await add(client, f"q{number}", "x")
    turns = 0
    original = queue_views.next_turn

    def counted(reactor: Any) -> Any:
        nonlocal turns
        turns += 1
        return original(reactor)

    monkeypatch.setattr(queue_views, "next_turn", counted)
    rows = (await client.site.queues.all_queues()).rows
    assert len(rows) == 10
    assert turns == 8, "after each of the four answers, and each slice that is added up"


@async_test
async def test_rows_of_a_table_are_drawn_in_turns_and_once_for_each_walk(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_views, "REST_S", 1_000.0)
    drawn: list[int] = []
    original = queue_pages.fragment

    def counted(template: str, values: Values) -> str:
        drawn.append(len(values["cut"].rows))
        return original(template, values)

    monkeypatch.setattr(queue_pages, "fragment", counted)
    client = admin()
    for number in range(DRAWN_ROWS + 3):
        await add(client, f"q{number:02}", "x")
    first = await page(client, "/queues")
    assert drawn == [DRAWN_ROWS, 3]
    names = re.findall(r'<th scope="row"><a [^>]*>(\w+)</a></th>', first)
    assert names == [f"q{number:02}" for number in range(DRAWN_ROWS + 3)]
    await page(client, "/queues")
    event = await updates.draw(client.site, Subscription("queues", b"", QueueQuery(), True, Role.VIEWER))
    assert re.findall(r'<th scope="row"><a [^>]*>(\w+)</a></th>', event["html"]["queue-rows"]) == names
    assert drawn == [DRAWN_ROWS, 3], "the walk rests, and what it found is drawn"
    found = await page(client, "/queues?q=q01")
    assert re.findall(r'<th scope="row"><a [^>]*>(\w+)</a></th>', found) == ["q01"]
    assert drawn[2:] == [1], "another view of the same walk is drawn by itself"


@async_test
async def test_jobs_are_found_by_state_text_and_age(admin: Admin) -> None:
    client = admin()
    await add(client, "q", "apple")
    pear = await add(client, "q", "pear", "DELAY", 100)
    await add(client, "other", "pear")
    assert "Matches: 1" in words(await page(client, "/queues/q?text=app"))
    assert "Matches: 0" in words(await page(client, "/queues/q?text=pear"))
    for state in ("delayed", "active"):
        html = await page(client, f"/queues/q?text=pear&state={state}")
        assert "Matches: 1" in words(html)
        assert f"/jobs/{pear}" in html
    assert ("<option>queued" in html, "<option selected>active" in html) == (False, True)
    assert "Matches: 0" in words(await page(client, "/queues/q?text=pear&state=elsewhere"))
    assert "Matches: 2" in words(await page(client, "/queues/q?state=any"))
    assert "Matches: 0" in words(await page(client, "/queues/q?state=any&older=1000"))
    assert "older=x" in await page(client, "/queues/q?older=x", status=400)


@async_test
async def test_a_search_ends_and_says_where_to_go_on(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disqued.web.views.job_views.LOOKED_AT_MAX", 10)
    monkeypatch.setattr("disqued.web.views.job_views.SLICE_ROWS", 5)
    client = admin()
    for number in range(25):
        await add(client, "q", f"job {number:02}")
    html, seen = await page(client, "/queues/q?text=job+24"), 0
    while (further := re.search(r'href="(\?[^"]*)#jobs">Continue searching', html)) is not None:
        assert "Searched 10 jobs. Matches: 0" in words(html)
        html, seen = await page(client, "/queues/q" + unescape(further[1])), seen + 1
    assert (seen, "Matches: 1" in words(html)) == (2, True)


def unlabeled(html: str) -> list[str]:
    """Cells of tables whose label, which stands above them on a phone, is not the head of their column."""
    wrong = []
    for table in re.findall(r'<table[^>]*class="cards".*?</table>', html, re.DOTALL):
        head, _, rows = table.partition("<tbody")
        heads = [words(cell) for cell in re.findall(r"<th[^>]*>(.*?)</th>", head, re.DOTALL)]
        for row in re.findall(r"<tr.*?</tr>", rows, re.DOTALL):
            if "colspan" not in row:
                labels = re.findall(r"<t[hd]([^>]*)>", row)
                assert len(labels) == len(heads), row
                wrong += [
                    f"{label}: {column}"
                    for label, column in zip(labels, heads, strict=True)
                    if "scope=" not in label and "pick" not in label and f'data-label="{column}"' not in label
                ]
    return wrong


@async_test
async def test_each_cell_has_the_name_of_its_column_for_narrow_windows(admin: Admin) -> None:
    client = admin()
    running = client.running
    ids = [await add(client, "mail", "x", "RETRY", 60, "GROUP", "acme") for _ in range(3)]
    await run(running, "QPOLICY", "mail", "SET", "INFLIGHT", 5)
    await run(running, "THROTTLE", "mail", 3_600, "GROUP", "other")
    await run(running, "WORKER", "START", "ID", "press-1", "TTL", 0)
    await run(running, "GETJOB", "WORKER", "press-1", "FROM", "mail")
    await run(running, "NACK", ids[2], "DEAD", "REASON", "poison")
    event = (await run(running, "QADD", "events", 600, "x")).decode()
    await run(running, "QGET", "events", "mailers")
    await run(running, "SCHEDULE", "SET", "nightly", "0 2 * * *", "QUEUE", "mail", "BODY", "x")
    await client.post("/api/pause", {"queue": "q", "words": ["in"]})
    paths = ["/", "/queues", "/queues/mail", "/queues/events", f"/jobs/{ids[2]}", f"/jobs/{event}", "/actions"]
    for path in (*paths, "/workers", "/workers/press-1", "/connections", "/schedules", "/schedules/nightly"):
        html = await page(client, path)
        assert 'data-label="' in html or path == "/schedules/nightly", path
        assert unlabeled(html) == [], path


# Who sees what.


@async_test
async def test_who_asks_for_a_page_without_a_token_is_sent_to_the_form(admin: Admin, tmp_path: Path) -> None:
    client = with_tokens(admin, tmp_path)
    answer = await client.get("/queues/a%2Fb", headers={"Accept": "text/html", "Sec-Fetch-Mode": "navigate"})
    assert answer.status == 303
    assert answer.headers["location"].startswith("/login")
    assert 'name="token"' in await page(client, "/login?next=%2Fqueues")


@async_test
async def test_a_viewer_sees_no_buttons_and_no_bodies(admin: Admin, tmp_path: Path) -> None:
    client = with_tokens(admin, tmp_path)
    job_id = await add(client, "q", "the-secret-body")
    for path in ("/", "/queues", "/queues/q", f"/jobs/{job_id}"):
        html = await page(client, path, VIEWER)
        assert "data-action" not in html, path
        assert "the-secret-body" not in html, path
        assert ">Audit log<" not in html
    assert "data-action" not in await page(client, "/settings", VIEWER)
    assert "data-action" in await page(client, "/settings", ADMIN)
    assert "Withheld" in await page(client, f"/jobs/{job_id}", VIEWER)
    assert "has no permission to see job bodies" in await page(client, "/queues/q?text=the", VIEWER, status=403)
    assert "the-secret-body" in await page(client, f"/jobs/{job_id}", OPERATOR)
    assert "data-action" in await page(client, f"/jobs/{job_id}", OPERATOR)


@async_test
async def test_secrets_are_masked_in_the_settings(admin: Admin) -> None:
    client = admin("requirepass hush-hush-hush-hush")
    html = await page(client, "/settings", "hush-hush-hush-hush")
    assert "hush-hush" not in html
    assert 'id="requirepass"' in html


@async_test
async def test_settings_are_filtered_and_those_with_few_values_have_a_select_box(admin: Admin) -> None:
    client = admin("slowlog-max-len 64")
    html = await page(client, "/settings")
    sections = re.findall(r'<a href="#(g-\d+)">', html)
    assert len(sections) > 5
    assert all(f'<h2 id="{section}">' in html for section in sections)
    assert re.search(r'id="slowlog-max-len">.*?default: <code dir="ltr">128</code>', html, re.DOTALL)

    def shown(html: str) -> list[str]:
        return re.findall(r'<article class="setting" id="([^"]+)"', html)

    assert shown(await page(client, "/settings?q=MAXmem*")) == ["maxmemory", "maxmemory-policy", "maxmemory-samples"]
    assert "bind" in shown(await page(client, "/settings?q=Addresses+to+accept"))
    assert "No settings match." in await page(client, "/settings?q=nonesuch")
    forms = {name: html.partition(f'id="{name}"')[2].partition("</article>")[0] for name in shown(html)}
    options = {name: re.findall(r'<option value="([^"]*)"', form) for name, form in forms.items()}
    chosen = {name: found for name, found in options.items() if found}
    assert chosen["maxmemory-policy"] == ["acks", "noeviction"]
    assert chosen["appendonly"] == ["yes", "no"]
    for name, values in chosen.items():
        assert f'<option value="{client.site.gateway.config.matching(name)[0][1]}" selected' in forms[name]
        assert "" not in values
    assert "data-action" not in forms["port"]
    assert "needs a restart" in forms["port"]


@pytest.mark.parametrize(
    ("wanted", "raw", "is_it"),
    [
        ("AIL", b"mail", True), ("mail*", b"Mail/new", True), ("ail*", b"mail", False), ("m?il", b"mail", True),
        ("[km]ail", b"Kail", True), ("*\u00c4*", "t\u00e4ler".encode(), True), ("*", b"\xff", True),
        ("x*", b"\xffx", False), ("\\xff", b"\xff", True),
    ],
)  # fmt: skip
def test_a_filter_is_a_part_of_the_name_or_a_glob(wanted: str, raw: bytes, is_it: bool) -> None:
    assert rendering.is_named(wanted, raw) is is_it


@async_test
async def test_the_table_of_queues_is_filtered_by_a_glob(admin: Admin) -> None:
    client = admin()
    for name in ("mail/in", "mail/out", "webmail"):
        await add(client, name, "x")
    html = await page(client, "/queues?q=mail/*")
    assert re.findall(r'<th scope="row"><a [^>]*>([^<]+)</a>', html) == ["mail/in", "mail/out"]


@async_test
async def test_actions_are_on_their_page(admin: Admin) -> None:
    client = admin()
    await client.post("/api/pause", {"queue": "<q>", "words": ["in"]})
    html = await page(client, "/actions")
    assert f"Audit log node {client.running.daemon.node.id[:8].decode()} (this node), latest" in words(html)
    assert "POST /api/pause" in html
    assert "\\u003cq\\u003e" in html


# Files.


@async_test
async def test_files_are_kept_for_ever_under_their_version(admin: Admin) -> None:
    client = admin()
    for name, media in (
        ("disqued.css", "text/css"),
        ("disqued.js", "text/javascript"),
        ("uPlot.esm.js", "text/javascript"),
    ):
        answer = await client.get(assets.url(name))
        assert (answer.status, answer.headers["content-type"]) == (200, f"{media}; charset=utf-8")
        assert "immutable" in answer.headers["cache-control"]
        assert assets.url(name) in await page(client, "/") or name == "uPlot.esm.js"


@async_test
async def test_no_other_file_is_served(admin: Admin) -> None:
    client = admin()
    version = assets.version()
    for path in (
        "/static/0000/disqued.css", f"/static/{version}/..%2Fpages.py", f"/static/{version}/%2E%2E%2Fpages.py",
        f"/static/{version}/vendor", f"/static/{version}/", f"/static/{version}/%00",
    ):  # fmt: skip
        assert (await client.get(path)).status == 404, path


# Lines.


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([b"PAUSE", b"mail", b"in"], "redis-cli -p 7711 PAUSE mail in"),
        ([b"PAUSE", b"a b'c", b"in"], "redis-cli -p 7711 PAUSE 'a b'\\''c' in"),
        ([b"PAUSE", b"", b"in"], "redis-cli -p 7711 PAUSE '' in"),
        ([b"PAUSE", b'\x00\xff"', b"in"], "printf '%s\\n' 'PAUSE \"\\x00\\xff\\x22\" in' | redis-cli -p 7711"),
    ],
)
def test_a_line_of_redis_cli_is_quoted(words: list[bytes], line: str) -> None:
    assert lines.redis_line(words, 7711) == line


def test_a_field_of_several_parts_or_words_is_one_of_the_body_and_several_words_of_the_command() -> None:
    inputs = (
        lines.Input("backoff.first", "First", "number", "10", word="BACKOFF"),
        lines.Input("backoff.most", "Most", "number", "600"),
        lines.Input("ttl", "TTL", "seconds", word="TTL"), lines.Input("unset", "Fields", "list", " maxtries  ttl "),
    )  # fmt: skip
    action = lines.Action("key", "Label", "/api/x", (b"X", *inputs), {"queue": b"q"}, "Done.")
    assert action.body == {"queue": "q", "backoff": {"first": 10, "most": 600}, "unset": ["maxtries", "ttl"]}
    assert action.command == [b"X", b"BACKOFF", b"10", b"600", b"maxtries", b"ttl"]
    empty = lines.Action("key", "Label", "/api/x", (b"X", lines.Input("most", "Most", "number")), {}, "Done.")
    assert (empty.body, empty.command) == ({}, [b"X"])


@pytest.mark.parametrize(("text", "value"), [("5", 5), ("0.5", 0.5), (".5", 0.5), ("5.", 5.0)])
def test_a_field_of_seconds_is_a_number_with_a_fraction(text: str, value: float) -> None:
    action = lines.Action("key", "Label", "/api/x", (lines.Input("delay", "Delay", "seconds", text),), {}, "Done.")
    assert action.body == {"delay": value}
    assert lines.Input("delay", "Delay", "seconds").is_left_out


@async_test
async def test_the_spans_of_a_job_are_shown_with_their_fractions(admin: Admin) -> None:
    client = admin()
    options = ("DELAY", "0.25", "RETRY", "61.5", "TTL", 3_600, "MAXTRIES", 2, "BACKOFF", "0.5", "90", "KEEPDEAD", "1.5")
    job_id = (await run(client.running, "ADDJOB", "mail", "x", 0, *options)).decode()
    said = words(await page(client, f"/jobs/{job_id}"))
    assert "Delay 250 ms Retry 61.5 s Time to live " in said
    assert "Backoff 500 ms, doubling each time up to 1 min 30 s Dead-letter retention 1.5 s" in said
    await run(client.running, "QPOLICY", "mail", "SET", "TTL", "90.5", "RATE", 3, "PER", "0.5")
    said = words(await page(client, "/queues/mail"))
    assert "3 jobs per 0.5 s, burst 3" in said
    assert "3 PER 0.5" in said


def test_a_line_of_curl_is_quoted() -> None:
    line = lines.curl_line("/api/add", {"body": "it's é"}, "http://h:1", with_token=True)
    assert line == (
        "curl -H \"Authorization: Bearer $TOKEN\" -H 'Content-Type: application/json' "
        "-d '{\"body\":\"it'\\''s \\u00e9\"}' http://h:1/api/add"
    )


#: A form as a template writes it: its action, what is in it, and its line of curl.
FORM = re.compile(r'<form class="action" data-action="(.*?)".*?data-line="curl">(.*?)</code>.*?</form>', re.DOTALL)


async def shown_requests(client: AdminClient, path: str) -> list[tuple[str, dict[str, Any]]]:
    """Paths and bodies of the lines of curl on a page; without those of forms that a browser does not send empty."""
    found = []
    for form in FORM.finditer(await page(client, path)):
        program, header, media, data, text, url = shlex.split(unescape(form[2]))
        assert (program, header, data) == ("curl", "-H", "-d"), form[2]
        assert media == "Content-Type: application/json"
        is_needed = " required" in form[0]
        nothing_set = json.loads(unescape(form[1]))["fixed"].get("sets", False)  # QPOLICY SET wants one field at least
        if not is_needed and not nothing_set:
            found.append((re.sub("^http://[^/]*", "", url), json.loads(text)))
    return found


@async_test
async def test_every_line_of_curl_works_as_it_stands(admin: Admin) -> None:
    client = admin()
    queued, dead, taken = [await add(client, "q", body, "RETRY", 60) for body in ("a", "b", "c")]
    await run(client.running, "NACK", dead, "DEAD")
    await run(client.running, "DEQUEUE", taken)
    await run(client.running, "QADD", "log", 60, "event")
    await run(client.running, "SCHEDULE", "SET", "nightly", "0 2 * * *", "QUEUE", "reports", "BODY", "sales")
    await run(client.running, "WORKER", "START", "ID", "press-1", "TTL", 0)
    paths = ["/", "/queues", "/queues/q", "/queues/q?state=dead", "/queues/log", "/workers/press-1"]
    paths += ["/schedules/nightly", "/settings", *(f"/jobs/{job_id}" for job_id in (queued, dead, taken))]
    requests = [request for path in paths for request in await shown_requests(client, path)]
    seen = {path for path, _ in requests}
    assert {"/api/pause", "/api/add", "/api/nack", "/api/config", "/api/bulk/purge", "/api/bulk/redrive"} <= seen
    for path, body in requests:
        asked = {**body, "ids": [queued]} if body.get("ids") == ["<id>"] else body
        answer = await client.post(path, asked)
        assert answer.status in (200, 404), (path, asked, answer.body)  # 404: a line before it has ended that


@pytest.mark.parametrize("action", actions.pause(b"q", "none"), ids=lambda action: action.key)
def test_an_empty_field_with_a_word_is_left_out_of_both_lines(action: lines.Action) -> None:
    assert "reason" not in action.body
    assert b"REASON" not in action.command


@async_test
async def test_a_page_says_where_redis_cli_takes_the_password_from(admin: Admin) -> None:
    client = admin()
    job_id = await add(client, "q", "x")
    for password in ("", "hush-hush-hush-hush"):
        await run(client.running, "CONFIG", "SET", "requirepass", password)
        for path in ("/", "/queues", "/queues/q", f"/jobs/{job_id}", "/settings"):
            html = await page(client, path, password)
            beside = " (reads the password from the environment variable <code>REDISCLI_AUTH</code>)</dt><dd><code"
            assert html.count(beside) == (html.count('data-line="redis"') if password else 0), path


@pytest.mark.parametrize(
    "answer", ["NOAUTH Authentication required.", "LOADING the store", "ERR no", "", "-1", "12x DIx", "x12"]
)
def test_the_loop_of_redis_cli_ends_on_what_is_no_cursor(tmp_path: Path, answer: str) -> None:
    fake, calls = tmp_path / "redis-cli", tmp_path / "calls"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {calls}\necho "{answer}"\n')
    fake.chmod(0o700)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for action in actions.bulk(JobSearch(b"q", "in-flight"), 7711)[:2]:
        calls.unlink(missing_ok=True)
        program = ["sh", "-uc", str(action.redis)]
        done = subprocess.run(program, env=path, capture_output=True, timeout=LIMIT, check=False)
        assert calls.read_text() == "--raw -p 7711 JSCAN 0 QUEUE q STATE in-flight\n", (
            "nothing is done, and nothing again"
        )
        assert done.stderr == f"ended: {answer}\n".encode()


# Values.


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (61_000, "1 min 1 s"),
        (3_600_000, "1 h"),
        (90_000_000, "1 d 1 h"),
        (None, "\u2013"),
    ],
)
def test_spans_are_shown_in_two_units(value: int | None, text: str) -> None:
    assert rendering.span(value) == text


def test_marks_that_turn_text_are_seen() -> None:
    assert rendering.name("a\u202eb".encode()) == "a\\u202eb"
    # Nobody sees a blank at an end.
    assert [rendering.name(raw) for raw in (b" ", b" a b ", "\u3000a".encode())] == [
        "\\x20",
        "\\x20a b\\x20",
        "\\u3000a",
    ]
    assert rendering.name(b"a\xffb\n") == "a\\xffb\\x0a"
    assert rendering.name(b"x" * 300, 10) == "x" * 10 + "…"


@async_test
async def test_the_overview_says_that_commands_are_put_off(admin: Admin) -> None:
    client = admin()
    assert b"CLIENT PAUSE" not in (await client.get("/", headers={"Accept": "text/html"})).body
    client.running.daemon.clients.pause(60_000)
    assert b"Commands are suspended by CLIENT PAUSE" in (await client.get("/", headers={"Accept": "text/html"})).body


@async_test
async def test_a_queue_whose_name_no_request_could_hold_is_shown_without_a_link(admin: Admin) -> None:
    client = admin()
    long = b"x" * 20_000
    job_id = await add(client, long, "b")
    await add(client, b"short", "b")
    html = await page(client, "/queues")
    assert len(html) < 20_000
    assert html.count("/queues/xxx") == 0
    assert html.count("too long for a link") == 1
    assert "/queues/xxx" not in await page(client, f"/jobs/{job_id}")
    _, _, metrics = await client.get("/metrics/per-queue")
    assert b"xxx" not in metrics
    assert b"disqued_queues_left_out 1.0" in metrics


@async_test
async def test_the_whole_of_a_long_name_is_in_the_heading_and_in_the_titles_of_links(admin: Admin) -> None:
    client = admin()
    long = "reports-" + "x" * 292
    job_id = await add(client, long, "b", "RETRY", 60, "MAXTRIES", 9)
    assert f'<h1 dir="ltr">{long}</h1>' in await page(client, f"/queues/{long}")
    await run(client.running, "GETJOB", "FROM", long)
    await run(client.running, "NACK", job_id, "DELAY", 60)
    for path in ("/queues", "/failing"):
        assert f'href="/queues/{long}" title="{long}" dir="ltr">reports-x' in await page(client, path), path
    await add(client, "short", "b")
    assert '<a href="/queues/short" dir="ltr">short</a>' in await page(client, "/queues")


@async_test
async def test_actions_that_are_missing_in_the_file_are_told(admin: Admin) -> None:
    client = admin()
    client.site.audit.failures = 3
    assert "Audit log entries that could not be written: 3." in await page(client, "/")
    assert "3 entries could not be written" in await page(client, "/actions")
