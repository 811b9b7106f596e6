"""Parts of GPUs become percents, by the webhook and by the policy alike."""

from collections.abc import Iterable
from typing import Any, Final

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from controller.foreign.rules.fractions import ASKS, PATCH, VARIABLES, Fleet, translation
from controller.jobs.framework.raw import JobError
from inventory.api.names import GPU_PERCENT, GPU_PERCENT_DEVICES
from tests.support.controller.celpolicies import evaluated, patched, rewritten

FLEET: Final = Fleet(granularity=10, memory_mib={"a": 80000})
MIXED: Final = Fleet(granularity=1, memory_mib={"a": 80000, "h": 160000})


def named(start: str, limits: Iterable[dict[str, Any] | None]) -> list[dict[str, Any]]:
    return [
        {"name": f"{start}{index}", "resources": {} if each is None else {"limits": {**each}, "requests": {**each}}}
        for index, each in enumerate(limits)
    ]


def pod(
    *limits: dict[str, Any] | None,
    product: str = "",
    inits: Iterable[dict[str, Any] | None] = (),
    **annotations: str,
) -> dict[str, Any]:
    """As the API server shows it: requests are limits where nothing is written."""
    spec: dict[str, Any] = {"containers": named("c", limits)}
    spec |= {"nodeSelector": {_PRODUCT: product}} if product else {}
    spec |= {"initContainers": of_inits} if (of_inits := named("i", inits)) else {}
    notes = {key.replace("_", "-"): value for key, value in annotations.items()}
    return {"metadata": {"annotations": notes} if notes else {}, "spec": spec}


_PRODUCT: Final = "nvidia.com/gpu.product"
MEM, CORES, PART = "nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpumem-percentage"


def by_policy(given: dict[str, Any], fleet: Fleet) -> list[dict[str, Any]]:
    known: dict[str, Any] = {
        "object": given,
        "params": {"data": {product: str(mib) for product, mib in fleet.memory_mib.items()}},
        "variables": {},
    }
    if not evaluated(ASKS.replace("POD", "object"), known):
        return []
    for name, expression in VARIABLES.items():
        written = expression.replace("POD", "object").replace("STEP", str(fleet.granularity))
        known["variables"][name] = evaluated(written, known)
    return list(evaluated(rewritten(PATCH.replace("BASE", "")), known))


def asked(given: dict[str, Any], fleet: Fleet = FLEET) -> list[Any]:
    """What each container asks for, init containers last, its limits and requests being the same."""
    made = patched(given, translation(given, fleet))
    assert made == patched(given, by_policy(given, fleet))
    every = [*made["spec"]["containers"], *made["spec"].get("initContainers", [])]
    found = [each["resources"].get("limits") for each in every]
    assert found == [each["resources"].get("requests") for each in every]
    assert translation(made, fleet) == []
    return found


@pytest.mark.parametrize(
    ("given", "fleet", "found"),
    [
        (pod(None, gpu_fraction="0.3"), FLEET, [{GPU_PERCENT: "30"}]),
        (pod({"cpu": "1"}, gpu_fraction="0.57"), FLEET, [{"cpu": "1", GPU_PERCENT: "60"}]),
        (pod(None, gpu_fraction="0.57"), MIXED, [{GPU_PERCENT: "57"}]),
        (pod(None, gpu_fraction="1."), FLEET, [{GPU_PERCENT: "100"}]),
        (pod(None, gpu_fraction="1.5"), FLEET, [None]),
        (pod(None, gpu_fraction="0.3\n"), FLEET, [None]),
        (pod({GPU_PERCENT: "20"}, gpu_fraction="0.3"), FLEET, [{GPU_PERCENT: "20"}]),
        (pod(None, None, gpu_fraction="0.3", gpu_fraction_container_name="c1"), FLEET, [None, {GPU_PERCENT: "30"}]),
        (pod(None, gpu_fraction="0.3", gpu_fraction_container_name="no"), FLEET, [None]),
        (
            pod({"cpu": "1"}, inits=[None, {"cpu": "2"}], gpu_fraction="0.33", gpu_fraction_container_name="i1"),
            FLEET,
            [{"cpu": "1"}, None, {"cpu": "2", GPU_PERCENT: "40"}],
        ),
        (
            pod(None, inits=[None], gpu_memory="8001", gpu_fraction_container_name="i0"),
            FLEET,
            [None, {GPU_PERCENT: "20"}],
        ),
        (pod(None, inits=[None], gpu_fraction="0.3"), FLEET, [{GPU_PERCENT: "30"}, None]),
        (pod(None, inits=[{GPU_PERCENT: "20"}], gpu_fraction="0.3"), FLEET, [None, {GPU_PERCENT: "20"}]),
        (pod(None, inits=[{CORES: 30}], gpu_fraction="0.3"), FLEET, [{GPU_PERCENT: "30"}, {CORES: 30}]),
        (pod(None, gpu_memory="8001"), FLEET, [{GPU_PERCENT: "20"}]),
        (pod(None, gpu_memory="8000"), FLEET, [{GPU_PERCENT: "10"}]),
        (pod(None, gpu_memory="8000"), MIXED, [None]),
        (pod(None, gpu_memory="8000", product="h"), MIXED, [{GPU_PERCENT: "5"}]),
        (pod(None, gpu_memory="8000", product="x"), FLEET, [None]),
        (pod({MEM: 16000, "nvidia.com/gpu": 1, "cpu": 1}), FLEET, [{"cpu": 1, GPU_PERCENT: "20"}]),
        (pod({CORES: 30, PART: 40}), FLEET, [{GPU_PERCENT: "40"}]),
        (pod({CORES: 50, PART: 40}), FLEET, [{GPU_PERCENT: "50"}]),
        (pod({CORES: 30, "nvidia.com/gpu": 2}), FLEET, [{CORES: 30, "nvidia.com/gpu": 2}]),
        (pod({MEM: 16000}), MIXED, [{MEM: 16000}]),
        (pod({CORES: 30}, {CORES: 40}, gpu_fraction="0.2"), FLEET, [{GPU_PERCENT: "30"}, {GPU_PERCENT: "40"}]),
        (pod({"nvidia.com/gpu": 2}), FLEET, [{"nvidia.com/gpu": 2}]),
        (pod(None, gpu_fraction_num_devices="2"), FLEET, [None]),
    ],
)
def test_a_part_of_a_gpu_becomes_percents(given: dict[str, Any], fleet: Fleet, found: list[Any]) -> None:
    assert asked(given, fleet) == found


