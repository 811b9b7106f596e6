"""``tessera try`` in Chromium: the fleet, queues in a cohort, a job that waits with its forecast, what-if, a fault."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import yaml

from cli.playground.world import packaged
from tests.support.e2e.lab import ROOT
from tests.support.page.browser import Browser, chromium

pytestmark = pytest.mark.e2e

UP_S = 10.0
"""The promise for an idle machine. Here others work beside: three times as long is a failure."""
FAULT = [{"at": 20, "node": "node-2", "gpu": 3, "xid": 79}, {"at": 40, "node": "node-2", "gpu": 3, "reset": True}]
"""Sooner than the package's own."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    fleet, manifests = packaged()
    sooner = tmp_path_factory.mktemp("world") / "fleet.yaml"
    sooner.write_text(yaml.safe_dump({**yaml.safe_load(fleet.read_text()), "events": FAULT}))
    words = [sys.executable, "-c", "from cli.main import main; main()", "try", "--fleet", str(sooner)]
    words += [str(manifest) for manifest in manifests]
    begun_s = time.monotonic()
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(2)]
        try:
            assert time.monotonic() - begun_s < UP_S * 3
            yield next(line for line in lines if line.startswith("http://"))
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0


@pytest.fixture(scope="module")
def browser(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        browser.size(1440, 900)
        browser.open(address)
        browser.until_text("on 4 nodes")
        yield browser


def test_the_first_minute_shows_the_product(browser: Browser) -> None:
    assert browser.text(".who") != "", "it is open to whoever asks, and says as whom"
    browser.go("#/queues")
    for name in ("company", "research", "production", "notebooks"):
        browser.until_text(name)
    browser.go("#/pending")
    browser.until_text("rlhf")
    browser.until_text("next", "virtual-table")
    browser.js("document.querySelector('virtual-table td a').click()")
    browser.until_text("Why it waits")
    browser.until_text("Expected start")
    browser.go("#/whatif")
    browser.js("document.querySelector('form button[type=submit]').click()")
    browser.until_text("What was submitted", "section[aria-label=Outcome]")
    assert "default/what-if" in browser.text("section[aria-label=Outcome]")
    browser.go("#/fleet?node=node-2")
    browser.until_text("GPU 7", "aside")
    browser.until_text("XID 79", "aside")
    browser.until(lambda: "XID 79" not in browser.text("aside"), "the GPU is back")
    browser.go("#/workloads")
    browser.until_text("nightly-training")
    assert browser.errors() == []


def test_a_visitor_can_change_nothing(browser: Browser, address: str) -> None:
    asked = """return fetch(arguments[0] + "page/session", {method: "POST", body: "{}"}).then((each) => each.status)"""
    assert browser.js(asked, address) == 403
    browser.errors()
