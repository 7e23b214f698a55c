"""Actions on every job that fits a filter."""

from collections.abc import Callable
from typing import Any

import pytest
from pytest_twisted import ensureDeferred
from twisted.internet.defer import Deferred

from disqued.core.model.job import KIND_LOG, QUEUED, RETRY_NEVER_MS
from disqued.core.work.replication import Batch
from disqued.errors import CommandError, NotReplicated
from disqued.web.api import bulk
from disqued.web.gateway import BODY_SEARCHED, SLICE_ROWS
from disqued.web.turns import next_turn
from tests.adapters.http import AdminClient
from tests.adapters.inprocess import wait_until
from tests.adapters.test_http_api import blind

Admin = Callable[..., AdminClient]


async def add(client: AdminClient, queue: str, body: str = "hi", **options: Any) -> str:
    """Add a job; returns its id."""
    words = [word for name, value in options.items() for word in (name.encode(), str(value).encode())]
    given = [b"ADDJOB", queue.encode(), body.encode(), b"0", *words]
    added: bytes = await client.running.daemon.clients.call(given, address="test")
    return added.decode()


async def fill(client: AdminClient) -> dict[str, list[str]]:
    """Two queues: in one jobs that wait, and jobs that are delayed; in the other one alone."""
    return {
        "waiting": [await add(client, "mail", f"to: {number}") for number in range(10)],
        "delayed": [await add(client, "mail", f"to: {number}", DELAY=100) for number in range(6)],
        "other": [await add(client, "other", "to: 3")],
    }


