"""The admin page in a real browser, on a real daemon, as a new operator uses it.

What the page says is held against what Redis commands answer; and no test may leave an error in the console.
"""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from disqued.pipeline.reports.html import page as report_page
from disqued.web.pages.actions import bulk
from disqued.web.pages.lines import redis_line
from disqued.web.views.job_views import JobSearch
from tests import reports_sample
from tests.browser import Browser, browser
from tests.integration.daemon import HOST, Daemon, free_port, launch, wait_until
from tests.limits import LIMIT

HOSTILE = b"<b onclick=\"x()\">'quoted' & /slashed %2F\xe2\x80\xae;rm -rf"
BINARY = b"\x00\xff\xfe<i>binary"
#: Script: what stands beyond the side of the window, or of a part that hides what does not fit.
CUT_OFF = """
const beyond = (element) => {
  const box = element.getBoundingClientRect();
  if (!box.width || !box.height || element.closest(".skip, .told")) return false;
  for (let part = element.parentElement; part; part = part.parentElement) {
    const { overflowX } = getComputedStyle(part), side = part.getBoundingClientRect();
    if (overflowX === "auto" || overflowX === "scroll") return false;
    if (overflowX === "hidden" && box.right > side.right + 1) return true;
  }
  return box.left < 0 || box.right > document.documentElement.clientWidth + 1;
};
return [...document.querySelectorAll("body *")].filter(beyond).map((element) => element.outerHTML.slice(0, 120));
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for all the tests here, which has reports, too."""
    folder = tmp_path_factory.mktemp("page")
    reports_sample.write(folder / "reports.sqlite", days=1)
    options = ["--http-port", str(free_port()), "--reports-file", str(folder / "reports.sqlite")]
    started = launch(folder / "data", options)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def window(daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all the tests here."""
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        port = daemon.call("CONFIG", "GET", "http-port")[1]  # type: ignore[index]
        opened.base = f"http://{HOST}:{port}"
        yield opened


@pytest.fixture
def page(window: Browser, daemon: Daemon) -> Iterator[Browser]:
    """The browser, and no complaint at the end; the queues of the test before are gone."""
    daemon.call("DEBUG", "FLUSHALL")
    with daemon.redis(decode_responses=False) as client:
        for queue in client.execute_command("QSCAN", 0, "COUNT", 1_000)[1]:
            client.execute_command("PAUSE", queue, "none")  # a pause outlives a flush
    window.use_scheme("light")
    yield window
    assert window.complaints() == []
    window.open("/login")  # nothing listens any more


def show(job_id: str, daemon: Daemon) -> dict[str, Any]:
    """A job as SHOW tells it."""
    values: Any = daemon.call("SHOW", job_id)
    return dict(zip(values[::2], values[1::2], strict=True))


def put_to_work(daemon: Daemon, worker: str, queue: str) -> None:
    """Let a worker have a task; it lives until somebody ends it, or says START again."""
    daemon.call("WQ.ENQUEUE", queue, "TASKS", "the task")
    daemon.call("WORKER", "START", "ID", worker, "TTL", 0)
    daemon.call("GETJOB", "NOHANG", "WORKER", worker, "FROM", queue)


def length(daemon: Daemon, queue: str) -> Any:
    """QLEN."""
    return daemon.call("QLEN", queue)


def waiting(page: Browser) -> str:
    """The first figure on the page of a queue: jobs that wait."""
    return page.text("#queue-facts .figure:first-child dd")


def test_a_new_operator_adds_a_job_and_sees_the_queue_grow(page: Browser, daemon: Daemon) -> None:
    page.open("/")
    assert page.text("#nodes tr:first-child .badge") == "this node"
    page.type("[data-action*='/api/add'] [name=queue]", "mail")
    page.type("[data-action*='/api/add'] [name=body]", "to: ann")
    page.click("#do-add")
    page.wait_text("#told", "Added as DI")
    assert length(daemon, "mail") == 1
    page.click("nav a[href='/queues']")
    page.wait_text("#queue-rows", "mail")
    page.click("#queue-rows a")
    page.wait_text("h1", "mail")
    page.run("window.sameAsBefore = true")
    assert waiting(page) == "1"
    daemon.call("ADDJOB", "mail", "to: bob", 0)
    wait_until(lambda: waiting(page) == "2", "the new length, without a reload")
    page.wait_text("#peeked", "to: bob")
    assert page.run("return window.sameAsBefore") is True


def test_a_job_is_added_with_the_terms_that_an_operator_types(page: Browser, daemon: Daemon) -> None:
    page.open("/queues/terms")
    page.wait_text("h1", "Not found")
    page.complaints()  # a page that is not found is noted by the browser itself
    form = "[data-action*='/api/add']"
    typed = {"body": "x", "max_tries": "3", "backoff.first": "2", "backoff.most": "60", "keep_dead": "90",
             "result": "70", "headers": "tenant=7 note=a=b"}  # fmt: skip
    for name, text in typed.items():
        page.type(f"{form} [name='{name}']", text)
    line = page.run(f'return document.querySelector("{form} [data-line=redis]").textContent')
    assert line.endswith(" MAXTRIES 3 BACKOFF 2 60 KEEPDEAD 90 RESULT 70 HEADER tenant 7 HEADER note a=b")
    page.click("#do-add")
    page.wait_text("h1", "terms")
    page.wait_text("#told", "Added as DI")
    assert waiting(page) == "1"
    [[_, job_id, _]] = daemon.call("GETJOB", "FROM", "terms")
    shown = show(str(job_id), daemon)
    assert [shown[name] for name in ("max-tries", "backoff", "keep-dead", "keep-result", "headers")] == [
        3, [2, 60], 90, 70, ["tenant", "7", "note", "a=b"],
    ]  # fmt: skip


def test_the_chart_is_drawn_and_moves(page: Browser, daemon: Daemon) -> None:
    daemon.call("ADDJOB", "drawn", "x", 0)
    page.open("/queues/drawn")
    page.find("#chart canvas")
    # Nobody hovers: the legend has the newest values.
    length = "#chart .u-series:nth-child(2) .u-value"
    page.wait_text(length, "1")
    daemon.call("ADDJOB", "drawn", "y", 0)
    page.wait_text(length, "2")
    page.click("[data-range='7d']")
    pressed = "return [...document.querySelectorAll('[data-range][aria-pressed=true]')].map(one => one.dataset.range)"
    assert page.run(pressed) == ["7d"]
    assert page.find("#chart-data").get_attribute("href").endswith("/api/history?queue=drawn&range=7d")
    page.open("/")
    page.wait_text("#chart .u-legend", "Backlog")
    assert page.run(pressed) == ["7d"], "the range is kept"
    page.click("[data-range='1h']")


#: Script: let the history of every chart be a minute with a single spike.
SPIKE = """
const real = window.fetch, time = [...Array(60).keys()].map((at) => 1_795_000_000 + at);
const flat = time.map(() => 10), found = { time, backlog: flat, in: flat.with(30, 5_000), out: flat, acked: flat };
const answer = () => Promise.resolve(new Response(JSON.stringify(found)));
window.fetch = (path, ...rest) => (String(path).startsWith("/api/history") ? answer() : real(path, ...rest));
"""


def test_a_spike_is_clipped_and_its_figure_told(page: Browser, daemon: Daemon) -> None:
    page.open("/")
    page.wait_text("#chart .u-legend", "Backlog")
    assert page.text("#chart-note") == ""
    page.run(SPIKE)
    page.click("[data-range='6h']")
    page.wait_text("#chart-note", "Clipped: In/s 5\u202f000 at 2026-11-18 ")
    page.click("[data-range='1h']")


@pytest.mark.parametrize("queue", [".", "..", ""])
def test_a_queue_whose_name_cannot_stand_in_a_path_has_its_page(page: Browser, daemon: Daemon, queue: str) -> None:
    for body in ("apple", "pear"):
        daemon.call("ADDJOB", queue, body, 0)
    page.open("/queues")
    # The figures of all nodes are up to two seconds old: the queue of the test before may still be there.
    page.wait_text("#queue-rows a", queue or "(empty)")
    page.click("#queue-rows a")
    page.wait_text("h1", queue or "(empty)")
    page.find("#chart canvas")
    page.type("[data-action*='/api/add'] [name=body]", "plum")
    page.click("#do-add")
    wait_until(lambda: waiting(page) == "3", "the new job, without a reload")
    page.type(".find [name=text]", "pear")
    page.click(".find button")
    page.wait_text("#looked", "Matches: 1")
    page.click("#found tbody a")
    page.wait_text("h1", "Job")
    page.click(".crumbs a:last-child")
    page.wait_text("#looked", "Matches: 3")


def test_the_table_of_queues_is_live_sorted_and_filtered(page: Browser, daemon: Daemon) -> None:
    for queue, jobs in (("one", 1), ("three", 3), ("two", 2)):
        for number in range(jobs):
            daemon.call("ADDJOB", queue, number, 0)
    page.open("/queues?sort=length")
    rows = "return [...document.querySelectorAll('#queue-rows th')].map((one) => one.textContent)"
    # The figures of all nodes are up to two seconds old.
    wait_until(lambda: page.run(rows) == ["three", "two", "one"], "the queues, the longest first")
    assert page.run("return document.querySelector('[name=sort]').value") == "length"
    page.click("thead a[href*='sort=name']")
    wait_until(lambda: page.run(rows) == ["one", "three", "two"], "the queues by name")
    daemon.call("ADDJOB", "four", "x", 0)
    page.wait_text("#queue-rows", "four")
    page.type("form.find [name=q]", "THR")
    page.find("form.find [name=q]").send_keys(Keys.ENTER)
    wait_until(lambda: "q=THR" in page.driver.current_url, "the filter")
    assert [row.text for row in page.driver.find_elements("css selector", "#queue-rows th")] == ["three"]


def test_pausing_and_resuming(page: Browser, daemon: Daemon) -> None:
    daemon.call("ADDJOB", "halted", "x", 0)
    page.open("/queues/halted")
    page.click("#do-pause-in")
    wait_until(lambda: daemon.call("PAUSE", "halted", "state") == "in", "the pause")
    page.wait_text("#paused", "Adds are paused on all nodes")
    page.wait_text("#do-pause-in", "Resume adds")
    page.click("#do-pause-out")
    wait_until(lambda: daemon.call("PAUSE", "halted", "state") == "all", "the other pause")
    page.wait_text("#do-pause-out", "Resume delivery")
    page.click("#do-pause-in")
    wait_until(lambda: daemon.call("PAUSE", "halted", "state") == "out", "the first one to end")
    page.wait_text("#do-pause-in", "Pause adds")
    page.click("#do-pause-out")
    wait_until(lambda: daemon.call("PAUSE", "halted", "state") == "none", "both to end")
    page.wait_text("#do-pause-out", "Pause delivery")
    page.run(
        "const one = document.querySelector('#do-pause-out').form.elements.words; one.value = 'out node';"
        "one.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    page.click("#do-pause-out")
    page.wait_text("#paused", "Delivery is paused on this node")


def test_a_job_tells_why_it_is_not_running_and_is_requeued_and_deleted(page: Browser, daemon: Daemon) -> None:
    job_id = str(daemon.call("ADDJOB", "slow", "later", 0, "DELAY", 3_000, "TTL", 9_000))
    page.open(f"/jobs/{job_id}")
    assert "delayed until" in page.text("#why")
    page.click("#do-enqueue")
    page.wait_text("#why", "at about place 1")
    assert show(job_id, daemon)["state"] == "queued"
    daemon.call("GETJOB", "FROM", "slow")
    page.open(f"/jobs/{job_id}")
    page.wait_text("#why", "in flight")
    page.click("#do-nack")
    page.wait_text("#why", "at about place 1")
    assert show(job_id, daemon)["nacks"] == 1
    page.click("#do-delete")
    page.wait_text(".sure p", "This node drops its copies")
    assert show(job_id, daemon)["state"] == "queued", "nothing happens before the answer"
    page.click(".sure .yes")
    wait_until(lambda: daemon.call("SHOW", job_id) is None, "the job to be gone")


def test_selected_jobs_are_deleted_and_others_stay(page: Browser, daemon: Daemon) -> None:
    kept, chosen = (str(daemon.call("ADDJOB", "some", body, 0)) for body in ("kept", "chosen"))
    page.open("/queues/some")
    page.click(f"input[value='{chosen}']")
    page.wait_text("#looked", "Matches: 2")
    page.click("#do-selected-delete")
    page.click(".sure .yes")
    page.wait_text("#looked", "Matches: 1")
    assert daemon.call("SHOW", chosen) is None
    assert show(kept, daemon)["state"] == "queued"


def test_the_box_above_the_others_says_what_they_are(page: Browser, daemon: Daemon) -> None:
    one, other = (str(daemon.call("ADDJOB", "boxes", body, 0)) for body in ("one", "other"))
    page.open("/queues/boxes")
    above = "const box = document.querySelector('#all'); return [box.checked, box.indeterminate]"
    page.click("#all")
    assert page.run("return document.querySelectorAll('#found [name=pick]:checked').length") == 2
    assert page.run(above) == [True, False]
    page.click(f"input[value='{one}']")
    assert page.run(above) == [False, True]
    page.click(f"input[value='{one}']")
    assert page.run(above) == [True, False]
    daemon.call("DELJOB", one)
    page.click("#do-selected-delete")
    page.click(".sure .yes")
    page.wait_text("#looked", "Matches: 0")
    assert page.run(above) == [False, False]
    assert daemon.call("SHOW", other) is None


def test_a_body_of_many_lines_is_added_once_however_long_it_is(page: Browser, daemon: Daemon) -> None:
    page.open("/")
    page.type("[data-action*='/api/add'] [name=queue]", "long")
    field = "document.querySelector(\"[data-action*='/api/add'] [name=body]\")"
    page.run(
        f"{field}.value = 'to: ann\\n'.repeat(100_000); {field}.dispatchEvent(new Event('input', {{bubbles: true}}))"
    )
    page.click("#do-add")
    page.wait_text("#told", "Added as DI")
    [[_, _, body]] = daemon.call("QPEEK", "long", 10)  # type: ignore[misc]
    assert body.splitlines() == ["to: ann"] * 100_000


def test_selected_jobs_move_to_another_queue_and_others_stay(page: Browser, daemon: Daemon) -> None:
    _, second, third = (str(daemon.call("ADDJOB", "from", body, 0)) for body in ("1", "2", "3"))
    once = str(daemon.call("ADDJOB", "from", "4", 0, "RETRY", 0, "REPLICATE", 1))
    page.open("/queues/from")
    page.type("#selected [name=to]", "to")
    page.click("#do-selected-move")
    page.wait_text("#selected", "Failed: no jobs selected")
    for job_id in (second, third, once):
        page.click(f"input[value='{job_id}']")
    page.run("document.querySelectorAll('#selected details').forEach(one => one.open = true)")
    page.wait_text("#selected", f'"ids":["{second}","{third}","{once}"]')
    page.click("#do-selected-move")
    said = "Selected: 3, queue “from”. 3 jobs match. Moved jobs are added to that queue, and end in this one. Move"
    page.wait_text(".sure p", said)
    assert length(daemon, "from") == 4, "nothing happens before the answer"
    page.click(".sure button:not(.yes)")
    assert length(daemon, "from") == 4, "nor after a no"
    page.click("#do-selected-move")
    page.click(".sure .yes")
    page.wait_text("#told", "Jobs moved: 2")
    page.wait_text("#selected", "1 failed. First error: RETRY 0")
    page.wait_text("#looked", "Matches: 2")
    assert (length(daemon, "from"), length(daemon, "to")) == (2, 2)
    assert show(once, daemon)["queue"] == "from"


def test_nothing_is_moved_while_no_queue_is_named(page: Browser, daemon: Daemon) -> None:
    job_id = str(daemon.call("ADDJOB", "from", "x", 0))
    page.open("/queues/from")
    page.click(f"input[value='{job_id}']")
    for key in ("selected", "bulk"):
        page.click(f"#do-{key}-move")
        assert page.run(f"return document.querySelector('#{key} [name=to]').matches(':invalid')")
    assert page.text("#told") == ""
    assert length(daemon, "from") == 1


def dead_job(daemon: Daemon, queue: str) -> str:
    """Add a job that is dead, with all that a page may tell of it."""
    job_id = str(daemon.call("ADDJOB", queue, "x", 0, "RETRY", 60, "MAXTRIES", 2, "HEADER", "trace", "ab"))
    daemon.call("GETJOB", "FROM", queue)
    daemon.call("WORKING", job_id, "PROGRESS", "half")
    daemon.call("NACK", job_id, "DEAD", "REASON", "no such host")
    return job_id


def failing_job(daemon: Daemon, queue: str) -> str:
    """Add a job that has failed and waits for its next try."""
    job_id = str(daemon.call("ADDJOB", queue, "x", 0, "RETRY", 60, "MAXTRIES", 3))
    while (taken := daemon.call("GETJOB", "FROM", queue)[0][1]) != job_id:  # type: ignore[index]
        daemon.call("ACKJOB", taken)
    daemon.call("NACK", job_id, "DELAY", 600, "REASON", "timeout")
    return job_id


def test_a_question_about_jobs_of_several_queues_says_how_many(page: Browser, daemon: Daemon) -> None:
    for queue in ("several-a", "several-b"):
        failing_job(daemon, queue)
    page.open("/failing?queue=several-*")
    page.wait_text("#found tbody", "several-b")
    page.click("#all")
    page.click("#do-selected-bury")
    page.wait_text(".sure p", "Selected: 2, 2 queues. 2 jobs match.")
    page.click(".sure button:not(.yes)")


def test_failing_jobs_are_buried_and_dead_ones_purged_from_their_lists(page: Browser, daemon: Daemon) -> None:
    job_id = failing_job(daemon, "broken")
    page.open("/failing?queue=broken")
    page.wait_text("#found tbody", "timeout")
    page.click("#found input[name=pick]")
    page.click("#do-selected-bury")
    page.wait_text(".sure p", "Selected: 1, queue “broken”. 1 job matches. Buried jobs are dead letters")
    page.click(".sure .yes")
    page.wait_text("#told", "Jobs buried: 1")
    page.wait_text("#found tbody", "No jobs match.")
    page.wait_text("#outcome", "Jobs buried: 1.")
    assert show(job_id, daemon)["state"] == "dead"
    page.open("/dead?queue=broken")
    page.click("#do-bulk-purge")
    question = "1 job matches (queue “broken”). This ends jobs on all nodes, and they cannot be brought back."
    page.wait_text(".sure p", f"{question} Purge (all nodes)?")
    page.click(".sure .yes")
    page.wait_text("#told", "Jobs purged: 1")
    assert daemon.call("SHOW", job_id) is None or show(job_id, daemon)["state"] == "acked"


def test_a_list_of_failing_jobs_is_live_and_keeps_what_is_selected(page: Browser, daemon: Daemon) -> None:
    page.open("/failing?queue=live")
    page.wait_text("#found tbody", "No jobs match.")
    assert page.driver.find_elements("css selector", "#do-bulk-retry") == []
    first = failing_job(daemon, "live")
    # The first one brings the actions, too: the page loads itself again.
    page.find(f'#found tr[data-key="{first}"]')
    page.find("#do-bulk-retry")
    page.run("window.sameAsBefore = true")
    page.click(f'#found tr[data-key="{first}"] input[name=pick]')
    second = failing_job(daemon, "live")
    page.find(f'#found tr[data-key="{second}"]')
    page.wait_text("h1", "2, all nodes")
    assert page.run("return window.sameAsBefore") is True
    picked = "return [...document.querySelectorAll('#found input[name=pick]:checked')].map((box) => box.value)"
    assert page.run(picked) == [first]
    assert page.run("return document.querySelector('#all').indeterminate") is True
    daemon.call("CANCEL", first, second)
    page.wait_text("#found tbody", "No jobs match.")
    wait_until(lambda: not page.driver.find_elements("css selector", "#do-bulk-retry"), "actions that went")


@pytest.mark.parametrize("path", ["/failing?queue=cards", "/queues/cards?state=any"])
def test_the_boxes_of_cards_are_for_fingers_and_nothing_lies_below(page: Browser, daemon: Daemon, path: str) -> None:
    failing_job(daemon, "cards")
    page.cdp("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=False)
    try:
        page.open(path)
        page.find("#found input[name=pick]")
        sizes = (
            "return [...document.querySelectorAll('#found input')].map((box) => [box.offsetWidth, box.offsetHeight])"
        )
        assert page.run(sizes) == [[24, 24], [24, 24]]
        found = page.run("""
            const box = document.querySelector('#found tbody input').getBoundingClientRect();
            const card = document.querySelector('#found tbody tr').getBoundingClientRect();
            const apart = (one) => one.bottom <= box.top || one.top >= box.bottom || one.right <= box.left;
            const cells = [...document.querySelectorAll('#found tbody tr > :not(.pick)')];
            return [box.right < card.right && box.top > card.top, cells.filter((cell) => {
              const range = document.createRange();
              range.selectNodeContents(cell);
              return [...range.getClientRects()].some((one) => !apart(one));
            }).length];
        """)
        assert found == [True, 0]
    finally:
        page.cdp("Emulation.clearDeviceMetricsOverride")


@pytest.mark.parametrize("path", ["/failing?queue=many", "/dead?queue=many", "/queues/many?state=any"])
def test_on_a_phone_actions_are_one_touch_away_from_a_long_list(page: Browser, daemon: Daemon, path: str) -> None:
    for _ in range(12):
        (dead_job if "dead" in path else failing_job)(daemon, "many")
    page.cdp("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=False)
    seen = "const {top, bottom} = document.querySelector(arguments[0]).getBoundingClientRect();"
    seen += "return top > -1 && bottom <= innerHeight && top < bottom"
    try:
        page.open(path)
        page.find("#found tbody tr:nth-child(12)")
        link = page.find("nav.crumbs a[href='#h-bulk'], nav.crumbs a[href='#acts']")
        assert link.rect["y"] < 844
        # Nothing touches the links at the top.
        gap = "const nav = document.querySelector('nav.crumbs');let next = nav.nextElementSibling;"
        gap += "while (!next.offsetHeight) next = next.nextElementSibling;"
        gap += "return next.getBoundingClientRect().top - nav.getBoundingClientRect().bottom"
        assert page.run(gap) >= 8
        link.click()
        heading = "#acts h2" if "queues" in path else "#h-bulk"
        wait_until(lambda: page.run(seen, heading), "the actions in the window", 20)
        page.run("scrollTo(0, 0)")
        assert not page.find("#picked").is_displayed()
        page.click("#found tbody tr:nth-child(2) input[name=pick]")
        page.wait_text("#picked", "Selected: 1. Go to the actions")
        assert page.run(seen, "#picked")
        page.find("#picked a").click()
        wait_until(lambda: page.run(seen, "#h-selected"), "the actions for selected jobs in the window", 20)
    finally:
        page.cdp("Emulation.clearDeviceMetricsOverride")


def test_a_dead_job_is_redriven_alone_and_with_all_others(page: Browser, daemon: Daemon) -> None:
    job_id, _ = dead_job(daemon, "failing"), dead_job(daemon, "failing")
    page.open(f"/jobs/{job_id}")
    page.wait_text("#tries tbody", "no such host")
    page.click("#do-redrive")
    wait_until(lambda: length(daemon, "failing") == 1, "the job to wait again")
    page.open("/queues/failing?state=dead")
    page.click("#do-bulk-redrive")
    page.wait_text(".sure p", "1 job")
    page.click(".sure .yes")
    page.wait_text("#told", "Jobs redriven: 1")
    assert length(daemon, "failing") == 2


def test_a_running_job_is_buried_redriven_and_cancelled(page: Browser, daemon: Daemon) -> None:
    job_id = str(daemon.call("ADDJOB", "three", "x", 0, "RETRY", 60))
    daemon.call("GETJOB", "FROM", "three")
    page.open(f"/jobs/{job_id}")
    page.type("[data-action*='/api/commands/NACK'] [name=reason]", "poison")
    page.click("#do-bury")
    page.click(".sure .yes")
    wait_until(lambda: show(job_id, daemon)["state"] == "dead", "the job to be dead")
    page.open(f"/jobs/{job_id}")
    page.wait_text("#tries tbody", "poison")
    page.click("#do-redrive")
    wait_until(lambda: length(daemon, "three") == 1, "the job to wait again")
    page.open(f"/jobs/{job_id}")
    page.click("#do-cancel")
    page.wait_text(".sure p", "The job ends on all nodes")
    page.click(".sure .yes")
    wait_until(lambda: daemon.call("SHOW", job_id) is None, "the job to be gone")
    page.wait_text("#told", "The job is cancelled.")
    page.wait_text("#job-state", "ended")
    page.wait_text("#job-nodes", "No node that answers has the job.")
    page.wait_text("#why", "it has ended")


def test_the_defaults_of_a_queue_are_set_and_taken_back(page: Browser, daemon: Daemon) -> None:
    daemon.call("ADDJOB", "ruled", "x", 0)
    page.open("/queues/ruled")
    page.wait_text("#policy", "No policy set")
    form = "[data-action*='/api/commands/QPOLICY']"
    page.type(f"{form} [name=max_tries]", "5")
    page.type(f"{form} [name='backoff.first']", "10")
    page.type(f"{form} [name='backoff.most']", "600")
    line = "return document.querySelector('#do-policy-set').form.querySelector('[data-line=redis]').textContent"
    assert page.run(line).endswith("QPOLICY ruled SET MAXTRIES 5 BACKOFF 10 600")
    page.click("#do-policy-set")
    page.wait_text("#policy", "10 600")
    fields: Any = daemon.call("QPOLICY", "ruled", "GET")
    assert [row[:2] for row in fields] == [["maxtries", "5"], ["backoff", "10 600"]]
    page.run(
        "const one = document.querySelector('[name=partition]'); one.value = 'available';"
        "one.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    page.type(f"{form} [name='group_rate.count']", "3")
    page.type(f"{form} [name='group_rate.per']", "2")
    assert page.run(line).endswith("MAXTRIES 5 BACKOFF 10 600 GROUPRATE 3 PER 2 PARTITION available")
    page.click("#do-policy-set")
    page.wait_text("#policy", "available")
    fields = daemon.call("QPOLICY", "ruled", "GET")
    assert [row[:2] for row in fields[2:]] == [["grouprate", "3 PER 2"], ["partition", "available"]]
    daemon.call("QPOLICY", "ruled", "UNSET", "grouprate", "partition")
    page.click(f"{form} [name=fair]")
    assert " SET FAIR MAXTRIES 5 " in page.run(line)
    page.click("#do-policy-set")
    page.wait_text("#policy", "fair")
    assert ["fair", "1"] in [row[:2] for row in daemon.call("QPOLICY", "ruled", "GET")]  # type: ignore[union-attr]
    daemon.call("QPOLICY", "ruled", "UNSET", "fair", "grouprate", "partition")
    page.type(f"{form} [name=unset]", "maxtries backoff")
    page.click("#do-policy-unset")
    page.wait_text("#policy", "No policy set")
    assert daemon.call("QPOLICY", "ruled", "GET") == []


def test_a_queue_and_a_group_of_it_are_throttled(page: Browser, daemon: Daemon) -> None:
    daemon.call("ADDJOB", "slow", "x", 0)
    page.open("/queues/slow")
    page.wait_text("#throttles", "Not throttled")
    page.type("[data-action*='/api/commands/THROTTLE'] [name=group]", "acme")
    line = "return document.querySelector('#do-throttle').form.querySelector('[data-line=redis]').textContent"
    assert page.run(line).endswith("THROTTLE slow 30 GROUP acme")
    page.click("#do-throttle")
    page.wait_text("#throttles", "group acme")
    assert 0 < int(str(daemon.call("THROTTLE", "slow", 0, "GROUP", "acme"))) <= 30
    assert daemon.call("THROTTLE", "slow", 0) == 0
    daemon.call("THROTTLE", "slow", 60)
    page.wait_text("#throttles", "whole queue")


def test_a_queue_shows_its_delayed_jobs(page: Browser, daemon: Daemon) -> None:
    daemon.call("ADDJOB", "late", "x", 0)
    page.open("/queues/late")
    figures = "return [...document.querySelectorAll('#queue-facts .figure')].map((one) => one.textContent).join()"
    assert "Delayed0" in page.run(figures)
    daemon.call("ADDJOB", "late", "x", 0, "DELAY", 600)
    wait_until(lambda: "Delayed1" in page.run(figures), "the delayed job, without a reload")


def test_a_bulk_delete_counts_first(page: Browser, daemon: Daemon) -> None:
    for number in range(7):
        daemon.call("ADDJOB", "bulk", f"bad {number}" if number < 5 else "good", 0)
    page.open("/queues/bulk")
    page.type(".find [name=text]", "bad")
    page.click(".find button")
    page.wait_text("#looked", "Matches: 5")
    page.click("#do-bulk-delete")
    page.wait_text(".sure p", "5 jobs match on this node (queue “bulk”, state ready, body contains “bad”)")
    assert length(daemon, "bulk") == 7, "nothing happens before the answer"
    page.click(".sure button:not(.yes)")
    page.click("#do-bulk-delete")
    page.click(".sure .yes")
    wait_until(lambda: length(daemon, "bulk") == 2, "the five to be gone")
    page.wait_text("#told", "Jobs deleted: 5")
    page.wait_text("#looked", "Matches: 0")


def test_a_purge_counts_first(page: Browser, daemon: Daemon) -> None:
    for number in range(7):
        daemon.call("ADDJOB", "purged", number, 0)
    page.open("/queues/purged")
    page.click("#do-bulk-purge")
    question = "7 jobs match (queue “purged”, state ready, any body). This ends jobs on all nodes, and they cannot be"
    page.wait_text(".sure p", f"{question} brought back. Purge (all nodes)?")
    assert length(daemon, "purged") == 7, "nothing happens before the answer"
    page.click(".sure .yes")
    wait_until(lambda: length(daemon, "purged") == 0, "all of them to be gone")
    page.wait_text("#told", "Jobs purged: 7")
    page.run("document.querySelector('#told').textContent = ''")
    page.wait_text("#outcome", "Jobs purged: 7.")


@pytest.mark.parametrize("field", ["text", "older", "state"])
def test_what_was_typed_and_not_searched_for_is_no_filter(page: Browser, daemon: Daemon, field: str) -> None:
    for body in ("keep", "keep too", "junk"):
        daemon.call("ADDJOB", "trap", body, 0)
    page.open("/queues/trap")
    if field == "state":
        page.run("document.querySelector('.find [name=state]').value = 'dead'")
    else:
        page.type(f".find [name={field}]", "7")
    page.click("#do-bulk-purge")
    page.wait_text("#bulk", "the search form has changed: press Search first")
    assert length(daemon, "trap") == 3


def test_a_page_is_live_in_the_tab_that_is_seen_however_many_are_open(page: Browser, daemon: Daemon) -> None:
    first = page.driver.current_window_handle
    try:
        # A browser has six connections to a host: none of those may be left to tabs that nobody sees.
        for number in range(8):
            daemon.call("ADDJOB", f"tab{number}", "x", 0)
            page.driver.switch_to.new_window("tab")
            daemon.call("ADDJOB", f"tab{number}", "first", 0)
            page.open(f"/queues/tab{number}")
            page.wait_text("h1", f"tab{number}")
        daemon.call("ADDJOB", "tab7", "fresh", 0)
        page.wait_text("#peeked", "fresh")
    finally:
        for handle in page.driver.window_handles:
            if handle != first:
                page.driver.switch_to.window(handle)
                page.driver.close()
        page.driver.switch_to.window(first)


def test_a_page_whose_session_has_ended_says_so(page: Browser, tmp_path: Path) -> None:
    port, tokens = free_port(), tmp_path / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text("ann admin bodies a-token-of-sixteen")
    guarded = launch(tmp_path / "data", ["--http-port", str(port), "--http-token-file", str(tokens)])
    before, page.base = page.base, f"http://{HOST}:{port}"
    try:
        page.open("/login")
        page.type("[name=token]", "a-token-of-sixteen")
        page.click("main form button")
        page.wait_text("h1", "Overview")
        tokens.write_text("# nobody\n")
        page.wait_text("#told", "Your session has expired")
        page.complaints()  # the browser notes that it was refused
    finally:
        page.base = before
        guarded.stop()


def test_every_job_that_a_filter_finds_moves_to_another_queue(page: Browser, daemon: Daemon) -> None:
    for number in range(3):
        daemon.call("ADDJOB", "here", number, 0)
    page.open("/queues/here")
    page.type("#bulk [name=to]", "there")
    page.click("#do-bulk-move")
    fate = "Moved jobs are added to that queue, and end in this one."
    page.wait_text(
        ".sure p", f"3 jobs match on this node (queue “here”, state ready, any body). {fate} Move all to there?"
    )
    page.click(".sure .yes")
    page.wait_text("#told", "Jobs moved: 3")
    assert (length(daemon, "here"), length(daemon, "there")) == (0, 3)


@pytest.mark.parametrize("width", [320, 380])
def test_nothing_lies_beyond_the_side_of_a_narrow_window(page: Browser, daemon: Daemon, width: int) -> None:
    job_id = str(daemon.call("ADDJOB", "n" * 200, "b" * 2_000, 0))
    page.cdp("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
    try:
        paths = ["/", "/queues", f"/queues/{'n' * 200}", f"/jobs/{job_id}", "/settings", "/actions", "/login", "/none"]
        put_to_work(daemon, "w" * 200, "n" * 200)
        event_id = str(daemon.call("QADD", "l" * 200, 600, "e" * 2_000))
        daemon.call("QGET", "l" * 200, "g" * 200)
        paths += [f"/queues/{'l' * 200}", f"/jobs/{event_id}"]
        paths += ["/reports", "/reports?queue=mail&grain=day", f"/reports?queue={'n' * 200}"]
        every = ("0 2 * * *", "TZ", "America/Argentina/ComodRivadavia")
        daemon.call("SCHEDULE", "SET", "s" * 200, *every, "QUEUE", "n" * 200, "BODY", "b" * 2_000)
        paths += ["/schedules", f"/schedules/{'s' * 200}", "/failing", "/dead"]
        dead_job(daemon, "d" * 200), failing_job(daemon, "d" * 200)
        paths += [f"/nodes/{daemon.call('CLUSTER', 'MYID')}"]
        for path in [*paths, "/workers", f"/workers/{'w' * 200}"]:
            page.open(path)
            page.run("document.querySelectorAll('details').forEach(one => one.open = true)")
            assert (path, page.run("return document.documentElement.scrollWidth")) == (path, width)
            # The ids of jobs stand in one line, so that a row is no higher than its body is.
            ids = "document.querySelectorAll('#found tbody th code')"
            assert page.run(f"return [...{ids}].every(id => id.offsetHeight < 30)")
            # Nor is anything cut off that cannot be scrolled to.
            assert (path, page.run(CUT_OFF)) == (path, [])
    finally:
        page.cdp("Emulation.clearDeviceMetricsOverride")
    page.complaints()  # a page that is not found is noted by the browser itself


def test_a_worker_is_declared_dead_and_its_task_is_there_again(page: Browser, daemon: Daemon) -> None:
    page.open("/workers")
    put_to_work(daemon, "press 3", "worked")
    page.wait_text("#worker-rows", "press 3")
    page.click("#worker-rows a[href='/workers/press%203']")
    page.wait_text("#tasks", "the task")
    page.click("[data-action*=FAIL] summary")
    assert page.text("[data-action*=FAIL] [data-line=redis]").endswith("WORKER FAIL 'press 3'")
    page.click("#do-fail")
    page.wait_text(".sure p", "front of their queues")
    page.click(".sure .yes")
    page.wait_text("#told", "Tasks requeued: 1")
    page.wait_text("#worker", "has ended")
    assert length(daemon, "worked") == 1


def test_a_schedule_is_paused_resumed_fired_and_deleted(page: Browser, daemon: Daemon) -> None:
    daemon.call("SCHEDULE", "SET", "to pause", "EVERY", 3_600, "QUEUE", "of schedules", "BODY", "x")
    page.open("/schedules")
    page.wait_text("#schedule-rows", "to pause")
    page.click("#schedule-rows a[href='/schedules/to%20pause']")
    page.wait_text("#schedule-now", "active")
    page.click("#pauses button")
    page.wait_text("#told", "Paused on all nodes: OK")
    page.wait_text("#schedule-now", "paused")
    page.wait_text("#pauses", "Resume")
    page.click("#pauses button")
    page.wait_text("#told", "Resumed on all nodes: OK")
    page.wait_text("#schedule-now", "active")
    page.click("#do-fire")
    page.wait_text("#told", "Added as DI")
    assert length(daemon, "of schedules") == 1
    page.click("#do-delete")
    page.wait_text(".sure p", "stops running on all nodes")
    page.click(".sure .yes")
    page.wait_text("#told", "Schedules deleted: 1")
    page.wait_text("#schedule-now", "was deleted")
    assert daemon.call("SCHEDULE", "GET", "to pause") is None


def told_of(daemon: Daemon, schedule: str) -> dict[str, Any]:
    """What SCHEDULE GET says of a schedule, without what changes by itself or when it is set again."""
    values: Any = daemon.call("SCHEDULE", "GET", schedule)
    found = dict(zip(values[::2], values[1::2], strict=True))
    return {name: value for name, value in found.items() if name not in ("next", "runs", "last", "last-job", "set-at")}


def test_a_schedule_is_set_and_changed_by_those_who_type_what_it_says(page: Browser, daemon: Daemon) -> None:
    page.open("/schedules")
    form = "[data-action*='SCHEDULE/SET']"
    typed = {"name": "sums", "line": "0 2 * * mon-fri", "queue": "of sums", "zone": "Europe/Berlin", "jitter": "30",
             "max_tries": "3", "headers": "tenant=7", "group": "acme"}  # fmt: skip
    for name, text in typed.items():
        page.type(f"{form} [name='{name}']", text)
    body = "\n two lines\n\nof text\n"
    page.run("document.querySelector(`${arguments[0]} [name=body]`).value = arguments[1]", form, body)
    page.run("document.querySelector(`${arguments[0]} [name=overlap]`).value = 'skip'", form)
    page.click(f"{form} [name=asynchronous]")
    page.click("#do-schedule-set")
    page.wait_text(".sure p", "UTC. Save schedule?")
    times = [datetime.fromisoformat(text) for text in re.findall(r"[0-9-]{10} [0-9:]{8}", page.text(".sure p"))]
    assert len(times) == 5
    assert all((at.minute, at.second) == (0, 0) and at.hour in (0, 1) for at in times), "at two o'clock in Berlin"
    assert daemon.call("SCHEDULE", "GET", "sums") is None, "nothing happens before the answer"
    page.click(".sure .yes")
    page.wait_text("#told", "Saved on all nodes: OK")
    page.wait_text("#schedule-rows", "sums")
    before = told_of(daemon, "sums")
    assert {name: before[name] for name in ("when", "zone", "queue", "body", "overlap", "jitter", "maxtries")} == {
        "when": "0 2 * * mon-fri", "zone": "Europe/Berlin", "queue": "of sums", "body": body, "overlap": "skip",
        "jitter": 30, "maxtries": 3,
    }  # fmt: skip
    assert (before["async"], before["headers"], before["group"]) == (1, ["tenant", "7"], "acme")
    page.click("#schedule-rows a[href='/schedules/sums']")
    page.find("#do-schedule-change")
    daemon.call("SCHEDULE", "DEL", "sums")
    page.click("#do-schedule-change")
    page.click(".sure .yes")
    page.wait_text("#told", "Saved on all nodes: OK")
    assert told_of(daemon, "sums") == before, "a form in which nobody has typed says what the schedule said"
    page.type(f"{form} [name=line]", "61 * * * *")
    page.click("#do-schedule-change")
    page.wait_text(f"{form} .result", "Failed: ")
    assert "61" in page.text(f"{form} .result")
    page.complaints()  # a request that is refused is noted by the browser itself
    page.type(f"{form} [name=line]", "")
    page.type(f"{form} [name=zone]", "")
    page.type(f"{form} [name=every]", "3600")
    page.click(f"{form} [name=asynchronous]")
    line = page.run(f'return document.querySelector("{form} [data-line=redis]").textContent')
    assert "SCHEDULE SET sums EVERY 3600 QUEUE" in line
    page.click("#do-schedule-change")
    page.click(".sure .yes")
    page.wait_text("#h-says + .facts", "EVERY 3600")
    assert told_of(daemon, "sums") == before | {
        "when": "EVERY 3600",
        "zone": told_of(daemon, "sums")["zone"],
        "async": 0,
    }


def test_a_setting_is_changed(page: Browser, daemon: Daemon) -> None:
    page.open("/settings")
    page.type("#slowlog-max-len input", "77")
    page.click("#do-set-slowlog-max-len")
    page.wait_text("#told", "Changed")
    page.wait_text("#slowlog-max-len .value", "77")
    assert daemon.call("CONFIG", "GET", "slowlog-max-len") == ["slowlog-max-len", "77"]
    page.open("/actions")
    assert "POST /api/config" in page.text("main tbody tr:first-child")


def test_the_loop_for_redis_cli_does_what_the_filter_says(page: Browser, daemon: Daemon) -> None:
    for number in range(150):
        daemon.call("ADDJOB", "loop", number, 0)
    other = str(daemon.call("ADDJOB", "other", "x", 0))
    page.open("/queues/loop")
    line = page.run("return document.querySelector('#do-bulk-ack').form.querySelector('[data-line]').textContent")
    subprocess.run(["sh", "-c", line], capture_output=True, timeout=LIMIT, check=True)
    assert length(daemon, "loop") == 0
    assert show(other, daemon)["state"] == "queued"


def test_every_line_of_redis_cli_works_where_a_password_is_set(tmp_path: Path) -> None:
    guarded = launch(tmp_path / "data")
    guarded.call("CONFIG", "SET", "requirepass", "open sesame")

    def run(line: str, **environment: str) -> "subprocess.CompletedProcess[bytes]":
        inherited = {name: value for name, value in os.environ.items() if name != "REDISCLI_AUTH"}
        program = ["sh", "-c", line]
        return subprocess.run(
            program, env={**inherited, **environment}, capture_output=True, timeout=LIMIT, check=False
        )

    try:
        with guarded.redis(password="open sesame") as client:
            for number in range(150):
                client.execute_command("ADDJOB", "kept", number, 0)
            for key in ("requeue", "purge"):
                search = JobSearch(b"kept", "in-flight" if key == "requeue" else "ready")
                (action,) = [one for one in bulk(search, guarded.port) if one.key == f"bulk-{key}"]
                line = action.redis if key == "requeue" else redis_line(list(action.words), guarded.port)
                assert b"NOAUTH" in run(str(line)).stdout + run(str(line)).stderr
                assert client.execute_command("QLEN", "kept") == 150
                assert run(str(line), REDISCLI_AUTH="open sesame").stderr == b""
            assert client.execute_command("QLEN", "kept") == 0
            for queue in (b"plain", b"\x00\xff"):
                line = redis_line([b"ADDJOB", queue, b"x", b"0"], guarded.port)
                assert b"NOAUTH" in run(line).stdout
                assert run(line, REDISCLI_AUTH="open sesame").stdout.startswith(b"DI")
    finally:
        guarded.stop()


def test_an_error_is_told_in_place(page: Browser, daemon: Daemon) -> None:
    daemon.call("PAUSE", "shut", "in")
    page.open("/queues/shut")
    page.type("[data-action*='/api/add'] [name=body]", "x")
    page.click("#do-add")
    page.wait_text("#acts", "Failed: Queue paused")
    assert any("409" in text for text in page.complaints()), "the browser notes the status by itself"


def test_a_log_is_emptied_after_a_question_that_counts(page: Browser, daemon: Daemon) -> None:
    for number in range(3):
        daemon.call("QADD", "spilled", 600, str(number))
    daemon.call("QGET", "spilled", "mailers", "EX", 600)
    page.open("/queues/spilled")
    page.click("#do-flush")
    page.wait_text(".sure", "Events on this node: 3.")
    assert length(daemon, "spilled") == 3
    page.click(".sure .yes")
    page.wait_text("#told", "All events deleted")
    wait_until(lambda: length(daemon, "spilled") == 0, "the log to be empty")
    page.wait_text("#groups", "No consumer groups")


def test_another_host_is_a_page_that_looks_like_the_others(page: Browser, daemon: Daemon) -> None:
    page.open("/")
    ground = page.run("return getComputedStyle(document.body).backgroundColor")
    base, page.base = page.base, page.base.replace(HOST, "strange.localhost")
    try:
        page.open("/queues")
        page.wait_text("h1", "Another host")
        page.wait_text(".lead", "is not a host of this node")
        assert page.run("return getComputedStyle(document.body).backgroundColor") == ground
        assert page.violations() == []
    finally:
        page.base = base
        assert any("421" in text for text in page.complaints()), "the browser notes the status by itself"


def test_hostile_names_and_bodies_do_nothing(page: Browser, daemon: Daemon) -> None:
    with daemon.redis(decode_responses=False) as client:
        job_id = client.execute_command("ADDJOB", HOSTILE, b"<img src=x onerror=x()>\xe2\x80\xae", 0).decode()
        binary_id = client.execute_command("ADDJOB", HOSTILE, BINARY, 0).decode()
        large_id = client.execute_command("ADDJOB", HOSTILE, b"<script>x()</script>" * 52_500, 0).decode()
    page.open("/queues")
    page.click("#queue-rows a")
    page.wait_text("h1", r"<b onclick=\"x()\">".replace("\\", ""))
    assert "\\u202e" in page.text("h1"), "a mark that turns the direction of text is seen"
    page.wait_text("#peeked", "<img src=x")
    assert page.driver.find_elements("css selector", "main img, main b, main script") == []
    page.click("#do-pause-out")
    wait_until(lambda: daemon.call("PAUSE", HOSTILE, "state") == "out", "the pause of that very queue")
    page.open(f"/jobs/{binary_id}")
    page.wait_text(".whole", "00 ff fe 3c")
    page.open(f"/jobs/{large_id}")
    page.wait_text(".whole", "<script>x()</script>")
    page.open(f"/jobs/{job_id}")
    page.wait_text(".whole", "<img src=x onerror=x()>")
    page.click(".crumbs a:last-child")
    page.wait_text("h1", "<b onclick")


def test_every_line_does_what_it_says(page: Browser, daemon: Daemon) -> None:
    """Lines are run by a shell: what is typed into the form arrives."""
    body = 'it\'s "quoted" $HOME `x` \\ é'
    with daemon.redis(decode_responses=False) as client:
        client.execute_command("ADDJOB", HOSTILE, b"first", 0)
    page.open(f"/queues/{quote(HOSTILE, safe='')}")
    page.type("[data-action*='/api/add'] [name=body]", body)
    lines = [
        page.run(f"return document.querySelector(\"[data-action*='/api/add'] [data-line={kind}]\").textContent")
        for kind in ("redis", "curl")
    ]
    for line in lines:
        done = subprocess.run(["sh", "-c", line], capture_output=True, timeout=LIMIT, check=True)
        assert b"DI" in done.stdout, (line, done)
    with daemon.redis(decode_responses=False) as client:
        peeked = client.execute_command("QPEEK", HOSTILE, 5)
    assert [row[2] for row in peeked] == [b"first", *[body.encode()] * 2]
    assert shlex.split(lines[1])[0] == "curl"


def test_one_action_with_the_keyboard_alone(page: Browser, daemon: Daemon) -> None:
    daemon.call("ADDJOB", "typed", "x", 0)
    page.open("/queues/typed")
    page.find("#chart canvas")

    def press(*keys: str) -> None:
        ActionChains(page.driver).send_keys(*keys).perform()

    def focused() -> str:
        return str(page.run("const e = document.activeElement; return e.name || e.id || e.className"))

    press(Keys.TAB)
    assert focused() == "skip", "the first stop is the way past the menu"
    press(Keys.ENTER)
    wait_until(lambda: focused() == "main", "the content to have the focus")
    for _ in range(80):
        press(Keys.TAB)
        if focused() == "body":
            break
    press("from the keyboard")
    for _ in range(10):
        press(Keys.TAB)
        if focused() == "do-add":
            break
    press(Keys.ENTER)
    wait_until(lambda: length(daemon, "typed") == 2, "the job")
    page.wait_text("#told", "Added as")


def test_reports_of_a_queue_are_reached_with_the_keyboard_alone(page: Browser) -> None:
    def press(*keys: str) -> None:
        ActionChains(page.driver).send_keys(*keys).perform()

    def tab_to(what: str) -> None:
        """Press Tab until something that says so has the focus."""
        for _ in range(60):
            press(Keys.TAB)
            if page.run("return document.activeElement.textContent.trim()") == what:
                return
        raise AssertionError(f"{what} is not reached")

    page.open("/reports")
    assert len(page.driver.find_elements("css selector", "svg.plot")) == 7
    tab_to("thumbnails")
    press(Keys.ENTER)
    page.wait_text("h1", "thumbnails")
    assert len(page.driver.find_elements("css selector", "svg.plot")) == 6
    tab_to("Jobs per hour, as numbers")
    press(Keys.ENTER)
    page.wait_text(".numbers[open] tbody", "2026-11-22 09:00")
    page.click(".crumbs a")
    page.wait_text("#h-queues", "Queues")


def test_pages_can_be_read_without_scripts(page: Browser, daemon: Daemon) -> None:
    job_id = str(daemon.call("ADDJOB", "plain", "the body", 0))
    put_to_work(daemon, "press-1", "worked")
    daemon.call("SCHEDULE", "SET", "nightly", "0 2 * * *", "QUEUE", "plain", "BODY", "the sales")
    expected = {
        "/": ["Waiting consumers", "this node"], "/queues": ["plain"], "/queues/plain": ["Ready", "the body", "ADDJOB"],
        f"/jobs/{job_id}": ["at about place 1", "the body", "Added"],
        "/settings": ["maxmemory"], "/actions": ["Audit log"], "/workers": ["Tasks in progress", "press-1"],
        "/reports": ["Chart: Jobs per hour", "jobs lost", "over target"],
        "/schedules": ["nightly", "0 2 * * *", "active", "Add schedule", "Cron expression"],
        "/schedules/nightly": ["Upcoming runs", "the sales", "Edit schedule", "Max missed runs to catch up"],
        "/workers/press-1": ["Tasks in progress", "the task"], "/queues/worked": ["In flight", "press-1"],
    }  # fmt: skip
    with page.without_scripts():
        for path, texts in expected.items():
            page.open(path)
            spoken = page.spoken()
            said = " ".join(name for _, name in spoken)
            assert all(text in said for text in texts if text != "ADDJOB"), (path, said)
            # What does nothing without a script is not there.
            searching = ("Filter", "Search", "Show", "Log out")
            assert [name for role, name in spoken if role == "button" and name not in searching] == [], path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violations(page: Browser, daemon: Daemon, scheme: str) -> None:
    job_id = str(daemon.call("ADDJOB", "checked", json.dumps({"to": "ann"}), 0))
    daemon.call("PAUSE", "checked", "in")
    daemon.call("ADDJOB", "delayed", "x", 0, "DELAY", 100)
    put_to_work(daemon, "press-2", "checked-too")
    daemon.call("ADDJOB", "press-jobs", "x", 0)
    event_id = str(daemon.call("QADD", "logged", 600, "the event"))
    daemon.call("QGET", "logged", "mailers", "EX", 600)
    dead_id = dead_job(daemon, "failing")
    failing_job(daemon, "failing")
    daemon.call("QPOLICY", "failing", "SET", "MAXTRIES", 3)
    daemon.call("THROTTLE", "slowed", 600)
    page.use_scheme(scheme)
    paths = [f"/jobs/{dead_id}", "/queues/failing?state=dead", "/queues/slowed", "/dead", "/failing"]
    paths += ["/", "/queues", "/queues/checked", "/queues/none", f"/jobs/{job_id}", "/jobs/none", "/actions"]
    paths += ["/settings", "/login", "/none", "/workers", "/workers/press-2", "/queues/checked-too", "/workers/none"]
    paths += ["/queues/logged", f"/jobs/{event_id}", "/reports", "/reports?queue=mail&grain=day"]
    daemon.call("SCHEDULE", "SET", "seen", "EVERY", 1, "QUEUE", "beats", "BODY", "x", "MAXLEN", 9)
    daemon.call("SCHEDULE", "SET", "stopped", "0 2 * * *", "TZ", "Asia/Tokyo", "QUEUE", "beats", "BODY", "x")
    daemon.call("SCHEDULE", "PAUSE", "stopped")
    wait_until(lambda: bool(daemon.call("SCHEDULE", "LIST", "seen")[0][5]), "an instant is over")  # type: ignore[index]
    daemon.call("SCHEDULE", "PAUSE", "seen")
    paths += ["/schedules", "/schedules/seen", "/schedules/stopped", "/schedules/none"]
    node_id = daemon.call("CLUSTER", "MYID")
    paths += [f"/nodes/{node_id}", "/nodes/none", "/connections", f"/client?node={node_id}&id=1"]
    for path in [*paths, "/find?q=press"]:
        page.open(path)
        page.run("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert (path, page.violations()) == (path, [])
    page.complaints()  # a page that is not found is noted by the browser itself


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violations_in_a_report_that_stands_alone(page: Browser, tmp_path: Path, scheme: str) -> None:
    reports_sample.write(tmp_path / "reports.sqlite", days=1)
    (tmp_path / "report.html").write_text(report_page(tmp_path / "reports.sqlite", reports_sample.NOW, queues=2))
    page.use_scheme(scheme)
    page.driver.get((tmp_path / "report.html").as_uri())
    page.run("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.violations() == []
    assert page.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_a_node_is_drained_in_four_clicks_and_the_page_follows(page: Browser, daemon: Daemon) -> None:
    job_ids = [daemon.call("ADDJOB", "mail", f"to: ann {number}", 0) for number in range(2)]
    page.open("/")
    page.click("#nodes a")
    page.wait_text("#node", "The node answers and takes jobs.")
    page.click("#do-drain")
    page.wait_text(".sure p", "The node hands its jobs to the other nodes")
    assert daemon.call("CLUSTER", "LEAVING") == "no"
    page.click(".sure .yes")
    page.wait_text("#told", "The node drains.")
    page.wait_text("#node", "Leaving: 2 of 2 jobs are left.")
    page.wait_text("#node", "no node can be reached that takes jobs")
    assert page.text("#node-acts").startswith("Stop draining")
    assert page.violations() == []
    daemon.call("ACKJOB", job_ids[0])
    page.wait_text("#node", "Leaving: 1 of 2 jobs are left.")
    assert page.run("return document.querySelector('progress').position") == 0.5
    daemon.call("ACKJOB", job_ids[1])
    page.wait_text("#node", "Drained: the node may be stopped, and nothing is lost.")
    # Somebody else lets it stay: the page offers what is possible now.
    daemon.call("CLUSTER", "LEAVING", "no")
    page.wait_text("#node-acts", "Drain this node")
    page.click("#do-drain")
    page.click(".sure .yes")
    page.wait_text("#node-acts", "Stop draining")
    page.click("#do-stay")
    page.wait_text("#told", "The node stays.")
    page.wait_text("#node", "The node answers and takes jobs.")
    assert daemon.call("CLUSTER", "LEAVING") == "no"


def test_dark_and_light_differ(page: Browser) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        page.use_scheme(scheme)
        page.open("/")
        grounds.append(page.run("return getComputedStyle(document.body).backgroundColor"))
    assert grounds[0] != grounds[1]


def test_a_form_logs_in_where_a_token_is_needed(window: Browser, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("eve viewer eve-may-look-at-this-node\n")
    tokens.chmod(0o600)
    port = free_port()
    guarded = launch(tmp_path / "data", ["--http-port", str(port), "--http-token-file", str(tokens)])
    base, window.base = window.base, f"http://{HOST}:{port}"
    try:
        guarded.call("ADDJOB", "secret", "the body", 0)
        window.open("/queues/secret")
        window.wait_text("h1", "Log in")
        window.type("[name=token]", "eve-may-look-at-this-node")
        window.click("main button")
        window.wait_text("h1", "secret")
        window.wait_text("#peeked", "withheld")
        assert window.driver.find_elements("css selector", "#do-add, #do-pause-in, [name=pick]") == []
        assert window.complaints() == []
    finally:
        window.base = base
        window.open("/login")
        guarded.stop()
