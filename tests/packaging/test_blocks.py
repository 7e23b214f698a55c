"""Every command that a page shows is run by a test: here stands by which, and why a few are not.

    page --commands()--> lines that somebody would type --> a test that names the page, or a reason

A line is one to be typed when it stands behind a prompt, in a block of sh or Python, or in a block without prompts that
begins with a program or a command of disqued.  Who adds a page adds it here, with the test that types it.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from disqued.commands import catalogue
from disqued.commands.table import TABLE

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROMPT = re.compile(r"\s*(?:\$|[\d.]+:\d+>|>>>) (.*)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = {
    "disqued", "disqued-spark", "twistd", "redis-cli", "make", "python", "python3", "pip", "curl", "spark-submit",
    "systemctl",
}  # fmt: skip

SMALLER = "tests/integration/test_smaller_blocks.py"
OPERATORS = "tests/integration/test_operators_pages.py"
PAGES_OF_SESSIONS = "tests/integration/test_docs.py"

#: Pages with commands: the tests that run them.  Each test names its page.
RUN_BY = {
    "README.md": (PAGES_OF_SESSIONS, SMALLER),
    "docs/explanation/audit.md": (SMALLER,),
    "docs/explanation/fuzzing.md": ("tests/fuzz/test_fuzz.py",),
    "docs/explanation/keys.md": (PAGES_OF_SESSIONS,),
    "docs/explanation/persistence.md": (SMALLER,),
    "docs/explanation/redis.md": (SMALLER,),
    "docs/explanation/simulation.md": (SMALLER,),
    "docs/explanation/sqlite.md": (SMALLER,),
    "docs/how-to/admin.md": (SMALLER,),
    "docs/how-to/backup.md": (OPERATORS,),
    "docs/how-to/benchmark.md": ("tests/integration/test_cli_howto.py",),
    "docs/how-to/cluster.md": ("tests/integration/test_cluster_howto.py",),
    "docs/how-to/command-line.md": ("tests/integration/test_command_line_howto.py",),
    "docs/how-to/deploy.md": ("tests/integration/test_deploy_howto.py",),
    "docs/how-to/from-bananaq.md": (PAGES_OF_SESSIONS,),
    "docs/how-to/from-disque.md": (OPERATORS,),
    "docs/how-to/from-okq.md": (PAGES_OF_SESSIONS,),
    "docs/how-to/from-redis-lists.md": (OPERATORS,),
    "docs/how-to/from-redisrq.md": (PAGES_OF_SESSIONS,),
    "docs/how-to/from-worqr.md": (PAGES_OF_SESSIONS,),
    "docs/how-to/history.md": ("tests/pipeline/test_history_howto.py",),
    "docs/how-to/import-export.md": (SMALLER,),
    "docs/how-to/monitor.md": (OPERATORS,),
    "docs/how-to/move-jobs.md": ("tests/pipeline/test_moving_howto.py",),
    "docs/how-to/python-clients.md": ("tests/integration/test_client_howto.py",),
    "docs/how-to/reports.md": ("tests/integration/test_reports_howto.py",),
    "docs/how-to/secure.md": (PAGES_OF_SESSIONS,),
    "docs/how-to/spark.md": ("tests/pipeline/test_spark_howto.py",),
    "docs/how-to/systemd.md": ("tests/integration/test_systemd_howto.py",),
    "docs/how-to/tls.md": ("tests/integration/test_tls_howto.py",),
    "docs/how-to/upgrade.md": (OPERATORS,),
    "docs/operations/runbook.md": ("tests/integration/test_runbook.py",),
    "docs/reference/disqued-spark.md": (SMALLER,),
    "docs/reference/http.md": ("tests/integration/test_http_reference.py",),
    "docs/tutorial-history.md": ("tests/pipeline/test_tutorial.py",),
    "docs/tutorial.md": (PAGES_OF_SESSIONS, SMALLER),
}

#: Tests that find the pages by themselves, and so name none.
FINDS_ITS_PAGES = {"docs/explanation/audit.md", "docs/reference/disqued-spark.md"}

MACHINE = "changes the machine: packages and services are tried where systemd runs and a registry may be asked"
HOSTS = "needs a cluster of Spark: `make spark-cluster` submits to one"
HOURS = "takes from minutes to hours; what it starts has tests of its own"

#: (page, how the line begins) -> why no test runs it.
NOT_RUN = {
    ("README.md", "make "): "runs the tests",
    ("README.md", "disqued install-units"): "as on the page about systemd, where it is run",
    ("README.md", "redis-cli -p 7711"): "opens the session below it, which is run",
    ("docs/explanation/simulation.md", "python -m disqued.testing"): HOURS,
    (
        "docs/explanation/sqlite.md",
        "datasette",
    ): "serves a page until it is ended; the database is that of the lines above",
    (
        "docs/how-to/admin.md",
        "xdg-open",
    ): "opens a browser on the screen; tests/integration/test_page.py does it without",
    ("docs/how-to/", "pip install"): MACHINE,
    ("docs/how-to/history.md", "disqued ship-events"): "copies to another host: tests/integration/test_cli.py",
    ("docs/how-to/history.md", "rm -r /srv/history"): "an example of what may be removed",
    ("docs/how-to/spark-cluster.md", ""): HOSTS,
    ("docs/how-to/spark.md", "redis-cli"): "the test makes the same call by its client",
    ("docs/how-to/systemd.md", "systemctl"): MACHINE,
    ("docs/how-to/systemd.md", "python3 -m venv"): MACHINE,
    ("docs/how-to/systemd.md", "/opt/disqued/bin/pip"): MACHINE,
    ("docs/performance.md", "make bench"): HOURS,
    (
        "docs/reference/command-line.md",
        "",
    ): "forms and examples of the help, for hosts and files of others; how-tos run such",
    ("docs/reference/disqued-spark.md", "pip install"): MACHINE,
    ("docs/reference/disqued-spark.md", "disqued-spark VERB"): "a form, and no command",
    ("docs/reference/event-log.md", "disqued ship-events"): "copies to another host: tests/integration/test_cli.py",
    ("docs/tutorial-history.md", "pip install"): MACHINE,
}


@attrs.frozen
class Command:
    """A line that a page shows to be typed, or a program."""

    page: str
    line: str

    @property
    def excused(self) -> list[tuple[str, str]]:
        """The reasons, by their keys, why it may go without a test."""
        return [key for key in NOT_RUN if self.page.startswith(key[0]) and self.line.startswith(key[1])]


def commands(page: str, text: str) -> Iterator[Command]:
    """All that a page shows to be typed."""
    for language, block in FENCE.findall(text):
        lines = block.splitlines()
        if language in ("sh", "python"):
            yield Command(page, lines[0])
        elif not language:
            yield from (Command(page, line) for line in _typed(lines))
    for block in re.findall(r"(?:^ {4,}\S.*\n)+", FENCE.sub("", text), re.MULTILINE):
        yield from (Command(page, line) for line in _typed(block.splitlines()))


def _typed(lines: list[str]) -> Iterator[str]:
    prompted = [found[1] for line in lines if (found := PROMPT.match(line))]
    if prompted:
        yield from prompted
        return
    for line in map(str.strip, lines):
        first = line.partition(" ")[0]
        # A drawing of calls has arrows and bars.
        if (first in PROGRAMS or first in COMMANDS) and not re.search(r"->|\s{4}\|", line):
            yield line


assert catalogue  # fills the table
COMMANDS = {name.decode() for name in TABLE}


def all_commands() -> list[Command]:
    """Of all pages."""
    found = []
    for path in PAGES:
        page = path.relative_to(ROOT).as_posix()
        # The grammar of commands is a reference: its examples are those of the HTTP API, and those of the other pages.
        if page != "docs/reference/commands.md":
            found += commands(page, path.read_text(encoding="utf-8"))
    return found


def unrun(found: list[Command]) -> list[Command]:
    """Those that no test runs and no reason excuses."""
    return [command for command in found if command.page not in RUN_BY and not command.excused]


def test_every_command_of_every_page_is_run_by_a_test() -> None:
    found = all_commands()
    assert len(found) > 400
    assert unrun(found) == []


def test_a_command_that_no_test_runs_is_noticed() -> None:
    text = "# New\n\n    $ redis-cli PING\n    PONG\n\n```python\nimport redis\n```\n\n    QLEN mail\n\n"
    text += "```\ndisqued --port 1\n```\n"
    planted = list(commands("docs/how-to/new.md", text))
    assert sorted(command.line for command in planted) == [
        "QLEN mail", "disqued --port 1", "import redis", "redis-cli PING",
    ]  # fmt: skip
    assert unrun(planted) == planted


@pytest.mark.parametrize("page", RUN_BY)
def test_the_tests_of_a_page_read_it(page: str) -> None:
    assert [command for command in all_commands() if command.page == page], "there is nothing to be typed any more"
    for test in RUN_BY[page]:
        text = (ROOT / test).read_text(encoding="utf-8")
        assert page in text or page in FINDS_ITS_PAGES, f"{test} does not name {page}"


def test_no_reason_is_left_over() -> None:
    used = {key for command in all_commands() for key in command.excused}
    assert set(NOT_RUN) - used == set()
