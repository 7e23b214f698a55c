"""`disqued-spark report`: one file of HTML that needs nothing else, drawn without Spark."""

import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from disqued.pipeline.command import run
from disqued.pipeline.reports.store import Reports
from disqued.pipeline.run import DONE, FAILED
from tests import reports_sample
from tests.adapters.test_pages import words
from tests.integration.daemon import ROOT

HOSTILE = "</style></svg>\"><script>alert(1)</script>'"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "reports.sqlite"
    reports_sample.write(made)
    return made


def drawn(path: Path, *options: str) -> str:
    """The page."""
    output = path.with_suffix(".html")
    assert run(["report", "--reports", str(path), "--output", str(output), *options]) == DONE
    return output.read_text()


def test_the_page_shows_everything_and_when_it_was_computed(path: Path) -> None:
    html = drawn(path)
    text = words(html)
    # All queues by hour and by day, queues side by side, redelivery, and five of each of three queues.
    assert html.count('<svg class="plot"') == 4 + 4 + 2 + 1 + 3 * 5
    for said in (
        "All queues, by hour 2026-11-15 11:00 to 2026-11-22 10:00 Computed 2026-11-22 10:05:00 UTC.",
        "All queues, by day 2026-10-26 to 2026-11-22 Computed", "invoices age over target 10 s 3.1 %",
        "jobs lost 2026-11-20 10:05:00 : lost 1, acked-twice 2", "its producer heard that it was added",
        "given back 41 times", "failed 0 Misused", "thumbnails by day, 2026-10-26 to 2026-11-22 Computed",
        f"from {path.name} , which Spark has computed",
    ):  # fmt: skip
        assert said in text, said


def test_the_page_stands_alone(path: Path) -> None:
    html = drawn(path, "--queues", "2", "--grain", "hour")
    assert html.startswith("<!doctype html>\n<html lang=")
    assert re.findall(r"<(script|link|img|iframe|object)\b|\bsrc=|url\(|@import|\bon[a-z]+=", html) == []
    places = set(re.findall(r'href="([^"]*)"', html))
    assert {place[0] for place in places} == {"#"}
    assert {place[1:] for place in places} <= set(re.findall(r' id="([^"]*)"', html))
    assert "#queue-2" in places
    assert "#queue-3" not in places
    ids = re.findall(r' id="([^"]*)"', html)
    assert len(ids) == len(set(ids))


def test_nothing_in_the_file_is_taken_for_markup(path: Path) -> None:
    with closing(Reports(path)) as reports:
        reports.put_queues([{"queue": HOSTILE, "grain": "day", "at": "2026-11-22T00:00:00Z", "delivers": 10**9}])
        reports.put_findings([{"date": "2026-11-22", "kind": HOSTILE, "detail": HOSTILE}])
    html = drawn(path)
    assert "&lt;script&gt;alert(1)" in html
    assert "<script" not in html
    assert html.count("</style>") == 1


def test_a_file_without_anything_says_what_makes_it(path: Path) -> None:
    path.unlink()
    Reports(path).close()
    text = words(drawn(path))
    for verb in ("rollup", "slo", "audit", "doctor", "VERB"):
        assert f"This computes it: disqued-spark {verb} --tables DIR" in text
    assert "Nothing is known of what queues did." in text


def test_it_goes_to_standard_output_too(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "--reports", str(path), "--output", "-"]) == DONE
    assert capsys.readouterr().out.endswith("</html>\n")
    assert not path.with_suffix(".html").exists()


def test_what_cannot_be_done_is_told_and_what_was_there_stays(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = path.with_suffix(".html")
    output.write_text("the last one")
    assert run(["report", "--reports", f"{path}.none", "--output", str(output)]) == FAILED
    assert "there is no such file yet" in capsys.readouterr().err
    path.write_bytes(b"dear diary" * 500)
    assert run(["report", "--reports", str(path), "--output", str(output)]) == FAILED
    assert "no database at all" in capsys.readouterr().err
    assert output.read_text() == "the last one"
    reports_sample.write(path.with_name("good.sqlite"))
    assert run(["report", "--reports", f"{path.parent}/good.sqlite", "--output", "/nowhere/report.html"]) == FAILED
    assert "/nowhere/report.html: No such file or directory; --output names" in capsys.readouterr().err


def test_neither_spark_nor_java_nor_the_daemon_is_needed(path: Path) -> None:
    code = (
        "import sys\nfrom disqued.pipeline.command import run\n"
        f"status = run(['report', '--reports', {str(path)!r}, '-o', '-'])\n"
        "loaded = {'pyspark', 'py4j', 'pandas', 'sqlite_utils', 'twisted', 'klein'} & set(sys.modules)\n"
        "sys.exit(f'{status} {loaded}' if status or loaded else 0)"
    )
    environment = {"PATH": "/nowhere", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, env=environment)
