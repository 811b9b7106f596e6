"""Debian's Chromium, without a window, driven by Selenium."""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from selenium.common.exceptions import TimeoutException
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.support.wait import WebDriverWait

from hack.cluster import prerequisites
from hack.cluster.errors import ClusterError
from tests.support.hang import HANG_S

AXE = Path(__file__).parent / "axe.min.js"
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice")
DROPPED = "net::ERR_NETWORK_CHANGED"
"""Of requests under way when the machine gets a network interface, as for each pod of another scene."""

TREE = """
return [...document.querySelectorAll("table.tree tbody tr")].map((row) => [
  Number(row.querySelector("th").dataset.depth), row.className, row.querySelector("th a, th span").textContent,
  ...[3, 4].map((at) => Number(row.children[at].innerText.split("\\n")[0].replaceAll(",", ""))),
]);
"""
"""Of each row its depth, kind and name, and what it uses of how much, on the view of all queues."""


def ensure() -> None:
    """Return when Chromium and its driver are there; Debian's packages are installed where we may."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        prerequisites.install(["chromium", "chromium-driver"])
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        raise ClusterError("missing: chromium, chromedriver (Debian: apt-get install chromium chromium-driver)")


class Browser:
    """One window. ``errors`` are what the page wrote to the console as errors, a broken policy among them."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def size(self, width: int, height: int, *, phone: bool = False) -> None:
        """Of the page in CSS pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def media(self, **features: str) -> None:
        """Media features by their names with underscores: ``prefers_color_scheme="dark"``."""
        told = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": told})

    def open(self, url: str) -> None:
        self.driver.get(url)

    def go(self, fragment: str) -> None:
        """Another view of the same page."""
        self.js("location.hash = arguments[0]", fragment)
        self.js("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def js(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, condition: Callable[[], Any], what: str, timeout_s: float = HANG_S, every_s: float = 0.1) -> Any:
        return WebDriverWait(self.driver, timeout_s, poll_frequency=every_s).until(lambda _: condition(), what)

    def text(self, selector: str = "main") -> str:
        """What a reader sees of the first such element; empty where there is none."""
        return str(self.js("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def until_text(self, wanted: str, selector: str = "main") -> None:
        try:
            self.until(lambda: wanted in self.text(selector), "")
        except TimeoutException:
            found = f"found {self.text(selector)[:2000]!r}, and {self.text('body')[:2000]!r} in all"
            told = f"{wanted!r} in {selector}: {found}; errors: {self.errors()}"
            raise TimeoutException(told) from None

    def violations(self) -> list[str]:
        """What axe-core finds against the page as it is, one line each."""
        self.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE.read_text(encoding="utf-8")})
        self.driver.set_script_timeout(HANG_S)
        run = "axe.run(document, {runOnly: arguments[0]}).then((all) => done(JSON.stringify(all.violations)))"
        found = self.driver.execute_async_script(f"const done = arguments[1]; {run}", list(RULES))
        violations: list[Mapping[str, Any]] = json.loads(found)
        return [
            f"{each['id']}: {each['help']}: "
            + "; ".join(str(node["target"]) + " " + node["html"][:160] for node in each["nodes"][:5])
            for each in violations
        ]

    def errors(self) -> list[str]:
        """What the browser calls severe, but for requests that it dropped itself: the page reads itself again then, and
        a scene asks for what is shown.
        """
        severe = (entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE")
        return [message for message in severe if DROPPED not in message]

    def picture(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.driver.get_screenshot_as_png())


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """A fresh one with a profile in ``folder``. It takes the certificate of any server."""
    ensure()
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    options.accept_insecure_certs = True
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-proxy-server",
        f"--user-data-dir={folder}",
    ):
        options.add_argument(argument)
    service = ChromeService(executable_path=shutil.which("chromedriver") or "")
    driver = Chrome(options=options, service=service)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
