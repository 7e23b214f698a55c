"""Reports over HTTP and on their page: what Spark has computed, and a file that nobody can read hurts nobody."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from disqued.pipeline.reports.store import Reports
from disqued.reports import blocks, reading
from disqued.reports.layout import VERSION
from disqued.web.routes import ROUTES
from tests import reports_sample
from tests.adapters.http import AdminClient
from tests.adapters.test_pages import Admin, async_test, page, run, words

NAMES = ("queues", "slo", "audit", "findings", "runs")
HOUR = {"queue": "mail", "grain": "hour", "at": "2026-11-22T09:00:00Z", "adds": 5, "delivers": 4}
DAY = {"date": "2026-11-22", "queue": "mail", "measure": "wait", "count": 9, "p99_us": 800}
HOSTILE = "\"><script>alert(1)</script>'"
SCHEMAS = {entry.path.rpartition("/")[2]: dict(entry.reply) for entry in ROUTES if entry.tag == "reports"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "reports.sqlite"


@pytest.fixture
def client(admin: Admin, path: Path) -> AdminClient:
    path.parent.mkdir()
    return admin(f"reports-file {path}")


@pytest.fixture
def reports(client: AdminClient, path: Path) -> Iterator[Reports]:
    with closing(Reports(path, lambda: reports_sample.NOW)) as opened:
        yield opened


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file of reports, whole."""
    made = tmp_path_factory.mktemp("sample") / "reports.sqlite"
    reports_sample.write(made)
    return made.read_bytes()


@pytest.fixture
def filled(client: AdminClient, path: Path, sample: bytes) -> AdminClient:
    path.write_bytes(sample)
    return client


async def ask(client: AdminClient, question: str, status: int = 200) -> Any:
    answer = await client.get(f"/api/reports/{question}")
    assert answer.status == status, answer
    if status == 200:
        jsonschema_rs.validator_for(SCHEMAS[question.partition("?")[0]]).validate(answer.body)
    return answer.body


# What there is.


@async_test
async def test_hours_and_days_of_queues_are_told_newest_first(filled: AdminClient) -> None:
    found = await ask(filled, "queues?queue=mail&grain=day")
    assert [row["at"] for row in found["rows"]][:2] == ["2026-11-22T00:00:00Z", "2026-11-21T00:00:00Z"]
    assert {row["queue"] for row in found["rows"]} == {"mail"}
    assert len(found["rows"]) == 28
    assert (found["computed_at"], found["more"]) == ("2026-11-22T10:05:00Z", False)
    hours = await ask(filled, "queues?since=2026-11-22&until=2026-11-22T02:00:00Z")
    assert [(row["at"][11:13], row["queue"]) for row in hours["rows"]] == [
        ("01", "invoices"), ("01", "mail"), ("01", "thumbnails"),
        ("00", "invoices"), ("00", "mail"), ("00", "thumbnails"),
    ]  # fmt: skip
    assert hours["rows"][0]["wait_p50_us"] <= hours["rows"][0]["wait_p99_us"]


@async_test
async def test_an_answer_is_cut_at_its_limit_and_says_so(filled: AdminClient) -> None:
    found = await ask(filled, "queues?limit=7")
    assert (len(found["rows"]), found["more"]) == (7, True)
    assert len((await ask(filled, "queues"))["rows"]) == 500
    assert (await ask(filled, "runs?limit=7"))["more"] is False
    assert "from 1 to 5000" in (await ask(filled, "queues?limit=5001", 400))["detail"]
    assert "from 1 to 100" in (await ask(filled, "audit?limit=101", 400))["detail"]


@async_test
async def test_days_are_held_against_their_targets(filled: AdminClient) -> None:
    found = await ask(filled, "slo?measure=wait&since=2026-11-22T00:00:00Z")
    assert [(row["queue"], row["p99_us"] > row["target_us"]) for row in found["rows"]] == [
        ("invoices", True), ("mail", False), ("thumbnails", True),
    ]  # fmt: skip
    assert {row["date"] for row in (await ask(filled, "slo?until=2026-11-21&queue=mail"))["rows"]} == {
        f"2026-{month}-{day:02}" for month, days in (("10", range(26, 32)), ("11", range(1, 21))) for day in days
    }


