"""What programs answer to a wrong line, and to a request for help: one exit status, one letter, one way."""

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from disqued.tools.verbs import VERBS
from tests.integration.tools import Tools

Answer = tuple[int, str, str]
Run = Callable[..., Answer]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with Tools(tmp_path_factory.mktemp("tools")) as tools:

        def answer(*words: str) -> Answer:
            done = tools.run(*words)
            return done.returncode, done.stdout, done.stderr

        yield answer


def spark(*words: str) -> Answer:
    """Run `disqued-spark` in this process."""
    from disqued.pipeline.command import run

    said, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        status = run(list(words))
    return status, said.getvalue(), complained.getvalue()


#: Verbs that exit with the statuses of monitoring plugins: there 2 would be CRITICAL, and UNKNOWN is 3.
PLUGINS = {"check": 3}
#: Verbs that have a host.
CONNECTING = {"cli", "top", "bench", "check", "cluster", "restart", "move", "purge"} | {
    "cancel", "consumers", "dead", "pause", "peek", "policy", "queues", "redrive", "requeue", "resume", "schedule",
    "slots", "throttle",
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_an_option_is_no_beginning_of_one_and_a_misuse_has_one_status(verb: str, run: Run) -> None:
    status, said, complained = run(verb, "--hel")
    assert (status, said) == (PLUGINS.get(verb, 2), "" if verb not in PLUGINS else said)
    assert "--hel" in complained + said


@pytest.mark.parametrize("words", [["--prot", "1"], ["--port", "x"], ["-h"], ["--port", "1", "x"], ["zop"]])
def test_a_misuse_of_the_node_has_the_status_of_verbs(words: list[str], run: Run) -> None:
    assert run(*words)[0] == 2


def test_a_wrong_file_of_settings_is_a_misuse(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "disqued.conf"
    file.write_text("prot 1\n")
    status, _, complained = run("--config", str(file))
    assert status == 2
    assert "line 1" in complained


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_what_the_option_of_a_verb_shows(verb: str, run: Run) -> None:
    shown = run(verb, "--help")
    assert shown[0] == 0
    assert run("help", verb) == shown


def test_help_knows_the_verbs_of_verbs(run: Run) -> None:
    assert run("help", "cluster", "create") == run("cluster", "create", "--help")
    assert run("help")[0] == 0
    assert run("help", "cluster", "creat") == (
        2,
        "",
        "disqued cluster: there is no verb 'creat'; did you mean create? verbs are add, create, drain, status\n",
    )


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - CONNECTING))
def test_the_letter_of_the_host_is_no_help(verb: str, run: Run) -> None:
    status, _, complained = run(verb, "-h")
    assert status == 2
    assert "-h is the host, in verbs that talk to a node; the help is --help" in complained


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--prot", "1"], "did you mean --proto-max-bulk-len or --port? disqued --help names all options"),
        (["--versoin"], "did you mean --version? disqued --help names all options"),
        (["-p", "1"], "-p is the port, in verbs that talk to a node; a node has --port"),
        (["-x"], "option -x not recognized; disqued --help names all options"),
        (["--port"], "option --port requires argument; disqued --help names all options"),
        (["--port", "1", "cli"], "options alone start a node, and a verb stands before its options"),
    ],
)
def test_a_wrong_option_of_a_node_is_answered_with_the_right_one(words: list[str], said: str, run: Run) -> None:
    status, _, complained = run(*words)
    assert status == 2
    assert said in complained
    assert complained.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("ingst", "disqued-spark: there is no verb 'ingst'; did you mean ingest? disqued-spark --help names all verbs"),
        ("help ingst", "disqued-spark: there is no verb 'ingst'; did you mean ingest? disqued-spark --help names all"),
        ("help nope", "disqued-spark: there is no verb 'nope'; disqued-spark --help names all verbs"),
        ("help audit x", "disqued-spark: disqued-spark audit has no verbs; its help is disqued-spark audit --help"),
        ("help audit --zzz", "disqued-spark audit: there is no option '--zzz'; disqued-spark audit --help names all"),
        ("audit --noets", "did you mean --notes? disqued-spark audit --help names all options"),
        ("ingest", "disqued-spark ingest: Missing option '--events'; disqued-spark ingest --help names all options"),
        ("export --to x --as jso", "'jso' is not one of 'parquet', 'csv', 'json'; disqued-spark export --help names"),
        ("--vers", "disqued-spark: there is no option '--vers'; options are --help"),
        ("ingest --every", "disqued-spark ingest: Option '--every' requires an argument; disqued-spark ingest --help"),
    ],
)
def test_a_wrong_line_for_spark_is_answered_with_the_right_one(words: str, said: str) -> None:
    status, shown, complained = spark(*words.split())
    assert (status, shown) == (2, "")
    assert said in complained
    assert complained.count("\n") == 1


def test_the_program_for_spark_has_the_same_ways() -> None:
    assert spark("help", "audit") == spark("audit", "--help")
    assert spark("help", "help") == spark("--help")
    for words in (["audit", "--hel"], ["audit", "-h"], ["aud"], ["--vers"]):
        assert spark(*words)[0] == 2, words
    assert "the help is --help" in spark("audit", "-h")[2]
