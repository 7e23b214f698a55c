"""The JSON API on a whole daemon, over HTTP in memory."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_from_bytes

import attrs
import jsonschema_rs
import pytest
from pytest_twisted import ensureDeferred
from twisted.internet import reactor

from disqued import __version__
from disqued.commands.jobs import SHOWN
from disqued.commands.table import every_command
from disqued.core.model.ids import SHARERS
from disqued.core.model.messages import VITALS, Greeting, Vitals
from disqued.net.loop.turns import BusyClients
from disqued.web.api import reads as api
from disqued.web.api.commands_api import CHANGING, EXAMPLES, LOOKING, role_of
from disqued.web.api.fields import COMMANDS, schema, words
from disqued.web.api.objects import JOB
from disqued.web.http import bodies
from disqued.web.http.bodies import SLICE_BYTES, Body, JSONWriter, LongValues
from disqued.web.http.exchange import Role, Visitor
from disqued.web.http.problems import Problem
from disqued.web.http.values import dump
from disqued.web.masking import MASK
from disqued.web.routes import ROUTES
from disqued.web.turns import next_turn
from tests.adapters.http import AdminClient
from tests.adapters.inprocess import wait_until

Admin = Callable[..., AdminClient]
UNKNOWN = "DI0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0SQ"

NAMES = [
    b"mail", b"a/b", b"a//b", b"/", b"//", b"%", b"%2F", b"%00", b"with spaces", b" ", b"?", b"a?b=c&d", b"#", b"a#b",
    b"\xff\xfe", b"\x00", b"a\x00b", b"", b".", b"..", b"../..", b"+", b"a+b", b"a;b", b"\r\n", "grün/日本".encode(),
    b"{queue}", b"<queue>", b"x" * 3_000,
]  # fmt: skip


def blind(client: AdminClient) -> AdminClient:
    """Take the right to see bodies from everybody."""
    access = client.site.access
    before = access.visitor

    def visitor(request: Any) -> Visitor:
        return attrs.evolve(before(request), sees_bodies=False)

    access.visitor = visitor  # type: ignore[method-assign]
    return client


def as_text(name: bytes) -> Any:
    """What JSON has for bytes."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return {"base64": {b"\xff\xfe": "//4="}[name]}


async def add(client: AdminClient, queue: str = "mail", body: Any = "hi", **more: Any) -> str:
    """Add a job; returns its id."""
    status, _, answer = await client.post("/api/add", {"queue": queue, "body": body, "timeout": 0, **more})
    assert status == 200, answer
    return str(answer["id"])


# Queues of any name.


@pytest.mark.parametrize("name", NAMES, ids=[f"{name[:20]!r}" for name in NAMES])
@ensureDeferred
async def test_a_queue_may_have_any_name(admin: Admin, name: bytes) -> None:
    client = admin()
    status, _, added = await client.post("/api/add", {"queue": as_text(name), "body": "hi", "timeout": 0})
    assert status == 200
    quoted = quote_from_bytes(name, safe="")
    for path in (f"/api/qstat/{quoted}", f"/api/qstat?queue={quoted}"):
        status, _, queue = await client.get(path)
        assert (status, queue["name"], queue["len"]) == (200, as_text(name), 1), path
    for path in (f"/api/qpeek/{quoted}", f"/api/qpeek?queue={quoted}&count=1"):
        status, _, peeked = await client.get(path)
        assert (status, peeked["queue"]) == (200, as_text(name))
        assert peeked["jobs"] == [{"queue": as_text(name), "id": added["id"], "body": "hi"}]
    _, _, scanned = await client.get(f"/api/scan/jobs?queue={quoted}")
    assert scanned == {"cursor": 0, "items": [added["id"]]}
    _, _, scanned = await client.get("/api/scan/queues?reply=all")
    assert [queue["name"] for queue in scanned["items"]] == [as_text(name)]


@ensureDeferred
async def test_a_query_without_a_queue_is_asked_which_one(admin: Admin) -> None:
    status, headers, problem = await admin().get("/api/qstat")
    assert (status, headers["content-type"]) == (400, "application/problem+json")
    assert "?queue=" in problem["detail"]


