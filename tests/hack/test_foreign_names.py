"""Volcano and KAI are named where their rules stand; elsewhere one neutral word does: a foreign queue, gang or job."""

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
ROOMS: Final = ("agent", "cli", "controller", "deviceplugin", "inventory", "kube")
OWN: Final = ("cli/migrate", "cli/words/migrating.py", "controller/foreign", "controller/messages",
              "controller/scheduler/kai", "controller/scheduler/volcano")  # fmt: skip
"""Folders and modules that are about them."""
NAMED: Final = re.compile(r"volcano|\bkai\b|kai[A-Z]", re.IGNORECASE)
MOST_MODULES: Final = 18
"""Modules outside of ``OWN`` that name one of them. The number may only fall."""


def naming() -> list[str]:
    paths = (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))
    outside = (path for path in paths if not any(path.is_relative_to(ROOT / folder) for folder in OWN))
    return [str(path.relative_to(ROOT)) for path in outside if NAMED.search(path.read_text())]


def test_few_modules_name_another_system() -> None:
    found = naming()
    assert len(found) <= MOST_MODULES, "\n".join(found)


def test_the_number_of_modules_that_name_another_system_is_the_least_that_it_was() -> None:
    assert len(naming()) >= MOST_MODULES, "lower MOST_MODULES"


@pytest.mark.parametrize(
    ("text", "is_named"),
    [("A Queue of KAI's.", True), ("KaiQueue", True), ("VOLCANO_JOB", True), ("a foreign queue", False)],
)
def test_a_name_is_found_in_words_and_in_code(text: str, is_named: bool) -> None:
    assert bool(NAMED.search(text)) is is_named
