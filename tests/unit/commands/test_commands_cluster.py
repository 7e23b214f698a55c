"""CLUSTER on a node that is alone, and on one that knows others."""

import pytest

from disqued.commands import table
from disqued.core.model.messages import PING, PONG, Gossip, Greeting, Target
from disqued.core.model.peers import FAIL, LEAVING, PFAIL
from disqued.testing.clock import WALL_MS, Clock
from tests.fakes import NODE_ID, Client, Daemon

A, B, C = b"a" * 40, b"b" * 40, b"c" * 40

OK = b"OK"
MISUSE = b"ERR Wrong CLUSTER subcommand or number of arguments"


@pytest.fixture
def client():
    return Client(Daemon(clock=Clock(now=1_000)))


def join(client, node_id, host, port, *, linked=True):
    """Let the node know another one."""
    node = client.host.node
    greeting = Greeting(node_id, "", port, port + 10_000, 0, meets=True)
    node.greeted(greeting, host, "10.0.0.1")
    if linked:
        assert node.link_opened(Target(host, port + 10_000, node_id, meets=True), greeting, "10.0.0.1")
        node.message(node_id, (PONG, 0, ()))


def test_the_node_knows_its_id(client):
    assert client.says("CLUSTER", "MYID") == NODE_ID


def test_nodes_is_the_own_line_as_in_nodes_conf(client):
    assert client.says("CLUSTER", "NODES") == NODE_ID + b" :7711 myself 0 0 connected\n"
    client.says("CLUSTER", "LEAVING", "yes")
    assert client.says("CLUSTER", "NODES") == NODE_ID + b" :7711 myself,leaving 0 0 connected\n"


def test_info_of_a_cluster_of_one(client):
    assert client.says("CLUSTER", "INFO") == (
        b"cluster_state:ok\r\ncluster_known_nodes:1\r\ncluster_reachable_nodes:0\r\ncluster_size:1\r\n"
        b"cluster_stats_messages_sent:0\r\ncluster_stats_messages_received:0\r\n"
        b"cluster_leaving:no\r\ncluster_leaving_jobs_left:0\r\ncluster_leaving_acks_left:0\r\n"
        b"cluster_leaving_waits_for:\r\ncluster_safe_to_stop:no\r\n"
    )


def test_info_counts_the_nodes_that_are_known_and_those_that_take_copies(client):
    join(client, A, "10.0.0.2", 7712)
    join(client, B, "10.0.0.3", 7713, linked=False)
    client.host.link_facts = {"cluster_stats_messages_sent": 5, "cluster_stats_messages_received": 6}
    text = client.says("CLUSTER", "INFO")
    for line in (
        b"cluster_known_nodes:3", b"cluster_reachable_nodes:1", b"cluster_size:3",
        b"cluster_stats_messages_sent:5", b"cluster_stats_messages_received:6",
    ):  # fmt: skip
        assert line + b"\r\n" in text


def test_info_tells_of_another_node_with_the_same_id(client):
    client.host.node.greeted(Greeting(NODE_ID, "", 7711, 17711, 0, meets=True), "10.0.0.9", "10.0.0.1")
    assert b"cluster_same_id_at:10.0.0.9:17711\r\n" in client.says("CLUSTER", "INFO")


def test_nodes_are_shown_with_what_is_thought_of_them(client):
    join(client, A, "10.0.0.2", 7712)
    join(client, B, "10.0.0.3", 7713, linked=False)
    join(client, C, "2001:db8::1", 7714)
    for node_id in (A, C):
        client.host.node.message(node_id, (PONG, 0, ()))
    peers = client.host.node.state.peers.by_id
    peers[B].flags = PFAIL
    peers[C].flags = FAIL | LEAVING
    peers[C].bus_port = 9_000
    assert client.says("CLUSTER", "NODES").splitlines() == [
        NODE_ID + b" 10.0.0.1:7711 myself 0 0 connected",
        A + b" 10.0.0.2:7712 noflags 0 %d connected" % WALL_MS,
        B + b" 10.0.0.3:7713 fail? %d 0 disconnected" % WALL_MS,
        C + b" 2001:db8::1:7714@9000 fail,leaving 0 %d connected" % WALL_MS,
    ]