# What is not there.


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/qstat/none", 404, "NOQUEUE"), (f"/api/show/{UNKNOWN}", 404, "NOJOB"), ("/api/show/mail", 400, "BADID"),
        ("/api/nothing", 404, "HTTP"), ("/api/qpeek/mail?count=x", 400, "HTTP"),
        ("/api/qpeek/mail?count=1&count=2", 400, "HTTP"), ("/api/scan/jobs?state=odd", 400, "HTTP"),
        ("/api/scan/jobs?busyloop=true", 400, "HTTP"), ("/api/scan/jobs?sort=ctime", 400, "HTTP"),
        ("/api/scan/queues?sort=color", 400, "HTTP"), ("/api/scan/queues?count=0", 400, "HTTP"),
    ],
)  # fmt: skip
@ensureDeferred
async def test_what_is_not_there_or_not_allowed_is_a_problem(admin: Admin, path: str, status: int, code: str) -> None:
    found, headers, problem = await admin().get(path)
    assert (found, headers["content-type"], problem["code"]) == (status, "application/problem+json", code)
    assert problem["status"] == status
    assert problem["type"].endswith("#errors")


# Reading.


@ensureDeferred
async def test_info_is_sections_of_fields(admin: Admin) -> None:
    client = admin()
    status, headers, body = await client.get("/api/info")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert body["server"]["disque_version"] == "1.0-rc1"
    _, _, one = await client.get("/api/info?section=jobs")
    assert list(one) == ["jobs"]


@ensureDeferred
async def test_a_job_is_shown_with_every_field_of_show(admin: Admin) -> None:
    client = admin()
    job_id = await add(client, body={"base64": "/wA="}, retry=60)
    status, _, job = await client.get(f"/api/show/{job_id}")
    assert (status, list(job)) == (200, [*SHOWN, "phase", "place"])
    assert (job["id"], job["queue"], job["state"], job["retry"]) == (job_id, "mail", "queued", 60)
    assert job["body"] == {"base64": "/wA="}
    await client.running.daemon.clients.call([b"GETJOB", b"FROM", b"mail"], address="127.0.0.1:1234")
    _, _, job = await client.get(f"/api/show/{job_id}")
    assert list(job) == [*SHOWN, "phase", "consumer", "in-flight-for"]
    assert (job["phase"], job["consumer"], job["in-flight-for"] < 60_000) == ("in-flight", "127.0.0.1:1234", True)


@ensureDeferred
async def test_a_job_with_a_result_tells_who_acknowledged_it_and_when(admin: Admin) -> None:
    client = admin()
    job_id = await add(client, result=60)
    before = client.site.gateway.view.wall()
    await client.post("/api/ack", {"ids": [job_id], "result": "sent"})
    _, _, job = await client.get(f"/api/show/{job_id}")
    told = job["result-from"]
    assert list(told) == ["at", "node"]
    assert told["node"] == client.site.gateway.view.id.decode()
    assert before <= told["at"] <= client.site.gateway.view.wall()


@ensureDeferred
async def test_a_job_is_added_once_with_a_key_and_shown_with_it(admin: Admin) -> None:
    client = admin()
    key = {"base64": "/wA="}
    job_id = await add(client, key=key)
    assert await add(client, key=key, body="another") == job_id
    _, _, job = await client.get(f"/api/show/{job_id}")
    assert list(job) == [*SHOWN, "key", "phase", "place"]
    assert job["key"] == key
    status, _, problem = await client.post("/api/add", {"queue": "mail", "body": "x", "timeout": 0, "key": ""})
    assert (status, problem["detail"]) == (400, "KEY must be 1 to 1024 bytes")