@pytest.mark.parametrize(("devices", "percent"), [("2", "80"), ("64", "2560"), ("1", "40"), ("65", "40"), ("x", "40")])
def test_a_part_of_several_gpus_says_of_how_many(devices: str, percent: str) -> None:
    given = pod(None, gpu_fraction="0.33", gpu_fraction_num_devices=devices)
    assert asked(given) == [{GPU_PERCENT: percent}]
    notes = patched(given, translation(given, FLEET))["metadata"]["annotations"]
    assert notes.get(GPU_PERCENT_DEVICES) == (devices if devices in ("2", "64") else None)


def test_a_pod_beyond_what_is_looked_at_is_left_from_there_on() -> None:
    given = pod(*[{CORES: 30}] * 17)
    assert asked(given) == [{GPU_PERCENT: "30"}] * 16 + [{CORES: 30}]


def test_operations_of_a_template_lie_below_it() -> None:
    given = pod(None, gpu_fraction="0.3", gpu_fraction_num_devices="2")
    paths = [each["path"] for each in translation(given, FLEET, "/spec/template")]
    assert paths == [f"/spec/template{each['path']}" for each in translation(given, FLEET)]
    assert paths[-1] == "/spec/template/metadata/annotations/tessera.dev~1gpu-percent-devices"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (pod({CORES: "half"}), "resources.limits[nvidia.com/gpucores]: expected a quantity"),
        (pod({CORES: "500m"}), "resources.limits[nvidia.com/gpucores]: expected a whole number, found '500m'"),
        ({"spec": {"containers": [7]}}, "container: expected an object, found int"),
        ({"metadata": {"annotations": {"gpu-fraction": 1}}, "spec": {}}, "expected a string, found int"),
    ],
)
def test_what_is_no_pod_is_told(given: dict[str, Any], says: str) -> None:
    with pytest.raises(JobError) as told:
        translation(given, FLEET)
    assert says in str(told.value)


AMOUNT: Final = st.sampled_from([0, 1, "7", "30", 100, "1k", 79999])
LIMITS: Final = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.just("1"),
        "nvidia.com/gpu": st.sampled_from([1, 2, "1"]),
        **dict.fromkeys((CORES, MEM, PART, GPU_PERCENT), AMOUNT),
    },
)
NOTES: Final = st.fixed_dictionaries(
    {},
    optional={
        "gpu_fraction": st.sampled_from(["0.3", ".999", "1", "0", "2", ""]),
        "gpu_memory": st.sampled_from(["1", "40000", "0", "x"]),
        "gpu_fraction_num_devices": st.sampled_from(["1", "3", "0", "x"]),
        "gpu_fraction_container_name": st.sampled_from(["c0", "c1", "i0", "i1", "no"]),
    },
)


@settings(max_examples=30, deadline=None)
@drawn(
    st.lists(LIMITS, min_size=1, max_size=3),
    st.lists(LIMITS, max_size=2),
    st.sampled_from(["", "a", "h"]),
    NOTES,
    st.sampled_from([FLEET, MIXED]),
)
def test_webhook_and_policy_write_the_same(
    limits: list[dict[str, Any] | None],
    inits: list[dict[str, Any] | None],
    product: str,
    notes: dict[str, str],
    fleet: Fleet,
) -> None:
    given = pod(*limits, product=product, inits=inits, **notes)
    assert translation(given, fleet) == by_policy(given, fleet)
