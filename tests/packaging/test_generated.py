"""Pages that are written from the code say what the code says; `make docs` writes them anew."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("form", "page"), [("conf", "disqued.conf"), ("markdown", "docs/reference/configuration.md")])
def test_the_settings_are_written_down_as_they_are(form: str, page: str) -> None:
    written = subprocess.run([sys.executable, "-m", "disqued.config", form], cwd=ROOT, capture_output=True, check=True)
    assert (ROOT / page).read_bytes() == written.stdout


def test_the_reference_of_the_messages_between_nodes_is_what_they_declare() -> None:
    written = subprocess.run(
        [sys.executable, "-m", "disqued.wire.reference"], cwd=ROOT, capture_output=True, check=True
    )
    assert (ROOT / "docs/reference/bus.md").read_bytes() == written.stdout


def test_the_reference_of_the_reports_is_what_their_layout_says() -> None:
    program = [sys.executable, "-m", "disqued.reports.reference"]
    written = subprocess.run(program, cwd=ROOT, capture_output=True, check=True)
    assert (ROOT / "docs/reference/reports.md").read_bytes() == written.stdout


def test_the_reference_of_the_http_api_is_what_the_routes_say() -> None:
    written = subprocess.run(
        [sys.executable, "-m", "disqued.web.http_reference"], cwd=ROOT, capture_output=True, check=True
    )
    assert (ROOT / "docs/reference/http.md").read_bytes() == written.stdout


def test_the_reference_of_disqued_spark_is_what_its_help_says() -> None:
    command = [sys.executable, "-m", "disqued.pipeline.reference"]
    written = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    assert (ROOT / "docs/reference/disqued-spark.md").read_bytes() == written.stdout


@pytest.mark.parametrize(("form", "page"), [("markdown", "docs/reference/command-line.md"), ("man", "man/disqued.1")])
def test_the_reference_of_the_command_line_is_what_its_help_says(form: str, page: str) -> None:
    command = [sys.executable, "-m", "disqued.tools.reference", form]
    written = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    assert (ROOT / page).read_bytes() == written.stdout


def test_the_page_of_man_is_one_that_man_takes() -> None:
    program = shutil.which("man")
    if program is None:  # the roff of it is held against its words all the same
        shown = re.sub(r"\\f.|\\&", "", (ROOT / "man/disqued.1").read_text()).replace("\\-", "-")
    else:
        command = [program, "--warnings", "--local-file", "man/disqued.1"]
        environment = {**os.environ, "MANWIDTH": "200", "LC_ALL": "C"}
        printed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, env=environment, text=True)
        assert printed.stderr == ""
        shown = re.sub(r".\x08", "", printed.stdout)
    for words in (
        "disqued cli [OPTIONS] [COMMAND",
        "--appendfsync",
        "-h, --host HOST",
        "disqued check queue mail -w 60",
    ):
        assert words in shown