@ensureDeferred
async def test_spans_have_fractions_in_bodies_and_answers(admin: Admin) -> None:
    client = admin()
    terms = {"max_tries": 3, "backoff": {"first": 0.5, "most": 60}, "keep_dead": 1.5, "result": 2.0}
    job_id = await add(client, delay=0.5, retry=0.25, ttl=90.0, **terms)
    _, _, job = await client.get(f"/api/show/{job_id}")
    assert (job["delay"], job["retry"], job["ttl"]) == (0.5, 0.25, 90)
    assert (job["backoff"], job["keep-dead"], job["keep-result"]) == ([0.5, 60], 1.5, 2)
    assert [type(job[name]) for name in ("delay", "retry", "ttl", "keep-result")] == [float, float, int, int]
    jsonschema_rs.validator_for(JOB).validate(job)
    limits = {"queue": "q", "sets": True, "ttl": 90.5, "rate": {"count": 3, "per": 0.5}}
    assert (await client.post("/api/commands/QPOLICY", limits)).body == {"reply": "OK"}
    told = (await client.post("/api/commands/QPOLICY", {"queue": "q"})).body["reply"]
    assert [row[:2] for row in told] == [["ttl", "90.5"], ["rate", "3 PER 0.5"]]
    event = {"queue": "log", "expire_seconds": 60.5, "contents": "x", "delay": "0.5"}
    added = await client.post("/api/commands/QADD", event)
    _, _, shown = await client.get(f"/api/show/{added.body['reply']}")
    assert (shown["delay"], shown["ttl"]) == (0.5, 61)


@ensureDeferred
async def test_a_span_is_a_number_of_json_that_a_command_takes(admin: Admin) -> None:
    client = admin()
    for given, told in (
        ("0.5", "delay is a string; allowed are numbers"),
        (True, "delay is true; allowed are numbers"),
        (-0.5, "DELAY time must be a non negative number"),
        (1e300, "DELAY must be below 2147483648 seconds"),
        (1e10, "DELAY must be below 2147483648 seconds"),
    ):
        status, _, problem = await client.post("/api/add", {"queue": "q", "body": "x", "delay": given})
        assert status == 400
        assert told in problem["detail"]
    status, _, problem = await client.post(
        "/api/commands/QPOLICY", {"queue": "q", "sets": True, "rate": {"count": 1.5, "per": 0.5}}
    )
    assert (status, problem["detail"]) == (400, "rate.count is a number; allowed are whole numbers")


def test_the_schema_of_a_span_is_a_number_with_its_least() -> None:
    found = schema(COMMANDS["ADDJOB"])["properties"]
    assert {name: (found[name]["type"], found[name]["minimum"]) for name in ("delay", "retry", "ttl", "timeout")} == {
        "delay": ("number", 0), "retry": ("number", 0), "ttl": ("number", 0.001), "timeout": ("number", 0),
    }  # fmt: skip
    rate = schema(COMMANDS["QPOLICY"])["properties"]["rate"]["properties"]
    assert [rate[part]["type"] for part in ("count", "per", "burst")] == ["integer", "number", "integer"]
    assert schema(COMMANDS["SCHEDULE SET"])["properties"]["every"]["minimum"] == 1


@ensureDeferred
async def test_an_event_is_shown_with_its_groups(admin: Admin) -> None:
    client = admin()
    added = {"queue": "news", "expire_seconds": 60, "contents": "x", "replicate": 1}
    _, _, answer = await client.post("/api/commands/QADD", added)
    await client.post("/api/commands/QGET", {"queue": "news", "group": "mailers", "ex": 5})
    _, _, event = await client.get(f"/api/show/{answer['reply']}")
    assert list(event) == [*SHOWN, "groups", "phase"]
    ((group, state, deliveries, left_ms),) = event["groups"]
    assert (group, state, deliveries, 0 < left_ms <= 5_000) == ("mailers", "in progress", 1, True)


@ensureDeferred
async def test_a_peek_counts_from_either_end(admin: Admin) -> None:
    client = admin()
    ids = [await add(client, body=str(number)) for number in range(5)]
    _, _, oldest = await client.get("/api/qpeek/mail?count=2")
    _, _, newest = await client.get("/api/qpeek/mail?count=-2")
    _, _, every = await client.get("/api/qpeek/mail")
    assert [job["id"] for job in oldest["jobs"]] == ids[:2]
    assert [job["id"] for job in newest["jobs"]] == [ids[4], ids[3]]
    assert [job["body"] for job in every["jobs"]] == list("01234")


