"""TAB in real shells: the program of `disqued completion` is loaded, and asked for what a line may go on with.

bash and fish are asked by a program; zsh completes for people alone, so that it gets a terminal.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.integration.daemon import LIMIT, environment
from tests.integration.terminal import Terminal

READY = "ready> "


def variables(folder: Path) -> Mapping[str, str]:
    """The environment of a user who has `disqued`, and no start-up files."""
    script = folder / "bin" / "disqued"
    script.parent.mkdir(exist_ok=True)
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m disqued.cli "$@"\n')
    script.chmod(0o755)
    ours = environment()
    return {
        **ours,
        "PATH": f"{script.parent}:{ours['PATH']}",
        "HOME": str(folder),
        "ZDOTDIR": str(folder),
        "PS1": READY,
    }


def shell(folder: Path, *words: str) -> str:
    """Run a shell that finds `disqued`; returns what it prints."""
    done = subprocess.run(
        words, env=variables(folder), cwd="/", capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def bash(folder: Path, *words: str) -> list[str]:
    """What bash would offer for the last of these words."""
    typed = " ".join(map(shlex.quote, words))
    program = f"""
        eval "$(disqued completion bash)"
        COMP_WORDS=(disqued {typed}) COMP_CWORD={len(words)}
        compopt() {{  # readline would look for files, or for folders (dirnames)
            if [ "$2" = dirnames ]; then kind=-d; else kind=-f; fi
            compgen $kind -- "${{COMP_WORDS[COMP_CWORD]}}"
        }}
        _disqued_completion disqued
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return shell(folder, "bash", "--norc", "-c", program).split()


def fish(folder: Path, *words: str) -> list[str]:
    """What fish would offer, each with what is said of it behind a tab."""
    line = " ".join(("disqued", *words))
    program = f"disqued completion fish | source; complete --do-complete {shlex.quote(line)}"
    return shell(folder, "fish", "--no-config", "-c", program).splitlines()


def zsh(folder: Path, *words: str) -> list[str]:
    """What zsh shows for a line that is typed as far as this, each with what is said of it behind `--`."""
    line = " ".join(("disqued", *words))
    with Terminal(("zsh", "-f", "-i"), variables(folder)) as terminal:
        terminal.expect(READY)
        # The list stands below the line, and a new prompt below that.
        terminal.type("unsetopt always_last_prompt prompt_cr prompt_sp zle_bracketed_paste\r")
        terminal.expect(READY)
        terminal.type('eval "$(disqued completion zsh)"; print $+functions[_disqued_completion]\r')
        terminal.expect(f"\n1\r\n{READY}")
        terminal.type(line)
        terminal.expect(re.escape(line.rstrip()))
        terminal.type("\x04")
        shown = terminal.expect(READY)
        terminal.type("\x15exit\r")
        assert terminal.wait_end() == 0
    return [found for found in map(str.strip, shown.removesuffix(READY).splitlines()) if found]


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}


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
        (["--port", "7712", "--persistence", ""], ["none", "aof", "sqlite", "redis"]),
        (["--tls-cluster", "y"], ["yes"]),
    ],
)
@pytest.mark.parametrize("name", SHELLS)
def test_shells_offer_verbs_options_settings_and_values(
    tmp_path: Path, name: str, words: list[str], said: list[str]
) -> None:
    offered = [line.split()[0] for line in SHELLS[name](tmp_path, *words)]
    if name == "zsh" and words[-2:-1] in (["--format"], ["--persistence"]):
        # Words of which nothing is said share lines.
        offered = [word for line in zsh(tmp_path, *words) for word in line.split()]
    assert sorted(offered) == sorted(said)


@pytest.mark.parametrize(
    ("before", "is_folder"),
    [(["export", "--output"], False), (["check-aof"], False), (["export", "--dir"], True), (["--config"], False)],
)
@pytest.mark.parametrize("name", SHELLS)
def test_shells_offer_files_where_a_file_is_wanted(
    tmp_path: Path, name: str, before: list[str], is_folder: bool
) -> None:
    (tmp_path / "jobs-a.jsonl").touch()
    (tmp_path / "jobs-b").mkdir()
    offered = SHELLS[name](tmp_path, *before, f"{tmp_path}/jobs-")
    found = {Path(word).name for line in offered for word in line.split()[: 1 if name == "fish" else None]}
    assert found == ({"jobs-b"} if is_folder else {"jobs-a.jsonl", "jobs-b"})


@pytest.mark.parametrize(("name", "between"), [("zsh", "  -- "), ("fish", "\t")])
def test_all_that_is_said_of_a_word_is_shown(tmp_path: Path, name: str, between: str) -> None:
    assert f"check-aof{between}examine an append-only file, and repair it" in SHELLS[name](tmp_path, "check-")


def test_zsh_with_a_completion_of_its_own_keeps_it(tmp_path: Path) -> None:
    begun = 'autoload -Uz compinit && compinit -D; compinit() { print again; }; eval "$(disqued completion zsh)"'
    assert shell(tmp_path, "zsh", "-f", "-c", f"{begun}; print $_comps[disqued]") == "_disqued_completion\n"


def test_zsh_takes_the_program_from_a_folder_of_functions(tmp_path: Path) -> None:
    (tmp_path / "_disqued").write_text(shell(tmp_path, "disqued", "completion", "zsh"))
    found = f"fpath=({shlex.quote(str(tmp_path))} $fpath); autoload -Uz compinit && compinit -D"
    assert shell(tmp_path, "zsh", "-f", "-c", f"{found}; print $_comps[disqued]") == "_disqued\n"


def test_bash_is_told_which_function_completes_the_command(tmp_path: Path) -> None:
    said = shell(tmp_path, "bash", "--norc", "-c", 'eval "$(disqued completion bash)"; complete -p disqued')
    assert "-F _disqued_completion disqued" in said
