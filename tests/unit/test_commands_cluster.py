"""CLUSTER on a node that is alone."""

import pytest

from tests.fakes import NODE_ID, Client, Daemon

OK = b"OK"
MISUSE = b"ERR Wrong CLUSTER subcommand or number of arguments"


@pytest.fixture
def client():
    return Client(Daemon())


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
    )


def test_leaving_is_asked_for_begun_and_ended(client):
    assert client.says("CLUSTER", "LEAVING") == b"no"
    assert client.says("CLUSTER", "LEAVING", "YES") == OK
    assert client.says("CLUSTER", "LEAVING") == b"yes"
    assert client.is_refused("GETJOB", "FROM", "q").startswith(b"LEAVING This node is leaving the cluster")
    assert client.says("CLUSTER", "LEAVING", "no") == OK
    assert client.says("CLUSTER", "LEAVING") == b"no"
    line = client.is_refused("CLUSTER", "LEAVING", "nope")
    assert line == b"ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'"


def test_consumers_that_wait_are_sent_elsewhere_when_the_node_begins_to_leave(client):
    waiting = Client(client.host)
    waiting.says("GETJOB", "FROM", "q")
    client.says("CLUSTER", "LEAVING", "yes")
    [(who, error, units)] = client.host.node.outbox.replies
    assert (who, error.code, units) == (waiting, "LEAVING", [])


def test_a_good_address_is_refused_for_the_true_reason(client):
    for ip in ("10.0.0.1", "::1"):
        line = client.is_refused("CLUSTER", "MEET", ip, "7712")
        assert line == f"ERR this version runs as a single node: it cannot meet {ip}:7712".encode()


@pytest.mark.parametrize(
    ("ip", "port", "line"),
    [
        ("127.0.0.1", "x", b"ERR Invalid TCP port specified: x"),
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


def test_the_leaving_state_survives_a_reset(client):
    client.says("CLUSTER", "LEAVING", "yes")
    client.says("CLUSTER", "RESET")
    assert client.says("CLUSTER", "LEAVING") == b"yes"


def test_a_hard_reset_is_refused_and_forgets_nothing(client):
    client.says("ADDJOB", "q", "body", "0")
    assert client.is_refused("CLUSTER", "RESET", "HARD").endswith(b"RESET SOFT works")
    assert client.says("QLEN", "q") == 1
    assert client.is_refused("CLUSTER", "RESET", "FIRM") == b"ERR syntax error"


def test_saveconfig_asks_the_daemon(client):
    assert client.says("CLUSTER", "SAVECONFIG") == OK
    assert client.host.done == [("save", None)]


@pytest.mark.parametrize(
    "words", [("NOPE",), ("MEET", "x"), ("MYID", "x"), ("FORGET",), ("RESET", "SOFT", "x"), ("LEAVING", "yes", "no")]
)
def test_any_other_use_is_refused(client, words):
    assert client.is_refused("CLUSTER", *words) == MISUSE