@ensureDeferred
async def test_a_walk_over_jobs_meets_each_once_and_filters(admin: Admin) -> None:
    client = admin()
    waiting = {await add(client, body=str(number)) for number in range(30)}
    delayed = {await add(client, "later", delay=100) for _ in range(7)}
    met: list[str] = []
    cursor = 0
    while True:
        _, _, page = await client.get(f"/api/scan/jobs?cursor={cursor}&count=4")
        met += page["items"]
        cursor = page["cursor"]
        if not cursor:
            break
    assert sorted(met) == sorted(waiting | delayed)
    for query, wanted in [
        ("state=active", delayed), ("state=queued&state=active", waiting | delayed), ("queue=later", delayed),
        ("state=acked", set()), ("maxidle=1000", waiting | delayed), ("maxidle=-1", set()),
    ]:  # fmt: skip
        _, _, page = await client.get(f"/api/scan/jobs?count=1000&{query}")
        assert set(page["items"]) == wanted, query


@ensureDeferred
async def test_a_page_is_sorted_as_asked(admin: Admin) -> None:
    client = admin()
    for ttl in (500, 300, 400):
        await add(client, f"q{ttl}", ttl=ttl)
    for _ in range(2):
        await add(client, "q300")
    _, _, up = await client.get("/api/scan/jobs?reply=all&sort=ttl&count=1000")
    _, _, down = await client.get("/api/scan/jobs?reply=all&sort=-ttl&count=1000")
    times = [job["ttl"] for job in up["items"]]
    assert times == sorted(times)
    assert len(times) == 5
    assert [job["ttl"] for job in down["items"]] == times[::-1]
    _, _, ids = await client.get("/api/scan/jobs?sort=-id&count=1000")
    assert ids["items"] == sorted(ids["items"], reverse=True)
    _, _, queues = await client.get("/api/scan/queues?reply=all&sort=-len")
    assert queues["items"][0]["name"] == "q300"
    _, _, names = await client.get("/api/scan/queues?sort=name")
    assert names["items"] == ["q300", "q400", "q500"]


@ensureDeferred
async def test_a_walk_over_queues_filters(admin: Admin) -> None:
    client = admin()
    for _ in range(3):
        await add(client, "long")
    await add(client, "short")
    for query, wanted in [
        ("minlen=2", ["long"]), ("maxlen=2", ["short"]), ("maxidle=1000", ["long", "short"]), ("importrate=1", []),
    ]:  # fmt: skip
        _, _, page = await client.get(f"/api/scan/queues?{query}")
        assert page == {"cursor": 0, "items": wanted}, query


@ensureDeferred
async def test_the_cluster_is_told_as_objects(admin: Admin) -> None:
    client = admin()
    node_id = client.running.daemon.node.id.decode()
    _, _, hello = await client.get("/api/hello")
    assert hello["id"] == hello["nodes"][0]["id"] == node_id
    assert hello["nodes"][0]["priority"] == 1
    _, _, nodes = await client.get("/api/cluster/nodes")
    assert [(node["id"], node["myself"], node["flags"], node["connected"]) for node in nodes] == [
        (node_id, True, ["myself"], True)
    ]
    memory = client.running.daemon.node.state.memory
    told = [nodes[0][name] for name in ("version", "jobs", "memory", "maxmemory", "queued", "given")]
    assert told == [__version__, 0, memory.used, memory.limit, 0, 0]


@ensureDeferred
async def test_other_nodes_say_how_they_are(admin: Admin) -> None:
    client = admin()
    node = client.running.daemon.node
    node_id = b"b" * 40
    node.greeted(Greeting(node_id, "10.0.0.2", 7711, 17711, 0, True), "10.0.0.2", "10.0.0.1")
    _, _, nodes = await client.get("/api/cluster/nodes")
    assert [nodes[1][name] for name in ("version", "memory", "given")] == [None, None, None]
    node.message(node_id, (VITALS, Vitals(b"9.8.7", 5 << 20, 1 << 30, 4_321, 100, 60)))
    _, _, nodes = await client.get("/api/cluster/nodes")
    told = [nodes[1][name] for name in ("version", "jobs", "memory", "maxmemory", "queued", "given")]
    assert told == ["9.8.7", 4_321, 5 << 20, 1 << 30, 100, 60]
    assert abs(nodes[1]["told_at"] - node.clock.wall()) < 60_000
    _, _, html = await client.get("/")
    row = re.findall(r"<td[^>]*>(.*?)</td>", html.decode().split('<tr data-key="bbbb')[1])
    assert [row[-5], row[-4], row[-1]] == ["9.8.7", "4\u202f321", "5.0 MiB of 1.0 GiB"]


