"""TAB in a real bash: the program of `disqued completion`, and what it offers."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.daemon import LIMIT, environment


def bash(program: str, folder: Path) -> str:
    """Run a program in a bash that finds `disqued`; returns what it prints."""
    script = folder / "disqued"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m disqued.cli "$@"\n')
    script.chmod(0o755)
    variables = environment()
    done = subprocess.run(
        ["bash", "--norc", "-c", program], env={**variables, "PATH": f"{folder}:{variables['PATH']}"}, cwd="/",
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def offered(folder: Path, *words: str) -> list[str]:
    """What bash would offer for the last of these words."""
    typed = " ".join(map(shlex.quote, words))
    program = f"""
        eval "$(disqued completion bash)"
        COMP_WORDS=(disqued {typed}) COMP_CWORD={len(words)}
        _disqued_completion disqued
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return bash(program, folder).split()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ch"], ["check", "check-aof"]),
        (["--appendfs"], ["--appendfsync"]),
        (["check", ""], ["node", "cluster", "queue", "aof"]),
        (["check", "queue", "--warn"], ["--warning", "--warning-length"]),
        (["cli", "--js"], ["--json"]),
        (["export", "--format", ""], ["jsonl", "parquet"]),
        (["completion", "z"], ["zsh"]),
    ],
)
def test_bash_offers_verbs_options_and_settings(tmp_path: Path, words: list[str], said: list[str]) -> None:
    assert sorted(offered(tmp_path, *words)) == sorted(said)


def test_bash_is_told_which_function_completes_the_command(tmp_path: Path) -> None:
    said = bash('eval "$(disqued completion bash)"; complete -p disqued', tmp_path)
    assert "-F _disqued_completion disqued" in said


@pytest.mark.parametrize(("shell", "word"), [("zsh", "compdef"), ("fish", "complete --no-files --command disqued")])
def test_other_shells_have_a_program_too(tmp_path: Path, shell: str, word: str) -> None:
    assert word in bash(f"disqued completion {shell}", tmp_path)
