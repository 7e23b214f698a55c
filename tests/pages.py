"""What the pages of the documentation show to be typed, and which test runs which line of it.

    page --commands()--> each line that somebody would type --part()--> those of a test, or a reason in NOT_RUN
                                                                             |
    with following(page) as lines:  ... lines.ran("disqued bench") ...   <---+   what is left at the end fails

A line is one to be typed when it stands behind a prompt, or in a block without prompts that begins with a program or a
command of disqued; a block of sh or Python is one of several lines.  A test has the lines of its own entry in RUN_BY,
says of each that it was run, and fails when one is left.  So a line that is added to a page fails the test of the page,
and a page that is added fails tests/packaging/test_blocks.py, until somebody runs it, or says here why nobody can.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from disqued.commands import catalogue
from disqued.commands.table import TABLE

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "clients/python/README.md", "examples/django/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
#: The grammar of commands is a reference: its examples are those of the HTTP API, and those of the other pages.
GRAMMAR = "docs/reference/commands.md"
PROMPT = re.compile(r"\s*(?:\$|[\d.]+:\d+>|>>>) (.*)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4,}\S.*\n)+", re.MULTILINE)
#: What is said of a line behind it.
REMARK = re.compile(r"\s{3,}.*|\s+# .*")
#: A block of Python that does not say that it is one.
PYTHON = re.compile(r"(?:from [\w.]+ )?import \w|\w+ = \w[\w.]*\(")
#: Languages of blocks that are read, and not run.
DATA = ("csv", "ini", "json", "nft", "yaml")
PROGRAMS = {
    ".venv/bin/disqued", "curl", "datasette", "disqued", "disqued-spark", "make", "mkdir", "openssl", "pip", "pipx",
    "python", "python3", "redis-cli", "spark-submit", "sqlite-utils", "sqlite3", "systemctl", "twistd", "uv",
}  # fmt: skip

assert catalogue  # fills the table
COMMANDS = {name.decode() for name in TABLE}

INTEGRATION = "tests/integration"
PIPELINE = "tests/pipeline"
FIRST = f"{INTEGRATION}/test_first_blocks.py::test_the"
SMALLER = f"{INTEGRATION}/test_smaller_blocks.py::test"
OPERATORS = f"{INTEGRATION}/test_operators_pages.py::test"
DOCS = f"{INTEGRATION}/test_docs.py::test"
DJANGO = f"{INTEGRATION}/test_django_tasks.py::test"
ALONE = "tests/packaging/test_client_distribution.py::test"
CLIENTS = f"{INTEGRATION}/test_client_howto.py::test"
SYSTEMD = f"{INTEGRATION}/test_systemd_howto.py::test"
REPORTS = f"{INTEGRATION}/test_reports_howto.py::test"
SPARK = f"{PIPELINE}/test_spark_howto.py::test"
SESSION = f"{DOCS}_a_session_goes_as_the_page_shows_it"
SPARK_LINES = f"{SMALLER}_a_line_of_disqued_spark_is_one_that_it_takes"
FORMS = f"{SMALLER}_a_line_of_disqued_is_one_that_it_takes"

#: page -> tests, each with how its lines begin.  A line is that of the first test whose pattern it fits.
RUN_BY: dict[str, dict[str, str]] = {
    "clients/python/README.md": {f"{ALONE}_the_program_of_its_readme_runs": ""},
    "examples/django/README.md": {f"{DJANGO}_the_example_runs_as_its_page_says": "python"},
    "README.md": {
        SESSION: r"(ADDJOB|GETJOB|ACKJOB) ",
        f"{DOCS}_the_python_session_of_the_readme_runs": r"import |r\b",
        f"{FIRST}_several_nodes_of_the_readme_have_a_page_each_and_know_each_other": (
            r"mkdir |disqued .* &$|redis-cli .* MEET "
        ),
        f"{SMALLER}_the_daemons_of_the_readme_start": r"disqued ",
    },
    "docs/explanation/audit.md": {SPARK_LINES: ""},
    "docs/explanation/fuzzing.md": {"tests/fuzz/test_fuzz.py::test_the_lines_of_the_page_try_an_input_and_keep_it": ""},
    "docs/explanation/dead-letters.md": {SESSION: ""},
    "docs/explanation/keys.md": {SESSION: ""},
    "docs/explanation/limits.md": {SESSION: ""},
    "docs/explanation/persistence.md": {f"{SMALLER}_a_controlled_restart_goes_as_the_page_on_persistence_says": ""},
    "docs/explanation/results.md": {SESSION: ""},
    "docs/explanation/schedules.md": {SESSION: ""},
    "docs/explanation/redis.md": {f"{SMALLER}_a_redis_server_is_asked_as_its_page_says": ""},
    "docs/explanation/simulation.md": {f"{SMALLER}_the_program_about_a_simulated_cluster_runs": ""},
    "docs/explanation/sqlite.md": {f"{SMALLER}_a_database_is_asked_as_the_page_on_sqlite_says": ""},
    "docs/how-to/admin.md": {f"{SMALLER}_the_admin_side_is_opened_as_its_page_says": ""},
    "docs/how-to/backup.md": {f"{OPERATORS}_a_backup_is_made_and_restored_as_the_page_says": ""},
    "docs/how-to/benchmark.md": {f"{INTEGRATION}/test_cli_howto.py::test_the_loads_of_the_page_are_loads": ""},
    "docs/how-to/cluster.md": {
        f"{INTEGRATION}/test_cluster_howto.py::test_the_secret_of_the_page_is_one_that_nodes_take": r"\(umask",
        f"{INTEGRATION}/test_cli_howto.py::test_the_verbs_of_the_page_on_clusters_do_what_it_says": r"disqued [a-z]",
        f"{INTEGRATION}/test_cluster_howto.py::test_the_page_for_operators_of_a_cluster_goes_as_it_is_written": "",
    },
    "docs/how-to/command-line.md": {f"{INTEGRATION}/test_command_line_howto.py::test_the_page_goes_as_it_shows": ""},
    "docs/how-to/deploy.md": {
        f"{INTEGRATION}/test_deploy_howto.py::test_three_nodes_are_deployed_as_the_page_says": ""
    },
    "docs/how-to/from-bananaq.md": {SESSION: ""},
    "docs/how-to/from-disque.md": {f"{OPERATORS}_jobs_of_disque_come_over_as_the_page_says": ""},
    "docs/how-to/from-okq.md": {SESSION: ""},
    "docs/how-to/from-redis-lists.md": {
        f"{OPERATORS}_what_is_refused_stays_in_the_list": r'"""Move',
        f"{OPERATORS}_work_with_lists_is_done_here_as_the_page_says": "",
    },
    "docs/how-to/from-redisrq.md": {SESSION: ""},
    "docs/how-to/from-worqr.md": {
        f"{DOCS}_the_program_of_a_page_prints_what_it_shows": "import redis",
        f"{DOCS}_a_page_about_one_connection_goes_as_it_shows": "",
    },
    "docs/how-to/history.md": {
        SPARK_LINES: r"disqued-spark .*(--every|--quiet|--master)",
        f"{PIPELINE}/test_history_howto.py::test_the_page_does_what_it_says": "",
    },
    "docs/how-to/import-export.md": {
        f"{SMALLER}_journals_of_disque_are_imported_and_stores_exported_as_their_page_says": ""
    },
    "docs/how-to/monitor.md": {f"{OPERATORS}_a_node_is_monitored_as_the_page_says": ""},
    "docs/how-to/move-jobs.md": {
        f"{INTEGRATION}/test_cli_howto.py::test_jobs_are_moved_as_the_page_says": "disqued move ",
        f"{PIPELINE}/test_moving_howto.py::test_the_commands_of_the_page_do_what_it_says": "",
    },
    "docs/how-to/fair-tenants.md": {SESSION: ""},
    "docs/how-to/limit-an-api.md": {SESSION: ""},
    "docs/how-to/nightly-reports.md": {SESSION: ""},
    "docs/how-to/one-job-per-customer.md": {SESSION: ""},
    "docs/how-to/throttle-after-429.md": {
        f"{CLIENTS}_a_queue_is_throttled_as_the_page_says": "from disqued.client",
        SESSION: "",
    },
    "docs/how-to/django-tasks.md": {f"{DJANGO}_what_the_page_shows_is_run": ""},
    "docs/how-to/python-clients.md": {
        f"{CLIENTS}_a_client_is_made_with_what_the_page_says_of_tls": "from disqued.client import Tls",
        f"{CLIENTS}_a_worker_works_until_it_is_told_to_stop": r"(?s).*\bWorker\(",
        f"{CLIENTS}_a_program_prints_what_the_page_says": "",
    },
    "docs/how-to/recipes.md": {f"{INTEGRATION}/test_recipes_howto.py::test_a_recipe_prints_what_the_page_says": ""},
    "docs/how-to/reports.md": {
        f"{REPORTS}_the_node_of_the_page_serves_the_file_that_its_program_made": "disqued |from ",
        f"{REPORTS}_a_command_prints_what_the_page_shows": "",
    },
    "docs/how-to/secure.md": {SESSION: ""},
    "docs/how-to/spark.md": {
        f"{SPARK}_the_program_that_reads_a_store_prints_what_it_says": r"(?s).*/var/lib/disqued",
        f"{SPARK}_the_program_that_reads_dead_jobs_prints_what_it_says": "dead =",
        f"{SPARK}_a_stream_of_the_page_moves_what_it_says": r".*readStream",
        f"{SPARK}_the_program_of_the_page_prints_what_it_says": "",
    },
    "docs/how-to/systemd.md": {
        f"{SYSTEMD}_install_units_prints_what_the_page_shows": "/opt/disqued/bin/disqued",
        f"{SYSTEMD}_the_configuration_of_the_page_lies_where_the_unit_lets_the_node_write": "install -o",
        f"{SYSTEMD}_a_node_starts_with_the_secrets_of_the_page": r"install -d|\(umask",
        f"{SYSTEMD}_the_two_nodes_of_the_page_find_each_other_and_one_may_go": "redis-cli",
    },
    "docs/how-to/tls.md": {f"{INTEGRATION}/test_tls_howto.py::test_the_page_on_tls_goes_as_it_is_written": ""},
    "docs/how-to/trace.md": {
        f"{INTEGRATION}/test_trace_howto.py::test_the_program_prints_what_the_page_says": r"import threading",
        f"{INTEGRATION}/test_trace_howto.py::test_the_event_log_leads_from_a_trace_to_its_jobs": "",
    },
    "docs/how-to/upgrade.md": {f"{OPERATORS}_an_upgrade_goes_as_the_page_says": ""},
    "docs/operations/runbook.md": {
        f"{INTEGRATION}/test_runbook.py::test_a_symptom_is_seen_and_mended_as_the_runbook_says": ""
    },
    "docs/reference/command-line.md": {FORMS: ""},
    "docs/reference/disqued-spark.md": {SPARK_LINES: ""},
    "docs/reference/http.md": {
        f"{INTEGRATION}/test_http_reference.py::test_what_the_introduction_shows_works_and_errors_are_as_it_says": (
            r'curl -H "Authorization: Bearer \$TOKEN"|curl --compressed'
        ),
        f"{INTEGRATION}/test_http_reference.py::test_an_example_answers_as_the_page_says": "",
    },
    "docs/tutorial-history.md": {f"{PIPELINE}/test_tutorial.py::test_the_tutorial_goes_as_it_is_written": ""},
    "docs/tutorial.md": {
        f"{FIRST}_last_step_of_the_tutorial_works_behind_make_run": r".venv/bin/disqued |mkdir ",
        f"{DOCS}_the_worker_of_the_tutorial_works": "import redis",
        SESSION: "",
    },
}  # fmt: skip

