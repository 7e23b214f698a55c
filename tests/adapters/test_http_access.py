"""Who may do what through HTTP: tokens, sessions, the password, other hosts and other sites."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import pytest_twisted
from twisted.internet.task import Clock

from disqued.acl.attempts import BURST, REMEMBERED, Attempts, network_of
from disqued.web.http.auth import Access
from disqued.web.http.exchange import Role
from disqued.web.http.sessions import LIFE_S, SESSIONS_MAX, Sessions
from disqued.web.http.tokens import TokenError, TokenFile, digest_of, parse
from disqued.web.server import AdminError, AdminServer
from tests.adapters.http import AdminClient, admin
from tests.adapters.inprocess import Running, wait_until

Launch = Callable[..., Running]
async_test = pytest_twisted.ensureDeferred

VIEWER, OPERATOR, ADMIN = "viewer-token-0123456789", "operator-token-0123456789", "admin-token-0123456789"
FILE = f"""
# name  role      token
vic     viewer            {VIEWER}
olga    operator  bodies  {OPERATOR}   # sees bodies
ada     admin             {ADMIN}
"""
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def write_tokens(folder: Path, text: str = FILE, mode: int = 0o600) -> Path:
    path = folder / "tokens"
    path.write_text(text)
    path.chmod(mode)
    return path


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def guarded(launch: Launch, tmp_path: Path) -> AdminClient:
    """An admin side that asks for tokens."""
    return admin(launch(f"http-token-file {write_tokens(tmp_path)}"))


def with_cookie(answer: Any) -> dict[str, str]:
    """The headers of a browser that was given a session, and says where it comes from."""
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0], "Sec-Fetch-Site": "same-origin"}


# The file.


def test_a_line_is_a_name_a_role_the_right_to_bodies_and_a_token() -> None:
    tokens = parse(FILE, Path("t"))
    assert [(token.name, token.role, token.sees_bodies) for token in tokens] == [
        ("vic", Role.VIEWER, False), ("olga", Role.OPERATOR, True), ("ada", Role.ADMIN, False),
    ]  # fmt: skip
    assert tokens[0].digest == digest_of(VIEWER)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ann viewer", "line 1: 2 words, allowed is: name, role"),
        (f"\nann viewer body {VIEWER}", "line 2: 4 words, and the third is not bodies"),
        (f"ann boss {VIEWER}", "there is no role 'boss'; allowed are viewer, operator, admin"),
        (f"a/b viewer {VIEWER}", "the name is none; allowed are"),
        ("ann viewer short", "the token of ann is none; allowed are 16 to 512 visible ASCII characters"),
        (f"ann viewer {VIEWER}\nbob admin {VIEWER}", "line 2: its token stands on line 1, too"),
    ],
)
def test_a_wrong_line_is_named_with_what_is_allowed_and_no_token_is_shown(text: str, says: str) -> None:
    with pytest.raises(TokenError) as error:
        parse(text, Path("/etc/tokens"))
    assert says in str(error.value)
    assert str(error.value).startswith("/etc/tokens")
    assert VIEWER not in str(error.value)


def test_a_file_without_a_token_opens_no_door(tmp_path: Path) -> None:
    with pytest.raises(TokenError, match="there is no token in it; allowed is: name, role"):
        TokenFile(write_tokens(tmp_path, "# nobody yet"), 0)


def test_a_comment_alone_takes_all_tokens_out_and_an_empty_file_none(tmp_path: Path) -> None:
    path = write_tokens(tmp_path)
    tokens = TokenFile(path, 0.0)
    path.write_text("")
    assert len(tokens.tokens(1.5)) == 3
    assert "it is empty" in tokens.complaint
    path.write_text("# nobody\n")
    assert tokens.tokens(3.0) == ()
    assert tokens.complaint == ""


def test_a_file_that_every_user_may_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenError, match=r"every user of this machine may read it .mode 644.; allowed are modes such"):
        TokenFile(write_tokens(tmp_path, mode=0o644), 0)


def test_a_bad_file_stops_the_start(launch: Launch, tmp_path: Path) -> None:
    running = launch(f"http-token-file {write_tokens(tmp_path, 'ann viewer')}")
    with pytest.raises(AdminError, match=r"http-token-file .*tokens, line 1: 2 words"):
        AdminServer(running.daemon)


def test_a_name_that_is_no_host_stops_the_start(launch: Launch) -> None:
    running = launch("http-hosts https://queue.example")
    with pytest.raises(AdminError, match=r"http-hosts: 'https://queue.example' is no host; allowed are names"):
        AdminServer(running.daemon)


def test_tokens_are_read_again_and_a_broken_file_leaves_the_old_ones(tmp_path: Path) -> None:
    path = write_tokens(tmp_path)
    tokens = TokenFile(path, 0.0)
    path.write_text(f"new admin {OPERATOR}")
    assert len(tokens.tokens(0.5)) == 3
    assert [token.name for token in tokens.tokens(1.5)] == ["new"]
    path.write_text("new admin")
    assert [token.name for token in tokens.tokens(3.0)] == ["new"]
    path.unlink()
    assert [token.name for token in tokens.tokens(4.5)] == ["new"]
    path = write_tokens(tmp_path)
    assert len(tokens.tokens(6.0)) == 3


# Tokens.


@async_test
async def test_the_overview_says_that_the_file_of_tokens_is_not_in_force_as_it_is(
    launch: Launch, tmp_path: Path
) -> None:
    path = write_tokens(tmp_path)
    client = admin(launch(f"http-token-file {path}"))
    clock = Clock()
    clock.advance(client.site.access._clock.seconds() + 5)
    client.site.access._clock = clock
    path.write_text("oops")
    answer = await client.get("/", headers=bearer(ADMIN))
    assert b"The token file is invalid" in answer.body
    write_tokens(tmp_path)
    clock.advance(5)
    answer = await client.get("/", headers=bearer(ADMIN))
    assert b"not in force as it is" not in answer.body


@async_test
async def test_a_token_decides_what_its_bearer_may_do(guarded: AdminClient) -> None:
    assert (await guarded.get("/api/info", headers=bearer(VIEWER))).status == 200
    refused = await guarded.get("/api/audit", headers=bearer(OPERATOR))
    assert refused.status == 403
    assert refused.body["detail"] == "olga has the role operator; allowed from admin on"
    assert (await guarded.get("/api/audit", headers=bearer(ADMIN))).status == 200


@async_test
async def test_tokens_are_in_their_own_case_in_a_header_and_in_the_login_form(launch: Launch, tmp_path: Path) -> None:
    upper, lower = "SECRET-Token-0123456789", "secret-token-0123456789"
    path = write_tokens(tmp_path, f"Ada admin {upper}\nada viewer {lower}\n")
    client = admin(launch(f"http-token-file {path}"))
    for token, status in ((upper, 200), (lower, 403), (upper.lower() + "x", 401), (lower.upper(), 401)):
        assert (await client.get("/api/audit", headers=bearer(token))).status == status
        opened = await client.post("/login", {"token": token})
        assert (opened.status == 401) is (status == 401)
        if status != 401:
            assert (await client.get("/api/audit", headers=with_cookie(opened))).status == status
        body = f"token={token}&next=/".encode()
        answer = await client.request("POST", "/login", body=body, headers=FORM)
        assert ("set-cookie" in answer.headers) is (status != 401)
    refused = await client.get("/api/audit", headers=bearer(lower))
    assert refused.body["detail"] == "ada has the role viewer; allowed from admin on"


@async_test
async def test_without_a_token_it_is_said_how_to_give_one(guarded: AdminClient) -> None:
    for headers in ({}, bearer("nonsense-0123456789"), {"Authorization": "Basic YTpi"}):
        answer = await guarded.get("/api/info", headers=headers)
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="disqued"'
        assert "nonsense" not in str(answer.body)


@async_test
async def test_a_person_before_a_page_is_sent_to_the_login(guarded: AdminClient) -> None:
    answer = await guarded.get("/queues?q=a%20b", headers={"Accept": "text/html,*/*;q=0.8"})
    assert answer.status == 303
    assert answer.headers["location"] == "/login?next=%2Fqueues%3Fq%3Da%2520b"
    assert (await guarded.get("/api/info", headers={"Accept": "text/html"})).status == 401


@async_test
async def test_wrong_tokens_are_slowed_down_and_others_are_not(guarded: AdminClient) -> None:
    assert (await guarded.get("/api/info", headers=bearer(VIEWER))).status == 200
    for _ in range(BURST):
        assert (await guarded.get("/api/info", headers=bearer("x" * 20))).status == 401
    slowed = await guarded.get("/api/info", headers=bearer(OPERATOR))
    assert slowed.status == 429
    assert 1 <= int(slowed.headers["retry-after"]) <= 6
    # What was right from here before still is, and other addresses have tried nothing.
    assert (await guarded.get("/api/info", headers=bearer(VIEWER))).status == 200
    elsewhere = await guarded.get("/api/info", headers=bearer(OPERATOR), address=("127.0.0.9", 50_000))
    assert elsewhere.status == 200


def test_tries_come_back_with_time_and_memory_is_bounded() -> None:
    attempts = Attempts()
    for _ in range(BURST):
        attempts.failed("a", 100.0)
    assert attempts.wait("a", b"", 100.0) == 6
    assert attempts.wait("a", b"", 106.0) == 0
    for number in range(2 * REMEMBERED):
        attempts.failed(str(number), 107.0)
        attempts.succeeded(str(number), b"")
    assert len(attempts._accounts) == len(attempts._right) == REMEMBERED


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::ffff:c000:207", "192.0.2.7"),
        ("2001:db8:0:1:aaaa::7", "2001:db8:0:1::/64"),
        ("2001:DB8::1:0:0:0:1%eth0", "2001:db8:0:1::/64"),
        ("fe80::1%a:b", "fe80::/64"),
        ("::1", "::/64"),
        ("unix", "unix"),
        ("", ""),
        ("a:b", "a:b"),
    ],
)
def test_an_address_counts_with_all_that_its_owner_has(address: str, network: str) -> None:
    assert network_of(address) == network


def test_who_has_a_network_of_ipv6_has_no_more_tries_than_others() -> None:
    attempts = Attempts()
    attempts.succeeded("2001:db8::5", b"right")
    for number in range(BURST):
        assert attempts.wait(f"2001:db8::{number:x}:1", b"wrong", 100.0) == 0
        attempts.failed(f"2001:db8::{number:x}:1", 100.0)
    assert attempts.wait("2001:db8::ffff", b"wrong", 100.0) == 6
    assert attempts.wait("2001:db8::ffff", b"right", 100.0) == 0
    assert attempts.wait("2001:db8:0:1::1", b"wrong", 100.0) == 0


@async_test
async def test_the_password_is_the_token_of_an_admin_and_may_change(launch: Launch) -> None:
    running = launch("requirepass first-pass")
    client = admin(running)
    assert (await client.get("/api/info")).status == 401
    assert (await client.get("/api/audit", headers=bearer("first-pass"))).status == 200
    session = with_cookie(await client.post("/login", {"token": "first-pass"}))
    assert (await client.get("/api/audit", headers=session)).status == 200
    running.daemon.config.set("requirepass", "second")
    assert (await client.get("/api/audit", headers=bearer("first-pass"))).status == 401
    assert (await client.get("/api/audit", headers=session)).status == 401
    assert (await client.get("/api/audit", headers=bearer("second"))).status == 200
    running.daemon.config.set("requirepass", "")
    assert (await client.get("/api/audit")).status == 200


# Sessions.


@async_test
async def test_the_login_form_opens_a_session_and_goes_where_it_was_asked(guarded: AdminClient) -> None:
    body = f"token={VIEWER}&next=%2Fqueues%3Fq%3Da".encode()
    answer = await guarded.request("POST", "/login", body=body, headers=FORM)
    assert (answer.status, answer.headers["location"]) == (303, "/queues?q=a")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/", f"Max-Age={LIFE_S}"} <= set(cookie.split("; "))
    assert VIEWER not in cookie
    assert (await guarded.get("/api/info", headers=with_cookie(answer))).status == 200
    assert (await guarded.get("/api/audit", headers=with_cookie(answer))).status == 403


@pytest.mark.parametrize("target", ["https://evil.example/", "//evil.example", "/\\evil.example", "", "/a%0d%0ab: c"])
@async_test
async def test_the_login_leads_nowhere_else(guarded: AdminClient, target: str) -> None:
    body = f"token={VIEWER}&next={target}".encode()
    assert (await guarded.request("POST", "/login", body=body, headers=FORM)).headers["location"] == "/"


@async_test
async def test_a_wrong_token_leads_back_to_the_form(guarded: AdminClient) -> None:
    answer = await guarded.request("POST", "/login", body=b"token=wrong&next=/queues", headers=FORM)
    assert (answer.status, answer.headers["location"]) == (303, "/login?failed=token&next=%2Fqueues")
    form = await guarded.get(answer.headers["location"])
    assert form.status == 200
    assert b"Invalid token" in form.body
    assert "set-cookie" not in answer.headers
    assert (await guarded.post("/login", {"token": "wrong"})).status == 401
    assert (await guarded.post("/login", {"tokens": "wrong"})).status == 400
    assert (await guarded.post("/login", "wrong")).status == 400
    for _ in range(20):
        answer = await guarded.request("POST", "/login", body=b"token=worse&next=/", headers=FORM)
    assert answer.headers["location"] == "/login?failed=wait&next=%2F"
    assert b"Too many failed attempts" in (await guarded.get(answer.headers["location"])).body


@async_test
async def test_the_logout_ends_the_session(guarded: AdminClient) -> None:
    session = with_cookie(await guarded.post("/login", {"token": VIEWER}))
    assert (await guarded.request("POST", "/logout", headers={**FORM, **session})).headers["location"] == "/login"
    assert (await guarded.get("/api/info", headers=session)).status == 401


@async_test
async def test_a_session_ends_with_its_token(guarded: AdminClient, tmp_path: Path) -> None:
    session = with_cookie(await guarded.post("/login", {"token": VIEWER}))
    file = guarded.site.access._file
    assert file is not None
    write_tokens(tmp_path, f"ada admin {ADMIN}")
    file._looked_at = -10.0
    assert (await guarded.get("/api/info", headers=session)).status == 401
    assert (await guarded.get("/api/info", headers=bearer(ADMIN))).status == 200


def test_sessions_end_by_themselves_and_are_bounded() -> None:
    sessions = Sessions()
    first = sessions.begin(b"digest", 0.0)
    assert sessions.token(first, LIFE_S - 1) == b"digest"
    assert sessions.token(first, LIFE_S) is None
    names = [sessions.begin(b"digest", 1.0) for _ in range(SESSIONS_MAX + 1)]
    assert sessions.token(names[0], 2.0) is None
    assert sessions.token(names[1], 2.0) == b"digest"
    assert len(set(names)) == len(names)


# Other hosts, other sites.


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:7780", "127.9.9.9", "[::1]:80", "queue.example:8"]
)
@async_test
async def test_our_hosts_are_served(launch: Launch, host: str) -> None:
    client = admin(launch("http-hosts 'queue.example other.example'"))
    assert (await client.get("/api/info", headers={"Host": host})).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "0.0.0.0", "[::]", "8.8.8.8", "127.1", "a b"],
)
@async_test
async def test_other_hosts_are_refused_whatever_is_asked_for(launch: Launch, host: str) -> None:
    client = admin(launch("http-hosts queue.example"))
    for path in ("/api/info", "/nothing"):
        answer = await client.get(path, headers={"Host": host})
        assert (answer.status, answer.body["code"]) == (421, "HTTP")
        assert "allowed are localhost, its own addresses" in answer.body["detail"]


@async_test
async def test_the_address_that_a_request_came_to_is_ours(launch: Launch) -> None:
    client = admin(launch())
    assert (await client.get("/api/info", headers={"Host": "10.0.0.1:7780"})).status == 200


@async_test
async def test_a_request_names_its_host_once(launch: Launch) -> None:
    client = admin(launch())
    for text in ("", "Host: localhost\r\nHost: localhost\r\n"):
        exchange = client.begin("GET", "/api/info")
        await exchange.answer()
        fresh = client.factory.buildProtocol(None)
        exchange.transport.clear()
        exchange.transport.connected = True
        fresh.makeConnection(exchange.transport)
        exchange.transport.protocol = fresh
        fresh.dataReceived(f"GET /api/info HTTP/1.1\r\n{text}Connection: close\r\n\r\n".encode())
        await wait_until(lambda at=exchange: at.ended)
        assert exchange.received.startswith(b"HTTP/1.1 400 ")


ORIGINS = [
    ({}, True),
    ({"Sec-Fetch-Site": "same-origin"}, True),
    ({"Sec-Fetch-Site": "none"}, True),
    ({"Sec-Fetch-Site": "same-site"}, False),
    ({"Sec-Fetch-Site": "cross-site"}, False),
    ({"Origin": "http://127.0.0.1:7780"}, True),
    ({"Origin": "http://127.0.0.1:7781"}, False),
    ({"Origin": "http://127.0.0.1"}, False),
    ({"Origin": "http://localhost:7780"}, False),
    ({"Origin": "null"}, False),
    ({"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}, False),
    ({"Origin": "https://localhost", "Host": "localhost"}, True),
    ({"Origin": "https://localhost", "Host": "localhost:443"}, True),
    ({"Origin": "http://localhost:x", "Host": "localhost"}, False),
]


@pytest.mark.parametrize(("headers", "goes"), ORIGINS)
@async_test
async def test_other_sites_cannot_write(launch: Launch, headers: dict[str, str], goes: bool) -> None:
    client = admin(launch())
    assert (await client.post("/logout", headers=headers)).status == (204 if goes else 403)
    looks = headers if headers.get("Sec-Fetch-Site") != "cross-site" else {}
    assert (await client.get("/api/info", headers=looks)).status == 200


@pytest.mark.parametrize(
    ("media", "status"),
    [
        ("application/json", 204),
        ("application/json; charset=utf-8", 204),
        ("Application/JSON", 204),
        ("text/plain", 415),
        ("application/jsonp", 415),
        ("multipart/form-data; boundary=x", 415),
        ("", 415),
    ],
)
@async_test
async def test_a_write_is_json(launch: Launch, media: str, status: int) -> None:
    client = admin(launch())
    headers = {"Content-Type": media} if media else {}
    answer = await client.request("POST", "/logout", headers=headers)
    assert answer.status == status
    if status == 415:
        assert "allowed is application/json" in answer.body["detail"]


@async_test
async def test_with_a_session_something_says_which_page_writes(guarded: AdminClient) -> None:
    session = with_cookie(await guarded.post("/login", {"token": VIEWER}))
    cookie = {"Cookie": session["Cookie"]}
    refused = await guarded.post("/logout", headers=cookie)
    assert refused.status == 403
    assert "X-Disqued: 1" in refused.body["detail"]
    assert (await guarded.post("/logout", headers={**cookie, "X-Disqued": "1"})).status == 204


def test_an_access_without_tokens_is_for_loopback_alone(launch: Launch) -> None:
    running = launch()
    daemon = running.daemon
    assert Access(
        daemon.config, daemon.reactor, daemon.access.limits_unauthenticated, daemon.access.admin_digest
    ).is_open


@pytest.mark.parametrize("rule", [">secret", "off", "-debug", "resetkeys", "resetchannels"])
@async_test
async def test_without_tokens_it_is_closed_unless_any_client_may_do_everything(launch: Launch, rule: str) -> None:
    running = launch()
    client = admin(running)
    assert (await client.get("/api/info")).status == 200
    await (await running.connect()).call("ACL", "SETUSER", "default", rule)
    assert (await client.get("/api/info")).status == 401
    assert (await client.get("/api/info", headers=bearer("secret"))).status == 401


@pytest.mark.parametrize("rules", [["off"], ["-debug"], ["resetkeys"], ["resetpass", ">other"], ["nopass"]])
@async_test
async def test_the_password_of_the_settings_is_an_admins_only_where_clients_may_do_everything_with_it(
    launch: Launch, rules: list[str]
) -> None:
    running = launch(settings="requirepass secret")
    client, other = admin(running), await running.connect()
    await other.call("AUTH", "secret")
    session = with_cookie(await client.post("/login", {"token": "secret"}))
    assert (await client.get("/api/info", headers=bearer("secret"))).status == 200
    await other.call("ACL", "SETUSER", "default", *rules)
    assert (await client.get("/api/info", headers=bearer("secret"))).status == 401
    assert (await client.get("/api/info", headers=session)).status == 401
    assert (await client.get("/api/info")).status == 401


@async_test
async def test_a_password_that_the_file_of_users_leaves_without_effect_opens_nothing(
    launch: Launch, tmp_path: Path
) -> None:
    path = tmp_path / "users.acl"
    path.write_text("user default off\nuser ann on nopass ~* &* +@all\n")
    path.chmod(0o600)
    running = launch(settings=f"requirepass leftover\naclfile {path}")
    client, ann = admin(running), await running.connect()
    assert (await client.get("/api/info", headers=bearer("leftover"))).status == 401
    await ann.call("AUTH", "ann", "any")
    assert await ann.call("CONFIG", "SET", "requirepass", "later") == b"OK"
    assert (await client.get("/api/info", headers=bearer("later"))).status == 401
    assert str(await (await running.connect()).call("AUTH", "later")).startswith("ERR invalid password")
    await ann.call("ACL", "SETUSER", "default", "on", "+@all", "~*", "&*")
    assert (await client.get("/api/info", headers=bearer("later"))).status == 200
    assert await (await running.connect()).call("AUTH", "later") == b"OK"


@async_test
async def test_wrong_tokens_and_wrong_passwords_are_counted_together(launch: Launch) -> None:
    running = launch(settings="requirepass secret")
    client, guesser = admin(running), await running.connect()
    for number in range(BURST):
        await guesser.call("AUTH", f"guess-{number}")
    assert (await client.get("/api/info", headers=bearer("secret"))).status == 429


@async_test
async def test_answers_are_not_kept_and_tell_no_versions(launch: Launch) -> None:
    client = admin(launch())
    for path in ("/api/info", "/nothing"):
        headers = (await client.get(path)).headers
        assert headers["cache-control"] == "no-store"
        assert headers["server"] == "disqued"
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'self'" in headers["content-security-policy"]


@async_test
async def test_methods_that_are_not_possible_are_told_with_those_that_are(launch: Launch) -> None:
    client = admin(launch())
    answer = await client.request("DELETE", "/api/info")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    options = await client.request("OPTIONS", "/login")
    assert (options.status, options.body) == (204, b"")
    assert "POST" in options.headers["allow"]
    assert "access-control-allow-origin" not in options.headers
    assert (await client.request("OPTIONS", "/nothing")).status == 404


@async_test
async def test_head_tells_what_get_would(launch: Launch) -> None:
    answer = await admin(launch()).request("HEAD", "/api/info")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["content-length"]) > 100


# What is open while rights change.


@pytest.mark.parametrize("ends_by", ["token", "rights", "logout"])
@async_test
async def test_a_page_that_is_open_hears_no_more_once_its_token_is_gone(
    guarded: AdminClient, tmp_path: Path, ends_by: str
) -> None:
    session = with_cookie(await guarded.post("/login", {"token": VIEWER}))
    exchange = guarded.begin("GET", "/api/events", headers=session if ends_by == "logout" else bearer(VIEWER))
    await wait_until(lambda: b"nodes" in exchange.received)
    if ends_by == "token":
        write_tokens(tmp_path, f"olga operator {OPERATOR}")
    elif ends_by == "rights":
        write_tokens(tmp_path, f"vic viewer bodies {VIEWER}")
    else:
        await guarded.request("POST", "/logout", headers={**FORM, **session})
    await wait_until(lambda: exchange.ended)
    assert guarded.site.live.listeners == []


@pytest.mark.parametrize("count", ["9" * 5_000, "-" + "9" * 5_000, "1e3", "\u0663"])
@async_test
async def test_a_number_that_is_none_is_refused(guarded: AdminClient, count: str) -> None:
    answer = await guarded.get(f"/api/scan/jobs?count={quote(count)}", headers=bearer(VIEWER))
    assert answer.status == 400
    assert "allowed are whole numbers from 1 to" in answer.body["detail"]


@async_test
async def test_a_number_that_no_float_holds_is_refused_and_the_log_of_actions_stays_json(guarded: AdminClient) -> None:
    body = b'{"queue": "q", "body": "x", "timeout": 1e999}'
    headers = {**bearer(OPERATOR), "Content-Type": "application/json"}
    answer = await guarded.request("POST", "/api/add", body=body, headers=headers)
    assert (answer.status, answer.body["detail"]) == (
        400, "the body is no JSON text in UTF-8: 1e999 is larger than any number that is kept",
    )  # fmt: skip
    assert "inf" not in str((await guarded.get("/api/audit", headers=bearer(ADMIN))).body["entries"][0]["asked"])


@pytest.mark.parametrize(
    ("headers", "path", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, "/api/scan/jobs", 403),
        ({"Sec-Fetch-Site": "cross-site"}, "/api/events", 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, "/queues", 200),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, "/api/scan/jobs", 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, "/healthz", 200),
        ({}, "/api/scan/jobs", 200),
    ],
)
@async_test
async def test_what_a_page_of_another_site_makes_a_browser_ask_is_refused_but_for_links(
    launch: Launch, headers: dict[str, str], path: str, status: int
) -> None:
    assert (await admin(launch()).get(path, headers=headers)).status == status
