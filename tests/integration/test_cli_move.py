"""`disqued move` on real daemons: jobs change their queue or their cluster, once each, whatever happens meanwhile."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from disqued.client.errors import Unreachable
from disqued.tools.connecting import Target
from disqued.tools.moving import Mover
from tests.integration.cluster import QUICK, Cluster, ends_well
from tests.integration.daemon import HOST, LIMIT, Daemon, environment, wait_until
from tests.integration.verbs import address, at, done, refused, run
from tests.programs import Program

Start = Callable[..., Daemon]
PROGRAM = (sys.executable, "-m", "disqued.cli", "move")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes that know each other."""
    with ends_well(Cluster(tmp_path, QUICK)) as nodes:
        nodes.start(3)
        yield nodes


def bodies(node: Daemon, queue: str) -> list[str]:
    """The bodies of the jobs that wait, in their order."""
    return [body for _, _, body in node.call("QPEEK", queue, 1_000)]


def fill(node: Daemon, queue: str, count: int, *options: object) -> list[str]:
    """Add jobs; returns their bodies."""
    made = [f"body {number}" for number in range(count)]
    for body in made:
        node.call("ADDJOB", queue, body, 0, *options)
    return made


def facts(node: Daemon, queue: str) -> dict[str, object]:
    """What a node knows of the first job of a queue."""
    ((_, job_id, _),) = node.call("QPEEK", queue, 1)
    row = node.call("SHOW", job_id)
    assert isinstance(row, list)
    return dict(zip(row[::2], row[1::2], strict=True))


def test_all_jobs_of_a_queue_are_moved_in_their_order(start: Start) -> None:
    node = start()
    made = fill(node, "mail", 250)
    assert done("move", "mail", "letters", *at(node)) == "250 jobs were moved from mail to letters\n"
    assert bodies(node, "letters") == made
    assert node.call("QLEN", "mail") == 0
    assert node.call("JSCAN", "COUNT", 1_000, "QUEUE", "mail", "STATE", "active")[1] == []


def test_a_job_keeps_what_was_left_of_its_life_its_options_and_its_key(start: Start) -> None:
    node = start()
    node.call("ADDJOB", "mail", "one", 0, "TTL", 500, "RETRY", 7, "KEY", "order-17")
    done("move", "mail", "letters", *at(node))
    moved = facts(node, "letters")
    assert (moved["retry"], moved["repl"], moved["key"], moved["body"]) == (7, 1, "order-17", "one")
    assert 400 < moved["ttl"] <= 500
    node.call("ADDJOB", "letters", "again", 0, "KEY", "order-17")
    assert bodies(node, "letters") == ["one"]


def test_the_jobs_of_every_node_are_moved(cluster: Cluster) -> None:
    for number, node in enumerate(cluster.nodes):
        fill(node, "mail", number + 1, "REPLICATE", 2)
    assert done("move", "mail", "letters", *at(cluster.nodes[0])) == "6 jobs were moved from mail to letters\n"
    # A node that is asked for jobs may have fetched some from another one: on which they are is not said.
    there = [node for node in cluster.nodes if node.call("QLEN", "letters")]
    assert sum(node.call("QLEN", "letters") for node in there) == 6
    assert [node.call("QLEN", "mail") for node in cluster.nodes] == [0, 0, 0]
    assert facts(there[0], "letters")["repl"] == 2


def test_jobs_are_moved_to_another_cluster_by_its_own_password(start: Start, tmp_path: Path) -> None:
    here, there = start(directory=tmp_path / "here"), start(directory=tmp_path / "there")
    made = fill(here, "mail", 30)
    there.call("CONFIG", "SET", "requirepass", "s3:cret")
    assert "NOAUTH" in refused("move", "mail", "--to", address(there), *at(here))
    assert bodies(here, "mail") == made
    to = f"disqued://:s3%3Acret@{address(there)}"
    said = done("move", "mail", "--to", to, *at(here))
    assert said == f"30 jobs were moved from mail to mail of {address(there)}\n"
    with there.redis(password="s3:cret") as client:
        assert [row[2] for row in client.execute_command("QPEEK", "mail", 100)] == made


