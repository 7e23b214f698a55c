"""Which commands show bodies of jobs is what their declarations say: each is asked, with bodies to be shown."""

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import attrs
import pytest
from pytest_twisted import ensureDeferred

from disqued.commands.table import Command, every_command
from disqued.commands.values import BYTES
from disqued.web.api.acts import ID
from disqued.web.api.commands_api import EXAMPLES, role_of
from disqued.web.http.exchange import Role, Visitor
from disqued.web.masking import BODIES
from tests.adapters.http import AdminClient

Admin = Callable[..., AdminClient]

MARK = "a-body-that-may-not-be-seen"
#: They end the daemon, or what the others look at.
ENDING = {"SHUTDOWN", "CLIENT PAUSE", "DEBUG FLUSHALL", "SLOWLOG RESET"}
#: Fields of any bytes that are no body, and that the log of actions shows.
HARMLESS = {"worker"}


#: How each family adds a job with the mark to a queue: words after which the name of the queue stands, and the rest.
FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "jobs": ("ADDJOB", (MARK, "0", "RETRY", "60")),
    "tasks": ("WQ.ENQUEUE", ("TASKS", MARK)),
    "lists": ("RQ.PUSH", (MARK,)),
    "named": ("QLPUSH", ("{name}", MARK)),
}


async def fill(client: AdminClient, family: str) -> bytes:
    """See to it that whatever looks into the queue of the examples finds jobs of a family; returns the id of one."""
    command, rest = FAMILIES[family]

    async def call(*words: str) -> Any:
        return await client.running.daemon.clients.call([word.encode() for word in words], address="test")

    async def add(queue: str) -> None:
        await call(command, queue, *(word.format(name=uuid4().hex) for word in rest))

    await call("WORKER", "START", "ID", "press-1", "TTL", "0")
    for queue in ("mail", "other"):
        await add(queue)
    await call("GETJOB", "NOHANG", "COUNT", "2", "FROM", "mail", "other")
    for _ in range(3):
        await add("mail")
    await call("GETJOB", "NOHANG", "WORKER", "press-1", "FROM", "mail")
    await call("QADD", "events", "60", MARK)
    await call("SCHEDULE", "SET", "nightly", "0 2 * * *", "QUEUE", "mail", "BODY", MARK)
    [[_, job_id, *_]] = await call("QPEEK", "mail", "1")
    return bytes(job_id)


async def answers(client: AdminClient, entries: list[Command], family: str) -> dict[str, str]:
    """What commands answer to their examples, and to what is asked for of the fields that show bodies."""
    found = {}
    for entry in entries:
        job_id = (await fill(client, family)).decode()
        body = json.loads(json.dumps(EXAMPLES.get(entry.name, {})).replace(ID, job_id))
        path = f"/api/commands/{entry.name.replace(' ', '/')}"
        wanted = {"queue": "mail", entry.bodies_field: "all"} if entry.bodies_field else {}
        found[entry.name] = str((await client.post(path, {**body, **wanted})).body)
    return found


def entries() -> list[Command]:
    return [entry for entry in every_command() if not entry.is_of_connection and entry.name not in ENDING]


async def served(admin: Admin, *, sees_bodies: bool) -> AdminClient:
    client = admin("slowlog-log-slower-than 0")
    before = client.site.access.visitor

    def visitor(request: Any) -> Visitor:
        return attrs.evolve(before(request), sees_bodies=sees_bodies)

    client.site.access.visitor = visitor  # type: ignore[method-assign]
    return client


@pytest.mark.parametrize("family", FAMILIES)
@ensureDeferred
async def test_no_command_shows_a_body_to_whoever_may_not_see_it(admin: Admin, family: str) -> None:
    found = await answers(await served(admin, sees_bodies=False), entries(), family)
    assert [name for name, answer in found.items() if MARK in answer] == []


@pytest.mark.parametrize("family", FAMILIES)
@ensureDeferred
async def test_the_commands_that_show_bodies_are_those_that_say_so(admin: Admin, family: str) -> None:
    found = await answers(await served(admin, sees_bodies=True), entries(), family)
    # WAITJOB shows results, of which there are none here; the next test has one.
    declared = {entry.name for entry in entries() if entry.shows_bodies or entry.bodies_field} - {"WAITJOB"}
    assert {name for name, answer in found.items() if MARK in answer} == declared


@pytest.mark.parametrize("sees_bodies", [False, True])
@ensureDeferred
async def test_a_result_is_shown_to_whoever_may_see_bodies(admin: Admin, sees_bodies: bool) -> None:
    client = await served(admin, sees_bodies=sees_bodies)
    added = await client.post("/api/commands/ADDJOB", {"queue": "q", "body": "x", "timeout": 0, "result": 60})
    job_id = str(added.body)[str(added.body).index("DI") :][:48]
    await client.post("/api/commands/ACKJOB", {"ids": [job_id], "result": MARK})
    for name, fields in (("WAITJOB", {"timeout": 1, "ids": [job_id]}), ("SHOW", {"id": job_id})):
        answer = await client.post(f"/api/commands/{name}", fields)
        assert (MARK in str(answer.body)) is sees_bodies, answer.body


OPERATORS = [entry for entry in entries() if role_of(entry) is Role.OPERATOR]


@pytest.mark.parametrize("entry", OPERATORS, ids=[entry.name for entry in OPERATORS])
def test_what_a_command_is_sent_that_may_be_a_body_is_not_written_down(entry: Command) -> None:
    taken = {field.name for field in entry.fields if field.arg.kind is BYTES and field.arg.style != "flag"}
    assert taken <= BODIES | HARMLESS