MACHINE = "changes the machine: packages and services are tried where systemd runs and a registry may be asked"
HOSTS = "needs a cluster of Spark: `make spark-cluster` submits to one"
HOURS = "takes from minutes to hours; what it starts has tests of its own"
FORM = "a form, and no command"
INSTALLS = "tests/packaging/test_ways.py installs in these ways, in environments of their own"
SHIPPED = "copies to another host: tests/integration/test_cli.py"

#: (page, pattern of the line) -> why no test runs it.
NOT_RUN = {
    ("README.md", "make "): "runs the tests",
    ("README.md", "pip install"): INSTALLS,
    ("docs/how-to/install.md", ""): INSTALLS,
    ("examples/django/README.md", "pip install"): INSTALLS,
    ("README.md", "disqued install-units$"): "as on the page about systemd, where it is run",
    ("README.md", "redis-cli -p 7711$"): "opens the session below it, which is run",
    ("docs/explanation/mutation.md", "make mutants"): HOURS,
    ("docs/explanation/simulation.md", "python -m disqued.testing"): HOURS,
    ("docs/explanation/simulation.md", "make torture"): HOURS,
    ("docs/explanation/sqlite.md", "datasette"): "serves a page until it is ended; the database is that of other lines",
    ("docs/how-to/admin.md", "xdg-open"): "opens a browser; tests/integration/test_page.py does it without a screen",
    ("docs/how-to/cluster.md", "redis-cli -p 7711$"): "opens the session below it, which is run",
    ("docs/how-to/import-export.md", "CONFIG SET|SHUTDOWN"): "typed into Disque, to end it",
    (r"docs/(how-to|reference)/|docs/tutorial-history\.md", "pip install"): MACHINE,
    (r"docs/how-to/history\.md|docs/reference/event-log\.md", "disqued ship-events"): SHIPPED,
    ("docs/how-to/history.md", "rm -r /srv/history"): "an example of what may be removed",
    ("docs/how-to/spark-cluster.md", ""): HOSTS,
    ("docs/how-to/spark.md", "redis-cli"): "the test makes the same call by its client",
    ("docs/how-to/deploy.md", "python3 -m venv|(DISQUED_COMPILE=1 )?[^ ]+/bin/pip "): MACHINE,
    ("docs/how-to/systemd.md", "systemctl|python3 -m venv|/opt/disqued/bin/pip"): MACHINE,
    ("docs/how-to/systemd.md", "disqued restart --unit"): "calls systemctl: tests/integration/test_cli_restart.py",
    ("docs/performance.md", "make bench"): HOURS,
    ("docs/reference/command-line.md", r"disqued .*\[?OPTIONS\]?"): FORM,
    ("docs/reference/disqued-spark.md", "disqued-spark VERB"): FORM,
}  # fmt: skip