def test_the_other_cluster_is_sent_no_password_but_its_own(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = start(directory=tmp_path / "here"), start(directory=tmp_path / "there")
    fill(here, "mail", 3)
    for node in (here, there):
        node.call("CONFIG", "SET", "requirepass", "of both")
    monkeypatch.setenv("DISQUED_AUTH", "of both")
    words = ("move", "mail", "--to", address(there), *at(here), "--limit", 1)
    said = refused(*words)
    assert "NOAUTH" in said
    assert "--to-password-file, DISQUED_TO_AUTH" in said
    with there.redis(password="of both") as client:
        assert client.info("stats")["acl_access_denied_auth"] == 0
        client.execute_command("ACL", "SETUSER", "ann", "on", ">hers", "~*", "+@all")
    for name, password in (("own", "of both"), ("hers", "hers")):
        (tmp_path / name).write_text(f"{password}\n")
        (tmp_path / name).chmod(0o600)
    assert done(*words, "--to-password-file", tmp_path / "own").startswith("1 jobs were moved")
    assert done(*words, "--to-password-file", tmp_path / "hers", "--to-user", "ann").startswith("1 jobs were moved")
    monkeypatch.setenv("DISQUED_TO_AUTH", "of both")
    assert done(*words).startswith("1 jobs were moved")
    monkeypatch.setenv("DISQUED_TO_AUTH", "another")
    assert "invalid password; its password is given by" in refused(*words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("other", "--to-user", "ann"), "--to names none"),
        (("other", "--to-password-file", "x"), "--to names none"),
        (("--to", "127.0.0.1:1", "--to-user", "ann"), "--to-user is given without a password: --to-password-file or"),
        (("--to", "disqued://:x@127.0.0.1:1", "--to-user", "ann"), "do not go with it"),
        (("--to", "disqued://:x@127.0.0.1:1", "--to-password-file", "x"), "do not go with it"),
    ],
)
def test_a_password_of_the_other_cluster_has_one_place(start: Start, words: tuple[str, ...], said: str) -> None:
    assert said in refused("move", "mail", *words, *at(start()), status=2)


def test_what_a_run_that_was_killed_has_added_is_not_added_again(start: Start, tmp_path: Path) -> None:
    here, there = start(directory=tmp_path / "here"), start(directory=tmp_path / "there")
    fill(here, "mail", 3, "RETRY", 1)
    # It was killed when it had added two of three jobs, and had acknowledged none.
    for _, job_id, body in here.call("GETJOB", "COUNT", 2, "FROM", "mail"):
        there.call("ADDJOB", "mail", body, 0, "RETRY", 1, "KEY", f"move/{job_id}")
    wait_until(lambda: here.call("QLEN", "mail") == 3, "jobs that come back")
    assert done("move", "mail", "--to", address(there), *at(here)).startswith("3 jobs were moved")
    assert sorted(bodies(there, "mail")) == ["body 0", "body 1", "body 2"]
    assert here.call("QLEN", "mail") == 0


def test_a_kill_loses_nothing_and_doubles_nothing(start: Start, tmp_path: Path) -> None:
    here, there = start(directory=tmp_path / "here"), start(directory=tmp_path / "there")
    made = fill(here, "mail", 400, "RETRY", 1)
    words = [*PROGRAM, "mail", "--to", address(there), "--batch", "20", *at(here)]
    for least in (40, 120):
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, env=environment())
        wait_until(lambda least=least: there.call("QLEN", "mail") >= least, "jobs on the other side")
        process.kill()
        process.wait(LIMIT)

    def rest() -> bool:
        done("move", "mail", "--to", address(there), *at(here))
        return here.call("JSCAN", "COUNT", 1_000, "STATE", "active", "STATE", "queued")[1] == []

    wait_until(rest, "the rest, moved as it comes back")
    assert sorted(bodies(there, "mail")) == sorted(made)


def test_jobs_that_are_refused_there_stay_here(start: Start) -> None:
    node = start()
    made = fill(node, "mail", 5)
    node.call("ADDJOB", "mail", "once", 0, "RETRY", 0, "KEY", "mine")
    node.call("PAUSE", "letters", "in")
    said = refused("move", "mail", "letters", *at(node))
    assert said == (
        "disqued move: 0 jobs were moved; the next were refused there, and are where they were:"
        " PAUSED Queue paused in input, try later"
    )
    assert sorted(bodies(node, "mail")) == sorted([*made, "once"])
    assert node.call("QLEN", "letters") == 0
    node.call("PAUSE", "letters", "none")
    assert done("move", "mail", "letters", *at(node)) == "6 jobs were moved from mail to letters\n"
    assert sorted(bodies(node, "letters")) == sorted([*made, "once"])


def test_a_job_with_more_copies_than_there_are_nodes_is_moved_with_fewer_when_that_is_asked_for(
    cluster: Cluster, start: Start
) -> None:
    alone = start()
    fill(cluster.nodes[0], "mail", 2, "REPLICATE", 3)
    words = ("move", "mail", "--to", address(alone), *at(cluster.nodes[0]))
    assert "NOREPL" in refused(*words)
    assert done(*words, "--replicate", 1).startswith("2 jobs were moved")


