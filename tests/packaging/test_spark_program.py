"""`disqued-spark` is found, teaches, and says what is missing; no JVM is needed for that."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from disqued.pipeline.command import VERBS, main_group, run
from disqued.pipeline.errors import Misused

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-m", "disqued.pipeline")


def test_the_help_names_every_verb() -> None:
    said = CliRunner().invoke(main_group, ["--help"])
    assert said.exit_code == 0
    for verb, what in VERBS.items():
        assert verb in said.output
        assert what.split()[0] in said.output


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_teaches(verb: str) -> None:
    said = CliRunner().invoke(main_group, [verb, "--help"])
    assert said.exit_code == 0
    assert f"disqued-spark {verb}" in said.output.partition("Options:")[0].partition("\n")[2]


def test_what_is_misused_ends_with_2_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["slo", "--target", "speed=1s"]) == 2
    assert "disqued-spark: --target 'speed=1s' is none: it is written" in capsys.readouterr().err
    assert run(["no-such-verb"]) == 2
    assert "no-such-verb" in capsys.readouterr().err


def test_the_exit_status_tells_results_from_failures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends(outcome: BaseException | int | None) -> int:
        def main(*words: object, **more: object) -> int | None:
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        monkeypatch.setattr(main_group, "main", main)
        return run([])

    assert ends(None) == 0
    assert ends(1) == 1
    assert ends(ValueError("broken")) == 2
    assert "ValueError: broken" in capsys.readouterr().err
    assert ends(Misused("not so")) == 2
    assert ends(KeyboardInterrupt()) == 130


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise ModuleNotFoundError(\"No module named 'click'\", name='click')")
    code = "import sys; sys.path.insert(0, sys.argv.pop()); from disqued.pipeline.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == (
        'disqued-spark needs the packages of disqued[spark], and click is not there: pip install "disqued[spark]"\n'
    )


def test_without_java_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "slo", "--tables", str(tmp_path)],
        cwd=ROOT, env={"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "it needs Java 17 or newer" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
