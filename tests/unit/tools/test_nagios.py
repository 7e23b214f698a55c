"""What a monitoring plugin says: thresholds, the line, and what each check makes of what nodes tell."""

import shlex
from collections.abc import Mapping
from typing import Self

import pytest

from disqued.tools import check, program
from disqued.tools.connecting import Target
from disqued.tools.nagios import CheckResult, CheckState, Range


@pytest.mark.parametrize(
    ("text", "fine", "alerts"),
    [
        ("10", [0, 5, 10], [-1, 10.5, 11]),
        ("10:", [10, 1e9], [9, -1]),
        ("~:10", [-1e9, 10], [11]),
        ("5:10", [5, 10], [4, 11]),
        ("@5:10", [4, 11], [5, 10]),
        ("@0", [1, -1], [0]),
        ("1.5:2.5", [1.5, 2], [1, 3]),
    ],
)
def test_a_threshold_is_a_range(text: str, fine: list[float], alerts: list[float]) -> None:
    limit = Range.of(text)
    assert [limit.alerts(value) for value in fine] == [False] * len(fine)
    assert [limit.alerts(value) for value in alerts] == [True] * len(alerts)
    assert str(limit) == text


@pytest.mark.parametrize("text", ["", "@", "x", "10:5", "nan", "1:x", "~"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Range.of(text)


def test_the_worst_state_is_the_one_that_is_told() -> None:
    report = CheckResult("NODE", "all is well")
    assert report.line() == "NODE OK - all is well"
    report.add(CheckState.UNKNOWN, "one")
    assert report.state is CheckState.UNKNOWN
    report.add(CheckState.CRITICAL, "two | three\nfour")
    report.add(CheckState.WARNING, "five")
    assert report.line() == "NODE CRITICAL - one, two / three four, five"


def test_figures_are_performance_data() -> None:
    report = CheckResult("QUEUE", "fine")
    report.figure("age", 2.5, "s", warning=Range.of("2"), critical=Range.of("5:"), problem="it is old")
    report.figure("length", 3)
    report.figure("memory", 1.0, "%", most=100)
    assert report.line() == "QUEUE CRITICAL - it is old (allowed: 5:) | age=2.5s;2;5:;0 length=3;;;0 memory=1%;;;0;100"


INFO = {
    "loading": "0", "aof_enabled": "1", "aof_state": "on", "aof_last_write_status": "ok",
    "aof_last_bgrewrite_status": "ok", "aof_current_rewrite_time_sec": "-1", "aof_last_rewrite_time_sec": "-1",
    "aof_current_size": "100", "aof_buffer_length": "0", "aof_delayed_fsync": "2", "persistence": "aof",
    "internal_errors": "0", "used_memory": "50", "maxmemory": "100", "registered_jobs": "1", "registered_queues": "1",
    "connected_clients": "1", "uptime_in_seconds": "9",
}  # fmt: skip


def checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str, **facts: str
) -> tuple[int, str]:
    """Run a check on a node whose INFO says so; the exit status, and what is said before the figures."""

    def read_info(node: object) -> Mapping[str, str]:
        return {**INFO, **facts}

    monkeypatch.setattr(check, "read_info", read_info)
    status = program.run(["check", *words])
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.count("\n") == 1
    return status, said.out.partition(" | ")[0].strip()


@pytest.mark.parametrize(
    ("words", "facts", "status", "said"),
    [
        ("node", {}, 0, "NODE OK - 127.0.0.1:7711 has 1 jobs, 50.0 % of the memory in use"),
        ("node", {"used_memory": "80"}, 1, "NODE WARNING - 80.0 % of the memory is in use (allowed: 75)"),
        ("node", {"used_memory": "99"}, 2, "NODE CRITICAL - 99.0 % of the memory is in use (allowed: 95)"),
        ("node -w 90", {"used_memory": "80"}, 0, "NODE OK - 127.0.0.1:7711 has 1 jobs, 80.0 % of the memory in use"),
        ("node", {"maxmemory": "0"}, 0, "NODE OK - 127.0.0.1:7711 has 1 jobs, 0.0 % of the memory in use"),
        ("node", {"loading": "1"}, 1, "NODE WARNING - the node is loading its jobs"),
        ("node", {"internal_errors": "2"}, 1, "NODE WARNING - 2 internal errors; the log has them"),
        ("node", {"aof_last_write_status": "err"}, 2, "NODE CRITICAL - the last write to the store failed"),
        ("node", {"tls_certificate_expires_in_seconds": "8640000", "tls_certificate_expires_first": "tls-port"}, 0,
         "NODE OK - 127.0.0.1:7711 has 1 jobs, 50.0 % of the memory in use"),
        ("node", {"tls_certificate_expires_in_seconds": "2500000", "tls_certificate_expires_first": "tls-port"}, 1,
         "NODE WARNING - the certificate of tls-port ends in 28.9 days (allowed: 30:)"),
        ("node", {"tls_certificate_expires_in_seconds": "86400", "tls_certificate_expires_first": "http-endpoint"}, 2,
         "NODE CRITICAL - the certificate of http-endpoint ends in 1.0 days (allowed: 7:)"),
        ("node", {"tls_certificate_expires_in_seconds": "-129600", "tls_certificate_expires_first": "tls-port"}, 2,
         "NODE CRITICAL - the certificate of tls-port ended 1.5 days ago (allowed: 7:)"),
        ("node --warning-certificate 14: --critical-certificate 1:",
         {"tls_certificate_expires_in_seconds": "864000", "tls_certificate_expires_first": "tls-port"}, 1,
         "NODE WARNING - the certificate of tls-port ends in 10.0 days (allowed: 14:)"),
        ("aof", {}, 0, "AOF OK - the last write and the last rewrite are in order, 100 bytes"),
        ("aof", {"aof_enabled": "0", "persistence": "none"}, 3,
         "AOF UNKNOWN - 127.0.0.1:7711 keeps no append-only file: `persistence` is none"),
        ("aof", {"aof_enabled": "1", "persistence": "sqlite"}, 3,
         ("AOF UNKNOWN - 127.0.0.1:7711 keeps no append-only file: `persistence` is sqlite; "
          "`disqued check node` looks at the writes of every store")),
        ("aof", {"aof_last_write_status": "err"}, 2,
         "AOF CRITICAL - the last write failed, and the node takes no jobs"),
        ("aof", {"aof_last_bgrewrite_status": "err"}, 1, "AOF WARNING - the last rewrite failed"),
        ("aof -w 60 -c 600", {"aof_current_rewrite_time_sec": "90"}, 1,
         "AOF WARNING - a rewrite has been under way for 90 s (allowed: 60)"),
        ("aof -w 60 -c 600", {"aof_current_rewrite_time_sec": "601"}, 2,
         "AOF CRITICAL - a rewrite has been under way for 601 s (allowed: 600)"),
    ],
)  # fmt: skip
def test_what_info_tells_is_judged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, facts: dict[str, str],
    status: int, said: str,
) -> None:  # fmt: skip
    assert checked(monkeypatch, capsys, *words.split(), **facts) == (status, said)


