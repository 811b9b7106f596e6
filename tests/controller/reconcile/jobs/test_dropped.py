"""What an API server left out of a start is found, and nothing else is taken for it."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.framework.raw import merged
from controller.reconcile.jobs.dropped import dropped

Json = dict[str, Any]
PLACED: Json = {"manager": "m", "spec": {"nodeSelector": {"pool": "a"}}}


@pytest.mark.parametrize(
    ("stored", "patch", "field"),
    [
        ({"spec": {"suspend": True}}, {"spec": {"runtimePatches": [PLACED]}}, "spec.runtimePatches"),
        ({"spec": {"runtimePatches": []}}, {"spec": {"runtimePatches": [PLACED]}}, "spec.runtimePatches[0]"),
        (
            {"spec": {"runtimePatches": [{"manager": "m", "spec": {}}]}},
            {"spec": {"runtimePatches": [PLACED]}},
            "spec.runtimePatches[0].spec.nodeSelector",
        ),
        ({"spec": {"suspend": True}}, {"spec": {"suspend": False}}, "spec.suspend"),
        ({"spec": {"runtimePatches": "none"}}, {"spec": {"runtimePatches": [PLACED]}}, "spec.runtimePatches"),
    ],
)
def test_the_first_field_that_is_not_there_is_named(stored: Json, patch: Json, field: str) -> None:
    assert dropped(stored, patch) == field


@pytest.mark.parametrize(
    ("stored", "patch"),
    [
        ({"spec": {"image": "mirror/a"}}, {"spec": {"image": "a"}}),
        ({"spec": {"tolerations": [{"key": "more"}, {"key": "a"}]}}, {"spec": {"tolerations": [{"key": "a"}]}}),
        ({"spec": {}}, {"spec": {"suspend": False, "nodeSelector": {}, "labels": None}}),
        ({}, {"metadata": {"resourceVersion": "7"}}),
    ],
)
def test_what_a_webhook_changes_or_adds_and_what_says_nothing_is_not_missed(stored: Json, patch: Json) -> None:
    assert dropped(stored, patch) == ""


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from("abc"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from("xyz"), VALUES, max_size=3)


@given(OBJECTS, OBJECTS)
def test_nothing_is_missed_of_a_patch_that_was_merged(stored: Json, patch: Json) -> None:
    assert dropped(merged(stored, patch), copy.deepcopy(patch)) == ""