@async_test
async def test_audits_come_with_their_faults(filled: AdminClient) -> None:
    clean, loss = (await ask(filled, "audit"))["rows"]
    assert (clean["verdict"], clean["counts"], clean["faults"]) == ("clean", {}, [])
    assert (loss["verdict"], loss["counts"]) == ("loss", {"lost": 1, "acked-twice": 2})
    assert [fault["kind"] for fault in loss["faults"]] == ["lost", "acked-twice"]
    [_, loss] = (await ask(filled, "audit?faults=1"))["rows"]
    assert len(loss["faults"]) == 1
    assert (await ask(filled, "audit?since=2026-11-21"))["rows"] == [clean]


@async_test
async def test_findings_and_runs_are_told(filled: AdminClient) -> None:
    assert [row["kind"] for row in (await ask(filled, "findings"))["rows"]] == ["no_consumers", "poison"]
    assert [row["kind"] for row in (await ask(filled, "findings?queue=invoices"))["rows"]] == ["poison"]
    runs = await ask(filled, "runs")
    assert [row["job"] for row in runs["rows"]] == [
        "audit", "doctor", "audit", "slo", "rollup", "lifecycle", "ingest",
    ]  # fmt: skip
    assert runs["computed_at"] == "2026-11-22T10:04:05Z"
    assert [row["status"] for row in (await ask(filled, "runs?job=audit"))["rows"]] == ["failed", "done"]


@async_test
async def test_names_are_bytes_as_everywhere_else(client: AdminClient, reports: Reports) -> None:
    reports.put_queues([{**HOUR, "queue": name} for name in ("\\xff", "a\\\\b", "köln")])
    reports.put_audit(reports_sample._audit(0, "faults", {"gap": 1}), [{"kind": "gap", "queue": "\\xff"}])
    assert [row["queue"] for row in (await ask(client, "queues?queue=%FF"))["rows"]] == [{"base64": "/w=="}]
    assert [row["queue"] for row in (await ask(client, "queues?queue=a%5Cb"))["rows"]] == ["a\\b"]
    assert [row["queue"] for row in (await ask(client, "queues?queue=k%C3%B6ln"))["rows"]] == ["köln"]
    assert (await ask(client, "audit"))["rows"][0]["faults"][0]["queue"] == {"base64": "/w=="}
    html = await page(client, "/reports")
    assert 'href="/reports?queue=%FF&amp;grain=hour"' in html
    assert 'href="/queues/a%5Cb"' in await page(client, "/reports?queue=a%5Cb")


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("queues?since=2026-99-99", "since=2026-99-99: allowed are days as 2026-11-22 and moments"),
        ("queues?until=2026-11-22T25:00:00Z", "until=2026-11-22T25:00:00Z: allowed are days"),
        ("queues?since=yesterday", "since=yesterday: allowed are days as 2026-11-22 and moments"),
        ("slo?until=2026-11-22T10:00", "until=2026-11-22T10:00: allowed are days"),
        ("queues?grain=week", "allowed are hour, day"),
        ("slo?measure=size", "allowed are wait, run, age"),
        ("audit?queue=mail", "there is no parameter 'queue' here; allowed: since, until, limit, faults"),
        ("audit?faults=1001", "from 0 to 1000"),
    ],
)
@async_test
async def test_what_cannot_be_asked_is_told(filled: AdminClient, question: str, text: str) -> None:
    assert text in (await ask(filled, question, 400))["detail"]


# What there is not.


@async_test
async def test_without_the_setting_there_are_no_reports(admin: Admin) -> None:
    client = admin()
    for name in NAMES:
        told = await ask(client, name, 404)
        assert (told["code"], "reports-file is empty" in told["detail"]) == ("NOREPORTS", True)
    assert 'href="/reports"' not in await page(client, "/")
    assert "reports-file is empty" in await page(client, "/reports", status=404)


@async_test
async def test_before_the_first_run_the_page_says_what_makes_it(client: AdminClient, path: Path) -> None:
    for name in NAMES:
        told = await ask(client, name, 404)
        assert (told["code"], f"`disqued-spark VERB --reports {path}`" in told["detail"]) == ("NOREPORTS", True)
    assert 'href="/reports"' in await page(client, "/")
    text = words(await page(client, "/reports"))
    assert "No reports yet" in text
    for verb in ("ingest", "rollup", "slo", "audit", "doctor"):
        assert f"disqued-spark {verb} --" in text
    path.touch()
    assert (await ask(client, "runs", 404))["code"] == "NOREPORTS"


