"""Commands on connections: who is there, which protocol, and CLIENT."""

from urllib.parse import unquote

import pytest

from disqued.acl.user import User
from disqued.commands import table
from disqued.commands.clients import LISTED_PER_PART, PAUSE_MAX_MS
from disqued.commands.connection import NAMING_MAX
from disqued.commands.shapes import NO_REPLY
from disqued.core.model.messages import Greeting, Target
from disqued.core.model.peers import FAIL, LEAVING, PFAIL
from tests.fakes import NODE_ID, Client, Daemon

OK = b"OK"
NOT_AN_INTEGER = b"ERR value is not an integer or out of range - "
CLIENT_MISUSE = b"ERR Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)"


UNBLOCKED = b"UNBLOCKED client unblocked via CLIENT UNBLOCK"


@pytest.fixture
def daemon():
    return Daemon()


@pytest.fixture
def client(daemon):
    return Client(daemon)


@pytest.fixture
def stranger(daemon):
    """A client of a daemon with a password, who has not said it."""
    daemon.password = b"secret"
    return Client(daemon, authenticated=False)


# AUTH.


@pytest.mark.parametrize("words", [("AUTH", "secret"), ("AUTH", "default", "secret"), ("auth", b"secret")])
def test_the_right_password_lets_a_client_in_and_lifts_its_limits(stranger, words):
    assert stranger.says(*words) == OK
    assert stranger.authenticated
    assert stranger.limits_lifted


def test_a_wrong_password_is_refused_in_disques_words(stranger):
    assert stranger.is_refused("AUTH", "guess") == b"ERR invalid password"
    assert not stranger.authenticated
    assert not stranger.limits_lifted


def test_a_wrong_password_locks_out_a_client_that_was_in(daemon, stranger):
    stranger.says("AUTH", "secret")
    stranger.is_refused("AUTH", "guess")
    assert not stranger.authenticated


@pytest.mark.parametrize("words", [("AUTH", "bob", "secret"), ("AUTH", "default", "guess"), ("AUTH", "", "secret")])
def test_with_a_user_every_refusal_is_wrongpass(stranger, words):
    assert stranger.is_refused(*words) == b"WRONGPASS invalid username-password pair or user is disabled."
    assert not stranger.authenticated


def test_a_password_is_refused_when_none_is_set(client):
    for words in (("AUTH", "x"), ("AUTH", "default", "x")):
        assert client.is_refused(*words) == b"ERR Client sent AUTH, but no password is set"


def test_auth_takes_one_or_two_words(client):
    assert client.is_refused("AUTH") == b"ERR wrong number of arguments for 'auth' command"
    too_many = b"ERR wrong number of arguments for 'auth' command: 3 words at most"
    assert client.is_refused("AUTH", "a", "b", "c") == too_many


# HELLO.


def test_hello_alone_answers_the_nodes(client):
    assert client.says("HELLO") == [1, NODE_ID, [NODE_ID, b"", b"7711", b"1"]]


def test_a_node_that_is_leaving_is_not_recommended(client):
    client.says("CLUSTER", "LEAVING", "yes")
    assert client.says("HELLO")[2][3] == b"100"


def test_hello_tells_clients_where_to_go_first(client):
    node = client.host.node
    expected = [[NODE_ID, b"10.0.0.1", b"7711", b"1"]]
    for letter, linked, flags, priority in (
        ("a", True, 0, b"1"),
        ("b", False, 0, b"5"),
        ("c", True, PFAIL, b"10"),
        ("d", False, PFAIL, b"10"),
        ("e", True, FAIL, b"100"),
        ("f", True, LEAVING, b"100"),
    ):
        node_id, host = letter.encode() * 40, f"10.0.1.{ord(letter)}"
        greeting = Greeting(node_id, "", 7000, 17000, 0, meets=True)
        node.greeted(greeting, host, "10.0.0.1")
        if linked:
            node.link_opened(Target(host, 17000, node_id, meets=True), greeting, "10.0.0.1")
        node.state.peers.by_id[node_id].flags = flags
        expected.append([node_id, host.encode(), b"7000", priority])
    assert client.says("HELLO") == [1, NODE_ID, *expected]