@attrs.frozen
class Command:
    """A line that a page shows to be typed, or a program."""

    page: str
    line: str

    @property
    def excused(self) -> list[tuple[str, str]]:
        """The reasons, by their keys, why it may go without a test."""
        return [key for key in NOT_RUN if re.match(key[0], self.page) and re.match(key[1], self.line)]

    @property
    def test(self) -> str:
        """The test whose line it is; empty = nobody's."""
        if self.excused:
            return ""
        return next((test for test, begins in RUN_BY.get(self.page, {}).items() if re.match(begins, self.line)), "")


def commands(page: str, text: str) -> Iterator[Command]:
    """All that a page shows to be typed: first what is in fences, then the rest, each in its order."""
    for language, block in FENCE.findall(text):
        if language not in ("", *DATA) or (not language and PYTHON.match(block)):
            yield Command(page, block.strip())
        elif not language:
            yield from (Command(page, line) for line in _typed(block.splitlines()))
    for block in INDENTED.findall(FENCE.sub("", text)):
        if PYTHON.match(block.lstrip()):
            yield Command(page, "\n".join(line.strip() for line in block.splitlines()))
        else:
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
            yield REMARK.sub("", line)


def all_commands() -> list[Command]:
    """Of all pages."""
    found: list[Command] = []
    for path in PAGES:
        page = path.relative_to(ROOT).as_posix()
        if page != GRAMMAR:
            found += commands(page, path.read_text(encoding="utf-8"))
    return found


