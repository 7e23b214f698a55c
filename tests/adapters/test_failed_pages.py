"""The pages of failing and of dead jobs, and the actions on them, on one node."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from disqued.core.model.messages import Greeting
from disqued.core.model.policies import QUEUE_FIELD_NAMES
from disqued.web.pages import actions
from disqued.web.views.failed_jobs import FailedJobs, FailedQuery, FoundJobs
from tests.adapters.inprocess import wait_until
from tests.adapters.test_pages import (
    OPERATOR,
    VIEWER,
    Admin,
    AdminClient,
    add,
    async_test,
    page,
    run,
    unlabeled,
    walks_at_once,  # noqa: F401 - a fixture
    ways,
    with_tokens,
    words,
)


async def fail(client: AdminClient, queue: str, *how: str | int) -> str:
    """Add a job, and let a consumer return it; returns its id."""
    job_id = await add(client, queue, f"to: {queue}", "RETRY", 60, "MAXTRIES", 3)
    await run(client.running, "GETJOB", "FROM", queue)
    await run(client.running, "NACK", job_id, *how)
    return job_id


@async_test
async def test_failing_jobs_are_listed_with_what_failed_and_when_they_are_tried_again(admin: Admin) -> None:
    client = admin()
    assert "No failing jobs." in words(await page(client, "/failing"))
    put_off = await fail(client, "mail", "DELAY", 600, "REASON", "no such <host>")
    waits = await fail(client, "post", "REASON", "timeout")
    await add(client, "mail", "never failed")
    html = await page(client, "/failing")
    said = words(html)
    assert "Failing jobs 2, all nodes" in said
    assert "1 of 3 no such <host>" in said
    assert "1 of 3 timeout" in said
    assert "in 9 min 5" in said or "in 10 min" in said
    assert "waits in its queue" in said
    assert unlabeled(html) == []
    assert {f'value="{job_id}"' in html for job_id in (put_off, waits)} == {True}
    assert 'aria-current="page">Failing</a>' in html


@async_test
async def test_lists_are_filtered_by_queue_glob_and_reason(admin: Admin) -> None:
    client = admin()
    for queue, reason in (("mail", "no such host"), ("mail-2", "Timeout"), ("m[x]", "poison")):
        await fail(client, queue, "DELAY", 600, "REASON", reason)
    for query, found in (
        ("queue=mail", {"mail"}), ("queue=mail*", {"mail", "mail-2"}), ("queue=m%5Bx%5D", {"m[x]"}),
        ("reason=timeOUT", {"mail-2"}), ("queue=mail&reason=timeout", set()), ("queue=none", set()),
        ("since=2001-01-01T12:00&queue=mail", {"mail"}), ("since=2201-01-01T12:00", set()),
    ):  # fmt: skip
        answer = await client.get(f"/api/failing?{query}")
        assert {job["queue"] for job in answer.body["jobs"]} == found, query
    assert "No jobs match." in words(await page(client, "/failing?queue=none"))
    html = await page(client, "/failing?since=2001-01-01T12:00")
    assert 'name="since" value="2001-01-01T12:00"' in html
    assert html.count("2001-01-01T12:00") > 3, "the buttons act on those alone"
    for since, matched in (("2001-01-01T12:00", 3), ("2201-01-01T12:00:00Z", 0)):
        assert (await client.post("/api/failing/retry", {"filter": {"since": since}})).body["matched"] == matched
    for path in ("/api/failing?since=noon", "/failing?since=2001-13-01"):
        assert (await client.get(path)).status == 400
    refused = await client.post("/api/failing/retry", {"filter": {"since": 5}})
    assert (refused.status, refused.body["detail"]) == (400, "since: allowed is text")


@async_test
async def test_dead_jobs_are_redriven_and_purged_after_a_dry_run(admin: Admin) -> None:
    client = admin()
    first, second, third = [await fail(client, queue, "DEAD", "REASON", "poison") for queue in ("mail", "mail", "post")]
    html = await page(client, "/dead?queue=mail")
    assert ways(html) == {"selected-redrive", "selected-purge", "bulk-redrive", "bulk-purge"}
    assert "REDRIVE mail" in html
    assert "QPURGE mail STATE dead" in html
    assert "Died" in html
    asked = {"filter": {"ids": [first]}}
    dry = (await client.post("/api/dead/redrive", asked)).body
    assert (dry["matched"], dry["sample"]) == (1, [first])
    done = (await client.post("/api/dead/redrive", {**asked, "dry_run": False, "token": dry["token"]})).body
    assert done == {"dry_run": False, "matched": 1, "done": 1, "failed": []}
    assert (await client.get("/api/dead?queue=mail")).body["found"] == 1
    refused = await client.post("/api/dead/purge", {})
    assert refused.status == 400
    assert "filter has no condition" in refused.body["detail"]
    done = (await client.post("/api/dead/purge", {"all": True, "dry_run": False, "token": None})).body
    assert done["done"] == 2
    assert (await client.get("/api/dead")).body["found"] == 0
    assert second != third


@async_test
async def test_failing_jobs_are_tried_at_once_buried_and_cancelled(admin: Admin) -> None:
    client = admin()
    put_off = await fail(client, "mail", "DELAY", 600, "REASON", "no such host")
    act = {"filter": {"ids": [put_off]}, "dry_run": False, "token": None}
    assert (await client.post("/api/failing/retry", act)).body["done"] == 1
    assert "waits in its queue" in words(await page(client, "/failing"))
    # It waits already: there is nothing to hurry.
    assert (await client.post("/api/failing/retry", act)).body["matched"] == 0
    await fail(client, "both", "DELAY", 600, "REASON", "no such host")
    dry = (await client.post("/api/failing/retry", {"all": True})).body
    assert (dry["matched"], dry["incomplete"]) == (
        1,
        ["Left out, because they wait in their queue or are being tried: 1."],
    )
    assert (await client.post("/api/failing/bury", {**act, "why": "hopeless"})).body["done"] == 1
    assert "hopeless" in words(await page(client, "/dead"))
    taken = await fail(client, "post", "REASON", "timeout")
    await run(client.running, "GETJOB", "FROM", "post")
    act["filter"] = {"queue": "post"}
    assert (await client.post("/api/failing/bury", act)).body["matched"] == 0, "a consumer has it"
    assert "being tried" in words(await page(client, "/failing"))
    assert (await client.post("/api/failing/cancel", act)).body["done"] == 1
    assert taken in json.dumps((await client.post("/api/failing/cancel", {"all": True})).body)


@async_test
async def test_the_lists_are_live(admin: Admin) -> None:
    client = admin()
    first = await fail(client, "mail", "DELAY", 600, "REASON", "no such host")
    html = await page(client, "/failing?queue=ma*&reason=host")
    assert 'data-events="page=failing&amp;queue=ma%2A&amp;q=host&amp;since=&amp;n=1"' in html
    assert f'<tr data-key="{first}">' in html
    watching = client.begin("GET", "/api/events?page=failing&queue=ma*&q=host&since=&n=1")
    await wait_until(lambda: first.encode() in watching.received)
    second = await fail(client, "mail", "DELAY", 600, "REASON", "another host")
    other = await fail(client, "post", "DELAY", 600, "REASON", "another host")
    await wait_until(lambda: second.encode() in watching.received)
    assert other.encode() not in watching.received
    assert b"2, all nodes" in watching.received
    watching.hang_up()
    watching = client.begin("GET", "/api/events?page=dead")
    await wait_until(lambda: b"No dead jobs." in watching.received)
    watching.hang_up()
    assert (await client.get("/api/events?page=dead&since=noon")).status == 400


@async_test
async def test_the_node_that_knows_most_of_a_job_is_asked_and_one_that_is_away_is_told(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = admin()
    away = b"b" * 40
    client.running.daemon.node.greeted(Greeting(away, "10.0.0.2", 7711, 17711, 0, True), "10.0.0.2", "10.0.0.1")
    here, there = [await fail(client, "mail", "DELAY", 600) for _ in range(2)]
    find = FailedJobs.find

    async def find_there(jobs: FailedJobs, wanted: FailedQuery) -> FoundJobs:
        found = await find(jobs, wanted)
        moved = [attrs.evolve(job, node_id=away) if job.id == there.encode() else job for job in found.jobs]
        return attrs.evolve(found, jobs=moved)

    monkeypatch.setattr(FailedJobs, "find", find_there)
    asked: dict[str, Any] = {"filter": {"queue": "mail"}}
    for word in ("retry", "bury"):
        dry = (await client.post(f"/api/failing/{word}", asked)).body
        assert dry["matched"] == 2
        answer = await client.post(f"/api/failing/{word}", {**asked, "dry_run": False, "token": dry["token"]})
        assert (answer.body["matched"], answer.body["done"]) == (2, 1)
        detail = f"node {away.decode()} has no link to this node: try again when it is back"
        assert answer.body["failed"] == [{"id": there, "code": "HTTP", "detail": detail}]
    assert (await client.get(f"/api/show/{here}")).body["state"] == "dead"
    assert (await client.get(f"/api/show/{there}")).body["phase"] == "delayed"


@async_test
async def test_a_dry_run_is_of_its_action_and_filter(admin: Admin) -> None:
    client = admin()
    await fail(client, "mail", "DEAD")
    token = (await client.post("/api/dead/redrive", {"filter": {"queue": "mail"}})).body["token"]
    for path, meant in (("/api/dead/purge", {"queue": "mail"}), ("/api/dead/redrive", {"queue": "post"})):
        answer = await client.post(path, {"filter": meant, "dry_run": False, "token": token})
        assert answer.status == 409, path
    for wrong in ({"queue": 1.5}, {"reason": 1}, {"ids": []}, {"state": ["dead"]}):
        assert (await client.post("/api/dead/redrive", {"filter": wrong})).status == 400, wrong


@async_test
async def test_dead_jobs_are_exported_as_lines_with_bodies_for_those_who_may_see_them(
    admin: Admin, tmp_path: Path
) -> None:
    client = with_tokens(admin, tmp_path)
    ids = [await fail(client, queue, "DEAD", "REASON", "poison") for queue in ("mail", "post")]
    answer = await client.get("/api/dead/export?queue=mail", headers={"Authorization": f"Bearer {VIEWER}"})
    assert answer.headers["content-disposition"] == 'attachment; filename="dead-jobs.jsonl"'
    [line] = [json.loads(text) for text in answer.body.splitlines()]
    assert (line["id"], line["body_withheld"]) == (ids[0], True)
    assert "body" not in line
    said = words(await page(client, "/dead", VIEWER))
    assert "without their bodies" in said
    assert ways(await page(client, "/dead", VIEWER)) == set()
    assert "bulk-purge" in ways(await page(client, "/dead", OPERATOR))


@async_test
async def test_an_export_holds_the_bodies_of_all_dead_jobs(admin: Admin) -> None:
    client = admin()
    ids = {await fail(client, queue, "DEAD") for queue in ("mail", "post")}
    answer = await client.get("/api/dead/export")
    lines = [json.loads(text) for text in answer.body.splitlines()]
    assert {line["id"] for line in lines} == ids
    assert {line["body"] for line in lines} == {"to: mail", "to: post"}


@async_test
async def test_a_job_tells_its_attempts_once(admin: Admin) -> None:
    client = admin()
    job_id = await add(client, "mail", "x", "RETRY", 60)
    path = f"/jobs/{job_id}"
    assert "No attempts yet." in words(await page(client, path))
    await run(client.running, "GETJOB", "FROM", "mail")
    assert "in flight" in words((await page(client, path)).partition('id="tries"')[2])
    await run(client.running, "NACK", job_id)
    said = words(await page(client, path))
    assert "1 earlier attempt is counted and not listed" in said
    for number in range(7):
        await run(client.running, "GETJOB", "FROM", "mail")
        await run(client.running, "NACK", job_id, "REASON", f"failure-{number}")
    html = await page(client, path)
    said = words(html)
    assert [said.count(f"failure-{number}") for number in range(7)] == [0, 0, 1, 1, 1, 1, 1]
    assert said.index("failure-6") < said.index("failure-2")
    assert "3 earlier attempts are counted and not listed: nodes keep the last 5 failures of a job" in said
    assert unlabeled(html) == []


@async_test
async def test_the_figures_of_a_queue_lead_to_its_failing_and_dead_jobs(admin: Admin) -> None:
    client = admin()
    await fail(client, "a/b", "DEAD")
    await fail(client, "a/b", "REASON", "timeout")
    for path in ("/queues/a%2Fb", "/queues"):
        html = await page(client, path)
        assert 'href="/failing?queue=a%2Fb">1</a>' in html, path
        assert 'href="/dead?queue=a%2Fb">1</a>' in html, path
    assert 'href="/dead?queue=a%2Fb">Dead jobs</a>' in await page(client, "/queues/a%2Fb")


#: What is typed into the form of a policy, by field of QPOLICY.
TYPED: dict[str, dict[str, Any]] = {
    "ttl": {"ttl": 600}, "retry": {"retry": 60}, "replicate": {"replicate": 1}, "maxlen": {"maxlen": 9},
    "maxtries": {"max_tries": 3}, "backoff": {"backoff": {"first": 1, "most": 9}}, "keepdead": {"keep_dead": 60},
    "result": {"result": 60}, "fair": {"fair": True}, "inflight": {"in_flight": 5},
    "groupinflight": {"group_in_flight": 2}, "rate": {"rate": {"count": 10, "per": 1}},
    "grouprate": {"group_rate": {"count": 5, "per": 1}}, "partition": {"partition": "available"},
    "idle": {"idle": 600},
}  # fmt: skip


@async_test
async def test_the_form_of_a_policy_sets_and_unsets_each_field(admin: Admin) -> None:
    client = admin()
    assert {name.encode() for name in TYPED} == set(QUEUE_FIELD_NAMES.values()) - {b"pause"}
    html = await page(client, "/queues/mail?state=any", status=404)
    assert ways(html) == {"add", "policy-set"}
    setting, unsetting = actions.policy(b"mail")
    names = {one.name.partition(".")[0] for one in setting.inputs}
    for field, typed in TYPED.items():
        assert set(typed) <= names, field
        assert (await client.post(setting.path, {**setting.body, **typed})).status == 200, field
        assert f'<th scope="row">{field}</th>' in await page(client, "/queues/mail"), field
        assert (await client.post(unsetting.path, {**unsetting.body, "unset": [field]})).status == 200, field
        await page(client, "/queues/mail", status=404)