@ensureDeferred
async def test_secrets_among_the_settings_are_masked_for_everybody(admin: Admin) -> None:
    client = admin("cluster-secret hush-hush")
    _, _, settings = await client.get("/api/config")
    assert settings["cluster-secret"] == MASK
    assert settings["requirepass"] == ""
    _, _, one = await client.get("/api/config?pattern=slowlog-max-len")
    assert one == {"slowlog-max-len": "128"}
    _, _, by_command = await client.post("/api/commands/CONFIG/GET", {"pattern": "*secret*"})
    assert by_command["reply"]["cluster-secret"] == MASK


# Large answers.


@pytest.mark.parametrize(
    "value",
    [
        {"cursor": 0, "items": []}, {"a": [b"x"] * 17, "b": {"c": [{"d": number} for number in range(50)]}}, [[1] * 20],
        [None, [b"\xff", "\u00fc"] * 40], {b"\xff": ["x" * 5_000] * 100, "y": {}}, b"alone", [list(range(3))] * 40,
    ],
)  # fmt: skip
@ensureDeferred
async def test_what_is_written_in_slices_is_the_same_json(value: Any) -> None:
    body = Body(LongValues())
    await JSONWriter(BusyClients(reactor), body).write(value)
    assert all_of(body) == dump(value)


@ensureDeferred
async def test_no_turn_writes_much_more_than_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [0]

    def turn(loop: Any) -> Any:
        turns[0] += 1
        return next_turn(loop)

    monkeypatch.setattr(bodies, "next_turn", turn)
    body = Body(LongValues())
    await JSONWriter(BusyClients(reactor), body).write({"jobs": [{"body": "x" * 1_000}] * 500})
    assert turns[0] == pytest.approx(body.size / SLICE_BYTES, rel=0.1)


def all_of(body: Body) -> bytes:
    """What is sent of a body, piece by piece."""
    return b"".join(iter(body.next_piece, b""))


# Acting.


@ensureDeferred
async def test_a_job_goes_through_its_life(admin: Admin) -> None:
    client = admin()
    job_id = await add(client)

    async def state() -> str:
        _, _, job = await client.get(f"/api/show/{job_id}")
        return str(job.get("state", job.get("code")))

    for path, after in [
        ("dequeue", "active"), ("enqueue", "queued"), ("dequeue", "active"), ("nack", "queued"), ("ack", "NOJOB"),
    ]:  # fmt: skip
        status, _, answer = await client.post(f"/api/{path}", {"ids": [job_id]})
        assert (status, answer, await state()) == (200, {"changed": 1}, after), path
    other = await add(client)
    assert (await client.post("/api/delete", {"ids": [other, UNKNOWN]})).body == {"changed": 1}