def test_hello_does_not_name_a_node_whose_address_is_lost(client):
    node = client.host.node
    node.greeted(Greeting(b"a" * 40, "", 7000, 17000, 0, meets=True), "10.0.0.2", "10.0.0.1")
    node.state.peers.by_id[b"a" * 40].host = ""
    assert len(client.says("HELLO")) == 3


def test_hello_tells_the_port_that_is_announced(client):
    client.host.node.membership.own_address.announce("192.0.2.1", 7000, 17000)
    assert client.says("HELLO")[2] == [NODE_ID, b"192.0.2.1", b"7000", b"1"]


def test_hello_alone_does_not_change_the_protocol(client):
    client.says("HELLO", "3")
    assert client.says("HELLO")[0] == 1
    assert client.protocol == 3


@pytest.mark.parametrize("version", [2, 3])
def test_hello_with_a_version_is_the_handshake_of_redis(client, version):
    reply = client.says("HELLO", str(version))
    assert client.protocol == version
    assert list(reply) == [b"server", b"version", b"proto", b"id", b"mode", b"role", b"modules"]
    assert (reply[b"proto"], reply[b"id"], reply[b"modules"]) == (version, client.id, [])


@pytest.mark.parametrize("version", ["1", "4", "-3", "x", "99999999999999999999"])
def test_another_version_is_refused_and_changes_nothing(client, version):
    assert client.is_refused("HELLO", version) == b"NOPROTO unsupported protocol version"
    assert client.protocol == 2


def test_the_handshake_can_authenticate_and_name_the_connection(stranger):
    stranger.says("HELLO", "3", "SETNAME", "me", "AUTH", "default", "secret")
    assert (stranger.authenticated, stranger.name, stranger.protocol) == (True, b"me", 3)


def test_a_handshake_with_a_wrong_password_changes_nothing(stranger):
    line = stranger.is_refused("HELLO", "3", "AUTH", "default", "guess", "SETNAME", "me")
    assert line == b"WRONGPASS invalid username-password pair or user is disabled."
    assert (stranger.authenticated, stranger.name, stranger.protocol) == (False, b"", 2)


def test_a_stranger_gets_neither_nodes_nor_a_handshake(stranger):
    assert stranger.is_refused("HELLO") == b"NOAUTH Authentication required."
    assert stranger.is_refused("HELLO", "3").startswith(b"NOAUTH Authentication required: HELLO 2|3 AUTH default")
    assert stranger.protocol == 2


def test_words_without_a_version_are_refused_with_the_form_to_use(client):
    for words in (("HELLO", "SETNAME", "me"), ("HELLO", "AUTH", "default", "x")):
        assert client.is_refused(*words).endswith(b"HELLO 2|3 [AUTH user password] [SETNAME name]")


def test_a_name_in_a_handshake_is_held_to_the_same_rule(client):
    assert client.is_refused("HELLO", "3", "SETNAME", "a b").startswith(b"ERR Client names cannot contain")


def test_hello_refuses_words_it_does_not_know(client):
    for words, line in (
        (("WHAT",), b"unknown option 'WHAT'; expected version, AUTH or SETNAME"),
        (("AUTH", "default"), b"AUTH without its parts: expected AUTH user password"),
        (("SETNAME",), b"SETNAME without its value: allowed are up to 256 bytes from ! to ~; none for no name"),
    ):
        assert client.is_refused("HELLO", "3", *words) == b"ERR syntax error - " + line


# SELECT, QUIT, MONITOR.


def test_there_is_one_database(client):
    assert client.says("SELECT", "0") == OK
    assert client.is_refused("SELECT", "1") == b"ERR DB index is out of range - allowed is 0"
    assert client.is_refused("SELECT", "-1") == b"ERR DB index is out of range - allowed is 0"
    assert client.is_refused("SELECT", "x") == NOT_AN_INTEGER + b"index takes whole numbers of 64 bits"


