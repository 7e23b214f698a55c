"""A real browser without a window, for the tests of the admin page and for its pictures in the documentation.

    python -m tests.browser docs/images     start a cluster of three nodes, give it work, take pictures

It is Debian's Chromium with its driver.  What a page must not do is looked for in its console: every error, and every
violation of the Content-Security-Policy, is there.
"""

import itertools
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests import reports_sample
from tests.integration.daemon import HOST, ROOT, Daemon, free_port, launch, wait_until
from tests.limits import LIMIT

AXE = ROOT / "tests/integration/node/node_modules/axe-core/axe.min.js"
WIDTH, HEIGHT = 1280, 900
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-background-networking", "--disable-dev-shm-usage", "--disable-gpu",
    "--no-first-run", "--no-default-browser-check", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--force-device-scale-factor=1", f"--window-size={WIDTH},{HEIGHT}",
)  # fmt: skip


@attrs.define
class Browser:
    """A browser that looks at one site; `base` is where that is."""

    driver: Any
    base: str = ""

    def open(self, path: str) -> None:
        """Go to a page, and wait until it has come to life."""
        self.driver.get(self.base + path)

    def find(self, selector: str) -> WebElement:
        """The element, once it is there."""

        def look() -> list[WebElement]:
            found: list[WebElement] = self.driver.find_elements(By.CSS_SELECTOR, selector)
            return found

        return wait_until(look, f"an element {selector} on {self.driver.current_url}")[0]

    def text(self, selector: str) -> str:
        """The text of an element that is there; empty when it is not, or is just being replaced."""
        try:
            return str(self.driver.find_element(By.CSS_SELECTOR, selector).text)
        except (NoSuchElementException, StaleElementReferenceException):
            return ""

    def wait_text(self, selector: str, part: str) -> None:
        """Wait until an element says something."""
        wait_until(lambda: part in self.text(selector), f"{part!r} in {selector} on {self.driver.current_url}")

    def click(self, selector: str) -> None:
        """Click an element in the middle of the window, where nothing lies over it."""
        element = self.find(selector)
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        wait_until(element.is_displayed, f"{selector} to be seen")
        element.click()

    def type(self, selector: str, text: str) -> None:
        """Write into a field, in place of what is in it."""
        field = self.find(selector)
        field.clear()
        field.send_keys(text)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page."""
        return self.driver.execute_script(script, *arguments)

    def cdp(self, command: str, **values: Any) -> Any:
        """Ask the browser itself."""
        return self.driver.execute_cdp_cmd(command, values)

    def use_scheme(self, scheme: str) -> None:
        """Prefer light or dark."""
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    @contextmanager
    def without_scripts(self) -> Iterator[None]:
        """Switch JavaScript off for the pages that are opened meanwhile."""
        self.cdp("Emulation.setScriptExecutionDisabled", value=True)
        try:
            yield
        finally:
            self.cdp("Emulation.setScriptExecutionDisabled", value=False)

    def spoken(self) -> list[tuple[str, str]]:
        """What a screen reader is told of the page: (role, name), in order; it needs no script in the page."""
        nodes = self.cdp("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node["ignored"] and node.get("role")
        ]

    def violations(self) -> list[str]:
        """What axe finds by all of its rules: the rule, and the first places."""
        self.run(AXE.read_text())
        found = self.driver.execute_async_script(
            "const [done] = arguments;axe.run().then(found => done(found.violations), error => done([String(error)]))"
        )
        return [
            one if isinstance(one, str) else f"{one['id']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
            for one in found
        ]

    def complaints(self) -> list[str]:
        """Errors in the console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def picture(self, file: Path) -> None:
        """Take a picture of the window."""
        file.write_bytes(self.driver.get_screenshot_as_png())


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start Chromium with an empty profile, and end it."""
    chromium, driver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    missing = "Chromium and its driver are missing: apt-get install chromium chromium-driver"
    assert None not in (chromium, driver), missing
    options = Options()
    options.binary_location = chromium
    for argument in (*OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield Browser(started)
    finally:
        started.quit()


# Pictures.

PICTURES = (
    ("overview", "/"), ("queues", "/queues?sort=length"), ("queue", "/queues/mail"), ("job", "/jobs/{job}"),
    ("workers", "/workers"), ("log", "/queues/signups"), ("reports", "/reports"), ("settings", "/settings?q=events*"),
)  # fmt: skip
PHONE_PICTURES = (("phone-overview", "/"), ("phone-queues", "/queues?sort=length"))
PHONE_WIDTH = 390
WORK = (
    ("mail", '{{"to": "{name}@example.org", "template": "welcome", "locale": "en"}}', 46),
    ("invoices", '{{"customer": {number}, "month": "2026-10", "send": true}}', 31),
    ("thumbnails", '{{"path": "/uploads/{number}.jpg", "sizes": [64, 256, 1024]}}', 120),
    ("search/index", '{{"document": "{name}-{number}", "op": "upsert"}}', 212),
    ("webhooks", '{{"url": "https://hooks.example.org/{number}", "event": "order.paid"}}', 17),
    ("reports", '{{"kind": "weekly", "team": "{name}"}}', 4),
)
#: Workers, with the queue of tasks that they work on.
WORKERS = (("press-1", "transcode"), ("press-2", "transcode"), ("ocr-1", "scans"))
#: Groups of the consumers of the log, and of how many of its last events each is not done yet.
GROUPS = (("mailers", 2), ("crm", 5), ("statistics", 9))
LOG = "signups"
#: Whether rates are known and the chart is drawn, where a page has these.
SETTLED = """
    const has = (selector) => document.querySelector(selector) !== null;
    const rate = document.querySelector("#queue-rows td:nth-child(3), #queue-facts .figure:nth-child(2) dd, "
        + "#facts .figure:nth-child(5) dd");
    return (!rate || rate.textContent !== "\\u2013") && (!has("#chart") || has("#chart canvas"));