@ensureDeferred
async def test_pause_drain_config_and_meet_do_what_their_commands_do(admin: Admin) -> None:
    client = admin(bus=True)
    assert (await client.post("/api/pause", {"queue": "mail", "words": ["in"]})).body == {"pause": "in"}
    refused = await client.post("/api/add", {"queue": "mail", "body": "hi"})
    assert (refused.status, refused.body["code"]) == (409, "PAUSED")
    assert (await client.post("/api/pause", {"queue": "mail", "words": ["none"]})).body == {"pause": "none"}
    assert (await client.post("/api/config", {"name": "slowlog-max-len", "value": 7})).body == {"ok": True}
    assert client.running.daemon.config.slowlog_max_len == 7
    assert (await client.post("/api/drain", {"leaving": True})).body == {"leaving": True}
    assert client.running.daemon.node.state.leaving
    assert (await client.post("/api/drain", {"leaving": False})).body == {"leaving": False}
    own_id = client.running.daemon.node.id.decode()
    assert (await client.post("/api/drain", {"leaving": True, "node": own_id})).body == {"leaving": True}
    assert client.running.daemon.node.state.leaving
    assert (await client.post("/api/drain", {"leaving": False, "node": own_id})).body == {"leaving": False}
    assert not client.running.daemon.node.state.leaving
    assert [entry["asked"] for entry in client.site.audit.recent if entry["path"] == "/api/drain"][-1] == {
        "leaving": False, "node": own_id,
    }  # fmt: skip
    assert (await client.post("/api/meet", {"ip": "127.0.0.1", "port": 1, "bus_port": 2})).body == {"ok": True}
    assert (await client.post("/api/meet", {"ip": "nowhere", "port": 1})).body["code"] == "ERR"


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/api/add", [], "a list"), ("/api/add", {"queue": "q"}, "needs the field body"),
        ("/api/add", {"queue": "q", "body": "b", "timeout": 0, "dealy": 1}, "'dealy'"),
        ("/api/add", {"queue": "q", "body": "b", "timeout": "0"}, "timeout is a string"),
        ("/api/add", {"queue": "q", "body": "b", "timeout": "0.5"}, "timeout is a string"),
        ("/api/add", {"queue": "q", "body": None, "timeout": 0}, "body"),
        ("/api/add", {"queue": "q", "body": {"base64": "?"}, "timeout": 0}, "base64 is not valid"),
        ("/api/add", {"queue": "q", "body": "b", "timeout": 0, "asynchronous": "yes"}, "true and false"),
        ("/api/add", {"queue": "q", "body": "b", "timeout": -1}, "timeout is negative"),
        ("/api/ack", {}, "ids"), ("/api/ack", {"ids": "DI"}, "lists"), ("/api/ack", {"ids": ["DI"]}, "Job ID"),
        ("/api/pause", {"queue": "q", "words": ["sideways"]}, "syntax error"), ("/api/drain", {}, "true or false"),
        ("/api/drain", {"leaving": True, "node": 7}, "node is not a string"),
        ("/api/drain", {"leaving": True, "node": "*"}, "one node at a time"),
        ("/api/drain", {"leaving": True, "node": "f" * 40}, "Unknown node ffff"),
        ("/api/config", {"name": "nothing", "value": 1}, "Unsupported CONFIG parameter"),
    ],
)  # fmt: skip
@ensureDeferred
async def test_a_wrong_body_is_refused_with_what_is_allowed(admin: Admin, path: str, body: Any, told: str) -> None:
    status, _, problem = await admin().post(path, body)
    assert status == 400
    assert told in problem["detail"]


PROMISED = [
    (entry.path, name)
    for entry in ROUTES
    if entry.listed and entry.method == "POST" and not entry.path.startswith("/api/commands/")
    for name in (entry.body or {}).get("properties", ())
]


@pytest.mark.parametrize(("path", "name"), PROMISED, ids=" ".join)
@ensureDeferred
async def test_a_route_knows_every_field_that_the_reference_promises(admin: Admin, path: str, name: str) -> None:
    # A value of no field's type: nothing is done, and the answer is not that there is no such field.
    answer = await admin().post(path, {name: 2.5})
    assert answer.status == 400
    assert "there is no field" not in answer.body["detail"]


@ensureDeferred
async def test_ack_and_nack_take_the_options_of_their_commands(admin: Admin) -> None:
    client = admin()

    async def taken(**terms: Any) -> str:
        job_id = await add(client, retry=300, **terms)
        got = await client.post("/api/commands/GETJOB", {"nohang": True, "queues": ["mail"]})
        assert [row[1] for row in got.body["reply"]] == [job_id]
        return job_id

    job_id = await taken(result=60)
    assert (await client.post("/api/ack", {"ids": [job_id], "result": "sent"})).body == {"changed": 1}
    waited = await client.post("/api/commands/WAITJOB", {"timeout": 0, "ids": [job_id]})
    assert waited.body["reply"][0][1:3] == ["acked", "sent"]
    job_id = await taken(max_tries=5)
    assert (await client.post("/api/nack", {"ids": [job_id], "delay": 60, "reason": "no host"})).body == {"changed": 1}
    _, _, shown = await client.get(f"/api/show/{job_id}")
    assert (shown["state"], shown["failures"][-1]["reason"]) == ("active", "no host")
    job_id = await taken(max_tries=1)
    assert (await client.post("/api/nack", {"ids": [job_id], "untried": True})).body == {"changed": 1}
    assert (await client.get(f"/api/show/{job_id}")).body["state"] == "queued"
    assert (await client.post("/api/commands/GETJOB", {"nohang": True, "queues": ["mail"]})).body["reply"]
    assert (await client.post("/api/nack", {"ids": [job_id], "dead": True})).body == {"changed": 1}
    assert (await client.get(f"/api/show/{job_id}")).body["state"] == "dead"