@async_test
async def test_each_block_without_anything_says_which_command_makes_it(
    client: AdminClient, reports: Reports, path: Path
) -> None:
    for name in NAMES:
        assert await ask(client, name) == {"computed_at": None, "more": False, "rows": []}
    text = words(await page(client, "/reports"))
    for command in ("rollup", "slo --tables DIR --target wait=1s", "audit", "doctor", "VERB"):
        assert f"This computes it: disqued-spark {command}" in text
    assert f"--reports {path}" in text
    reports.note_run("doctor", began=reports_sample.NOW - 5, ended=reports_sample.NOW, status="done", rows=0)
    text = words(await page(client, "/reports"))
    assert "Findings Computed 2026-11-22 10:05:00 UTC. Nothing was found." in text
    assert "doctor --tables" not in text


@async_test
async def test_a_file_that_is_none_of_ours_is_told_and_the_node_goes_on(client: AdminClient, path: Path) -> None:
    def foreign() -> None:
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE queues (diary TEXT)")

    def torn() -> None:
        reports_sample.write(path)
        path.write_bytes(path.read_bytes()[:20_000])

    def folder() -> None:
        path.unlink()
        path.mkdir()

    def versioned(version: int) -> Callable[[], None]:
        def change() -> None:
            path.unlink(missing_ok=True)
            Reports(path).close()
            with closing(sqlite3.connect(path)) as connection:
                connection.execute(f"PRAGMA user_version = {version}")

        return change

    def without_a_table() -> None:
        path.unlink(missing_ok=True)
        Reports(path).close()
        with closing(sqlite3.connect(path)) as connection:
            for name in ("queues", "slo", "audits", "findings", "runs"):
                connection.execute(f"DROP TABLE {name}")

    for spoil, text in (
        (foreign, "a database of another program"), (versioned(VERSION + 1), "newer than this disqued"),
        (versioned(0), "older than this disqued"), (without_a_table, "no such table"),
        (lambda: path.write_bytes(b"dear diary" * 500), "no database at all"), (path.unlink, ""), (torn, "damaged"),
        (folder, "reports.sqlite"),
    ):  # fmt: skip
        spoil()
        for name in NAMES:
            told = await ask(client, name, 503 if text else 404)
            assert (told["code"], text in told["detail"]) == ("BADREPORTS" if text else "NOREPORTS", True), told
        assert text in words(await page(client, "/reports", status=503 if text else 200))
        assert await run(client.running, "PING") == b"PONG"
    path.rmdir()
    reports_sample.write(path)
    assert len((await ask(client, "findings"))["rows"]) == 2