def test_no_more_are_moved_than_were_asked_for(start: Start) -> None:
    node = start()
    fill(node, "mail", 30)
    assert done("move", "mail", "letters", "--limit", 25, "--batch", 10, *at(node)).startswith("25 jobs were moved")
    assert (node.call("QLEN", "mail"), node.call("QLEN", "letters")) == (5, 25)


def test_a_dry_run_moves_nothing(cluster: Cluster) -> None:
    first = cluster.nodes[0]
    fill(first, "mail", 3, "REPLICATE", 1)
    said = done("move", "mail", "letters", "--dry-run", *at(first))
    assert said.splitlines()[0] == "3 jobs would be moved from mail to letters"
    assert f"  {address(first)}: 3 wait" in said.splitlines()
    assert done("move", "mail", "letters", "--dry-run", "--limit", 2, *at(first)).startswith("2 jobs would be")
    assert first.call("QLEN", "mail") == 3


def test_a_node_that_is_leaving_and_has_no_jobs_left_is_passed_over(cluster: Cluster) -> None:
    fill(cluster.nodes[0], "mail", 3, "REPLICATE", 1)
    done("cluster", "drain", address(cluster.nodes[1]))
    assert done("move", "mail", "letters", *at(cluster.nodes[2])) == "3 jobs were moved from mail to letters\n"


def test_jobs_are_not_moved_to_where_they_are(cluster: Cluster) -> None:
    first, second, _ = cluster.nodes
    for words in (("mail",), ("mail", "mail"), ("mail", "--to", address(second))):
        assert "the jobs are there already" in refused("move", *words, *at(first), status=2)
    assert "--to: " in refused("move", "mail", "--to", "http://x", *at(first), status=2)


def test_the_other_side_may_be_away_for_a_while(start: Start, tmp_path: Path) -> None:
    here = start(directory=tmp_path / "here")
    there = start("--persistence", "aof", "--appendfsync", "always", directory=tmp_path / "there")
    made = fill(here, "mail", 50)
    there.kill()
    with Target((HOST, here.port)).node() as near, Target((HOST, there.port)).node() as far:
        mover = Mover(near, far, b"mail", b"mail", patience=LIMIT)
        moved: list[int] = []
        moving = threading.Thread(target=lambda: moved.append(mover.move(50)))
        moving.start()
        wait_until(lambda: here.call("QLEN", "mail") == 0, "jobs that are taken")
        start("--persistence", "aof", "--appendfsync", "always", directory=tmp_path / "there", port=there.port)
        moving.join(LIMIT)
    assert moved == [50]
    assert done("move", "mail", "--dry-run", "letters", "-p", there.port).startswith("50 jobs would be")
    assert sorted(made) == sorted(body for _, _, body in Daemon.call(there, "QPEEK", "mail", 100))


def test_jobs_come_back_when_the_other_side_stays_away(start: Start, tmp_path: Path) -> None:
    here, there = start(directory=tmp_path / "here"), start(directory=tmp_path / "there")
    made = fill(here, "mail", 5)
    to = address(there)
    there.kill()
    near, far = Target((HOST, here.port)).node(), Target((HOST, there.port)).node()
    with near, far, pytest.raises(Unreachable, match="no node answers"):
        Mover(near, far, b"mail", b"mail", patience=0.5).move(5)
    assert sorted(bodies(here, "mail")) == sorted(made)
    assert (
        refused("move", "mail", "--to", to, *at(here)) == f"disqued move: no node answers at {to}: connection refused"
    )


def test_an_interrupt_ends_it_behind_a_batch(start: Start) -> None:
    node = start()
    fill(node, "mail", 200, "RETRY", 0)
    words = [*PROGRAM, "mail", "letters", "--rate", "20", "--batch", "2", *at(node)]
    with Program(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as move:
        wait_until(lambda: node.call("QLEN", "letters") >= 4, "jobs on the other side")
        move.send_signal(signal.SIGINT)
        said, complained = move.communicate(timeout=LIMIT)
    assert (move.returncode, complained) == (130, "")
    moved = node.call("QLEN", "letters")
    assert said == f"{moved} jobs were moved from mail to letters\n"
    assert node.call("QLEN", "mail") == 200 - moved


def test_an_empty_queue_is_moved_at_once(start: Start) -> None:
    result = run("move", "nothing", "more", *at(start()))
    assert (result.exit_code, result.stdout) == (0, "0 jobs were moved from nothing to more\n")
