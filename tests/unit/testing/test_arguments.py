"""Command lines of the programs around disqued take options by their whole names alone."""

import pytest

from disqued.testing.arguments import ExactParser


def test_the_beginning_of_an_option_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    parser = ExactParser(prog="try")
    parser.add_argument("--minutes", type=int)
    verb = parser.add_subparsers().add_parser("run")
    verb.add_argument("--seconds", type=int)
    assert parser.parse_args(["--minutes", "5"]).minutes == 5
    assert parser.parse_args(["run", "--seconds", "6"]).seconds == 6
    for words in (["--min", "5"], ["run", "--sec", "5"], ["--min=5"]):
        with pytest.raises(SystemExit) as ended:
            parser.parse_args(words)
        assert ended.value.code == 2
    assert "unrecognized arguments: --min" in capsys.readouterr().err
