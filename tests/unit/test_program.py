"""The program around the verbs: exit statuses, and one line for what went wrong."""

from collections.abc import Callable

import click
import pytest

from disqued.tools import program
from disqued.tools.connecting import Failed
from disqued.tools.verbs import VERBS

Raiser = Callable[[], object]


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Callable[[Raiser], None]:
    """Put a verb `try` among the others."""

    def put(action: Raiser) -> None:
        @click.command("try")
        @click.option("--how")
        def command(how: str | None) -> object:
            return action()

        monkeypatch.setitem(VERBS, "try", ("try something", "tests.none"))
        monkeypatch.setattr(program, "import_module", lambda name: type("Module", (), {"command": command}))

    return put


def raising(error: BaseException) -> Raiser:
    def action() -> object:
        raise error

    return action


@pytest.mark.parametrize(
    ("action", "status", "said"),
    [
        (lambda: None, 0, ""),
        (lambda: 3, 3, ""),
        (lambda: click.get_current_context().exit(3), 3, ""),
        (lambda: click.get_current_context().fail("not so"), 2, "disqued try: not so; options are --help, --how\n"),
        (raising(Failed("cannot")), 1, ": cannot\n"),
        (raising(KeyboardInterrupt()), 130, ""),
        (raising(click.Abort()), 130, ""),
        (
            raising(ImportError("needs redis-py", name="redis")), 1,
            'disqued try: redis is not installed, which this verb needs: pip install "disqued[cli]"\n',
        ),
        (
            raising(ModuleNotFoundError("No module named 'rich'", name="rich.console")), 1,
            'disqued try: rich is not installed, which this verb needs: pip install "disqued[cli]"\n',
        ),
    ],
)  # fmt: skip
def test_what_becomes_of_a_verb_is_a_status_and_a_line(
    verb: Callable[[Raiser], None], capsys: pytest.CaptureFixture[str], action: Raiser, status: int, said: str
) -> None:
    verb(action)
    assert program.run(["try"]) == status
    assert capsys.readouterr().err.endswith(said)


@pytest.mark.parametrize(
    "error", [ValueError("a bug"), ImportError("cannot import name"), ModuleNotFoundError("no", name="disqued.nowhere")]
)
def test_a_bug_keeps_its_traceback(verb: Callable[[Raiser], None], error: Exception) -> None:
    verb(raising(error))
    with pytest.raises(type(error)):
        program.run(["try"])


def test_a_word_that_is_no_verb_is_told_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["improt"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("disqued: there is no verb 'improt'; did you mean import? disqued --help names all ")
    assert said.count("\n") == 1
    assert program.run(["zzz"]) == 2
    assert "'zzz'; disqued --help names all verbs; a node" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("cli --nosuch", "disqued cli: No such option '--nosuch'; disqued cli --help names all options\n"),
        ("move --pasword x", "(Did you mean one of: '--password', '--password-file', "),
        ("bench -c x", "'x' is not a whole number; disqued bench --help names all options\n"),
        (
            "export --nosuch",
            "disqued export: No such option '--nosuch'; options are --config, --dir, --format, --help, ",
        ),
        ("cluster drian", "disqued cluster: No such command 'drian'"),
    ],
)
def test_of_many_options_not_all_are_told(capsys: pytest.CaptureFixture[str], words: str, said: str) -> None:
    assert program.run(words.split()) == 2
    told = capsys.readouterr().err
    assert said in told
    assert len(told) < 250