@async_test
async def test_a_file_that_somebody_keeps_for_himself_is_told(
    client: AdminClient, reports: Reports, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BUSY_S", 0.01)
    reports.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("DELETE FROM runs")
        connection.execute("COMMIT")
        connection.execute("BEGIN EXCLUSIVE")
        assert "another program keeps the file for itself" in (await ask(client, "runs", 503))["detail"]
        connection.execute("COMMIT")
    assert (await ask(client, "runs"))["rows"] == []


@async_test
async def test_it_is_read_while_a_run_writes(client: AdminClient, reports: Reports) -> None:
    reports.put_queues([HOUR])
    with reports._transaction():
        reports._database.table("queues").delete_where()
        assert len((await ask(client, "queues"))["rows"]) == 1
    assert (await ask(client, "queues"))["rows"] == []


@async_test
async def test_a_file_that_is_replaced_is_read_from_then_on(client: AdminClient, path: Path, tmp_path: Path) -> None:
    reports_sample.write(path)
    assert len((await ask(client, "runs"))["rows"]) == 7
    other = tmp_path / "other.sqlite"
    Reports(other).close()
    other.replace(path)
    assert (await ask(client, "runs"))["rows"] == []


@async_test
async def test_an_answer_that_takes_too_long_is_given_up(filled: AdminClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_STEPS", 1)
    ticks = iter(range(0, 10**9, 10))  # ten seconds at each look
    monkeypatch.setattr(reading.time, "monotonic", lambda: next(ticks))
    assert "ask for one queue, or for a shorter time" in (await ask(filled, "queues", 503))["detail"]


# The page.


@async_test
async def test_the_page_draws_what_was_computed(filled: AdminClient) -> None:
    html = await page(filled, "/reports")
    text = words(html)
    assert "Jobs 2026-11-15 11:00 to 2026-11-22 10:00, by hour Computed 2026-11-22 10:05:00 UTC." in text
    assert html.count('<svg class="plot"') == 7
    assert html.count('<svg class="spark"') == 3
    titles = re.findall(r"<title>(2026-11-22 09:00: [^<]*)</title>", html)
    assert re.fullmatch(
        r"2026-11-22 09:00: added [\d\u202f]+, delivered [\d\u202f]+, acknowledged [\d\u202f]+", titles[0]
    )
    assert "invoices age over target 10 s 3.1 % 3 s 8.79 s 14.7 s" in text
    assert "mail age within 10 s" in text
    assert text.index("invoices age over") < text.index("mail age within")
    assert "jobs lost 2026-11-20 10:05:00 : lost 1, acked-twice 2" in text
    assert "its producer heard that it was added" in text
    assert "nobody has taken a job of this queue for 13 h" in text
    assert "poison Consumers give these jobs back (NACK). Look at the body of one." in text
    assert "failed 0 Misused: no such folder /srv/events" in text
    assert " style=" not in html


@async_test
async def test_a_queue_has_percentiles_and_targets_of_its_own(filled: AdminClient) -> None:
    html = await page(filled, "/reports?queue=mail&grain=day")
    text = words(html)
    assert text.count("p50 p95 p99") >= 3
    assert "target 1 s" in text
    assert "Jobs 2026-10-26 to 2026-11-22, by day" in text
    assert "invoices" not in text.partition("Audits")[0].partition("Jobs per day")[2]
    assert "for this queue yet." in words(await page(filled, "/reports?queue=none"))


@async_test
async def test_a_quiet_hour_is_zero_and_an_unknown_latency_a_gap(client: AdminClient, reports: Reports) -> None:
    for at, span in (("07", 5_000), ("09", 7_000)):
        reports.put_queues([{**HOUR, "at": f"2026-11-22T{at}:00:00Z", "wait_p99_us": span}])
    html = await page(client, "/reports?queue=mail")
    assert "2026-11-22 08:00: added 0, delivered 0, acknowledged 0" in html
    assert "2026-11-22 08:00: p" not in html
    assert html.count('<circle class="c-dot c-three"') == 2


@async_test
async def test_only_the_busiest_queues_are_shown(
    client: AdminClient, reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "QUEUES_SHOWN", 2)
    reports.put_queues([{**HOUR, "queue": f"q{number}", "delivers": number} for number in range(4)])
    text = words((await page(client, "/reports")).partition('id="h-queues"')[2].partition("</section>")[0])
    assert "q3 5 3" in text
    assert "q2 5 2" in text
    assert "q1" not in text
    assert "The busiest 2; there are more." in text


@async_test
async def test_nothing_in_a_file_is_taken_for_markup(client: AdminClient, reports: Reports) -> None:
    reports.put_queues([{**HOUR, "queue": HOSTILE, "wait_p99_us": 5}])
    reports.put_slo([{**DAY, "queue": HOSTILE, "target_us": 5}])
    reports.put_audit(
        {**reports_sample._audit(0, "faults", {HOSTILE: 1})},
        [{"kind": HOSTILE, "job_id": HOSTILE, "node": HOSTILE, "detail": HOSTILE, "queue": "\u202e"}],
    )
    reports.put_findings([{"date": "2026-11-22", "kind": HOSTILE, "queue": HOSTILE, "detail": HOSTILE}])
    reports.note_run(HOSTILE, began=0, ended=0, status="done", rows=0, note=HOSTILE)
    for path in ("/reports", "/reports?queue=%22%3E%3Cscript%3Ealert(1)%3C/script%3E%27"):
        html = await page(client, path)
        assert "alert(1)" in html
        assert re.findall(r"<script(?! type=\"module\" src=\"/static/)", html) == []
        assert "\u202e" not in html
