"""What is made of the options that name a node, and what is refused, before any node is asked."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from disqued.client.addresses import Socket
from disqued.tools.connecting import Failed, Target, node_options

NO_VARIABLES: Mapping[str, str | None] = {"DISQUED_AUTH": None}


def run(
    words: Sequence[str], variables: Mapping[str, str | None] = NO_VARIABLES, typed: str = ""
) -> tuple[Target | None, Result]:
    """Run a verb that does nothing; returns what it was called with, if it was."""
    targets: list[Target] = []

    @click.command("verb")
    @node_options
    def verb(target: Target) -> None:
        targets.append(target)

    result = CliRunner().invoke(verb, words, env=dict(variables), input=typed)
    return (targets[0] if targets else None), result


def target(*words: str, **more: str) -> Target:
    made, result = run(words, **more)
    assert made is not None, result.output
    return made


def test_without_options_the_node_of_this_machine_is_meant() -> None:
    assert target() == Target(("127.0.0.1", 7711), None, None, None, 5.0)


def test_the_letters_are_those_of_redis_cli() -> None:
    made = target("-h", "::1", "-p", "7712", "-a", "secret", "--user", "ann", "--timeout", "0.5")
    assert made == Target(("::1", 7712), b"ann", b"secret", None, 0.5)
    assert str(made) == "[::1]:7712"
    assert target("-s", "/run/d.sock").address == Socket("/run/d.sock")


def test_the_socket_is_found_from_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert target("-s", "d.sock").address == Socket(str(tmp_path / "d.sock"))


def test_another_node_is_reached_in_the_same_way() -> None:
    made = target("-a", "secret", "--timeout", "2")
    assert made.at(("10.0.0.2", 7711)) == Target(("10.0.0.2", 7711), None, b"secret", None, 2.0)
    assert made.access.greetings == ((b"AUTH", b"secret"),)


def test_the_password_comes_from_where_others_cannot_see_it(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"of the file \xff\r\nnot this\n")
    file.chmod(0o600)
    variable = {"DISQUED_AUTH": "of the variable"}
    assert target(variables=variable).password == b"of the variable"
    assert target("--password-file", str(file), variables=variable).password == b"of the file \xff"
    assert target("--askpass", typed="typed\n", variables=variable).password == b"typed"
    assert target("-a", "given", variables=variable).password == b"given"


def test_the_password_is_in_no_repr() -> None:
    assert "hush" not in repr(target("-a", "hush"))


def test_what_was_typed_as_a_password_is_not_shown() -> None:
    _, result = run(["--askpass"], typed="hush\n")
    assert "hush" not in result.output


@pytest.mark.parametrize(("mode", "line"), [(0o644, b"secret\n"), (0o600, b"\nsecond\n"), (0o600, b"")])
def test_a_file_of_no_use_is_refused_by_name(tmp_path: Path, mode: int, line: bytes) -> None:
    file = tmp_path / "password"
    file.write_bytes(line)
    file.chmod(mode)
    made, result = run(["--password-file", str(file)])
    assert (made, result.exit_code) == (None, 1)
    assert result.stderr.startswith(f"verb: {file}: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-p", "0"], "1<=x<=65535"),
        (["-p", "x"], "'x' is not a valid integer"),
        (["-h", "a b"], "is no address of a node"),
        (["--timeout", "0"], "'0' is no number of seconds; allowed are spans of more than 0 up to 86400"),
        (["--timeout", "nan"], "'nan' is no number of seconds"),
        (["--user", "ann"], "--user is given without a password"),
        (["-a", "x", "--askpass"], "one of them is allowed"),
        (["--cacert", "ca.pem"], "--tls is not given"),
        (
            ["-s", "/run/d.sock", "-p", "7711"],
            "-s names a Unix socket, and -h and -p a host and its port: they exclude",
        ),
        (["-h", "127.0.0.1", "-s", "/run/d.sock"], "they exclude each other"),
        (["--tls", "-s", "/run/d.sock"], "a Unix socket (-s) is reached without it"),
        (["--tls", "--key", "key.pem"], "a key of TLS without its certificate"),
        (["--tls", "--cacert", "/nowhere/ca.pem"], "No such file or directory: '/nowhere/ca.pem'"),
    ],
)
def test_what_cannot_be_is_misuse_and_said(words: list[str], said: str) -> None:
    made, result = run(words)
    assert (made, result.exit_code) == (None, 2)
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_help_is_not_a_letter() -> None:
    _, result = run(["--help"])
    assert result.exit_code == 0
    assert "-h, --host HOST" in result.output
    assert "DISQUED_AUTH" in result.output


def test_a_failure_names_the_verb() -> None:
    @click.command("verb")
    def verb() -> None:
        raise Failed("no")

    assert CliRunner().invoke(verb, []).stderr == "verb: no\n"
