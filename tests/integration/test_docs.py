"""What the documentation shows is what happens: its sessions and its programs, run on a fresh daemon."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import takewhile

import pytest

from tests.integration.daemon import HOST, LIMIT, ROOT, Daemon
from tests.pages import following

PROMPT = "127.0.0.1:7711> "
JOB_ID = re.compile(r"DI[0-9a-f]{44}SQ")
#: Of a job, or of an element of a reliable list.
ID = re.compile(rf"{JOB_ID.pattern}|\d{{13}}-\d+")
#: Pages that walk users of other systems through the same work here.
FROM_OTHERS = ("docs/how-to/from-redisrq.md", "docs/how-to/from-okq.md", "docs/how-to/from-bananaq.md")
#: Pages where what is said belongs to the connection.
ONE_CONNECTION = {"docs/how-to/from-okq.md"}
#: A countdown in milliseconds, of which only the size is promised.
COUNTDOWN = re.compile(r"\(integer\) 29\d{4}$")
THROTTLED = re.compile(r"throttled for (29|30) s")  #: of one that has just begun

Start = Callable[..., Daemon]


def sessions(page: str) -> Iterator[tuple[str, list[str]]]:
    """The commands that a page shows, each with the lines of its reply."""
    command, reply = "", []
    for line in [*(ROOT / page).read_text().splitlines(), ""]:
        text = line.strip()
        if line.startswith("    ") and text.startswith(PROMPT):
            if command:
                yield command, reply
            command, reply = text.removeprefix(PROMPT), []
        elif line.startswith("    ") and command:
            reply.append(text)
        elif command:
            yield command, reply
            command, reply = "", []


def run(daemon: Daemon, command: str) -> list[str]:
    """What redis-cli prints for a line that is typed into it."""
    argv = ["redis-cli", "--no-raw", "-h", HOST, "-p", str(daemon.port)]
    done = subprocess.run(argv, input=command, capture_output=True, text=True, timeout=LIMIT, check=True)
    return [line.strip() for line in done.stdout.rstrip("\n").splitlines()]


class Typing:
    """One redis-cli to which lines are typed: what a page shows is one connection."""

    END = "the end of a reply"

    def __init__(self, daemon: Daemon) -> None:
        argv = ["redis-cli", "--no-raw", "-h", HOST, "-p", str(daemon.port)]
        self._program = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def type(self, command: str) -> list[str]:
        """Type a line; returns what is printed for it."""
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(f'{command}\nECHO "{self.END}"\n')
        self._program.stdin.flush()
        printed = iter(self._program.stdout.readline, "")
        reply = [line.strip() for line in takewhile(lambda line: self.END not in line, printed)]
        return [line for line in reply if line]

    def close(self) -> None:
        self._program.communicate(timeout=LIMIT)


def masked(line: str) -> str:
    return COUNTDOWN.sub("(integer) 29....", THROTTLED.sub("throttled for 30 s", ID.sub("<id>", line)))


def contains_in_order(printed: list[str], shown: list[str]) -> bool:
    """Say whether all the lines are among those printed, in their order; "..." stands for lines left out."""
    rest = iter(printed)
    return all(any(line == wanted for line in rest) for wanted in shown if wanted != "...")


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/tutorial.md",
        "docs/explanation/dead-letters.md",
        "docs/explanation/keys.md",
        "docs/explanation/limits.md",
        "docs/explanation/results.md",
        "docs/explanation/schedules.md",
        "docs/how-to/fair-tenants.md",
        "docs/how-to/limit-an-api.md",
        "docs/how-to/nightly-reports.md",
        "docs/how-to/one-job-per-customer.md",
        "docs/how-to/secure.md",
        "docs/how-to/throttle-after-429.md",
        *FROM_OTHERS,
    ],
)
def test_a_session_goes_as_the_page_shows_it(start: Start, page: str) -> None:
    steps = list(sessions(page))
    assert len(steps) > 2
    real: dict[str, str] = {}
    daemon = start()
    with following(page) as lines, closing(Typing(daemon)) as typing:
        for command, shown in steps:
            typed = ID.sub(lambda match: real.get(match[0], match[0]), command)
            printed = typing.type(typed) if page in ONE_CONNECTION else run(daemon, typed)
            for ours, theirs in zip(ID.findall("\n".join(shown)), ID.findall("\n".join(printed)), strict=False):
                real.setdefault(ours, theirs)
            wanted, got = [masked(line) for line in shown], [masked(line) for line in printed]
            assert contains_in_order(got, wanted) if "..." in shown else got == wanted, (command, printed)
            lines.ran(command)


@pytest.mark.parametrize("page", ["docs/how-to/from-worqr.md"])
def test_a_page_about_one_connection_goes_as_it_shows(start: Start, page: str) -> None:
    real: dict[str, str] = {}
    with following(page) as lines, closing(Typing(start())) as typing:
        for command, shown in sessions(page):
            printed = typing.type(JOB_ID.sub(lambda match: real[match[0]], command))
            for ours, theirs in zip(JOB_ID.findall("\n".join(shown)), JOB_ID.findall("\n".join(printed)), strict=True):
                real.setdefault(ours, theirs)
            assert [JOB_ID.sub(lambda match: real[match[0]], line) for line in shown] == printed, command
            lines.ran(command)


@pytest.mark.parametrize("page", ["docs/how-to/from-worqr.md"])
def test_the_program_of_a_page_prints_what_it_shows(start: Start, page: str) -> None:
    daemon = start()
    text = (ROOT / page).read_text()
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (shown,) = re.findall(r"It prints:\n\n```\n(.*?)```", text, re.DOTALL)
    here = program.replace("port=7711", f"port={daemon.port}")
    done = subprocess.run([sys.executable, "-c", here], capture_output=True, text=True, timeout=LIMIT, check=True)
    assert done.stdout == shown
    with following(page) as lines:
        lines.ran(program)


def test_the_worker_of_the_tutorial_works(start: Start) -> None:
    daemon = start()
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/tutorial.md").read_text(), re.DOTALL)
    daemon.call("ADDJOB", "mail", "to: ann", 0)
    here = program.replace("port=7711", f"port={daemon.port}")
    done = subprocess.run([sys.executable, "-c", here], capture_output=True, text=True, timeout=LIMIT, check=True)
    assert done.stdout == "sending to: ann\n"
    assert daemon.call("JSCAN") == ["0", []]
    with following("docs/tutorial.md") as lines:
        lines.ran(program)


def test_the_python_session_of_the_readme_runs(start: Start) -> None:
    daemon = start()
    lines = re.findall(r"^    >>> (.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    program = "\n".join(f"print({line})" if "execute" in line else line for line in lines)
    program = program.replace("port=7711", f"port={daemon.port}")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT, check=True)
    added, taken = done.stdout.splitlines()
    assert JOB_ID.sub("<id>", added) == "b'<id>'"
    assert JOB_ID.sub("<id>", taken) == "[[b'mail', b'<id>', b'to: bob']]"
    with following("README.md") as readme:
        readme.ran(*lines)


def test_every_link_leads_somewhere() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())]
    assert links
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []
