"""A walk over every route, every method and every role, held against a table that is written by hand.

Whoever adds a route adds a line to EXPECTED.  It says what is needed to be let in, and nothing of what happens then.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import pytest_twisted

from disqued.web.routes import ROUTES
from tests.adapters.http import AdminClient, Exchange, admin
from tests.adapters.inprocess import Running, wait_until

Launch = Callable[..., Running]
async_test = pytest_twisted.ensureDeferred

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
ROLES = ("none", "viewer", "viewer+bodies", "operator", "operator+bodies", "admin", "admin+bodies")
RANK = {"none": 0, "viewer": 1, "operator": 2, "admin": 3}

#: The least role, then paths; ``+bodies`` where the right to see bodies is needed as well.
GET = {
    "none": "/healthz /readyz /startupz /login /static/<version>/<name>",
    "viewer": """
        / /settings /reports /queues /queues/<queue> /queue /jobs/<job> /workers /workers/<worker> /worker /client /find
        /schedules /schedules/<schedule> /schedule /failing /dead /nodes/<node>
        /api/openapi.json /api/info /api/hello /api/cluster/nodes /api/config /api/events
        /api/qstat /api/qstat/<queue> /api/qpeek /api/qpeek/<queue> /api/qpolicy /api/qpolicy/<queue>
        /api/show/<id> /api/scan/jobs /api/scan/queues /api/failing /api/dead /api/dead/export
        /api/reports/queues /api/reports/slo /api/reports/audit /api/reports/findings /api/reports/runs
        /metrics /metrics/per-queue /api/history /api/overview
    """,
    "admin": "/api/audit /actions /connections",
}
POST = {
    "none": "/login /logout",
    "viewer": "/api/commands/<name> /api/commands/<name>/<subcommand>",
    "operator": """
        /api/add /api/ack /api/nack /api/enqueue /api/queue-now /api/dequeue /api/delete /api/pause
        /api/bulk/requeue /api/bulk/delete /api/bulk/ack /api/bulk/move /api/bulk/purge /api/bulk/redrive
        /api/dead/redrive /api/dead/purge /api/failing/retry /api/failing/bury /api/failing/cancel
    """,
    "admin": "/api/drain /api/config /api/meet",
}
#: Commands by the least role that may send them.
COMMANDS = {
    "viewer": """
        ACL/CAT ACL/GENPASS ACL/HELP ACL/WHOAMI
        AUTH CLIENT/RECEIPTS COMMAND COMMAND/COUNT COMMAND/DOCS COMMAND/INFO COMMAND/LIST ECHO HELLO INFO JSCAN PING
        PSUBSCRIBE PUNSUBSCRIBE QCONSUMERS QGROUP/LIST QINFO QLEN QNOTIFY QSCAN QSTAT QSTATUS QUIT RESET ROLE RQ.INFO
        SCAN/JOB SCAN/QUEUE SCHEDULE/LIST SCHEDULE/NEXT SELECT
        SLOTS SLOWLOG/LEN SUBSCRIBE TIME UNSUBSCRIBE WORKER/INFO WORKER/LIST WQ.LEN WQ.QUEUES WQ.REQUEST
    """,
    "viewer+bodies": """
        QLPEEK QPEEK QRPEEK RQ.INSPECT SCHEDULE/GET SHOW SLOWLOG/GET WAITJOB WQ.PEEK WQ.PROCS WQ.TASKS
    """,
    "operator": """
        ACKJOB ADDJOB CANCEL DELJOB DEQUEUE ENQUEUE FASTACK LOADJOB
        NACK PAUSE QACK QADD QFLUSH QGROUP/FORGET QGROUP/RETURN QGROUP/START QLPUSH QPOLICY QPURGE QREGISTER
        QRPUSH REDRIVE RQ.ACK RQ.PUSH
        RQ.PUSHX SCHEDULE/DEL SCHEDULE/FIRE SCHEDULE/PAUSE SCHEDULE/RESUME SCHEDULE/SET
        SLOWLOG/RESET THROTTLE WORKER/FAIL WORKER/KEEPALIVE
        WORKER/START WORKER/STOP WORKING WQ.CANCEL WQ.DELETE WQ.DEQUEUE WQ.ENQUEUE WQ.FINISH WQ.RETURN WQ.UNWORK
        WQ.WORK
    """,
    "operator+bodies": "GETJOB QGET QRPOP RQ.POP RQ.RECOVER",
    "admin+bodies": "CLUSTER/ASK",
    "admin": """
        ACL/DELUSER ACL/DRYRUN ACL/GETUSER ACL/LIST ACL/LOAD ACL/LOG ACL/SAVE ACL/SETUSER ACL/USERS
        BGREWRITEAOF CLIENT/GETNAME CLIENT/ID CLIENT/INFO CLIENT/KILL CLIENT/LIST CLIENT/MAINT_NOTIFICATIONS
        CLIENT/PAUSE CLIENT/REPLY CLIENT/SETINFO CLIENT/SETNAME CLIENT/UNBLOCK CLUSTER/COUNT-FAILURE-REPORTS
        CLUSTER/FORGET CLUSTER/INFO CLUSTER/LEAVING CLUSTER/MEET CLUSTER/MYID CLUSTER/NODES CLUSTER/RESET
        CLUSTER/SAVECONFIG CONFIG/GET CONFIG/RESETSTAT CONFIG/REWRITE CONFIG/SET DEBUG/ERROR
        DEBUG/FLUSHALL DEBUG/SLEEP DEBUG/STRUCTSIZE LATENCY/DOCTOR LATENCY/GRAPH LATENCY/HISTORY
        LATENCY/LATEST LATENCY/RESET MONITOR SHUTDOWN
    """,
}


def _expected() -> Iterator[tuple[tuple[str, str], str]]:
    for method, table, prefix in (("GET", GET, ""), ("POST", POST, ""), ("POST", COMMANDS, "/api/commands/")):
        for needed, paths in table.items():
            for path in paths.split():
                yield (method, prefix + path), needed


EXPECTED = dict(_expected())  #: (method, path): who is let in
#: They change nothing and leak nothing, so that a browser may post its form from wherever it says that it is.
FORMS = {"/login", "/logout"}


@attrs.define
class Walk:
    """One visitor and all paths."""

    client: AdminClient
    role: str

    async def status(self, method: str, path: str, **headers: str) -> int:
        """The status that a request is answered with; an answer that streams is hung up on."""
        fields = {"Content-Type": "application/json"} if method not in ("GET", "HEAD") else {}
        if self.role != "none":
            fields["Authorization"] = f"Bearer {token_of(self.role)}"
        body = b'{"no field of any route": 1}' if fields.get("Content-Type") and method != "OPTIONS" else b""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        exchange: Exchange = self.client.begin(method, filled(path), body=body, headers={**fields, **named})
        await wait_until(lambda: exchange.ended or b"\r\n\r\n" in exchange.received)
        exchange.hang_up()
        return int(exchange.received.split(b" ", 2)[1])


def token_of(role: str) -> str:
    return f"token-of-{role.replace('+', '-')}-0123456789"


def filled(path: str) -> str:
    """A path with something in the place of each placeholder."""
    parts = ["x" if part.startswith("<") else part for part in path.split("/")]
    return "/".join(parts)


def refusal(role: str, needed: str) -> int | None:
    """The status that a role is kept out with; None when it is let in."""
    least, _, bodies = needed.partition("+")
    if RANK[role.partition("+")[0]] < RANK[least]:
        return 401 if role == "none" else 403
    return 403 if bodies and not role.endswith("+bodies") else None


@pytest.fixture
def walk(launch: Launch, tmp_path: Path, request: pytest.FixtureRequest) -> Walk:
    lines = [f"{role.replace('+', '-')} {role.replace('+', ' ')} {token_of(role)}" for role in ROLES if role != "none"]
    path = tmp_path / "tokens"
    path.write_text("\n".join(lines))
    path.chmod(0o600)
    return Walk(admin(launch(f"http-token-file {path}")), request.param)


PATHS = sorted({route.path for route in ROUTES})


def test_every_route_has_its_line_in_the_table() -> None:
    declared = {(route.method, route.path) for route in ROUTES}
    missing = sorted(declared - set(EXPECTED))
    assert not missing, f"say in EXPECTED (GET, POST or COMMANDS of {__file__}) who may use: {missing}"
    assert not sorted(set(EXPECTED) - declared), "EXPECTED names routes that are no more"


@pytest.mark.parametrize("walk", ROLES, indirect=True)
@async_test
async def test_each_role_is_let_in_where_it_should_be_and_nowhere_else(walk: Walk) -> None:
    wrong: list[Any] = []
    for path in PATHS:
        for method in METHODS:
            status = await walk.status(method, path)
            if not fits(status, method, path, walk.role):
                wrong.append((walk.role, method, path, status))
    assert not wrong


def fits(status: int, method: str, path: str, role: str) -> bool:
    """Hold a status against the table."""
    if method == "OPTIONS":
        return status == 204
    needed = EXPECTED.get(("GET" if method == "HEAD" else method, path))
    if needed is None:
        return status == 405
    refused = refusal(role, needed)
    if refused is not None:
        return status == refused
    return status not in (401, 403, 405, 413, 415, 421, 429, 431) and (status < 500 or status == 503)


@pytest.mark.parametrize("walk", ["admin+bodies"], indirect=True)
@async_test
async def test_nothing_is_answered_under_the_name_of_another_host(walk: Walk) -> None:
    for path in PATHS:
        for method in METHODS:
            status = await walk.status(method, path, Host="evil.example")
            # The files that every page is made with are the same everywhere: the page that says 421 needs them, too.
            assert (status == 421) is not path.startswith("/static/"), (method, path)


@pytest.mark.parametrize("walk", ["admin+bodies"], indirect=True)
@async_test
async def test_no_other_site_posts_and_nothing_but_json_is_posted(walk: Walk) -> None:
    for method, path in EXPECTED:
        if method != "GET":
            assert await walk.status(method, path, Origin="http://evil.example") == 403, path
            assert await walk.status(method, path, Sec_Fetch_Site="cross-site") == 403, path
            assert await walk.status(method, path, Content_Type="text/plain") == 415, path
            form = await walk.status(method, path, Content_Type="application/x-www-form-urlencoded")
            assert (form == 415) is (path not in FORMS), path


@pytest.mark.parametrize("walk", ["none"], indirect=True)
@async_test
async def test_pages_send_strangers_to_the_login(walk: Walk) -> None:
    pages = [route.path for route in ROUTES if route.media.startswith("text/html") and route.method == "GET"]
    for path in pages:
        status = await walk.status("GET", path, Accept="text/html")
        assert status == (303 if EXPECTED["GET", path] != "none" else 200), path
