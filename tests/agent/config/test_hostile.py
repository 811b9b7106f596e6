"""No config file can do worse than be refused with one line."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.config.load import load, parse
from yamlfile import ConfigError
from yamlfile.tree import MAX_BYTES


def test_an_alias_bomb_is_refused_before_it_goes_off() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(ConfigError, match="more than 20000 values"):
        parse("\n".join(levels))


@pytest.mark.parametrize("text", ["[" * 5000, "{" * 5000, '{"a":' * 5000, "a: " + "{b: " * 5000, "- " * 5000])
def test_a_deep_file_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"levels|YAML"):
        parse(text)


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="expected a smaller file"):
        load(file, {}, {})


def test_bytes_that_are_no_text_are_refused_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ConfigError, match=r":2: found bytes that are no UTF-8"):
        load(file, {}, {})


def refusal(text: str) -> str:
    """What is said against ``text``; empty when it is accepted."""
    try:
        parse(text)
    except ConfigError as refused:
        return str(refused)
    return ""


words = st.sampled_from(
    [
        "version",
        "v1",
        "flags",
        "plugin",
        "sharing",
        "timeSlicing",
        "resources",
        "devices",
        "replicas",
        "health",
        "xids",
        "79",
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)


@given(
    st.text(max_size=80) | st.lists(st.sampled_from([*"{}[]:,-&*!'\"\n ", "flags", "a", "1"]), max_size=30).map("".join)
)
@settings(max_examples=40, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    assert "\n" not in refusal(text)


@given(st.dictionaries(words, values, max_size=5))
@settings(max_examples=40, deadline=None)
def test_any_document_is_read_or_refused(document: dict[str, object]) -> None:
    assert "\n" not in refusal(json.dumps(document, indent=1))