async def run(client: AdminClient, action: str, wanted: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Ask for an action that is allowed; without a dry run, unless a token is given."""
    if more.get("dry_run") is False:
        more = {"token": None, **more}
    status, _, answer = await client.post(f"/api/bulk/{action}", {"filter": wanted, **more})
    assert status == 200, answer
    return dict(answer)


async def lengths(client: AdminClient) -> dict[str, int]:
    """Jobs that wait, by queue."""
    _, _, page = await client.get("/api/scan/queues?reply=all")
    return {queue["name"]: queue["len"] for queue in page["items"]}


def jobs_of(client: AdminClient, queue: bytes) -> list[Any]:
    """Every job of a queue, whatever its state."""
    return [job for job in client.running.daemon.node.state.jobs if job.queue == queue]


# The dry run.


@ensureDeferred
async def test_unless_told_otherwise_nothing_is_changed(admin: Admin) -> None:
    client = admin()
    await fill(client)
    for action, more in [("delete", {}), ("ack", {}), ("move", {"to": "post"})]:
        answer = await run(client, action, {"queue": "mail"}, **more)
        assert (answer["dry_run"], answer["matched"], len(answer["sample"])) == (True, 16, 16)
    assert await lengths(client) == {"mail": 10, "other": 1}


@pytest.mark.parametrize(
    ("wanted", "matched"),
    [
        ({"queue": "mail"}, 16), ({"state": ["active"]}, 6), ({"state": ["queued"]}, 11), ({"state": ["acked"]}, 0),
        ({"state": ["ready"]}, 11), ({"state": ["delayed"]}, 6), ({"state": ["in-flight", "elsewhere", "done"]}, 0),
        ({"state": ["active", "queued"], "queue": "other"}, 1), ({"older_than_s": 100}, 0), ({"newer_than_s": 100}, 17),
        ({"body_contains": "3"}, 3), ({"body_contains": "3", "queue": "mail"}, 2), ({"body_contains": ""}, 17),
        ({"queue": "mail", "limit": 5}, 5), ({"queue": "none"}, 0),
    ],
)  # fmt: skip
@ensureDeferred
async def test_every_condition_of_a_filter_holds(admin: Admin, wanted: dict[str, Any], matched: int) -> None:
    client = admin()
    await fill(client)
    assert (await run(client, "ack", wanted))["matched"] == matched


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, '"all": true'), ({"filter": {"limit": 5}}, '"all": true'), ({"filter": {"colour": 1}}, "'colour'"),
        ({"filter": {"state": "active"}}, "state: allowed"), ({"filter": {"state": []}}, "state: allowed"),
        ({"filter": {"older_than_s": -1}}, "older_than_s"), ({"filter": {"limit": 0, "queue": "q"}}, "limit is 0"),
        ({"filter": {"queue": "q"}, "dry_run": "no"}, "dry_run"), ({"filter": []}, "the filter is a list"),
        ({"filter": {"queue": "q"}, "token": "?"}, "token"), ({"filter": {"queue": "q"}, "to": "x"}, "'to'"),
    ],
)  # fmt: skip
@ensureDeferred
async def test_a_wrong_request_is_refused_with_what_is_allowed(admin: Admin, body: Any, told: str) -> None:
    status, _, problem = await admin().post("/api/bulk/delete", body)
    assert status == 400
    assert told in problem["detail"]


@ensureDeferred
async def test_every_job_is_meant_only_when_it_is_said(admin: Admin) -> None:
    client = admin()
    await fill(client)
    answer = await run(client, "delete", {}, all=True, dry_run=False)
    assert answer == {"dry_run": False, "matched": 17, "done": 17, "failed": []}
    assert len(client.running.daemon.node.state.jobs) == 0


@ensureDeferred
async def test_who_may_not_see_bodies_may_not_search_them(admin: Admin) -> None:
    client = blind(admin())
    status, _, problem = await client.post("/api/bulk/ack", {"filter": {"body_contains": "a"}})
    assert (status, problem["code"]) == (403, "HTTP")


# The act.


@ensureDeferred
async def test_requeue_delete_and_ack_act_on_what_fits_alone(admin: Admin) -> None:
    client = admin()
    ids = await fill(client)
    requeued = await run(client, "requeue", {"queue": "mail", "state": ["delayed"], "limit": 4}, dry_run=False)
    assert requeued == {"dry_run": False, "matched": 4, "done": 4, "failed": []}
    assert await lengths(client) == {"mail": 14, "other": 1}
    deleted = await run(client, "delete", {"queue": "mail", "state": ["active"]}, dry_run=False)
    assert deleted["done"] == 2
    acked = await run(client, "ack", {"queue": "mail"}, dry_run=False)
    assert acked["done"] == 14
    assert {job.id.decode() for job in client.running.daemon.node.state.jobs} == set(ids["other"])


async def commanded(client: AdminClient, *words: str) -> Any:
    """What a command is answered."""
    return await client.running.daemon.clients.call([word.encode() for word in words], address="test")


@pytest.mark.parametrize("state", [{}, {"state": ["active"]}, {"state": ["active", "queued"]}])
@ensureDeferred
async def test_a_requeue_leaves_alone_delays_that_nobody_named(admin: Admin, state: dict[str, Any]) -> None:
    client = admin()
    ids = await fill(client)
    await commanded(client, "GETJOB", "COUNT", "3", "FROM", "mail")
    await commanded(client, "DEQUEUE", ids["waiting"][9])
    waiting = 0 if state == {"state": ["active"]} else 6
    wanted = {"queue": "mail", **state}
    assert (await run(client, "requeue", wanted))["matched"] == waiting + 4
    assert (await run(client, "requeue", wanted, dry_run=False))["done"] == 4
    assert await lengths(client) == {"mail": 10, "other": 1}
    assert (await run(client, "ack", {"queue": "mail", "state": ["delayed"]}))["matched"] == 6


@ensureDeferred
async def test_a_requeue_leaves_alone_what_another_node_holds_too(admin: Admin) -> None:
    client = admin()
    ids = await fill(client)
    state = client.running.daemon.node.state
    mine, copy, had = (state.jobs.get(job_id.encode()) for job_id in ids["waiting"][7:])
    assert mine is not None
    assert copy is not None
    assert had is not None
    for job in (mine, copy, had):
        await commanded(client, "DEQUEUE", job.id.decode())
    await commanded(client, "WORKING", had.id.decode())
    copy.holders = had.holders = frozenset((state.node_id, b"f" * 40))
    assert (await run(client, "requeue", {"queue": "mail", "state": ["active"]}, dry_run=False))["done"] == 2
    # With a consumer of this node, and in nobody's hands, are both queued; the third one another node may have.
    assert [job.id.decode() for job in jobs_of(client, b"mail") if job is copy] == [ids["waiting"][8]]
    assert await lengths(client) == {"mail": 9, "other": 1}
    status, _, problem = await client.post("/api/bulk/requeue", {"filter": {"state": ["delayed", "elsewhere"]}})
    assert status == 400
    assert "requeue does not take elsewhere: another node may have such a job" in problem["detail"]


@ensureDeferred
async def test_a_token_ties_the_act_to_its_dry_run(admin: Admin) -> None:
    client = admin()
    await fill(client)
    token = (await run(client, "ack", {"queue": "mail"}))["token"]
    late = await add(client, "mail", "late")
    for action, wanted in [("delete", {"queue": "mail"}), ("ack", {"queue": "other"})]:
        other = await client.post(f"/api/bulk/{action}", {"filter": wanted, "token": token, "dry_run": False})
        assert other.status == 409
    assert (await run(client, "ack", {"queue": "mail"}, token=token, dry_run=False))["done"] == 16
    assert [job.id.decode() for job in jobs_of(client, b"mail")] == [late]


@ensureDeferred
async def test_a_command_that_fails_is_told_for_each_of_its_jobs(admin: Admin) -> None:
    client = admin()
    ids = await fill(client)
    client.running.daemon.traffic.paused = True
    answer = await run(client, "ack", {"queue": "other"}, dry_run=False)
    client.running.daemon.traffic.paused = False
    assert (answer["matched"], answer["done"]) == (1, 0)
    assert [(failure["id"], failure["code"]) for failure in answer["failed"]] == [(ids["other"][0], "TRYAGAIN")]


# Bounded turns.


@ensureDeferred
async def test_no_turn_looks_at_more_jobs_than_a_slice(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    client = admin()
    for number in range(3 * SLICE_ROWS):
        await add(client, f"q{number % 2}")
    rows, calls = [0], [0]
    turns: list[tuple[int, int]] = []
    fits, call = bulk.JobFilter.fits, client.running.daemon.clients.call

    def counted(self: bulk.JobFilter, *arguments: Any) -> bool:
        rows[0] += 1
        return fits(self, *arguments)

    def called(words: Any, **more: Any) -> "Deferred[Any]":
        calls[0] = max(calls[0], len(words) - 1)
        return call(words, **more)

    def turn(reactor: Any) -> "Deferred[None]":
        turns.append((rows[0], calls[0]))
        rows[0] = calls[0] = 0
        return next_turn(reactor)

    monkeypatch.setattr(bulk.JobFilter, "fits", counted)
    monkeypatch.setattr(bulk, "next_turn", turn)
    monkeypatch.setattr(client.running.daemon.clients, "call", called)
    assert (await run(client, "ack", {"queue": "q0"}, dry_run=False))["done"] == 3 * SLICE_ROWS // 2
    assert sum(looked_at for looked_at, _ in turns) == 3 * SLICE_ROWS
    assert max(looked_at for looked_at, _ in turns) == SLICE_ROWS
    assert max(ids for _, ids in turns) == bulk.IDS_AT_ONCE


@ensureDeferred
async def test_a_turn_ends_when_enough_bodies_were_searched(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    client = admin()
    monkeypatch.setattr(bulk, "SLICE_BYTES", 2_000)
    for _ in range(8):
        await add(client, "large", "x" * 1_000)
    turns = [0]

    def turn(reactor: Any) -> "Deferred[None]":
        turns[0] += 1
        return next_turn(reactor)

    monkeypatch.setattr(bulk, "next_turn", turn)
    assert (await run(client, "ack", {"body_contains": "y"}))["matched"] == 0
    assert turns[0] >= 4


# Moving.


@ensureDeferred
async def test_a_move_keeps_what_a_job_was_given(admin: Admin) -> None:
    client = admin()
    await add(client, "mail", "now", RETRY="77.25", TTL=1_000, BACKOFF="0.5", KEEPDEAD="1.5")
    await add(client, "mail", "later", RETRY=78, TTL=2_000, DELAY=500)
    before = {job.body: (job.expires_at, job.requeue_at) for job in jobs_of(client, b"mail")}
    answer = await run(client, "move", {"queue": "mail"}, to="post", dry_run=False)
    assert answer == {"dry_run": False, "matched": 2, "done": 2, "failed": []}
    assert not jobs_of(client, b"mail")
    moved = {job.body: job for job in jobs_of(client, b"post")}
    now = client.running.daemon.node.clock.now()
    assert {body: job.options.retry_ms for body, job in moved.items()} == {b"now": 77_250, b"later": 78_000}
    terms = moved[b"now"].options.terms
    assert (terms.backoff_ms, terms.keep_dead_ms) == (500, 1_500)
    # What was left when the copy was described goes with it, to the millisecond.
    late_ms = moved[b"later"].expires_at - before[b"later"][0]
    assert moved[b"later"].requeue_at - before[b"later"][1] == late_ms >= 0
    assert 990_000 < moved[b"now"].expires_at - now <= 1_001_000
    assert 1_990_000 < moved[b"later"].expires_at - now <= 2_001_000
    assert 490_000 < moved[b"later"].requeue_at - now <= 501_000
    assert await lengths(client) == {"post": 1, "mail": 0}


@ensureDeferred
async def test_a_job_whose_copy_is_refused_stays(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    client = admin()
    ids = [await add(client, "mail", f"to: {number}") for number in range(5)]
    call = client.running.daemon.clients.call
    order: list[bytes] = []

    def failing(words: Any, **more: Any) -> "Deferred[Any]":
        order.append(words[0])
        if words[0] == b"ADDJOB" and words[2] in (b"to: 1", b"to: 3"):
            refused: Deferred[Any] = Deferred()
            client.running.daemon.reactor.callLater(0.01, refused.errback, NotReplicated())
            return refused
        return call(words, **more)

    monkeypatch.setattr(client.running.daemon.clients, "call", failing)
    answer = await run(client, "move", {"queue": "mail"}, to="post", dry_run=False)
    assert (answer["matched"], answer["done"]) == (5, 3)
    assert {(failure["id"], failure["code"]) for failure in answer["failed"]} == {
        (ids[1], "NOREPL"), (ids[3], "NOREPL"),
    }  # fmt: skip
    assert {job.id.decode() for job in jobs_of(client, b"mail")} == {ids[1], ids[3]}
    assert order.index(b"ACKJOB") >= 3


@ensureDeferred
async def test_until_its_copy_is_safe_a_job_is_not_acknowledged(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    client = admin()
    job_id = await add(client, "mail")
    call = client.running.daemon.clients.call
    copying: list[Deferred[Any]] = []

    def slow(words: Any, **more: Any) -> "Deferred[Any]":
        if words[0] == b"ADDJOB":
            copying.append(Deferred())
            return copying[-1]
        return call(words, **more)

    monkeypatch.setattr(client.running.daemon.clients, "call", slow)
    body = b'{"filter": {"queue": "mail"}, "to": "post", "dry_run": false, "token": null}'
    moving = client.begin("POST", "/api/bulk/move", body=body, headers={"Content-Type": "application/json"})
    for _ in range(20):
        await next_turn(client.running.daemon.turns)
    assert (len(copying), moving.ended) == (1, False)
    assert [job.id.decode() for job in jobs_of(client, b"mail")] == [job_id]
    copying[0].errback(CommandError("no"))
    assert (await moving.answer()).body["failed"] == [{"id": job_id, "code": "ERR", "detail": "no"}]
    assert [job.id.decode() for job in jobs_of(client, b"mail")] == [job_id]


@ensureDeferred
async def test_no_consumer_receives_a_job_while_it_is_moved(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    client = admin()
    await add(client, "mail")
    call = client.running.daemon.clients.call
    asked: list[Deferred[Any]] = []

    def greedy(words: Any, **more: Any) -> "Deferred[Any]":
        if words[0] == b"ADDJOB":
            asked.append(call([b"GETJOB", b"NOHANG", b"FROM", b"mail"], address="consumer"))
        return call(words, **more)

    monkeypatch.setattr(client.running.daemon.clients, "call", greedy)
    answer = await run(client, "move", {"queue": "mail"}, to="post", dry_run=False)
    assert answer == {"dry_run": False, "matched": 1, "done": 1, "failed": []}
    assert [await each for each in asked] == [None]


@ensureDeferred
async def test_a_job_with_a_consumer_stays_with_it_when_its_copy_is_refused(admin: Admin) -> None:
    client = admin()
    call = client.running.daemon.clients.call
    await add(client, "mail")
    waiting = await add(client, "mail", "waits")
    [[_, taken, _]] = await call([b"GETJOB", b"FROM", b"mail"], address="consumer")
    await call([b"PAUSE", b"post", b"in"], address="test")
    answer = await run(client, "move", {"queue": "mail"}, to="post", dry_run=False)
    assert {(failure["id"], failure["code"]) for failure in answer["failed"]} == {
        (taken.decode(), "PAUSED"), (waiting, "PAUSED"),
    }  # fmt: skip
    assert [row[1].decode() for row in await call([b"QPEEK", b"mail", b"10"], address="test")] == [waiting]


@ensureDeferred
async def test_a_job_that_was_moved_has_a_key_and_can_be_moved_again(admin: Admin) -> None:
    client = admin()
    job_id = await add(client, "mail")
    for queue, to in (("mail", "post"), ("post", "mail")):
        assert (await run(client, "move", {"queue": queue}, to=to, dry_run=False))["done"] == 1
    [job] = jobs_of(client, b"mail")
    assert (job.id != job_id.encode(), job.alias[1:]) == (True, b"move/" + job_id.encode())


@ensureDeferred
async def test_who_hangs_up_leaves_the_jobs_where_they_were(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    client = admin()
    await add(client, "mail")
    call = client.running.daemon.clients.call
    copying: list[Deferred[Any]] = []

    def slow(words: Any, **more: Any) -> "Deferred[Any]":
        if words[0] == b"ADDJOB":
            copying.append(Deferred())
            return copying[-1]
        return call(words, **more)

    monkeypatch.setattr(client.running.daemon.clients, "call", slow)
    body = b'{"filter": {"queue": "mail"}, "to": "post", "dry_run": false, "token": null}'
    moving = client.begin("POST", "/api/bulk/move", body=body, headers={"Content-Type": "application/json"})
    await wait_until(lambda: bool(copying))
    assert (await lengths(client))["mail"] == 0
    moving.hang_up()
    await wait_until(lambda: len(client.running.daemon.node.state.queues.by_name[b"mail"].units) == 1)


@ensureDeferred
async def test_what_must_not_come_twice_is_not_moved(admin: Admin) -> None:
    client = admin()
    once = await add(client, "mail", RETRY=0)
    await add(client, "post")
    answer = await run(client, "move", {}, all=True, to="post", dry_run=False)
    assert (answer["matched"], answer["done"]) == (1, 0)
    (failure,) = answer["failed"]
    assert failure["id"] == once
    assert "at most once" in failure["detail"]
    assert await lengths(client) == {"mail": 1, "post": 1}


@ensureDeferred
async def test_what_was_moved_is_not_moved_again(admin: Admin) -> None:
    client = admin()
    for number in range(300):
        await add(client, f"q{number % 3}")
    answer = await run(client, "move", {}, all=True, to="post", dry_run=False)
    assert answer == {"dry_run": False, "matched": 300, "done": 300, "failed": []}
    assert (await lengths(client))["post"] == 300


@ensureDeferred
async def test_a_filter_may_name_the_jobs(admin: Admin) -> None:
    client = admin()
    jobs = await fill(client)
    named = [jobs["waiting"][3], jobs["waiting"][3], jobs["other"][0], "DI" + "0" * 44 + "SQ"]
    assert (await run(client, "delete", {"ids": named}))["matched"] == 2
    assert (await run(client, "delete", {"ids": named, "queue": "mail"}))["matched"] == 1
    assert (await run(client, "move", {"ids": named}, dry_run=False, to="post"))["done"] == 2
    assert await lengths(client) == {"mail": 9, "other": 0, "post": 2}


@pytest.mark.parametrize("ids", [[], "x", ["x"], [1], [["x"]], None])
@ensureDeferred
async def test_ids_that_are_none_are_refused(admin: Admin, ids: Any) -> None:
    status, _, answer = await admin().post("/api/bulk/delete", {"filter": {"ids": ids}})
    assert status == 400
    assert answer["detail"] == "ids: allowed are lists of 1 to 10000 job ids"


@ensureDeferred
async def test_the_act_needs_a_dry_run_or_says_aloud_that_it_does_without(admin: Admin) -> None:
    client = admin()
    await fill(client)
    status, _, answer = await client.post("/api/bulk/delete", {"filter": {"queue": "mail"}, "dry_run": False})
    assert (status, "the act needs the token" in answer["detail"]) == (400, True)
    assert (await lengths(client))["mail"] == 10
    assert (await run(client, "delete", {"queue": "mail"}, dry_run=False))["done"] == 16


@ensureDeferred
async def test_a_text_is_looked_for_in_the_beginning_of_a_body_as_on_the_page(admin: Admin) -> None:
    client = admin()
    await add(client, "q", "x" * BODY_SEARCHED + "needle")
    found = await add(client, "q", "x" * 100 + "needle")
    answer = await run(client, "ack", {"queue": "q", "body_contains": "needle"})
    assert answer["sample"] == [found]


@ensureDeferred
async def test_an_act_does_no_more_than_its_dry_run_counted(admin: Admin) -> None:
    client = admin()
    node = client.running.daemon.node
    for number in range(5):
        await add(client, "dry", f"{number}")
    assert len(node.delivery.fetch([node.state.queues.by_name[b"dry"]], 4)) == 4
    wanted = {"queue": "dry", "state": ["queued"]}
    dry = await run(client, "delete", wanted)
    assert dry["matched"] == 1
    # Their consumers give them back.
    for job in list(node.state.jobs):
        node.requeueing.enqueue(job, nack=True)
    done = await run(client, "delete", wanted, token=dry["token"], dry_run=False)
    assert (done["matched"], done["done"]) == (1, 1)
    assert len(node.state.jobs) == 4


@ensureDeferred
async def test_a_refused_job_has_had_no_try(admin: Admin) -> None:
    client = admin()
    job_id = await add(client, "mail", MAXTRIES=1)
    await client.running.daemon.clients.call([b"PAUSE", b"post", b"in"], address="test")
    for _ in range(3):
        answer = await run(client, "move", {"queue": "mail"}, to="post", dry_run=False)
        assert (answer["done"], [failed["id"] for failed in answer["failed"]]) == (0, [job_id])
    [job] = jobs_of(client, b"mail")
    assert (job.state, job.nacks, job.additional_deliveries) == (QUEUED, 0, 0)


@ensureDeferred
@pytest.mark.parametrize("options", [{}, {"DELAY": 50}])
async def test_the_producer_of_a_moved_job_receives_cancelled(admin: Admin, options: dict[str, int]) -> None:
    client = admin()
    job_id = await add(client, "mail", RESULT=60, **options)
    assert (await run(client, "move", {"queue": "mail"}, to="post", dry_run=False))["done"] == 1
    words = [b"WAITJOB", b"5000", job_id.encode()]
    [[_, state, result, *_]] = await client.running.daemon.clients.call(words, address="test")
    assert (state, result) == (b"cancelled", None)
    [copy] = jobs_of(client, b"post")
    assert copy.options.terms.keep_result_ms == 60_000


# Jobs that are more than ADDJOB can say.


@ensureDeferred
async def test_a_job_with_a_name_stays_where_it_has_that_name(admin: Admin) -> None:
    client = admin()
    words = [b"WQ.ENQUEUE", b"mail", b"UNIQUE", b"TASKS", b"to: ann"]
    [task] = await client.running.daemon.clients.call(words, address="test")
    plain = await add(client, "mail", "to: bob", RETRY=60)
    answer = await run(client, "move", {"queue": "mail"}, to="post", dry_run=False)
    assert (answer["matched"], answer["done"]) == (2, 1)
    [failed] = answer["failed"]
    assert (failed["id"], "a name in its queue" in failed["detail"]) == (task.decode(), True)
    assert await lengths(client) == {"mail": 1, "post": 1}
    assert plain not in [job.id.decode() for job in jobs_of(client, b"post")]


async def add_with(client: AdminClient, **options: Any) -> str:
    """Add a job with options that ADDJOB has no word for; returns its id."""
    node = client.running.daemon.node
    wishes = {"ttl_ms": 60_000, "retry_ms": 10_000, "delay_ms": 0, "replicate": 1, **options}
    node.begin()
    batch = Batch("test")
    [job] = node.additions.add_together(
        batch, b"mail", [b"x"], node.state.shared.options(**wishes), lambda _: b"", maxlen=0, timeout_ms=0,
        asynchronous=False, by_default=False,
    )  # fmt: skip
    return job.id.decode()


@ensureDeferred
async def test_a_job_that_no_timer_queues_again_stays(admin: Admin) -> None:
    client = admin()
    job_id = await add_with(client, retry_ms=RETRY_NEVER_MS)
    answer = await run(client, "move", {"queue": "mail"}, to="post", dry_run=False)
    assert (answer["done"], [failed["id"] for failed in answer["failed"]]) == (0, [job_id])
    assert "no timer queues it again" in answer["failed"][0]["detail"]
    assert (await run(client, "ack", {"queue": "mail"}, dry_run=False))["done"] == 1


@ensureDeferred
async def test_a_job_that_is_cancelled_while_a_consumer_has_it_stays(admin: Admin) -> None:
    client = admin()
    job_id = await add_with(client)
    node = client.running.daemon.node
    node.delivery.fetch([node.state.queues.by_name[b"mail"]], 1)
    job = node.state.jobs.get(job_id.encode())
    node.fates.change(job, job.options.fate._replace(is_cancelled=True))
    answer = await run(client, "move", {"queue": "mail", "state": ["active"]}, to="post", dry_run=False)
    assert (answer["done"], [failed["id"] for failed in answer["failed"]]) == (0, [job_id])
    assert "it is cancelled" in answer["failed"][0]["detail"]


@pytest.mark.parametrize(("action", "more"), [("ack", {}), ("requeue", {}), ("move", {"to": "post"})])
@ensureDeferred
async def test_an_event_of_a_log_is_left_to_its_groups(admin: Admin, action: str, more: dict[str, Any]) -> None:
    client = admin()
    event_id = await add_with(client, kind=KIND_LOG)
    answer = await run(client, action, {"queue": "mail"}, dry_run=False, **more)
    assert (answer["done"], [failed["id"] for failed in answer["failed"]]) == (0, [event_id])
    assert "each group of consumers" in answer["failed"][0]["detail"]


# Purging.


@ensureDeferred
async def test_a_purge_counts_first_and_ends_every_job_of_a_queue(admin: Admin) -> None:
    client = admin()
    await fill(client)
    filter_ = {"queue": "mail"}
    dry = await run(client, "purge", filter_)
    assert (dry["dry_run"], dry["matched"], dry["sample"]) == (True, 16, [])
    assert len(jobs_of(client, b"mail")) == 16
    assert (await run(client, "purge", {**filter_, "state": ["active"]}))["matched"] == 6
    for wrong in ({"queue": "other"}, {**filter_, "state": ["queued"]}):
        status, _, _ = await client.post("/api/bulk/purge", {"filter": wrong, "dry_run": False, "token": dry["token"]})
        assert status == 409
    done = await run(client, "purge", filter_, dry_run=False, token=dry["token"])
    assert done == {"dry_run": False, "matched": 16, "done": 16, "failed": []}
    assert await lengths(client) == {"mail": 0, "other": 1}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "the field queue of the filter is needed"),
        (
            {"filter": {"queue": "mail", "state": ["acked"]}},
            "state: allowed are lists of wait-repl, active, queued, dead",
        ),
        ({"filter": {"queue": "mail", "state": []}}, "state: allowed are lists of"),
        ({"filter": {"queue": "mail"}, "dry_run": False}, "the act needs the token"),
        ({"filter": {"queue": "mail", "body_contains": "x"}}, "body_contains"),
    ],
)
@ensureDeferred
async def test_a_purge_that_is_not_clear_is_refused(admin: Admin, body: dict[str, Any], text: str) -> None:
    status, _, problem = await admin().post("/api/bulk/purge", body)
    assert status == 400
    assert text in problem["detail"]


async def bury(client: AdminClient, queue: str, count: int) -> list[str]:
    """Add jobs that are dead."""
    call = client.running.daemon.clients.call
    ids = [await add(client, queue) for _ in range(count)]
    await call([b"GETJOB", b"COUNT", b"%d" % count, b"FROM", queue.encode()], address="test")
    await call([b"NACK", *(job_id.encode() for job_id in ids), b"DEAD", b"REASON", b"no such host"], address="test")
    return ids


@ensureDeferred
async def test_a_purge_ends_dead_jobs_alone_or_with_the_others(admin: Admin) -> None:
    client = admin()
    await bury(client, "mail", 3)
    await add(client, "mail")
    for filter_, count in (({"queue": "mail", "state": ["dead"]}, 3), ({"queue": "mail"}, 4)):
        assert (await run(client, "purge", filter_))["matched"] == count
    assert (await run(client, "purge", filter_, dry_run=False))["done"] == 4
    assert jobs_of(client, b"mail") == []


@ensureDeferred
async def test_a_redrive_counts_the_dead_jobs_first_and_queues_no_more_than_those(admin: Admin) -> None:
    client = admin()
    ids = await bury(client, "mail", 3)
    await add(client, "mail")
    counted = await run(client, "redrive", {"queue": "mail"})
    assert (counted["matched"], sorted(counted["sample"])) == (3, sorted(ids))
    assert await lengths(client) == {"mail": 1}
    later = await bury(client, "post", 1)
    done = await run(client, "redrive", {"queue": "mail"}, dry_run=False, token=counted["token"])
    assert done == {"dry_run": False, "matched": 3, "done": 3, "failed": []}
    assert await lengths(client) == {"mail": 4, "post": 0}
    assert (await run(client, "redrive", {"ids": later}, dry_run=False))["done"] == 1
    status, _, problem = await client.post("/api/bulk/redrive", {"filter": {"queue": "mail", "state": ["queued"]}})
    assert (status, problem["detail"]) == (400, "state: allowed for redrive is dead")


@ensureDeferred
async def test_dead_jobs_are_listed_with_their_terms_and_failures(admin: Admin) -> None:
    client = admin()
    call = client.running.daemon.clients.call
    words = [b"MAXTRIES", b"1", b"BACKOFF", b"1", b"60", b"HEADER", b"trace", b"ab"]
    job_id = await call([b"ADDJOB", b"mail", b"hi", b"0", *words], address="test")
    await call([b"GETJOB", b"FROM", b"mail"], address="test")
    await call([b"NACK", job_id, b"REASON", b"no such host"], address="test")
    await add(client, "mail")
    _, _, page = await client.get("/api/scan/jobs?state=dead&queue=mail&reply=all")
    (job,) = page["items"]
    assert (job["id"], job["state"], job["max-tries"], job["backoff"]) == (job_id.decode(), "dead", 1, [1, 60])
    assert job["headers"] == [{"name": "trace", "value": "ab"}]
    assert [(each["reason"], sorted(each)) for each in job["failures"]] == [
        ("no such host", ["at", "node", "reason", "who"])
    ]
    assert (await client.get(f"/api/show/{job_id.decode()}"))[2]["failures"] == job["failures"]
    _, _, peeked = await client.get("/api/qpeek/mail?dead=true")
    assert [each["id"] for each in peeked["jobs"]] == [job_id.decode()]
    _, _, queue = await client.get("/api/qstat/mail")
    assert (queue["len"], queue["dead"], queue["failing"], queue["delayed"]) == (1, 1, 0, 0)


@ensureDeferred
async def test_what_clients_said_of_a_job_is_told_to_those_who_may_see_bodies(admin: Admin) -> None:
    client = admin()
    call = client.running.daemon.clients.call
    job_id = await call([b"ADDJOB", b"q", b"hi", b"0", b"RESULT", b"60", b"HEADER", b"a", b"b"], address="test")
    await call([b"GETJOB", b"FROM", b"q"], address="test")
    await call([b"WORKING", job_id, b"PROGRESS", b"half"], address="test")
    await call([b"CANCEL", job_id], address="test")
    path = f"/api/show/{job_id.decode()}"
    job = (await client.get(path))[2]
    assert (job["progress"], job["cancelled"], job["keep-result"]) == ("half", True, 60)
    await call([b"ACKJOB", job_id, b"RESULT", b"done"], address="test")
    assert (await client.get(path))[2]["result"] == "done"
    seen = (await blind(client).get(path))[2]
    assert seen["body_withheld"]
    assert not {"body", "headers", "progress", "result"} & seen.keys()


@ensureDeferred
async def test_the_policy_of_a_queue_is_told_field_by_field(admin: Admin) -> None:
    client = admin()
    await client.running.daemon.clients.call([b"QPOLICY", b"mail", b"SET", b"MAXTRIES", b"3"], address="test")
    _, _, policy = await client.get("/api/qpolicy/mail")
    assert [(field["name"], field["value"]) for field in policy["fields"]] == [("maxtries", "3")]
    assert (await client.get("/api/qpolicy/other"))[2]["fields"] == []
