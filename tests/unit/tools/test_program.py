"""The program around the verbs: exit statuses, and one line for what went wrong."""

import contextlib
from collections.abc import Callable

import click
import pytest

from disqued.tools import program
from disqued.tools.connecting import Failed
from disqued.tools.misuse import VerbGroup
from disqued.tools.verbs import VERBS, VERBS_OF

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
    assert "'zzz'; disqued --help names all verbs; options alone start a node" in capsys.readouterr().err


#: A wrong line: what is said of it, besides the program that says it.
WRONG_LINES = {
    "start": "there is no verb 'start'; options alone start a node, such as disqued --port 7711; disqued --help",
    "Server --port 1": "there is no verb 'Server'; options alone start a node",
    "stat": "there is no verb 'stat'; did you mean cluster status or restart? disqued --help names all verbs",
    "status": "there is no verb 'status'; did you mean cluster status? disqued --help names all verbs",
    "queue mail": "there is no verb 'queue'; did you mean check queue? disqued --help names all verbs",
    "ping": "there is no verb 'ping'; it is a command of a node: disqued cli ping; disqued --help names all verbs",
    "maxmemory": "it is a setting of a node: disqued --maxmemory VALUE; disqued --help names all verbs",
    "help nope": "there is no verb 'nope'; ",
    "help clustr": "there is no verb 'clustr'; did you mean cluster? disqued --help names all verbs",
    "help ADDJOB": "there is no verb 'ADDJOB'; it is a command of a node: disqued cli ADDJOB; disqued --help names all",
    "help port": "it is a setting of a node: disqued --port VALUE",
    "help cluster creat": "there is no verb 'creat'; did you mean create? verbs are add, create, drain, status",
    "help cli foo": "disqued cli has no verbs; its help is disqued cli --help",
    "cluster crate": "there is no verb 'crate'; did you mean create? verbs are add, create, drain, status",
    "cluster help create": "the help is disqued cluster --help",
    "cluster -p 1 status": "the option -p stands behind the verb: disqued cluster status -p",
    "cluster --nope": "there is no option '--nope'; options are --help; verbs are add, create, drain, status",
    "cluster --por 1 status": "did you mean --port? it stands behind the verb: disqued cluster status --port",
    "cluster status --nope": "there is no option '--nope'; disqued cluster status --help names all options",
    "cli -p 1 --port": "Option '--port' requires an argument; disqued cli --help names all options",
    "cli -p x": "'x' is not a whole number; disqued cli --help names all options",
    "top --onec": "there is no option '--onec'; did you mean --once? disqued top --help names all options",
    "top foo": "unexpected extra argument (foo); disqued top --help names all options",
    "purge": "Missing argument 'QUEUE'; disqued purge --help names all options",
    "move": "Missing argument 'FROM'; disqued move --help names all options",
    "completion bahs": "'bahs' is not one of 'bash', 'zsh', 'fish'; options are --help",
}


@pytest.mark.parametrize("words", WRONG_LINES)
def test_a_wrong_line_is_answered_with_the_nearest_right_one_and_the_way_to_all(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.run(words.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("disqued")
    assert WRONG_LINES[words] in said
    assert said.count("\n") == 1


def test_the_verbs_of_verbs_are_those_that_are_suggested() -> None:
    context = click.Context(program.program, info_name="disqued")
    found = set()
    for verb in VERBS:
        with contextlib.suppress(ImportError):
            command = program.program.get_command(context, verb)
            if isinstance(command, click.Group):
                assert isinstance(command, VerbGroup)
                found |= {(verb, below) for below in command.commands}
    assert found == set(VERBS_OF)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("cli --nosuch", "disqued cli: there is no option '--nosuch'; disqued cli --help names all options\n"),
        ("move --pasword x", "there is no option '--pasword'; did you mean --password or --password-file"),
        ("bench -c x", "'x' is not a whole number; disqued bench --help names all options\n"),
        (
            "export --nosuch",
            "disqued export: there is no option '--nosuch'; options are --config, --dir, --format, --help, ",
        ),
        ("cluster drian", "disqued cluster: there is no verb 'drian'; did you mean drain? verbs are"),
    ],
)
def test_of_many_options_not_all_are_told(capsys: pytest.CaptureFixture[str], words: str, said: str) -> None:
    assert program.run(words.split()) == 2
    told = capsys.readouterr().err
    assert said in told
    assert len(told) < 250