def test_quit_ends_the_connection_whatever_follows_it(client):
    assert client.says("QUIT", "now", "please") == OK
    assert client.is_closing
    assert not client.is_killed


def test_monitor_begins_once(client):
    assert client.says("MONITOR") == OK
    assert client.monitors
    assert client.says("MONITOR") is NO_REPLY


# CLIENT.


def test_a_connection_has_no_name_until_it_is_given_one(client):
    assert client.says("CLIENT", "GETNAME") is None
    assert client.says("CLIENT", "SETNAME", "worker-1") == OK
    assert client.says("CLIENT", "GETNAME") == b"worker-1"
    assert client.says("CLIENT", "SETNAME", "") == OK
    assert client.says("CLIENT", "GETNAME") is None


@pytest.mark.parametrize("name", ["a b", "a\n", "\x7f", "é", " "])
def test_a_name_is_visible_ascii(client, name):
    line = client.is_refused("CLIENT", "SETNAME", name)
    assert line == b"ERR Client names cannot contain spaces, newlines or special characters."


def test_what_a_client_calls_itself_is_short(client):
    name = "x" * NAMING_MAX
    for words in (("SETNAME",), ("SETINFO", "LIB-NAME"), ("SETINFO", "LIB-VER")):
        assert client.says("CLIENT", *words, name) == OK
        line = client.is_refused("CLIENT", *words, name + "x")
        assert line.endswith(b"cannot be longer than 256 bytes.")
    assert (
        client.is_refused("HELLO", "3", "SETNAME", name + "x") == b"ERR Client names cannot be longer than 256 bytes."
    )
    assert (client.name, set(client.lib.values())) == (name.encode(), {name.encode()})


def test_a_client_knows_its_number(daemon, client):
    assert [client.says("CLIENT", "ID"), Client(daemon).says("client", "id")] == [1, 2]


def test_client_list_has_a_line_per_client_with_disques_fields_first(daemon, client):
    client.name, client.protocol, client.lib = b"me", 3, {b"lib-name": b"redis-py"}
    other = Client(daemon, address="/run/disqued.sock:0", is_unix=True, input_buffered=7, output_buffered=9)
    other.says("GETJOB", "FROM", "q")
    daemon.clock.advance(2_500)
    first, second, end = client.says("CLIENT", "LIST").split(b"\n")
    assert first == (
        b"id=1 addr=127.0.0.1:50000 fd=9 name=me age=2 idle=2 flags=N qbuf=0 qbuf-free=0 obl=0 oll=0 omem=0 events=r"
        b" cmd=NULL user=default resp=3 lib-name=redis-py lib-ver= laddr=127.0.0.1:7711"
    )
    assert second.startswith(b"id=2 addr=/run/disqued.sock:0 fd=9 name= age=2 idle=2 flags=bU qbuf=7 ")
    assert b" omem=9 events=rw " in second
    assert end == b""


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("worker-1", "worker-1"),
        ("ann@example.org", "ann@example.org"),
        ("Ann Example user=default", "Ann%20Example%20user%3Ddefault"),
        ("a\nid=1 %41", "a%0Aid%3D1%20%2541"),
        ("Zoë", "Zo%C3%AB"),
        ("", None),
    ],
)
def test_the_name_in_a_certificate_is_one_word_at_the_end_of_the_line_and_can_be_had_back(client, name, shown):
    client.certificate_name = name
    (line,) = client.says("CLIENT", "INFO").splitlines()
    fields = dict(word.split("=", 1) for word in line.decode().split(" "))
    assert (fields.get("tls-cn"), fields["laddr"]) == (shown, "127.0.0.1:7711")
    assert list(fields)[-1] == ("laddr" if shown is None else "tls-cn")
    assert unquote(shown or "") == name


