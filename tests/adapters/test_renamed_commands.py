"""Commands that rename-command removes or renames: the admin side starts, offers none of them, and says why."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any

import pytest
from pytest_twisted import ensureDeferred

from disqued.commands import catalogue, table
from disqued.commands.categories import CommandBook
from disqued.commands.cluster import check_asked
from disqued.errors import CommandError
from disqued.web.api import openapi
from disqued.web.api.fields import COMMANDS
from disqued.web.routes import ROUTES
from tests.adapters.http import AdminClient

assert catalogue.MODULES

Admin = Callable[..., AdminClient]
NAMES = sorted(key.decode() for key in table.TABLE)
PAGES = ("/", "/queues", "/queues/mail", "/workers", "/connections", "/settings", "/actions", "/login")
#: Reads whose answers take more than one command, or one that is not in their path.
READS = {
    "/api/qstat/mail": "QSTAT", "/api/qpeek/mail": "QPEEK", "/api/scan/jobs": "JSCAN", "/api/scan/queues": "QSCAN",
    "/api/info": "INFO", "/api/hello": "HELLO", "/api/cluster/nodes": "CLUSTER", "/api/config": "CONFIG",
    "/api/show/DI0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0SQ": "SHOW",
}  # fmt: skip


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Give every command its name back."""
    kept = [(names, dict(names)) for names in (table.TABLE, table.PLAIN)]
    yield
    for names, before in kept:
        names.clear()
        names.update(before)


def offered(page: bytes) -> set[str]:
    """Paths of the API that the forms of a page send to."""
    found = re.findall(r'data-action="([^"]*)"', page.decode())
    return {json.loads(unescape(text))["path"] for text in found}


@pytest.mark.parametrize("new", ["", "HIDDEN-"])
def test_nothing_looks_commands_up_by_their_names_while_it_is_imported(new: str) -> None:
    code = (
        "from disqued.commands import catalogue, table\n"
        f"for key in list(table.TABLE): table.rename(key.decode(), {new!r} and {new!r} + key.decode())\n"
        "import disqued.web.server, disqued.web.http_reference, disqued.net.process.daemon, disqued.tap, disqued.cli\n"
        "from disqued.web.routes import ROUTES, missing_command\n"
        "print(sum(missing_command(entry) is not None for entry in ROUTES))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) == sum(bool(entry.commands) for entry in ROUTES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("new", ["", "HIDDEN"])
@ensureDeferred
async def test_without_a_command_pages_offer_what_is_left_and_the_api_says_what_is_missing(
    admin: Admin, name: str, new: str
) -> None:
    client = admin()
    job_id = (await client.post("/api/add", {"queue": "mail", "body": "to: ann", "timeout": 0})).body["id"]
    event = {"queue": "mail", "expire_seconds": "60", "contents": "sent"}
    assert (await client.post("/api/commands/QADD", {**event, "queue": "events"})).status == 200
    table.rename(name, new)
    gone = {entry.path for entry in ROUTES if any(needed.split()[0] == name for needed in entry.commands)}
    for page in (*PAGES, f"/jobs/{job_id}", "/queues/events"):
        answer = await client.get(page)
        assert answer.status in (200, 303), page
        assert not offered(answer.body) & gone, page
    for path in {entry.path for entry in ROUTES if entry.method == "POST"} & gone:
        body = {"filter": {"queue": "mail"}, **({"to": "post"} if path.endswith("move") else {})}
        problem(await client.post(path, body), name)
    for path, needed in READS.items():
        if needed == name:
            problem(await client.get(path), name)
    listed = {(method.upper(), path) for path, found in openapi.document()["paths"].items() for method in found}
    needing = [entry for entry in ROUTES if entry.listed and entry.commands]
    for entry in needing:
        is_gone = any(needed.split()[0] == name for needed in entry.commands)
        assert ((entry.method, openapi.shown_path(entry)) in listed) is not is_gone


def problem(answer: Any, name: str) -> None:
    """Check that an answer says which command is missing, and why."""
    assert (answer.status, answer.headers["content-type"], answer.body["code"]) == (
        404, "application/problem+json", "ERR",
    ), answer  # fmt: skip
    assert re.fullmatch(
        f"this node has no command {re.escape(name)}( [A-Z_-]+)?: rename-command removed or renamed it",
        answer.body["detail"],
    )


def test_a_name_that_another_command_took_does_not_count() -> None:
    table.rename("CONFIG", "")
    table.rename("PING", "CONFIG")
    assert not table.is_callable("CONFIG GET")
    assert not table.is_callable("PING")
    assert table.is_callable("COMMAND")
    assert table.is_callable("COMMAND DOCS")


def test_rules_of_acl_know_removed_commands() -> None:
    table.rename("CONFIG", "")
    assert CommandBook().called("config|get") == {"CONFIG GET"}
    assert "CONFIG SET" in CommandBook().every()


def test_the_manual_has_every_command_once() -> None:
    assert sorted(COMMANDS) == sorted(entry.name for entry in table.every_command())


@pytest.mark.parametrize("name", ["CLUSTER", "SHOW"])
@ensureDeferred
async def test_pages_ask_nodes_by_names_that_no_rename_takes_away(admin: Admin, name: str) -> None:
    client = admin()
    job_id = (await client.post("/api/add", {"queue": "mail", "body": "to: ann", "timeout": 0})).body["id"]
    table.rename(name, "")
    html = (await client.get(f"/jobs/{job_id}")).body.decode()
    assert "to: ann" in html
    assert "refuses to answer" not in html


@ensureDeferred
async def test_a_node_that_has_another_name_for_leaving_is_not_drained_by_asking(admin: Admin) -> None:
    client = admin()
    node = client.running.daemon.node
    connection = await client.running.connect()
    table.rename("CLUSTER", "HIDDEN")
    refusal = await connection.call("HIDDEN", "ASK", node.id, "CLUSTER", "LEAVING", "yes")
    assert "this node has no command CLUSTER LEAVING: rename-command removed or renamed it" in str(refusal)
    with pytest.raises(CommandError, match="this node has no command CLUSTER LEAVING"):
        check_asked([b"CLUSTER", b"LEAVING", b"yes"])
    assert check_asked([b"CLUSTER", b"INFO"]).name == "CLUSTER INFO"
    assert not node.state.leaving
