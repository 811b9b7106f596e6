"""Whatever a file holds, it is read, or refused with one line that names the file and the line in it."""

import json
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cluster.config.inertgates import GONE
from controller.cluster.config.keys import API_VERSIONS, KEYS
from controller.cluster.config.load import parse
from yamlfile import ConfigError

parts = sorted({part.removesuffix("[]") for key in KEYS for part in key.path.split(".")} - {"*"})
words = st.sampled_from([*parts, *list(GONE)[:3], "PartialAdmission"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["5m", "0s", "1Gi", "batch/job", "0", ":1", "kueue", "In", "Retain"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def refusal(text: str) -> str:
    try:
        parse(text, "f.yaml")
    except ConfigError as refused:
        return str(refused)
    return ""


def checked(text: str) -> None:
    said = refusal(text)
    assert "\n" not in said
    assert not said or re.match(r"f\.yaml:\d+: .*found .*, expected .", said)


@given(
    st.text(max_size=80)
    | st.lists(st.sampled_from([*"{}[]:,-&*!'\"\n ", "tessera", "kind", "a", "1"]), max_size=30).map("".join)
)
@settings(max_examples=40, deadline=None)
def test_any_text_is_read_or_refused_with_its_line(text: str) -> None:
    checked(text)
    checked("apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n" + text)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A file whose keys are mostly where they belong, with any values."""
    root: dict[str, Any] = {"apiVersion": draw(st.sampled_from(API_VERSIONS)), "kind": "Configuration"}
    for key in draw(st.lists(st.sampled_from(KEYS[2:]), max_size=6)):
        place: Any = root
        *sections, last = key.path.split(".")
        for section in sections:
            below = place.setdefault(section.removesuffix("[]"), [{}] if section.endswith("[]") else {})
            place = below[0] if isinstance(below, list) and below else below
            if not isinstance(place, dict):
                break
        if isinstance(place, dict):
            place[last.removesuffix("[]")] = draw(values)
    return root


@given(documents())
@settings(max_examples=40, deadline=None)
def test_any_value_at_any_key_is_read_or_refused_with_its_line(document: dict[str, Any]) -> None:
    checked(json.dumps(document, indent=1))