def test_flags_of_a_client_that_monitors_and_one_that_closes(daemon, client):
    client.says("MONITOR")
    closing = Client(daemon, is_closing=True)
    lines = Client(daemon).says("CLIENT", "LIST").splitlines()
    assert [b"flags=O " in lines[0], b"flags=c " in lines[1], b"flags=N " in lines[2]] == [True, True, True]
    assert closing.is_closing


def test_very_many_clients_are_listed_in_parts_without_those_who_leave_meanwhile(daemon, client):
    others = [Client(daemon) for _ in range(3 * LISTED_PER_PART)]
    assert client.says("CLIENT", "LIST") is table.BLOCKED
    daemon.clock.advance(1)
    for tick in range(3):
        assert not daemon.node.outbox.replies
        if tick == 1:
            others[0].kill()
            others[-1].kill()
        daemon.node.begin()
        daemon.node.tick()
    [(told, text, _)] = daemon.node.outbox.replies
    assert told is client
    listed = [int(line.split()[0].removeprefix(b"id=")) for line in text.splitlines()]
    assert listed == [session.id for session in [client, *others[:-1]]]


def test_client_list_counts_the_jobs_of_each_client_when_it_is_asked_to(daemon, client):
    worker, other = Client(daemon), Client(daemon)
    for queue in ("a", "a", "b"):
        client.says("ADDJOB", queue, "x", "0", "RETRY", "60")
    worker.says("GETJOB", "NOHANG", "COUNT", "2", "FROM", "a")
    ((_, job_id, _),) = worker.says("GETJOB", "NOHANG", "FROM", "b")
    lines = client.says("CLIENT", "LIST", "JOBS").splitlines()
    assert [line.split(b" ")[-1] for line in lines] == [b"jobs=0", b"jobs=3", b"jobs=0"]
    other.says("ACKJOB", job_id)
    assert client.says("CLIENT", "LIST", "JOBS").splitlines()[1].endswith(b" jobs=2")
    assert b"jobs=" not in client.says("CLIENT", "LIST")
    assert client.is_refused("CLIENT", "LIST", "x").endswith(b"expected JOBS")


def test_client_info_is_the_own_line(daemon, client):
    other = Client(daemon, address="127.0.0.1:50001")
    assert other.says("CLIENT", "INFO") == client.says("CLIENT", "LIST").splitlines(keepends=True)[1]


def test_clients_tell_which_library_they_use(client):
    assert client.says("CLIENT", "SETINFO", "LIB-NAME", "redis-py(x_v1)") == OK
    assert client.says("CLIENT", "SETINFO", "lib-ver", "8.1.0") == OK
    assert client.lib == {b"lib-name": b"redis-py(x_v1)", b"lib-ver": b"8.1.0"}
    assert client.is_refused("CLIENT", "SETINFO", "COLOUR", "red").startswith(b"ERR Unrecognized option: ")
    assert client.is_refused("CLIENT", "SETINFO", "LIB-NAME", "a b").endswith(b"special characters.")


def test_redis_py_asks_for_maintenance_notifications_and_is_told_no(client):
    line = client.is_refused("CLIENT", "MAINT_NOTIFICATIONS", "ON", "moving-endpoint-type", "internal-ip")
    assert line == b"ERR this server announces no maintenance: only CLIENT MAINT_NOTIFICATIONS OFF is possible"
    assert client.says("CLIENT", "MAINT_NOTIFICATIONS", "OFF") == OK


def test_a_client_is_killed_by_its_address(daemon, client):
    victim = Client(daemon, address="127.0.0.1:50001")
    assert client.says("CLIENT", "KILL", "127.0.0.1:50001") == OK
    assert victim.is_killed
    assert client.is_refused("CLIENT", "KILL", "127.0.0.1:50001") == b"ERR No such client"


def test_a_client_may_kill_itself_by_its_address(client):
    assert client.says("CLIENT", "KILL", client.address) == OK
    assert client.is_killed