def part(page: str, test: str) -> list[str]:
    """The lines of a page that a test has to run, in the order of `commands`."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [command.line for command in commands(page, text) if command.test == test]


@attrs.define
class Following:
    """The lines of a page that the test which runs now has to run."""

    page: str
    test: str
    lines: list[str]
    left: list[str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.left = list(self.lines)

    def ran(self, *lines: str) -> None:
        """Tick off what was run, as the page has it.

        Raises
        ------
        AssertionError
            It is none of the lines of this test.
        """
        for line in (line.strip() for line in lines):
            assert line in self.lines, f"{line!r} is no line of {self.page} that {self.test} is to run"
            if line in self.left:
                self.left.remove(line)


@contextmanager
def following(page: str, only: Iterable[str] | None = None) -> Iterator[Following]:
    """Hold the test that runs now to its part of a page, or to some lines of it.

    Who runs some lines is one of several, each with parameters of its own: that together they have all of them says
    `shared_out`.
    """
    test = os.environ["PYTEST_CURRENT_TEST"].partition("[")[0].partition(" ")[0]
    lines = part(page, test)
    assert lines, f"no line of {page} is for {test}; tests/pages.py says whose they are"
    found = Following(page, test, lines)
    if only is not None:
        found.left = [line.strip() for line in only]
        assert set(found.left) <= set(lines)
    yield found
    assert found.left == [], f"lines of {page} that {test} has not run"


def shared_out(page: str, test: str, lines: Iterable[str]) -> None:
    """Assert that those who run some lines of a page each, run all that are for their test."""
    assert sorted(line.strip() for line in lines) == sorted(part(page, test))
