"""Pages are plain English: turns of phrase that readers stumbled over do not come back."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "decisions"),
]
RIDDLES = {
    r"\bthe own\b": "whose own: its, their, the controller's",
    r"\b(he|him|his)\b": "readers are they, or you",
    r"\ban answer counts for\b": "an answer is kept for",
    r"\bdocuments? counts? for\b": "is kept for",
    r"\bchanged for an?\b": "exchanged for",
    r"\bis succeeded\b": "what follows it",
    r"\btold run times?\b": "promised run times",
    r"\bis taken to be\b": "is assumed to be",
    r"\baway before\b": "remove first",
    r"\bplays \d": "answers as",
    r"\bby difference\b": "only what differs is touched",
    r"\bsome of job kinds\b": "parts of some job kinds",
    r"\bpasses every test\b": "runs every test",
    r"\bno page yet\b": "there is one",
}
"""A turn of phrase, and what says it plainly."""


@pytest.mark.parametrize("riddle", RIDDLES, ids=list(RIDDLES.values()))
def test_no_page_speaks_in_this_riddle(riddle: str) -> None:
    found = {}
    for page in PAGES:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
        if lines := [line for line in text.splitlines() if re.search(riddle, line, re.IGNORECASE)]:
            found[page.name] = lines
    assert found == {}, RIDDLES[riddle]