def test_leaving_is_asked_for_begun_and_ended(client):
    assert client.says("CLUSTER", "LEAVING") == b"no"
    assert client.says("CLUSTER", "LEAVING", "YES") == OK
    assert client.says("CLUSTER", "LEAVING") == b"yes"
    assert b"cluster_leaving:yes\r\n" in client.says("CLUSTER", "INFO")
    assert client.is_refused("GETJOB", "FROM", "q").startswith(b"LEAVING This node is leaving the cluster")
    assert client.says("CLUSTER", "LEAVING", "no") == OK
    assert client.says("CLUSTER", "LEAVING") == b"no"
    line = client.is_refused("CLUSTER", "LEAVING", "nope")
    assert line == b"ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'"


def test_the_others_hear_of_it_and_the_file_follows(client):
    join(client, A, "10.0.0.2", 7712)
    outbox = client.host.node.outbox
    outbox.members_changed = False
    outbox.messages.clear()
    client.says("CLUSTER", "LEAVING", "yes")
    assert [(node_id, message[:2]) for node_id, message in outbox.messages] == [(A, (PING, 1))]
    assert outbox.members_changed


def test_consumers_that_wait_are_sent_elsewhere_when_the_node_begins_to_leave(client):
    waiting = Client(client.host)
    waiting.says("GETJOB", "FROM", "q")
    client.says("CLUSTER", "LEAVING", "yes")
    [(who, error, units)] = client.host.node.outbox.replies
    assert (who, error.code, units) == (waiting, "LEAVING", [])


def test_a_node_is_called_at_the_address_that_is_given(client):
    assert client.says("CLUSTER", "MEET", "127.0.0.1", "7712") == OK
    assert client.says("CLUSTER", "MEET", "::1", "60000", "9000") == OK
    assert client.host.node.membership.targets() == [
        Target("127.0.0.1", 17712, b"", meets=True),
        Target("::1", 9000, b"", meets=True),
    ]
    assert client.host.node.outbox.members_changed
    lines = client.says("CLUSTER", "NODES").splitlines()
    assert [line.split()[1:] for line in lines[1:]] == [
        [b"127.0.0.1:7712", b"handshake", b"0", b"0", b"disconnected"],
        [b"::1:60000@9000", b"handshake", b"0", b"0", b"disconnected"],
    ]


def test_without_a_secret_no_other_machine_is_called(client):
    line = client.is_refused("CLUSTER", "MEET", "10.0.0.2", "7712")
    assert line.startswith(b"ERR 10.0.0.2 is beyond this machine")
    assert b"set cluster-secret" in line
    assert client.host.node.membership.targets() == []
    client.host.has_secret = True
    assert client.says("CLUSTER", "MEET", "10.0.0.2", "7712") == OK


def test_a_node_that_others_cannot_reach_calls_nobody(client):
    client.host.node.membership.own_address.announce("", 60_000, 0)
    line = client.is_refused("CLUSTER", "MEET", "127.0.0.1", "7712")
    assert line.startswith(b"ERR other nodes cannot connect to this one: give it a cluster-port")


@pytest.mark.parametrize(
    ("ip", "port", "line"),
    [
        ("127.0.0.1", "x", b"ERR Invalid TCP port specified: x - allowed are 1 to 55535, or to 65535 with a bus port"),
        ("999.1.1.1", "99", b"ERR Invalid node address specified: 999.1.1.1:99"),
        ("127.0.0.1", "0", b"ERR Invalid node address specified: 127.0.0.1:0"),
        ("127.0.0.1", "55536", b"ERR Invalid node address specified: 127.0.0.1:55536"),
        ("localhost", "7711", b"ERR Invalid node address specified: localhost:7711"),
        ("", "7711", b"ERR Invalid node address specified: :7711"),
        (b"\xff", "7711", b"ERR Invalid node address specified: \xff:7711"),
    ],
)
def test_bad_addresses_are_refused_as_by_disque(client, ip, port, line):
    assert client.is_refused("CLUSTER", "MEET", ip, port) == line


@pytest.mark.parametrize("bus_port", ["x", "0", "65536", "-1"])
def test_a_bad_bus_port_is_refused(client, bus_port):
    line = client.is_refused("CLUSTER", "MEET", "127.0.0.1", "7712", bus_port)
    assert line == f"ERR Invalid bus port specified: {bus_port} - allowed are 1 to 65535".encode()


def test_a_forgotten_node_is_gone(client):
    join(client, A, "10.0.0.2", 7712)
    assert client.says("CLUSTER", "FORGET", A) == OK
    assert A not in client.says("CLUSTER", "NODES")
    assert client.is_refused("CLUSTER", "FORGET", A) == b"ERR Unknown node " + A
    assert client.host.node.outbox.members_changed


