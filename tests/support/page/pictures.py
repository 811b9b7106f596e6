"""Pictures of the page in its documents: drawn by the page's scenes, and stale when the page has changed since.

Beside the pictures lies what each was drawn of: the outline of the view, its elements and headings without amounts
and times. A scene compares it with what it sees, so whoever changes a view draws its picture anew. Colours and sizes
are not compared: they differ by the fonts of a machine.
"""

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Final

from tests.support.page.browser import Browser

PICTURES: Final = Path(__file__).parents[3] / "docs" / "pictures"
DRAW: Final = os.environ.get("TESSERA_PICTURES") == "1"
DRAWN: Final = PICTURES / "drawn.json"
_OUTLINE: Final = """
const found = [];
const told = new Set(["H1", "H2", "H3", "TH", "DT", "LABEL", "LEGEND", "BUTTON", "SUMMARY"]);
for (const each of document.body.querySelectorAll("*")) {
  if (each.closest("virtual-table tbody, .tip, table.tree tbody")) continue;
  const mark = `${each.tagName}.${each.getAttribute("class") ?? ""}`;
  const text = told.has(each.tagName) ? each.textContent.replace(/[0-9.,]+/g, "#").replace(/\\s+/g, " ").trim() : "";
  if (found.at(-1) !== mark + text) found.push(mark + text);
}
return found;
"""


def outline(browser: Browser) -> str:
    browser.until(lambda: not browser.js("return document.querySelector('.waiting')"), "all answers are there")
    return sha256(json.dumps(browser.js(_OUTLINE)).encode()).hexdigest()[:16]


def picture(browser: Browser, name: str) -> None:
    """Draw it where pictures are drawn now; else AssertionError where it shows another page than this one."""
    found = outline(browser)
    drawn: dict[str, str] = json.loads(DRAWN.read_text()) if DRAWN.exists() else {}
    if DRAW:
        browser.picture(PICTURES / f"{name}.png")
        DRAWN.write_text(json.dumps({**drawn, name: found}, indent=1, sort_keys=True) + "\n")
        return
    assert (PICTURES / f"{name}.png").is_file()
    assert drawn.get(name) == found, f"docs/pictures/{name}.png is stale: TESSERA_PICTURES=1 pytest -m e2e {_SCENES}"


_SCENES: Final = "tests/e2e/page/test_page.py"
