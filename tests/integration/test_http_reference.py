"""What the reference of the HTTP API shows is what happens: each curl line of the page, run on a real daemon."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import jsonschema_rs
import pytest

from disqued.web.api.acts import ID
from disqued.web.http_reference import BASE
from disqued.web.http_reference import title as title_of
from disqued.web.routes import ROUTES, Route
from tests import reports_sample
from tests.integration.daemon import HOST, LIMIT, ROOT, Daemon, free_port, launch
from tests.pages import following, shared_out

NAME = "docs/reference/http.md"
PAGE = (ROOT / NAME).read_text()
SECTION = re.compile(r"^### (.+?)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"```sh\n(.*?)\n```", re.DOTALL)
ANSWERS = re.compile(r"^- The example answers (\d+)$", re.MULTILINE)
#: The port of another node in the examples; nobody may listen there.
OTHER = "7712"
ENDS_THE_DAEMON = "POST /api/commands/SHUTDOWN"


@attrs.frozen
class Example:
    """One route as the page tells it."""

    title: str
    line: str  #: for the shell
    status: int


def examples() -> Iterator[Example]:
    """Every example of the page."""
    for title, text in SECTION.findall(PAGE):
        (line,), (status,) = SHELL.findall(text), ANSWERS.findall(text)
        yield Example(title, line, int(status))


EXAMPLES = list(examples())
BY_TITLE: dict[str, Route] = {title_of(entry): entry for entry in ROUTES if entry.listed}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, int]]:
    """A daemon with an admin side, and its port."""
    port, folder = free_port(), tmp_path_factory.mktemp("served")
    reports_sample.write(folder / "reports.sqlite")
    options = ["--http-port", str(port), "--appendonly", "yes", "--reports-file", str(folder / "reports.sqlite")]
    running = launch(folder / "data", options)
    yield running, port
    running.stop()


def run(line: str, port: int, answer: Path) -> int:
    """Type a line of the page into a shell; the body goes to a file.  Returns the status."""
    typed = f"{line.replace(BASE, f'http://{HOST}:{port}')} -s -S -o {answer} -w '%{{http_code}}'"
    done = subprocess.run(["sh", "-c", typed], capture_output=True, text=True, timeout=LIMIT, check=True)
    return int(done.stdout)


def prepare(daemon: Daemon) -> str:
    """See to it that the queue and the worker of the examples are there; returns the id of a job in the queue."""
    daemon.call("PAUSE", "mail", "none")
    daemon.call("WORKER", "START", "ID", "press-1", "TTL", 0)
    daemon.call("SCHEDULE", "SET", "nightly", "0 2 * * *", "QUEUE", "reports", "BODY", "sales")
    return str(daemon.call("ADDJOB", "mail", "to: bob", 0))


def test_the_page_tells_every_route_once() -> None:
    assert [example.title for example in EXAMPLES] == list(dict.fromkeys(example.title for example in EXAMPLES))
    assert {example.title for example in EXAMPLES} == set(BY_TITLE)


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.title for example in EXAMPLES])
def test_an_example_answers_as_the_page_says(
    served: tuple[Daemon, int], tmp_path: Path, example: Example, request: pytest.FixtureRequest
) -> None:
    daemon, port = served
    if example.title == ENDS_THE_DAEMON:
        port = free_port()
        daemon = request.getfixturevalue("start")("--http-port", str(port))
        daemon.ended = True
    line = example.line.replace(ID, prepare(daemon)).replace(OTHER, str(free_port()))
    answer = tmp_path / "answer"
    status = run(line, port, answer)
    assert status == example.status, answer.read_bytes()
    entry = BY_TITLE[example.title]
    if status == 200 and entry.media == "application/json":
        jsonschema_rs.validator_for(dict(entry.reply)).validate(json.loads(answer.read_bytes()))
    if example.title == ENDS_THE_DAEMON:
        assert daemon.wait_end() == 0
    with following(NAME, [example.line]) as lines:
        lines.ran(example.line)


def test_what_the_introduction_shows_works_and_errors_are_as_it_says(
    served: tuple[Daemon, int], tmp_path: Path
) -> None:
    _, port = served
    answer = tmp_path / "answer"
    plain, with_token, saving, comparing = (
        line.strip() for line in PAGE.partition("## All routes")[0].splitlines() if line.startswith("    curl ")
    )
    assert run(plain, port, answer) == 200
    # The first one is the example of a route as well.
    each = test_an_example_answers_as_the_page_says.__name__
    shared_out(NAME, f"tests/integration/test_http_reference.py::{each}", [plain, *(each.line for each in EXAMPLES)])
    with following(NAME) as page:
        assert run(f"TOKEN=any; {with_token}", port, answer) == 200, "no token is asked for here"
        page.ran(with_token)
        for line, status in ((saving, 200), (comparing, 304)):
            assert run(f"cd {tmp_path} && {line}", port, answer) == status
            page.ran(line)
    (shown,) = re.findall(r"^    \{\n.*?^    \}$", PAGE, re.MULTILINE | re.DOTALL)
    problem: dict[str, Any] = json.loads(shown)
    assert run(f"curl {BASE}/api/qstat/no-such-queue", port, answer) == problem["status"]
    told = json.loads(answer.read_bytes())
    assert told["type"].endswith(problem["type"].removeprefix("..."))
    assert {**told, "type": "", "detail": told["detail"].replace("no-such-queue", "mail")} == {**problem, "type": ""}
