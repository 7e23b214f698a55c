"""The options of the command line: what --help and --version tell, and what a wrong option is answered."""

import platform
import re
import sys

import pytest
from twisted.copyright import version as twisted_version

from disqued import __version__
from disqued.config import SETTINGS, Status
from disqued.tap import Options
from tests import builds


def said(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """What the program writes before it ends successfully."""
    with pytest.raises(SystemExit) as ended:
        Options().parseOptions(options)
    assert ended.value.code == 0
    return capsys.readouterr().out


def refusal(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """What the program complains before it ends with the status of misuse."""
    with pytest.raises(SystemExit) as ended:
        Options().parseOptions(options)
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_the_version_is_that_of_disqued_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--version").splitlines() == [
        f"disqued {__version__}, core: {'compiled' if builds.COMPILED else 'source'}",
        f"Python {platform.python_version()}, Twisted {twisted_version}",
    ]


def test_help_tells_the_default_of_every_option_and_which_have_no_effect(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    entries = dict(re.findall(r"^ +(?:-c, )?--([a-z-]+)=? +(.*)$", said(capsys, "--help"), re.MULTILINE))
    assert entries.keys() - {"config", "help", "version"} == {
        name for name, setting in SETTINGS.items() if setting.status is not Status.OBSOLETE
    }
    for name, setting in SETTINGS.items():
        if setting.status is not Status.OBSOLETE:
            assert entries[name].startswith(setting.summary)
            assert ("No effect in this version" in entries[name]) == (setting.status is Status.PLANNED)
            assert not setting.default_text or entries[name].endswith(f"[default: {setting.default_text}]")


@pytest.mark.parametrize(
    ("program", "usage"),
    [
        ("/usr/bin/disqued", "Usage: disqued [options]"),
        ("/usr/bin/twistd", "Usage: twistd [options of twistd] disqued [options]"),
    ],
)
def test_help_begins_with_the_program_that_was_asked(
    program: str, usage: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [program])
    assert said(capsys, "--help").splitlines()[0] == usage


_ALL = "disqued --help names all options"


@pytest.mark.parametrize(
    ("option", "answer"),
    [
        ("--prt", f"option --prt not recognized; did you mean --port? {_ALL}"),
        ("--zzzz", f"option --zzzz not recognized; {_ALL}"),
        # A name of Disque that means nothing here is accepted in a file, and is no option.
        ("--hz", f"option --hz not recognized; {_ALL}"),
        ("--port", f"option --port requires argument; {_ALL}"),
        ("--port=x", "command line: --port x: allowed are whole numbers from 0 to 65535"),
        # The beginning of a name is not the name.
        ("--prot", f"option --prot not recognized; did you mean --proto-max-bulk-len or --port? {_ALL}"),
        ("--por", f"option --por not recognized; did you mean --port? {_ALL}"),
        ("--por=7712", f"option --por not recognized; did you mean --port? {_ALL}"),
        ("--conf", f"option --conf not recognized; did you mean --config? {_ALL}"),
        ("--vers", f"option --vers not recognized; did you mean --version? {_ALL}"),
        ("--hel", f"option --hel not recognized; did you mean --help? {_ALL}"),
        ("-h", "option -h not recognized; -h is the host, in verbs that talk to a node; the help is --help"),
        ("7712", f"unexpected word '7712': options alone start a node, and a verb stands before its options; {_ALL}"),
    ],
)
def test_a_wrong_option_is_answered_with_what_would_be_right(
    option: str, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(capsys, option) == f"disqued: {answer}\n"


@pytest.mark.parametrize(
    "before", [["--port", "1"], ["--port=1"], ["-c", "file"], ["-cfile"], ["--dir", "--por"], ["--dir=--por"]]
)
def test_every_option_is_looked_at_and_no_value_is(before: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "option --prt not recognized" in refusal(capsys, *before, "--prt", "1")


@pytest.mark.parametrize("name", SETTINGS)
def test_no_setting_is_taken_by_the_beginning_of_its_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if (short := name[:-1]) not in SETTINGS:
        assert f"option --{short} not recognized" in refusal(capsys, f"--{short}", "1")
