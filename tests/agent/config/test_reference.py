"""The documentation's tables are the agent's."""

import re
from pathlib import Path

import pytest

from agent.config.load import parse
from agent.config.table import OWN_SECTIONS
from hack.pages.agentreference import PAGES, rewritten

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", PAGES)
def test_the_tables_in_the_docs_are_current(name: str) -> None:
    page = (ROOT / name).read_text()
    assert "<!-- table: " in page
    assert rewritten(page) == page, f"{name} is stale: run .venv/bin/python -m hack.pages.agentreference"


def test_the_examples_in_the_docs_are_accepted() -> None:
    examples = [
        text
        for name in ("docs/configuration.md", *PAGES)
        for text in re.findall(r"```yaml\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
    ]
    assert len(examples) >= 2
    for text in examples:
        assert parse(text)[1] == ()


def test_the_page_of_the_configuration_names_each_section_of_ours() -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    named = re.search(r"Tessera's own sections\n\((.*?)\) stand", page, re.DOTALL)
    assert named is not None
    assert set(re.findall(r"`(\w+)`", named[1])) == set(OWN_SECTIONS)
