"""A real browser without a window, for the tests of the admin page and for its pictures in the documentation.

    python -m tests.browser docs/images     start a cluster of two nodes, give it work, take pictures

It is Debian's Chromium with its driver.  What a page must not do is looked for in its console: every error, and every
violation of the Content-Security-Policy, is there.
"""

import shutil
import sys
import tempfile
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

from tests.integration.daemon import ROOT, wait_until

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
        """What axe finds: rule, and the first places."""
        self.run(AXE.read_text())
        found = self.driver.execute_async_script(
            "const done = arguments[0]; axe.run().then(found => done(found.violations), error => done([String(error)]))"
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
    assert chromium and driver, "Chromium and its driver are missing: apt-get install chromium chromium-driver"
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
