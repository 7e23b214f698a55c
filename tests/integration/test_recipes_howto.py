"""The page of recipes: each program runs as it stands there, and prints what the page says."""

import runpy
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from disqued.client import Job
from tests.integration.daemon import LIMIT, ROOT, Daemon, environment
from tests.integration.test_client_howto import PROGRAM
from tests.pages import following, shared_out

NAME = "docs/how-to/recipes.md"
RECIPES = PROGRAM.findall((ROOT / NAME).read_text())
CHARGES, OUTBOX, _ = (program for program, _ in RECIPES)

Start = Callable[..., Daemon]


def test_every_recipe_is_run() -> None:
    test = test_a_recipe_prints_what_the_page_says.__name__
    shared_out(NAME, f"tests/integration/test_recipes_howto.py::{test}", [program for program, _ in RECIPES])


@pytest.mark.parametrize(("program", "printed"), RECIPES, ids=["idempotent", "outbox", "response"])
def test_a_recipe_prints_what_the_page_says(start: Start, tmp_path: Path, program: str, printed: str) -> None:
    daemon = start()
    assert "127.0.0.1:7711" in program
    here = program.replace("127.0.0.1:7711", f"127.0.0.1:{daemon.port}")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", here], capture_output=True, text=True, timeout=LIMIT, check=True,
        cwd=tmp_path, env=environment(),
    )  # fmt: skip
    assert done.stdout == printed
    assert daemon.call("JSCAN", "STATE", "queued", "STATE", "active") == ["0", []]
    with following(NAME, [program]) as lines:
        lines.ran(program)


@pytest.fixture
def charges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The functions of the first recipe, on a database of their own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "charges.py").write_text(CHARGES)
    recipe = runpy.run_path("charges.py")
    with closing(recipe["connect"]()) as bank:
        bank.executescript(recipe["SCHEMA"])
    return recipe


def attempt(number: int) -> Job:
    return Job(b"charges", b"DI%046d" % 1, b"ann 5", attempt=number)


@pytest.mark.parametrize(
    ("steps", "refused", "charged"),
    [
        (["begin 1", "charge 1"], 0, 5),
        (["begin 1", "charge 1", "begin 2", "charge 2"], 0, 5),
        (["begin 1", "begin 2", "charge 1", "charge 2"], 1, 5),
        (["begin 1", "begin 2", "charge 2", "charge 1"], 1, 5),
        (["begin 2", "begin 1", "charge 1"], 1, 0),
        (["begin 1", "charge 1", "begin 2", "charge 1"], 1, 5),
    ],
)
def test_an_account_is_charged_once_and_never_by_a_stale_attempt(
    charges: dict[str, Any], steps: list[str], refused: int, charged: int
) -> None:
    found = 0
    for step in steps:
        name, number = step.split()
        try:
            charges[name](attempt(int(number)))
        except charges["StaleAttempt"]:
            found += 1
    with closing(charges["connect"]()) as bank:
        accounts = dict(bank.execute("SELECT * FROM accounts").fetchall())
    assert (found, accounts.get("ann", 0)) == (refused, charged)
