"""The page on reports: its program and its commands run as they stand there, and answer what they show."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest

from disqued.pipeline.reports.store import Reports
from tests.integration.daemon import HOST, LIMIT, ROOT, environment, free_port, launch
from tests.integration.test_docs import contains_in_order
from tests.pages import following, shared_out

NAME = "docs/how-to/reports.md"
PAGE = (ROOT / NAME).read_text()
COMMAND = re.compile(r"^    \$ (.*)\n((?:    (?!\$).*\n|\n(?=    [^$\s]))*)", re.MULTILINE)
COMMANDS = [
    (line, [shown.strip() for shown in said.splitlines() if shown.strip()]) for line, said in COMMAND.findall(PAGE)
]
[PROGRAM] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
[STARTED] = [line for line, _ in COMMANDS if line.startswith("disqued ")]
OTHERS = [pair for pair in COMMANDS if pair[0] != STARTED]
#: Programs that packages install.
PROGRAMS = {
    "disqued-spark": "import sys; from disqued.pipeline.__main__ import main; sys.exit(main())",
    "sqlite-utils": "from sqlite_utils.cli import cli; cli()",
}
SERVED = "/srv/reports.sqlite"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the program of the page has made the file."""
    made = tmp_path_factory.mktemp("howto")
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=made, env=environment(), timeout=LIMIT, check=True)
    (made / "bin").mkdir()
    for name, code in PROGRAMS.items():
        script = made / "bin" / name
        script.write_text(f"#!{sys.executable}\n{code}\n")
        script.chmod(0o755)
    return made


@pytest.fixture(scope="module")
def port(folder: Path) -> Iterator[int]:
    """The HTTP port of a node that is started as the page says."""
    options = STARTED.replace(SERVED, str(folder / "reports.sqlite")).split()[1:]
    chosen = free_port()
    running = launch(folder / "data", [*options, "--http-port", str(chosen)])
    yield chosen
    running.stop()


@pytest.mark.parametrize(("line", "shown"), OTHERS)
def test_a_command_prints_what_the_page_shows(folder: Path, port: int, line: str, shown: list[str]) -> None:
    (folder / "srv").mkdir(exist_ok=True)
    typed = line.replace("127.0.0.1:7780", f"{HOST}:{port}").replace("/srv/", f"{folder}/srv/")
    variables = {**environment(), "PATH": f"{folder}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", typed], cwd=folder, env=variables, capture_output=True, text=True, timeout=LIMIT, check=True
    )
    printed = [said.strip() for said in done.stdout.splitlines() if said.strip()]
    assert contains_in_order(printed, shown) if "..." in shown else printed == shown, done.stdout
    if "--output" in line:
        assert "5 lines are missing, 9127 to 9131" in (folder / "report.html").read_text()
    if "mv " in line:
        with closing(Reports(folder / "srv" / "reports.sqlite")) as reports:
            assert not reports.is_empty("queues")
    with following(NAME, [line]) as lines:
        lines.ran(line)


def test_the_node_of_the_page_serves_the_file_that_its_program_made(folder: Path, port: int) -> None:
    with following(NAME) as lines:
        assert (folder / "reports.sqlite").exists()
        lines.ran(PROGRAM)
        with urlopen(f"http://{HOST}:{port}/api/reports/queues?queue=mail", timeout=LIMIT) as answer:
            assert answer.status == 200
        lines.ran(STARTED)
    printing = test_a_command_prints_what_the_page_shows.__name__
    shared_out(NAME, f"tests/integration/test_reports_howto.py::{printing}", [line for line, _ in OTHERS])