EMPTY = "QUEUE is empty, as of a variable that is not set; allowed are names of queues"
NO_RANGE = "Invalid value for '-w' / '--warning': 'x' is no range; allowed are 10, 10:, ~:10, 5:10 and @5:10"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "which check is meant? disqued check --help lists them"),
        ("nosuch", "there is no check 'nosuch'; checks are aof, cluster, node, queue"),
        ("quue", "there is no check 'quue'; did you mean queue? checks are aof, cluster, node, queue"),
        ("-p 1 queue", "the option -p stands behind the verb: disqued check queue -p"),
        (
            "node --prot 1",
            "there is no option '--prot'; did you mean --port? disqued check node --help names all options",
        ),
        ("node --port", "Option '--port' requires an argument; disqued check node --help names all options"),
        ("--nosuch", "there is no option '--nosuch'; options are --help; checks are aof, cluster, node, queue"),
        (
            "--por 1",
            "there is no option '--por'; did you mean --port? it stands behind the verb: disqued check aof --port",
        ),
        (
            "--por 1 node",
            "there is no option '--por'; did you mean --port? it stands behind the verb: disqued check node --port",
        ),
        ("queue", "Missing argument 'QUEUE'; disqued check queue --help names all options"),
        (
            "queue ''",
            f"{EMPTY}; disqued check queue --help names all options",
        ),
        (
            "node -w x",
            f"{NO_RANGE}; disqued check node --help names all options",
        ),
    ],
)
def test_misuse_is_unknown_and_not_an_alert(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    status, line = checked(monkeypatch, capsys, *shlex.split(words))
    assert (status, line) == (3, f"CHECK UNKNOWN - {said}")


def test_a_plugin_without_its_packages_is_unknown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read_info(node: object) -> Mapping[str, str]:
        raise ImportError("needs redis-py", name="redis")

    monkeypatch.setattr(check, "read_info", read_info)
    assert program.run(["check", "node"]) == 3
    said = 'CHECK UNKNOWN - redis is not installed, which this verb needs: pip install "disqued[cli]"\n'
    assert capsys.readouterr().out == said


def test_what_is_no_disqued_node_is_unknown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Redis:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *error: object) -> None: ...

        def call(self, *words: str) -> bytes:
            return b"# Server\r\nredis_version:7.0.15\r\nused_memory:5\r\nmaxmemory:0\r\n"

    monkeypatch.setattr(Target, "node", lambda target: Redis())
    assert program.run(["check", "node"]) == 3
    said = "its INFO has no registered_jobs: the address is that of something else than a node of disqued"
    assert capsys.readouterr().out == f"CHECK UNKNOWN - {said}\n"


@pytest.mark.parametrize("error", [KeyError("one\ntwo"), ImportError("no such", name="nosuch"), RecursionError("deep")])
def test_a_bug_is_unknown_in_one_line_and_no_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def read_info(node: object) -> Mapping[str, str]:
        raise error

    monkeypatch.setattr(check, "read_info", read_info)
    assert program.run(["check", "node"]) == 3
    said = capsys.readouterr().out
    assert said.startswith(f"CHECK UNKNOWN - the check failed: {type(error).__name__}: ")
    assert said.count("\n") == 1


def test_a_host_that_is_no_text_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["check", "node", "-h", "\udcff\udcfe"]) == 3
    assert capsys.readouterr().out.count("\n") == 1


def test_help_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["check", "node", "--help"]) == 0
    assert "Usage: disqued check node" in capsys.readouterr().out
