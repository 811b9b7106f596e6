"""The annotation with the devices planned for claims: what is written is read, what is read can be a selector."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory.api import claimplan

UUID, PART = "gpu.nvidia.com/uuid", "tessera.dev/part"
DEVICES = [("gpus", "gpu", UUID, "GPU-0"), ("gpus", "gpu", UUID, "GPU-1"), ("parts", "p/small", PART, "GPU-2-mig-0")]
names = st.text("abz/", min_size=1, max_size=4)
devices = st.tuples(names, names, st.sampled_from([UUID, PART]), st.from_regex(r"GPU-[a-f0-9]{1,40}", fullmatch=True))


def test_devices_stand_once_by_claim_and_request() -> None:
    assert claimplan.merged([*DEVICES, DEVICES[0]]) == {
        "gpus": {"gpu": {UUID: ["GPU-0", "GPU-1"]}},
        "parts": {"p/small": {PART: ["GPU-2-mig-0"]}},
    }


@given(st.lists(devices, max_size=12))
def test_a_claim_plan_that_is_written_is_read_again(found: list[tuple[str, str, str, str]]) -> None:
    plan = claimplan.merged(found)
    assert claimplan.read(claimplan.written(plan)) == plan


def test_a_plan_of_nothing_is_no_annotation() -> None:
    assert claimplan.written({}) == claimplan.written({"gpus": {"gpu": {UUID: []}}}) == ""
    assert claimplan.read("") == {}


@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 40))
def test_no_selector_is_longer_than_the_api_server_takes(wholes: int, parts: int, length: int) -> None:
    found = [("c", "r", UUID, f"{at:0{length}}") for at in range(wholes)]
    found += [("c", "r", PART, f"{at:0{length}}") for at in range(parts)]
    for requests in claimplan.read(claimplan.written(claimplan.merged(found))).values():
        assert len(claimplan.expression(requests["r"])) <= claimplan.MOST_EXPRESSION


def test_of_too_many_devices_the_first_are_planned() -> None:
    many = claimplan.merged(("gpus", "gpu", UUID, f"GPU-{number:036}") for number in range(1000))
    (kept,) = claimplan.read(claimplan.written(many))["gpus"]["gpu"].values()
    assert 200 < len(kept) < 300
    assert kept == many["gpus"]["gpu"][UUID][: len(kept)]


@pytest.mark.parametrize(
    "found",
    [
        [],
        {"gpus": []},
        {"gpus": {"gpu": {UUID: "GPU-0"}}},
        {"gpus": {"gpu": {UUID: ['GPU-0"] || true || "" in ["']}}},
        {"gpus": {"gpu": {'a"].b || true/uuid': ["GPU-0"]}}},
        {"gpus": {"gpu": {"uuid": ["GPU-0"]}}},
    ],
)
def test_what_is_no_plan_is_none(found: Any) -> None:
    assert claimplan.read(json.dumps(found)) == {}
    assert claimplan.read(json.dumps(found)[:-1]) == {}


@pytest.mark.parametrize("word", ["in", "namespace", "var", "true"])
def test_no_selector_has_a_reserved_word_of_cel(word: str) -> None:
    assert not claimplan.sayable(f"d.com/{word}", "GPU-0")
    assert claimplan.sayable(f"d.com/{word}s", "GPU-0")
    assert claimplan.read(json.dumps({"gpus": {"gpu": {f"d.com/{word}": ["GPU-0"]}}})) == {}


def test_what_names_no_device_makes_no_selector() -> None:
    empty: Any = {"none": {}, "gpu": {UUID: ["GPU-0"], PART: []}, "parts": {PART: []}}
    assert claimplan.read(json.dumps({"gpus": empty})) == {"gpus": {"gpu": {UUID: ["GPU-0"]}}}


def test_an_attribute_that_a_device_lacks_is_no_error() -> None:
    assert claimplan.expression({UUID: ["GPU-0", "GPU-1"], PART: ["p"]}) == (
        '("uuid" in device.attributes["gpu.nvidia.com"] && device.attributes["gpu.nvidia.com"].uuid in '
        '["GPU-0", "GPU-1"]) || ("part" in device.attributes["tessera.dev"] && '
        'device.attributes["tessera.dev"].part in ["p"])'
    )