def test_a_filter_without_its_value_is_refused(client):
    line = b"ERR syntax error - ID without its value: allowed are whole numbers of 64 bits"
    assert client.is_refused("CLIENT", "KILL", "ID") == line


@pytest.mark.parametrize(
    ("words", "killed"),
    [
        (("ID", "2"), [2]),
        (("ID", "1"), []),
        (("ID", "1", "SKIPME", "no"), [1]),
        (("ADDR", "127.0.0.1:3"), [3]),
        (("ADDR", "127.0.0.1:3", "ID", "2"), []),
        (("TYPE", "normal"), [2, 3]),
        (("skipme", "NO"), [1, 2, 3]),
        (("SKIPME", "yes"), [2, 3]),
        (("ID", "99"), []),
    ],
)
def test_filters_must_all_fit_and_the_own_connection_is_spared(daemon, client, words, killed):
    everyone = [client, *(Client(daemon, address=f"127.0.0.1:{port}") for port in (2, 3))]
    assert client.says("CLIENT", "KILL", *words) == len(killed)
    assert [one.id for one in everyone if one.is_killed] == killed


@pytest.mark.parametrize(
    ("words", "killed"),
    [
        (("USER", "ann"), [3, 4]),
        (("USER", "default"), [2]),
        (("USER", "default", "SKIPME", "no"), [1, 2]),
        (("USER", "ann", "ADDR", "127.0.0.1:3"), [3]),
        (("user", "ann", "MAXAGE", "3"), [3]),
        (("USER", "ann", "ID", "2"), []),
        (("LADDR", "127.0.0.1:7712"), [4]),
        (("LADDR", "127.0.0.1:7712", "USER", "default"), []),
        (("MAXAGE", "3"), [2, 3]),
        (("MAXAGE", "3.001"), []),
        (("MAXAGE", "4", "SKIPME", "no"), []),
        (("MAXAGE", "9223372036854775.807"), []),
    ],
)
def test_connections_are_killed_by_user_age_and_the_address_that_they_came_to(daemon, client, words, killed):
    ann = User(b"ann")
    daemon.users.put(ann)
    everyone = [client, Client(daemon, address="127.0.0.1:2"), Client(daemon, address="127.0.0.1:3", user=ann)]
    daemon.clock.advance(3_000)
    everyone.append(Client(daemon, address="127.0.0.1:4", user=ann, local_address="127.0.0.1:7712"))
    assert client.says("CLIENT", "KILL", *words) == len(killed)
    assert [one.id for one in everyone if one.is_killed] == killed


def test_errors_of_kill(client):
    assert client.is_refused("CLIENT", "KILL", "USER", "nobody") == b"ERR No such user 'nobody'"
    assert client.is_refused("CLIENT", "KILL", "USER", "x" * 200) == b"ERR No such user '%b'" % (b"x" * 128)
    for age in ("0", "-1", "x"):
        line = b"ERR maxage should be greater than 0 - allowed are seconds, with fractions"
        assert client.is_refused("CLIENT", "KILL", "MAXAGE", age) == line
    for words in (("USER", "default"), ("LADDR", "127.0.0.1:7711"), ("MAXAGE", "1")):
        assert client.is_refused("CLIENT", "KILL", "127.0.0.1:1", *words) == CLIENT_MISUSE
    assert (
        client.is_refused("CLIENT", "KILL", "TYPE", "slave") == b"ERR Unknown client type 'slave' - allowed is normal"
    )
    assert client.is_refused("CLIENT", "KILL", "ID", "x") == NOT_AN_INTEGER + b"ID takes whole numbers of 64 bits"
    line = b"ERR syntax error - SKIPME takes yes or no"
    assert client.is_refused("CLIENT", "KILL", "ID", "1", "SKIPME", "maybe") == line
    line = b"ERR syntax error - unknown option '::1'; expected address, ID, TYPE, USER, ADDR, LADDR, MAXAGE or SKIPME"
    assert client.is_refused("CLIENT", "KILL", "127.0.0.1:1", "::1") == line
    for words in ((), ("127.0.0.1:1", "ID", "1")):
        assert client.is_refused("CLIENT", "KILL", *words) == CLIENT_MISUSE


