"""Pages that are written from the code say what the code says; `make docs` writes them anew."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("form", "page"), [("conf", "disqued.conf"), ("markdown", "docs/reference/configuration.md")])
def test_the_settings_are_written_down_as_they_are(form: str, page: str) -> None:
    written = subprocess.run([sys.executable, "-m", "disqued.config", form], cwd=ROOT, capture_output=True, check=True)
    assert (ROOT / page).read_bytes() == written.stdout


def test_the_reference_of_the_reports_is_what_their_layout_says() -> None:
    program = [sys.executable, "-m", "disqued.reports.reference"]
    written = subprocess.run(program, cwd=ROOT, capture_output=True, check=True)
    assert (ROOT / "docs/reference/reports.md").read_bytes() == written.stdout


def test_the_reference_of_the_http_api_is_what_the_routes_say() -> None:
    written = subprocess.run([sys.executable, "-m", "disqued.web.reference"], cwd=ROOT, capture_output=True, check=True)
    assert (ROOT / "docs/reference/http.md").read_bytes() == written.stdout


def test_the_reference_of_disqued_spark_is_what_its_help_says() -> None:
    command = [sys.executable, "-m", "disqued.pipeline.reference"]
    written = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    assert (ROOT / "docs/reference/disqued-spark.md").read_bytes() == written.stdout