def test_those_who_say_that_a_node_fails_are_counted(client):
    for node_id, host in ((A, "10.0.0.2"), (B, "10.0.0.3")):
        join(client, node_id, host, 7711)
    client.host.node.message(A, (PING, 0, (Gossip(B, "10.0.0.3", 7711, 17711, 2),)))
    assert client.says("CLUSTER", "COUNT-FAILURE-REPORTS", B) == 1
    assert client.says("CLUSTER", "COUNT-FAILURE-REPORTS", A) == 0
    assert client.says("CLUSTER", "COUNT-FAILURE-REPORTS", NODE_ID) == 0
    assert client.is_refused("CLUSTER", "COUNT-FAILURE-REPORTS", C) == b"ERR Unknown node " + C
    assert client.is_refused("CLUSTER", "COUNT-FAILURE-REPORTS", "x") == b"ERR Invalid node identifier"


def test_forget_has_nobody_to_forget(client):
    assert client.is_refused("CLUSTER", "FORGET", "nope") == b"ERR Invalid node identifier"
    assert client.is_refused("CLUSTER", "FORGET", "f" * 40) == b"ERR Unknown node " + b"f" * 40
    assert client.is_refused("CLUSTER", "FORGET", NODE_ID) == b"ERR I tried hard but I can't forget myself..."


@pytest.mark.parametrize("words", [(), ("SOFT",), ("soft",)])
def test_a_soft_reset_forgets_jobs_and_queues(client, words):
    client.says("ADDJOB", "q", "body", "0")
    assert client.says("CLUSTER", "RESET", *words) == OK
    assert client.says("QLEN", "q") == 0
    assert len(client.host.node.state.jobs) == 0


@pytest.mark.parametrize("word", ["SOFT", "HARD"])
def test_a_reset_forgets_the_other_nodes_and_is_saved(client, word):
    join(client, A, "10.0.0.2", 7712)
    client.says("ADDJOB", "q", "body", "0", "RETRY", "5", "REPLICATE", "1")
    assert client.says("CLUSTER", "RESET", word) == OK
    node = client.host.node
    assert client.says("CLUSTER", "NODES").count(b"\n") == 1
    assert client.says("QLEN", "q") == 0
    assert client.host.done == [("save", None)]
    assert node.outbox.members_changed
    assert node.deadline() is None


def test_a_hard_reset_gives_a_new_id_that_everything_made_from_now_on_bears(client):
    client.says("ADDJOB", "q", "body", "0")
    assert client.says("CLUSTER", "RESET", "HARD") == OK
    node_id = client.says("CLUSTER", "MYID")
    assert node_id != NODE_ID
    assert client.says("CLUSTER", "NODES").startswith(node_id)
    assert client.says("HELLO")[1] == node_id
    assert client.says("ADDJOB", "q", "body", "0")[2:10] == node_id[:8]


def test_the_leaving_state_survives_a_reset(client):
    client.says("CLUSTER", "LEAVING", "yes")
    client.says("CLUSTER", "RESET")
    assert client.says("CLUSTER", "LEAVING") == b"yes"


def test_any_other_reset_is_refused_and_forgets_nothing(client):
    client.says("ADDJOB", "q", "body", "0")
    assert client.is_refused("CLUSTER", "RESET", "FIRM") == b"ERR syntax error - CLUSTER RESET takes SOFT or HARD"
    assert client.says("QLEN", "q") == 1


def test_saveconfig_asks_the_daemon(client):
    assert client.says("CLUSTER", "SAVECONFIG") == OK
    assert client.host.done == [("save", None)]


def test_an_unknown_subcommand_is_told_which_there_are(client):
    allowed = b", ".join(sorted(table.TABLE[b"CLUSTER"].children))
    assert client.is_refused("CLUSTER", "NOPE") == MISUSE + b" - allowed are " + allowed


@pytest.mark.parametrize("word", ["SLOTS", "shards", "KEYSLOT", "REPLICAS"])
def test_who_looks_for_a_redis_cluster_hears_that_this_is_none(client, word):
    said = client.is_refused("CLUSTER", word)
    assert said.startswith(b"ERR This instance has cluster support disabled - disqued is no Redis Cluster")


@pytest.mark.parametrize(
    "words", [("MEET", "x"), ("MYID", "x"), ("FORGET",), ("RESET", "SOFT", "x"), ("LEAVING", "yes", "no")]
)
def test_any_other_use_is_refused(client, words):
    assert client.is_refused("CLUSTER", *words) == MISUSE