def test_client_pause_asks_the_daemon(daemon, client):
    assert client.says("CLIENT", "PAUSE", "250") == OK
    assert daemon.done == [("pause", 250)]
    assert client.says("CLIENT", "PAUSE", str(PAUSE_MAX_MS)) == OK
    too_long = b"ERR timeout must be at most 604800000 milliseconds (a week)"
    for span_ms in (PAUSE_MAX_MS + 1, 2**63 - 1):
        assert client.is_refused("CLIENT", "PAUSE", str(span_ms)) == too_long
    assert client.is_refused("CLIENT", "PAUSE", "-1") == b"ERR timeout is negative"
    line = b"ERR timeout is not an integer or out of range - allowed are milliseconds, 0 or more"
    assert client.is_refused("CLIENT", "PAUSE", "x") == line


@pytest.mark.parametrize(
    ("words", "answer"),
    [((), None), (("timeout",), None), (("ERROR",), UNBLOCKED)],
)
def test_a_client_that_waits_is_unblocked_by_its_number(daemon, client, words, answer):
    waiting = Client(daemon, address="127.0.0.1:50001")
    waiting.says("GETJOB", "FROM", "q")
    assert waiting.is_blocked
    assert client.says("CLIENT", "UNBLOCK", str(waiting.id), *words) == 1
    assert not waiting.is_blocked
    [(told, value, units)] = daemon.node.outbox.replies
    assert (told, getattr(value, "line", value), units) == (waiting, answer, [])
    assert client.says("CLIENT", "UNBLOCK", str(waiting.id), *words) == 0


def test_nobody_is_unblocked_who_does_not_wait_or_is_not_there(client):
    assert client.says("CLIENT", "UNBLOCK", str(client.id)) == 0
    assert client.says("CLIENT", "UNBLOCK", "99", "ERROR") == 0


def test_errors_of_unblock(client):
    assert client.is_refused("CLIENT", "UNBLOCK") == CLIENT_MISUSE
    line = NOT_AN_INTEGER + b"client-id takes whole numbers of 64 bits"
    assert client.is_refused("CLIENT", "UNBLOCK", "x") == line
    line = b"ERR syntax error - CLIENT UNBLOCK takes TIMEOUT or ERROR"
    assert client.is_refused("CLIENT", "UNBLOCK", "1", "soon") == line
    assert client.is_refused("CLIENT", "UNBLOCK", "1", "ERROR", "TIMEOUT") == CLIENT_MISUSE


def test_only_reply_on_is_answered(client):
    assert client.says("CLIENT", "REPLY", "OFF") is NO_REPLY
    assert client.reply_mode == "off"
    assert client.says("CLIENT", "REPLY", "SKIP") is NO_REPLY
    assert client.reply_mode == "off"
    assert client.says("CLIENT", "REPLY", "ON") == OK
    assert client.reply_mode == "on"
    assert client.says("CLIENT", "REPLY", "skip") is NO_REPLY
    assert client.reply_mode == "skip"


def test_an_unknown_subcommand_of_client_is_told_which_there_are(client):
    allowed = b", ".join(sorted(table.TABLE[b"CLIENT"].children))
    assert client.is_refused("CLIENT", "NOPE") == CLIENT_MISUSE + b" - allowed are " + allowed


@pytest.mark.parametrize("words", [("SETNAME",), ("GETNAME", "x")])
def test_every_other_use_of_client_is_answered_with_what_is_possible(client, words):
    assert client.is_refused("CLIENT", *words) == CLIENT_MISUSE
    line = b"ERR syntax error - CLIENT REPLY takes ON, OFF or SKIP"
    assert client.is_refused("CLIENT", "REPLY", "maybe") == line
    assert client.is_refused("CLIENT") == b"ERR wrong number of arguments for 'client' command"