# Any command.


def test_every_command_has_a_route_and_one_path() -> None:
    paths = [entry.path for entry in ROUTES if entry.path.startswith("/api/commands/")]
    wanted = {f"/api/commands/{entry.name.replace(' ', '/')}" for entry in every_command()}
    assert set(paths) - {"/api/commands/<name>", "/api/commands/<name>/<subcommand>"} == wanted
    assert len(paths) == len(set(paths))


def test_roles_follow_the_flags() -> None:
    assert role_of(COMMANDS["SHOW"]) is Role.VIEWER
    assert role_of(COMMANDS["GETJOB"]) is role_of(COMMANDS["PAUSE"]) is Role.OPERATOR
    assert role_of(COMMANDS["CONFIG GET"]) is role_of(COMMANDS["CLUSTER RESET"]) is Role.ADMIN
    assert {*CHANGING, *LOOKING, *EXAMPLES} <= set(COMMANDS)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_example_of_a_command_is_a_call_of_it(name: str) -> None:
    entry = COMMANDS[name]
    entry.parse(words(entry, EXAMPLES[name]))
    assert set(EXAMPLES[name]) <= set(schema(entry)["properties"])


def test_fields_become_words_in_the_order_of_the_grammar() -> None:
    given = {"states": ["queued", "active"], "count": 7, "queue": {"base64": "/wA="}, "cursor": 3, "busyloop": True}
    assert words(COMMANDS["SCAN JOB"], given) == [
        b"SCAN", b"JOB", b"3", b"COUNT", b"7", b"BUSYLOOP", b"QUEUE", b"\xff\x00",
        b"STATE", b"queued", b"STATE", b"active",
    ]  # fmt: skip
    taken = words(COMMANDS["GETJOB"], {"queues": ["a", "b"], "nohang": True, "with_counters": False, "timeout": 5})
    assert taken == [b"GETJOB", b"NOHANG", b"TIMEOUT", b"5", b"FROM", b"a", b"b"]
    hello = words(COMMANDS["HELLO"], {"version": 3, "auth": {"user": "u", "password": "p"}})
    assert hello == [b"HELLO", b"3", b"AUTH", b"u", b"p"]
    with pytest.raises(Problem, match="objects with user and password"):
        words(COMMANDS["HELLO"], {"auth": ["u", "p"]})
    killed = words(COMMANDS["CLIENT KILL"], {"id": 5, "skipme": False})
    assert killed == [b"CLIENT", b"KILL", b"ID", b"5", b"SKIPME", b"no"]


@ensureDeferred
async def test_any_command_answers_by_the_names_of_its_fields(admin: Admin) -> None:
    client = admin()
    status, _, added = await client.post("/api/commands/ADDJOB", {"queue": "q", "body": 5, "timeout": 0})
    assert status == 200
    taken = await client.post("/api/commands/GETJOB", {"queues": ["q"], "nohang": True})
    assert taken.body == {"reply": [["q", added["reply"], "5"]]}
    assert (await client.post("/api/commands/GETJOB", {"queues": ["q"], "nohang": True})).body == {"reply": None}
    assert (await client.post("/api/commands/ECHO", {"message": {"base64": "/wA="}})).body == {
        "reply": {"base64": "/wA="}
    }
    late = await client.post("/api/commands/WORKING", {"id": UNKNOWN})
    assert (late.status, late.body["code"]) == (404, "NOJOB")
    assert (await client.post("/api/commands/HELLO", {"version": 3})).status == 400