"""
WORKED_S = 150  #: that the charts show something
NAMES = ("ann", "bob", "carol", "dan", "erin")


def give_work(daemon: Daemon, round_: int) -> None:
    """Let producers and consumers do something for a moment."""
    with daemon.redis() as client:
        for queue, body, jobs in WORK:
            for number in range(jobs // 8 + round_ % 3):
                text = body.format(name=NAMES[number % len(NAMES)], number=4_000 + 97 * number + round_)
                client.execute_command("ADDJOB", queue, text, 0, "RETRY", 120)
        for queue, _, jobs in WORK:
            taken = client.execute_command("GETJOB", "NOHANG", "COUNT", jobs // 9 + 1, "FROM", queue) or []
            for row in taken[: -1 - round_ % 2]:
                client.execute_command("ACKJOB", row[1])


def begin_work(daemon: Daemon) -> None:
    """Start workers, which live until somebody ends them."""
    for worker, queue in WORKERS:
        with daemon.redis() as client:
            client.execute_command("WORKER", "START", "ID", worker, "NAME", f"hall {len(queue)}", "TTL", 0)
            client.execute_command("WQ.WORK", queue)


def give_tasks(daemon: Daemon, round_: int) -> None:
    """Let workers take tasks and finish all but the last ones, and groups of consumers read their log."""
    with daemon.redis() as client:
        for number, (worker, queue) in enumerate(WORKERS):
            client.execute_command("WQ.ENQUEUE", queue, "TASKS", f"/uploads/{4_000 + 7 * round_ + number}.mov")
            taken = client.execute_command("GETJOB", "NOHANG", "WORKER", worker, "FROM", queue) or []
            if round_ > number + 1:
                client.execute_command("ACKJOB", *(row[1] for row in taken))
        client.execute_command("QADD", LOG, 120, f'{{"user": "{NAMES[round_ % len(NAMES)]}", "plan": "team"}}')
        for group, behind in GROUPS:
            event = client.execute_command("QGET", LOG, group, "EX", 60) if round_ >= behind else None
            if event and round_ % behind:
                client.execute_command("QACK", LOG, group, event[0])


def take_pictures(opened: Browser, job_id: str, folder: Path) -> None:
    """Every page of PICTURES and PHONE_PICTURES, light and dark."""
    pages = [(*page, WIDTH) for page in PICTURES] + [(*page, PHONE_WIDTH) for page in PHONE_PICTURES]
    for name, path, width in pages:
        for scheme in ("light", "dark"):
            opened.use_scheme(scheme)
            opened.cdp(
                "Emulation.setDeviceMetricsOverride", width=width, height=HEIGHT, deviceScaleFactor=1, mobile=False
            )
            opened.open(path.format(job=job_id))
            wait_until(lambda: opened.run(SETTLED), f"numbers on {path}")
            height = opened.run("return Math.min(1120, document.documentElement.scrollHeight)")
            opened.cdp(
                "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
            )
            opened.run("return document.fonts.ready.then(() => new Promise(requestAnimationFrame))")
            opened.picture(folder / f"{name}-{scheme}.png")
            opened.cdp("Emulation.clearDeviceMetricsOverride")


def work_until(over: threading.Event, daemon: Daemon) -> None:
    """Go on giving work."""
    for round_ in itertools.count():
        give_work(daemon, round_)
        give_tasks(daemon, round_)
        if over.wait(0.4):
            return


def main(folder: Path) -> None:
    """Start three nodes, let them work for a while, and take the pictures."""
    over = threading.Event()
    with tempfile.TemporaryDirectory() as place:
        port = free_port()
        reports = Path(place) / "reports.sqlite"
        reports_sample.write(reports)
        options = ["--reports-file", str(reports), "--http-port"]
        nodes = [launch(Path(place) / name, [*options, str(http)]) for name, http in (("a", port), ("b", 0), ("c", 0))]
        worker = threading.Thread(target=work_until, args=(over, nodes[0]))
        try:
            for node in nodes[1:]:
                nodes[0].call("CLUSTER", "MEET", HOST, node.port)
            begin_work(nodes[0])
            worker.start()
            with browser(Path(place) / "profile") as opened:
                opened.base = f"http://{HOST}:{port}"
                opened.open("/")
                over.wait(WORKED_S)
                nodes[0].call("PAUSE", "reports", "out", "REASON", "the report server is down")
                job_id = str(nodes[0].call("ADDJOB", "orders", '{"order": 4711, "total": "99.90"}', 0, "RETRY", 300))
                for last in ("NACK", "WORKING"):
                    nodes[0].call("GETJOB", "FROM", "orders")
                    nodes[0].call(last, job_id)
                take_pictures(opened, job_id, folder)
        finally:
            over.set()
            worker.join(LIMIT)
            for node in nodes:
                node.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
