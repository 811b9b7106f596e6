"""A text that is nested too deeply is found before a parser goes down with it."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from yamlfile.levels import MOST_LEVELS, too_deep

DEEP = [
    "a: " + "[" * 300_000,
    "[\n" * 1_000,
    "\n".join(f"{' ' * level}a:" for level in range(1_000)),
    "- " * 1_000 + "a",
    "a: " + "{a: " * 1_000 + "1" + "}" * 1_000,
]


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_a_text_that_is_too_deep_is_told_with_a_line(text: str) -> None:
    assert too_deep(text) is not None


@pytest.mark.parametrize("text", ["", "a: 1", "a: " + "x" * 10_000, "- {a: [1]}\n" * 10_000, "a: [", "a: *b"])
def test_a_text_that_is_flat_or_does_not_parse_is_not(text: str) -> None:
    assert too_deep(text) is None


def levels(value: object) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(levels, inside), default=0) if isinstance(value, dict | list) else 0


@given(st.integers(1, 30), st.integers(1, 30), st.booleans())
def test_it_says_what_the_values_say(depth: int, most: int, flow: bool) -> None:
    value: object = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    text = yaml.safe_dump(value, default_flow_style=flow)
    assert levels(yaml.safe_load(text)) == depth
    assert (too_deep(text, most) is not None) == (depth > most)
    assert most <= MOST_LEVELS