@pytest.mark.parametrize(
    ("name", "status", "told"),
    [
        ("MONITOR", 400, "concerns the connection"), ("CLIENT/REPLY", 400, "concerns the connection"),
        ("AUTH", 400, "concerns the connection"), ("SUBSCRIBE", 400, "concerns the connection"),
        ("ACL/SETUSER", 400, "concerns the users of the port for clients, whom the admin side does not have; "),
        ("WORKER/START", 400, "concerns the connection"), ("WQ.DEQUEUE", 400, "concerns the connection"),
        ("addjob", 404, "in capitals: /api/commands/ADDJOB"),
        ("NOTHING", 404, "no command 'NOTHING'"), ("CONFIG", 404, "no command 'CONFIG'"),
        ("CONFIG/LIST", 404, "no command 'CONFIG LIST'"), ("config/get", 404, "in capitals: /api/commands/CONFIG/GET"),
        ("CLIENT%20REPLY", 400, "CLIENT REPLY concerns the connection"),
    ],
)  # fmt: skip
@ensureDeferred
async def test_a_command_that_is_none_or_has_no_meaning_here_says_so(
    admin: Admin, name: str, status: int, told: str
) -> None:
    found, _, problem = await admin().post(f"/api/commands/{name}", {})
    assert found == status
    assert told in problem["detail"]


@ensureDeferred
async def test_a_consumer_that_hangs_up_takes_no_job(admin: Admin) -> None:
    client = admin()
    body = b'{"queues": ["mail"]}'
    waiting = client.begin("POST", "/api/commands/GETJOB", body=body, headers={"Content-Type": "application/json"})
    queues = client.running.daemon.node.state.queues.by_name
    await wait_until(lambda: b"mail" in queues and len(queues[b"mail"].waiters) == 1)
    waiting.hang_up()
    assert not queues[b"mail"].waiters
    await add(client)
    assert (await client.get("/api/qstat/mail")).body["len"] == 1


# Without the right to see bodies.


@ensureDeferred
async def test_bodies_are_withheld_from_who_may_not_see_them(admin: Admin) -> None:
    client = blind(admin())
    job_id = await add(client, body="secret")
    for path in (f"/api/show/{job_id}", "/api/qpeek/mail", "/api/scan/jobs?reply=all"):
        status, _, answer = await client.get(path)
        job = answer if "id" in answer else answer.get("jobs", answer.get("items"))[0]
        assert (status, job["body_withheld"], job["id"]) == (200, True, job_id)
        assert "secret" not in str(answer)
    for name, body in [
        ("SHOW", {"id": job_id}), ("QPEEK", {"queue": "mail", "count": 1}), ("JSCAN", {"full": "all"}),
        ("SCAN JOB", {"full": "ALL"}), ("GETJOB", {"queues": ["mail"], "nohang": True}), ("SLOWLOG GET", {}),
    ]:  # fmt: skip
        status, _, answer = await client.post(f"/api/commands/{name.replace(' ', '/')}", body)
        assert status == 403, name
        assert "secret" not in str(answer)
    assert (await client.post("/api/commands/JSCAN", {"full": "id"})).body["reply"] == ["0", [job_id]]


@pytest.mark.parametrize(
    ("path", "command", "most"),
    [
        ("/api/scan/jobs?count=1000", "JSCAN", 1_000), ("/api/scan/jobs?count=1000&reply=all", "JSCAN", 250),
        ("/api/scan/queues?count=1000", "QSCAN", 1_000),
    ],
)  # fmt: skip
@ensureDeferred
async def test_a_page_of_a_walk_is_taken_by_several_commands_each_in_a_turn_of_its_own(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, path: str, command: str, most: int
) -> None:
    client = admin()
    for number in range(1_200):
        await client.running.daemon.clients.call([b"ADDJOB", b"q%d" % number, b"hi", b"0"], address="test")
    asked: list[int] = []
    call = client.site.call

    async def counted(visitor: Any, *words: Any) -> Any:
        value = await call(visitor, *words)
        asked.append(len(value[1]) if words[0] == command else 0)
        return value

    monkeypatch.setattr(type(client.site), "call", lambda _, *words: counted(*words))
    _, _, page = await client.get(path)
    assert most <= len(page["items"]) < most + api.SCANNED_PER_TURN + 3 * SHARERS
    # And what else is in the table that it ends in: jobs come in sixteens, rarely three times into one.
    assert max(asked) < api.SCANNED_PER_TURN + 3 * SHARERS
    met = set()
    cursor, rounds = 0, 0
    while cursor or not rounds:
        _, _, page = await client.get(f"{path}&cursor={cursor}")
        met |= {item["id"] if isinstance(item, dict) else item for item in page["items"]}
        cursor, rounds = page["cursor"], rounds + 1
    assert len(met) == 1_200
